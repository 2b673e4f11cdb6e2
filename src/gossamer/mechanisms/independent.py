"""Fresh noise on every release: of values, of views of one hidden state, and of messages that leak a unit again."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count
from gossamer.errors import PrivacyError
from gossamer.mechanisms.additive import Additive
from gossamer.mechanisms.base import Grid, Noise, State, snap
from gossamer.privacy import Loss, Sensitivity
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

    >>> from gossamer.privacy import Budget
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


@dataclass(frozen=True)
class Cumulative(Sensitivity, ABC):
    """How far one unit moves all views together, which also knows how far it moves the first few."""

    @abstractmethod
    def until(self, order: Literal[1, 2], count: int | None) -> Sensitivity:
        """Of the first `count` views only; None: of all."""

    @abstractmethod
    def rounded(self, spacing: float) -> Cumulative:
        """Of views that are rounded to a lattice, once `until` says how many there are."""


@kind("mechanism", "views")
@dataclass(frozen=True)
class Views(Independent):
    """Noisy views of a hidden state, each with noise of its own; sensitivities are those of all views together.

    Those that are `Cumulative` also know how far a unit moves the first few.

    >>> release = Views((112,), law="laplace").at_scale(Sensitivity(l1=270.0, l2=3.78), noise=1.0)
    >>> [release.spent(t).epsilon(0.0) for t in (1, 2000)]
    [270.0, 270.0]
    """

    def promises(self) -> tuple[str, ...]:
        """What a sensitivity is that of."""
        return ("the sensitivity is that of all views together",)

    def loss(self, sensitivity: Sensitivity, scales: Mapping[str, float], position: int | None) -> Loss:
        """That of one release whose value moves as far as all views together."""
        if isinstance(sensitivity, Cumulative) and position != 0:
            sensitivity = sensitivity.until(self.order, position)
        return super().loss(sensitivity, scales, position)

    def touched(self, position: int | None) -> float:
        """Every view's draw."""
        return math.inf if position is None else float(position)

    def gain(self, position: int | None) -> float:
        """All views are in the sensitivity."""
        return 1.0

    def rounded(self, sensitivity: Sensitivity, grid: float) -> Sensitivity:
        """On a lattice: every view is rounded, and an endless stream of them rounds without end."""
        if not grid:
            return sensitivity
        if self.horizon is None:
            raise PrivacyError(
                "lattice: every view is rounded, and an endless stream rounds without end. Give a horizon."
            )
        if isinstance(sensitivity, Cumulative):
            return sensitivity.rounded(grid).until(self.order, self.horizon)
        views = self.horizon * math.prod(self.shape)
        return Sensitivity(sensitivity.l1 + grid * views, sensitivity.l2 + grid * math.sqrt(views))


@kind("mechanism", "releaked")
@dataclass(frozen=True)
class Releaked(Independent):
    """Fresh noise on duals whose decisions are not noised: a unit moves its own message and, through them, later ones.

    *Proof.* Condition on all messages before exchange e. A dual differs between neighbours by weight (u - u') only,
    on the node's own coordinates; call its norm a(e). Decisions then differ by at most step(e) a(e) / w (projections do
    not expand), so the next gradient of a loss that is G-smooth differs by min(2 c, G step(e) a(e) / w), and

        a(e+1) = weight min(2 c, G step(e) a(e) / w),      a(1) = 2 c weight.

    The losses of all messages add up to `reach` times that of the first. Steps do not grow, so a unit costs most where
    it enters the first batch.

    Attributes:
        reach: sum over e of a(e) / a(1), at least 1 and at most the horizon.

    >>> Releaked((1,), horizon=100, reach=7.5).gain(3), Releaked((1,), horizon=9, reach=7.5).gain(9)
    (3.0, 7.5)
    """

    _: KW_ONLY
    reach: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "touches", check_count("horizon", self.horizon))

    def promises(self) -> tuple[str, ...]:
        """How far a unit reaches."""
        return (f"later messages cost at most {self.reach:.4g} times the first",)

    def gain(self, position: int | None) -> float:
        """What the messages up to `position` cost, in units of the first: none costs more than it."""
        return self.reach if position is None else min(self.reach, float(position))

    def rounded(self, sensitivity: Sensitivity, grid: float) -> Sensitivity:
        """On a lattice: every message is rounded, however little it moves; `gain` counts `reach` of them."""
        assert self.horizon is not None
        return super().rounded(sensitivity, grid * self.horizon / self.reach)

    def claims(self, epsilon: float) -> str:
        """What a paper claims of its noise, and what passes of it."""
        assert self.horizon is not None
        return (
            f"published as epsilon {epsilon:.4g}, a share of {epsilon / self.horizon:.4g} for each of "
            f"{self.horizon:,} messages; of these a sample moves as much as {self.reach:.4g} times its first"
        )


def reach(step: Callable[[NDArray[np.int64]], NDArray[np.float64]], horizon: int, stretch: float) -> float:
    """How many times the cost of its first message a unit causes over the horizon, at most; see `Releaked`.

    Args:
        step: the step size at exchange 1, 2, ..., which does not grow.
        horizon: exchanges.
        stretch: weight G / w: how much a difference of duals grows in one exchange at step 1; infinite where the loss
            is not known to be smooth.

    >>> [round(7 * reach(lambda t: np.maximum(t - 1, 1) ** -0.5, 500, 7 * G), 1) for G in (0.01, 0.05, 0.25, 1.0)]
    [7.5, 10.6, 54.7, 441.5]
    """
    if math.isinf(stretch):
        return float(horizon)
    moved, total = 1.0, 1.0
    for size in step(np.arange(1, horizon)):
        moved = min(1.0, stretch * float(size) * moved)
        total += moved
    return total
