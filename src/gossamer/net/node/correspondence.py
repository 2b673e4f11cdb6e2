"""What a learner says to its neighbours and hears from them: messages, questions and answers.

A learner that waits for a message asks for it, and its neighbour answers from its ledger; so a message is missing only
where its sender was away until the deadline. All of it happens in the node's thread: what arrives waits in a queue
until the node looks.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from gossamer.checks import check_positive
from gossamer.net.node.gossip import Values
from gossamer.net.node.inbox import Arrivals, Inbox
from gossamer.net.node.neighbourhood import Neighbourhoods
from gossamer.net.store.ledger import Ledger, LedgerError
from gossamer.net.web.status_board import Board
from gossamer.net.wire.frames import NEVER, Format, Frame, FrameError, Position
from gossamer.net.wire.transport import Transport

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


class StopError(Exception):
    """Somebody asked the node to stop."""


class Correspondence:
    """One learner's exchange of letters with its neighbours.

    Args:
        learner: the learner's number.
        form: what frames look like.
        around: who its neighbours are.
        ledger: answers those who ask for a message again.
        transport: to the neighbours.
        board: where it counts.
        pace: how long it waits.
        has_none: whether there will be no message of a step that is not committed.

    Attributes:
        neighbours: all whom it ever hears or speaks to.
        hearers: those who ever hear it.
        inbox: what has arrived.
        committed: the last step that the ledger holds.
    """

    def __init__(
        self,
        learner: int,
        form: Format,
        around: Neighbourhoods,
        *,
        ledger: Ledger,
        transport: Transport,
        board: Board,
        pace: Pace,
        has_none: Callable[[Position], bool],
    ) -> None:
        self._learner, self._form, self._around = learner, form, around
        self._ledger, self._transport, self._board, self._pace = ledger, transport, board, pace
        self._has_none = has_none
        hears, self.hearers = around.ever()
        self.neighbours = sorted(hears | self.hearers)
        self.inbox, self.committed = Inbox(form.steps), NEVER
        self._arrivals = Arrivals(self.neighbours, form.limit)
        self._stop = threading.Event()
        self._greeted: set[int] = set()
        self._absent: set[int] = set()
        self._heard_at: dict[int, float] = {}
        self._lost_at: dict[int, float] = {}
        self._logged: dict[str, float] = {}
        self._looked_at = self._sent_at = -math.inf

    def open(self) -> None:
        """Connect."""
        self._transport.open(self.receive)

    def close(self) -> None:
        """Let go of the network."""
        self._transport.close()

    def stop(self) -> None:
        """Have the next look end with a StopError; from any thread, or from a signal's handler."""
        self._stop.set()
        self._arrivals.wake()

    # What is sent.

    def send_all(self, messages: Iterable[tuple[int, bytes]]) -> None:
        """Send the messages of the step that was committed."""
        self._sent_at = time.monotonic()
        for receiver, data in messages:
            self.send(receiver, data, "messages_sent")

    def send_again(self, position: Position) -> None:
        """Send what the ledger holds of this step: it may have been sent before a crash, or not."""
        for receiver in self._around.at(position.exchange).heard_by:
            data = self._ledger.message(*position, receiver)
            assert data is not None
            self.send(receiver, data, "resent")

    def send(self, receiver: int, data: bytes, counted: str | None = None) -> None:
        """Send a frame, and count it."""
        self._transport.send(receiver, data)
        self._board.count("bytes_sent", len(data))
        if counted:
            self._board.count(counted)

    def unreachable(self) -> frozenset[int]:
        """Neighbours without a connection since the deadline."""
        now = time.monotonic()
        if now - self._looked_at >= min(1.0, self._pace.deadline / 4):
            self._looked_at, connected = now, self._transport.connected
            self._board.set("neighbours_connected", len(connected))
            lost = [neighbour for neighbour in self.neighbours if neighbour not in connected]
            self._lost_at = {neighbour: self._lost_at.get(neighbour, now) for neighbour in lost}
        return frozenset(one for one, since in self._lost_at.items() if now - since >= self._pace.deadline)

    # What is waited for.

    def greet(self, seconds: float, answers: int) -> None:
        """Ask all neighbours what they hold from this learner, before anything new is released.

        Args:
            seconds: to wait for all of them.
            answers: without so many, of those who hear this learner, it waits on.
        """
        begun, pause = time.monotonic(), self._pace.retry
        here = max(Position(0, 0), self.committed)
        while waiting := [one for one in self.neighbours if one not in self._greeted]:
            agreed = len(self._greeted & self.hearers)
            if time.monotonic() - begun >= seconds and agreed >= answers:
                break
            self._ask(waiting, here)
            self.look(pause)
            pause = min(2 * pause, 1.0)
            if time.monotonic() - begun >= seconds:
                self._log_seldom("waiting", answers=agreed, needed=answers)
        self.unreachable()

    def gather(self, position: Position, senders: Collection[int]) -> dict[int, Values]:
        """The messages of this step, asked for again and again, until nobody is left who is worth waiting for."""
        self.inbox.move_to(position)
        begun, pause = time.monotonic(), self._pace.retry
        passed = any(self.inbox.newest(sender) > position for sender in self.inbox.lacking(senders))
        ask_at = begun if passed else begun + pause
        while waiting := [one for one in self.inbox.lacking(senders) if self._worth_waiting(one, begun)]:
            now = time.monotonic()
            if now >= ask_at:
                self._ask(waiting, position)
                ask_at, pause = now + pause, min(2 * pause, 1.0, self._pace.deadline / 4)
            self.look(min(ask_at, *(self._waited_for_until(one, begun) for one in waiting)) - now)
        self._board.count("waiting_seconds", time.monotonic() - begun)
        arrived = self.inbox.arrived(senders)
        self._absent.update(self.inbox.lacking(senders))
        if lost := [sender for sender in senders if sender not in arrived]:
            self._board.count("missing", len(lost))
            self._log_seldom("missing", sender=lost[0], exchange=position.exchange, step=position.step)
        return {sender: frame.values for sender, frame in arrived.items()}

    def behind(self, exchange: int) -> bool:
        """Whether all neighbours that were heard lately speak at later exchanges; one alone might only say so."""
        since = time.monotonic() - self._pace.deadline
        lately = [neighbour for neighbour, heard in self._heard_at.items() if heard >= since]
        return bool(lately) and all(self.inbox.newest(neighbour).exchange > exchange for neighbour in lately)

    def wait_until(self, moment: float) -> None:
        """Deal with what arrives until then."""
        self.look(0.0)
        while (left := moment - time.monotonic()) > 0:
            self.look(left)

    def look(self, seconds: float) -> None:
        """Wait so long for something to arrive, and deal with some of it."""
        wants: dict[int, tuple[Frame, float]] = {}
        for sender, data, arrived in self._arrivals.take(seconds):
            self._handle(sender, data, arrived, wants)
        for want, arrived in wants.values():  # one of each neighbour: an answer costs more than a question
            self._answer(want, arrived)
        if self._stop.is_set():
            raise StopError

    def _ask(self, senders: Iterable[int], position: Position) -> None:
        for sender in senders:
            self.send(sender, self._form.encode(Frame("want", self._learner, *position)), "wanted")

    def _worth_waiting(self, sender: int, begun: float) -> bool:
        return sender not in self._absent and time.monotonic() < self._waited_for_until(sender, begun)

    def _waited_for_until(self, sender: int, begun: float) -> float:
        """A deadline after it was last heard.

        One that waits for others itself, or catches up, answers when it is asked. So it is waited for, and what a dead
        node costs is one deadline of its neighbours.
        """
        heard = max(begun, self._heard_at.get(sender, begun))
        return min(heard, begun + (_MOST_DEADLINES - 1) * self._pace.deadline) + self._pace.deadline

    # What arrives.

    def receive(self, sender: int, data: bytes) -> None:
        """Called by the transport, from its threads."""
        self._board.count("bytes_received", len(data))
        if reason := self._arrivals.put(sender, data):
            self._board.count("frames_dropped", reason=reason)

    def _handle(self, sender: int, data: bytes, arrived: float, wants: dict[int, tuple[Frame, float]]) -> None:
        try:
            frame = self._form.decode(data, sender)
        except FrameError as error:
            return self._drop(sender, error.reason)
        self._heard_at[sender] = time.monotonic()
        self._absent.discard(sender)
        if frame.kind == "want":
            wants[sender] = frame, arrived
            return None
        if frame.kind == "seen":
            return self._check_seen(frame)
        reason = self.inbox.add(frame)
        if reason:
            return self._drop(sender, reason)
        return self._board.count("messages_received") if frame.kind == "message" else None

    def _answer(self, frame: Frame, arrived: float) -> None:
        """Say what was last seen of one who asks, and send again what it asks for, or that there is none.

        A question that came before the message was sent has been answered by it.
        """
        seen = self.inbox.seen(frame.sender)
        self.send(frame.sender, self._form.encode(Frame("seen", self._learner, *seen)))
        wanted = frame.position
        if wanted > self.committed and not self._has_none(wanted):
            return
        if wanted == self.committed and arrived < self._sent_at:
            return
        if frame.sender not in self._around.at(wanted.exchange).heard_by:
            return
        data = self._ledger.message(*wanted, frame.sender)
        none = Frame("void", self._learner, *wanted)
        self.send(frame.sender, self._form.encode(none) if data is None else data, "resent")

    def _check_seen(self, frame: Frame) -> None:
        """Refuse to go on where a neighbour holds more from this learner than its ledger does."""
        self._greeted.add(frame.sender)
        if frame.position > self.committed:
            raise LedgerError(
                f"ledger: neighbour {frame.sender} holds a message of exchange {frame.exchange}, and this ledger ends "
                f"with exchange {self.committed.exchange}. The directory was restored from an old copy, or another "
                f"one runs: going on would use noise twice. Use the newest copy; nothing was sent."
            )

    def _drop(self, sender: int, reason: str) -> None:
        self._board.count("frames_dropped", reason=reason)
        if reason not in ("late", "early", "duplicate"):  # as they come where messages are sent again
            self._log_seldom("frame_dropped", reason=reason, sender=sender)

    def _log_seldom(self, event: str, **fields: Any) -> None:
        """One line a second at most for each event and reason; everything is counted."""
        now, what = time.monotonic(), f"{event} {fields.get('reason', '')}"
        if now - self._logged.get(what, -math.inf) >= _LOGGED_EVERY:
            self._logged[what] = now
            self._board.log(event, **fields)
