"""Mechanisms that add noise of one law and one scale."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal, get_args

import jax

from gossamer.errors import ConfigurationError
from gossamer.mechanisms.base import Grid, Mechanism, Noise, State, per_scale
from gossamer.privacy import Budget, Gaussian, Law, Loss, Pure, Sensitivity, accounting

AdditiveLaw = Literal["laplace", "l2-laplace", "gaussian"]
"""The laws of noise that is added to values."""


@dataclass(frozen=True)
class Additive(Mechanism):
    """Adds noise of one law and one scale; a subclass says how often one value enters the noisy releases.

    Let one unit move one value by at most D, and let everything released be a function of noisy linear combinations in
    which that value has the coefficients c_1, c_2, ... Then (each by composition, adaptively)

    - Laplace, scale b:     epsilon = sum_k |c_k| D_1 / b,          D_1 in the l1 norm
    - l2-Laplace, scale b:  epsilon = sum_k |c_k| D_2 / b,          D_2 in the Euclidean norm
    - Gaussian, scale s:    mu = sqrt(sum_k c_k^2) D_2 / s,         exact Gaussian differential privacy

    The density of l2-Laplace noise is proportional to exp(-|x|_2 / b), so moving it by v changes the log density by at
    most |v|_2 / b. A Gaussian vector is as hard to tell from its shift by v as N(0, 1) from N(|v|_2 / s, 1).
    """

    _: KW_ONLY
    law: AdditiveLaw = "laplace"

    ALLOWED: ClassVar[tuple[AdditiveLaw, ...]] = get_args(AdditiveLaw)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.law not in self.ALLOWED:
            raise ConfigurationError("law", self.law, " or ".join(map(repr, self.ALLOWED)))

    @abstractmethod
    def mean_error(self, rows: int) -> float:
        """The variance of the noise in the first `rows` prefix sums, averaged, for draws of variance 1."""

    @abstractmethod
    def increment(self, state: State, value: jax.Array, noise: Noise, grid: Grid) -> tuple[jax.Array, State]:
        """By how much the noisy sum of all values grows, and the state after it: for one who sends only what is new.

        A run either releases or increments: the state keeps no total here.
        """

    @abstractmethod
    def gain(self, position: int | None) -> float:
        """The norm of the coefficients of one value in the first `position` releases: l1, or l2 for a Gaussian."""

    def laws(self) -> Mapping[str, tuple[Law, tuple[int, ...]]]:
        """One vector a release."""
        return {self.name: (self.law, self.shape)}

    @property
    def order(self) -> Literal[1, 2]:
        """The l1 norm for Laplace noise, else the Euclidean one."""
        return 1 if self.law == "laplace" else 2

    def loss(self, sensitivity: Sensitivity, scales: Mapping[str, float], position: int | None) -> Loss:
        """Pure for the Laplace laws, Gaussian else."""
        if position == 0:
            return Pure(0.0)
        moved = self.gain(position) * sensitivity.of(self.order)
        ratio = per_scale(moved, scales[self.name])
        return Gaussian(ratio) if self.law == "gaussian" else Pure(ratio)

    def scales(self, sensitivity: Sensitivity, budget: Budget) -> dict[str, float]:
        """The gain times sensitivity / epsilon, or sensitivity / mu_star(epsilon, delta) for a Gaussian."""
        gaussian = self.law == "gaussian"
        allowed = accounting.mu_star(budget.epsilon, budget.delta) if gaussian else budget.epsilon
        return {self.name: self.gain(self.horizon) * sensitivity.of(self.order) / allowed}
