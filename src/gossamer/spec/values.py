"""Values of a file as Python values: what is allowed, and how it is read, follow from a type hint."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from gossamer.errors import ConfigurationError

ReadTable = Callable[[str, Mapping[str, Any]], Any]
Tables = Callable[[Any], tuple[str, ReadTable] | None]


class MisfitError(Exception):
    """The value is not of the kind that this reader reads."""


class Reader(NamedTuple):
    """How values of one kind are read.

    Attributes:
        allowed: the kind, in words.
        read: called as read(where, value); raises `MisfitError` for a value of another kind.
    """

    allowed: str
    read: Callable[[str, Any], Any]


def reader(hint: Any, tables: Tables) -> Reader | None:
    """The reader for a type hint; None for what no file can say, such as a function.

    `tables` says of a type that is written as a table what it looks like, and what reads it.

    >>> none = lambda hint: None
    >>> reader(float | None, none).allowed, reader(Literal["a", "b"], none).allowed
    ('a number', "'a' or 'b'")
    >>> reader(tuple[int, int], none).read("shape", [3, 4])
    (3, 4)
    >>> reader(Callable[[int], int], none) is None
    True
    """
    if isinstance(hint, InitVar):
        return reader(hint.type, tables)
    if hint in (bool, int, float, str):
        return _scalar(hint)
    if isinstance(hint, type) and (table := tables(hint)):
        return _table(*table)
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):  # a NamedTuple
        inner = [reader(one, tables) for one in get_type_hints(hint).values()]
        return (
            None
            if None in inner
            else _tuple([one for one in inner if one], endless=False, make=lambda members: hint(*members))
        )
    return _compound(get_origin(hint), get_args(hint), tables)


def _compound(origin: Any, options: tuple[Any, ...], tables: Tables) -> Reader | None:
    """Types made of others: what no file can say is left out of a union."""
    if origin is Literal:
        return _literal(options)
    if origin is np.ndarray:
        return Reader("a list of rows of numbers", _matrix)
    if origin not in (Union, UnionType, tuple, Sequence):
        return None
    inner = [found for option in options if (found := reader(option, tables))]
    if not inner:
        return None
    if origin in (Union, UnionType):
        return _either(inner, or_none=type(None) in options)
    return _list(inner[0]) if origin is Sequence else _tuple(inner, endless=Ellipsis in options)


def _scalar(kind: type) -> Reader:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text in quotes"}
    fitting = (int, float) if kind is float else (kind,)

    def read(_: str, value: Any) -> Any:
        if type(value) not in fitting:  # not isinstance: true is no number
            raise MisfitError
        return kind(value)

    return Reader(names[kind], read)


def _literal(options: tuple[Any, ...]) -> Reader:
    def read(_: str, value: Any) -> Any:
        if value not in options:
            raise MisfitError
        return value

    return Reader(either(map(repr, options)), read)


def _either(readers: list[Reader], *, or_none: bool) -> Reader:
    def read(where: str, value: Any) -> Any:
        if value is None and or_none:  # JSON can say so, TOML cannot
            return None
        for each in readers:
            try:
                return each.read(where, value)
            except MisfitError:
                continue
        raise MisfitError

    return Reader(either(each.allowed for each in readers), read)


def _list(item: Reader) -> Reader:
    def read(where: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise MisfitError
        return [item.read(where, each) for each in value]

    return Reader(f"a list, each of it {item.allowed}", read)


def _tuple(items: list[Reader], *, endless: bool, make: Callable[[list[Any]], Any] = tuple) -> Reader:
    whole = _list(items[0])

    def read(where: str, value: Any) -> Any:
        members = whole.read(where, value)
        if not endless and len(members) != len(items):
            raise MisfitError
        return make(members)

    allowed = whole.allowed if endless else f"a list of {len(items)}, each of it {items[0].allowed}"
    return Reader(allowed, read)


def _table(looks: str, build: ReadTable) -> Reader:
    def read(where: str, value: Any) -> Any:
        if not isinstance(value, dict):
            raise MisfitError
        return build(where, value)

    return Reader(looks, read)


def _matrix(where: str, value: Any) -> Any:
    if not isinstance(value, list):
        raise MisfitError
    try:
        return np.array(value, np.float64)
    except (ValueError, TypeError):
        raise ConfigurationError(where, value, "rows of numbers, all of the same length") from None


def either(options: Any) -> str:
    """Alternatives in words.

    >>> either(["a", "b", "c"])
    'a, b or c'
    """
    *others, last = options
    return f"{', '.join(others)} or {last}" if others else str(last)
