"""A table of a file as the arguments of a function: its keys and their types come from the function's signature."""

import difflib
import inspect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, get_type_hints

from gossamer.errors import ConfigurationError
from gossamer.spec.kinds import REQUIRED, Kind, Maker, defaults_of, family_of, find, kinds
from gossamer.spec.values import MisfitError, Reader, ReadTable, either, reader
from gossamer.spec.writing import Nothing

Option = TypeVar("Option")


class Key(NamedTuple):
    """A key that a function takes: its parameter, how its value is read, and its default."""

    parameter: str
    reader: Reader
    default: Any

    @property
    def required(self) -> bool:
        """Whether it must be there."""
        return self.default is REQUIRED


@dataclass(frozen=True)
class Section:
    """One table of a file, and its name for errors.

    >>> from gossamer.topology import ring
    >>> Section("[topology]", {"learners": 3}).call(ring)
    ring(3)
    >>> Section("[topology]", {"learners": 3, "weihgts": "lazy"}).expect([ring])
    Traceback (most recent call last):
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
        words: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse keys that none of these functions takes, or that are supplied by something else."""
        taken = [key for maker in makers for key in keys_of(maker, words)]
        allowed = [key for key in dict.fromkeys([*extra, *taken]) if key not in supplied]
        for key, value in self.table.items():
            if key not in allowed and key != "revision":  # which `picked` looks at
                hint = f"{by} settles {key}" if key in supplied else nearest(key, allowed)
                raise ConfigurationError(f"{self.name} {key}", value, f"the keys {', '.join(allowed)}", hint)

    def call(
        self, maker: Maker, supplied: Mapping[str, Any] | None = None, words: Mapping[str, str] | None = None
    ) -> Any:
        """Call a function with what the section says.

        Args:
            maker: a function, or a class.
            supplied: arguments that do not come from the section; those it has no parameter for are left out.
            words: of parameters that have another name in Python.
        """
        keys = keys_of(maker, words)
        fixed = {k: v for k, v in (supplied or {}).items() if k in inspect.signature(maker).parameters}
        arguments = {
            key.parameter: self._value(name, key)
            for name, key in keys.items()
            if key.parameter not in fixed and (name in self.table or key.required)
        }
        try:
            return maker(**arguments, **fixed)
        except ConfigurationError as error:
            name = (words or {}).get(error.field, error.field)
            if name not in keys:
                raise
            raise ConfigurationError(f"{self.name} {name}", error.given, error.allowed, error.hint) from error

    def _value(self, name: str, key: Key) -> Any:
        where = f"{self.name} {name}"
        if name not in self.table:
            raise ConfigurationError(where, Nothing(), key.reader.allowed, f"add {name} to {self.name}")
        try:
            return key.reader.read(where, self.table[name])
        except MisfitError:
            raise ConfigurationError(where, self.table[name], key.reader.allowed) from None


def keys_of(maker: Maker, words: Mapping[str, str] | None = None) -> dict[str, Key]:
    """The keys that configure a function: every parameter whose type a file can express.

    >>> from gossamer import simulate
    >>> [name for name, key in keys_of(simulate).items() if key.required], "noise" in keys_of(simulate)
    (['steps'], False)
    """
    hints, defaults = get_type_hints(maker), defaults_of(maker)
    keys = {}
    for name, default in defaults.items():
        if found := reader(hints[name], _table):
            keys[(words or {}).get(name, name)] = Key(name, found, default)
    return keys


def build(where: str, table: Mapping[str, Any], family: str) -> Any:
    """What a table of a family describes.

    >>> build("[problem] domain", {"kind": "l2-ball", "radius": 2}, "set")
    L2Ball(radius=2.0)
    """
    section = Section(where, table)
    kind = picked(section, family)
    section.expect([kind.make], extra=["kind"] if kind.name else [], words=kind.words)
    return section.call(kind.make, words=kind.words)


def picked(section: Section, family: str, key: str = "kind", elsewhere: str = "") -> Kind:
    """The kind of a family that a table names; refused where it is unknown, or gives other results here."""
    known = kinds(family)
    given = "" if "" in known else section.table.get(key)
    kind = find(family, given) if isinstance(given, str) else None
    if kind is None:
        shown = Nothing() if given is None else given
        hint = nearest(str(given), known) or elsewhere
        raise ConfigurationError(f"{section.name} {key}", shown, either(map(repr, sorted(known))), hint)
    if not kind.readable:
        hint = "give it to Gossamer in Python, or write a function that makes it, with @gossamer.spec.kind"
        raise ConfigurationError(f"{section.name} {key}", given, "what can be made of what is written down", hint)
    if (revision := section.table.get("revision", 1)) != kind.revision:
        hint = "its results have changed: use the release of Gossamer that wrote this, or start anew"
        raise ConfigurationError(f"{section.name} revision", revision, f"{kind.revision} of {given}", hint)
    return kind


def _table(hint: Any) -> tuple[str, ReadTable] | None:
    """How a class that is written as a table looks, and what reads it."""
    family = family_of(hint)
    if family is None or family == "algorithm":  # which is more than one table
        return None
    alone = "" in kinds(family)
    looks = ", ".join(f"{key} = ..." for key in (keys_of(kinds(family)[""].make) if alone else ["kind"]))

    def read(where: str, table: Mapping[str, Any]) -> Any:
        if alone == ("kind" in table):  # of another family, where several are allowed
            raise MisfitError
        return build(where, table, family)

    return f"a table {{{looks}}}", read


def nearest(given: str, allowed: Collection[str]) -> str:
    """A hint that names the allowed word that is most like what was given; empty where none is like it.

    >>> nearest("radus", ["kind", "radius"]), nearest("nonsense", ["Gossiped"])
    ("the nearest is 'radius'", '')
    """
    close = difflib.get_close_matches(given, allowed, n=1, cutoff=0.7)  # a slip or two, not another word
    return f"the nearest is {close[0]!r}" if close else ""
