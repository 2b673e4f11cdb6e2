"""Rows of files, one file after another, each row once: what a file that grows and a folder have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol

from gossamer.net.data.reader import Reader, Tally
from gossamer.net.data.samples import Sample
from gossamer.net.data.sources import Mark, other_data, taken_before


class Row(NamedTuple):
    """One row: where it begins, what it holds (None: it is too long to be read), and where the next one begins."""

    begins: int
    content: Any
    ends: int


class Place(NamedTuple):
    """Where a file is: the next row, and a digest of what was read `since` some place before it."""

    row: int
    since: int
    digest: bytes


class Tape(Protocol):
    """The rows of one open file; places are bytes in files of lines, and numbers of rows in others."""

    name: str
    unit: str

    def rows(self, begin: int, most: int) -> list[Row]:
        """The next rows, at most so many; refused where the file does not suit."""

    def sample(self, content: Any) -> Sample:
        """The sample in a row."""

    def behind(self, row: Row) -> Place:
        """The place behind a row."""

    def holds(self, place: Place) -> bool:
        """Whether what was read up to a place is there, as it was."""


class Tapes(ABC):
    """A source over files. Which one comes next is its own to say."""

    def __init__(self, name: str, reader: Reader) -> None:
        self._name, self._reader = name, reader
        self._at: tuple[str, Place] | None = None  # a file's name, and where it is read on

    @property
    def tally(self) -> Tally:
        """What the rows were like, for the owner."""
        return self._reader.tally

    @property
    def ended(self) -> bool:
        """Never: more may come."""
        return False

    @property
    def mark(self) -> Mark:
        """The file that is read, the place at which its next row begins, and a digest of what was read before it."""
        name, (row, since, digest) = self._at or (self._name, Place(0, 0, b""))
        return {"file": name, "byte": row, "since": since, "digest": digest, "tally": self.tally.kept}

    def resume(self, mark: Mark) -> None:
        """Go on from a mark; refused where the data are not those that were read up to it."""
        if not taken_before(mark):
            return
        if "file" not in mark or not self._take_mark(mark):
            raise other_data(self._name)
        self._at = mark["file"], Place(mark["byte"], mark["since"], mark["digest"])
        self.tally.restore(mark.get("tally", self.tally.kept))
        self.take(0)

    def take(self, most: int, whole: int = 1) -> list[Sample | None]:
        """The samples of the next whole rows, at most so many."""
        found: list[tuple[Tape, Row]] = []
        opened: list[Tape] = []
        with ExitStack() as stack:
            for tape, begin in self._tapes(stack):
                opened.append(tape)
                found += [(tape, row) for row in tape.rows(begin, most - len(found))]
                if len(found) >= most:
                    break
            kept = found[: len(found) // whole * whole]
            if kept:
                tape, row = kept[-1]
                self._went_on(opened[: opened.index(tape) + 1])
                self._at = tape.name, tape.behind(row)
            return [self._reader.read(tape.sample, row.content, self._position(tape, row)) for tape, row in kept]

    @abstractmethod
    def _tapes(self, stack: ExitStack) -> Iterator[tuple[Tape, int]]:
        """The file that is read, from where it is read on, and those that follow it from their beginnings."""

    @abstractmethod
    def _take_mark(self, mark: Mark) -> bool:
        """Whether a mark is one of this source; what only it knows is taken from it."""

    def _went_on(self, tapes: list[Tape]) -> None:  # noqa: B027
        """Rows are taken of the last of these files, and nothing is left in those before it."""

    def _position(self, tape: Tape, row: Row) -> str:
        return f"{tape.unit} {row.begins}"
