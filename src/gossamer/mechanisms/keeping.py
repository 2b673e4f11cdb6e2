"""Whether something is kept after a loss, with a probability that falls with it: one answer of yes or no."""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import jax

from gossamer.mechanisms.base import Grid, Mechanism, Noise, per_scale, snap
from gossamer.privacy import Budget, Law, Loss, Pure, Sensitivity
from gossamer.spec import kind


@kind("mechanism", "keeping")
@dataclass(frozen=True)
class Keeping(Mechanism):
    """Whether a choice survives a loss: P(yes) = (1 - restless) exp(-loss / scale).

    One unit moves one loss by D at most. P(yes) changes by a factor of e^(D / scale) at most, P(no) by
    1 + (1 - restless)(1 - e^(-D / scale)) / restless at most, at a loss of 0: restless > 0 is what makes this finite.

    An exponential draw E exceeds l - scale ln(1 - p) with exactly that probability. On a lattice the probability is
    smaller by a common factor, as if p were larger, and one sample still moves it by e^(-move / scale).

    Attributes:
        restless: p, how likely a change is where there is no loss.

    >>> keeping = Keeping((), restless=0.1).at_scale(Sensitivity(1.0, 1.0), noise=20.0)
    >>> keeping.losses
    (Pure(value=0.36...),)
    """

    _: KW_ONLY
    restless: float

    @property
    def order(self) -> Literal[1, 2]:
        """Both norms of one number are the same."""
        return 1

    def laws(self) -> Mapping[str, tuple[Law, tuple[int, ...]]]:
        """One number."""
        return {self.name: ("exponential", ())}

    def promises(self) -> tuple[str, ...]:
        """What the value holds besides the loss."""
        return (f"a loss is released with -scale ln(1 - {self.restless:.4g}) added",)

    def init(self) -> Any:
        """Nothing to remember."""
        return ()

    def release(self, state: Any, value: jax.Array, noise: Noise, grid: Grid) -> tuple[jax.Array, Any]:
        """Whether to keep; `value` is the loss less scale ln(1 - restless), which is public."""
        spacing = grid.get(self.name)
        return snap(noise[self.name], spacing) > snap(value, spacing), state

    def loss(self, sensitivity: Sensitivity, scales: Mapping[str, float], position: int | None) -> Loss:
        """Each unit enters one loss."""
        if position == 0:
            return Pure(0.0)
        moved = per_scale(sensitivity.l1, scales[self.name])
        return Pure(max(moved, math.log1p((1 - self.restless) * -math.expm1(-moved) / self.restless)))

    def scales(self, sensitivity: Sensitivity, budget: Budget) -> dict[str, float]:
        """The loss solved for the scale."""
        most = math.expm1(budget.epsilon) * self.restless / (1 - self.restless)
        moved = min(budget.epsilon, -math.log1p(-most) if most < 1 else math.inf)
        return {self.name: sensitivity.l1 / moved}

    def touched(self, position: int | None) -> float:
        """One draw."""
        return 1.0
