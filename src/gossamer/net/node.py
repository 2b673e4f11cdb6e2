"""A node: one learner of a gossip algorithm, in a process of its own.

    decide (published)  ->  learn, speak  ->  ledger  ->  send  ->  gather  ->  mix   (as often as gossip has steps)
                                                                            ->  listen

Nothing is sent that the ledger does not hold: what was spent, the very bytes, and the state that goes with them, in one
transaction. After a crash the node sends the stored bytes again and goes on. A node that waits for a message asks for
it, and its neighbour answers from its ledger; so a message is missing only where its sender was away until the
deadline. All of it happens in one thread: what arrives waits in a queue until the node looks.
"""

from __future__ import annotations

import math
import queue
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_choice, check_count, check_positive
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, GossamerError, PrivacyError
from gossamer.net import packing
from gossamer.net.agreed import block_at, config_digest, frame_format, key_fingerprint, noise_of
from gossamer.net.board import Board
from gossamer.net.frames import Frame, FrameError
from gossamer.net.gossip import ALL, GivenUp, Gossip, Values, after_step, restored
from gossamer.net.inbox import Inbox, Position
from gossamer.net.ledger import Identity, Ledger, LedgerError, Spent
from gossamer.net.neighbourhood import Neighbourhoods
from gossamer.net.participant import Participant, State
from gossamer.net.sources import Sample, Source, block_of
from gossamer.net.transport import Transport
from gossamer.privacy import Budget, Loss, compose
from gossamer.topology import Topology

Empty = Literal["silent", "wait"]
_QUEUE = 4096  # frames that wait to be looked at; more are dropped, as a network would
_LONGEST_REASON = 500
_LOGGED_EVERY = 1.0  # seconds between two lines about frames dropped for the same reason; all are counted


@dataclass(frozen=True)
class Pace:
    """How long a node waits, in seconds.

    Attributes:
        deadline: for the messages of one gossip step; then it goes on without those that are missing.
        period: from the beginning of one exchange to that of the next, at least. Samples that arrive meanwhile are
            learnt from then: neither when they come nor whether they do shows.
        retry: before a message is asked for again; doubles with every try.
        patience: for all neighbours to be there, before the first exchange.
    """

    deadline: float = 10.0
    period: float = 0.0
    retry: float = 0.1
    patience: float = 60.0

    def __post_init__(self) -> None:
        for name in ("deadline", "retry"):
            check_positive(name, getattr(self, name))
        for name in ("period", "patience"):
            check_positive(name, getattr(self, name), zero=True)


class _StopError(Exception):
    """Somebody asked the node to stop."""


class Node:
    """One learner, its ledger, and its place in the network.

    Args:
        algorithm: as `prepared` made it.
        learner: the learner's number.
        key: 32 secret bytes, of which all its noise is made.
        ledger: open, and of this network, learner, configuration and key.
        transport: to the neighbours.
        source: of its samples.
        board: where it shows what may be seen.
        pace: how long it waits.
        exchanges: after how many exchanges it ends; by default when the guarantee does.
        budget: what its data may cost in all, with what `earlier` runs cost; None: what the algorithm is made for.
        earlier: the losses of earlier runs over the same data.
        empty: where no sample has come: "silent" speaks with a zero gradient, "wait" waits, which shows when they come.
        play: called with every exchange and the decision that is played in it.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        learner: int,
        *,
        key: bytes,
        ledger: Ledger,
        transport: Transport,
        source: Source,
        board: Board,
        pace: Pace | None = None,
        exchanges: int | None = None,
        budget: Budget | None = None,
        earlier: Iterable[Loss] = (),
        empty: Empty = "silent",
        play: Callable[[int, NDArray[np.float32]], None] = lambda exchange, decision: None,
    ) -> None:
        check_choice("empty", empty, Empty)
        _require_same(ledger.identity, algorithm, learner, key)
        if ledger.run is None:
            ledger.begin(secrets.token_hex(16), algorithm.guarantee)
        assert ledger.run is not None
        self.algorithm, self.learner, self.pace = algorithm, learner, pace or Pace()
        self.ledger, self.transport, self.source, self.board = ledger, transport, source, board
        self._budget, self._earlier, self._empty, self._play = budget, tuple(earlier), empty, play
        self._me = Participant(algorithm, learner, noise_of(algorithm, key, ledger.run))
        assert isinstance(algorithm.topology, Topology)  # Participant refuses others
        self._around = Neighbourhoods(algorithm.topology, learner)
        hears, heard_by = self._around.ever()
        self._neighbours = sorted(hears | heard_by)
        self._format = frame_format(algorithm, ledger.identity.network, self._me.leaves)
        self._asked_for = None if exchanges is None else check_count("exchanges", exchanges)
        self._inbox, self._arrivals = Inbox(), queue.Queue[tuple[int, bytes]](_QUEUE)
        self._stop = threading.Event()
        self._greeted: set[int] = set()
        self._logged: dict[str, float] = {}
        self._committed = Position(-1, 0)
        self._gossip: Gossip | None = None
        self._state: State = None
        self._next_begins, self._shown = 0.0, -math.inf
        board.set("started_time", time.time())
        if algorithm.guarantee.horizon is not None:
            board.set("horizon", algorithm.guarantee.horizon)

    def stop(self) -> None:
        """End after the step in hand; from any thread, or from a signal's handler."""
        self._stop.set()

    def run(self, *, linger: bool = False) -> None:
        """Exchange until the end; `linger`: then answer neighbours that ask, until `stop`."""
        self.transport.open(self._receive)
        try:
            self._resume()
            self._exchange_all()
            while linger:
                self._look(1.0)
        except _StopError:
            self.board.state = "stopped"
            self.board.log("stopped", exchange=self._committed.exchange)
        except GossamerError as refusal:
            self.board.state = "stopped"
            self.board.log("refused", reason=str(refusal)[:_LONGEST_REASON])
            raise
        finally:
            self.transport.close()

    # The protocol.

    def _resume(self) -> None:
        """The state that the ledger holds, with what it had sent sent again; or a fresh start."""
        stored = self.ledger.state()
        if stored is None:
            self._state = self._me.start()
            self.board.log("started", exchange=0)
            self._greet(self.pace.patience)
            self.board.state = "running"
            return
        facts = packing.unpack(stored)
        self._committed = Position(*facts["position"])
        self._state = self._me.restored(facts["state"])
        self._gossip = restored(*facts["gossip"], self._sent(self._committed), self._me.theta)
        self.source.resume(facts["mark"])
        self.board.log("resumed", exchange=self._committed.exchange)
        self._greet(self.pace.deadline)
        self.board.state = "running"
        if not facts["heard"]:
            self._send_again(self._committed)
            self._finish(self._committed)

    def _exchange_all(self) -> None:
        while True:
            exchange = self._committed.exchange + 1
            self._publish(exchange)
            if not self._may_release(exchange):
                return
            begun = time.monotonic()
            self._release(exchange)
            self._finish(self._committed)
            self.board.count("exchanges")
            self.board.count("exchange_seconds", time.monotonic() - begun)
            self._show_neighbours()

    def _release(self, exchange: int) -> None:
        """Learn and speak; all that leaves the learner is in the ledger first."""
        self._wait_until(self._next_begins)
        self._next_begins = time.monotonic() + self.pace.period
        rows = block_at(self.algorithm.schedule, exchange) * self.algorithm.batch
        block = block_of(self.algorithm.problem, self._samples(rows), rows)
        self._gossip, self._state = self._me.release(self._state, block, exchange, self._gossip)
        self._commit_and_send("release", Position(exchange, 0))

    def _finish(self, position: Position) -> None:
        """The rest of an exchange whose step at `position` has been sent."""
        exchange, first = position
        around, steps = self._around.at(exchange), self.algorithm.mixing.steps
        for step in range(first, steps):
            assert self._gossip is not None
            if step > first:
                self._commit_and_send("gossip", Position(exchange, step))
            arrived = self._gather(Position(exchange, step), around.hears)
            before = self._gossip
            self._gossip = after_step(before, around, arrived, self.algorithm.missing)
            if isinstance(self._gossip, GivenUp) and not isinstance(before, GivenUp):
                self.board.count("void")
        assert self._gossip is not None
        self._state = self._me.listen(self._state, self._gossip)

    def _commit_and_send(self, kind: Literal["release", "gossip"], position: Position) -> None:
        assert self._gossip is not None
        begun = time.monotonic()
        around = self._around.at(position.exchange)
        outgoing, self._gossip = self._gossip.outgoing(around)
        frames = {
            receiver: self._format.encode(Frame("message", self.learner, *position, values))
            for receiver, values in outgoing.items()
        }
        if isinstance(self._gossip, GivenUp):
            frames = {ALL: self._format.encode(Frame("void", self.learner, *position))}
        spent = self._spent(position.exchange + 1)
        self._committed = position
        self.ledger.commit(kind, *position, spent, frames, self._packed(heard=False))
        self.board.count("commit_seconds", time.monotonic() - begun)
        if kind == "release":
            self._show_spent(spent)
        for receiver in around.heard_by:
            self._put(receiver, frames[receiver] if receiver in frames else frames[ALL], "messages_sent")

    def _send_again(self, position: Position) -> None:
        """Send what the ledger holds of this step: it may have been sent before the crash, or not."""
        for receiver in self._around.at(position.exchange).heard_by:
            data = self.ledger.message(*position, receiver)
            assert data is not None
            self._put(receiver, data, "resent")

    def _gather(self, position: Position, senders: Collection[int]) -> dict[int, Values]:
        """The messages of this step, asked for again and again until the deadline."""
        self._inbox.move_to(position)
        begun = asked = time.monotonic()
        pause = self.pace.retry
        while lacking := self._inbox.lacking(senders):
            now = time.monotonic()
            if now - begun >= self.pace.deadline:
                break
            if now - asked >= pause:
                self._ask(lacking, position)
                asked, pause = now, min(2 * pause, 2.0)
            self._look(min(asked + pause, begun + self.pace.deadline) - now)
        self.board.count("waiting_seconds", time.monotonic() - begun)
        arrived = self._inbox.arrived(senders)
        if len(arrived) < len(senders):
            self.board.count("missing", len(senders) - len(arrived))
            self.board.log("missing", exchange=position.exchange, step=position.step)
        return {sender: frame.values for sender, frame in arrived.items()}

    def _sent(self, position: Position) -> Values:
        """The values of the message that the ledger holds of a step; zeros where none was sent to all alike."""
        data = self.ledger.message(*position, ALL)
        frame = None if data is None else self._format.decode(data, self.learner)
        if frame is None or frame.kind != "message":
            return tuple(np.zeros(leaf.shape) for leaf in self._me.leaves)
        return frame.values

    # What is released, and what it costs.

    def _may_release(self, exchange: int) -> bool:
        """Whether one more exchange is asked for and covered; else the last decision is all that is served."""
        if self._asked_for is not None and exchange >= self._asked_for:
            self.board.state = "finished"
            return False
        horizon = self.algorithm.guarantee.horizon
        try:
            if horizon is not None and exchange >= self.algorithm.schedule.exchanges(horizon):
                raise PrivacyError.of("exchange", exchange, f"those of {horizon:,} steps")
            self.algorithm.require(exchange + 1)
        except (PrivacyError, ConfigurationError):
            self._end("horizon_used_up", exchange)
            return False
        if self._budget is not None and not self._within(self._budget, exchange + 1):
            self._end("budget_used_up", exchange)
            return False
        return True

    def _end(self, why: str, exchange: int) -> None:
        """Nothing is released any more, and the last decision is kept."""
        self.board.state = "exhausted"
        self.board.log(why, exchange=exchange)
        if exchange and not self.ledger.ended:
            self.ledger.finish(self._packed(heard=True))

    def _within(self, budget: Budget, exchanges: int) -> bool:
        losses = [*self._earlier, *(one.loss for one in self._spent(exchanges))]
        share = self.algorithm.guarantee.sampler_share(budget.epsilon)
        return budget.delta >= share and compose(losses).epsilon(budget.delta - share) <= budget.epsilon

    def _spent(self, exchanges: int) -> tuple[Spent, ...]:
        return tuple(Spent(name, *facts) for name, facts in self.algorithm.spent(exchanges, self.learner).items())

    def _show_neighbours(self) -> None:
        """How many can be reached; asked for once a second at most."""
        now = time.monotonic()
        if now - self._shown >= 1.0:
            self._shown = now
            self.board.set("neighbours_connected", len(self.transport.connected))

    def _show_spent(self, spent: Sequence[Spent]) -> None:
        self.board.set("released", self.ledger.last.number)
        if not spent:
            return
        deltas = self.algorithm.guarantee.deltas
        delta = deltas[self.learner % len(deltas)]
        epsilon = compose([one.loss for one in spent]).epsilon(delta)
        self.board.set("epsilon_spent", epsilon)
        self.board.set("delta_spent", delta + self.algorithm.guarantee.sampler_share(epsilon))

    def _samples(self, rows: int) -> list[Sample | None]:
        """What has come; with empty="wait" as many as are needed, unless there are no more."""
        samples = self.source.take(rows)
        while self._empty == "wait" and len(samples) < rows and not self.source.ended:
            self._look(0.05)
            samples += self.source.take(rows - len(samples))
        return samples

    def _publish(self, exchange: int) -> None:
        decision = self._me.decide(self._state, exchange)
        self._play(exchange, decision)
        if self.algorithm.guarantee.observer != "wiretap":  # against a wiretap only, what is played is raw
            self.board.publish(exchange, decision)

    def _packed(self, *, heard: bool) -> bytes:
        assert self._gossip is not None
        return packing.pack(
            {
                "position": self._committed,
                "heard": heard,
                "mark": self.source.mark,
                "state": self._me.stored(self._state),
                "gossip": [type(self._gossip).__name__, self._gossip.arrays()],
            }
        )

    # What arrives.

    def _receive(self, sender: int, data: bytes) -> None:
        """Called by the transport, from its threads."""
        try:
            self._arrivals.put_nowait((sender, data))
        except queue.Full:
            self.board.count("frames_dropped", reason="queue")

    def _look(self, seconds: float) -> None:
        """Wait so long for something to arrive, and deal with all that has."""
        try:
            first = self._arrivals.get(timeout=max(0.0, seconds))
        except queue.Empty:
            first = None
        while first is not None:
            self._handle(*first)
            try:
                first = self._arrivals.get_nowait()
            except queue.Empty:
                first = None
        if self._stop.is_set():
            raise _StopError

    def _wait_until(self, moment: float) -> None:
        self._look(0.0)
        while (left := moment - time.monotonic()) > 0:
            self._look(left)

    def _handle(self, sender: int, data: bytes) -> None:
        self.board.count("bytes_received", len(data))
        if sender not in self._neighbours:
            return self._drop(sender, "stranger")
        try:
            frame = self._format.decode(data, sender)
        except FrameError as error:
            return self._drop(sender, error.reason)
        if frame.kind == "want":
            return self._answer(frame)
        if frame.kind == "seen":
            return self._check_seen(frame)
        reason = self._inbox.add(frame, data)
        if reason:
            return self._drop(sender, reason)
        return self.board.count("messages_received") if frame.kind == "message" else None

    def _drop(self, sender: int, reason: str) -> None:
        self.board.count("frames_dropped", reason=reason)
        now = time.monotonic()
        if now - self._logged.get(reason, -math.inf) >= _LOGGED_EVERY:
            self._logged[reason] = now
            self.board.log("frame_dropped", reason=reason, sender=sender)

    def _answer(self, frame: Frame) -> None:
        """Say what was last seen of one who asks, and send again what it asks for, or that it is gone."""
        seen = self._inbox.seen(frame.sender)
        self._put(frame.sender, self._format.encode(Frame("seen", self.learner, *seen)))
        wanted = Position(frame.exchange, frame.step)
        if wanted > self._committed:
            return
        data = self.ledger.message(*wanted, frame.sender)
        gone = Frame("void", self.learner, *wanted)
        self._put(frame.sender, self._format.encode(gone) if data is None else data, "resent")

    def _check_seen(self, frame: Frame) -> None:
        """Refuse to go on where a neighbour holds more from this learner than its ledger does."""
        self._greeted.add(frame.sender)
        if Position(frame.exchange, frame.step) > self._committed:
            raise LedgerError(
                f"ledger: neighbour {frame.sender} holds a message of exchange {frame.exchange}, and this ledger ends "
                f"with exchange {self._committed.exchange}. The directory was restored from an old copy, or another "
                f"one runs: going on would use noise twice. Use the newest copy; nothing was sent."
            )

    def _greet(self, seconds: float) -> None:
        """Ask all neighbours what they hold from this learner, before anything new is released."""
        begun, pause = time.monotonic(), self.pace.retry
        next_position = Position(max(0, self._committed.exchange), self._committed.step)
        while (left := begun + seconds - time.monotonic()) > 0:
            waiting = [one for one in self._neighbours if one not in self._greeted]
            if not waiting:
                break
            self._ask(waiting, next_position)
            self._look(min(pause, left))
            pause = min(2 * pause, 2.0)
        self._show_neighbours()

    def _ask(self, senders: Iterable[int], position: Position) -> None:
        for sender in senders:
            self._put(sender, self._format.encode(Frame("want", self.learner, *position)), "wanted")

    def _put(self, receiver: int, data: bytes, counted: str | None = None) -> None:
        self.transport.send(receiver, data)
        self.board.count("bytes_sent", len(data))
        if counted:
            self.board.count(counted)


def _require_same(identity: Identity, algorithm: Algorithm, learner: int, key: bytes) -> None:
    """Refuse a ledger of anything else: noise drawn twice for different data gives the data away."""
    for field, held, given in (
        ("learner", identity.learner, learner),
        ("configuration", identity.config, config_digest(algorithm)),
        ("key", identity.key, key_fingerprint(key)),
    ):
        if held != given:
            raise PrivacyError(
                f"{field}: the ledger belongs to another one. A key, its ledger and the algorithm that they were made "
                f"for go together; for anything else make a new network with `gossamer network init`. Nothing was sent."
            )
