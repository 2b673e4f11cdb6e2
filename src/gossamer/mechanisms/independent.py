"""Fresh noise on every release."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import jax
import jax.numpy as jnp

from gossamer.checks import check_count
from gossamer.mechanisms.additive import Additive
from gossamer.mechanisms.base import Grid, Noise, State, snap
from gossamer.spec import kind


@kind("mechanism", "independent")
@dataclass(frozen=True)
class Independent(Additive):
    """Adds one fresh draw to every value. One unit enters one value, so the loss does not grow with the horizon.

    *Proof.* Condition on the releases before the value that the unit enters: they have the same law under both
    neighbours. That value is released once, with noise that covers its sensitivity. All later values depend on the unit
    through earlier releases only (they are functions of what was released and of other data), so they add nothing. This
    holds for adaptive streams, and for endless ones.

    Attributes:
        touches: how many of the values one unit can move. 1 where later values depend on it through releases only; the
            horizon where nothing keeps it out of them. Then pure losses add up, and Gaussian ones in squares.

    >>> from gossamer.privacy import Budget, Sensitivity
    >>> noisy = Independent((2,), law="laplace").calibrate(Sensitivity(l1=2.0, l2=2.0), Budget(0.5))
    >>> round(noisy.scales["noise"][0].value, 6), noisy.losses
    (4.0, (Pure(value=0.49999...),))
    """

    _: KW_ONLY
    touches: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("touches", self.touches)

    @property
    def composes(self) -> bool:
        """Where a unit may move every value."""
        return self.horizon is not None and self.touches >= self.horizon

    def init(self) -> State:
        """How many releases there were, where their number is bounded; else nothing."""
        return () if self.horizon is None else jnp.zeros((), jnp.int32)

    def release(self, state: State, value: jax.Array, noise: Noise, grid: Grid) -> tuple[jax.Array, State]:
        """Value plus noise, each on the lattice; the sum of two points of the lattice is one too."""
        spacing = grid.get(self.name)
        noisy = snap(value, spacing) + snap(noise[self.name], spacing)
        if self.horizon is None:
            return noisy, state
        return self._guard(state, noisy), jnp.where(state < self.horizon, state + 1, state)

    def increment(self, state: State, value: jax.Array, noise: Noise, grid: Grid) -> tuple[jax.Array, State]:
        """What is released: the noisy value."""
        return self.release(state, value, noise, grid)

    def gain(self, position: int | None) -> float:
        """A unit enters `touches` releases."""
        touched = self.touched(position)
        return math.sqrt(touched) if self.law == "gaussian" else touched

    def mean_error(self, rows: int) -> float:
        """The variance of the noise in the sum of 1, ..., `rows` releases, averaged, for draws of variance 1.

        >>> Independent((3,)).mean_error(9)
        5.0
        """
        self.require(check_count("rows", rows))
        return (rows + 1) / 2

    def touched(self, position: int | None) -> float:
        """The draws of the values that a unit moves."""
        return float(self.touches if position is None else min(self.touches, position))
