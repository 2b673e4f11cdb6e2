"""From a directory to a running node: what is accepted, what is refused, what a refusal leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from typer.testing import CliRunner

from gossamer import Budget, algorithms, problems, topology
from gossamer.cli import app
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, DataError, GossamerError, NetworkError, PrivacyError
from gossamer.net import Ledger, LedgerError, NodeDirectory, Pace, Running, Sealer, Witness, prepared, try_network
from gossamer.net import launch as launched
from gossamer.net.store.vault import read_key, seal_key
from gossamer.net.store.witness import default_witness, witness_of
from gossamer.net.web.status_board import Board
from gossamer.spec import kind
from tests.lives import hub
from tests.networks import until

__all__ = ["hub"]  # nodes speak in memory

PROBLEM = problems.Logistic(3, feature_bound=1.0)
SAMPLES = [(np.array([0.5, -0.25, 0.5], np.float32), 1)] * 50
QUICK = Pace(deadline=0.1, patience=0.1, retry=0.02, period=0.001)
LATE = 10**6  # exchanges
STATE_KEY = bytes(range(32))


def private(network: Any, **options: Any) -> Any:
    given = {"budget": Budget(1.0), "clip": 1.0, "step": 0.1, **options}
    return algorithms.pd_ogd(PROBLEM, network, **given)


ALONE = private(topology.isolated(1))


def alone(folder: Path, algorithm: Any = ALONE, source: str = "meters") -> NodeDirectory:
    """The directory of a node without neighbours."""
    (made,) = try_network(
        folder, prepared(algorithm), hosts=["127.0.0.1"], sources=[source], pace=QUICK, exchanges=LATE
    )
    return made


def say(node: NodeDirectory, *lines: str) -> None:
    """Change settings: each line takes the place of the one that sets the same, and a table stands at the end."""
    file = node.path / "node.toml"
    text = file.read_text()
    for line in lines:
        if line.startswith("["):
            text += "\n" + line
            continue
        name = line.partition(" ")[0]
        (old,) = [one for one in text.splitlines() if one.startswith(f"{name} = ")]
        text = text.replace(old, line)
    file.write_text(text)


def opened(node: NodeDirectory, exchanges: int = 3, algorithm: Any = ALONE, **options: Any) -> Running:
    return launched(node, node.settings(), algorithm, **{"data": SAMPLES, "exchanges": exchanges, **options})


def go(node: NodeDirectory, exchanges: int = 3, algorithm: Any = ALONE, **options: Any) -> str:
    """Run a node until it has made so many exchanges; what its board says then."""
    running = opened(node, exchanges, algorithm, **options)
    running.run(linger=False)
    return running.node.board.state


def try_out(node: NodeDirectory, algorithm: Any = ALONE, **options: Any) -> None:
    """Open all that a node needs, and close it again."""
    opened(node, algorithm=algorithm, **options).opened.close()


def rows(node: NodeDirectory) -> int:
    with Ledger.open(node.ledger, read_only=True) as ledger:
        return ledger.last.number


def default_of(node: NodeDirectory) -> Witness:
    with Ledger.open(node.ledger, read_only=True) as ledger:
        return Witness(default_witness(ledger.identity.key))


@contextmanager
def lingering(*running: Running) -> Iterator[None]:
    """Nodes that run to their end, and answer until this is left."""
    threads = [threading.Thread(target=one.run, kwargs={"linger": True}, daemon=True) for one in running]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for one in running:
            one.node.stop()
        for thread in threads:
            thread.join(10)


def run_together(made: list[NodeDirectory], exchanges: int, algorithm: Any) -> None:
    running = [opened(node, exchanges, algorithm) for node in made]
    with lingering(*running):
        until(lambda: all(one.node.board.state == "finished" for one in running))


# Directories that were moved


def test_a_directory_that_was_moved_here_is_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = alone(tmp_path / "net")
    assert go(node, 3) == "finished"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other machine"))
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"witness knows nothing .* --adopt"):
            try_out(node)
        try_out(node, adopt=True)  # nobody has agreed yet, so nothing is remembered
    assert go(node, 5, adopt=True) == "finished"
    assert default_of(node).read().number == rows(node) == 7
    assert go(node, 7) == "finished"


def test_an_old_copy_is_not_adopted(tmp_path: Path) -> None:
    node = alone(tmp_path / "net")
    go(node, 3)
    shutil.copytree(node.path, tmp_path / "old")
    go(node, 5)
    for adopt in (False, True):
        with pytest.raises(LedgerError, match="restored from an old copy"):
            try_out(NodeDirectory(tmp_path / "old"), adopt=adopt)


def test_a_damaged_directory_is_not_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain that no witness knows is checked as a whole."""
    node = alone(tmp_path / "net")
    go(node, 3)
    with closing(sqlite3.connect(node.ledger, isolation_level=None)) as database:
        database.execute("UPDATE rows SET bytes = 1 WHERE number = 3")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other machine"))
    with pytest.raises(LedgerError, match="row 3: its content"):
        try_out(node, adopt=True)


def test_a_damaged_witness_is_not_adopted_over(tmp_path: Path) -> None:
    node = alone(tmp_path / "net")
    go(node, 3)
    default_of(node).path.write_bytes(bytes(8192))
    with pytest.raises(LedgerError, match="the witness is damaged"):
        try_out(node, adopt=True)


@pytest.mark.parametrize("played", [0, 2])
def test_what_a_neighbour_refused_is_not_accepted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, played: int
) -> None:
    """Neither with --adopt again, nor, where it had begun, without it."""
    algorithm = private(topology.complete(2))
    made = try_network(tmp_path / "net", prepared(algorithm), hosts=["127.0.0.1"] * 2, pace=QUICK, exchanges=LATE)
    if played:
        run_together(made, played, algorithm)
    shutil.copytree(made[0].path, tmp_path / "old")
    run_together(made, 5, algorithm)
    neighbour, old = opened(made[1], 5, algorithm), NodeDirectory(tmp_path / "old")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other machine"))
    holds = "neighbour 1 holds a message"
    with lingering(neighbour):
        for adopt, why in ((True, holds), (False, "witness knows nothing" if played else holds), (True, holds)):
            with pytest.raises(LedgerError, match=why):
                go(old, 9, algorithm, adopt=adopt)
    assert rows(old) == (4 if played else 1)
    assert default_of(old).read() is None


def test_a_run_that_has_ended_is_adopted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be released any more, so nobody has to agree."""
    algorithm = private(topology.isolated(1), horizon=2)
    node = alone(tmp_path / "net", algorithm)
    assert go(node, 9, algorithm) == "exhausted"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other machine"))
    with pytest.raises(LedgerError, match="--adopt"):
        go(node, 9, algorithm)
    assert go(node, 9, algorithm, adopt=True) == go(node, 9, algorithm) == "exhausted"


def test_all_neighbours_must_agree_to_an_adoption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = private(topology.complete(3))
    made = try_network(tmp_path / "net", prepared(algorithm), hosts=["127.0.0.1"] * 3, pace=QUICK, exchanges=LATE)
    run_together(made, 2, algorithm)
    others = [opened(node, 4, algorithm) for node in made[1:]]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other machine"))
    moved, told = opened(made[0], 4, algorithm, adopt=True), []
    monkeypatch.setattr(moved.node.board, "log", lambda event, **facts: told.append((event, facts)))
    with lingering(moved, others[0]):
        until(lambda: ("waiting", {"answers": 1, "needed": 2}) in told)
        assert moved.node.ledger.last.exchange == 1
        assert default_of(made[0]).read() is None
        with lingering(others[1]):
            until(lambda: moved.node.board.state == "finished")
    assert default_of(made[0]).read().number == rows(made[0]) == 6


# Where the witness lies


def test_a_witness_in_the_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be restored together with it."""
    node = alone(tmp_path / "net")
    (tmp_path / "outside").symlink_to(node.path / "inside")
    for chosen in (".", "witness", "../node-0/witness", str(node.path / "a" / "b"), str(tmp_path / "outside")):
        say(node, f'witness = "{chosen}"')
        with pytest.raises(ConfigurationError, match="outside of the node's"):
            try_out(node)
    say(node, 'witness = ""')
    monkeypatch.setenv("XDG_STATE_HOME", str(node.path / "state"))
    with pytest.raises(ConfigurationError, match="outside of the node's"):
        try_out(node)
    assert rows(node) == 1


def test_a_directory_behind_a_link_is_the_same(tmp_path: Path) -> None:
    node = alone(tmp_path / "net")
    (tmp_path / "link").symlink_to(node.path)
    say(node, f'witness = "{node.path / "witness"}"')
    with pytest.raises(ConfigurationError, match="outside of the node's"):
        try_out(NodeDirectory(tmp_path / "link"))


@pytest.mark.parametrize("chosen", ["../../volume", "{}/volume"])
def test_a_witness_in_a_volume(tmp_path: Path, chosen: str) -> None:
    node = alone(tmp_path / "net")
    say(node, f'witness = "{chosen.format(tmp_path)}"')
    go(node, 3)
    (file,) = (tmp_path / "volume").iterdir()
    assert Witness(file).read().number == 5
    assert [one.name for one in (tmp_path / "machine" / "gossamer").iterdir()] == ["sources.db"]
    shutil.copytree(node.path, tmp_path / "net" / "old")
    go(node, 5)
    old = NodeDirectory(tmp_path / "net" / "old")
    with pytest.raises(LedgerError, match="old copy"):
        try_out(old)
    for command in ("verify", "total"):  # by the directory and by the file
        for place in (old.path, old.ledger):
            result = CliRunner().invoke(app, ["ledger", command, str(place)])
            assert result.exit_code == 2
            assert "old copy" in result.stderr
    result = CliRunner().invoke(app, ["ledger", "verify", str(node.path), str(node.ledger)])
    assert result.stdout.count("volume agrees)") == 2
    file.unlink()
    result = CliRunner().invoke(app, ["ledger", "verify", str(node.path)])
    assert result.exit_code == 0
    assert "(no witness in " in result.stdout


def test_names_of_witnesses_lead_nowhere_else() -> None:
    with pytest.raises(ConfigurationError, match="witness"):
        witness_of(Path("/nodes/node-0"), "/volume", "../escaped")


# Encryption at rest


def sealed_node(folder: Path) -> tuple[NodeDirectory, bytes, Path]:
    """A directory whose settings say sealed, its noise key, and a file with the state key."""
    node, file = alone(folder / "net"), folder / "state.key"
    say(node, "sealed = true")
    file.write_bytes(STATE_KEY)
    return node, (node.path / "noise.key").read_bytes(), file


def content(node: NodeDirectory) -> bytes:
    """All files but the one that every node has."""
    return b"".join(file.read_bytes() for file in node.path.iterdir() if file.name != "agreement.json")


def test_nothing_of_state_or_key_is_in_clear(tmp_path: Path) -> None:
    node, key, file = sealed_node(tmp_path)
    assert key in content(node)
    assert go(node, 3, state_key=file) == "finished"
    for found in (content(node), default_of(node).path.read_bytes()):
        for secret in (key, key[:16], key[16:], b"gossip", STATE_KEY):
            assert secret not in found
    assert {one.stat().st_mode & 0o077 for one in (node.path / "noise.key", node.ledger)} == {0}
    assert not (node.path / "noise.key.new").exists()
    assert go(node, 5, state_key=file) == "finished"
    assert rows(node) == 7
    plain = alone(tmp_path / "plain")
    go(plain, 3)
    assert b"gossip" in content(plain)  # the search finds what is there
    assert CliRunner().invoke(app, ["ledger", "verify", str(node.path)]).exit_code == 0  # needs neither key


def test_a_key_that_is_wrong_or_missing_is_refused(tmp_path: Path) -> None:
    node, _, file = sealed_node(tmp_path)
    go(node, 3, state_key=file)
    wrong, short = tmp_path / "wrong.key", tmp_path / "short.key"
    wrong.write_bytes(bytes(32))
    short.write_bytes(bytes(31))
    before = content(node)
    for given, error, why in (
        (wrong, PrivacyError, "noise.key cannot be unsealed"),
        (short, PrivacyError, "exactly 32 secret bytes"),
        (None, ConfigurationError, "--state-key: got 'none'"),
        (tmp_path / "nowhere", ConfigurationError, "--state-key: got .*nowhere"),
        (tmp_path, ConfigurationError, "--state-key"),
    ):
        with pytest.raises(error, match=why):
            try_out(node, state_key=given)
    say(node, "sealed = false")
    with pytest.raises(PrivacyError, match=r"noise.key is sealed .* --state-key"):
        try_out(node)
    say(node, "sealed = true")
    assert content(node) == before
    assert go(node, 5, state_key=file) == "finished"


def test_a_key_that_is_not_wanted_is_refused(tmp_path: Path) -> None:
    node, key, file = sealed_node(tmp_path)
    say(node, "sealed = false")
    with pytest.raises(ConfigurationError, match=r"where node.toml says sealed = true, and only there"):
        try_out(node, state_key=file)
    assert go(node, 3) == "finished"
    say(node, "sealed = true")
    with pytest.raises(PrivacyError, match="begun without"):
        try_out(node, state_key=file)
    say(node, "sealed = false")
    assert go(node, 5) == "finished"  # the refusal sealed nothing
    assert (node.path / "noise.key").read_bytes() == key


@pytest.mark.parametrize("point", ["fsync", "replace"])
def test_a_crash_while_the_key_is_sealed_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    file, sealer = tmp_path / "noise.key", Sealer(STATE_KEY)
    file.write_bytes(b"k" * 32)

    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os if point == "fsync" else Path, point, crash)
        with pytest.raises(KeyboardInterrupt):
            seal_key(file, sealer)
    assert file.read_bytes() == b"k" * 32
    seal_key(file, sealer)
    assert read_key(file, sealer) == b"k" * 32
    assert [one.name for one in tmp_path.iterdir()] == ["noise.key"]


def test_sealing_overwrites_the_bytes_in_clear_and_happens_once(tmp_path: Path) -> None:
    file, before, sealer = tmp_path / "noise.key", tmp_path / "before", Sealer(STATE_KEY)
    file.write_bytes(b"k" * 32)
    before.hardlink_to(file)
    seal_key(file, sealer)
    assert before.read_bytes() == bytes(32)
    sealed = file.read_bytes()
    seal_key(file, sealer)
    assert file.read_bytes() == sealed


def test_a_key_that_cannot_be_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that refuses is told; a file that is sealed already is not written."""
    node, key, file = sealed_node(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(PrivacyError, match=r"noise.key cannot be replaced .*No space left"):
            seal_key(node.path / "noise.key", Sealer(STATE_KEY))
    assert (node.path / "noise.key").read_bytes() == key
    (node.path / "noise.key.new").chmod(0o644)  # what a crash left
    go(node, 2, state_key=file)
    assert (node.path / "noise.key").stat().st_mode & 0o077 == 0
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["gossamer.net.store.vault"], "_replace", full)
        assert go(node, 4, state_key=file) == "finished"


def test_a_key_that_is_gone_or_open_to_others(tmp_path: Path) -> None:
    node = alone(tmp_path / "net")
    file = node.path / "noise.key"
    file.chmod(0o640)
    with pytest.raises(PrivacyError, match="others may read"):
        try_out(node)
    file.unlink()
    with pytest.raises(PrivacyError, match=r"noise.key is gone"):
        try_out(node)


# Earlier runs over the same data


def after(folder: Path, *earlier: str, budget: float | None = 2.0, **options: Any) -> NodeDirectory:
    """A new node whose settings name earlier runs, each seen from its directory."""
    node = alone(folder, **options)
    say(node, f"earlier = {json.dumps(earlier)}", *([f"[budget]\nepsilon = {budget}\ndelta = 1e-6"] if budget else []))
    return node


@pytest.mark.parametrize(
    ("budget", "earlier", "enough"),
    [
        (1.0, [], True),
        (1.99, ["../../one/node-0"], False),
        (2.0, ["../../one/node-0"], True),
        (2.99, ["../../one/node-0", "../../two/node-0/ledger.db"], False),
        (3.0, ["../../one/node-0", "../../two/node-0/ledger.db"], True),
        (2.0, ["../../one/node-0", "../../one/node-0/ledger.db", "../../one/../one/node-0"], True),
        (2.0, ["../../one/node-0", "../../copy"], True),
        (2.0, ["../../one/node-0", "../../one.jsonl"], True),
        (1.99, ["../../one.jsonl"], False),
        (1.0, ["../../new/node-0"], True),
    ],
)
def test_a_budget_counts_earlier_runs(
    tmp_path: Path, budget: float, earlier: list[str], enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each costs 1, as this one does; one that has not begun costs nothing, and a copy is the same run."""
    witnesses = [f'witness = "{tmp_path / "volume"}"']
    one, two = alone(tmp_path / "one"), alone(tmp_path / "two")
    alone(tmp_path / "new")
    for node in (one, two):
        say(node, *witnesses)
        go(node, 2)
    shutil.copytree(one.path, tmp_path / "copy")
    CliRunner().invoke(app, ["ledger", "export", str(one.path), "--out", str(tmp_path / "one.jsonl")])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other machine"))  # whose registry knows of none
    node = after(tmp_path / "net", *earlier, budget=budget)
    if enough:
        assert go(node, 3) == "finished"
    else:
        with pytest.raises(PrivacyError, match=r"budget: these data may cost epsilon .* Other runs over them"):
            try_out(node)
    assert rows(node) == (5 if enough else 1)


def other_source(folder: Path) -> str:
    go(alone(folder / "one", source="litres"), 2)
    return "../../one/node-0"


@kind("algorithm", "tests:for_outsiders", readable=False)
def for_outsiders(algorithm: Algorithm) -> Algorithm:
    return replace(algorithm, guarantee=replace(algorithm.guarantee, observer="outsiders"))


def other_unit(folder: Path) -> str:
    """Whoever sees the decisions only is another observer."""
    algorithm = for_outsiders(ALONE)
    go(alone(folder / "one", algorithm), 2, algorithm)
    return "../../one/node-0"


def an_old_copy(folder: Path) -> str:
    node = alone(folder / "one")
    go(node, 2)
    shutil.copytree(node.path, folder / "old")
    go(node, 3)
    return "../../old"


def an_old_copy_by_a_witness_of_its_own(folder: Path) -> str:
    node = alone(folder / "one")
    say(node, f'witness = "{folder / "volume"}"')
    go(node, 2)
    shutil.copytree(node.path, folder / "old")
    go(node, 3)
    return "../../old"


def itself(folder: Path) -> str:
    return "../node-0"


def nothing(folder: Path) -> str:
    return "../nowhere"


def a_place_that_cannot_be_locked(folder: Path) -> str:
    node = alone(folder / "one")
    go(node, 2)
    (node.path / "ledger.lock").unlink()
    (node.path / "ledger.lock").mkdir()
    return "../../one/node-0"


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (other_source, ConfigurationError, "runs over the same source, 'meters'"),
        (other_unit, ConfigurationError, r"runs that protect one sample.*observer peers.*observer outsiders"),
        (an_old_copy, LedgerError, r"old/ledger.db: row 4: .*old copy"),
        (an_old_copy_by_a_witness_of_its_own, LedgerError, "old copy"),
        (itself, ConfigurationError, "other runs than this one"),
        (nothing, ConfigurationError, "a file that can be read"),
        (a_place_that_cannot_be_locked, ConfigurationError, r"can be locked.*an export will do"),
    ],
)
def test_earlier_runs_that_cannot_be_counted(
    tmp_path: Path, make: Callable[[Path], str], error: type[GossamerError], why: str
) -> None:
    node = after(tmp_path / "net", make(tmp_path))
    with pytest.raises(error, match=why):
        try_out(node)
    assert rows(node) == 1
    say(node, "earlier = []")
    if make is other_unit:  # the registry knows it all the same
        with pytest.raises(PrivacyError, match="They do not protect the same"):
            try_out(node)
    else:
        try_out(node)  # nothing stays locked


def test_two_copies_of_an_earlier_run_that_went_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, copy = alone(tmp_path / "one"), NodeDirectory(tmp_path / "copy")
    go(one, 2)
    shutil.copytree(one.path, copy.path)
    go(one, 3, data=SAMPLES)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other machine"))
    go(copy, 4, data=[([0.1, 0.1, 0.1], 0)] * 9, adopt=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "third machine"))  # which knows neither
    with pytest.raises(LedgerError, match="differ at row"):
        try_out(after(tmp_path / "net", "../../one/node-0", "../../copy", budget=9.0))


def test_earlier_runs_need_a_budget_to_count_towards(tmp_path: Path) -> None:
    go(alone(tmp_path / "one"), 2)
    with pytest.raises(ConfigurationError, match=r"none without a \[budget\]"):
        try_out(after(tmp_path / "net", "../../one/node-0", budget=None))


def test_an_earlier_run_cannot_go_on_meanwhile(tmp_path: Path) -> None:
    one = alone(tmp_path / "one")
    go(one, 2)
    node = after(tmp_path / "net", "../../one/node-0")
    running = opened(one)
    with pytest.raises(NetworkError, match=r"earlier: .*one/node-0 is in use"):
        try_out(node)
    running.opened.close()
    running = opened(node)
    with pytest.raises(NetworkError, match="another process"):
        try_out(one)
    with pytest.raises(NetworkError, match="another node counts"):
        try_out(after(tmp_path / "third", "../../one/node-0"))
    assert CliRunner().invoke(app, ["ledger", "total", str(one.path)]).exit_code == 0
    running.run(linger=False)
    assert go(one, 4) == "finished"


def test_no_copy_of_an_earlier_run_can_go_on_meanwhile(tmp_path: Path) -> None:
    one = alone(tmp_path / "one")
    go(one, 2)
    shutil.copytree(one.path, tmp_path / "archive")
    node = after(tmp_path / "net", "../../archive", "../../one/node-0", budget=9.0)
    try_out(node)  # the same run twice
    say(node, 'earlier = ["../../archive"]')
    running = opened(node)
    with pytest.raises(LedgerError, match="another process uses this witness"):
        go(one, 4)
    running.opened.close()
    assert go(one, 4) == "finished"


# The rest of what is opened


def test_addresses_of_nobody_are_refused_and_others_are_taken(tmp_path: Path) -> None:
    algorithm = private(topology.complete(3))
    node, *_ = try_network(tmp_path / "net", prepared(algorithm), hosts=["127.0.0.1"] * 3, arrivals="public")
    say(node, '[addresses]\nnode-2 = "10.0.0.7:7400"')
    peers = node.link(node.settings(), algorithm.topology).peers
    assert {number: one.address for number, one in peers.items()} == {1: "127.0.0.1:7401", 2: "10.0.0.7:7400"}
    file = node.path / "node.toml"
    file.write_text(file.read_text().replace("node-2 =", "node-3 ="))
    with pytest.raises(ConfigurationError, match="a member of the agreement: node-0, node-1, node-2"):
        try_out(node, algorithm)
    assert rows(node) == 1


@pytest.fixture
def files() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_standard_input_after_a_restart_needs_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: ExitStack
) -> None:
    node = alone(tmp_path / "net")
    say(node, 'data = "-"')

    def feed(count: int) -> None:
        given = tmp_path / "given"
        given.write_text('{"x": [0.5, 0.0, 0.5], "y": 1}\n' * count)
        monkeypatch.setattr(sys, "stdin", files.enter_context(given.open()))

    feed(2)
    assert go(node, 2, data=None) == "finished"
    feed(1)
    with pytest.raises(DataError, match="--new-data"):
        go(node, 3, data=None)
    assert rows(node) == 4
    feed(1)
    assert go(node, 3, data=None, new_data=True) == "finished"
    assert rows(node) == 5


def test_settings_that_are_not_those_of_the_ledger(tmp_path: Path) -> None:
    node = alone(tmp_path / "net")
    before = (node.path / "node.toml").read_text()
    say(node, 'source = "litres"')
    with pytest.raises(PrivacyError, match="another network or source"):
        try_out(node)
    (node.path / "node.toml").write_text(before)
    with pytest.raises(PrivacyError, match="configuration: the ledger belongs to another one"):
        try_out(node, private(topology.isolated(1), step=0.2))
    assert rows(node) == 1


def test_the_page_is_opened_with_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, ports = alone(tmp_path / "net"), []
    say(node, 'http = "127.0.0.1:0"')
    monkeypatch.setattr(Board, "log", lambda _, event, **facts: ports.append(facts["port"]))
    with opened(node).opened, urlopen(f"http://127.0.0.1:{ports[0]}/guarantee") as page:
        assert json.load(page)["basis"] == "proven"
    for wrong in ("8400", ":8400", "localhost", "localhost:²"):
        say(node, f'http = "{wrong}"')
        with pytest.raises(ConfigurationError, match=f"http: got '{wrong}'"):
            try_out(node)
