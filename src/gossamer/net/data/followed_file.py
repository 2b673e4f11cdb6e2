"""Samples of a file that is read as it grows, and refused where what was read has changed."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, get_args

from gossamer.checks import check_choice
from gossamer.errors import ConfigurationError, DataError
from gossamer.net.data.samples import Sample, label_column, sample_of_csv, sample_of_json
from gossamer.net.data.sources import LONGEST_LINE, Faults, Mark, other_data, taken_before, usable
from gossamer.problems import Problem

FileKind = Literal["jsonl", "csv"]

_SUFFIXES: dict[str, FileKind] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
_COMPARED = 2**14  # bytes before the mark, at least: one short line may be there twice


class FollowedFile:
    r"""A file of JSON lines or CSV, read as it grows; it need not exist yet.

    A line without its newline is not there yet. JSON lines are {"x": [...], "y": 1}. A CSV file begins with a header;
    all columns but the label are features, in the order of the file. Empty lines are skipped. Once a sample was read,
    a file that was cut, replaced or changed is refused: a sample might be used twice.

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
        self._header: bytes | None = None  # of CSV: its first line,
        self._column = -1  # and where the label is in it
        self._mark, self._since, self._digest = 0, 0, b""  # where the next line begins; what was read before it

    @property
    def mark(self) -> Mark:
        """The file's name, the byte at which the next line begins, and a digest of what was read `since` some byte."""
        return {"file": self._path.name, "byte": self._mark, "since": self._since, "digest": self._digest}

    @property
    def ended(self) -> bool:
        """Never: the file may grow."""
        return False

    def resume(self, mark: Mark) -> None:
        """Go on at the byte of the mark, in the file that was read up to there; any will do where nothing was."""
        if not taken_before(mark):
            return
        if mark.get("file") != self._path.name:
            raise other_data(self._path.name)
        self._mark, self._since, self._digest = mark["byte"], mark["since"], mark["digest"]
        with self._open() as file:
            self._check(file, self._first_line(file))

    def take(self, most: int, whole: int = 1) -> list[Sample | None]:
        """The samples of the next whole lines, at most so many."""
        with self._open() as file:
            header = self._first_line(file)
            self._check(file, header)
            if header is None:
                return []
            self._find_label(header)
            found = list(_lines(file, max(self._mark, len(header)), most))
            lines = found[: len(found) // whole * whole]
            if lines:
                self._move(file, header, *lines[-1])
        return [usable(self._sample, line, f"byte {place}", self._faults) for place, line, _ in lines]

    def _open(self) -> BinaryIO:
        """The file; one that is not there yet is like an empty one."""
        if self._path.exists() and not self._path.is_file():  # a pipe would make us wait
            raise DataError(f"{self._path}: not a file; data of a pipe come in by standard input")
        try:
            return self._path.open("rb")
        except FileNotFoundError:
            return io.BytesIO()
        except OSError as unreadable:
            raise DataError(f"{self._path}: it cannot be read ({type(unreadable).__name__})") from None

    def _first_line(self, file: BinaryIO) -> bytes | None:
        """The header of CSV, nothing of JSON lines; None while it is not there yet."""
        if self._kind == "jsonl":
            return b""
        found = _next_line(file)
        if found is None:
            return None
        if found[0] is None:
            raise DataError(f"{self._path.name}: a header of more than {LONGEST_LINE:,} bytes")
        return found[0]

    def _check(self, file: BinaryIO, header: bytes | None) -> None:
        """Refuse a file in which header and lines before the mark are not those that were read."""
        if self._mark and _digest(file, header or b"", self._since, self._mark) != self._digest:
            raise other_data(self._path.name)

    def _find_label(self, header: bytes) -> None:
        """Find the label among the columns, once for each header: before the first sample it may change."""
        if self._kind == "csv" and header != self._header:
            self._column = label_column(self._path.name, header, self._label, self._problem)
            self._header = header

    def _move(self, file: BinaryIO, header: bytes, place: int, line: bytes | None, end: int) -> None:
        """Set the mark behind a line, with a digest of the whole line (of its end, if too long) and of lines before."""
        begins = end if line is None else place
        self._mark, self._since = end, max(0, min(begins, end - _COMPARED))
        self._digest = _digest(file, header, self._since, end)

    def _sample(self, line: bytes | None) -> Sample:
        if line is None:
            raise DataError(f"a line of more than {LONGEST_LINE:,} bytes")
        if self._kind == "jsonl":
            return sample_of_json(self._problem, line, self._label)
        return sample_of_csv(self._problem, line, self._column)


def _digest(file: BinaryIO, header: bytes, since: int, end: int) -> bytes:
    """Of the header and of a piece of the file."""
    file.seek(since)
    return hashlib.sha256(header + file.read(end - since)).digest()


def _kind_of(path: Path, kind: FileKind | None) -> FileKind:
    if kind is not None:
        check_choice("kind", kind, FileKind)
        return kind
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        hint = f"say kind={' or kind='.join(map(repr, get_args(FileKind)))}"
        raise ConfigurationError("path", path.name, f"a name that ends in {', '.join(_SUFFIXES)}", hint)
    return found


def _lines(file: BinaryIO, place: int, most: int) -> Iterator[tuple[int, bytes | None, int]]:
    """Lines that are not empty: where each begins, what it holds (None: too long to be read), and where it ends."""
    file.seek(place)
    taken = 0
    while taken < most and (found := _next_line(file)) is not None:
        line, length = found
        if line is None or line.strip():
            taken += 1
            yield place, line, place + length
        place += length


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
