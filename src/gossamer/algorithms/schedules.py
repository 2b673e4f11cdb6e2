"""Public schedules of exchanges 1, 2, ...: functions of the number of an exchange alone, beside `core.Rate`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer.core import Public, Rate


@dataclass(frozen=True)
class Lagged:
    """A rate one exchange late, as paper 002 writes it: y(t) is made with alpha(t-1), and alpha(0) is alpha(1).

    >>> Lagged(Rate(1.0))(np.array([1, 2, 5]))
    array([1. , 1. , 0.5])
    """

    rate: Rate

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """The rate of the exchange before each."""
        return self.rate(np.maximum(t - 1, 1))

    def __str__(self) -> str:
        return str(self.rate).replace("t^", "max(t-1, 1)^").replace("(t + ", "(max(t-1, 1) + ")


@dataclass(frozen=True)
class Geometric:
    """scale * ratio^t at exchange t = 1, 2, ...

    >>> Geometric(2.0, 0.5)(np.array([1, 2]))
    array([1. , 0.5])
    """

    scale: float
    ratio: float

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """The value at each exchange."""
        return np.asarray(self.scale * self.ratio ** t.astype(np.float64))

    def __str__(self) -> str:
        return f"{self.scale:.4g} * {self.ratio:g}^t at exchange t"


@dataclass(frozen=True)
class Growth:
    """(t + 1)^power at exchange t = 1, 2, ...

    >>> Growth(0.5)(np.array([3, 8]))
    array([2., 3.])
    """

    power: float

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """The value at each exchange."""
        return np.asarray((t + 1).astype(np.float64) ** self.power)

    def __str__(self) -> str:
        return f"(t + 1)^{self.power:g} at exchange t"


@dataclass(frozen=True)
class Delayed:
    """A rate that is zero for the first `delay` exchanges, while samples are gathered.

    >>> Delayed(Rate(1.0), 2)(np.array([1, 2, 4]))
    array([0. , 0. , 0.5])
    """

    rate: Rate
    delay: int

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """The rate at each exchange."""
        return np.asarray(np.where(t <= self.delay, 0.0, self.rate(t)), np.float64)


@dataclass(frozen=True)
class Shifted:
    """A schedule one exchange late, with a value of its own at the first exchange, which no sample precedes.

    >>> Shifted(Rate(1.0), first=0.0)(np.array([1, 2, 5]))
    array([0. , 1. , 0.5])
    """

    schedule: Public
    first: float

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """What the schedule has at the exchange before each."""
        return np.asarray(np.where(t == 1, self.first, self.schedule(np.maximum(t - 1, 1))), np.float64)


@dataclass(frozen=True)
class Share:
    """The share of the newest y in an average whose weights grow like t^power, counted from the delay on.

    >>> Share(1, 0)(np.array([1, 2, 3]))
    array([1.        , 0.66666667, 0.5       ])
    """

    power: int
    delay: int

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """1 until the delay is over."""
        return np.asarray((1 + self.power) / (np.maximum(t - self.delay, 1) + self.power), np.float64)


@dataclass(frozen=True)
class Table:
    """One value for every exchange, and the last one for all after it.

    >>> Table((1.0, 0.5))(np.array([1, 2, 9]))
    array([1. , 0.5, 0.5])
    """

    values: tuple[float, ...]

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """The value at each exchange."""
        return np.take(np.asarray(self.values, np.float64), np.minimum(t, len(self.values)) - 1)


FIRST = Table((1.0, 0.0))
"""1 at the first exchange, then 0."""
