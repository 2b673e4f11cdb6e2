"""A section of a file as the arguments of a function: its keys and their types come from the function's signature."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, get_type_hints

from gossamer.cli.kinds import SETS, TOPOLOGIES, Maker
from gossamer.cli.values import MisfitError, Reader, ReadTable, Tables, either, reader
from gossamer.core import Rate
from gossamer.errors import ConfigurationError
from gossamer.privacy import Budget, Clip
from gossamer.sets import DecisionSet
from gossamer.topology import FixedTopology

Option = TypeVar("Option")

SPELLINGS = {"n": "learners"}
"""Parameters that have another name in a file."""


class Nothing:
    """Stands in errors for a key that is not there.

    >>> Nothing()
    nothing
    """

    def __repr__(self) -> str:
        return "nothing"


class Key(NamedTuple):
    """A key that a function takes: its parameter, how its value is read, and whether it must be there."""

    parameter: str
    reader: Reader
    required: bool


@dataclass(frozen=True)
class Section:
    """One table of a file, and its name for errors.

    >>> from gossamer.topology import ring
    >>> Section("[topology]", {"learners": 3}).call(ring)
    ring(3)
    >>> Section("[topology]", {"learners": 3, "weihgts": "lazy"}).expect([ring])
    Traceback (most recent call last):
        ...
    gossamer.errors.ConfigurationError: [topology] weihgts: got 'lazy'; allowed: the keys learners, weights. The
    nearest is 'weights'.
    """

    name: str
    table: Mapping[str, Any]

    def pick(self, key: str, options: Mapping[str, Option], default: str | None = None, elsewhere: str = "") -> Option:
        """The option that a key names; `elsewhere` is the hint where none of them is like what was given."""
        given = self.table.get(key, default)
        if not isinstance(given, str) or given not in options:
            shown = Nothing() if given is None else given
            allowed = either(map(repr, sorted(options)))
            hint = nearest(str(given), options) or elsewhere
            raise ConfigurationError(f"{self.name} {key}", shown, allowed, hint)
        return options[given]

    def expect(
        self,
        makers: Iterable[Maker],
        extra: Iterable[str] = (),
        supplied: Collection[str] = (),
        by: str = "[topology]",
    ) -> None:
        """Refuse keys that none of these functions takes, or that are supplied by something else."""
        taken = [key for maker in makers for key in keys_of(maker)]
        allowed = [key for key in dict.fromkeys([*extra, *taken]) if key not in supplied]
        for key, value in self.table.items():
            if key not in allowed:
                hint = f"{by} settles {key}" if key in supplied else nearest(key, allowed)
                raise ConfigurationError(f"{self.name} {key}", value, f"the keys {', '.join(allowed)}", hint)

    def call(
        self, maker: Maker, supplied: Mapping[str, Any] | None = None, defaults: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function with what the section says.

        Args:
            maker: a function, or a class.
            supplied: arguments that do not come from the section; those it has no parameter for are left out.
            defaults: values of keys that the section may leave out.
        """
        keys = keys_of(maker)
        fixed = {k: v for k, v in (supplied or {}).items() if k in inspect.signature(maker).parameters}
        arguments = {
            key.parameter: value
            for name, key in keys.items()
            if name not in fixed and (value := self._value(name, key, (defaults or {}).get(name))) is not None
        }
        try:
            return maker(**arguments, **fixed)
        except ConfigurationError as error:
            name = SPELLINGS.get(error.field, error.field)
            if name not in keys:
                raise
            raise ConfigurationError(f"{self.name} {name}", error.given, error.allowed, error.hint) from error

    def _value(self, name: str, key: Key, default: Any) -> Any:
        """The value of a key; None where it is not there and need not be."""
        where = f"{self.name} {name}"
        if name not in self.table:
            if key.required and default is None:
                raise ConfigurationError(where, Nothing(), key.reader.allowed, f"add {name} to {self.name}")
            return default
        try:
            return key.reader.read(where, self.table[name])
        except MisfitError:
            raise ConfigurationError(where, self.table[name], key.reader.allowed) from None


def keys_of(maker: Maker) -> dict[str, Key]:
    """The keys that configure a function: every parameter whose type a file can express.

    >>> from gossamer import simulate
    >>> [name for name, key in keys_of(simulate).items() if key.required], "noise" in keys_of(simulate)
    (['steps'], False)
    """
    hints = get_type_hints(maker)
    keys = {}
    for name, parameter in inspect.signature(maker).parameters.items():
        if found := reader(hints[name], TABLES):
            keys[SPELLINGS.get(name, name)] = Key(name, found, parameter.default is parameter.empty)
    return keys


def build(where: str, table: Mapping[str, Any], kinds: Mapping[str, Maker]) -> Any:
    """What a table with a `kind` describes.

    >>> build("[problem] domain", {"kind": "l2-ball", "radius": 2}, SETS)
    L2Ball(radius=2.0)
    """
    section = Section(where, table)
    maker = section.pick("kind", kinds)
    section.expect([maker], extra=["kind"])
    return section.call(maker)


def _fields_of(maker: Maker) -> ReadTable:
    """Reads a table whose keys are the fields of a class."""

    def read(where: str, table: Mapping[str, Any]) -> Any:
        section = Section(where, table)
        section.expect([maker])
        return section.call(maker)

    return read


TABLES: Tables = {
    Rate: ("a table {scale = ..., power = ..., delay = ...}", _fields_of(Rate)),
    Budget: ("a table {epsilon = ..., delta = ...}", _fields_of(Budget)),
    Clip: ("a table {l2 = ...} or {l1 = ...}", _fields_of(Clip)),
    DecisionSet: ("a table {kind = ...}", lambda where, table: build(where, table, SETS)),
    FixedTopology: ("a table {kind = ...}", lambda where, table: build(where, table, TOPOLOGIES)),
}


def nearest(given: str, allowed: Collection[str]) -> str:
    """A hint that names the allowed word that is most like what was given; empty where none is like it.

    >>> nearest("radus", ["kind", "radius"]), nearest("nonsense", ["Gossiped"])
    ("the nearest is 'radius'", '')
    """
    close = difflib.get_close_matches(given, allowed, n=1, cutoff=0.7)  # a slip or two, not another word
    return f"the nearest is {close[0]!r}" if close else ""
