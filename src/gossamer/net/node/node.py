"""A node: one learner of a gossip algorithm, in a process of its own.

    decide (published)  ->  learn, speak  ->  ledger  ->  send  ->  gather  ->  mix   (as often as gossip has steps)
                                                                            ->  listen

Nothing is sent that the ledger does not hold: what was spent, the very bytes, and the state that goes with them, in one
transaction. The node's position is the step that the ledger committed last, and changes with it. After a crash the node
sends the stored bytes again and goes on.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count
from gossamer.core import Algorithm
from gossamer.errors import DataError, GossamerError, NetworkError, PrivacyError
from gossamer.net.data.samples import block_of, require_silence
from gossamer.net.data.sources import Source
from gossamer.net.node.agreement import Arrivals, block_at, frame_format, key_fingerprint, noise_of, promise_of
from gossamer.net.node.checkpoint import Checkpoint
from gossamer.net.node.correspondence import Correspondence, Pace, StopError
from gossamer.net.node.gossip import GivenUp, LocalGossip, Values, after_step, restored
from gossamer.net.node.neighbourhood import Neighbourhoods
from gossamer.net.node.participant import Participant, State
from gossamer.net.node.spending import Account, Cost, Refusal, Spending
from gossamer.net.store.ledger import Identity, Ledger, LedgerError, Spent
from gossamer.net.web.status_board import Board
from gossamer.net.wire.frames import NEVER, Frame, Position
from gossamer.net.wire.transport import ALL, Transport
from gossamer.privacy import Budget, Unit
from gossamer.problems import Block
from gossamer.topology import Topology

_LONGEST_REASON = 500
_READING = 10  # of a period one part is for reading: it ends before an exchange begins, and does not show
_LOOK = 0.05  # seconds between two looks for samples at least


class Node:
    """One learner, its ledger, and its place in the network.

    Args:
        algorithm: as `prepared` made it.
        learner: the learner's number.
        key: 32 secret bytes, of which all its noise is made.
        ledger: open, and of this network, learner, configuration and key. After a restart one neighbour that hears this
            learner must have said that it holds nothing later, and all of them where the ledger was adopted.
        transport: to the neighbours.
        source: of its samples.
        board: where it shows what may be seen.
        pace: how long it waits.
        exchanges: after how many exchanges it ends; by default when the guarantee does.
        budget: what its data may cost in all, with what `earlier` runs cost; None: what the algorithm is made for.
        earlier: what earlier runs over the same data have cost.
        times: how often a record may have come in this run, since its data were changed.
        account: asked before every exchange; None: nobody else reads these data.
        arrivals: "hidden": it speaks at its pace, with a gradient of zero where no sample has come; "public": when it
            has the samples of an exchange, or a neighbour speaks.
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
        times: int = 1,
        account: Account | None = None,
        arrivals: Arrivals = "hidden",
        play: Callable[[int, NDArray[np.float32]], None] | None = None,
    ) -> None:
        promise = promise_of(algorithm, arrivals)
        _require_same(ledger.identity, algorithm, learner, key)
        if ledger.promise is not None and ledger.promise.public_arrivals != promise.public_arrivals:
            raise PrivacyError.of("arrivals", arrivals, "what they were when the run began", "make a new network")
        require_silence(algorithm.problem)
        self.algorithm, self.learner, self.pace = algorithm, learner, pace or Pace()
        self.ledger, self.source, self.board = ledger, source, board
        self._key, self._spending = key, Spending(algorithm, learner, budget, earlier, times)
        self._account = account
        self._waits, self._play = arrivals == "public", play
        self._joins = algorithm.guarantee.unit not in (Unit.BATCH, Unit.BATCH_SAMPLE)
        self._me = Participant(algorithm, learner)
        assert isinstance(algorithm.topology, Topology)  # Participant refuses others
        self._around = Neighbourhoods(algorithm.topology, learner)
        self._format = frame_format(algorithm, ledger.identity.network, self._me.leaves)
        self._post = Correspondence(
            learner,
            self._format,
            *algorithm.topology.ever_meets(learner),
            transport=transport,
            board=board,
            pace=self.pace,
            answer=self._answer,
            check_seen=self._check_seen,
        )
        self._asked_for = None if exchanges is None else check_count("exchanges", exchanges)
        self._over = False
        self._position = NEVER
        self._gossip: LocalGossip | None = None
        self._state: State = None
        self._begun = -math.inf
        board.guarantee = promise
        board.set("start_time", time.time())
        board.set("period", self.pace.period)
        plan = self._spending.plan()
        if plan is not None:
            board.intend(plan)
        if algorithm.guarantee.horizon is not None:
            board.set("horizon", algorithm.guarantee.horizon)

    def stop(self) -> None:
        """End after the step in hand; from any thread, or from a signal's handler."""
        self._post.stop()

    def run(self, *, linger: bool = False) -> None:
        """Exchange until the end; `linger`: then answer neighbours that ask, until `stop`."""
        self._post.open()
        try:
            self._begin()
            self._exchange_all()
            while linger:
                self._post.look(1.0)
        except StopError:
            self.board.state = "stopped"
            self.board.log("stopped", exchange=self._position.exchange)
        except GossamerError as refusal:
            self.board.state = "stopped"
            self.board.log("refused", reason=_reason(refusal))
            raise
        finally:
            self._post.close()

    # The protocol.

    def _begin(self) -> None:
        """Go on from what the ledger holds, or begin."""
        self._me.warm_up()
        stored = self.ledger.state()
        if stored is None:
            self._begin_run()
        else:
            self._resume(Checkpoint.from_bytes(stored))

    def _begin_run(self) -> None:
        """Name the run when neighbours have had time to say that they know another one."""
        self.board.log("started", exchange=0)
        everybody = len(self._post.hearers)
        self._post.greet(self._position, self.pace.patience, answers=everybody if self.ledger.adopted else 0)
        if self.ledger.run is None:
            self.ledger.begin(secrets.token_hex(16), self.board.guarantee)
        self._use_noise()
        self._state = self._me.start()
        self.board.state = "running"

    def _resume(self, kept: Checkpoint) -> None:
        """The state that the ledger holds, and what it had sent sent again."""
        self._use_noise()
        last = self.ledger.last
        self._position = Position(last.exchange, last.step)
        steps = sorted({kept.step, max(kept.step, last.step - 1), last.step})
        sent = [self._sent(Position(last.exchange, step)) for step in steps]
        self._state = self._me.restored(kept.state, sent[0] or ())
        self._gossip = restored(kept.gossip, kept.arrays, sent, self._me.theta)
        self._post.restore_seen(kept.seen)
        self._show_spent(last.spent)
        self.board.set("last_exchange", self._position.exchange)
        self.board.log("resumed", exchange=self._position.exchange)
        if self.ledger.ended:  # nothing is released any more: no sample is read, and nobody has to agree
            return
        if not self.ledger.data_changed:
            self.source.resume(kept.mark)
        everybody = len(self._post.hearers)
        answers = everybody if self.ledger.adopted else min(1, everybody)
        self._post.greet(self._position, self.pace.deadline, answers)
        self.board.state = "running"
        if not kept.heard:
            self._send_again()
            self._finish()

    def _send_again(self) -> None:
        """Send what the ledger holds of the last step: it may have been sent before a crash, or not."""
        for receiver in self._around.at(self._position.exchange).heard_by:
            data = self.ledger.message(*self._position, receiver)
            assert data is not None
            self._post.send(receiver, data, "resent")

    def _use_noise(self) -> None:
        assert self.ledger.run is not None
        self._me.noise = noise_of(self.algorithm, self._key, self.ledger.run)

    def _exchange_all(self) -> None:
        while True:
            exchange = self._position.exchange + 1
            self._publish(exchange)
            if not self._may_release(exchange):
                self._over = True
                return
            block = self._next_block(exchange)
            begun = self._begun = time.monotonic()
            gossip, state = self._me.release(self._state, block, exchange, self._gossip)
            self._commit_and_send("release", Position(exchange, 0), gossip, state)
            self._finish()
            self.board.exchanged(exchange, time.monotonic() - begun)

    def _finish(self) -> None:
        """The rest of an exchange whose step at the position has been sent."""
        assert self._gossip is not None
        around = self._around.at(self._position.exchange)
        while not isinstance(self._gossip, GivenUp):
            arrived = self._post.gather(self._position, around.hears)
            gossip = after_step(self._gossip, around, arrived, self.algorithm.missing)
            following = self._position._replace(step=self._position.step + 1)
            if isinstance(gossip, GivenUp):
                self.board.count("void")
                self.board.log("given_up", exchange=following.exchange, step=following.step)
            if following.step == self.algorithm.mixing.steps:
                self._gossip = gossip
                break
            self._commit_and_send("gossip", following, gossip, self._state)
        self._state = self._me.listen(self._state, self._gossip)

    def _commit_and_send(
        self, kind: Literal["release", "gossip"], position: Position, gossip: LocalGossip, state: State
    ) -> None:
        """All that leaves the learner is in the ledger first; where it cannot be, the node stays as it was."""
        begun = time.monotonic()
        around = self._around.at(position.exchange)
        outgoing, gossip = gossip.outgoing(around, self._post.unreachable())
        frames = {
            receiver: self._format.encode(Frame("message", self.learner, *position, values))
            for receiver, values in outgoing.items()
        }
        if isinstance(gossip, GivenUp):  # those who wait for the steps from here on are told that there are none
            frames = {ALL: self._format.encode(Frame("void", self.learner, *position))}
        spent = self._spending.after(position.exchange + 1) if kind == "release" else ()  # gossip costs nothing more
        known = kind == "gossip" and gossip.told_by_messages
        kept = None if known else self._kept(position, gossip, state, outgoing.get(ALL, ()))
        self.ledger.commit(kind, *position, spent, frames, kept)
        self._position, self._gossip, self._state = position, gossip, state
        self.board.count("commit_seconds", time.monotonic() - begun)
        if kind == "release":
            self._show_spent(spent)
        self._post.send_all(position, {who: frames[who] if who in frames else frames[ALL] for who in around.heard_by})

    # What neighbours ask and say.

    def _answer(self, neighbour: int, wanted: Position) -> bytes | None:
        """What was committed for a neighbour that wants a step, or word that there is none; None: it may still come."""
        given_up = isinstance(self._gossip, GivenUp) and wanted.exchange == self._position.exchange
        if wanted > self._position and not (given_up or self._over):
            return None
        if neighbour not in self._around.at(wanted.exchange).heard_by:
            return None
        data = self.ledger.message(*wanted, neighbour)
        return self._format.encode(Frame("void", self.learner, *wanted)) if data is None else data

    def _check_seen(self, neighbour: int, seen: Position) -> None:
        """Refuse to go on where a neighbour holds more from this learner than its ledger does."""
        if seen > self._position:
            raise LedgerError(
                f"ledger: neighbour {neighbour} holds a message of exchange {seen.exchange}, and this ledger ends "
                f"with exchange {self._position.exchange}. The directory was restored from an old copy, or another "
                f"one runs: going on would use noise twice. Use the newest copy; nothing was sent."
            )

    # What is released, and what it costs.

    def _may_release(self, exchange: int) -> bool:
        """Whether one more exchange is asked for and covered; else the last decision is all that is served."""
        if self.ledger.ended:
            self._end(self.ledger.last.note, exchange)
            return False
        if self._asked_for is not None and exchange >= self._asked_for:
            self.board.state = "finished"
            return False
        refusal = self._refusal(exchange)
        if refusal is not None:
            self._end(refusal, exchange)
        return refusal is None

    def _refusal(self, exchange: int) -> Refusal | None:
        """Why one more exchange is not covered, by this run and by all others over the same data."""
        refusal = self._spending.refusal(exchange)
        if refusal is None and self._account is not None:
            cost = partial(self._spending.cost, self.board.guarantee)
            return None if self._account.covers(cost, exchange + 1) else "budget_used_up"
        return refusal

    def _end(self, why: str, exchange: int) -> None:
        """Nothing is released any more, and the last decision is kept."""
        self.board.state = "exhausted"
        self.board.log(why, exchange=exchange)
        if exchange and not self.ledger.ended:
            assert self._gossip is not None
            self.ledger.finish(self._kept(self._position, self._gossip, self._state, (), heard=True), why)

    def _next_block(self, exchange: int) -> Block:
        """The samples of an exchange, and the moment at which it begins: how long reading takes must not show."""
        rows = block_at(self.algorithm.schedule, exchange) * self.algorithm.batch
        reading = self.pace.period / _READING
        looked = time.monotonic()
        samples = self.source.take(rows, self.algorithm.batch)
        while self._waits and not self._has_to_speak(exchange, len(samples) == rows, bool(samples)):
            self.board.state = "waiting"
            hears = self._around.at(exchange).hears
            self._post.wait_for(Position(exchange, 0), hears, looked + max(reading, _LOOK))
            looked = time.monotonic()
            samples += self.source.take(rows - len(samples), self.algorithm.batch)
        self.board.state = "running"
        pause = reading if self._post.behind(exchange) else self.pace.period
        self._post.wait_until(max(looked + reading, self._begun + pause))
        return block_of(self.algorithm.problem, samples, rows)

    def _has_to_speak(self, exchange: int, full: bool, some: bool) -> bool:
        """Whether an exchange begins where arrivals are public: there is something to say, or a neighbour has spoken.

        Of batches that all see, this one will come here too: one that has not is waited for.
        """
        if full or (some and self.source.ended):
            return True
        return (self._joins or self.source.ended) and self._post.begun(exchange)

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

    def _kept(
        self, position: Position, gossip: LocalGossip, state: State, said: Values, *, heard: bool = False
    ) -> bytes:
        """All that a restart needs beside the messages; `said`: the one that is committed with it."""
        stored, seen = self._me.stored(state, said), self._post.all_seen()
        made = Checkpoint(position.step, heard, self.source.mark, seen, stored, gossip.word, gossip.arrays())
        return made.to_bytes()

    # What is shown.

    def _show_spent(self, spent: Sequence[Spent]) -> None:
        self.board.set("ledger_rows", self.ledger.last.number)
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
        ("configuration", identity.config, algorithm.digest),
        ("key", identity.key, key_fingerprint(key)),
    ):
        if held != given:
            raise PrivacyError(
                f"{field}: the ledger belongs to another one. A key, its ledger and the algorithm that they were made "
                f"for go together; for anything else make a new network with `gossamer network new`. Nothing was sent."
            )
