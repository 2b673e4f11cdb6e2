"""What moves bytes between learners. A node takes any transport: the network's, or one in memory for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

LONGEST_MESSAGE = 64 * 2**20
"""Bytes in the longest message."""

ALL = -1
"""Stands for every receiver, where all are sent the same."""

Receive = Callable[[int, bytes], None]
"""Called with the number of the sender, as the transport authenticated it, and what it sent."""


class Transport(Protocol):
    """Moves bytes from one learner to another. It may lose, delay, repeat and reorder them."""

    def open(self, receive: Receive) -> None:
        """From now on whatever arrives is given to `receive`, from any thread."""

    def send(self, receiver: int, data: bytes) -> None:
        """Send to one learner, if it can be reached; never wait long."""

    @property
    def connected(self) -> frozenset[int]:
        """The learners that can be reached now, as far as it is known."""

    def close(self) -> None:
        """End all connections."""
