"""One sample as it comes in: from JSON, from a line of CSV or from Python, checked, and never shown."""

import csv
import json
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from gossamer.errors import ConfigurationError, DataError
from gossamer.problems import Block, Problem
from gossamer.streams.base import Array, as_single
from gossamer.streams.files import is_number

Sample = tuple[Array, float | int]
"""Features (float32) and label of one sample, checked."""


def block_of(problem: Problem, samples: Sequence[Sample | None], rows: int) -> Block:
    """Samples as a block of so many rows; rows without a sample have no gradient.

    >>> from gossamer.problems import Logistic
    >>> block_of(Logistic(2), [(np.ones(2, np.float32), 1), None], rows=3).x.tolist()
    [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    """
    if len(samples) > rows:
        raise ConfigurationError("samples", len(samples), f"at most {rows}, the rows of a block")
    absent = 0.0 if problem.zero_rows_are_silent else np.nan
    x = np.full((rows, *problem.feature_shape), absent, np.float32)
    y = np.zeros(rows, label_type(problem))
    for row, sample in enumerate(samples):
        if sample is not None:
            x[row], y[row] = sample
    return Block(x, y)


def require_silence(problem: Problem) -> None:
    """Refuse a problem in which a row without a sample has a gradient: nodes speak in the same way without samples.

    >>> from gossamer.problems import Logistic
    >>> require_silence(Logistic(2))
    """
    anywhere = jnp.full(problem.dim, 0.5)
    if np.any(problem.clipped_data_gradient_sum(anywhere, block_of(problem, [], rows=1), 1.0)):
        allowed = "one where a row without a sample has no gradient"
        hint = "make it a gossamer.problems.Model, or have a row of NaN give a gradient of NaN, which counts as zero"
        raise ConfigurationError("problem", type(problem).__name__, allowed, hint)


def label_type(problem: Problem) -> type[np.generic]:
    """The dtype of a problem's labels."""
    return np.int32 if problem.classifies else np.float32


def sample_of_json(problem: Problem, line: str | bytes, label: str = "y") -> Sample:
    """The sample in a line of JSON.

    >>> from gossamer.problems import Logistic
    >>> sample_of_json(Logistic(2), '{"x": [1, 2, 3], "y": 1}')
    Traceback (most recent call last):
        ...
    gossamer.errors.DataError: 3 features; every sample needs 2
    """
    read = parse_json(line)
    if not isinstance(read, dict) or "x" not in read or label not in read:
        raise DataError(f'not an object with the keys "x" and "{label}"')
    return checked(problem, features_of(read["x"], problem.feature_shape), read[label])


def sample_of_csv(problem: Problem, line: bytes, label: int) -> Sample:
    """The sample in a line of CSV, with the label in this column.

    >>> from gossamer.problems import LeastSquares
    >>> sample_of_csv(LeastSquares(2), b"1,0.5,2", label=1)
    (array([1., 2.], dtype=float32), 0.5)
    """
    try:
        # The parser of NumPy, unlike float(), takes no underscores, and no Python loop.
        row = np.loadtxt([line.decode()], delimiter=",", quotechar='"', comments=None, dtype=np.float64, ndmin=1)
    except ValueError:
        raise DataError("a cell is empty or not a number") from None
    columns = int(np.prod(problem.feature_shape)) + 1
    if len(row) != columns:
        raise DataError(f"{len(row):,} cells; the header has {columns:,}")
    return checked(problem, as_single(np.delete(row, label)).reshape(problem.feature_shape), row[label])


def label_column(file: str, line: bytes | None, label: str, problem: Problem) -> int:
    """The number of the column with the label, of a header that suits the problem.

    >>> from gossamer.problems import LeastSquares
    >>> label_column("a.csv", b"width,y,height", "y", LeastSquares(2))
    1
    """
    names = columns_of(file, line)
    if any(map(is_number, names)):  # their names would be values, which errors never show
        raise DataError(f"{file}: no header; the first line must have the names of the columns")
    if label not in names:
        raise DataError(f"{file}: no column {label!r} among the {len(names)} columns; say label=NAME")
    needed = int(np.prod(problem.feature_shape))
    if len(names) != needed + 1:
        raise DataError(f"{file}: {len(names) - 1:,} columns of features; the problem needs {needed:,}")
    return names.index(label)


def columns_of(file: str, line: bytes | None) -> list[str]:
    """The names in the header of a CSV file.

    >>> columns_of("a.csv", b'width, height,"y"')
    ['width', 'height', 'y']
    """
    try:
        return [name.strip() for name in next(csv.reader([(line or b"").decode("utf-8-sig")]))]
    except (UnicodeDecodeError, csv.Error, StopIteration):
        raise DataError(f"{file}: the header cannot be read as CSV in UTF-8") from None


def sample_of_pair(problem: Problem, pair: Any) -> Sample:
    """The sample in a Python pair (x, y).

    >>> from gossamer.problems import Logistic
    >>> sample_of_pair(Logistic(1), ([2.0], 1))
    (array([2.], dtype=float32), 1)
    """
    try:
        x, y = pair
    except (TypeError, ValueError):
        raise DataError("a sample must be a pair (x, y)") from None
    return checked(problem, features_of(x, problem.feature_shape), y)


def parse_json(text: str | bytes) -> Any:
    """What a JSON text says; NaN and Infinity, which JSON does not have, are refused.

    >>> parse_json("[1, NaN]")
    Traceback (most recent call last):
        ...
    gossamer.errors.DataError: not JSON, or with NaN or Infinity
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise DataError("not JSON, or with NaN or Infinity") from None


def features_of(values: Any, shape: tuple[int, ...]) -> Array:
    """The features of one sample as float32: a list or an array of numbers, of this shape.

    >>> features_of([1, True], (2,))
    Traceback (most recent call last):
        ...
    gossamer.errors.DataError: a feature is not a number
    """
    if not isinstance(values, list | tuple):
        return _features_of_array(values, shape)
    if len(values) != shape[0]:
        raise DataError(f"{len(values):,} features; every sample needs {' x '.join(f'{n:,}' for n in shape)}")
    if len(shape) > 1:
        return np.stack([features_of(one, shape[1:]) for one in values])
    if not all(map(_is_number_type, set(map(type, values)))):  # the inner loop is not in Python
        raise DataError("a feature is not a number")
    try:
        return as_single(np.asarray(values, np.float64))
    except OverflowError:
        raise DataError("a feature is beyond float32") from None


def _features_of_array(values: Any, shape: tuple[int, ...]) -> Array:
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        raise DataError("features are not numbers")
    if array.shape != shape:
        raise DataError(f"features of shape {array.shape}; every sample needs {shape}")
    return as_single(array)


def _is_number_type(kind: type) -> bool:
    return issubclass(kind, int | float | np.integer | np.floating) and kind is not bool


def checked(problem: Problem, x: Array, label: Any) -> Sample:
    """Features and label as a sample; refused where the problem has no such samples.

    >>> from gossamer.problems import Logistic
    >>> checked(Logistic(1), np.ones(1, np.float32), 0.5)
    Traceback (most recent call last):
        ...
    gossamer.errors.DataError: the label is not a whole number of 32 bits
    """
    y = _label_of(problem, label)
    problem.check(Block(x[None], y[None]))
    return x, y.item()


def _label_of(problem: Problem, label: Any) -> Array:
    """A label as the problem's type of labels, without axes."""
    number = np.asarray(None if isinstance(label, list | tuple) else label)
    if number.ndim or number.dtype.kind not in "iuf" or not np.isfinite(number):
        raise DataError("the label is not a finite number")
    if problem.classifies and not (number == np.floor(number) and abs(float(number)) < 2**31):
        raise DataError("the label is not a whole number of 32 bits")
    return as_single(number)[0] if not problem.classifies else number.astype(np.int32)


def _refuse_constant(_: str) -> None:
    raise ValueError
