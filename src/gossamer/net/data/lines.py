"""Lines of a file of JSON lines or CSV, whole ones only."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Literal

from gossamer.errors import DataError
from gossamer.net.data.reader import Reader
from gossamer.net.data.samples import Sample
from gossamer.net.data.sources import LONGEST_LINE
from gossamer.net.data.tapes import Place, Row

LineKind = Literal["jsonl", "csv"]

_COMPARED = 2**14  # bytes before the place, at least: one short line may be there twice


class Lines:
    r"""The lines of a file; one that is not there yet is like an empty one.

    A line without its newline is not there yet. CSV begins with a header; empty lines are skipped.

    Args:
        path: of the file.
        kind: "jsonl" or "csv".
        reader: makes samples of lines.
        stack: closes the file.

    >>> import tempfile
    >>> from gossamer.problems import Logistic
    >>> with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
    ...     path = Path(folder) / "a.jsonl"
    ...     _ = path.write_text('{"x": [2], "y": 1}\n{"x": [1')
    ...     lines = Lines(path, "jsonl", Reader(Logistic(1)), stack)
    ...     [lines.sample(row.content) for row in lines.rows(0, 5)]
    [(array([2.], dtype=float32), 1)]
    """

    unit = "byte"

    def __init__(self, path: Path, kind: LineKind, reader: Reader, stack: ExitStack) -> None:
        self.name, self._kind, self._reader = path.name, kind, reader
        self._file = stack.enter_context(_opened(path))
        self._header = b"" if kind == "jsonl" else self._first_line()  # None while it is not there yet

    def rows(self, begin: int, most: int) -> list[Row]:
        """The next lines, at most so many."""
        if self._header is None:
            return []
        if self._kind == "csv":
            self._reader.of_csv(self.name, self._header)
        return list(_lines(self._file, max(begin, len(self._header)), most))

    def sample(self, content: bytes | None) -> Sample:
        """The sample in a line."""
        if content is None:
            raise DataError(f"a line of more than {LONGEST_LINE:,} bytes")
        if self._kind == "jsonl":
            return self._reader.of_json(content)
        return self._reader.of_csv(self.name, self._header or b"")(content)

    def behind(self, row: Row) -> Place:
        """The place behind a line, with a digest of the whole line (of its end, if too long) and of lines before."""
        begins = row.ends if row.content is None else row.begins
        since = max(0, min(begins, row.ends - _COMPARED))
        return Place(row.ends, since, self._digest(since, row.ends))

    def holds(self, place: Place) -> bool:
        """Whether header and lines before a place are those that were read."""
        return self._digest(place.since, place.row) == place.digest

    def _digest(self, since: int, end: int) -> bytes:
        """Of the header and of a piece of the file."""
        self._file.seek(since)
        return hashlib.sha256((self._header or b"") + self._file.read(end - since)).digest()

    def _first_line(self) -> bytes | None:
        found = _next_line(self._file)
        if found is not None and found[0] is None:
            raise DataError(f"{self.name}: a header of more than {LONGEST_LINE:,} bytes")
        return None if found is None else found[0]


def _opened(path: Path) -> BinaryIO:
    if path.exists() and not path.is_file():  # a pipe would make us wait
        raise DataError(f"{path}: not a file; data of a pipe come in by standard input")
    try:
        return path.open("rb")
    except FileNotFoundError:
        return io.BytesIO()
    except OSError as unreadable:
        raise DataError(f"{path}: it cannot be read ({type(unreadable).__name__})") from None


def _lines(file: BinaryIO, place: int, most: int) -> Iterator[Row]:
    """Lines that are not empty."""
    file.seek(place)
    taken = 0
    while taken < most and (found := _next_line(file)) is not None:
        line, length = found
        if line is None or line.strip():
            taken += 1
            yield Row(place, line, place + length)
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
