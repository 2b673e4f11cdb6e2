"""A run's state on disk: written atomically, readable by its owner only, refused for any other run.

A checkpoint holds raw sums and the seed. It is private and part of no export.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from gossamer.core import Algorithm, Federation
from gossamer.errors import ConfigurationError
from gossamer.privacy import SecureNoise
from gossamer.simulation.engine import Program, World
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.tally import Tally
from gossamer.simulation.testing import HeldOut
from gossamer.streams import LiveStream, Stream


class Progress(NamedTuple):
    """How far a run has come."""

    exchanges: int
    worlds: World
    tally: Tally


def identity(
    feeder: Feeder, program: Program, seeds: list[int], noise: Callable[..., Any], held_out: HeldOut | None
) -> dict[str, Any]:
    """What a resumed run must have in common with the interrupted one.

    To continue with other data, other noise or another algorithm would give a result that no run gives, and use the
    same noise over different data.
    """
    algorithm, stream = feeder.algorithm, feeder.stream
    return {
        "algorithm": algorithm.describe(),
        "stream": stream.description,
        "seeds": seeds,
        "measure": program.measure,
        "record": list(program.record),
        "noise": getattr(noise, "__qualname__", repr(noise)),
        "keys": [source.fingerprint for source in feeder.sources if isinstance(source, SecureNoise)],
        "digest": _digest(algorithm, stream, program),
        "test": held_out.fingerprint() if held_out else None,
    }


def _digest(algorithm: Algorithm, stream: Stream, program: Program) -> str:
    """A fingerprint of the program, of its schedules and weights at a few exchanges, and of the first samples."""
    some = np.array([0, 1, 2, 10, 1000], np.int64)
    parts: list[Any] = [re.sub(r" at 0x[0-9a-f]+", "", repr(program)), repr(algorithm.schedule)]
    parts.append(program.problem.initial_decision().tobytes())
    parts += [(name, schedule(some + 1).tolist()) for name, schedule in sorted(algorithm.public.items())]
    parts += sorted(algorithm.scales.items())
    if isinstance(algorithm.topology, Federation):
        parts.append(algorithm.topology)
    else:
        parts += [leaf.tobytes() for leaf in jax.tree.leaves(algorithm.mixing.prepare(algorithm.topology, some))]
    if not isinstance(stream, LiveStream):  # a live stream cannot be read twice
        first = stream.read(0, min(8, stream.length or 8))
        parts += [leaf.tobytes() for leaf in first]
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part if isinstance(part, bytes) else repr(part).encode())
    return hashed.hexdigest()


def write(path: Path, identity: dict[str, Any], progress: Progress) -> None:
    """Replace the checkpoint in one step: a crash leaves the old one or the new one."""
    arrays = {f"world/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(progress.worlds))}
    facts = identity | {"exchanges": progress.exchanges, "every": progress.tally.every}
    temporary = path.with_name(path.name + ".new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        np.savez(file, allow_pickle=False, facts=np.array(json.dumps(facts)), **arrays, **progress.tally.arrays())
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def read(path: Path, identity: dict[str, Any], fresh: World, every: int | None) -> Progress | None:
    """The progress stored there; None if there is nothing yet.

    Args:
        path: where `write` put it.
        identity: what the run must have in common with the one that was interrupted.
        fresh: the worlds before the first exchange, for their structure.
        every: the width of the rows that is asked for; None takes the stored one.
    """
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: dict[str, NDArray[Any]] = dict(file)
        facts = json.loads(str(arrays.pop("facts")))
    except (ValueError, KeyError, OSError, zipfile.BadZipFile, EOFError) as broken:
        raise ConfigurationError(
            "checkpoint", str(path), "a file that simulate wrote", "name another file, or remove this one"
        ) from broken
    wanted = identity | {"every": facts["every"] if every is None else every}
    for key, value in wanted.items():
        if facts.get(key) != value:
            stored = f"{facts.get(key)!r}, as in {path}"
            raise ConfigurationError(f"checkpoint ({key})", value, stored, "name another file, or remove this one")
    leaves = [arrays.pop(f"world/{i}", None) for i in range(len(jax.tree.leaves(fresh)))]
    for leaf, wanted_leaf in zip(leaves, jax.tree.leaves(fresh), strict=True):
        if leaf is None or (leaf.shape, leaf.dtype) != (wanted_leaf.shape, wanted_leaf.dtype):
            raise ConfigurationError(
                "checkpoint", str(path), "states of the same form", "another version wrote it: remove it, start again"
            )
    worlds = jax.tree.unflatten(jax.tree.structure(fresh), leaves)
    return Progress(facts["exchanges"], worlds, Tally.restore(facts["every"], arrays))
