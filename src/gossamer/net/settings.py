"""What node.toml says: the settings that the owner of a node may edit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gossamer.errors import ConfigurationError
from gossamer.net.data.query import is_database, require_no_password
from gossamer.net.data.survey import Doubt
from gossamer.privacy import Budget

SETTINGS = """\
# Member {member} of network {network}. What all members have agreed on is in agreement.json.
member = {member}

# Where it listens: "" for the address in the agreement.
listen = ""

# Its own page, for a browser; "" for none. At an address that others reach it needs a token (`gossamer node token DIR`)
# and has TLS: with the node's certificate, or with the one that is given here, and its key.
http = "{http}"
http_certificate = ""
http_key = ""

# Samples: a .csv or .jsonl file, which may grow, a .parquet file, a folder in which such files arrive, a database
# ("sqlite:FILE", "postgresql://USER@HOST/NAME"; then [query] is needed), or "-" for standard input. The label's name
# counts where the agreement has no schema.
data = {data}
label = {label}

# true: the file is renamed now and then, and a new one begins under its name (logrotate, without `compress`).
rotated = {rotated}

# Data with which the node starts all the same: "missing" (there is no row yet), "unusable" (more than 1 % of the rows
# cannot be used), "outside" (more than a tenth of the numbers lie outside of their bounds).
allow = []

# The ledger adds up what these data cost under this name. It cannot be changed.
source = {source}

# true: an algorithm without any privacy may run.
no_guarantee = {no_guarantee}

# true, from the first start on: state, messages and noise.key are encrypted; start the node with --state-key FILE.
sealed = false

# Earlier runs over the same data of which this machine does not know: directories, or exports of ledgers. And the one
# of them where reading goes on: what it has read is not read again; "": begin with the first record.
earlier = []
continues = ""

# Where the registry lies, which adds up what all runs over the same data cost. "": below $XDG_STATE_HOME or
# ~/.local/state. In a container name a file on a volume that all nodes over these data share.
registry = ""

# Where the witness against old copies of this directory lies: outside of it, and not restored together with it.
# "": below $XDG_STATE_HOME or ~/.local/state. In a container name a volume.
witness = ""

# What the data may cost in all, with every other run over them. Without it, smaller ones of other runs over the same
# data hold for this one. Secure noise needs some delta.
# [budget]
# epsilon = 1.0
# delta = 1e-6

# Where members are that this node reaches at another address than the agreement says.
# [addresses]
# {member} = "10.0.0.7:7400"

# The rows of a database, and a column of them that only grows, such as an id: what was read last is known by it.
{query}"""

_QUERY = """\
[query]
rows = {rows}
cursor = {cursor}
"""
_KEYS = {"rows", "cursor"}


@dataclass(frozen=True)
class Settings:
    """What node.toml says."""

    member: str
    source: str
    listen: str = ""
    http: str = ""
    http_certificate: str = ""
    http_key: str = ""
    data: str = "-"
    label: str = "y"
    rotated: bool = False
    allow: Sequence[Doubt] = ()
    query: Mapping[str, str] | None = None
    no_guarantee: bool = False
    sealed: bool = False
    earlier: Sequence[str] = ()
    continues: str = ""
    budget: Mapping[str, float] | None = None
    witness: str = ""
    registry: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Settings).items():
            if not _fits(getattr(self, name), kind):
                raise ConfigurationError(f"node.toml {name}", getattr(self, name), _in_words(kind))
        if is_database(self.data):
            require_no_password(self.data)
        if is_database(self.data) != (self.query is not None) or set(self.query or _KEYS) != _KEYS:
            allowed = "rows and a cursor for a database, and for nothing else"
            raise ConfigurationError("node.toml [query]", sorted(self.query or {}), allowed)
        known = [one.name for one in fields(Budget)]
        for key in self.budget or {}:
            if key not in known:
                raise ConfigurationError("node.toml [budget]", key, f"the keys {', '.join(known)}")
        if self.budget is not None and "epsilon" not in self.budget:
            raise ConfigurationError("node.toml [budget]", dict(self.budget), "an epsilon, and a delta if you like")


def query_table(query: Mapping[str, str] | None) -> str:
    """A query as node.toml has it; an example in comments where there is none.

    >>> print(query_table({"rows": "SELECT * FROM visits", "cursor": "id"}), end="")
    [query]
    rows = "SELECT * FROM visits"
    cursor = "id"
    """
    shown = query or {"rows": "SELECT * FROM visits", "cursor": "id"}
    table = _QUERY.format(**{name: json.dumps(text, ensure_ascii=False) for name, text in shown.items()})
    return table if query else "".join(f"# {line}\n" for line in table.splitlines())


def settings_text(table: Mapping[str, Any]) -> str:
    """A node.toml.

    >>> print(settings_text({"member": "north", "budget": {"epsilon": 2.0}, "earlier": ["../old"]}), end="")
    # The node.toml that `gossamer node join` writes says what each key means.
    member = "north"
    earlier = ["../old"]
    <BLANKLINE>
    [budget]
    "epsilon" = 2.0
    """
    plain = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    head = "# The node.toml that `gossamer node join` writes says what each key means."
    lines = [head, *(f"{name} = {_written(value)}" for name, value in plain.items())]
    for name in [name for name in table if name not in plain]:
        lines += ["", f"[{name}]", *(f"{_written(key)} = {_written(value)}" for key, value in table[name].items())]
    return "\n".join(lines) + "\n"


def _written(value: Any) -> str:
    """A text, number, truth value or list of such as TOML has it."""
    return json.dumps(value, ensure_ascii=False)


def _fits(given: Any, kind: Any) -> bool:
    """Whether a value is of a declared type, as far as TOML has types.

    >>> _fits(["../old"], Sequence[str]), _fits("../old", Sequence[str]), _fits(1, float), _fits(True, int)
    (True, False, True, False)
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return any(_fits(given, one) for one in inner)
    if origin is Literal:
        return given in inner
    if origin is Mapping:
        return isinstance(given, Mapping) and all(_fits(one, inner[1]) for one in given.values())
    if origin is Sequence:
        return isinstance(given, list | tuple) and all(_fits(one, inner[0]) for one in given)
    return type(given) in ((int, float) if kind is float else (kind,))


def _in_words(kind: Any) -> str:
    """A declared type for whoever writes TOML, in which there is no None.

    >>> _in_words(Mapping[str, float] | None)
    'a table, each value a number'
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return _in_words(inner[0])
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is Mapping:
        return f"a table, each value {_in_words(inner[1])}"
    if origin is Sequence:
        return f"a list, each entry {_in_words(inner[0])}"
    return {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}[kind]
