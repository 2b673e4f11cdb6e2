"""Running sums of private values, whether a mechanism releases the values or their sums."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gossamer.mechanisms.base import Grid, Mechanism, Noise, State


class Prefix(NamedTuple):
    """The noisy sum of all values so far, and the state of the mechanism that they were released through.

    >>> from gossamer.mechanisms import TreeSum
    >>> tree = TreeSum((1,), horizon=4)
    >>> quiet, prefix = {"noise": jnp.zeros(1)}, Prefix.start(tree)
    >>> for leaf in (1.0, 2.0, 4.0):
    ...     increment, prefix = prefix.release(tree, jnp.array([leaf]), quiet, {})
    >>> increment.tolist(), prefix.total.tolist()
    ([4.0], [7.0])
    """

    total: jax.Array
    inside: State

    @classmethod
    def start(cls, mechanism: Mechanism) -> Prefix:
        """Before the first value."""
        return cls(jnp.zeros(mechanism.shape, jnp.float32), mechanism.init())

    def release(self, mechanism: Mechanism, value: jax.Array, noise: Noise, grid: Grid) -> tuple[jax.Array, Prefix]:
        """Release one more value: by how much the noisy sum grows, and the sum after it.

        Mechanisms of prefix sums (`Mechanism.sums`) release the sum, and what is new is a difference of two releases;
        others release the value, and the sum is one of releases. Either is post-processing. One who needs no total
        calls `Additive.increment` instead, which is faster.
        """
        released, inside = mechanism.release(self.inside, value, noise, grid)
        if mechanism.sums:
            return released - self.total, Prefix(released, inside)
        return released, Prefix(self.total + released, inside)
