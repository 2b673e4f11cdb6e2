"""A network whose node 0, the victim, is killed with SIGKILL again and again, and what its neighbours got from it.

The victim lives in a process of its own, forked from one that has imported everything and started nothing. Each life
has a plan: at which point of its work it kills itself. The other nodes run in threads here and write down every frame
that they receive from it. Points are ledgers, witnesses and transports of the tests: the node knows nothing of them.
"""

from __future__ import annotations

import itertools
import os
import pickle
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import jax
import msgpack
import numpy as np

from gossamer import Budget, simulate
from gossamer.core import Algorithm
from gossamer.errors import GossamerError
from gossamer.net.data.sources import from_iterable
from gossamer.net.node.agreement import block_at, key_fingerprint, noise_of, prepared
from gossamer.net.node.correspondence import Pace
from gossamer.net.node.node import Node
from gossamer.net.store import blobs
from gossamer.net.store.ledger import Identity, Ledger, LedgerError, Row
from gossamer.net.store.vault import Sealer
from gossamer.net.store.witness import Mark, Witness
from gossamer.net.web.status_board import Board
from gossamer.net.wire.frames import Frame, Kind, Position
from gossamer.net.wire.transport import Receive
from gossamer.net.wire.zenoh_link import Link, ZenohTransport
from tests import instances
from tests.networks import Member, OwnKeys, Silent, make_member, samples_of, zenoh_transports

NETWORK = "0" * 32
VICTIM = 0
LEARNERS = 5
PACE = Pace(deadline=60.0)  # longer than any restart: no message may be missing
REFUSED = 3  # exit status of a life that ended with an error of the library
UNDERWAY = 0.02  # seconds in which what the dead has sent arrives
LONGEST = 120.0  # seconds of one life

Point = Literal[
    "before the state",
    "after the state",
    "before the witness",
    "before sending",
    "between sends",
    "after sending",
    "waiting",
    "greeting",
    "any time",
]
POINTS: tuple[Point, ...] = get_args(Point)
"""The first three are inside the transaction, or between it and its witness."""

ANSWER = struct.Struct("<q")  # of the process that forks
KINDS = get_args(Kind)
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "pd_ogd": {},
    "pd_ftgl": {"steps_per_exchange": 3},
    "dpsda_ps": {"budget": Budget(12.0)},
    "pd_ftgl, noise after gossip": {"steps_per_exchange": 3, "noise_at": "after-gossip", "horizon": 3000},
}
IN_FILE = {"pd_ftgl", "dpsda_ps"}  # whose messages and states lie in the file beside the database, as large ones do
SEALED = {"pd_ftgl, noise after gossip": Sealer(bytes(32))}


@cache
def algorithm_of(name: str) -> Algorithm:
    return prepared(instances.algorithm(registered(name), **OPTIONS[name]))


def registered(name: str) -> str:
    return name.partition(",")[0]


class Head(NamedTuple):
    kind: str
    exchange: int
    step: int


def head_of(data: bytes) -> Head:
    _, _, _, kind, _, exchange, step, *_ = msgpack.unpackb(data)
    return Head(KINDS[kind], exchange, step)


# The victim's process.


@dataclass(frozen=True)
class Plan:
    """How a life ends.

    Attributes:
        point: where the process kills itself; at "any time" the parent kills it; None: it lives to the end.
        passes: at which time that the point is passed; at "any time": the most exchanges that it may come along.
        pause: seconds that it waits there before.
        after: seconds until the parent kills it.
    """

    point: Point | None = None
    passes: int = 1
    pause: float = 0.0
    after: float = 0.0


ALIVE = Plan()


@dataclass(frozen=True)
class Life:
    """All that the process of one life is told."""

    name: str
    number: int
    plan: Plan
    exchanges: int
    folder: Path
    link: Link
    key: bytes
    samples: Sequence[Any]
    witness: Path | None
    kind: str = "Node"


class Fuse:
    """Kills its process when the point of the plan has been passed often enough."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self._passes = plan, itertools.count(1)  # several threads come by

    def at(self, point: Point) -> None:
        if point == self.plan.point and next(self._passes) == self.plan.passes:
            time.sleep(self.plan.pause)
            os.kill(os.getpid(), signal.SIGKILL)


class FatalWitness(Witness):
    fuse: Fuse

    def record(self, mark: Mark) -> None:
        self.fuse.at("before the witness")
        super().record(mark)


class FatalLedger(Ledger):
    fuse: Fuse

    def _load(self, stack: ExitStack) -> None:
        super()._load(stack)
        put = self._pieces.put_state

        def put_state(row: Row, state: bytes) -> None:
            self.fuse.at("before the state")
            put(row, state)
            self.fuse.at("after the state")

        self._pieces.put_state = put_state  # type: ignore[method-assign]

    def commit(self, *facts: Any) -> Row:
        row = super().commit(*facts)
        self.fuse.at("before sending")
        return row


class FatalTransport(ZenohTransport):
    """Points before, between and after sends, and where something arrives."""

    def __init__(self, link: Link, fuse: Fuse) -> None:
        super().__init__(link)
        self.fuse, self._greeted = fuse, set[int]()
        self._position, self._reached = Position(-1, 0), set[int]()

    def open(self, receive: Receive) -> None:
        def watched(sender: int, data: bytes) -> None:
            receive(sender, data)
            kind = head_of(data).kind
            if kind == "message":
                self.fuse.at("waiting")
            elif kind == "seen" and sender not in self._greeted:
                self.fuse.at("greeting")
                self._greeted.add(sender)

        super().open(watched)

    def send(self, receiver: int, data: bytes) -> None:
        kind, *position = head_of(data)
        if kind != "message":
            greets = kind == "want" and receiver not in self._greeted  # its answer may be here before `send` returns
            super().send(receiver, data)
            if greets:
                self.fuse.at("greeting")
            return
        if Position(*position) != self._position:
            self._position, self._reached = Position(*position), set()
        first = receiver not in self._reached
        if first and self._reached:
            self.fuse.at("between sends")
        super().send(receiver, data)
        self._reached.add(receiver)
        if first and self._reached == self._link.peers.keys():
            self.fuse.at("after sending")


class Recomputing(Node):
    """A control: after a crash it learns from what has come meanwhile, and speaks again with the same noise."""

    def _send_again(self) -> None:
        position = self._position
        block = self._next_block(position.exchange)
        again, _ = self._me.release(self._state, block, position.exchange, self._gossip)
        for values in again.outgoing(self._around.at(position.exchange))[0].values():
            for receiver in self._post.neighbours:
                self._post.send(receiver, self._format.encode(Frame("message", self.learner, *position, values)))


class Hasty(Node):
    """A control: it sends first and writes the ledger later."""

    def _commit_and_send(self, kind: Literal["release", "gossip"], position: Position, gossip: Any, state: Any) -> None:
        outgoing, _ = gossip.outgoing(self._around.at(position.exchange))
        for values in outgoing.values():
            for receiver in self._post.neighbours:
                self._post.send(receiver, self._format.encode(Frame("message", self.learner, *position, values)))
        super()._commit_and_send(kind, position, gossip, state)


NODES = {one.__name__: one for one in (Node, Recomputing, Hasty)}
RECORD = np.dtype([("life", "<i4"), ("exchange", "<i4"), ("time", "<f8"), ("decision", "<f4", (instances.DIM,))])


def live(life: Life) -> None:
    """Run the victim, in the process that calls this."""
    fuse, algorithm = Fuse(life.plan), algorithm_of(life.name)
    witness = FatalWitness(life.witness) if life.witness else None
    FatalWitness.fuse = FatalLedger.fuse = fuse
    blobs.LARGE = 1 if life.name in IN_FILE else blobs.LARGE
    played = os.open(life.folder.parent / "played", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def play(exchange: int, decision: np.ndarray) -> None:
        os.write(played, np.array([(life.number, exchange, time.monotonic(), decision)], RECORD).tobytes())

    node = NODES[life.kind](
        algorithm,
        VICTIM,
        key=life.key,
        ledger=FatalLedger.open(life.folder / "ledger.db", sealer=SEALED.get(life.name), witness=witness),
        transport=FatalTransport(life.link, fuse),
        source=from_iterable(life.samples, algorithm.problem),
        board=Board(algorithm.problem, algorithm.guarantee, VICTIM, logs=Silent()),
        pace=PACE,
        exchanges=life.exchanges,
        play=play,
    )
    signal.signal(signal.SIGTERM, lambda number, frame: node.stop())
    node.run(linger=True)
    node.ledger.close()


def nursery() -> None:
    """Fork a process for every life that is asked for on standard input; say its id, then how it ended."""
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    answers = sys.stdout.fileno()
    while True:
        try:
            life = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        child = os.fork()
        if child == 0:
            _child(life)
        os.write(answers, ANSWER.pack(child))
        _, status = os.waitpid(child, 0)
        os.write(answers, ANSWER.pack(os.waitstatus_to_exitcode(status)))


def _child(life: Life) -> None:
    status, error = 1, life.folder.parent / "error"
    error.unlink(missing_ok=True)
    signal.alarm(int(2 * LONGEST))  # where the parent dies nobody else ends it
    try:
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):
            os.dup2(silence, descriptor)
        live(life)
        status = 0
    except GossamerError as refusal:
        error.write_text(f"{type(refusal).__name__}: {refusal}")
        status = REFUSED
    except BaseException:
        error.write_text(traceback.format_exc())
    finally:
        os._exit(status)


# The parent.


class Nursery:
    """The process from which all lives are forked."""

    def __init__(self) -> None:
        self._child: int | None = None
        code = "import tests.conftest; from tests.crashes import nursery; nursery()"
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code],  # jax warns of forks; nothing of it has started
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )

    def start(self, life: Life) -> int:
        """Begin a life; gives the id of its process."""
        self._bury()
        assert self._process.stdin
        pickle.dump(life, self._process.stdin)
        self._process.stdin.flush()
        self._child = self._answer(LONGEST)
        assert self._child is not None
        return self._child

    def ended(self, seconds: float) -> int | None:
        """The exit status of the last life, if it ends within so many seconds."""
        status = self._answer(seconds)
        if status is not None:
            self._child = None
        return status

    def _bury(self) -> None:
        """End a life that a failed test has left."""
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            self.ended(LONGEST)

    def close(self) -> None:
        self._bury()
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(10.0)
        self._process.stdout.close()

    def _answer(self, seconds: float) -> int | None:
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return None
        number: int = ANSWER.unpack(os.read(self._process.stdout.fileno(), ANSWER.size))[0]
        return number


class Recorder(ZenohTransport):
    """Writes down what arrives from the victim."""

    def __init__(self, link: Link, book: Book) -> None:
        super().__init__(link)
        self._book = book

    def open(self, receive: Receive) -> None:
        def recorded(sender: int, data: bytes) -> None:
            if sender == VICTIM:
                self._book.write(self._link.learner, data)
            receive(sender, data)

        super().open(recorded)


class Book:
    """Every frame that came from the victim: its payloads by exchange, step and receiver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.payloads: dict[tuple[Position, int], set[bytes]] = defaultdict(set)
        self.frames: Counter[str] = Counter()

    def write(self, receiver: int, data: bytes) -> None:
        kind, *position = head_of(data)
        with self._lock:
            self.frames[kind] += 1
            if kind == "message":
                self.payloads[Position(*position), receiver].add(data)

    def positions(self) -> set[Position]:
        with self._lock:
            return {position for position, _ in self.payloads}

    def twice(self) -> list[tuple[Position, int]]:
        """Where two different payloads came."""
        with self._lock:
            return [where for where, payloads in self.payloads.items() if len(payloads) > 1]

    def content(self) -> dict[tuple[Position, int], frozenset[bytes]]:
        with self._lock:
            return {where: frozenset(payloads) for where, payloads in self.payloads.items()}


@dataclass
class Trial:
    """A network with a victim.

    Attributes:
        nursery: where its processes come from.
        folder: for everything.
        name: of the algorithm.
        exchanges: of the run.
        kills: how many, by point.
        book: what the neighbours received.
    """

    nursery: Nursery
    folder: Path
    name: str
    exchanges: int
    kind: str = "Node"
    kills: Counter[str] = field(default_factory=Counter)
    book: Book = field(default_factory=Book)
    lives: int = 0
    starts: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.algorithm, self.key = algorithm_of(self.name), random.Random(0).randbytes(32)
        self.steps = self.exchanges * block_at(self.algorithm.schedule, 0)
        self.stream = instances.stream(LEARNERS, self.steps, name=registered(self.name))
        self.home, self.witness = self.folder / "victim", self.folder / "witness" / "victim"
        self.home.mkdir(parents=True)
        identity = Identity(NETWORK, VICTIM, self.algorithm.digest, "test", key_fingerprint(self.key))
        Ledger.create(self.home / "ledger.db", identity)
        self.links = _links(self.folder / "certificates", self.algorithm)
        self.peers = [self._peer(learner) for learner in range(1, LEARNERS)]
        self._threads = [threading.Thread(target=run_peer, args=(peer,), daemon=True) for peer in self.peers]
        self._examined: set[Position] = set()

    def _peer(self, learner: int) -> Member:
        transport = Recorder(self.links[learner], self.book)
        samples = samples_of(self.stream, learner, self.steps)
        folder = self.folder / str(learner)
        return make_member(folder, self.algorithm, learner, transport, samples, pace=PACE, exchanges=self.exchanges)

    def __enter__(self) -> Trial:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self.peers:
            peer.node.stop()
        for thread in self._threads:
            thread.join(10.0)
        self.close()

    def close(self) -> None:
        for peer in self.peers:
            peer.node.ledger.close()

    def die(self, plan: Plan) -> None:
        """A life that must end as planned."""
        status = self.live(plan)
        assert status == -signal.SIGKILL, f"life {self.lives} ({plan}) ended with {status}"

    def live(self, plan: Plan = ALIVE, *, witness: bool = True) -> int:
        """One life of the victim; gives its exit status."""
        life = self.next_life(plan, witness=witness)
        self.starts.append(time.monotonic())
        child = self.nursery.start(life)
        status = self._wait(child, plan)
        if status == -signal.SIGKILL:
            self.kills[str(plan.point)] += 1
        return status

    def next_life(self, plan: Plan, *, witness: bool = True) -> Life:
        """What the process of the next life is told."""
        self.lives += 1
        return Life(
            self.name,
            self.lives,
            plan,
            self.exchanges,
            self.home,
            self.links[VICTIM],
            self.key,
            samples_of(self.stream, VICTIM, self.steps),
            self.witness if witness else None,
            self.kind,
        )

    def _wait(self, child: int, plan: Plan) -> int:
        """Until the life ends: by its plan, by a signal at any time, or because the run is over."""
        if plan.point == "any time":
            self._let_live(plan)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        due = time.monotonic() + LONGEST
        while (status := self.nursery.ended(0.05)) is None:
            late = time.monotonic() > due
            if late or self.over():
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL if late else signal.SIGTERM)
            assert not late, f"life {self.lives} ({plan}) did not end"
        return status

    def _let_live(self, plan: Plan) -> None:
        """Wait for a random time, but leave exchanges for the lives to come."""
        due, last = time.monotonic() + plan.after, self.played()["exchange"].max(initial=0) + plan.passes
        while time.monotonic() < due and self.played()["exchange"].max(initial=0) < last:
            time.sleep(0.005)

    def over(self) -> bool:
        """Whether all nodes have played the last decision."""
        if any(peer.error for peer in self.peers):
            raise next(peer.error for peer in self.peers if peer.error)
        if any(peer.node.board.state != "finished" for peer in self.peers):
            return False
        return bool((self.played()["exchange"] == self.exchanges).any())

    def played(self) -> np.ndarray:
        """What the victim played, in all its lives."""
        file = self.folder / "played"
        return np.frombuffer(file.read_bytes() if file.exists() else b"", RECORD)

    def error(self) -> str:
        """What the last life ended with."""
        return (self.folder / "error").read_text()

    def held(self) -> bool:
        """Whether the victim has opened its ledger and its witness."""
        witness = Witness(self.witness)
        try:
            if self.witness.exists():
                witness.hold()
        except LedgerError:
            return True
        finally:
            witness.close()
        return False

    def rows(self) -> int:
        """How many messages the victim has committed."""
        with Ledger.open(self.home / "ledger.db", read_only=True) as ledger:
            return sum(row.kind in ("release", "gossip") for row in ledger.rows())

    def kill(self, points: Sequence[Point], seed: int) -> None:
        """Kill the victim once at each of these points, then let it live to the end; look after each kill.

        How far each life gets is drawn from the seed, such that all kills come before the end.
        """
        draw = random.Random(seed)
        rows = self.exchanges * self.algorithm.mixing.steps
        for done, point in enumerate(points):
            left, lives = rows - self.rows(), len(points) - done
            most = max(1, min(2 * left // (lives + 1), left - lives))
            self.die(self._plan(draw, point, most))
            self.examine()
        status = self.live()
        assert status == 0, self.error()
        self.examine()

    def _plan(self, draw: random.Random, point: Point, rows: int) -> Plan:
        """At most so many rows on; all lives pass the greeting four times, and write the state once an exchange."""
        exchanges = max(1, rows // self.algorithm.mixing.steps)
        seldom = dict.fromkeys(("any time", "before the state", "after the state"), exchanges)
        most = ({"greeting": 4} | seldom).get(point, rows)
        pause = draw.choice([0.0, draw.uniform(0.0, 0.02)])
        typical = float(np.median(self.restarts() or [1.0]))
        return Plan(point, draw.randint(1, most), pause, after=draw.uniform(0.0, 1.3 * typical))

    def restarts(self) -> list[float]:
        """Seconds from the beginning of each life to the first decision that it played; of lives that got so far."""
        played = self.played()
        lives, first = np.unique(played["life"], return_index=True)
        return [float(played["time"][at] - self.starts[life - 1]) for life, at in zip(lives, first, strict=True)]

    def examine(self) -> None:
        """Look at the ledger of the dead: it is whole, and holds and costs no less than its neighbours got from it."""
        time.sleep(UNDERWAY)
        received = self.book.positions()  # before the ledger is read
        sealer, witness = SEALED.get(self.name), Witness(self.witness)
        with Ledger.open(self.home / "ledger.db", read_only=True, sealer=sealer, witness=witness) as ledger:
            ledger.verify()
            held = {Position(row.exchange, row.step): row for row in ledger.rows() if row.message}
        assert received <= held.keys(), f"sent and not in the ledger: {sorted(received - held.keys())}"
        delta = self.algorithm.guarantee.deltas[0]
        for position in received - self._examined:
            booked = {one.mechanism: one for one in held[position].spent}
            for mechanism, (releases, loss) in self.algorithm.spent(position.exchange + 1, VICTIM).items():
                assert booked[mechanism].position >= releases
                assert booked[mechanism].loss.epsilon(delta) >= loss.epsilon(delta)
        self._examined |= received
        assert not self.book.twice(), f"sent with two payloads: {self.book.twice()}"

    def judge(self) -> None:
        """At the end: nothing is missing, and everybody played what the simulator plays."""
        every = {
            (Position(exchange, step), receiver)
            for exchange in range(self.exchanges)
            for step in range(self.algorithm.mixing.steps)
            for receiver in self.links[VICTIM].peers
        }
        assert set(self.book.payloads) == every
        assert not self.book.frames["void"]
        assert not any(peer.node.board._counts["missing"] for peer in self.peers)
        with Ledger.open(self.home / "ledger.db", read_only=True, sealer=SEALED.get(self.name)) as ledger:
            sources = [noise_of(self.algorithm, self.key, str(ledger.run))]
            for (position, receiver), payloads in self.book.payloads.items():
                assert ledger.message(*position, receiver) in payloads
        sources += [noise_of(self.algorithm, peer.key, str(peer.node.ledger.run)) for peer in self.peers]
        self._compare(OwnKeys(tuple(sources)))

    def _compare(self, noise: OwnKeys) -> None:
        run = simulate(
            self.algorithm,
            self.stream,
            self.steps,
            seed=0,
            noise=lambda seed: noise,
            record=["decisions"],
            progress=False,
        )
        expected = np.asarray(run.transcript["decisions"])
        scale = np.linalg.norm(expected, axis=-1).max(axis=-1)
        assert np.ptp(expected[-1]) > 0
        played = self.played()
        played = played[played["exchange"] < self.exchanges]  # the one after the last exchange is not simulated
        assert set(played["exchange"]) == set(range(self.exchanges))
        at = played["exchange"]
        apart = np.linalg.norm(played["decision"] - expected[at, VICTIM], axis=-1)
        np.testing.assert_array_less(apart, 1e-5 * scale[at] + 1e-30)
        for peer in self.peers:
            each = np.stack([peer.played[exchange] for exchange in range(self.exchanges)])
            apart = np.linalg.norm(each - expected[:, peer.node.learner], axis=-1)
            np.testing.assert_array_less(apart, 1e-5 * scale + 1e-30)

    def copy(self, name: str) -> Path:
        """A copy of the victim's folder."""
        return Path(shutil.copytree(self.home, self.folder / name))

    def restore(self, copy: Path) -> None:
        """Put a copy in the place of the victim's folder."""
        shutil.rmtree(self.home)
        shutil.copytree(copy, self.home)


def run_peer(peer: Member) -> None:
    try:
        peer.node.run(linger=True)
    except BaseException as error:
        peer.error = error


def _links(folder: Path, algorithm: Algorithm) -> list[Link]:
    """Of all learners. The victim's port is one that the system gives to no connection while the victim is dead."""
    links = [transport._link for transport in zenoh_transports(folder, algorithm, NETWORK)]
    address = f"127.0.0.1:{_port()}"
    moved = []
    for link in links:
        peers = {
            number: replace(one, address=address) if number == VICTIM else one for number, one in link.peers.items()
        }
        moved.append(replace(link, peers=peers, listen=address if link.learner == VICTIM else link.listen))
    return moved


def _port() -> int:
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
