"""How the learners of a run lie on devices: all on one, or dealt over a mesh.

JAX's own partitioner splits the compiled loop. Here it is told where arrays lie; what it computes does not depend on
that, since noise and samples are functions of a learner's number. Where an order of additions would, arrays are put
together first, or rows travel by hand (`gossamer.topology.halo`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from gossamer.problems import Block
from gossamer.simulation.placing import Dealt, Whole, put
from gossamer.simulation.watch import waited_for
from gossamer.streams import Feed
from gossamer.topology import Mixing
from gossamer.topology.halo import AXIS, halo, weights_specs

Tree = TypeVar("Tree")


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

    def worlds(self, worlds: Any, row_dealt: bool) -> Any:
        """States of a program: of learners dealt, of the server whole."""
        learners, server = self.split(worlds.learners), self.whole(worlds.server)
        return worlds._replace(learners=learners, server=server, row=self.row(worlds.row, row_dealt))

    def row(self, row: jax.Array, dealt: bool) -> jax.Array:
        """Rows, axes (..., figure): dealt or whole."""
        if self.mesh is None:
            return row
        laid: jax.Array = lax.with_sharding_constraint(row, self._row_lies(row.ndim, dealt))
        return laid

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
        return jax.tree.map(lambda leaf: put(self._dealt(np.shape(leaf), axis), leaf), tree)

    def put_feed(self, shared: bool) -> Callable[[Feed], Feed] | None:
        """Puts what programs read of a stream onto the devices; None: as JAX does by itself."""
        if self.mesh is None:
            return None
        return Whole(self.mesh) if shared else Dealt(self.mesh)

    def put_constant(self, weights: Any) -> Any:
        """Mixing weights that never change; neighbour lists with which rows travel."""
        if self.mesh is None or not weights:
            return jax.device_put(weights)
        lists = halo(weights, self.parts) if "speakers" in weights else weights
        specs = weights_specs(lists)
        return {name: put(NamedSharding(self.mesh, specs[name]), leaf) for name, leaf in lists.items()}

    def put_varying(self, weights: Any) -> Any:
        """What changes from exchange to exchange, leading axis (exchange,): weights by name, or who takes part."""
        if self.mesh is None:
            return weights
        if not isinstance(weights, dict):
            return self.put(weights, 1)
        specs = {name: PartitionSpec(None, *spec) for name, spec in weights_specs(weights).items()}
        return {name: put(NamedSharding(self.mesh, specs[name]), leaf) for name, leaf in weights.items()}

    def put_samples(self, block: Block, shared: bool) -> Block:
        """Samples that the host has read, axes (exchange, step, learner or batch, ...); programs take them as they are.

        On a mesh those of learners are dealt.
        """
        return block if self.mesh is None else Block(*self.put(tuple(block), None if shared else 2))

    def put_worlds(self, worlds: Any, row_dealt: bool) -> Any:
        """States that were read from a file, or that are there already."""
        if self.mesh is None:
            return worlds
        learners, server = self.put(worlds.learners, 1), Whole(self.mesh)(worlds.server)
        row = put(self._row_lies(np.ndim(worlds.row), row_dealt), worlds.row)
        return worlds._replace(learners=learners, server=server, row=row)

    def row_as_one(self, row: Any) -> NDArray[Any]:
        """Rows as one device would have them: see `parted`."""
        whole = self.fetch(row)
        dealt = isinstance(row, jax.Array) and self.parts > 1 and not row.is_fully_replicated
        return joined(whole, self.parts) if dealt else whole

    def fetch(self, array: Any) -> NDArray[Any]:
        """An array of the devices on this host, complete on every one of several."""
        if not isinstance(array, jax.Array):
            return np.asarray(array)
        if array.is_fully_addressable or array.is_fully_replicated:
            return self._arrived(lambda: array)
        axis = array.sharding.spec.index(AXIS)  # type: ignore[attr-defined]  # of a NamedSharding
        whole, rows = np.empty(array.shape, array.dtype), array.shape[axis] // self.parts
        for part in range(self.parts):
            whole[(slice(None),) * axis + (slice(part * rows, (part + 1) * rows),)] = self._piece(array, axis, part)
        return whole

    def pieces(self, array: Any) -> Iterator[NDArray[Any]]:
        """An array (copy, learner, ...) from its first number to its last, piece by piece: no host holds all of it."""
        if self.mesh is None or not isinstance(array, jax.Array) or array.is_fully_replicated:
            yield self.fetch(array)
            return
        for copy in range(array.shape[0]):
            for part in range(self.parts):
                yield self._piece(array, 1, part, np.int32(copy))

    def said_by_all(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """An array of every process, by its number: of the same shape everywhere."""
        assert self.mesh is not None
        shape, dealt = (self.parts, *values.shape), NamedSharding(self.mesh, PartitionSpec(AXIS))
        said = self.fetch(jax.make_array_from_callback(shape, dealt, lambda piece: values[None]))
        whose = [device.process_index for device in self.mesh.devices.flat]
        return [said[whose.index(process)] for process in range(jax.process_count())]

    def _piece(self, array: jax.Array, axis: int, part: int, copy: np.int32 | None = None) -> NDArray[Any]:
        """What one device has of an array, or of one number along its first axis, on every host."""
        assert self.mesh is not None
        return self._arrived(partial(_shown_by_one, array, np.int32(part), copy, axis, self.mesh))

    def _arrived(self, array: Callable[[], jax.Array]) -> NDArray[Any]:
        """An array that this host can read, when it is there."""
        return waited_for(lambda: np.asarray(array())) if self.several else np.asarray(array())

    def _dealt(self, shape: tuple[int, ...], axis: int | None) -> NamedSharding:
        assert self.mesh is not None
        dealt = axis is not None and len(shape) > axis and shape[axis] == self.learners
        spec = PartitionSpec(*(None,) * (axis or 0), AXIS) if dealt else PartitionSpec()
        return NamedSharding(self.mesh, spec)

    def _row_lies(self, axes: int, dealt: bool) -> NamedSharding:
        assert self.mesh is not None
        return NamedSharding(self.mesh, PartitionSpec(*(None,) * (axes - 1), AXIS) if dealt else PartitionSpec())


ALONE = Spread()
"""All learners on one device."""


def parted(row: NDArray[Any], parts: int) -> NDArray[Any]:
    """Rows, axes (..., figure), as devices have them that each hold a run of the learners.

    The figures of all learners come first, and one of all together is the last. Every device has this one too.

    >>> parted(np.array([1, 2, 3, 4, 9]), 2).tolist(), joined(np.array([1, 2, 9, 3, 4, 9]), 2).tolist()
    ([1, 2, 9, 3, 4, 9], [1, 2, 3, 4, 9])
    """
    own = row[..., :-1].reshape(*row.shape[:-1], parts, -1)
    last = np.broadcast_to(row[..., None, -1:], (*own.shape[:-1], 1))
    return np.concatenate([own, last], axis=-1).reshape(*row.shape[:-1], -1)


def joined(row: NDArray[Any], parts: int) -> NDArray[Any]:
    """Such rows as one device has them."""
    each = row.reshape(*row.shape[:-1], parts, -1)
    return np.concatenate([each[..., :-1].reshape(*row.shape[:-1], -1), each[..., 0, -1:]], axis=-1)


@partial(jax.jit, static_argnames=("axis", "mesh"))
def _shown_by_one(array: jax.Array, part: Any, copy: Any, axis: int, mesh: Mesh) -> jax.Array:
    """What one device has of an array that is dealt along an axis; the partitioner would put all of it together."""

    def shown(own: jax.Array, part: jax.Array) -> jax.Array:
        summed: jax.Array = lax.psum(jnp.where(lax.axis_index(AXIS) == part, own, jnp.zeros_like(own)), AXIS)
        return summed

    kind = array.dtype
    words = lax.bitcast_convert_type(array, np.uint32) if kind.itemsize == 4 else array.astype(np.uint32)
    dealt = PartitionSpec(*(None,) * axis, AXIS)
    if copy is not None:
        words, dealt = words[copy], PartitionSpec(*dealt[1:])
    one = jax.shard_map(shown, mesh=mesh, in_specs=(dealt, PartitionSpec()), out_specs=PartitionSpec(), check_vma=False)
    found = one(words, part)  # words, since sums of them keep every bit
    shown_to_all: jax.Array = lax.bitcast_convert_type(found, kind) if kind.itemsize == 4 else found.astype(kind)
    return shown_to_all
