"""Rows of a Parquet file, which is written once and does not grow."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gossamer.errors import ConfigurationError, DataError
from gossamer.net.data.reader import Reader
from gossamer.net.data.samples import Sample
from gossamer.net.data.tapes import Place, Row

_ENDS = 2**16  # bytes at both ends of a file by which it is known: Parquet has its index at the end

Group = dict[tuple[bytes, int], Any]
"""The group of rows that was read last: rows are packed by the thousand, and taken by the dozen."""


class ParquetRows:
    """The rows of a Parquet file, by the columns of a schema; a file that is not there yet has none.

    Args:
        path: of the file.
        reader: makes samples of rows; it must have a schema.
        stack: closes the file.
        group: keeps the group of rows that was read last; given again with the next look at the same file.
    """

    unit = "row"

    def __init__(self, path: Path, reader: Reader, stack: ExitStack, group: Group) -> None:
        self.name, self._reader, self._group = path.name, reader, group
        if reader.schema is None:
            hint = "the agreement of this network has none: give .jsonl or .csv files with numbers only"
            raise ConfigurationError("data", path.name, "Parquet files with a schema only", hint)
        self._file, self._print = None, b""
        if path.is_file():
            self._print = fingerprint(path)
            self._file = stack.enter_context(_opened(path))

    def rows(self, begin: int, most: int) -> list[Row]:
        """The next rows, at most so many."""
        if self._file is None:
            return []
        self._reader.require_columns(self.name, self._file.schema_arrow.names)
        found: list[Row] = []
        first = 0
        for number in range(self._file.num_row_groups):
            behind = first + self._file.metadata.row_group(number).num_rows
            if begin < behind and len(found) < most:
                place = max(begin, first)
                records = self._held(number).slice(place - first, most - len(found)).to_pylist()
                found += [Row(place + offset, record, place + offset + 1) for offset, record in enumerate(records)]
            first = behind
        return found

    def sample(self, content: Mapping[str, Any]) -> Sample:
        """The sample in a row."""
        return self._reader.of_record(content)

    def behind(self, row: Row) -> Place:
        """The place behind a row, with the fingerprint of the file."""
        return Place(row.ends, 0, self._print)

    def holds(self, place: Place) -> bool:
        """Whether it is the file that was read."""
        return self._print == place.digest

    def _held(self, number: int) -> Any:
        key = self._print, number
        if key not in self._group:
            assert self._file is not None
            assert self._reader.schema is not None
            try:
                table = self._file.read_row_group(number, columns=self._reader.schema.columns)
            except (OSError, ValueError) as broken:  # those of pyarrow are among them
                raise DataError(f"{self.name}: it cannot be read ({type(broken).__name__})") from None
            self._group.clear()
            self._group[key] = table
        return self._group[key]


def fingerprint(path: Path) -> bytes:
    """Tells files apart by size, beginning and end: whoever changes both ends of nothing else is taken for the same."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        begins = file.read(_ENDS)
        file.seek(max(0, size - _ENDS))
        return hashlib.sha256(size.to_bytes(8, "little") + begins + file.read(_ENDS)).digest()


def _opened(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError("Parquet files need pyarrow: pip install 'gossamer[data]'") from None
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (OSError, ValueError):
        raise DataError(f"{path.name}: not a Parquet file, or not all of it is there") from None
