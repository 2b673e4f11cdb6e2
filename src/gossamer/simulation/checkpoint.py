"""A run's state on disk: written atomically, readable by its owner only, refused for any other run.

A checkpoint holds raw sums and the seed. It is private and part of no export.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError
from gossamer.simulation.engine import World
from gossamer.simulation.tally import Tally


class Progress(NamedTuple):
    """How far a run has come."""

    exchanges: int
    worlds: World
    tally: Tally


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
    with np.load(path, allow_pickle=False) as file:
        arrays: dict[str, NDArray[Any]] = dict(file)
    facts = json.loads(str(arrays.pop("facts")))
    wanted = identity | {"every": facts["every"] if every is None else every}
    for key, value in wanted.items():
        if facts[key] != value:
            raise ConfigurationError(
                f"checkpoint ({key})", value, f"{facts[key]!r}, as in {path}", "name another file, or remove this one"
            )
    leaves = [arrays.pop(f"world/{i}") for i in range(len(jax.tree.leaves(fresh)))]
    worlds = jax.tree.unflatten(jax.tree.structure(fresh), leaves)
    return Progress(facts["exchanges"], worlds, Tally.restore(facts["every"], arrays))
