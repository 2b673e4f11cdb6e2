"""Networks of directories for tests, from their agreement on, whose nodes run in threads and speak in memory."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from zlib import crc32

import pytest

from gossamer import Budget, algorithms, problems, topology
from gossamer.core import Algorithm
from gossamer.errors import GossamerError
from gossamer.net import (
    Bill,
    Ledger,
    Members,
    NodeDirectory,
    Pace,
    Running,
    admit,
    change_network,
    follow,
    join,
    launch,
    new_network,
    prepared,
)
from tests.networks import Hub

PACE = Pace(deadline=5.0, patience=5.0, retry=0.02, period=0.001)
LATE = 10**6  # exchanges: the end of learning
NAMES = ("north", "south", "west")
PROBLEM = problems.Logistic(2, feature_bound=1.0)


def algorithm_for(learners: int, epsilon: float = 1.0) -> Algorithm:
    """Of a complete network; with a delta, as secure noise needs it."""
    made = algorithms.pd_ogd(PROBLEM, topology.complete(learners), budget=Budget(epsilon), clip=1.0, step=0.1)
    return prepared(made)


def sites(names: Iterable[str], port: int = 7400) -> dict[str, str]:
    return {name: f"127.0.0.1:{port + number}" for number, name in enumerate(names)}


def begun(folder: Path, names: Sequence[str], rows: int = 40) -> dict[str, NodeDirectory]:
    """A network whose members have accepted each other, with so many records each."""
    new_network(folder / "coordinator", algorithm_for(len(names)), sites(names), pace=PACE, exchanges=LATE)
    made = {name: joined(folder, name, folder / "coordinator", folder / name, rows) for name in names}
    admit(folder / "coordinator", [node.path / "request.json" for node in made.values()])
    for node in made.values():
        node.accept(folder / "coordinator" / "members.json", lambda members: True)
    return made


def joined(folder: Path, name: str, coordinator: Path, directory: Path, rows: int = 40) -> NodeDirectory:
    data = folder / f"{name}.jsonl"
    write_records(data, name, range(rows))
    return join(coordinator / "agreement.json", name, directory, source=name, data=str(data))


def write_records(file: Path, name: str, numbers: Iterable[int]) -> None:
    with file.open("a", encoding="utf-8") as opened:
        for number in numbers:
            label = (number + len(name)) % 2
            own = crc32(name.encode()) % 1000 / 1e6  # no two sites have the same records
            opened.write(json.dumps({"x": [label - 0.5, number / 1000 + own], "y": label}) + "\n")


def agree(bill: Bill) -> Budget:
    return bill.whole


def same(members: Members, new: Sequence[str]) -> bool:
    return True


def changed(folder: Path, number: int = 2, **options: object) -> Path:
    """The coordinator's directory after a change; `add` and `remove` name members."""
    old = folder / ("coordinator" if number == 2 else f"coordinator-{number - 1}")
    change_network(old, folder / f"coordinator-{number}", **options)  # type: ignore[arg-type]
    return folder / f"coordinator-{number}"


def followed(node: NodeDirectory, coordinator: Path, directory: Path) -> NodeDirectory:
    files = coordinator / "agreement.json", coordinator / "members.json"
    return follow(node, directory, *files, compared=same, consent=agree)


def run(
    nodes: Mapping[str, NodeDirectory] | Sequence[NodeDirectory], exchanges: int, adopt: Collection[NodeDirectory] = ()
) -> list[str]:
    """Run all nodes for so many exchanges; their states at the end."""
    return [one.node.board.state for one in lived(nodes, exchanges, adopt)]


def lived(
    nodes: Mapping[str, NodeDirectory] | Sequence[NodeDirectory], exchanges: int, adopt: Collection[NodeDirectory] = ()
) -> list[Running]:
    """What is left of all nodes after so many exchanges. What one of them refuses is raised."""
    found = list(nodes.values()) if isinstance(nodes, Mapping) else list(nodes)
    started, errors = [], list[BaseException]()
    for node in found:
        options = {"exchanges": exchanges, "adopt": node in adopt}
        started.append(launch(node, node.settings(), node.agreement().algorithm(), **options))

    def live(one: Running) -> None:
        try:
            one.run(linger=False)
        except GossamerError as refusal:
            errors.append(refusal)

    threads = [threading.Thread(target=live, args=(one,), daemon=True) for one in started]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 60
    while any(thread.is_alive() for thread in threads) and not errors and time.monotonic() < end:
        time.sleep(0.01)
    for one, thread in zip(started, threads, strict=True):
        one.node.stop()
        thread.join(10)
    if errors:
        raise errors[0]
    return started


def rows_read(node: NodeDirectory) -> int:
    """Up to which byte of its data a node has read."""
    from gossamer.net.ledgers import last_mark

    return int(last_mark(node.path, None).get("byte", 0))


def rows_of(node: NodeDirectory) -> int:
    with Ledger.open(node.ledger, read_only=True) as ledger:
        ledger.verify()
        return ledger.last.number


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Nodes speak in memory, and this machine keeps its witnesses in a folder."""
    made = Hub()
    monkeypatch.setattr(
        sys.modules["gossamer.net.startup"], "ZenohTransport", lambda link, forged: made.transport(link.learner)
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "machine"))
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sites that have accepted each other, and have not run: to be copied."""
    folder = tmp_path_factory.mktemp("made")
    begun(folder, NAMES)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "net"))


@pytest.fixture
def nodes(folder: Path) -> dict[str, NodeDirectory]:
    return {name: NodeDirectory(folder / name) for name in NAMES}
