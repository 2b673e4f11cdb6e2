"""Streams from files: CSV, Parquet and NumPy."""

import csv
import difflib
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.errors import ConfigurationError, DataError
from gossamer.streams.arrays import ArrayStream, from_arrays
from gossamer.streams.base import Array
from gossamer.streams.partition import Partition, Rest


def from_file(
    path: str | os.PathLike[str],
    learners: int,
    partition: Partition = "iid",
    *,
    label: str = "y",
    seed: int,
    skew: float | None = None,
    rest: Rest = "others",
    copies: int = 1,
    passes: int = 1,
    shuffle: bool = True,
    public_labels: bool = False,
) -> ArrayStream:
    r"""Deal the records of a file to learners; all but the file and `label` are options of `from_arrays`.

    The file is a `.csv` with a header, a `.parquet` (needs `gossamer[data]`), or an `.npz` whose features have the key
    "x". `label` is the column (in `.npz` the key) of the labels. All other columns are features, in the order of the
    file. In a CSV file, labels that are all whole numbers are classes; elsewhere the stored type decides.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name) / "people.csv"
    >>> _ = file.write_text("age,income,churned\n31,2.5,0\n45,3.5,1\n")
    >>> from_file(file, 2, label="churned", seed=0, shuffle=False).read(0, 1).y
    array([[0, 1]], dtype=int32)
    >>> from_file(file, 2, label="churn", seed=0)
    Traceback (most recent call last):
    gossamer.errors.DataError: people.csv has no column 'churn'; did you mean 'churned'? ...
    >>> folder.cleanup()
    """
    options = locals()
    return from_arrays(*read_records(options.pop("path"), options.pop("label")), **options)


def read_records(path: str | os.PathLike[str], label: str = "y") -> tuple[Array, Array]:
    """Features (records, features...) and labels (records,) of a file; see `from_file`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "tiny.npz", x=np.ones((3, 2)), y=[0, 1, 2])
    ...     read_records(Path(folder) / "tiny.npz")[1].tolist()
    [0, 1, 2]
    """
    file = Path(path)
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise ConfigurationError("path", str(path), "a file that ends in " + ", ".join(readers))
    if not file.is_file():
        raise DataError(f"{file}: no such file (looked in {file.absolute().parent})")
    return reader(file, label)


def read_npz(file: Path, keys: tuple[str, ...]) -> tuple[dict[str, Array], list[str]]:
    """Those of the arrays asked for that an `.npz` file has, and the names of all its arrays.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "tiny.npz", a=np.ones(2), b=np.ones(3))
    ...     read_npz(Path(folder) / "tiny.npz", ("a", "c"))
    ({'a': array([1., 1.])}, ['a', 'b'])
    """
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in keys if key in arrays.files}, arrays.files
    # A single .npy array, which np.load reads too, is not a context manager: TypeError.
    except (ValueError, OSError, EOFError, TypeError, zipfile.BadZipFile):
        raise DataError(f"{file}: not an .npz file of plain arrays") from None


def _read_npz(file: Path, label: str) -> tuple[Array, Array]:
    arrays, names = read_npz(file, ("x", label))
    for key in ("x", label):
        _check_name(file.name, "key", key, names)
    return arrays["x"], arrays[label]


def _read_csv(file: Path, label: str) -> tuple[Array, Array]:
    try:
        with file.open(newline="", encoding="utf-8-sig") as text:
            names = [name.strip() for name in next(csv.reader(text), [])]
            if any(is_number(name) for name in names):  # their names would be values, which errors never show
                raise DataError(f"{file.name}: no header; the first row must have the names of the columns")
            _check_name(file.name, "column", label, names)
            table = _csv_body(file, names, text)
    except UnicodeDecodeError:
        raise DataError(f"{file.name}: not UTF-8 text") from None
    if len(table) == 0:
        raise DataError(f"{file.name}: empty; it has a header and no records")
    x, y = _split(file.name, names, [table[:, column] for column in range(len(names))], label)
    return x, y.astype(np.int64) if (y == np.floor(y)).all() else y


def _csv_body(file: Path, names: list[str], text: Any) -> Array:
    """The numbers below the header. Where NumPy cannot read them, the cell is looked up for the message."""
    lines = [line for line in text if line.strip()]
    if not lines:
        return np.empty((0, len(names)))
    try:
        table = np.loadtxt(lines, delimiter=",", quotechar='"', comments=None, dtype=np.float64, ndmin=2)
    except ValueError:
        table = None
    if table is None or table.shape[1] != len(names):
        raise DataError(f"{file.name}: {_unreadable(lines, names)}")
    return table


def _unreadable(lines: Iterable[str], names: list[str]) -> str:
    for row, cells in enumerate(csv.reader(lines), start=1):
        if len(cells) != len(names):
            return f"row {row} has {len(cells)} cells, and the header has {len(names)}"
        for name, cell in zip(names, cells, strict=True):
            if not is_number(cell):
                return f"row {row}, column {name!r} is {'not a number' if cell.strip() else 'empty'}"
    return "the rows cannot be read as numbers"


def is_number(cell: str) -> bool:
    """Whether a cell of a CSV file is one.

    >>> is_number("1e3"), is_number("age")
    (True, False)
    """
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_parquet(file: Path, label: str) -> tuple[Array, Array]:
    try:
        import pyarrow.lib
        import pyarrow.parquet
    except ImportError:
        raise DataError("Parquet files need pyarrow: pip install 'gossamer[data]'") from None
    try:
        table = pyarrow.parquet.read_table(file)
    except pyarrow.lib.ArrowException:
        raise DataError(f"{file.name}: not a Parquet file") from None
    _check_name(file.name, "column", label, table.column_names)
    columns = [table.column(name).to_numpy() for name in table.column_names]
    for name, column in zip(table.column_names, columns, strict=True):
        if column.dtype.kind not in "biuf":
            raise DataError(f"{file.name}: column {name!r} holds {table.schema.field(name).type}, not numbers")
    if table.num_rows == 0:
        raise DataError(f"{file.name}: empty; it has columns and no records")
    return _split(file.name, table.column_names, columns, label)


def _split(file: str, names: list[str], columns: list[Array], label: str) -> tuple[Array, Array]:
    """Features and labels from columns, whose faults are reported by the names the file has for them."""
    if len(columns) < 2:
        raise DataError(f"{file}: no features; it has the label column only")
    for name, column in zip(names, columns, strict=True):
        good = np.isfinite(column)
        if not good.all():
            row = int(np.argmin(good))
            kind = "missing or NaN" if np.isnan(column[row]) else "infinite"
            raise DataError(f"{file}: row {row + 1}, column {name!r} is {kind}")
    place = names.index(label)
    features = np.column_stack([column.astype(np.float32) for i, column in enumerate(columns) if i != place])
    return features, columns[place]


def _check_name(file: str, kind: str, name: str, present: list[str]) -> None:
    if name in present:
        return
    near = difflib.get_close_matches(name, present, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = ", ".join(present[:10]) + (", ..." if len(present) > 10 else "")
    raise DataError(f"{file} has no {kind} {name!r}; {hint}It has: {shown or 'nothing'}")
