"""What `simulate(..., mesh=...)` is refused for, and what processes agree about, before anything is computed."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError, GossamerError, NetworkError
from gossamer.simulation.spread import Spread
from gossamer.simulation.watch import watch
from gossamer.topology.halo import AXIS

_SECRET = ("seeds", "keys", "records")  # with messages they are the raw data, or they say nothing
_REFUSED = "refused"


def spread_over(mesh: Mesh | int | None, learners: int, *, debug: bool = False) -> Spread:
    """Where learners are to be: `mesh` as `simulate` takes it.

    >>> spread_over(1, 4).parts, spread_over(None, 4).parts
    (1, 1)
    >>> spread_over(3.5, 4)
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: mesh: got 3.5; allowed: a jax.sharding.Mesh, a number of local devices or None.
    """
    if mesh is None:
        return Spread()
    if debug:
        raise ConfigurationError("mesh", mesh, "None with debug=True", "a debugger steps through one process")
    found = mesh if isinstance(mesh, Mesh) else _local(mesh)
    if found.axis_names != (AXIS,):
        hint = f'try Mesh(jax.devices(), ("{AXIS}",))'
        raise ConfigurationError("mesh", f"the axes {found.axis_names}", f'one axis, named "{AXIS}"', hint)
    if learners % found.size:
        best = max(parts for parts in range(1, found.size) if learners % parts == 0)
        allowed = f"a number of devices that divides the {learners} learners"
        raise ConfigurationError("mesh", f"{found.size} devices", allowed, f"try {best} of them")
    processes = {device.process_index for device in found.devices.flat}
    if len(processes) > 1 and len(processes) < jax.process_count():
        allowed = f"of one process, or of all {jax.process_count()}"
        raise ConfigurationError("mesh", f"devices of {len(processes)} processes", allowed)
    if jax.process_index() not in processes:
        raise ConfigurationError("mesh", "devices of other processes", "some of this process, at least")
    if len(processes) > 1:
        watch()
    return Spread(Mesh(found.devices, (AXIS,)), learners)  # whose axis the partitioner deals, whatever was given


def _local(count: Any) -> Mesh:
    """A mesh of so many devices of this process."""
    if not isinstance(count, int | np.integer) or isinstance(count, bool):
        raise ConfigurationError("mesh", count, "a jax.sharding.Mesh, a number of local devices or None")
    check_count("mesh", count)
    there = jax.local_devices()
    if count > len(there):
        kind = there[0].platform
        more = "" if kind != "cpu" else f"XLA_FLAGS=--xla_force_host_platform_device_count={count} shows more of a CPU"
        raise ConfigurationError("mesh", int(count), f"at most {len(there)}, the local {kind} devices", more)
    return Mesh(np.array(there[:count]), (AXIS,))


@contextmanager
def agreement(spread: Spread) -> Iterator[dict[str, Any]]:
    """Compares, at its end, what every process has put into the dictionary; refuses on all what differs on one.

    A process that refuses something by itself says so to the others first: they would wait for it.
    """
    facts: dict[str, Any] = {}
    try:
        yield facts
    except GossamerError:
        _exchange(spread, {_REFUSED: True})
        raise
    if spread.several:
        flat = dict(_flat(facts))
        _compare(flat, _exchange(spread, flat))


def _exchange(spread: Spread, facts: Mapping[str, Any]) -> list[dict[str, str]]:
    """A digest of every fact, of every process."""
    if not spread.several:
        return []
    text = json.dumps({key: hashlib.sha256(repr(value).encode()).hexdigest() for key, value in facts.items()}).encode()
    lengths = [int(length) for length in spread.said_by_all(np.array(len(text), np.int32))]
    padded = np.zeros(max(lengths), np.uint8)
    padded[: len(text)] = np.frombuffer(text, np.uint8)
    texts = spread.said_by_all(padded)
    return [json.loads(bytes(row[:length])) for row, length in zip(texts, lengths, strict=True)]


def _flat(facts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Facts within facts one by one, so that errors name the very one.

    >>> dict(_flat({"algorithm": {"step": 0.1}, "steps": 5}))
    {'algorithm step': 0.1, 'steps': 5}
    """
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key} ")
        else:
            yield f"{before}{key}", value


def _compare(facts: Mapping[str, Any], all_: list[dict[str, str]]) -> None:
    """Refuse the first fact that is not the same everywhere, in the same words on every process but for its own."""
    refused = [number for number, one in enumerate(all_) if _REFUSED in one]
    if refused:
        hint = "its own error says why"
        raise ConfigurationError("mesh", f"process {refused[0]} refuses the run", "a run that all accept", hint)
    for key, value in facts.items():
        first = all_[0].get(key)
        others = [number for number, one in enumerate(all_) if one.get(key) != first]
        if others:
            mine = "a value of its own" if key.split()[0] in _SECRET else value
            field = f"mesh ({key}, process {jax.process_index()})"
            allowed = f"the same on every process, and process {others[0]} has another than process 0"
            raise ConfigurationError(field, mine, allowed, "call simulate with the same arguments everywhere")


def due(spread: Spread, mine: bool) -> bool:
    """Whether something is to be done now: as the first of several processes says, whose clocks differ."""
    return bool(spread.said_by_all(np.array(mine, np.int32))[0]) if spread.several else mine


@contextmanager
def lost(spread: Spread, checkpoint: Any) -> Iterator[None]:
    """Ends a run with an error of ours where another process, or a device, is gone."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, NetworkError) as broken:
        if not spread.several:
            raise
        who = broken if isinstance(broken, NetworkError) else "a process of the mesh was lost"
        kept = "no checkpoint was asked for" if checkpoint is None else f"{checkpoint} holds the run as last written"
        raise NetworkError(f"{who}: {kept}; start all processes again") from broken
