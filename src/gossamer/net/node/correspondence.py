"""What a learner says to its neighbours and hears from them: messages, questions and answers.

A learner that waits for a message asks for it, and its neighbour answers with what it has committed; so a message is
missing only where its sender was away until the deadline. What was committed only the node knows: it is asked, and it
is told what neighbours hold. All of it happens in the node's thread.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gossamer.checks import check_positive
from gossamer.net.node.gossip import Values
from gossamer.net.node.inbox import Inbox
from gossamer.net.web.status_board import Board
from gossamer.net.wire.frames import NEVER, Format, Frame, Position
from gossamer.net.wire.transport import Transport

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
    period: float = 0.01
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
        hears: all whom it ever hears.
        hearers: those who ever hear it.
        transport: to the neighbours.
        board: where it counts.
        pace: how long it waits.
        answer: asked what to send to a neighbour that wants the message of a step; None: nothing, it may still come.
        check_seen: told the last step that a neighbour holds from this learner; raises where that cannot be.

    Attributes:
        neighbours: all whom it ever hears or speaks to.
        hearers: those who ever hear it.
    """

    def __init__(
        self,
        learner: int,
        form: Format,
        hears: frozenset[int],
        hearers: frozenset[int],
        *,
        transport: Transport,
        board: Board,
        pace: Pace,
        answer: Callable[[int, Position], bytes | None],
        check_seen: Callable[[int, Position], None],
    ) -> None:
        self._learner, self._form, self.hearers = learner, form, hearers
        self._transport, self._board, self._pace = transport, board, pace
        self._answer, self._check_seen = answer, check_seen
        self.neighbours = sorted(hears | hearers)
        board.meet(self.neighbours)
        self._inbox = Inbox(self.neighbours, form, board)
        self._stop = threading.Event()
        self._greeted: set[int] = set()
        self._absent_at: dict[int, float] = {}
        self._lost_at: dict[int, float] = {}
        self._sent, self._sent_at = NEVER, -math.inf
        self._looked_at = -math.inf
        self._asked, self._ask_at, self._pause = NEVER, -math.inf, pace.retry

    def open(self) -> None:
        """Connect."""
        self._transport.open(self._inbox.put)

    def close(self) -> None:
        """Let go of the network."""
        self._transport.close()

    def stop(self) -> None:
        """Have the next look end with a StopError; from any thread, or from a signal's handler."""
        self._stop.set()
        self._inbox.wake()

    # What is sent.

    def send_all(self, position: Position, messages: Mapping[int, bytes]) -> None:
        """Send the messages, by receiver, of a step that was committed."""
        self._sent, self._sent_at = position, time.monotonic()
        for receiver, data in messages.items():
            self.send(receiver, data, "messages_sent")

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
            self._board.connect(connected)
            lost = [neighbour for neighbour in self.neighbours if neighbour not in connected]
            self._lost_at = {neighbour: self._lost_at.get(neighbour, now) for neighbour in lost}
        return frozenset(one for one, since in self._lost_at.items() if now - since >= self._pace.deadline)

    # What is waited for.

    def greet(self, position: Position, seconds: float, answers: int) -> None:
        """Ask all neighbours what they hold from this learner, before anything new is released.

        Args:
            position: the step that was committed last.
            seconds: to wait for all of them.
            answers: without so many, of those who hear this learner, it waits on.
        """
        begun, pause = time.monotonic(), self._pace.retry
        here = max(Position(0, 0), position)
        while waiting := [one for one in self.neighbours if one not in self._greeted]:
            agreed = len(self._greeted & self.hearers)
            if time.monotonic() - begun >= seconds and agreed >= answers:
                break
            self._ask(waiting, here)
            self.look(pause)
            pause = min(2 * pause, 1.0)
            if time.monotonic() - begun >= seconds:
                self._board.log_seldom("waiting", answers=agreed, needed=answers)
        self.unreachable()

    def gather(self, position: Position, senders: Collection[int]) -> dict[int, Values]:
        """The messages of this step, asked for again and again, until nobody is left who is worth waiting for."""
        self._inbox.move_to(position)
        begun, pause = time.monotonic(), self._pace.retry
        passed = any(self._inbox.newest(sender) > position for sender in self._inbox.lacking(senders))
        ask_at = begun if passed else begun + pause
        while waiting := [one for one in self._inbox.lacking(senders) if self._worth_waiting(one, begun)]:
            now = time.monotonic()
            if now >= ask_at:
                self._ask(waiting, position)
                ask_at, pause = now + pause, min(2 * pause, 1.0, self._pace.deadline / 4)
            self.look(min(ask_at, *(self._waited_for_until(one, begun) for one in waiting)) - now)
        ended = time.monotonic()
        self._board.count("waiting_seconds", ended - begun)
        arrived = self._inbox.arrived(senders)
        self._absent_at |= dict.fromkeys(self._inbox.lacking(senders), ended)
        if lost := [sender for sender in senders if sender not in arrived]:
            self._board.count("missing", len(lost))
            self._board.log_seldom("missing", sender=lost[0], exchange=position.exchange, step=position.step)
        return {sender: frame.values for sender, frame in arrived.items()}

    def behind(self, exchange: int) -> bool:
        """Whether all neighbours that were heard lately speak at later exchanges; one alone might only say so."""
        since = time.monotonic() - self._pace.deadline
        lately = [neighbour for neighbour in self.neighbours if self._inbox.heard_at(neighbour) >= since]
        return bool(lately) and all(self._inbox.newest(neighbour).exchange > exchange for neighbour in lately)

    def wait_until(self, moment: float) -> None:
        """Deal with what arrives until then."""
        self.look(0.0)
        while (left := moment - time.monotonic()) > 0:
            self.look(left)

    def begun(self, exchange: int) -> bool:
        """Whether a neighbour has spoken in this exchange, or in a later one."""
        return any(self._inbox.begun(one, exchange) for one in self.neighbours)

    def wait_for(self, position: Position, senders: Collection[int], moment: float) -> None:
        """Deal with what arrives until then, or until a neighbour begins this exchange.

        Whoever speaks first may be one whose message was lost, or came while this node was away. So they are asked,
        ever more seldom. A question has nobody begin.
        """
        if position != self._asked:
            self._asked, self._ask_at, self._pause = position, time.monotonic() + self._pace.retry, self._pace.retry
        while not self.begun(position.exchange) and (left := moment - time.monotonic()) > 0:
            if time.monotonic() >= self._ask_at:
                self._ask(senders, position)
                self._pause = min(2 * self._pause, self._pace.deadline)
                self._ask_at = time.monotonic() + self._pause
            self.look(min(left, max(0.0, self._ask_at - time.monotonic())))
            self.unreachable()

    def look(self, seconds: float) -> None:
        """Wait so long for something to arrive, and deal with some of it."""
        wants: dict[int, tuple[Position, float]] = {}
        for frame, arrived in self._inbox.take(seconds):
            if frame.kind == "want":
                wants[frame.sender] = frame.position, arrived
            else:
                self._greeted.add(frame.sender)
                self._check_seen(frame.sender, frame.position)
        self.unreachable()  # what the board says of connections stays true, however long this node waits
        for sender, (wanted, arrived) in wants.items():  # one of each neighbour: an answer costs more than a question
            self._reply(sender, wanted, arrived)
        if self._stop.is_set():
            raise StopError

    def _reply(self, sender: int, wanted: Position, arrived: float) -> None:
        """Say what was last seen of one who asks, and send what it asks for, if there is an answer by now.

        A question that came before the message was sent has been answered by it.
        """
        seen = self._inbox.seen(sender)
        self.send(sender, self._form.encode(Frame("seen", self._learner, *seen)))
        if wanted == self._sent and arrived < self._sent_at:
            return
        data = self._answer(sender, wanted)
        if data is not None:
            self.send(sender, data, "resent")

    def _ask(self, senders: Iterable[int], position: Position) -> None:
        for sender in senders:
            self.send(sender, self._form.encode(Frame("want", self._learner, *position)), "wanted")

    def _worth_waiting(self, sender: int, begun: float) -> bool:
        """Whether it may still be heard in time; not where it was waited for in vain, and not heard since."""
        there = self._inbox.heard_at(sender) >= self._absent_at.get(sender, -math.inf)
        return there and time.monotonic() < self._waited_for_until(sender, begun)

    def _waited_for_until(self, sender: int, begun: float) -> float:
        """A deadline after it was last heard.

        One that waits for others itself, or catches up, answers when it is asked. So it is waited for, and what a dead
        node costs is one deadline of its neighbours.
        """
        heard = max(begun, self._inbox.heard_at(sender))
        return min(heard, begun + (_MOST_DEADLINES - 1) * self._pace.deadline) + self._pace.deadline

    # What was seen of neighbours, to be kept with the state.

    def all_seen(self) -> dict[int, Position]:
        """The last step of which a message came, by sender."""
        return self._inbox.all_seen()

    def restore_seen(self, seen: Mapping[int, Sequence[int]]) -> None:
        """What `all_seen` gave before a restart."""
        self._inbox.restore_seen(seen)
