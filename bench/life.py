"""The life of a network in one script, over TLS, with nodes that are killed again and again: `python -m bench.life`.

Five nodes, two of them with directories of Gossamer 0.2. Certificates are renewed while they run, one member leaves and
one comes, one loses its disk and comes back from a backup, and the horizon is extended. Writes docs/evidence/life.md.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gossamer import Budget, algorithms, problems, topology
from gossamer.core import Algorithm
from gossamer.errors import NetworkError
from gossamer.net import (
    NodeDirectory,
    Pace,
    admit,
    back_up,
    change_network,
    follow,
    join,
    launch,
    new_network,
    prepared,
    restore,
    upgrade,
)
from gossamer.net.ledgers import checked_ledger, distinct, last_mark
from gossamer.net.node.spending import added_up, cost_of
from gossamer.net.store.ledger import Ledger
from gossamer.net.wire.certificates import described
from gossamer.net.wire.renewal import renew
from gossamer.privacy import compose
from gossamer.reports.html import versions

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "evidence" / "life.md"
STORED = ROOT / "tests" / "data" / "node-0.2"
LONGEST = 300.0  # seconds of one run
UPGRADED = ("north", "south")
MEMBERS = (*UPGRADED, "west", "east", "mid")


def algorithm_for(learners: int, horizon: int) -> Algorithm:
    options = {"budget": Budget(1.0, 1e-6), "clip": 1.0, "step": 0.1, "noise": "gaussian", "horizon": horizon}
    problem = problems.Logistic(2, feature_bound=2.0)
    return prepared(algorithms.pd_ogd(problem, topology.ring(learners), **options))


class Nursery:
    """A process that has imported everything and started nothing, from which every life of a node is forked."""

    def __init__(self) -> None:
        code = "from bench.life import nursery; nursery()"
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code],  # jax warns of forks; nothing of it has started
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def start(self, node: NodeDirectory) -> int:
        """Begin a life; gives the id of its process."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{node.path.resolve()}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it; lives that it has begun go on."""
        with self._process:
            pass


def nursery() -> None:
    """Fork a node for every directory that is named on standard input, and say its id."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries them
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            live(Path(line.strip()))
        print(child, flush=True)


def live(path: Path) -> None:
    """Be a node, until SIGTERM; its log is in its directory."""
    status = 1
    try:
        log = os.open(path / "node.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor, place in ((0, silence), (1, silence), (2, log)):
            os.dup2(place, descriptor)
        node = NodeDirectory(path)
        running = launch(node, node.settings(), node.agreement().algorithm())
        signal.signal(signal.SIGTERM, lambda *_: running.node.stop())
        signal.alarm(int(2 * LONGEST))  # where the parent dies nobody else ends it
        running.run(linger=True)
        status = 0
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(status)


@dataclass
class Story:
    """What has happened so far.

    Attributes:
        folder: for everything.
        horizon: exchanges of the first run.
        period: seconds from one exchange to the next.
        kills: how many in each run.
        rows: of the table: what, and what was found.
    """

    folder: Path
    horizon: int
    period: float
    kills: int
    port: int
    random: random.Random = field(default_factory=lambda: random.Random(5))
    rows: list[tuple[str, str]] = field(default_factory=list)
    runs: dict[str, list[NodeDirectory]] = field(default_factory=dict)
    killed: int = 0

    def tell(self, what: str, found: str) -> None:
        """Add a row."""
        self.rows.append((what, found))

    def records(self, name: str) -> Path:
        """Records of one site, more than it will use; of an upgraded one, behind those that it has used."""
        old = self.folder / "old" / f"node-{UPGRADED.index(name)}" if name in UPGRADED else None
        file = self.folder / f"{name}.jsonl" if old is None else old / "samples.jsonl"
        with file.open("a", encoding="utf-8") as opened:
            for number in range(4 * self.horizon):
                label = self.random.randrange(2)
                x = [label - 0.5 + self.random.gauss(0, 0.3), number / 1e4]
                opened.write(json.dumps({"x": x, "y": label}) + "\n")
        return file

    def play(self, nursery: Nursery, nodes: Mapping[str, NodeDirectory], *, renewing: bool = False) -> None:
        """Run all nodes to the end of their horizon, and kill one of them again and again."""
        alive = {name: nursery.start(node) for name, node in nodes.items()}
        end = time.monotonic() + LONGEST
        try:
            for _ in range(self.kills):
                name = self.random.choice(sorted(nodes))
                before = last_row(nodes[name])
                while last_row(nodes[name]) == before and not ended(nodes[name]):  # it has begun to speak
                    assert time.monotonic() < end, f"{name} does not go on: {log_of(nodes[name])[-1:]}"
                    time.sleep(0.01)
                time.sleep(self.random.uniform(0, 3 * self.period))
                assert not ended(nodes[name]), "the run was over before the last kill"
                os.kill(alive[name], signal.SIGKILL)
                self.killed += 1
                if renewing:
                    for node in nodes.values():
                        renew(node.files())
                    renewing = False
                alive[name] = nursery.start(nodes[name])
            while not all(map(ended, nodes.values())):
                assert time.monotonic() < end, [log_of(node)[-1:] for node in nodes.values()]
                time.sleep(0.05)
        finally:
            for process in alive.values():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGTERM)
            while any(map(lives, alive.values())) and time.monotonic() < end:
                time.sleep(0.02)
        for name, node in nodes.items():
            self.runs.setdefault(name, []).append(node)

    def spent(self, name: str) -> float:
        """What all runs over the data of a site cost together, each ledger verified against its witness."""
        places = [node.path for node in self.runs[name]]
        if name in UPGRADED:
            places.append(self.folder / "old" / f"node-{UPGRADED.index(name)}")
        with ExitStack() as stack:
            found = distinct([checked_ledger(place, stack) for place in places])
            costs = [cost_of(ledger) for ledger in found]
            alone = [ledger.promise.losses[0] for ledger in found if ledger.promise is not None]
        assert len(costs) == len(places)
        epsilon, _ = added_up(costs)
        at = min(1.0, sum(cost.delta for cost in costs))
        assert abs(epsilon - compose(alone).epsilon(at)) < 1e-6, "spends do not add up to what was promised"
        budget = self.runs[name][-1].settings().budget
        assert budget is None or epsilon <= budget["epsilon"]
        return epsilon


def last_row(node: NodeDirectory) -> int:
    with Ledger.open(node.ledger, read_only=True) as ledger:
        return ledger.last.number


def ended(node: NodeDirectory) -> bool:
    with Ledger.open(node.ledger, read_only=True) as ledger:
        return ledger.ended


def log_of(node: NodeDirectory) -> list[str]:
    file = node.path / "node.log"
    return file.read_text().splitlines() if file.exists() else []


def lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def tell(folder: Path, *, horizon: int, period: float, kills: int, port: int) -> Story:
    """The whole story; every claim is an assertion.

    Args:
        folder: to be filled.
        horizon: exchanges of the first two runs; the last one has a quarter more.
        period: seconds from one exchange to the next.
        kills: how many in each of the three runs.
        port: the first of six that are free.
    """
    story, nursery = Story(folder, horizon, period, kills, port), Nursery()
    try:
        first = _begin(story, nursery)
        second = _change(story, nursery, first)
        _extend(story, nursery, second)
    finally:
        nursery.close()
    for name in story.runs:
        story.tell(f"spend of {name}, all runs, by its ledgers", f"epsilon {story.spent(name):.3f}")
    return story


def _begin(story: Story, nursery: Nursery) -> dict[str, NodeDirectory]:
    """Two directories of 0.2 and three new sites become a network; all certificates are renewed while it runs."""
    folder, coordinator = story.folder, story.folder / "coordinator"
    shutil.copytree(STORED, folder / "old")
    sites = {name: f"127.0.0.1:{story.port + number}" for number, name in enumerate(MEMBERS)}
    pace = Pace(deadline=60.0, period=story.period)
    new_network(coordinator, algorithm_for(len(sites), story.horizon), sites, pace=pace)
    agreement, nodes = coordinator / "agreement.json", {}
    for name in MEMBERS:
        data = story.records(name)
        if name in UPGRADED:
            old = NodeDirectory(data.parent)
            nodes[name] = upgrade(old, folder / name, agreement, name, consent=lambda bill: bill.whole, http="")
        else:
            nodes[name] = join(agreement, name, folder / name, source=name, data=str(data))
    admit(coordinator, [node.path / "request.json" for node in nodes.values()])
    for node in nodes.values():
        node.accept(coordinator / "members.json", lambda members: True)
    papers = {name: described((node.path / "cert.pem").read_bytes()) for name, node in nodes.items()}
    begun = time.monotonic()
    story.play(nursery, nodes, renewing=True)
    story.tell("first run: two sites upgraded from 0.2, three new", _about(story, nodes, begun))
    renewed = [described((node.path / "cert.pem").read_bytes()) for node in nodes.values()]
    assert all(new.key == old.key for new, old in zip(renewed, papers.values(), strict=True))
    used = sum('"certificate_used"' in line for node in nodes.values() for line in log_of(node))
    running = used - len(nodes) - story.kills  # every start uses one, too
    took = f"{running} taken by nodes that ran on, the others at their next start"
    story.tell("new certificates for the same keys, in the first run", f"{len(renewed)}: {took}")
    return nodes


def _change(story: Story, nursery: Nursery, nodes: Mapping[str, NodeDirectory]) -> dict[str, NodeDirectory]:
    """East leaves, far comes; the others keep their keys and compare hers only."""
    folder, second = story.folder, story.folder / "coordinator-2"
    far_at = f"127.0.0.1:{story.port + len(MEMBERS)}"
    change_network(folder / "coordinator", second, add={"far": far_at}, remove=["east"])
    far = join(second / "agreement.json", "far", folder / "far", source="far", data=str(story.records("far")))
    admit(second, [far.path / "request.json"])
    compared: list[str] = []
    stay = {name: node for name, node in nodes.items() if name != "east"}
    after = {name: _followed(node, second, folder / f"{name}-2", compared) for name, node in stay.items()}
    said = ""
    try:
        _followed(nodes["east"], second, folder / "east-2", compared)
    except NetworkError as left:
        said = str(left)
    assert "east is no member any more" in said, said
    far.accept(second / "members.json", lambda members: True)
    after["far"] = far
    begun = time.monotonic()
    story.play(nursery, after)
    story.tell("second run: one left, one came", _about(story, after, begun))
    story.tell("keys that the four compared", f"{len(compared) // 4}, that of {compared[0]}")
    assert compared == ["far"] * 4
    return after


def _extend(story: Story, nursery: Nursery, nodes: Mapping[str, NodeDirectory]) -> None:
    """The horizon grows by a quarter; west comes back from a backup."""
    folder, third = story.folder, story.folder / "coordinator-3"
    back_up(nodes["west"], folder / "west.backup")
    shutil.rmtree(nodes["west"].path)
    back, _ = restore(folder / "west.backup", folder / "west-back")
    story.runs["west"][-1] = back
    change_network(folder / "coordinator-2", third, horizon=story.horizon + story.horizon // 4)
    compared: list[str] = []
    after = {
        name: _followed(back if name == "west" else node, third, folder / f"{name}-3", compared)
        for name, node in nodes.items()
    }
    begun = time.monotonic()
    story.play(nursery, after)
    story.tell("third run: a quarter longer, west from its backup", _about(story, after, begun))
    assert not compared
    for node in after.values():
        assert node.agreement().algorithm().guarantee.horizon == story.horizon + story.horizon // 4


def _followed(node: NodeDirectory, coordinator: Path, directory: Path, compared: list[str]) -> NodeDirectory:
    files = coordinator / "agreement.json", coordinator / "members.json"
    asked = compared.extend
    return follow(node, directory, *files, compared=lambda _, new: asked(new) is None, consent=lambda bill: bill.whole)


def _about(story: Story, nodes: Mapping[str, NodeDirectory], begun: float) -> str:
    """What a run was; every node has made every exchange once, and lost nothing."""
    horizon = {node.agreement().algorithm().guarantee.horizon for node in nodes.values()}
    rows = {last_row(node) for node in nodes.values()}
    (steps,) = horizon
    assert rows == {steps + 3}, rows  # the first row, the start, every exchange once, the end
    lost = sum('"missing"' in line for node in nodes.values() for line in log_of(node))
    marks = {name: int(last_mark(node.path, None)["byte"]) for name, node in nodes.items()}
    assert all(marks.values())
    seconds = time.monotonic() - begun
    kills = f"{story.kills} kills, {lost} messages missing, {seconds:.0f} s"
    return f"{len(nodes)} nodes, {steps} exchanges, every row once, {kills}"


def main() -> None:
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = str(Path(folder) / "machine")
        made = Path(folder) / "net"
        made.mkdir()
        story = tell(made, horizon=160, period=0.1, kills=7, port=27_400)
    intro = (
        "# Evidence: the life of a network\n\n"
        "Written by `python -m bench.life` (part of `make evidence`): nodes in processes of their own, over TLS on one "
        "machine. A node that is drawn\nby lot is killed with SIGKILL at any time and started again. How each change "
        "is made: [networks that live](../network-life.md).\n"
    )
    lines = ["| what | found |", "| --- | --- |", *(f"| {what} | {found} |" for what, found in story.rows)]
    last = (
        f"\n{story.killed} kills in all. Every ledger was verified against its witness. Sums of spends are those of "
        f"the guarantees that the runs had,\nand within the budget to which each owner agreed. The lost run of west "
        f"counts in full.\n\nTaken in {time.perf_counter() - begun:.0f} s with {versions()}.\n"
    )
    PAGE.write_text("\n".join([intro, *lines, last]))


if __name__ == "__main__":
    main()
