"""Frames that have arrived and wait for the node to look at them: a bounded number of each sender, taken in turn."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable

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
