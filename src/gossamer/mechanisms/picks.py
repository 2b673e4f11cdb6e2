"""Public randomness: draws that choose, and protect nothing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax

from gossamer.mechanisms.base import Mechanism
from gossamer.privacy import Budget, Law, Loss, Pure, Sensitivity
from gossamer.spec import kind


@kind("mechanism", "picks")
@dataclass(frozen=True)
class Picks(Mechanism):
    """Which samples are drawn: uniform numbers that protect nothing."""

    @property
    def order(self) -> Literal[1, 2]:
        """Of no meaning here."""
        return 2

    def laws(self) -> Mapping[str, tuple[Law, tuple[int, ...]]]:
        """One number for every pick."""
        return {self.name: ("uniform", self.shape)}

    def init(self) -> Any:
        """Nothing to remember."""
        return ()

    def release(self, state: Any, value: jax.Array, noise: Any, grid: Any) -> tuple[jax.Array, Any]:
        """Nothing is added to the value."""
        return value, state

    def loss(self, sensitivity: Sensitivity, scales: Mapping[str, float], position: int | None) -> Loss:
        """Without bound."""
        return Pure(math.inf)

    def scales(self, sensitivity: Sensitivity, budget: Budget) -> dict[str, float]:
        """Those of the uniform law."""
        return {self.name: 1.0}
