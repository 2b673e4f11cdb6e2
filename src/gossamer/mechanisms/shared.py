"""Selections among which one unit shares its sensitivity: it enters several of them, each by a little."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from gossamer.mechanisms.base import per_scale
from gossamer.mechanisms.selection import ExponentialMechanism, PermuteAndFlip, Selection
from gossamer.privacy import Budget, Concentrated, Loss, Pure, Sensitivity, accounting
from gossamer.spec import kind


@dataclass(frozen=True)
class Shared(Selection):
    """Several selections among which one unit shares its sensitivity.

    Attributes:
        leaves: in how many of them one unit enters at most.
    """

    _: KW_ONLY
    leaves: int = 1

    def promises(self) -> tuple[str, ...]:
        """How a unit is shared out."""
        return (*super().promises(), f"one unit shares its sensitivity among at most {self.leaves} selections")

    def touched(self, position: int | None) -> int:
        """The draws of all of them."""
        return self.leaves

    def rounded(self, sensitivity: Sensitivity, grid: float) -> Sensitivity:
        """On a lattice each score of each of them is rounded."""
        return super().rounded(sensitivity, self.leaves * grid)


@kind("mechanism", "shared-flip")
@dataclass(frozen=True)
class SharedFlip(Shared, PermuteAndFlip):
    """Permute-and-flip on scores that one unit moves by D_1, D_2, ... with D_1 + D_2 + ... <= D: costs add up."""

    def loss(self, sensitivity: Sensitivity, scales: Mapping[str, float], position: int | None) -> Loss:
        """Pure, however many selections share D."""
        return Pure(0.0 if position == 0 else per_scale(self._moved(sensitivity), scales[self.name]))

    def _share(self, budget: Budget) -> float:
        return budget.epsilon


@kind("mechanism", "spread")
@dataclass(frozen=True)
class Spread(Shared, ExponentialMechanism):
    """Exponential mechanisms on scores that one unit moves by D_1, D_2, ... with D_1^2 + D_2^2 + ... <= D^2.

    Each costs (2 D_k / scale)^2 / 8 in zero-concentrated privacy (its range is bounded), and these add up.
    """

    def loss(self, sensitivity: Sensitivity, scales: Mapping[str, float], position: int | None) -> Loss:
        """Concentrated, however many selections share D."""
        if position == 0:
            return Pure(0.0)
        return Concentrated(per_scale(self._moved(sensitivity), scales[self.name]) ** 2 / 8)

    def _share(self, budget: Budget) -> float:
        return accounting.largest_within(lambda e: accounting.zcdp_epsilon(e**2 / 8, budget.delta), budget.epsilon)
