"""Where a node's samples come from: standard input or a Python iterator. Files and databases have modules of their own.

A source never waits, and never shows a value: what cannot be used is reported by position and kind of the fault.
"""

from __future__ import annotations

import io
import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Protocol

from gossamer.checks import check_count
from gossamer.data.schema import Schema
from gossamer.errors import DataError
from gossamer.net.data.reader import Faults, Reader
from gossamer.net.data.samples import Sample
from gossamer.problems import Problem

Mark = dict[str, Any]
"""Where a source is. It is kept with the state, since it says something about the data."""

LONGEST_LINE = 16 * 2**20
"""In bytes of a file, in characters of standard input; longer lines are not read."""

_WAITING = 256  # samples of standard input that are held until the node takes them


class Source(Protocol):
    """Samples as they come."""

    def take(self, most: int, whole: int = 1) -> list[Sample | None]:
        """What is there now, at most so many and a multiple of `whole`, without waiting; None: it could not be used."""

    @property
    def mark(self) -> Mark:
        """Where it is, in numbers and texts that `resume` takes after a restart."""

    def resume(self, mark: Mark) -> None:
        """Go on from a mark of an earlier process; refused where samples were taken, and of other data."""

    @property
    def ended(self) -> bool:
        """Whether nothing will come any more."""


class StandardInput:
    r"""JSON lines from a stream of bytes, read by a thread of its own; what they hold is looked at when they are taken.

    It cannot be read again: after a restart nobody knows whether what comes was used before. So a restart is refused,
    unless somebody says that it is new.

    Args:
        problem: whose samples they are.
        stream: standard input by default.
        schema: of the records; None where a line is {"x": [...], "y": 1}.
        label: the JSON key of the label, where there is no schema.
        new_data: nothing that comes was used before a restart.
        faults: is told of samples that cannot be used.

    >>> import io, time
    >>> from gossamer.problems import LeastSquares
    >>> source = StandardInput(LeastSquares(1), io.BytesIO(b'{"x": [1], "y": 0.5}\n'))
    >>> while not (taken := source.take(10)):
    ...     time.sleep(0.001)
    >>> taken
    [(array([1.], dtype=float32), 0.5)]
    """

    def __init__(
        self,
        problem: Problem,
        stream: BinaryIO | None = None,
        *,
        schema: Schema | None = None,
        label: str = "y",
        new_data: bool = False,
        faults: Faults | None = None,
    ) -> None:
        self._reader, self._new_data = Reader(problem, schema, label=label, faults=faults), new_data
        self._held: list[Sample | None] = []  # taken from the thread, and not yet given away
        self._waiting: queue.Queue[bytes | DataError | None] = queue.Queue(_WAITING)  # None: the end
        self._taken, self._ended = 0, False
        # A stream of its own: Python closes sys.stdin at the end, and aborts where a thread waits for a line of it.
        given = stream or io.BufferedReader(io.FileIO(sys.stdin.fileno(), closefd=False))
        threading.Thread(target=self._read, args=(given,), daemon=True, name="standard input").start()

    @property
    def mark(self) -> Mark:
        """How many samples were taken."""
        return {"samples": self._taken}

    @property
    def ended(self) -> bool:
        """Whether the stream ended and everything was taken."""
        return self._ended

    def resume(self, mark: Mark) -> None:
        """Refused where samples were taken before, of any source, and it is not said that others come now."""
        used = taken_before(mark)
        if used and not self._new_data:
            raise DataError(
                "standard input: samples were read before the restart, and it cannot be known whether the same "
                "come again. Say --new-data if none of them does, or use a file"
            )
        self._taken = used

    def take(self, most: int, whole: int = 1) -> list[Sample | None]:
        """The samples that were read by now, at most so many."""
        while len(self._held) < most and not self._ended:
            try:
                item = self._waiting.get_nowait()
            except queue.Empty:
                break
            if item is None:
                self._ended = True
            else:
                self._held.append(self._reader.read(self._sample, item, f"sample {self._taken + len(self._held)}"))
        samples = _give(self._held, most, whole)
        self._taken += len(samples)
        return samples

    def _read(self, stream: BinaryIO) -> None:
        """Read to the end; the queue is bounded, so a fast writer waits.

        Bytes, since text is decoded many lines at a time: one bad byte would take other samples with it.
        """
        try:
            for line in _lines(stream):
                self._waiting.put(line)
        except (OSError, ValueError) as broken:  # closed under us
            self._waiting.put(DataError(f"the stream cannot be read ({type(broken).__name__})"))
        self._waiting.put(None)

    def _sample(self, line: bytes | DataError) -> Sample:
        if isinstance(line, DataError):
            raise line
        return self._reader.of_json(line)


class Items:
    """Samples of a Python iterator; made by `from_iterable`."""

    def __init__(self, items: Iterator[Any], reader: Reader) -> None:
        self._items, self._reader = items, reader
        self._taken, self._skip, self._ended = 0, 0, False
        self._held: list[Sample | None] = []

    @property
    def mark(self) -> Mark:
        """How many items were taken."""
        return {"items": self._taken}

    @property
    def ended(self) -> bool:
        """Whether the iterator ended."""
        return self._ended

    def resume(self, mark: Mark) -> None:
        """Leave out so many items; they are skipped as they come."""
        if not taken_before(mark):
            return
        if "items" not in mark:
            raise other_data("an iterable")
        self._taken = self._skip = check_count("mark", mark["items"], least=0)

    def take(self, most: int, whole: int = 1) -> list[Sample | None]:
        """The next items, at most so many, up to the first None."""
        while len(self._held) < most and (item := self._next()) is not None:
            if self._skip:
                self._skip -= 1
                continue
            where = f"item {self._taken + len(self._held)}"
            self._held.append(self._reader.read(self._reader.of_item, item, where))
        samples = _give(self._held, most, whole)
        self._taken += len(samples)
        return samples

    def _next(self) -> Any:
        try:
            return next(self._items)
        except StopIteration:
            self._ended = True
            return None


def _give(held: list[Sample | None], most: int, whole: int) -> list[Sample | None]:
    """Take samples out of a list: at most so many, and a multiple of `whole`."""
    count = min(most, len(held)) // whole * whole
    given, held[:] = held[:count], held[count:]
    return given


def taken_before(mark: Mark) -> int:
    """How much was taken up to a mark of any source, in samples, rows or bytes; 0: nothing, so any data may follow.

    >>> taken_before({"samples": 3}), taken_before({"file": "readings.csv", "byte": 0})
    (3, 0)
    """
    taken: int = max(mark.get(unit, 0) for unit in ("samples", "items", "byte", "rows"))
    return taken


def other_data(name: str) -> DataError:
    """The refusal of data that are not those that were read, after a restart or while a node runs."""
    return DataError(
        f"{name}: not the data that were read before, or they were cut, replaced or changed. Data must only grow, "
        "since a sample must not be used twice: bring them back as they were, or say what the new ones are with "
        "`gossamer node data`"
    )


def from_iterable(
    iterable: Iterable[Any], problem: Problem, *, schema: Schema | None = None, faults: Faults | None = None
) -> Items:
    """Samples of an iterable of pairs (x, y), or with a schema of records; None stands where there is nothing now.

    After a restart the same iterable is expected again: the items that were taken are skipped.

    >>> from gossamer.problems import Logistic
    >>> source = from_iterable([([1.0], 1), None, ([2.0], 0)], Logistic(1))
    >>> source.take(10), source.take(10), source.ended
    ([(array([1.], dtype=float32), 1)], [(array([2.], dtype=float32), 0)], True)
    """
    return Items(iter(iterable), Reader(problem, schema, faults=faults))


def _lines(stream: BinaryIO) -> Iterator[bytes | DataError]:
    """The lines that are not empty; an error for one that is too long."""
    while line := stream.readline(LONGEST_LINE):
        if len(line) < LONGEST_LINE or line.endswith(b"\n"):
            if line.strip():
                yield line
            continue
        while rest := stream.readline(LONGEST_LINE):
            if rest.endswith(b"\n"):
                break
        yield DataError(f"a line of more than {LONGEST_LINE:,} bytes")
