"""Networks in one process for tests: nodes in threads, over a transport in memory (with faults, if asked) or Zenoh."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from gossamer.core import Algorithm
from gossamer.net.data.sources import from_iterable
from gossamer.net.node.agreement import key_fingerprint, noise_of
from gossamer.net.node.correspondence import Pace
from gossamer.net.node.node import Node
from gossamer.net.store.ledger import Identity, Ledger
from gossamer.net.web.status_board import Board
from gossamer.net.wire.certificates import certified, common_name
from gossamer.net.wire.transport import Receive, Transport
from gossamer.net.wire.zenoh_link import Files, Link, Peer, ZenohTransport
from gossamer.privacy import NoiseSource, NoiseSpec
from gossamer.streams import Stream


@dataclass
class Faults:
    """What a network does to messages, as a function of its own seed."""

    loss: float = 0.0
    twice: float = 0.0
    delay: float = 0.0
    seed: int = 0
    cut: Callable[[int, int, float], bool] = lambda sender, receiver, seconds: False
    lose: Callable[[int, int, bytes], bool] = lambda sender, receiver, data: False


class Hub:
    """Carries bytes between the transports that it made."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.receivers: dict[int, Receive] = {}
        self.faults, self._random = faults, np.random.default_rng(faults.seed if faults else 0)
        self._lock, self._begun = threading.Condition(), time.monotonic()
        self._waiting: list[tuple[float, int, int, int, bytes]] = []
        self._numbers = itertools.count()
        self.sent: list[tuple[int, int, bytes]] = []
        self.delivered: list[tuple[int, int, bytes]] = []
        if faults:
            threading.Thread(target=self._deliver, daemon=True).start()

    def transport(self, learner: int) -> HubTransport:
        return HubTransport(self, learner)

    def carry(self, sender: int, receiver: int, data: bytes) -> None:
        self.sent.append((sender, receiver, data))
        if not self.faults:
            receive = self.receivers.get(receiver)
            return receive(sender, data) if receive else None
        with self._lock:
            now = time.monotonic()
            if self.faults.cut(sender, receiver, now - self._begun) or self._random.random() < self.faults.loss:
                return None
            if self.faults.lose(sender, receiver, data):
                return None
            for _ in range(1 + (self._random.random() < self.faults.twice)):
                due = now + self._random.exponential(self.faults.delay) if self.faults.delay else now
                heapq.heappush(self._waiting, (due, next(self._numbers), sender, receiver, data))
            self._lock.notify()
        return None

    def _deliver(self) -> None:
        while True:
            with self._lock:
                while not self._waiting or self._waiting[0][0] > time.monotonic():
                    self._lock.wait(self._waiting[0][0] - time.monotonic() if self._waiting else None)
                _, _, sender, receiver, data = heapq.heappop(self._waiting)
                receive = self.receivers.get(receiver)
            if receive:
                self.delivered.append((sender, receiver, data))
                receive(sender, data)


@dataclass
class HubTransport:
    hub: Hub
    learner: int

    def open(self, receive: Receive) -> None:
        self.hub.receivers[self.learner] = receive

    def send(self, receiver: int, data: bytes) -> None:
        self.hub.carry(self.learner, receiver, data)

    @property
    def connected(self) -> frozenset[int]:
        return frozenset(self.hub.receivers) - {self.learner}

    def close(self) -> None:
        self.hub.receivers.pop(self.learner, None)


def papers(folder: Path, network: str, learner: int) -> Files:
    """A certificate of a learner on loop-back, and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{learner}.pem", folder / f"{learner}.key"
    for file, data in zip(written, certified(common_name(network, learner), ["127.0.0.1", "::1"]), strict=True):
        file.write_bytes(data)
    return Files(*written)


def pair(one: int, other: int) -> bytes:
    """The secret of two learners under test."""
    return bytes([min(one, other), max(one, other)]) * 16


def peer(address: str, files: Files, one: int, other: int) -> Peer:
    """How one learner knows another, by its papers."""
    return Peer(address, files.certificate.read_bytes(), pair(one, other))


def zenoh_transports(folder: Path, algorithm: Algorithm, network: str = "0" * 32) -> list[ZenohTransport]:
    """One for each learner, with mutual TLS on loop-back; certificates lie in the folder."""
    learners = range(algorithm.learners)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in learners]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    files = [papers(folder, network, learner) for learner in learners]
    made = []
    for learner in learners:
        hears, heard_by = algorithm.topology.ever_meets(learner)
        peers = {other: peer(addresses[other], files[other], learner, other) for other in hears | heard_by}
        made.append(ZenohTransport(Link(network, learner, addresses[learner], peers, files[learner])))
    return made


@dataclass(frozen=True)
class OwnKeys:
    """The noise of nodes, each with a key of its own, for the simulator."""

    sources: tuple[NoiseSource, ...]

    def draw(self, name: str, spec: NoiseSpec, scales: Any, start: int, stop: int) -> np.ndarray:
        each = [s.draw(name, spec, [scale], start, stop) for s, scale in zip(self.sources, scales, strict=True)]
        return np.concatenate(each)


@dataclass
class Member:
    """One node of a network under test, and what it played."""

    node: Node
    key: bytes
    played: dict[int, np.ndarray] = field(default_factory=dict)
    error: BaseException | None = None
    ended: str = ""


class Silent:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, text: str) -> int:
        self.lines.append(text)
        return len(text)

    def flush(self) -> None:
        pass


def make_member(
    folder: Path,
    algorithm: Algorithm,
    learner: int,
    transport: Transport,
    samples: Any,
    *,
    key: bytes | None = None,
    network: str = "0" * 32,
    pace: Pace | None = None,
    run: str | None = None,
    **options: Any,
) -> Member:
    """A node in a folder; made there at the first call. The same key, data and id of the run: the same messages."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "ledger.db"
    key = key or secrets.token_bytes(32)
    if not file.exists():
        Ledger.create(file, Identity(network, learner, algorithm.digest, "test", key_fingerprint(key)))
        if run is not None:
            with Ledger.open(file) as fresh:
                fresh.begin(run, algorithm.guarantee)
    board = Board(algorithm.problem, algorithm.guarantee, learner, logs=Silent())
    played: dict[int, np.ndarray] = {}
    node = Node(
        algorithm,
        learner,
        key=key,
        ledger=Ledger.open(file),
        transport=transport,
        source=from_iterable(samples, algorithm.problem),
        board=board,
        pace=pace or Pace(deadline=30.0),
        play=played.__setitem__,
        **options,
    )
    return Member(node, key, played)


def repeatable(
    folder: Path, algorithm: Algorithm, transports: Iterable[Transport], stream: Stream, steps: int, **options: Any
) -> list[Member]:
    """Nodes with keys, run ids and data that are always the same, so that two runs can be compared bit by bit."""
    return [
        make_member(
            folder / str(i),
            algorithm,
            i,
            transport,
            samples_of(stream, i, steps),
            key=bytes([i]) * 32,
            run="the same",
            **options,
        )
        for i, transport in enumerate(transports)
    ]


def samples_of(stream: Stream, learner: int, steps: int) -> list[tuple[np.ndarray, Any]]:
    """What one learner sees of a stream: its own samples, or all of common batches."""
    block = stream.read(0, steps)
    if stream.shared:
        return [(x, y) for xs, ys in zip(*block, strict=True) for x, y in zip(xs, ys, strict=True)]
    return list(zip(block.x[:, learner], block.y[:, learner], strict=True))


def run_all(members: list[Member], seconds: float = 120.0) -> None:
    """Run until all have finished; nodes answer each other until then."""
    threads = [threading.Thread(target=_run, args=(member,), daemon=True) for member in members]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    while any(_going(member) for member in members) and time.monotonic() < deadline:
        time.sleep(0.02)
    late = [member.node.learner for member in members if _going(member)]
    for member in members:
        member.ended = member.node.board.state
        member.node.stop()
    for thread in threads:
        thread.join(10.0)
    for member in members:
        member.node.ledger.close()
        if member.error:
            raise member.error
    assert not late, f"nodes {late} did not end within {seconds} s"


def _going(member: Member) -> bool:
    return member.error is None and member.node.board.state not in ("finished", "exhausted", "stopped")


def _run(member: Member) -> None:
    try:
        member.node.run(linger=True)
    except BaseException as error:
        member.error = error


def simulator_noise(algorithm: Algorithm, members: list[Member]) -> Callable[[int], NoiseSource]:
    """Makes the noise of these nodes for `simulate`."""
    sources = tuple(noise_of(algorithm, member.key, str(member.node.ledger.run)) for member in members)
    return lambda seed: OwnKeys(sources)


def padded(fields: list[Any], leaves: list[Any]) -> list[Any]:
    """The fields of a frame, with the padding that has the bytes of the first leaf begin at a multiple of eight."""
    for fill in range(8):
        head = [*fields, bytes(fill)]
        before = len(msgpack.packb([*head, leaves])) - sum(len(msgpack.packb(leaf)) for leaf in leaves[1:])
        if not leaves or (before - len(leaves[0][2])) % 8 == 0:
            return [*head, leaves]
    raise AssertionError


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something that happens soon: only a failing test waits so long."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def free_range(count: int) -> int:
    """The first of so many ports in a row that nobody uses.

    None that the system gives to whoever connects: asking such a port before somebody listens may reach oneself.
    """
    while True:
        first = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
