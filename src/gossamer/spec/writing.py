"""Objects as plain values, always written the same way: what files hold, and what machines compare."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gossamer.errors import ConfigurationError
from gossamer.spec.kinds import REQUIRED, made_of


def spec_of(value: Any) -> dict[str, Any]:
    """The table that says what an object is: its kind, and all options that are not at their defaults.

    >>> from gossamer import problems, sets, topology
    >>> spec_of(problems.Logistic(3, domain=sets.L2Ball(2.0)))
    {'kind': 'logistic', 'dim': 3, 'domain': {'kind': 'l2-ball', 'radius': 2}}
    >>> spec_of(topology.ring(4))
    {'kind': 'ring', 'learners': 4}
    """
    found = made_of(value)
    if found is None:
        hint = "a class or function of yours says its word with @gossamer.spec.kind"
        raise ConfigurationError("spec", type(value).__name__, "something that can be written down", hint)
    kind, options = found
    table: dict[str, Any] = {"kind": kind.name} if kind.name else {}
    if kind.revision > 1:
        table["revision"] = kind.revision
    return table | written(options, kind.defaults, kind.words)


def written(options: Mapping[str, Any], defaults: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """Options that are not at their defaults, by their words.

    So an option that comes later, with a default, changes nothing that was written before.
    """
    table = {}
    for name, given in options.items():
        default, value = defaults.get(name, REQUIRED), plain(given)
        if default is REQUIRED or value != plain(default):
            table[words.get(name, name)] = value
    return table


def plain(value: Any) -> Any:
    """A value as JSON has it. Whole floats are written as whole numbers: 1.0 and 1 are the same option.

    >>> plain((1.0, 0.5, np.arange(2))), plain(None)
    ([1, 0.5, [0, 1]], None)
    """
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inside) for key, inside in value.items()}
    if made_of(value) is None and isinstance(value, Sequence | frozenset | set):
        members = sorted(value) if isinstance(value, frozenset | set) else value
        return [plain(inside) for inside in members]
    return spec_of(value)


def _number(value: float) -> int | float:
    if not math.isfinite(value):
        raise ConfigurationError("spec", value, "finite numbers")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def rounded(value: Any) -> Any:
    """A plain value with nine digits of every number: machines differ in the last ones.

    >>> rounded({"scale": [0.1 + 0.2]})
    {'scale': [0.3]}
    """
    if isinstance(value, dict):
        return {key: rounded(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [rounded(inside) for inside in value]
    return _number(float(f"{value:.9g}")) if isinstance(value, float) else value


def difference(given: Any, found: Any, where: str = "") -> tuple[str, Any, Any] | None:
    """The first place at which two plain values differ, and what each has there; None where they are the same.

    >>> difference({"step": 0.1, "clip": 1}, {"step": 0.2, "clip": 1}, "[algorithm]")
    ('[algorithm] step', 0.1, 0.2)
    """
    if isinstance(given, Mapping) and isinstance(found, Mapping):
        keys = [*found, *(key for key in given if key not in found)]
        pairs = [(f"{where} {key}".strip(), given.get(key, Nothing()), found.get(key, Nothing())) for key in keys]
    elif isinstance(given, list) and isinstance(found, list) and len(given) == len(found):
        pairs = [(where, one, other) for one, other in zip(given, found, strict=True)]
    else:
        return None if given == found else (where, given, found)
    return next((apart for place, one, other in pairs if (apart := difference(one, other, place))), None)


class Nothing:
    """Stands in errors for a key that is not there.

    >>> Nothing()
    nothing
    """

    def __repr__(self) -> str:
        return "nothing"


def canonical(value: Any) -> str:
    """The one JSON text of a plain value.

    >>> canonical({"b": [1, 0.5], "a": None})
    '{"a":null,"b":[1,0.5]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """Of the one JSON text.

    >>> digest({"a": 1})[:8]
    '015abd7f'
    """
    return hashlib.sha256(canonical(value).encode()).hexdigest()
