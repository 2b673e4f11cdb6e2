"""What neighbours sent: frames that wait until the node looks at them, then messages that wait for their step."""

import math
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from gossamer.net.web.status_board import Board
from gossamer.net.wire.frames import NEVER, Format, Frame, FrameError, Position

AHEAD = 16
"""How many steps ahead of its own a node keeps the messages of others."""

_BYTES, _LEAST, _MOST = 2**25, 4, 256
_TAKEN = 64  # frames that a node looks at before it looks at its clock again


class Arrivals:
    """One queue for each neighbour: a flood of one neither fills the memory nor crowds out the others.

    Args:
        senders: whose frames are taken at all.
        limit: bytes of the longest frame.

    >>> arrivals = Arrivals([1, 2], limit=10)
    >>> arrivals.put(1, b"one"), arrivals.put(3, b"three"), arrivals.put(2, b"much too long")
    ('', 'stranger', 'size')
    >>> [(sender, data) for sender, data, arrived in arrivals.take(seconds=0)]
    [(1, b'one')]
    """

    def __init__(self, senders: Iterable[int], limit: int) -> None:
        self._queues: dict[int, deque[tuple[bytes, float]]] = {sender: deque() for sender in senders}
        self._limit, self._most = limit, min(_MOST, max(_LEAST, _BYTES // limit))
        self._change, self._woken = threading.Condition(), False

    def put(self, sender: int, data: bytes) -> str:
        """Keep a frame until it is taken; the answer is empty, or says why it was dropped."""
        if sender not in self._queues:
            return "stranger"
        if len(data) > self._limit:
            return "size"
        with self._change:
            if len(self._queues[sender]) >= self._most:
                return "queue"
            self._queues[sender].append((data, time.monotonic()))
            self._change.notify()
        return ""

    def take(self, seconds: float) -> list[tuple[int, bytes, float]]:
        """Wait so long for something to arrive; then some of it, of all senders in turn, and when it came."""
        with self._change:
            self._change.wait_for(lambda: self._woken or any(self._queues.values()), max(0.0, seconds))
            taken: list[tuple[int, bytes, float]] = []
            while len(taken) < _TAKEN and any(self._queues.values()):
                taken += [(sender, *waiting.popleft()) for sender, waiting in self._queues.items() if waiting]
            return taken

    def wake(self) -> None:
        """End all waiting, now and later."""
        with self._change:
            self._woken = True
            self._change.notify_all()


class Inbox:
    """Messages of the current step and of later ones, at most one of each sender.

    A sender that says it has none ("void") has none at the later steps of that exchange either. Transports `put` from
    their threads; everything else is for the node's.

    Args:
        senders: whose frames are taken at all.
        form: what frames look like.
        board: counts what arrives and what is dropped.

    >>> from gossamer.privacy.guarantee import no_guarantee
    >>> from gossamer.problems import Logistic
    >>> form = Format(bytes(16), bytes(32), learners=3, steps=1, first=(), later=())
    >>> inbox = Inbox([1, 2], form, Board(Logistic(2), no_guarantee("an example"), learner=0))
    >>> inbox.move_to(Position(3, 0))
    >>> for exchange in (3, 2, 3, 99):
    ...     inbox.put(1, form.encode(Frame("message", 1, exchange, 0)))
    >>> inbox.put(2, form.encode(Frame("want", 2, 7, 0)))
    >>> [(frame.kind, frame.position) for frame, arrived in inbox.take(seconds=0)]
    [('want', Position(exchange=7, step=0))]
    >>> inbox.lacking([1, 2]), inbox.seen(1), inbox.newest(1)
    ([2], Position(exchange=3, step=0), Position(exchange=99, step=0))
    >>> inbox.begun(1, 3), inbox.begun(1, 4)
    (True, False)
    """

    def __init__(self, senders: Iterable[int], form: Format, board: Board) -> None:
        self._form, self._board, self._here = form, board, Position(0, 0)
        self._arrivals = Arrivals(senders, form.limit)
        self._frames: dict[Position, dict[int, Frame]] = {}
        self._voids: dict[int, Position] = {}
        self._seen: dict[int, Position] = {}
        self._newest: dict[int, Position] = {}
        self._heard_at: dict[int, float] = {}

    def put(self, sender: int, data: bytes) -> None:
        """Keep a frame until the node looks; from any thread."""
        self._board.count("bytes_received", len(data))
        if reason := self._arrivals.put(sender, data):
            self._board.count("frames_dropped", reason=reason)

    def wake(self) -> None:
        """End all waiting, now and later; from any thread, or from a signal's handler."""
        self._arrivals.wake()

    def take(self, seconds: float) -> list[tuple[Frame, float]]:
        """Wait so long for something to arrive, and keep its messages; the rest is handed out, and when it came."""
        looked = ((self._look(sender, data), arrived) for sender, data, arrived in self._arrivals.take(seconds))
        return [(frame, arrived) for frame, arrived in looked if frame is not None]

    def move_to(self, position: Position) -> None:
        """Forget what belongs to earlier steps."""
        self._here = position
        self._frames = {where: frames for where, frames in self._frames.items() if where >= position}

    def seen(self, sender: int) -> Position:
        """The last step of which a message of this sender ever came and was not too early."""
        return self._seen.get(sender, NEVER)

    def begun(self, sender: int, exchange: int) -> bool:
        """Whether this sender has spoken in this exchange or a later one, or says that it has no message of it.

        What comes too early does not count: one frame from far ahead would have a node speak for ever.
        """
        return self.seen(sender).exchange >= exchange or self._voids.get(sender, NEVER).exchange == exchange

    def newest(self, sender: int) -> Position:
        """The last step at which this sender says that it is: also of a message that came too early to be kept."""
        return self._newest.get(sender, NEVER)

    def all_seen(self) -> dict[int, Position]:
        """What `seen` says of all senders, to be kept."""
        return dict(self._seen)

    def restore_seen(self, seen: Mapping[int, Sequence[int]]) -> None:
        """What `all_seen` gave before a restart."""
        self._seen = {sender: Position(*where) for sender, where in seen.items()}

    def heard_at(self, sender: int) -> float:
        """When this sender was last heard, by the monotonic clock."""
        return self._heard_at.get(sender, -math.inf)

    def lacking(self, senders: Collection[int]) -> list[int]:
        """Of these senders, those who neither sent a message of the current step nor said that there is none."""
        known = self._frames.get(self._here, {})
        return [sender for sender in senders if sender not in known and not self._void(sender)]

    def arrived(self, senders: Collection[int]) -> dict[int, Frame]:
        """The messages of the current step, by sender."""
        known = self._frames.get(self._here, {})
        return {sender: known[sender] for sender in senders if sender in known}

    def _look(self, sender: int, data: bytes) -> Frame | None:
        """Keep what is a message; else the question, or the answer, for the node."""
        try:
            frame = self._form.decode(data, sender)
        except FrameError as error:
            self._drop(sender, error.reason)
            return None
        self._heard_at[sender] = time.monotonic()
        self._board.heard(sender)
        if frame.kind in ("want", "seen"):
            return frame
        if reason := self._keep(frame):
            self._drop(sender, reason)
        elif frame.kind == "message":
            self._board.count("messages_received")
        return None

    def _keep(self, frame: Frame) -> str:
        """Keep a message or a void; the answer is empty, or says why it was dropped."""
        where = frame.position
        if frame.kind == "void":
            self._voids[frame.sender] = where
            return "late" if where < self._here else ""
        self._newest[frame.sender] = max(where, self.newest(frame.sender))
        if self._row(where) > self._row(self._here) + AHEAD:
            return "early"
        self._seen[frame.sender] = max(where, self.seen(frame.sender))
        if where < self._here:
            return "late"
        known = self._frames.setdefault(where, {})
        if frame.sender in known:
            return "duplicate" if _same(known[frame.sender], frame) else "other_payload"
        known[frame.sender] = frame
        return ""

    def _drop(self, sender: int, reason: str) -> None:
        self._board.count("frames_dropped", reason=reason)
        if reason not in ("late", "early", "duplicate"):  # as they come where messages are sent again
            self._board.log_seldom("frame_dropped", reason=reason, sender=sender)

    def _void(self, sender: int) -> bool:
        exchange, step = self._voids.get(sender, NEVER)
        return exchange == self._here.exchange and step <= self._here.step

    def _row(self, position: Position) -> int:
        return position.exchange * self._form.steps + position.step


def _same(one: Frame, other: Frame) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one.values, other.values, strict=True))
