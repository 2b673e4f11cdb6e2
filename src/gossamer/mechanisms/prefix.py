"""Running sums of private values: how noise enters them, and how they are kept whatever a mechanism releases."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from gossamer.checks import check_choice
from gossamer.errors import PrivacyError
from gossamer.mechanisms.additive import Additive, AdditiveLaw
from gossamer.mechanisms.base import Grid, Mechanism, Noise, State
from gossamer.mechanisms.factorized import Factorized
from gossamer.mechanisms.independent import Independent
from gossamer.mechanisms.tree import TreeSum

Aggregation = Literal["independent", "tree", "toeplitz", "blt", "optimal"]
"""How noise enters sums: fresh noise on every value, or noise that is correlated, so that sums have less of it."""


def prefix_sum(
    aggregation: Aggregation, shape: tuple[int, ...], horizon: int | None, *, law: AdditiveLaw, name: str = "noise"
) -> Additive:
    """The mechanism that releases values of which sums are taken.

    Args:
        aggregation: "independent" and "tree" have noise of any law; the others are Gaussian.
        shape: of the values.
        horizon: how many; None: no end, which "toeplitz" and "optimal", which remember all noise, do not have.
        law: of the noise.
        name: of the draws.

    >>> prefix_sum("blt", (3,), 100, law="laplace")
    Traceback (most recent call last):
    gossamer.errors.PrivacyError: aggregation: got 'blt'; allowed: 'tree' or 'independent' with laplace noise. Pure ...
    """
    check_choice("aggregation", aggregation, Aggregation)
    if aggregation == "independent":
        return Independent(shape, horizon=horizon, law=law, name=name)
    if aggregation == "tree":
        return TreeSum(shape, horizon=horizon, law=law, name=name)
    if law != "gaussian":
        hint = "pure noise pays the l1 norm of a column of the factor, which grows like a root of the horizon"
        raise PrivacyError.of("aggregation", aggregation, f"'tree' or 'independent' with {law} noise", hint)
    if aggregation == "blt":
        return Factorized.blt(shape, horizon, name=name)
    if horizon is None:
        hint = "it remembers all noise: 'blt' needs constant memory"
        raise PrivacyError.of("horizon", None, f"a number of samples with aggregation={aggregation!r}", hint)
    make = Factorized.toeplitz if aggregation == "toeplitz" else Factorized.optimal
    return make(shape, horizon, name=name)


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
