"""What the records of all sites look like: columns by name, public bounds for scaling, and the values of the label.

Everything in a schema is agreed on in public, before anybody looks at data: a bound or a list of values that was read
off private records would say something about them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError, DataError
from gossamer.problems import Problem
from gossamer.spec import nearest


@dataclass(frozen=True)
class Number:
    """A column of numbers; what lies outside its bounds counts as the nearer bound.

    Attributes:
        name: of the column.
        low: the least value, in public knowledge.
        high: the largest.
    """

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            hint = "take what is known in public, not what the records have"
            raise ConfigurationError(f"schema {self.name}", [self.low, self.high], "bounds = [low, high]", hint)
        object.__setattr__(self, "low", float(self.low))  # one way to write it: what is signed must stay as it is
        object.__setattr__(self, "high", float(self.high))

    @property
    def width(self) -> int:
        """How many features it becomes."""
        return 1

    def read(self, value: Any) -> float:
        """The number that a cell holds; refused where it holds none."""
        try:
            if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
                raise ValueError
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise DataError(f"column {self.name!r} holds no number") from None
        if not math.isfinite(number):
            raise DataError(f"column {self.name!r} is empty, or not finite")
        return number

    def clips(self, number: float) -> bool:
        """Whether a number lies outside the bounds."""
        return not self.low <= number <= self.high

    def scaled(self, number: float) -> float:
        """From -1 at the lower bound to 1 at the upper one.

        >>> Number("age", 0, 100).scaled(75), Number("age", 0, 100).scaled(140)
        (0.5, 1.0)
        """
        inside = min(max(number, self.low), self.high)
        return 2 * (inside - self.low) / (self.high - self.low) - 1

    def unscaled(self, scaled: float) -> float:
        """The number that `scaled` made this of.

        >>> Number("age", 0, 100).unscaled(0.5)
        75.0
        """
        return self.low + (scaled + 1) / 2 * (self.high - self.low)


@dataclass(frozen=True)
class Choice:
    """A column with one of several values, compared as texts: 1 and "1" are the same.

    Attributes:
        name: of the column.
        values: all that there can be.
    """

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2 or len(set(self.values)) < len(self.values):
            allowed = "values = [...], two or more, each once"
            raise ConfigurationError(f"schema {self.name}", list(self.values), allowed)

    @property
    def width(self) -> int:
        """How many features it becomes: one for each value."""
        return len(self.values)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {value: place for place, value in enumerate(self.values)}

    def read(self, value: Any) -> int:
        """Which of the values a cell holds; refused where it is none of them.

        >>> Choice("diagnosis", ("B", "M")).read("M")
        1
        """
        place = self._places.get(_text(value))
        if place is None:
            raise DataError(f"column {self.name!r} holds a value that is not in the schema")
        return place


Column = Number | Choice


class Encoded(NamedTuple):
    """A record as numbers: features, label (None where it was not asked for), and which columns exceed their bounds."""

    x: NDArray[np.float32]
    y: float | int | None
    clipped: tuple[str, ...]


@dataclass(frozen=True)
class Schema:
    """How a record with columns becomes the features and the label of a problem.

    Numbers are scaled to [-1, 1] by their bounds, a choice becomes one feature for each of its values (1 or 0), and an
    intercept is a last feature that is always 1.

    Attributes:
        features: the columns that predict, in the order of the features.
        label: the column that is predicted: a choice for classes, a number for a target.
        intercept: whether there is a feature that is always 1.

    >>> schema = Schema((Number("age", 0, 100), Choice("smoker", ("no", "yes"))), Choice("ill", ("no", "yes")))
    >>> schema.dim
    4
    >>> schema.encoded({"smoker": "yes", "age": "75", "ill": "no"})
    Encoded(x=array([0.5, 0. , 1. , 1. ], dtype=float32), y=0, clipped=())
    >>> schema.answer(1)
    'yes'
    """

    features: tuple[Column, ...]
    label: Column
    intercept: bool = True

    def __post_init__(self) -> None:
        names = self.columns
        if not self.features:
            raise ConfigurationError("schema features", [], "one column or more")
        for name in names:
            if not (isinstance(name, str) and name and name.isprintable() and name == name.strip()):
                raise ConfigurationError("schema", name, "names of columns that can be printed")
            if names.count(name) > 1:
                raise ConfigurationError("schema", name, "each column once, the label is no feature")

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Schema:
        """A schema of plain values, as a file has them.

        >>> age = {"name": "age", "bounds": [0, 100]}
        >>> Schema.of({"features": [age], "label": {"name": "ill", "values": [0, 1]}, "intercept": False}).dim
        1
        """
        _expect("schema", table, ("features", "label", "intercept"), optional=("intercept",))
        features, intercept = table["features"], table.get("intercept", True)
        if not isinstance(features, Sequence) or isinstance(features, str):
            raise ConfigurationError("schema features", features, "a list of columns")
        if not isinstance(intercept, bool):
            raise ConfigurationError("schema intercept", intercept, "true or false")
        return cls(tuple(map(_column, features)), _column(table["label"]), intercept)

    def table(self) -> dict[str, Any]:
        """As plain values: what `of` reads."""
        features = [_written(column) for column in self.features]
        return {"features": features, "label": _written(self.label), "intercept": self.intercept}

    @property
    def columns(self) -> list[str]:
        """Names of all columns, the label last."""
        return [column.name for column in (*self.features, self.label)]

    @property
    def dim(self) -> int:
        """How many features a record becomes."""
        return sum(column.width for column in self.features) + self.intercept

    @property
    def feature_bound(self) -> float:
        """The largest norm that the features of a record can have."""
        numbers = sum(isinstance(column, Number) for column in self.features)
        return math.sqrt(numbers + (len(self.features) - numbers) + self.intercept)

    def encoded(self, record: Mapping[str, Any], *, labelled: bool = True) -> Encoded:
        """The features and the label of a record; refused without repeating a value."""
        x, place, clipped = np.zeros(self.dim, np.float32), 0, []
        for column in self.features:
            cell = column.read(_cell(record, column.name))
            if isinstance(column, Choice):
                x[place + int(cell)] = 1
            else:
                x[place] = column.scaled(cell)
                clipped += [column.name] * column.clips(cell)
            place += column.width
        if self.intercept:
            x[place] = 1
        if not labelled:
            return Encoded(x, None, tuple(clipped))
        label = self.label.read(_cell(record, self.label.name))
        if isinstance(self.label, Choice):
            return Encoded(x, int(label), tuple(clipped))
        clipped += [self.label.name] * self.label.clips(label)
        return Encoded(x, self.label.scaled(label), tuple(clipped))

    def require_fits(self, problem: Problem) -> None:
        """Refuse a problem whose features and labels are not these columns.

        >>> from gossamer.problems import Logistic
        >>> Schema((Number("age", 0, 100),), Choice("ill", ("no", "yes"))).require_fits(Logistic(5))
        Traceback (most recent call last):
            ...
        gossamer.errors.ConfigurationError: schema features: got 2; allowed: 5, as the problem needs. ...
        """
        if problem.feature_shape != (self.dim,):
            made = f"this one makes {self.dim} features of {len(self.features)} columns"
            hint = made + " and the intercept" * self.intercept
            needed = " x ".join(map(str, problem.feature_shape))
            raise ConfigurationError("schema features", self.dim, f"{needed}, as the problem needs", hint)
        if problem.classifies != isinstance(self.label, Choice):
            allowed = "values, for classes" if problem.classifies else "bounds, for a target"
            raise ConfigurationError("schema label", self.label.name, f"a column with {allowed}")
        classes = getattr(problem, "classes", 2)
        if isinstance(self.label, Choice) and len(self.label.values) != classes:
            allowed = f"{classes} values, as the problem has classes"
            raise ConfigurationError("schema label", list(self.label.values), allowed)

    def answer(self, predicted: float) -> str | float:
        """What a prediction means: the value of a class, or the number of a target."""
        if isinstance(self.label, Choice):
            return self.label.values[int(predicted)]
        return self.label.unscaled(float(predicted))


def _cell(record: Mapping[str, Any], name: str) -> Any:
    try:
        return record[name]
    except KeyError:
        raise DataError(f"no column {name!r}") from None


def _text(value: Any) -> str:
    """A value as the schema compares it.

    >>> _text(1.0), _text(" M "), _text(True)
    ('1', 'M', 'true')
    """
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value).strip()


def _column(table: Any) -> Column:
    if not isinstance(table, Mapping) or "name" not in table:
        raise ConfigurationError("schema", table, "columns such as {name = ..., bounds = [low, high]}")
    name = table["name"]
    _expect(f"schema {name}", table, ("name", "bounds", "values"), optional=("bounds", "values"))
    if ("bounds" in table) == ("values" in table):
        hint = "numbers have bounds, classes and categories have values"
        raise ConfigurationError(f"schema {name}", dict(table), "either bounds or values", hint)
    if "values" in table:
        values = table["values"]
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise ConfigurationError(f"schema {name} values", values, "a list of values")
        return Choice(name, tuple(map(_text, values)))
    bounds = table["bounds"]
    if not (isinstance(bounds, Sequence) and len(bounds) == 2 and all(type(one) in (int, float) for one in bounds)):
        raise ConfigurationError(f"schema {name} bounds", bounds, "[low, high]")
    return Number(name, float(bounds[0]), float(bounds[1]))


def _written(column: Column) -> dict[str, Any]:
    if isinstance(column, Choice):
        return {"name": column.name, "values": list(column.values)}
    return {"name": column.name, "bounds": [column.low, column.high]}


def _expect(field: str, table: Any, keys: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Refuse keys that are missing or unknown."""
    if not isinstance(table, Mapping):
        raise ConfigurationError(field, table, f"a table with the keys {', '.join(keys)}")
    for key, value in table.items():
        if key not in keys:
            raise ConfigurationError(f"{field} {key}", value, f"the keys {', '.join(keys)}", nearest(str(key), keys))
    for key in keys:
        if key not in table and key not in optional:
            raise ConfigurationError(field, dict(table), f"the keys {', '.join(keys)}", f"{key} is missing")
