"""Where a node's samples come from: a file that grows, standard input, or a Python iterator.

A source never waits, and never shows a value: what cannot be used is reported by position and kind of the fault.
"""

from __future__ import annotations

import hashlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, TextIO, get_args

from gossamer.checks import check_choice, check_count
from gossamer.errors import ConfigurationError, DataError
from gossamer.net.samples import Sample, label_column, sample_of_csv, sample_of_json, sample_of_pair
from gossamer.problems import Problem

Faults = Callable[[str], None]
"""Is told position and kind of every sample that cannot be used, never a value."""

Mark = dict[str, Any]
"""Where a source is. It is kept with the state, since it says something about the data."""

FileKind = Literal["jsonl", "csv"]
LONGEST_LINE = 16 * 2**20
"""In bytes of a file, in characters of standard input; longer lines are not read."""

_SUFFIXES: dict[str, FileKind] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
_WAITING = 256  # samples of standard input that are held until the node takes them


class Source(Protocol):
    """Samples as they come."""

    def take(self, most: int, whole: int = 1) -> list[Sample | None]:
        """What is there now, at most so many and a multiple of `whole`, without waiting; None: it could not be used."""

    @property
    def mark(self) -> Mark:
        """Where it is, in numbers and texts that `resume` takes after a restart."""

    def resume(self, mark: Mark) -> None:
        """Go on from a mark of an earlier process; refused where it is not that of these data."""

    @property
    def ended(self) -> bool:
        """Whether nothing will come any more."""


class FollowedFile:
    r"""A file of JSON lines or CSV, read as it grows; it need not exist yet.

    A line without its newline is not there yet. JSON lines are {"x": [...], "y": 1}. A CSV file begins with a header;
    all columns but the label are features, in the order of the file. Empty lines are skipped.

    Args:
        path: of the file.
        problem: whose samples they are.
        kind: "jsonl" or "csv"; by default what the name ends in says it.
        label: the column, or the JSON key, of the label.
        faults: is told of samples that cannot be used.

    >>> import tempfile
    >>> from gossamer.problems import Logistic
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "readings.jsonl"
    ...     source = FollowedFile(path, Logistic(2))
    ...     before = source.take(10)
    ...     _ = path.write_text('{"x": [1, 2], "y": 1}\n{"x": [3, 4]')
    ...     before, source.take(10), source.mark["byte"]
    ([], [(array([1., 2.], dtype=float32), 1)], 22)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        problem: Problem,
        kind: FileKind | None = None,
        *,
        label: str = "y",
        faults: Faults | None = None,
    ) -> None:
        self._path, self._problem, self._label, self._faults = Path(path), problem, label, faults
        self._kind = _kind_of(self._path, kind)
        self._column: int | None = None  # of the label, once the header was read
        self._mark, self._last = 0, (0, b"")  # where the next line begins; where the last one did, and its digest

    @property
    def mark(self) -> Mark:
        """The file's name, the byte at which the next line begins, and the last line's beginning and digest."""
        begins, digest = self._last
        return {"file": self._path.name, "byte": self._mark, "last": begins, "digest": digest}

    @property
    def ended(self) -> bool:
        """Never: the file may grow."""
        return False

    def resume(self, mark: Mark) -> None:
        """Go on at the byte of the mark, where the line before it is the one that was read."""
        if mark.get("file") != self._path.name:
            raise _other_data(self._path.name)
        self._mark, self._last = mark["byte"], (mark["last"], mark["digest"])
        if not mark["digest"]:  # nothing was read yet, or a line too long to be read
            return
        try:
            with self._path.open("rb") as file:
                file.seek(mark["last"])
                line = file.read(mark["byte"] - mark["last"])
        except OSError:
            line = b""
        if _digest(line) != mark["digest"]:
            raise _other_data(self._path.name)

    def take(self, most: int, whole: int = 1) -> list[Sample | None]:
        """The samples of the next whole lines, at most so many."""
        if self._path.exists() and not self._path.is_file():  # a pipe would make us wait
            raise DataError(f"{self._path}: not a file; data of a pipe come in by standard input")
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            self._check_length(0)
            return []
        except OSError as unreadable:
            raise DataError(f"{self._path}: it cannot be read ({type(unreadable).__name__})") from None
        with file:
            self._check_length(os.fstat(file.fileno()).st_size)
            if self._kind == "csv" and not self._read_header(file):
                return []
            file.seek(self._mark)
            lines = list(self._lines(file, most))
        samples: list[Sample | None] = []
        for place, line, end in lines[: len(lines) // whole * whole]:
            samples.append(_usable(self._sample, line, f"byte {place}", self._faults))
            self._mark, self._last = end, (place, b"" if line is None else _digest(line))
        return samples

    def _lines(self, file: BinaryIO, most: int) -> Iterator[tuple[int, bytes | None, int]]:
        """Lines that are not empty: where each begins, what it holds (None: too long to be read), and where it ends."""
        place, taken = self._mark, 0
        while taken < most and (found := _next_line(file)) is not None:
            line, length = found
            if line is None or line.strip():
                taken += 1
                yield place, line, place + length
            place += length

    def _sample(self, line: bytes | None) -> Sample:
        if line is None:
            raise DataError(f"a line of more than {LONGEST_LINE:,} bytes")
        if self._kind == "jsonl":
            return sample_of_json(self._problem, line, self._label)
        assert self._column is not None
        return sample_of_csv(self._problem, line, self._column)

    def _check_length(self, length: int) -> None:
        if length < self._mark:
            raise DataError(
                f"{self._path.name}: {length:,} bytes, and {self._mark:,} were read before: it was cut or replaced. "
                "A source must only grow; give new data a new file and a new node"
            )

    def _read_header(self, file: BinaryIO) -> bool:
        """Find the label among the columns; False while the header is not there yet."""
        if self._column is None:
            found = _next_line(file)
            if found is None:
                return False
            line, length = found
            self._column = label_column(self._path.name, line, self._label, self._problem)
            self._mark = max(self._mark, length)
        return True


class StandardInput:
    r"""JSON lines from a text stream, read by a thread of its own.

    It cannot be read again: after a restart nobody knows whether what comes was used before. So a restart is refused,
    unless somebody says that it is new.

    Args:
        problem: whose samples they are.
        stream: standard input by default.
        label: the JSON key of the label.
        new_data: nothing that comes was used before a restart.
        faults: is told of samples that cannot be used.

    >>> import io, time
    >>> from gossamer.problems import LeastSquares
    >>> source = StandardInput(LeastSquares(1), io.StringIO('{"x": [1], "y": 0.5}\n'))
    >>> while not (taken := source.take(10)):
    ...     time.sleep(0.001)
    >>> taken
    [(array([1.], dtype=float32), 0.5)]
    """

    def __init__(
        self,
        problem: Problem,
        stream: TextIO | None = None,
        *,
        label: str = "y",
        new_data: bool = False,
        faults: Faults | None = None,
    ) -> None:
        self._problem, self._label, self._new_data, self._faults = problem, label, new_data, faults
        self._held: list[Sample | None] = []  # taken from the thread, and not yet given away
        self._waiting: queue.Queue[Sample | DataError | None] = queue.Queue(_WAITING)  # None: the end
        self._taken, self._ended = 0, False
        reader = threading.Thread(target=self._read, args=(stream or sys.stdin,), daemon=True, name="standard input")
        reader.start()

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
        used = max(mark.get(kind, 0) for kind in ("samples", "items", "byte"))
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
                self._held.append(_usable(_given, item, f"sample {self._taken + len(self._held)}", self._faults))
        samples = _give(self._held, most, whole)
        self._taken += len(samples)
        return samples

    def _read(self, stream: TextIO) -> None:
        """Read to the end; the queue is bounded, so a fast writer waits."""
        try:
            for line in _text_lines(stream):
                self._waiting.put(self._parsed(line))
        except (OSError, ValueError) as broken:  # closed under us, or not UTF-8
            self._waiting.put(DataError(f"the stream cannot be read ({type(broken).__name__})"))
        self._waiting.put(None)

    def _parsed(self, line: str | None) -> Sample | DataError:
        if line is None:
            return DataError(f"a line of more than {LONGEST_LINE:,} characters")
        try:
            return sample_of_json(self._problem, line, self._label)
        except DataError as unusable:
            return unusable


class Items:
    """Samples of a Python iterator; made by `from_iterable`."""

    def __init__(self, items: Iterator[Any], problem: Problem, faults: Faults | None) -> None:
        self._items, self._problem, self._faults = items, problem, faults
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
        if "items" not in mark:
            raise _other_data("an iterable")
        self._taken = self._skip = check_count("mark", mark["items"], least=0)

    def take(self, most: int, whole: int = 1) -> list[Sample | None]:
        """The next items, at most so many, up to the first None."""
        while len(self._held) < most and (item := self._next()) is not None:
            if self._skip:
                self._skip -= 1
                continue
            where = f"item {self._taken + len(self._held)}"
            self._held.append(_usable(partial(sample_of_pair, self._problem), item, where, self._faults))
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


def _digest(line: bytes) -> bytes:
    return hashlib.sha256(line).digest()


def _other_data(name: str) -> DataError:
    return DataError(
        f"{name}: not the data that were read before the restart, or they were changed. A sample must not be used "
        "twice: bring the data back as they were, or make a new network for new data"
    )


def from_iterable(iterable: Iterable[Any], problem: Problem, *, faults: Faults | None = None) -> Items:
    """Samples of an iterable of pairs (x, y), with None where there is nothing now.

    After a restart the same iterable is expected again: the items that were taken are skipped.

    >>> from gossamer.problems import Logistic
    >>> source = from_iterable([([1.0], 1), None, ([2.0], 0)], Logistic(1))
    >>> source.take(10), source.take(10), source.ended
    ([(array([1.], dtype=float32), 1)], [(array([2.], dtype=float32), 0)], True)
    """
    return Items(iter(iterable), problem, faults)


def _usable(read: Callable[[Any], Sample], given: Any, position: str, faults: Faults | None) -> Sample | None:
    """A sample, or None where it cannot be used."""
    try:
        return read(given)
    except DataError as unusable:
        if faults is not None:
            faults(f"{position}: {unusable}")
        return None


def _given(item: Sample | DataError) -> Sample:
    if isinstance(item, DataError):
        raise item
    return item


def _kind_of(path: Path, kind: FileKind | None) -> FileKind:
    if kind is not None:
        check_choice("kind", kind, FileKind)
        return kind
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        hint = f"say kind={' or kind='.join(map(repr, get_args(FileKind)))}"
        raise ConfigurationError("path", path.name, f"a name that ends in {', '.join(_SUFFIXES)}", hint)
    return found


def _next_line(file: BinaryIO) -> tuple[bytes | None, int] | None:
    """The next line (None: it is too long) and its length; None if it is not there yet."""
    line = file.readline(LONGEST_LINE)
    if line.endswith(b"\n"):
        return line, len(line)
    if len(line) < LONGEST_LINE:
        return None
    length = len(line)
    while rest := file.readline(LONGEST_LINE):
        length += len(rest)
        if rest.endswith(b"\n"):
            return None, length
    return None


def _text_lines(stream: TextIO) -> Iterator[str | None]:
    """The lines of a text that are not empty; None for one that is too long."""
    while line := stream.readline(LONGEST_LINE):
        if len(line) < LONGEST_LINE or line.endswith("\n"):
            if line.strip():
                yield line
            continue
        while rest := stream.readline(LONGEST_LINE):
            if rest.endswith("\n"):
                break
        yield None
