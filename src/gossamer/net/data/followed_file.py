"""Samples of a file that is read as it grows, and refused where what was read has changed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, get_args

from gossamer.checks import check_choice
from gossamer.data.schema import Schema
from gossamer.errors import ConfigurationError
from gossamer.net.data.lines import Lines
from gossamer.net.data.parquet import Group, ParquetRows
from gossamer.net.data.reader import Faults, Reader
from gossamer.net.data.sources import Mark, other_data
from gossamer.net.data.tapes import Tape, Tapes
from gossamer.problems import Problem

FileKind = Literal["jsonl", "csv", "parquet"]

SUFFIXES: dict[str, FileKind] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}
"""What the name of a file says about what is in it."""

_DATE = 8  # digits: a larger number is a later file; of short numbers the largest is the oldest file


class FollowedFile(Tapes):
    r"""A file of JSON lines or CSV, read as it grows; it need not exist yet. Or a Parquet file, which does not grow.

    A line without its newline is not there yet. A CSV file begins with a header; empty lines are skipped. With a schema
    columns are found by name, in any order, and others are left out. Without one JSON lines are {"x": [...], "y": 1},
    and all columns of CSV but the label are features, in the order of the file. Once a sample was read, a file that was
    cut, replaced or changed is refused: a sample might be used twice.

    Args:
        path: of the file.
        problem: whose samples they are.
        kind: "jsonl", "csv" or "parquet"; by default what the name ends in says it.
        schema: of the records; None where samples come as numbers.
        label: the column, or the JSON key, of the label where there is no schema.
        rotated: whether the file is renamed now and then (`a.csv.1`, `a.csv-20261119`, `a-20261119.csv`) and a new one
            with other samples begins under its name, as logrotate does it: the rest of the old one is read first.
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
        schema: Schema | None = None,
        label: str = "y",
        rotated: bool = False,
        faults: Faults | None = None,
    ) -> None:
        self._path, self._rotated = Path(path), rotated
        super().__init__(self._path.name, Reader(problem, schema, label=label, faults=faults))
        self._kind, self._group = _kind_of(self._path, kind), Group()

    def _take_mark(self, mark: Mark) -> bool:
        return mark["file"] == self._name and "read" not in mark

    @property
    def mark(self) -> Mark:
        """The file's name, the byte at which the next line begins, and a digest of what was read `since` some byte."""
        return super().mark | {"file": self._name}

    def _tapes(self, stack: ExitStack) -> Iterator[tuple[Tape, int]]:
        following = [self._open(self._path, stack)]
        if self._at is None:
            yield following[0], 0
            return
        place = self._at[1]
        for path in self._older() if self._rotated and not following[0].holds(place) else ():
            following.append(self._open(path, stack))
            if following[-1].holds(place):
                break
        if not following[-1].holds(place):
            raise other_data(self._name)
        yield following.pop(), place.row
        yield from ((tape, 0) for tape in reversed(following))

    def _open(self, path: Path, stack: ExitStack) -> Tape:
        return open_tape(path, self._kind, self._reader, stack, self._group)

    def _older(self) -> list[Path]:
        """Files that had this name before, the newest first; an older one may begin with the same lines."""
        stem, suffix = re.escape(self._path.stem), re.escape(self._path.suffix)
        names = re.compile(rf"{stem}{suffix}[.-](\d+)|{stem}[.-](\d+){suffix}")
        found = [(names.fullmatch(path.name), path) for path in self._path.parent.iterdir()]
        aged = [(_age(match[1] or match[2]), path) for match, path in found if match]
        return [path for _, path in sorted(aged)]


def open_tape(path: Path, kind: FileKind, reader: Reader, stack: ExitStack, group: Group) -> Tape:
    """The rows of a file.

    Args:
        path: of the file.
        kind: what is in it.
        reader: makes samples of rows.
        stack: closes the file.
        group: for Parquet, the rows that were read last.
    """
    return ParquetRows(path, reader, stack, group) if kind == "parquet" else Lines(path, kind, reader, stack)


def _age(number: str) -> int:
    """Of a file that was renamed, by the number in its name: small ones count up with age, dates and times count down.

    >>> _age("2") > _age("1"), _age("20261118") > _age("20261119")
    (True, True)
    """
    return -int(number) if len(number) >= _DATE else int(number)


def _kind_of(path: Path, kind: FileKind | None) -> FileKind:
    if kind is not None:
        check_choice("kind", kind, FileKind)
        return kind
    found = SUFFIXES.get(path.suffix.lower())
    if found is None:
        hint = f"say kind={' or kind='.join(map(repr, get_args(FileKind)))}"
        raise ConfigurationError("path", path.name, f"a name that ends in {', '.join(SUFFIXES)}", hint)
    return found
