"""How rows become samples: as numbers, or by the columns of a schema; and counts of what they were like.

The counts are functions of private data: they are for the owner's eyes, and go into no log and no message.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gossamer.data.schema import Number, Schema
from gossamer.errors import ConfigurationError, DataError
from gossamer.net.data.samples import (
    Sample,
    checked,
    columns_of,
    label_column,
    parse_json,
    sample_of_csv,
    sample_of_json,
    sample_of_pair,
)
from gossamer.problems import Problem

Faults = Callable[[str], None]
"""Is told position and kind of every sample that cannot be used, never a value."""

_MOST_REASONS = 50


@dataclass
class Tally:
    """What rows were like.

    Attributes:
        rows: that were read.
        unusable: of them.
        values: numbers with bounds in the rows that can be used.
        outside: of these numbers, those that lie outside of their bounds.
        reasons: how often rows could not be used, by reason.
        columns: how many numbers lie outside, by column.
        labels: how often each class came; empty for targets.
        files: how many files were left out, by reason.
    """

    rows: int = 0
    unusable: int = 0
    values: int = 0
    outside: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    columns: Counter[str] = field(default_factory=Counter)
    labels: Counter[int] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)

    @property
    def kept(self) -> list[int]:
        """What survives a restart, in a mark."""
        return [self.rows, self.unusable, self.values, self.outside]

    def restore(self, kept: Sequence[int]) -> None:
        """Go on from what was kept."""
        self.rows, self.unusable, self.values, self.outside = kept

    def refuse(self, reason: str) -> None:
        """Count a row that cannot be used."""
        self.unusable += 1
        if reason in self.reasons or len(self.reasons) < _MOST_REASONS:
            self.reasons[reason] += 1


class Reader:
    """Makes samples of rows, and counts.

    Args:
        problem: whose samples they are.
        schema: of the records; None where samples come as numbers.
        label: the column, or the JSON key, of the label where there is no schema.
        faults: is told of rows that cannot be used.

    >>> from gossamer.problems import Logistic
    >>> from gossamer.data.schema import Choice
    >>> schema = Schema((Number("age", 0, 100),), Choice("ill", ("no", "yes")))
    >>> reader = Reader(Logistic(2), schema, faults=print)
    >>> reader.read(reader.of_record, {"ill": "yes", "age": 75}, "row 1")
    (array([0.5, 1. ], dtype=float32), 1)
    >>> reader.read(reader.of_record, {"ill": "perhaps", "age": 75}, "row 2")
    row 2: column 'ill' holds a value that is not in the schema
    >>> reader.tally.rows, reader.tally.unusable
    (2, 1)
    """

    def __init__(
        self, problem: Problem, schema: Schema | None = None, *, label: str = "y", faults: Faults | None = None
    ) -> None:
        self.problem, self.schema, self.label, self._faults = problem, schema, label, faults
        self.tally = Tally()
        self._header: tuple[bytes, Callable[[bytes], Sample]] | None = None
        columns = () if schema is None else (*schema.features, schema.label)
        self._numbers = sum(isinstance(column, Number) for column in columns)

    def read(self, parse: Callable[[Any], Sample], given: Any, position: str) -> Sample | None:
        """The sample in a row, or None where it cannot be used; that is counted, and told."""
        self.tally.rows += 1
        try:
            sample = parse(given)
        except DataError as unusable:
            self.tally.refuse(str(unusable))
            self.tell(f"{position}: {unusable}")
            return None
        if self.problem.classifies:
            self.tally.labels[int(sample[1])] += 1
        return sample

    def tell(self, what: str) -> None:
        """Tell the owner."""
        if self._faults is not None:
            self._faults(what)

    def of_record(self, record: Mapping[str, Any]) -> Sample:
        """The sample in a record with columns by name."""
        encoded = self._required("records").encoded(record)
        sample = checked(self.problem, encoded.x, encoded.y)
        self.tally.values += self._numbers
        self.tally.outside += len(encoded.clipped)
        self.tally.columns.update(encoded.clipped)
        return sample

    def of_json(self, line: str | bytes) -> Sample:
        """The sample in a line of JSON: an object with the columns of the schema, or with features and label."""
        if self.schema is None:
            return sample_of_json(self.problem, line, self.label)
        record = parse_json(line)
        if not isinstance(record, dict):
            raise DataError("not an object with the columns as keys")
        return self.of_record(record)

    def of_item(self, item: Any) -> Sample:
        """The sample in a Python object: a mapping with the columns of the schema, or a pair (x, y)."""
        if self.schema is None:
            return sample_of_pair(self.problem, item)
        if not isinstance(item, Mapping):
            raise DataError("a record must be a mapping with the columns as keys")
        return self.of_record(item)

    def of_csv(self, file: str, header: bytes) -> Callable[[bytes], Sample]:
        """What makes samples of the lines of a CSV file with this header; refused where it does not suit."""
        if self._header is None or self._header[0] != header:
            self._header = header, self._by_name(file, header) if self.schema else self._by_place(file, header)
        return self._header[1]

    def require_columns(self, file: str, names: Sequence[str]) -> None:
        """Refuse a table in which a column of the schema is missing, or stands twice."""
        schema = self._required(file)
        for name in schema.columns:
            if name not in names:
                raise DataError(f"{file}: no column {name!r}. The schema has {_listed(schema.columns)}{_guess(names)}")
            if list(names).count(name) > 1:
                raise DataError(f"{file}: {list(names).count(name)} columns are called {name!r}; one is needed")

    def _by_place(self, file: str, header: bytes) -> Callable[[bytes], Sample]:
        label = label_column(file, header, self.label, self.problem)
        return lambda line: sample_of_csv(self.problem, line, label)

    def _by_name(self, file: str, header: bytes) -> Callable[[bytes], Sample]:
        names = columns_of(file, header)
        self.require_columns(file, names)
        places = {name: names.index(name) for name in self._required(file).columns}

        def sample(line: bytes) -> Sample:
            cells = _cells(line)
            if len(cells) != len(names):
                raise DataError(f"{len(cells):,} cells; the header has {len(names):,}")
            return self.of_record({name: cells[place] for name, place in places.items()})

        return sample

    def _required(self, what: str) -> Schema:
        if self.schema is None:
            hint = "the agreement of this network has no schema: give .jsonl or .csv files with numbers only"
            raise ConfigurationError("data", what, "data that need no schema", hint)
        return self.schema


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode().rstrip("\r\n")], strict=True))
    except (UnicodeDecodeError, csv.Error, StopIteration):
        raise DataError("the line cannot be read as CSV in UTF-8") from None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _guess(names: Sequence[str]) -> str:
    """What may be wrong with a header, without repeating it: without names it would be values."""
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        return ". This file has one column: separate cells by commas"
    return f"; the file has {len(names)} others, or no header: the first line must have the names of the columns"
