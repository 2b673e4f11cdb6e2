"""Arrays put onto the devices of a mesh: whole on every one, or, of the records of a stream, to whom they belong."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gossamer.problems import Block
from gossamer.streams import Feed
from gossamer.topology.halo import AXIS


@dataclass(frozen=True)
class Whole:
    """Puts arrays whole onto every device of a mesh; a value, so that who keeps arrays knows where they are."""

    mesh: Mesh

    def __call__(self, tree: Any) -> Any:
        """The same tree there."""
        return jax.tree.map(partial(put, NamedSharding(self.mesh, PartitionSpec())), tree)


@dataclass(frozen=True)
class Dealt:
    """Puts onto every device what its own learners read of a stream; whole, where a device needs no less."""

    mesh: Mesh

    def __call__(self, feed: Feed) -> Feed:
        """The feed there. One device after the other is served, so that the host has one piece at a time."""
        pieces = feed.pieces(self.mesh.size)
        if pieces is None:
            whole: Feed = Whole(self.mesh)(feed)
            return whole
        here = jax.process_index()
        mine = [(made, to) for made, to in zip(pieces, self.mesh.devices.flat, strict=True) if to.process_index == here]
        there = [jax.device_put(jax.tree.map(lambda leaf: np.asarray(leaf)[None], made()), to) for made, to in mine]
        return DealtFeed(jax.tree.map(self._joined, *there), self.mesh)

    def _joined(self, *rows: jax.Array) -> jax.Array:
        """The rows of this process's devices as a part of one array, axes (device, ...)."""
        shape, dealt = (self.mesh.size, *rows[0].shape[1:]), NamedSharding(self.mesh, PartitionSpec(AXIS))
        return jax.make_array_from_single_device_arrays(shape, dealt, list(rows))


@partial(jax.tree_util.register_dataclass, data_fields=["own"], meta_fields=["mesh"])
@dataclass(frozen=True, eq=False)
class DealtFeed(Feed):
    """On every device of a mesh what its own learners read; `own`: these feeds, axes (device, ...)."""

    own: Any
    mesh: Mesh

    def ahead(self, first: jax.Array, steps: int) -> Any:
        """Of every device's own."""
        return self._each(lambda own, first: own.ahead(first, steps), first, PartitionSpec())

    def samples(self, ahead: Any) -> Block:
        """Likewise: no record travels."""
        read: Block = self._each(lambda own, ahead: own.samples(ahead), ahead, _BY_LEARNER)
        return read

    def examples(self) -> Block:
        """Nobody asks: what is put on devices was checked before."""
        raise NotImplementedError

    def _each(self, read: Callable[[Feed, Any], Any], given: Any, lies: PartitionSpec) -> Any:
        def alone(own: Any, given: Any) -> Any:
            return read(jax.tree.map(lambda leaf: leaf[0], own), given)

        specs = (PartitionSpec(AXIS), lies)
        each = jax.shard_map(alone, mesh=self.mesh, in_specs=specs, out_specs=_BY_LEARNER, check_vma=False)
        return each(self.own, given)


_BY_LEARNER = PartitionSpec(None, AXIS)  # axes (step, learner, ...)


def put(sharding: NamedSharding, leaf: Any) -> jax.Array:
    """An array that every process has whole; one that lies there already is not moved."""
    if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
        return leaf
    there: jax.Array
    if sharding.is_fully_addressable:
        there = jax.device_put(leaf, sharding)
        return there
    values = np.asarray(leaf)  # `device_put` would compare them over the network first
    return jax.make_array_from_callback(values.shape, sharding, lambda piece: values[piece])
