"""How the learners of a run lie on devices: all on one, or dealt over a mesh.

JAX's own partitioner splits the compiled loop. Here it is told where arrays lie; what it computes does not depend on
that, since noise and samples are functions of a learner's number. Where an order of additions would, arrays are put
together first, or rows travel by hand (`gossamer.topology.halo`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import jax
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from gossamer.problems import Block
from gossamer.topology import Mixing
from gossamer.topology.halo import AXIS, halo, weights_specs

Tree = TypeVar("Tree")


@dataclass(frozen=True)
class Whole:
    """Puts arrays whole onto every device of a mesh; a value, so that who keeps arrays knows where they are."""

    mesh: Mesh

    def __call__(self, tree: Any) -> Any:
        """The same tree there."""
        return jax.tree.map(partial(_put, NamedSharding(self.mesh, PartitionSpec())), tree)


@dataclass(frozen=True)
class Spread:
    """Where the learners are: dealt over the devices of a mesh in equal runs, or all on one device without a mesh.

    >>> Spread().parts, Spread().split(3)
    (1, 3)
    """

    mesh: Mesh | None = None
    learners: int = 0

    @property
    def parts(self) -> int:
        """How many devices there are."""
        return 1 if self.mesh is None else int(self.mesh.size)

    @property
    def several(self) -> bool:
        """Whether other processes run parts of it too."""
        return self.mesh is not None and bool(self.mesh.is_multi_process)

    @property
    def writes(self) -> bool:
        """Whether this process writes files: of several only the first does."""
        return not self.several or jax.process_index() == 0

    # Within compiled programs.

    def split(self, tree: Tree, axis: int = 1) -> Tree:
        """Arrays of a program with the learners at this axis dealt, and others whole."""
        if self.mesh is None:
            return tree

        def constrain(leaf: jax.Array) -> Any:
            return lax.with_sharding_constraint(leaf, self._dealt(leaf.shape, axis))

        dealt: Tree = jax.tree.map(constrain, tree)
        return dealt

    def whole(self, tree: Tree) -> Tree:
        """Arrays of a program put together on every device."""
        if self.mesh is None:
            return tree
        together: Tree = lax.with_sharding_constraint(tree, NamedSharding(self.mesh, PartitionSpec()))
        return together

    def worlds(self, worlds: Any) -> Any:
        """States of a program: of learners dealt, of the server and the row whole."""
        rest = self.whole((worlds.server, worlds.row))
        return worlds._replace(learners=self.split(worlds.learners), server=rest[0], row=rest[1])

    def mix(self, mixing: Mixing, constant: Any, varying: Any, messages: Any) -> Any:
        """What each learner hears: bit by bit what one device computes.

        Where messages are multiplied with a matrix, learners are few: every device multiplies all of them, as one
        device would. From neighbour lists each device computes what its own learners hear.
        """
        if self.mesh is None:
            return mixing.mix(constant, varying, messages)

        def from_lists(constant: Any, varying: Any, own: Any) -> Any:
            return mixing.mix(constant, varying | ({"everybody": True} if "speakers" in varying else {}), own)

        def from_all(constant: Any, varying: Any, own: Any) -> Any:
            everybody = jax.tree.map(partial(lax.all_gather, axis_name=AXIS, tiled=True), own)
            first = lax.axis_index(AXIS) * (self.learners // self.parts)
            return jax.tree.map(
                lambda all_, mine: lax.dynamic_slice_in_dim(all_, first, len(mine)),
                mixing.mix(constant, varying, everybody),
                own,
            )

        mixed = jax.shard_map(
            from_lists if "speakers" in constant | varying else from_all,
            mesh=self.mesh,
            in_specs=(weights_specs(constant), weights_specs(varying), PartitionSpec(AXIS)),
            out_specs=PartitionSpec(AXIS),
            check_vma=False,
        )
        return mixed(constant, varying, messages)

    # Between the host and the devices.

    def put(self, tree: Any, axis: int | None = None) -> Any:
        """The host's arrays on the devices, with the learners at this axis dealt; None: whole."""
        if self.mesh is None:
            return jax.device_put(tree, may_alias=True)
        return jax.tree.map(lambda leaf: _put(self._dealt(np.shape(leaf), axis), leaf), tree)

    @property
    def put_whole(self) -> Callable[[Any], Any] | None:
        """Puts arrays whole onto every device; None: as JAX does by itself."""
        return None if self.mesh is None else Whole(self.mesh)

    def put_constant(self, weights: Any) -> Any:
        """Mixing weights that never change; neighbour lists with which rows travel."""
        if self.mesh is None or not weights:
            return jax.device_put(weights)
        lists = halo(weights, self.parts) if "speakers" in weights else weights
        specs = weights_specs(lists)
        return {name: _put(NamedSharding(self.mesh, specs[name]), leaf) for name, leaf in lists.items()}

    def put_varying(self, weights: Any) -> Any:
        """What changes from exchange to exchange, leading axis (exchange,): weights by name, or who takes part."""
        if self.mesh is None:
            return weights
        if not isinstance(weights, dict):
            return self.put(weights, 1)
        specs = {name: PartitionSpec(None, *spec) for name, spec in weights_specs(weights).items()}
        return {name: _put(NamedSharding(self.mesh, specs[name]), leaf) for name, leaf in weights.items()}

    def put_samples(self, block: Block, shared: bool) -> Block:
        """Samples that the host has read, axes (exchange, step, learner or batch, ...); programs take them as they are.

        On a mesh those of learners are dealt.
        """
        return block if self.mesh is None else Block(*self.put(tuple(block), None if shared else 2))

    def put_worlds(self, worlds: Any) -> Any:
        """States that were read from a file, or that are there already."""
        if self.mesh is None:
            return worlds
        server, row = Whole(self.mesh)((worlds.server, worlds.row))
        return worlds._replace(learners=self.put(worlds.learners, 1), server=server, row=row)

    def fetch(self, array: Any) -> NDArray[Any]:
        """An array of the devices on this host, complete on every one of several."""
        if isinstance(array, jax.Array) and not (array.is_fully_addressable or array.is_fully_replicated):
            return np.asarray(multihost_utils.process_allgather(array, tiled=True))
        return np.asarray(array)

    def pieces(self, array: Any) -> Iterator[NDArray[Any]]:
        """An array (copy, learner, ...) from its first number to its last, piece by piece: no host holds all of it."""
        if self.mesh is None or not isinstance(array, jax.Array) or array.is_fully_replicated:
            yield np.asarray(array)
            return
        rows = self.learners // self.parts
        together = NamedSharding(self.mesh, PartitionSpec())
        cut = jax.jit(_cut, static_argnames="rows", out_shardings=together)
        for copy in range(array.shape[0]):
            for part in range(self.parts):
                yield np.asarray(cut(array, np.int32(copy), np.int32(part * rows), rows=rows))

    def _dealt(self, shape: tuple[int, ...], axis: int | None) -> NamedSharding:
        assert self.mesh is not None
        dealt = axis is not None and len(shape) > axis and shape[axis] == self.learners
        spec = PartitionSpec(*(None,) * (axis or 0), AXIS) if dealt else PartitionSpec()
        return NamedSharding(self.mesh, spec)


ALONE = Spread()
"""All learners on one device."""


def _cut(array: jax.Array, copy: Any, first: Any, rows: int) -> jax.Array:
    return lax.dynamic_slice_in_dim(array[copy], first, rows)


def _put(sharding: NamedSharding, leaf: Any) -> jax.Array:
    """An array that every process has whole; one that lies there already is not moved."""
    if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
        return leaf
    put: jax.Array
    if sharding.is_fully_addressable:
        put = jax.device_put(leaf, sharding)
        return put
    values = np.asarray(leaf)  # `device_put` would compare them over the network first
    return jax.make_array_from_callback(values.shape, sharding, lambda piece: values[piece])
