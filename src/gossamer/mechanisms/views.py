"""Noisy views of one hidden state, released again and again."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gossamer.errors import PrivacyError
from gossamer.mechanisms.independent import Independent
from gossamer.privacy import Loss, Sensitivity
from gossamer.spec import kind


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
