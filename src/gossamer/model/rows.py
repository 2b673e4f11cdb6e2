"""Rows to predict for, in whatever they come: frames, records, columns or arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gossamer.data.schema import Schema
from gossamer.errors import DataError
from gossamer.streams.base import Array, as_single, fault

Record = Mapping[str, Any]


def features_of(rows: Any, shape: tuple[int, ...], schema: Schema | None, first: int = 0) -> Array:
    """The features of rows as float32, (rows, features...).

    Args:
        rows: with a schema a data frame, a list of records, or a mapping of columns; else an array of features.
        shape: of the features of one row.
        schema: of records; None where rows are features already.
        first: what the first row is called in errors.

    >>> features_of([[1, 2]], (2,), None).tolist()
    [[1.0, 2.0]]
    """
    x = _of_array(rows, shape, first) if schema is None else _of_records(records_of(rows, schema), schema, first)
    if not len(x):
        raise DataError("no rows: at least one is needed")
    return x


def records_of(rows: Any, schema: Schema) -> Sequence[Record]:
    """Rows by the names of columns.

    >>> from gossamer.data import Choice, Number
    >>> schema = Schema((Number("age", 0, 100),), Choice("ill", ("no", "yes")))
    >>> records_of({"age": [31, 45], "town": ["Bern", "Genf"]}, schema)
    [{'age': 31}, {'age': 45}]
    """
    if isinstance(rows, Mapping) or hasattr(rows, "columns"):
        return list(_of_columns(rows, [column.name for column in schema.features]))
    if isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
        return rows
    raise DataError("rows have columns by name here: give a data frame, a list of records, or a mapping of columns")


def _of_columns(table: Any, names: Sequence[str]) -> Iterator[Record]:
    for name in names:
        if name not in (table if isinstance(table, Mapping) else list(table.columns)):
            raise DataError(f"no column {name!r}")
    columns = [np.asarray(table[name]) for name in names]
    for name, column in zip(names, columns, strict=True):
        if column.ndim != 1 or len(column) != len(columns[0]):
            raise DataError(f"column {name!r} is not one list of as many values as the other columns have")
    return (dict(zip(names, row, strict=True)) for row in zip(*(column.tolist() for column in columns), strict=True))


def _of_records(records: Sequence[Record], schema: Schema, first: int) -> Array:
    x = np.zeros((len(records), schema.dim), np.float32)
    for place, record in enumerate(records):
        try:
            x[place] = schema.encoded(record, labelled=False).x
        except DataError as unusable:
            raise DataError(f"row {first + place}: {unusable}") from None
    return x


def _of_array(rows: Any, shape: tuple[int, ...], first: int) -> Array:
    try:
        array = np.asarray(rows)
    except ValueError:
        raise DataError("features are no array: rows have different lengths") from None
    if array.dtype.kind not in "iuf":
        raise DataError("features are not numbers; without a schema, rows are arrays of features")
    if array.shape[1:] != shape or array.ndim != len(shape) + 1:
        raise DataError(f"features have shape {array.shape}; allowed: (rows, {', '.join(map(str, shape))})")
    x = as_single(array)
    found = fault(x)
    if found is not None:
        kind, (row, *place) = found
        raise DataError(f"row {first + row}: a feature is {kind} at {tuple(place)}")
    return x
