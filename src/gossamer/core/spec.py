"""What an algorithm *is*: the tables [problem], [topology] and [algorithm] of a file, and what followed from them.

    {"spec": 1,
     "problem":   {"kind": "logistic", "dim": 4},
     "topology":  {"kind": "ring", "learners": 8},
     "algorithm": {"name": "pd_ogd", "budget": {"epsilon": 1}, "clip": 1, "step": 0.1},
     "resolved":  {...}}

The first three are what somebody wrote, or could have written, in a TOML file: options as given, without those at their
defaults. `resolved` is what the algorithm made of them: schedules, mechanisms, the scales of their noise and the
guarantee, in nine digits. Its digest is what nodes agree on, and what checkpoints and experiments are known by.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError
from gossamer.spec import Kind, Nothing, Section, build, difference, nearest, picked, plain, rounded, spec_of, written
from gossamer.topology import Topology

if TYPE_CHECKING:
    from gossamer.core.algorithm import Algorithm

VERSION = 1
"""Of what a specification looks like. Each kind has a revision of its own, which changes where results do."""
TABLES = ("problem", "topology", "algorithm")
LISTED = "`gossamer algorithms` lists them, and what each is"
_MOMENTS = np.array([1, 2, 3, 10, 1_000, 1_000_000], np.int64)  # exchanges at which schedules are told apart
_CHANGES = 8  # exchanges of which a network that changes is compared
SETTLED = ("problem", "topology", "learners")  # parameters that have a table of their own, or follow from it


def specification(algorithm: Algorithm) -> dict[str, Any]:
    """See `Algorithm.spec`."""
    if algorithm._made is None:
        hint = "write a function that makes it, and put @gossamer.spec.kind('algorithm', 'its name') before it"
        raise ConfigurationError("algorithm", algorithm.name, "one that a function with a name has made", hint)
    kind, given = algorithm._made
    options = {name: value for name, value in given.items() if name not in SETTLED}
    named = {"name": kind.name} | ({"revision": kind.revision} if kind.revision > 1 else {})
    return {
        "spec": VERSION,
        "problem": spec_of(algorithm.problem),
        "topology": _network(given.get("topology", given.get("learners", algorithm.topology))),
        "algorithm": named | written(options, kind.defaults, kind.words),
        "resolved": rounded(_resolved(algorithm)),
    }


def _network(given: Any) -> dict[str, Any]:
    """The table of a graph, or of a server, for which a number of learners may stand."""
    return {"kind": "server", "learners": int(given)} if isinstance(given, int) else spec_of(given)


def _resolved(algorithm: Algorithm) -> dict[str, Any]:
    """All numbers that say what is computed, and what is promised."""
    promise = algorithm.guarantee
    return {
        "start": _hashed(algorithm.problem.initial_decision()),
        "network": _links(algorithm.topology),
        "schedule": spec_of(algorithm.schedule),
        "mixing": spec_of(algorithm.mixing),
        "public": {name: plain(schedule(_MOMENTS)) for name, schedule in sorted(algorithm.public.items())},
        "releases": [
            {
                "mechanism": spec_of(release.mechanism),
                "sensitivities": [list(map(_finite, (one.l1, one.l2))) for one in release.sensitivities],
                "scales": {
                    name: [[scale.value, scale.grid] for scale in scales] for name, scales in release.scales.items()
                },
            }
            for release in algorithm.releases
        ],
        "guarantee": {
            "basis": promise.basis,
            "unit": promise.unit.name.lower(),
            "observer": promise.observer,
            "horizon": promise.horizon,
            "costs": [list(pair) for pair in zip(promise.epsilons, promise.deltas, strict=True)],
            "sampler_error": promise.sampler_error,
        },
    }


def _links(network: Any) -> str | None:
    """Who hears whom with which weight: of random graphs a seed says it only together with a library's version."""
    if not isinstance(network, Topology):
        return None
    lists = network.neighbours(np.arange(1 if network.fixed else _CHANGES))
    return _hashed(lists.speakers, np.round(lists.weights, 9))


def _hashed(*arrays: NDArray[Any]) -> str:
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(f"{array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


def _finite(value: float) -> float | None:
    """JSON has no number for what has no bound."""
    return value if math.isfinite(value) else None


def read_specification(spec: Mapping[str, Any]) -> Algorithm:
    """See `Algorithm.from_spec`."""
    if not isinstance(spec, Mapping) or "spec" not in spec:
        hint = "Gossamer 0.1 wrote none: make it anew"
        raise ConfigurationError("spec", Nothing(), f"{VERSION}: the version of a specification", hint)
    if spec["spec"] != VERSION:
        raise ConfigurationError("spec", spec["spec"], str(VERSION), "a later release wrote it: install that one")
    known = ("spec", *TABLES, "resolved")
    for name in spec:
        if name not in known:
            raise ConfigurationError(name, spec[name], f"the keys {', '.join(known)}", nearest(name, known))
    made = make_algorithm({name: spec[name] for name in TABLES if name in spec})
    secured = _on_lattices(spec.get("resolved", {}))
    made = made.secured() if secured else made
    if "resolved" in spec and (apart := difference(spec["resolved"], made.spec()["resolved"], "resolved")):
        where, given, found = apart
        hint = "it was altered, or another release made it: nothing that depends on it goes on"
        raise ConfigurationError(where, given, f"{found!r}, which follows from the options", hint)
    return made


def _on_lattices(resolved: Any) -> bool:
    """Whether draws are on lattices: the algorithm was made for secure noise."""
    try:
        scales = [scale for release in resolved["releases"] for each in release["scales"].values() for scale in each]
        return any(grid for _, grid in scales)
    except (TypeError, KeyError, ValueError, AttributeError):
        return False  # altered by hand: refused with its place by whoever compares


def make_algorithm(tables: Mapping[str, Mapping[str, Any]]) -> Algorithm:
    """The algorithm that the tables [problem], [topology] and [algorithm] describe.

    >>> problem, network = {"kind": "linear", "dim": 3}, {"kind": "ring", "learners": 4}
    >>> make_algorithm({"problem": problem, "topology": network, "algorithm": {"name": "d_ogd", "step": 0.1}}).learners
    4
    """
    sections = sections_of(tables, TABLES)
    section = sections["algorithm"]
    kind = picked(section, "algorithm", key="name", elsewhere=LISTED)
    section.expect([kind.make], extra=["name"], supplied=SETTLED, words=kind.words)
    network = make_network(sections["topology"], kind)
    supplied = {
        "problem": build("[problem]", sections["problem"].table, "problem"),
        "topology": network,
        "learners": network.learners if _alone(kind) else network,
    }
    made: Algorithm = section.call(kind.make, supplied, words=kind.words)
    return made


def make_network(section: Section, kind: Kind) -> Any:
    """The network that a table describes, of the sort that an algorithm needs: a graph, or a server."""
    graph, given = "topology" in kind.defaults, section.table.get("kind", "server")
    if graph and section.table.get("kind") == "server":
        hint = f"the algorithm {kind.name} has no server: its learners talk to their neighbours on a graph"
        raise ConfigurationError(f"{section.name} kind", given, "a kind of graph, such as 'ring'", hint)
    if not graph and given != "server":
        needs = "sends nothing: there is no graph" if _alone(kind) else "needs a server"
        hint = f"the algorithm {kind.name} {needs}; for a graph choose another one from `gossamer algorithms`"
        raise ConfigurationError(f"{section.name} kind", given, "'server'", hint)
    return build(section.name, section.table if graph else {"kind": "server"} | dict(section.table), "topology")


def _alone(kind: Kind) -> bool:
    """Whether learners hear nobody: then they are just so many."""
    return get_type_hints(kind.make).get("learners") is int


def sections_of(
    tables: Mapping[str, Any], needed: tuple[str, ...], allowed: tuple[str, ...] = TABLES
) -> dict[str, Section]:
    """The tables of a file by name; refused where one is unknown, or missing."""
    shown = ", ".join(f"[{name}]" for name in allowed)
    for name, table in tables.items():
        if name not in allowed or not isinstance(table, Mapping):
            said = f"[{name}]" if isinstance(table, Mapping) else name
            raise ConfigurationError(said, table, f"the sections {shown}", nearest(name, allowed))
    for name in needed:
        if name not in tables:
            raise ConfigurationError(f"[{name}]", Nothing(), f"the sections {shown}", f"add a section [{name}]")
    return {name: Section(f"[{name}]", tables[name]) for name in tables}
