"""Privacy losses: what a mechanism costs, in the currency in which its proof is tight.

A loss converts to epsilon at any delta, and to the loss of a group: the same record in several places.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gossamer.privacy import accounting


@dataclass(frozen=True)
class Loss(ABC):
    """What one unit of data costs at most."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """The smallest epsilon that holds at this delta; infinite where none does."""

    @abstractmethod
    def group(self, size: int) -> Loss:
        """The loss of `size` units that change together (group privacy)."""

    def to_json(self) -> dict[str, Any]:
        """Kind and numbers."""
        return {"kind": _KINDS[type(self)], **asdict(self)}

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> Loss:
        """The loss that `to_json` wrote.

        >>> Loss.from_json(Gaussian(0.5).to_json())
        Gaussian(mu=0.5)
        """
        numbers = dict(facts)
        kind = {name: kind for kind, name in _KINDS.items()}[numbers.pop("kind")]
        return kind(**numbers)


@dataclass(frozen=True)
class Pure(Loss):
    """Epsilon at delta 0.

    >>> Pure(0.5).epsilon(0.0), Pure(0.5).group(3)
    (0.5, Pure(value=1.5))
    """

    value: float

    def epsilon(self, delta: float) -> float:
        """The same at every delta."""
        return self.value

    def group(self, size: int) -> Loss:
        """Epsilon adds up."""
        return Pure(size * self.value)


@dataclass(frozen=True)
class Gaussian(Loss):
    """Gaussian differential privacy: as hard to tell apart as N(0, 1) from N(mu, 1).

    >>> round(Gaussian(0.5).epsilon(1e-5), 4), Gaussian(0.5).epsilon(0.0)
    (1.9931, inf)
    """

    mu: float

    def epsilon(self, delta: float) -> float:
        """By the exact curve of the Gaussian mechanism."""
        return accounting.gaussian_epsilon(self.mu, delta)

    def group(self, size: int) -> Loss:
        """Mu adds up."""
        return Gaussian(size * self.mu)


@dataclass(frozen=True)
class Concentrated(Loss):
    """Zero-concentrated differential privacy: the Renyi divergence of order a is at most rho a.

    >>> round(Concentrated(0.125).group(2).rho, 4)
    0.5
    """

    rho: float

    def epsilon(self, delta: float) -> float:
        """Through the Renyi divergences."""
        return accounting.zcdp_epsilon(self.rho, delta)

    def group(self, size: int) -> Loss:
        """Rho grows with the square."""
        return Concentrated(size**2 * self.rho)


@dataclass(frozen=True)
class Approximate(Loss):
    """One point of the privacy curve: epsilon at one delta, and nothing else known.

    >>> Approximate(1.0, 1e-6).epsilon(1e-5), Approximate(1.0, 1e-6).epsilon(1e-7)
    (1.0, inf)
    """

    value: float
    delta: float

    def epsilon(self, delta: float) -> float:
        """Epsilon where delta is at least the known one."""
        return self.value if delta >= self.delta else math.inf

    def group(self, size: int) -> Loss:
        """Epsilon adds up, and delta grows by the geometric sum of e^epsilon."""
        growth = math.expm1(size * self.value) / math.expm1(self.value) if self.value else float(size)
        return Approximate(size * self.value, min(1.0, self.delta * growth))


_KINDS: dict[type[Loss], str] = {
    Pure: "pure",
    Gaussian: "gaussian",
    Concentrated: "zcdp",
    Approximate: "approximate",
}
