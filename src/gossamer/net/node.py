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
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gossamer.algorithms.history import zero_rows_are_silent
from gossamer.checks import check_choice, check_count, check_positive
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, DataError, GossamerError, NetworkError, PrivacyError
from gossamer.net import packing
from gossamer.net.agreed import Empty, block_at, config_digest, frame_format, key_fingerprint, noise_of, promise_of
from gossamer.net.arrivals import Arrivals
from gossamer.net.board import Board
from gossamer.net.costs import Cost
from gossamer.net.frames import Frame, FrameError
from gossamer.net.gossip import ALL, GivenUp, Gossip, Values, after_step, restored
from gossamer.net.inbox import NEVER, Inbox, Position
from gossamer.net.ledger import Identity, Ledger, LedgerError, Spent
from gossamer.net.neighbourhood import Neighbourhoods
from gossamer.net.participant import Participant, State
from gossamer.net.samples import Sample, block_of
from gossamer.net.sources import Source
from gossamer.net.spending import Spending
from gossamer.net.transport import Transport
from gossamer.privacy import Budget
from gossamer.problems import Block
from gossamer.topology import Topology

_LONGEST_REASON = 500
_LOGGED_EVERY = 1.0  # seconds
_MOST_DEADLINES = 10  # after which a neighbour is no longer waited for, though it answers


@dataclass(frozen=True)
class Pace:
    """How long a node waits, in seconds.

    Attributes:
        deadline: for a sign of life from a neighbour whose message is missing; then it goes on without it, and does
            not wait for it again before it is heard. One that answers is waited for ten times as long at most.
        period: from the beginning of one exchange to that of the next, at least. Samples that arrive meanwhile are
            learnt from then: neither when they come nor whether they do shows.
        retry: before a message is asked for; doubles with every try. Longer than messages take on the network, or they
            come twice.
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
        earlier: what earlier runs over the same data have cost.
        empty: where no sample has come: "silent" speaks with a zero gradient, "wait" waits, which shows when they come.
        careful: release nothing after a restart until every neighbour has said what it holds from this learner, and
            not only one of them.
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
        earlier: Sequence[Cost] = (),
        empty: Empty = "silent",
        careful: bool = False,
        play: Callable[[int, NDArray[np.float32]], None] | None = None,
    ) -> None:
        check_choice("empty", empty, Empty)
        _require_same(ledger.identity, algorithm, learner, key)
        self._silent = zero_rows_are_silent(algorithm.problem)
        if empty == "silent" and not self._silent:
            hint = "in this model a sample without features has a gradient"
            raise ConfigurationError("empty", empty, "'wait' (which shows when samples come)", hint)
        self.algorithm, self.learner, self.pace = algorithm, learner, pace or Pace()
        self.ledger, self.transport, self.source, self.board = ledger, transport, source, board
        self._key, self._spending = key, Spending(algorithm, learner, budget, earlier)
        self._empty, self._careful, self._play = empty, careful, play
        self._me = Participant(algorithm, learner)
        assert isinstance(algorithm.topology, Topology)  # Participant refuses others
        self._around = Neighbourhoods(algorithm.topology, learner)
        hears, heard_by = self._around.ever()
        self._neighbours, self._hearers = sorted(hears | heard_by), heard_by
        self._format = frame_format(algorithm, ledger.identity.network, self._me.leaves)
        self._asked_for = None if exchanges is None else check_count("exchanges", exchanges)
        self._inbox = Inbox(algorithm.mixing.steps)
        self._arrivals = Arrivals(self._neighbours, self._format.limit)
        self._stop, self._over = threading.Event(), False
        self._greeted: set[int] = set()
        self._absent: set[int] = set()
        self._heard_at: dict[int, float] = {}
        self._lost_at: dict[int, float] = {}
        self._logged: dict[str, float] = {}
        self._committed = NEVER
        self._gossip: Gossip | None = None
        self._state: State = None
        self._next_begins, self._shown = 0.0, -math.inf
        self._sent_at = -math.inf
        board.guarantee = promise_of(algorithm, empty)
        board.set("started_time", time.time())
        if algorithm.guarantee.horizon is not None:
            board.set("horizon", algorithm.guarantee.horizon)

    def stop(self) -> None:
        """End after the step in hand; from any thread, or from a signal's handler."""
        self._stop.set()
        self._arrivals.wake()

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
            self.board.log("refused", reason=_reason(refusal))
            raise
        finally:
            self.transport.close()

    # The protocol.

    def _resume(self) -> None:
        """The state that the ledger holds, with what it had sent sent again; or a fresh start."""
        if self.ledger.run is None:
            self.ledger.begin(secrets.token_hex(16), self.board.guarantee)
        assert self.ledger.run is not None
        promise = self.ledger.promise
        if promise is None or promise.assumptions != self.board.guarantee.assumptions:
            hint = "set `empty` back to what it was"
            raise PrivacyError.of("guarantee", "other assumptions", "those that the run was begun with", hint)
        self._me.noise = noise_of(self.algorithm, self._key, self.ledger.run)
        self._me.warm_up()
        stored = self.ledger.state()
        if stored is None:
            self._state = self._me.start()
            self.board.log("started", exchange=0)
            self._greet(self.pace.patience, answers=len(self._hearers) if self._careful else 0)
            self.board.state = "running"
            return
        facts, last = packing.unpack(stored), self.ledger.last
        self._committed = Position(last.exchange, last.step)
        steps = sorted({facts["step"], max(facts["step"], last.step - 1), last.step})
        sent = [self._sent(Position(last.exchange, step)) for step in steps]
        self._state = self._me.restored(facts["state"], sent[0] or ())
        kind, arrays = facts["gossip"]
        self._gossip = restored(kind, arrays, sent, self._me.theta)
        self._inbox.restore_seen(facts["seen"])
        self._show_spent(last.spent)
        self.board.log("resumed", exchange=self._committed.exchange)
        if self.ledger.ended:  # nothing is released any more: no sample is read, and nobody has to agree
            return
        self.source.resume(facts["mark"])
        self._greet(self.pace.deadline, answers=len(self._hearers) if self._careful else min(1, len(self._hearers)))
        self.board.state = "running"
        if not facts["heard"]:
            self._send_again(self._committed)
            self._finish(self._committed)

    def _exchange_all(self) -> None:
        while True:
            exchange = self._committed.exchange + 1
            self._publish(exchange)
            if not self._may_release(exchange):
                self._over = True
                return
            block = self._next_block(exchange)
            if not self._behind(exchange):
                self._wait_until(self._next_begins)
            begun = time.monotonic()
            self._next_begins = begun + self.pace.period
            self._gossip, self._state = self._me.release(self._state, block, exchange, self._gossip)
            self._commit_and_send("release", Position(exchange, 0))
            self._finish(self._committed)
            self.board.count("exchanges")
            self.board.count("exchange_seconds", time.monotonic() - begun)

    def _finish(self, position: Position) -> None:
        """The rest of an exchange whose step at `position` has been sent."""
        exchange, first = position
        around = self._around.at(exchange)
        for step in range(first, self.algorithm.mixing.steps):
            assert self._gossip is not None
            if isinstance(self._gossip, GivenUp):
                break
            if step > first:
                self._commit_and_send("gossip", Position(exchange, step))
            arrived = self._gather(Position(exchange, step), around.hears)
            self._gossip = after_step(self._gossip, around, arrived, self.algorithm.missing)
            if isinstance(self._gossip, GivenUp):
                self._give_up(Position(exchange, step + 1))
        assert self._gossip is not None
        self._state = self._me.listen(self._state, self._gossip)

    def _give_up(self, position: Position) -> None:
        """Tell those who wait for the steps from here on that there are none."""
        self.board.count("void")
        self.board.log("given_up", exchange=position.exchange, step=position.step)
        if position.step < self.algorithm.mixing.steps:
            self._commit_and_send("gossip", position)

    def _commit_and_send(self, kind: Literal["release", "gossip"], position: Position) -> None:
        """All that leaves the learner is in the ledger first."""
        assert self._gossip is not None
        begun = time.monotonic()
        around = self._around.at(position.exchange)
        outgoing, self._gossip = self._gossip.outgoing(around, self._unreachable())
        frames = {
            receiver: self._format.encode(Frame("message", self.learner, *position, values))
            for receiver, values in outgoing.items()
        }
        if isinstance(self._gossip, GivenUp):
            frames = {ALL: self._format.encode(Frame("void", self.learner, *position))}
        spent = self._spending.after(position.exchange + 1) if kind == "release" else ()  # gossip costs nothing more
        self._committed = position
        known = kind == "gossip" and self._gossip.told_by_messages
        self.ledger.commit(kind, *position, spent, frames, None if known else self._packed(outgoing.get(ALL, ())))
        self.board.count("commit_seconds", time.monotonic() - begun)
        if kind == "release":
            self._show_spent(spent)
        self._sent_at = time.monotonic()
        for receiver in around.heard_by:
            self._put(receiver, frames[receiver] if receiver in frames else frames[ALL], "messages_sent")

    def _send_again(self, position: Position) -> None:
        """Send what the ledger holds of this step: it may have been sent before the crash, or not."""
        for receiver in self._around.at(position.exchange).heard_by:
            data = self.ledger.message(*position, receiver)
            assert data is not None
            self._put(receiver, data, "resent")

    def _gather(self, position: Position, senders: Collection[int]) -> dict[int, Values]:
        """The messages of this step, asked for again and again, until nobody is left who is worth waiting for."""
        self._inbox.move_to(position)
        begun, pause = time.monotonic(), self.pace.retry
        passed = any(self._inbox.newest(sender) > position for sender in self._inbox.lacking(senders))
        ask_at = begun if passed else begun + pause
        while waiting := [one for one in self._inbox.lacking(senders) if self._worth_waiting(one, begun)]:
            now = time.monotonic()
            if now >= ask_at:
                self._ask(waiting, position)
                ask_at, pause = now + pause, min(2 * pause, 1.0, self.pace.deadline / 4)
            self._look(min(ask_at, *(self._waited_for_until(one, begun) for one in waiting)) - now)
        self.board.count("waiting_seconds", time.monotonic() - begun)
        arrived = self._inbox.arrived(senders)
        self._absent.update(self._inbox.lacking(senders))
        if lost := [sender for sender in senders if sender not in arrived]:
            self.board.count("missing", len(lost))
            self._log_seldom("missing", sender=lost[0], exchange=position.exchange, step=position.step)
        return {sender: frame.values for sender, frame in arrived.items()}

    def _worth_waiting(self, sender: int, begun: float) -> bool:
        return sender not in self._absent and time.monotonic() < self._waited_for_until(sender, begun)

    def _waited_for_until(self, sender: int, begun: float) -> float:
        """A deadline after it was last heard.

        One that waits for others itself, or catches up, answers when it is asked. So it is waited for, and what a dead
        node costs is one deadline of its neighbours.
        """
        heard = max(begun, self._heard_at.get(sender, begun))
        return min(heard, begun + (_MOST_DEADLINES - 1) * self.pace.deadline) + self.pace.deadline

    def _unreachable(self) -> frozenset[int]:
        """Neighbours without a connection since the deadline."""
        now = time.monotonic()
        if now - self._shown >= min(1.0, self.pace.deadline / 4):
            self._shown, connected = now, self.transport.connected
            self.board.set("neighbours_connected", len(connected))
            lost = [neighbour for neighbour in self._neighbours if neighbour not in connected]
            self._lost_at = {neighbour: self._lost_at.get(neighbour, now) for neighbour in lost}
        return frozenset(one for one, since in self._lost_at.items() if now - since >= self.pace.deadline)

    def _behind(self, exchange: int) -> bool:
        """Whether all neighbours that were heard lately speak at later exchanges; one alone might only say so."""
        since = time.monotonic() - self.pace.deadline
        lately = [neighbour for neighbour, heard in self._heard_at.items() if heard >= since]
        return bool(lately) and all(self._inbox.newest(neighbour).exchange > exchange for neighbour in lately)

    # What is released, and what it costs.

    def _may_release(self, exchange: int) -> bool:
        """Whether one more exchange is asked for and covered; else the last decision is all that is served."""
        if self.ledger.ended:
            self._end(self.ledger.last.note, exchange)
            return False
        if self._asked_for is not None and exchange >= self._asked_for:
            self.board.state = "finished"
            return False
        refusal = self._spending.refusal(exchange)
        if refusal is not None:
            self._end(refusal, exchange)
        return refusal is None

    def _end(self, why: str, exchange: int) -> None:
        """Nothing is released any more, and the last decision is kept."""
        self.board.state = "exhausted"
        self.board.log(why, exchange=exchange)
        if exchange and not self.ledger.ended:
            self.ledger.finish(self._packed((), heard=True), why)

    def _next_block(self, exchange: int) -> Block:
        """The samples of an exchange, read before it begins: how long that takes must not show."""
        rows = block_at(self.algorithm.schedule, exchange) * self.algorithm.batch
        samples = self._take(rows)
        while self._empty == "wait" and len(samples) < rows and not self.source.ended:
            self._look(0.05)
            samples += self._take(rows - len(samples))
        if len(samples) < rows and not self._silent:
            raise DataError("the data ended within a block, and this model has no silent samples to fill it")
        return block_of(self.algorithm.problem, samples, rows)

    def _take(self, rows: int) -> list[Sample | None]:
        """Whole batches; a sample that cannot be used is silent, or, in a model where none is, not counted."""
        if self._silent:
            return self.source.take(rows, self.algorithm.batch)
        return [sample for sample in self.source.take(rows) if sample is not None]

    def _publish(self, exchange: int) -> None:
        decision = self._me.decide(self._state, exchange)
        if self._play is not None:
            self._play(exchange, decision)
        try:
            self.board.publish(exchange, decision)
        except DataError:
            raise NetworkError("what neighbours said led to decisions that are not finite: learning diverged") from None

    def _sent(self, position: Position) -> Values | None:
        """The values of the message of a step that went to all alike; None where there was none."""
        data = self.ledger.message(*position, ALL)
        frame = None if data is None else self._format.decode(data, self.learner)
        return frame.values if frame is not None and frame.kind == "message" else None

    def _packed(self, said: Values, *, heard: bool = False) -> bytes:
        """All that a restart needs beside the messages; `said`: the one that is committed with it."""
        assert self._gossip is not None
        return packing.pack(
            {
                "step": self._committed.step,
                "heard": heard,
                "mark": self.source.mark,
                "seen": self._inbox.all_seen(),
                "state": self._me.stored(self._state, said),
                "gossip": [type(self._gossip).__name__, self._gossip.arrays()],
            }
        )

    # What arrives.

    def _receive(self, sender: int, data: bytes) -> None:
        """Called by the transport, from its threads."""
        self.board.count("bytes_received", len(data))
        if reason := self._arrivals.put(sender, data):
            self.board.count("frames_dropped", reason=reason)

    def _look(self, seconds: float) -> None:
        """Wait so long for something to arrive, and deal with some of it."""
        wants: dict[int, tuple[Frame, float]] = {}
        for sender, data, arrived in self._arrivals.take(seconds):
            self._handle(sender, data, arrived, wants)
        for want, arrived in wants.values():  # one of each neighbour: an answer costs more than a question
            self._answer(want, arrived)
        if self._stop.is_set():
            raise _StopError

    def _wait_until(self, moment: float) -> None:
        self._look(0.0)
        while (left := moment - time.monotonic()) > 0:
            self._look(left)

    def _handle(self, sender: int, data: bytes, arrived: float, wants: dict[int, tuple[Frame, float]]) -> None:
        try:
            frame = self._format.decode(data, sender)
        except FrameError as error:
            return self._drop(sender, error.reason)
        self._heard_at[sender] = time.monotonic()
        self._absent.discard(sender)
        if frame.kind == "want":
            wants[sender] = frame, arrived
            return None
        if frame.kind == "seen":
            return self._check_seen(frame)
        reason = self._inbox.add(frame)
        if reason:
            return self._drop(sender, reason)
        return self.board.count("messages_received") if frame.kind == "message" else None

    def _drop(self, sender: int, reason: str) -> None:
        self.board.count("frames_dropped", reason=reason)
        if reason not in ("late", "early", "duplicate"):  # as they come where messages are sent again
            self._log_seldom("frame_dropped", reason=reason, sender=sender)

    def _log_seldom(self, event: str, **fields: Any) -> None:
        """One line a second at most for each event and reason; everything is counted."""
        now, what = time.monotonic(), f"{event} {fields.get('reason', '')}"
        if now - self._logged.get(what, -math.inf) >= _LOGGED_EVERY:
            self._logged[what] = now
            self.board.log(event, **fields)

    def _answer(self, frame: Frame, arrived: float) -> None:
        """Say what was last seen of one who asks, and send again what it asks for, or that there is none.

        A question that came before the message was sent has been answered by it.
        """
        seen = self._inbox.seen(frame.sender)
        self._put(frame.sender, self._format.encode(Frame("seen", self.learner, *seen)))
        wanted = Position(frame.exchange, frame.step)
        given_up = isinstance(self._gossip, GivenUp) and wanted.exchange == self._committed.exchange
        if wanted > self._committed and not given_up and not self._over:
            return
        if wanted == self._committed and arrived < self._sent_at:
            return
        if frame.sender not in self._around.at(wanted.exchange).heard_by:
            return
        data = self.ledger.message(*wanted, frame.sender)
        none = Frame("void", self.learner, *wanted)
        self._put(frame.sender, self._format.encode(none) if data is None else data, "resent")

    def _check_seen(self, frame: Frame) -> None:
        """Refuse to go on where a neighbour holds more from this learner than its ledger does."""
        self._greeted.add(frame.sender)
        if Position(frame.exchange, frame.step) > self._committed:
            raise LedgerError(
                f"ledger: neighbour {frame.sender} holds a message of exchange {frame.exchange}, and this ledger ends "
                f"with exchange {self._committed.exchange}. The directory was restored from an old copy, or another "
                f"one runs: going on would use noise twice. Use the newest copy; nothing was sent."
            )

    def _greet(self, seconds: float, answers: int) -> None:
        """Ask all neighbours what they hold from this learner, before anything new is released.

        Args:
            seconds: to wait for all of them.
            answers: without so many, of those who hear this learner, it waits on.
        """
        begun, pause = time.monotonic(), self.pace.retry
        here = max(Position(0, 0), self._committed)
        while waiting := [one for one in self._neighbours if one not in self._greeted]:
            agreed = len(self._greeted & self._hearers)
            if time.monotonic() - begun >= seconds and agreed >= answers:
                break
            self._ask(waiting, here)
            self._look(pause)
            pause = min(2 * pause, 1.0)
            if time.monotonic() - begun >= seconds:
                self._log_seldom("waiting", answers=agreed, needed=answers)
        self._unreachable()

    def _ask(self, senders: Iterable[int], position: Position) -> None:
        for sender in senders:
            self._put(sender, self._format.encode(Frame("want", self.learner, *position)), "wanted")

    def _put(self, receiver: int, data: bytes, counted: str | None = None) -> None:
        self.transport.send(receiver, data)
        self.board.count("bytes_sent", len(data))
        if counted:
            self.board.count(counted)

    # What is shown.

    def _show_spent(self, spent: Sequence[Spent]) -> None:
        self.board.set("released", self.ledger.last.number)
        if spent:
            epsilon, delta = self._spending.shown(spent)
            self.board.set("epsilon_spent", epsilon)
            self.board.set("delta_spent", delta)


def _reason(refusal: GossamerError) -> str:
    """Why a node stopped, for its log: what is wrong with data is the owner's to know."""
    return "data cannot be used" if isinstance(refusal, DataError) else str(refusal)[:_LONGEST_REASON]


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
