"""Noise on messages whose senders also play what they did not noise: later messages leak a unit again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count
from gossamer.mechanisms.independent import Independent
from gossamer.privacy import Sensitivity
from gossamer.spec import kind


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
