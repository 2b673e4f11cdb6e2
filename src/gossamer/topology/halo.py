"""Neighbour lists over several devices: which rows of others each device needs, and how it gets them.

Learners are dealt to devices in equal runs: of n learners on p devices, device q has q n/p, ..., (q+1) n/p - 1.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

AXIS = "learners"
"""The axis of a mesh over which learners are dealt."""


def halo(lists: dict[str, Any], parts: int) -> dict[str, Any]:
    """Fixed neighbour lists for so many devices, computed once on the host.

    `sent r`, for every r that somebody needs: which of its rows each device q sends to device q + r, (q, row), as many
    as the one that sends most. `speakers`: places in what a device has at hand: its own rows first, then what it got.

    >>> ring = {"speakers": np.array([[3, 1], [0, 2], [1, 3], [2, 0]]), "weights": np.full((4, 3), 1 / 3)}
    >>> split = halo(ring, 2)
    >>> split["speakers"].tolist(), split["sent 1"].tolist()
    ([[3, 1], [0, 2], [3, 1], [0, 2]], [[0, 1], [0, 1]])
    """
    speakers = lists["speakers"].astype(np.int64)
    rows = len(speakers) // parts
    receiver = np.repeat(np.arange(parts), rows)[:, None]
    owner, row = speakers // rows, speakers % rows
    remote = owner != receiver
    distance = (receiver - owner) % parts
    # One number for every row that a device needs of another, sorted by how far it travels and by who sends: each once.
    needed, found = np.unique(((distance * parts + owner) * rows + row)[remote], return_inverse=True)
    counts = np.bincount(needed // rows, minlength=parts * parts)
    place = np.arange(len(needed)) - np.repeat(np.cumsum(counts) - counts, counts)
    widths = counts.reshape(parts, parts).max(axis=1)
    begins = rows + np.cumsum(widths) - widths
    local = row.copy()
    local[remote] = begins[distance[remote]] + place[found.reshape(-1)]
    sent = {f"sent {far}": np.zeros((parts, widths[far]), np.int32) for far in np.flatnonzero(widths)}
    for far in np.flatnonzero(widths):
        mine = needed // rows // parts == far
        sent[f"sent {far}"][needed[mine] // rows % parts, place[mine]] = needed[mine] % rows
    return lists | {"speakers": local.astype(np.int32)} | sent


def within_reach(lists: dict[str, Any], own: jax.Array) -> jax.Array:
    """The rows that neighbour lists point into: one's own, and on several devices those of others, (row, number)."""
    if "everybody" in lists:  # lists that change: nobody knows beforehand which rows are needed
        rows: jax.Array = lax.all_gather(own, AXIS, tiled=True)
        return rows
    distances = sorted(int(name.removeprefix("sent ")) for name in lists if name.startswith("sent "))
    return jnp.concatenate([own, *(_from(far, lists, own) for far in distances)]) if distances else own


def _from(far: int, lists: dict[str, Any], own: jax.Array) -> jax.Array:
    """What the device so far before this one sends."""
    parts = lax.axis_size(AXIS)
    said = own.at[lists[f"sent {far}"][0]].get(mode="promise_in_bounds")
    got: jax.Array = lax.ppermute(said, AXIS, [(q, (q + far) % parts) for q in range(parts)])
    return got


def weights_specs(weights: dict[str, Any]) -> dict[str, PartitionSpec]:
    """Which weights of a mixing are dealt with the learners; matrices are the same on every device.

    >>> [tuple(spec) for spec in weights_specs({"matrix": 0, "speakers": 0}).values()]
    [(), ('learners',)]
    """
    dealt = ("speakers", "weights", "sent")
    return {name: PartitionSpec(AXIS) if name.startswith(dealt) else PartitionSpec() for name in weights}
