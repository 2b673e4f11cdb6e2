"""Predictions for all rows of a file: CSV, JSON lines or Parquet, some thousand rows at a time."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError, DataError
from gossamer.model.file import writing
from gossamer.model.trained import TrainedModel

_AT_ONCE = 2**14  # rows
_KINDS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


class _Answers(NamedTuple):
    """Of some rows: what is predicted, and how likely each class is."""

    predicted: NDArray[Any]
    likely: NDArray[np.float32] | None


def predict_file(model: TrainedModel, rows: Path, out: Path | None = None, *, without: Sequence[str] = ()) -> int:
    r"""Write a prediction for every row of a file, in their order; how many there were.

    Args:
        model: that predicts.
        rows: a file with a row for each line, or a Parquet file. Of a model without a schema all columns are features,
            in their order; JSON lines are {"x": [...]}.
        out: where predictions go, by what the name ends in; None: CSV on standard output. It is there when all rows
            were predicted, and not before.
        without: columns that are no features, where the model has no schema.

    >>> import tempfile
    >>> from gossamer.problems import Hinge
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = Path(folder) / "rows.csv"
    ...     _ = rows.write_text("a,b\n1,1\n-1,0\n")
    ...     predict_file(TrainedModel(Hinge(2), [2.0, 0.5]), rows)
    prediction
    1
    0
    2
    """
    reader, write = _READERS[_kind(rows, "rows")], _WRITERS["csv" if out is None else _kind(out, "--out")]
    if not rows.is_file():
        raise ConfigurationError("rows", str(rows), "a file that can be read")
    count = 0

    def answers() -> Iterator[_Answers]:
        nonlocal count
        for batch in reader(rows, model):
            named = model.schema is not None
            given = batch if named else [_features(one, without, row) for row, one in enumerate(batch, count)]
            yield _Answers(*model.answers(given, count))
            count += len(batch)
        if not count:
            raise DataError(f"{rows.name}: no rows")

    with _opened(out) as file:
        write(file, answers(), [str(name) for name in model.classes])
    return count


def _kind(path: Path, field: str) -> str:
    if path.suffix.lower() not in _KINDS:
        raise ConfigurationError(field, path.name, f"a name that ends in {', '.join(_KINDS)}")
    return _KINDS[path.suffix.lower()]


@contextmanager
def _opened(out: Path | None) -> Iterator[BinaryIO]:
    if out is not None:
        with writing(out) as file:
            yield file
        return
    held = io.BytesIO()  # all of it, so that nothing is written where a later row is refused
    yield held
    sys.stdout.write(held.getvalue().decode())


def _features(record: Mapping[str, Any], without: Sequence[str], row: int) -> Any:
    """The features in a row that has no schema."""
    if isinstance(record.get("x"), list):
        return record["x"]
    try:
        return [float(value) for name, value in record.items() if name not in without]
    except (TypeError, ValueError):
        raise DataError(f"row {row}: a feature is no number; columns that are none are left out by --without") from None


# Rows, some thousand at a time


def _batches(records: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(records)
    while batch := list(islice(left, _AT_ONCE)):
        yield batch


def _csv_rows(path: Path, model: TrainedModel) -> Iterator[list[Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, strict=True)
            names = [name.strip() for name in next(lines, [])]
            if len(set(names)) < len(names):
                raise DataError(f"{path.name}: two columns have the same name")
            yield from _batches(_csv_records(lines, names))
    except UnicodeDecodeError:
        raise DataError(f"{path.name}: not UTF-8 text") from None
    except csv.Error:
        raise DataError(f"{path.name}: not CSV: quotes that do not end, or a cell that is too long") from None


def _csv_records(lines: Iterator[list[str]], names: Sequence[str]) -> Iterator[dict[str, str]]:
    for row, cells in enumerate(line for line in lines if line):
        if len(cells) != len(names):
            raise DataError(f"row {row}: {len(cells)} cells, and the header has {len(names)}")
        yield dict(zip(names, cells, strict=True))


def _json_rows(path: Path, model: TrainedModel) -> Iterator[list[Any]]:
    with path.open("rb") as file:
        yield from _batches(_json_records(line for line in file if line.strip()))


def _json_records(lines: Iterable[bytes]) -> Iterator[Any]:
    for row, line in enumerate(lines):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise DataError(f"row {row}: not JSON") from None
        if not isinstance(record, dict):
            raise DataError(f"row {row}: not an object with columns by name")
        yield record


def _parquet_rows(path: Path, model: TrainedModel) -> Iterator[list[Any]]:
    arrow, parquet = _arrow()
    try:
        with parquet.ParquetFile(path) as file:
            wanted = None if model.schema is None else [column.name for column in model.schema.features]
            for batch in file.iter_batches(_AT_ONCE, columns=wanted):
                yield batch.to_pylist()
    except arrow.ArrowInvalid:
        raise DataError(f"{path.name}: not a Parquet file") from None


_READERS: Mapping[str, Callable[[Path, TrainedModel], Iterator[list[Any]]]] = {
    "csv": _csv_rows,
    "jsonl": _json_rows,
    "parquet": _parquet_rows,
}


# Predictions


def _write_csv(file: BinaryIO, answers: Iterable[_Answers], classes: Sequence[str]) -> None:
    text = io.TextIOWrapper(file, "utf-8", newline="")
    lines = csv.writer(text, lineterminator="\n")
    for number, (predicted, likely) in enumerate(answers):
        if not number:
            lines.writerow(_columns(likely, classes))
        shares: list[list[float]] = [[]] * len(predicted) if likely is None else likely.tolist()
        lines.writerows([one, *each] for one, each in zip(predicted.tolist(), shares, strict=True))
    text.flush()
    text.detach()


def _write_json(file: BinaryIO, answers: Iterable[_Answers], classes: Sequence[str]) -> None:
    for predicted, likely in answers:
        shares = [None] * len(predicted) if likely is None else likely.tolist()
        for one, each in zip(predicted.tolist(), shares, strict=True):
            probabilities = {} if each is None else {"probabilities": dict(zip(classes, each, strict=True))}
            file.write(json.dumps({"prediction": one} | probabilities).encode() + b"\n")


def _write_parquet(file: BinaryIO, answers: Iterable[_Answers], classes: Sequence[str]) -> None:
    arrow, parquet = _arrow()
    writer = None
    for predicted, likely in answers:
        columns = [predicted, *([] if likely is None else likely.T)]
        table = arrow.table(dict(zip(_columns(likely, classes), columns, strict=True)))
        writer = writer or parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


_WRITERS: Mapping[str, Callable[[BinaryIO, Iterable[_Answers], Sequence[str]], None]] = {
    "csv": _write_csv,
    "jsonl": _write_json,
    "parquet": _write_parquet,
}


def _columns(likely: Any, classes: Sequence[str]) -> list[str]:
    return ["prediction", *([] if likely is None else [f"probability {name}" for name in classes])]


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as missing:
        hint = "pip install 'gossamer[data]'"
        raise ConfigurationError("rows", "no pyarrow", "an installed pyarrow, for .parquet", hint) from missing
    return pyarrow, parquet
