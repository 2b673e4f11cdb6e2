"""What can be written down: every kind of set, problem, topology, mechanism, schedule and algorithm, by a word.

A class or a function says which word it is by `kind`. The word, and the words of its options, stay when the class, the
function or a parameter gets another name in Python: what was written down before can still be read.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from gossamer.errors import ConfigurationError

Maker = Callable[..., Any]
Marked = TypeVar("Marked", bound=Maker)

PLUGINS = "gossamer.kinds"
"""The group of entry points in which other packages name the modules that have kinds."""
_OURS = {"algorithm": "gossamer.algorithms"}  # modules with kinds that nothing below them imports

_families: dict[str, dict[str, Kind]] = {}
_bases: dict[type, str] = {}
_types: dict[type, Kind] = {}


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()
"""The default of an option that has none."""


@dataclass(frozen=True)
class Kind:
    """One kind of a family.

    Attributes:
        family: such as "set" or "algorithm".
        name: its word; empty where a family has one kind only.
        make: the class or function that makes it.
        revision: one more wherever the same options give other results than before.
        words: of parameters that have another name in Python.
        facts: what an object was made of, by parameter; by default its attributes.
        readable: whether `make` can make it again of what is written down.
    """

    family: str
    name: str
    make: Maker
    revision: int = 1
    words: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    facts: Callable[[Any], Mapping[str, Any]] | None = None
    readable: bool = True

    def word(self, parameter: str) -> str:
        """How a parameter is spelled."""
        return self.words.get(parameter, parameter)

    @property
    def defaults(self) -> dict[str, Any]:
        """The default of every parameter, by its name in Python."""
        return defaults_of(self.make)


class Made(NamedTuple):
    """Which function made an object, and with which arguments."""

    kind: Kind
    arguments: Mapping[str, Any]


def family(name: str) -> Callable[[type], type]:
    """Say that a class is what all kinds of a family have in common; kinds of strangers are found by it.

    >>> @family("fruit")
    ... class Fruit: ...
    >>> family_of(Fruit)
    'fruit'
    """

    def known(base: type) -> type:
        _bases[base] = name
        _families.setdefault(name, {})
        return base

    return known


def kind(
    family: str,
    name: str = "",
    *,
    revision: int = 1,
    words: Mapping[str, str] | None = None,
    facts: Callable[[Any], Mapping[str, Any]] | None = None,
    readable: bool = True,
    of: tuple[type, ...] = (),
) -> Callable[[Marked], Marked]:
    """Say which word of which family a class or a function is: see `Kind`; `of`: others' classes that it makes.

    Objects that a function makes remember the function and its arguments, until somebody changes them.

    >>> @kind("vegetable", "leek", words={"n": "leeks"})
    ... @dataclass(frozen=True)
    ... class Leek:
    ...     n: int = 1
    >>> find("vegetable", "leek").make(3)
    Leek(n=3)
    """

    def named(make: Marked) -> Marked:
        types = (make,) if isinstance(make, type) else of
        signature = inspect.signature(make)

        @functools.wraps(make)
        def remembering(*args: Any, **options: Any) -> Any:
            result = make(*args, **options)
            object.__setattr__(result, "_made", Made(made, signature.bind(*args, **options).arguments))
            return result

        called: Maker = make if types else remembering
        made = Kind(family, name, called, revision, MappingProxyType(dict(words or {})), facts, readable)
        known = _families.setdefault(family, {})
        if name in known and known[name].make.__module__ != make.__module__:
            there = known[name].make.__module__
            raise ConfigurationError(family, name, "words that no other package uses", f"{there} has it")
        known[name] = made
        _types.update(dict.fromkeys(types, made))
        return called  # type: ignore[return-value]  # of the same signature

    return named


def kinds(family: str) -> Mapping[str, Kind]:
    """All kinds of a family that are known by now, by their words."""
    return MappingProxyType(_families[family])


def family_of(hint: Any) -> str | None:
    """The family that a class of a signature stands for.

    >>> from gossamer.sets import DecisionSet, L2Ball
    >>> family_of(DecisionSet), family_of(int)
    ('set', None)
    """
    if not isinstance(hint, type):
        return None
    alone = [one.family for known, one in _types.items() if not one.name and issubclass(known, hint)]
    found = [name for base, name in _bases.items() if issubclass(hint, base)]
    return next(iter([*alone, *found]), None) if hint is not object else None


def find(family: str, name: str) -> Kind | None:
    """The kind with this word: Gossamer's, of a package with an entry point, or "package.module:name"."""
    known = _families.setdefault(family, {})
    if name not in known and family in _OURS:
        importlib.import_module(_OURS[family])
    if name not in known and ":" not in name:
        for plugin in entry_points(group=PLUGINS):
            plugin.load()
    return known.get(name) or _elsewhere(family, name)


def _elsewhere(family: str, name: str) -> Kind | None:
    """A kind in a module that is imported by its name; only what is a kind, or a class of the family, is taken."""
    module, colon, inside = name.partition(":")
    if not colon:
        return None
    try:
        found: Any = importlib.import_module(module)
    except (ImportError, ValueError, TypeError):  # no such module, or no name of one
        return None
    for part in inside.split("."):
        found = getattr(found, part, None)
    marked = [one for one in _families[family].values() if one.make is found]
    if marked:
        return marked[0]
    return Kind(family, name, found) if isinstance(found, type) and _inherits(found, family) else None


def _inherits(kind: type, family: str) -> bool:
    return any(name == family and issubclass(kind, base) for base, name in _bases.items())


def made_of(value: Any) -> tuple[Kind, Mapping[str, Any]] | None:
    """The kind of an object, and what it was made of, by parameter; None where nothing says so."""
    made = getattr(value, "_made", None)
    if isinstance(made, Made):
        return made.kind, made.arguments
    cls = type(value)
    known = _types.get(cls) or _stranger(cls)
    if known is None:
        return None
    if known.facts:
        return known, known.facts(value)
    told = all(hasattr(value, name) for name in known.defaults)
    return (known, {name: getattr(value, name) for name in known.defaults}) if told else None


def word_of(cls: type) -> str:
    """How a class is called in files: its word, or where it is found.

    >>> from gossamer import FastNoise
    >>> word_of(FastNoise), word_of(Made)
    ('fast', 'gossamer.spec.kinds:Made')
    """
    return _types[cls].name if cls in _types else f"{cls.__module__}:{cls.__qualname__}"


def _stranger(cls: type) -> Kind | None:
    """A class of another package that belongs to a family, and can be found by its name."""
    base = next((name for base, name in _bases.items() if issubclass(cls, base)), None)
    if base is None or not is_dataclass(cls) or "<" in cls.__qualname__:
        return None
    return Kind(base, word_of(cls), cls)


@functools.cache
def defaults_of(make: Maker) -> dict[str, Any]:
    """The default of every parameter of a class or function; `REQUIRED` where there is none."""
    factories = {}
    if isinstance(make, type) and is_dataclass(make):
        factories = {one.name: one.default_factory for one in fields(make) if one.default_factory is not MISSING}
    found = {}
    for name, parameter in inspect.signature(make).parameters.items():
        given = factories[name]() if name in factories else parameter.default
        found[name] = REQUIRED if given is parameter.empty else given
    return found
