"""A node that is killed at any moment, and goes on: it plays what it would have played, and sends nothing twice.

`python -m bench.crashes` does the same with hundreds of kills.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.errors import ConfigurationError, NetworkError, PrivacyError
from gossamer.net.data.sources import from_iterable
from gossamer.net.directory import NodeDirectory
from gossamer.net.node.agreement import key_fingerprint
from gossamer.net.node.node import Node
from gossamer.net.store.ledger import Identity, Ledger, LedgerError
from gossamer.net.store.witness import Witness
from gossamer.net.web.status_board import Board
from tests import instances
from tests.crashes import (
    LEARNERS,
    NETWORK,
    OPTIONS,
    POINTS,
    REFUSED,
    VICTIM,
    Nursery,
    Plan,
    Trial,
    algorithm_of,
    run_peer,
)
from tests.networks import Hub, Silent, make_member, samples_of

KILLS = 5  # of each algorithm; together they come by every point
FLUSHED = 0.2  # seconds in which what was sent arrives


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    one = Nursery()
    yield one
    one.close()


@pytest.mark.parametrize(("number", "name"), list(enumerate(OPTIONS)))
def test_killed_again_and_again(number: int, name: str, nursery: Nursery, tmp_path: Path) -> None:
    points = [POINTS[(number * KILLS + kill) % len(POINTS)] for kill in range(KILLS)]
    with Trial(nursery, tmp_path / "trial", name, exchanges=30) as trial:
        trial.kill(points, seed=number)
    trial.judge()
    assert set(trial.kills) == set(points)


def test_an_old_copy_is_refused(nursery: Nursery, tmp_path: Path) -> None:
    with Trial(nursery, tmp_path / "trial", "pd_ogd", exchanges=12) as trial:
        trial.die(Plan("after sending", passes=3, pause=FLUSHED))
        old = trial.copy("old")
        trial.die(Plan("after sending", passes=4, pause=FLUSHED))
        newest, received = trial.copy("newest"), trial.book.content()
        trial.restore(old)
        assert trial.live() == REFUSED
        assert "restored from an old copy" in trial.error()
        assert "witness" in trial.error()
        assert trial.live(witness=False) == REFUSED
        assert "neighbour" in trial.error()
        time.sleep(FLUSHED)
        assert trial.book.content() == received
        trial.restore(newest)
        assert trial.live() == 0
    trial.judge()


def test_a_second_process_is_refused(nursery: Nursery, tmp_path: Path) -> None:
    trial = Trial(nursery, tmp_path / "trial", "pd_ogd", exchanges=1)  # nobody else is there: it waits for them
    child = nursery.start(trial.next_life(Plan()))
    while not trial.held():
        time.sleep(0.05)
    copy = trial.copy("copy")
    with pytest.raises(NetworkError, match="another process runs on this directory"):
        Ledger.open(trial.home / "ledger.db")
    with pytest.raises(LedgerError, match="another process uses this witness"):
        Ledger.open(copy / "ledger.db", witness=Witness(trial.witness))
    os.kill(child, signal.SIGKILL)
    assert nursery.ended(10.0) == -signal.SIGKILL
    Ledger.open(trial.home / "ledger.db", witness=Witness(trial.witness)).close()
    trial.close()


def test_neighbours_that_were_restarted_too_refuse_an_old_copy(tmp_path: Path) -> None:
    run_until(3, tmp_path)
    shutil.copytree(tmp_path / "0", tmp_path / "old")
    run_until(12, tmp_path)
    shutil.rmtree(tmp_path / "0")
    (tmp_path / "old").rename(tmp_path / "0")
    with pytest.raises(LedgerError, match=r"neighbour [12] holds a message of exchange"):
        run_until(8, tmp_path)


def run_until(exchange: int, folder: Path) -> None:
    """Run all nodes in threads until the victim has played this exchange; then all stop."""
    algorithm, stream, hub = algorithm_of("pd_ogd"), instances.stream(LEARNERS, 100), Hub()
    members = [
        make_member(
            folder / str(learner),
            algorithm,
            learner,
            hub.transport(learner),
            samples_of(stream, learner, 100),
            key=bytes([learner]) * 32,
        )
        for learner in range(LEARNERS)
    ]
    threads = [threading.Thread(target=run_peer, args=(member,), daemon=True) for member in members]
    for thread in threads:
        thread.start()
    victim = members[VICTIM]
    while max(victim.played, default=0) < exchange and not victim.error:
        time.sleep(0.002)
    for member in members:
        member.node.stop()
    for member, thread in zip(members, threads, strict=True):
        thread.join(10.0)
        member.node.ledger.close()
    if victim.error:
        raise victim.error


# Controls: nodes that do what must not be done are found out.


def test_a_node_that_computes_again_is_found_out(nursery: Nursery, tmp_path: Path) -> None:
    with Trial(nursery, tmp_path / "trial", "pd_ogd", exchanges=12, kind="Recomputing") as trial:
        trial.die(Plan("after sending", passes=2, pause=FLUSHED))
        trial.examine()
        trial.die(Plan("after sending", passes=1, pause=FLUSHED))
        with pytest.raises(AssertionError, match="two payloads"):
            trial.examine()


def test_a_node_that_sends_first_is_found_out(nursery: Nursery, tmp_path: Path) -> None:
    with Trial(nursery, tmp_path / "trial", "pd_ogd", exchanges=12, kind="Hasty") as trial:
        trial.die(Plan("after sending", passes=2, pause=FLUSHED))
        with pytest.raises(AssertionError, match="not in the ledger"):
            trial.examine()


# What does not belong together.

KEY = bytes(range(32))


@pytest.mark.parametrize("other", ["learner", "configuration", "key"])
def test_a_ledger_of_anything_else_is_refused(other: str, tmp_path: Path) -> None:
    algorithm = algorithm_of("pd_ogd")
    made = algorithm_of("dpsda_ps") if other == "configuration" else algorithm
    learner, key = (1 if other == "learner" else VICTIM), (bytes(32) if other == "key" else KEY)
    path, hub = tmp_path / "ledger.db", Hub()
    Ledger.create(path, Identity(NETWORK, learner, made.digest, "test", key_fingerprint(key)))
    with Ledger.open(path) as ledger, pytest.raises(PrivacyError, match=f"{other}: the ledger belongs to another"):
        Node(
            algorithm,
            VICTIM,
            key=KEY,
            ledger=ledger,
            transport=hub.transport(VICTIM),
            source=from_iterable([], algorithm.problem),
            board=Board(algorithm.problem, algorithm.guarantee, VICTIM, logs=Silent()),
        )
    with Ledger.open(path) as ledger:
        assert ledger.run is None  # not even begun
    assert not hub.sent


def test_a_key_without_its_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "noise.key").write_bytes(KEY)
    (tmp_path / "noise.key").chmod(0o600)
    with pytest.raises(PrivacyError, match="is gone"):
        NodeDirectory(tmp_path).key()
    with pytest.raises(ConfigurationError, match="A key without its ledger is never used"):
        Ledger.open(tmp_path / "ledger.db")
