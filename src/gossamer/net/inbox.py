"""Frames that have arrived, by exchange and step: which are kept, and which are dropped and counted."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from gossamer.net.frames import Frame

AHEAD = 16
"""How many exchanges ahead of its own a node keeps the frames of others."""


class Position(NamedTuple):
    """An exchange, and a gossip step of it."""

    exchange: int
    step: int


class Inbox:
    """Messages (or the word that there is none) of the current step and of later ones, at most one of each sender.

    >>> inbox = Inbox()
    >>> inbox.move_to(Position(3, 0))
    >>> [inbox.add(Frame("void", 1, exchange, 0), b"...") for exchange in (3, 2, 3, 99)]
    ['', 'late', 'duplicate', 'early']
    >>> inbox.lacking([1, 2])
    [2]
    """

    def __init__(self) -> None:
        self._frames: dict[Position, dict[int, tuple[Frame, bytes]]] = {}
        self._here = Position(0, 0)
        self._seen: dict[int, Position] = {}

    def move_to(self, position: Position) -> None:
        """Forget what belongs to earlier steps."""
        self._here = position
        self._frames = {where: frames for where, frames in self._frames.items() if where >= position}

    def add(self, frame: Frame, data: bytes) -> str:
        """Keep a frame; the answer is empty, or says why it was dropped."""
        where = Position(frame.exchange, frame.step)
        if frame.kind == "message":  # a word that there is none proves nothing about what its sender has released
            self._seen[frame.sender] = max(where, self._seen.get(frame.sender, where))
        if where < self._here:
            return "late"
        if where.exchange > self._here.exchange + AHEAD:
            return "early"
        known = self._frames.setdefault(where, {})
        if frame.sender in known:
            return "duplicate" if known[frame.sender][1] == data else "other_payload"
        known[frame.sender] = (frame, data)
        return ""

    def seen(self, sender: int) -> Position:
        """The last step of which a message of this sender came; (-1, 0): none."""
        return self._seen.get(sender, Position(-1, 0))

    def lacking(self, senders: Collection[int]) -> list[int]:
        """Of these senders, those whose frame of the current step has not come."""
        known = self._frames.get(self._here, {})
        return [sender for sender in senders if sender not in known]

    def arrived(self, senders: Collection[int]) -> dict[int, Frame]:
        """The messages of the current step, by sender."""
        known = self._frames.get(self._here, {})
        return {
            sender: known[sender][0] for sender in senders if sender in known and known[sender][0].kind == "message"
        }
