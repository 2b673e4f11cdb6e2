"""When learners exchange, and the sizes of their steps, as functions of exact counters.

A float32 counter stops counting at 2^24, so nothing here is computed in the compiled loop: schedules are evaluated on
the host, from 64-bit integers in double precision, and handed to the loop chunk by chunk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count, check_positive
from gossamer.errors import ConfigurationError
from gossamer.spec import family, kind


class Segment(NamedTuple):
    """A run of exchanges that all digest blocks of the same length."""

    exchanges: int
    block: int


@family("schedule")
class Schedule(ABC):
    """How many steps (samples per learner) lie between two exchanges.

    Steps left over at the end are played with the last decision and never released.
    """

    @abstractmethod
    def segments(self, steps: int) -> Iterator[Segment]:
        """The exchanges that fit into so many steps, as runs of equal blocks."""

    def exchanges(self, steps: int) -> int:
        """How many exchanges fit into so many steps.

        >>> Every(4).exchanges(10)
        2
        """
        return sum(segment.exchanges for segment in self.segments(steps))


@kind("schedule", "every")
@dataclass(frozen=True)
class Every(Schedule):
    """One exchange after every `block` steps.

    >>> list(Every(4).segments(10))
    [Segment(exchanges=2, block=4)]
    """

    block: int = 1

    def __post_init__(self) -> None:
        check_count("block", self.block)

    def segments(self, steps: int) -> Iterator[Segment]:
        """One run of equal blocks."""
        if steps >= self.block:
            yield Segment(steps // self.block, self.block)


@kind("schedule", "phases")
@dataclass(frozen=True)
class Phases(Schedule):
    """Runs of exchanges with blocks of different lengths, one after the other; a block of 0 digests nothing new.

    >>> phases = Phases((Segment(1, 2), Segment(3, 0), Segment(1, 4)))
    >>> list(phases.segments(5)), phases.exchanges(6)
    ([Segment(exchanges=1, block=2), Segment(exchanges=3, block=0)], 5)
    """

    runs: tuple[Segment, ...]

    def __post_init__(self) -> None:
        for exchanges, block in self.runs:
            if exchanges < 1 or block < 0:
                raise ConfigurationError("runs", (exchanges, block), "at least 1 exchange with blocks of 0 or more")

    def segments(self, steps: int) -> Iterator[Segment]:
        """The runs, the last one cut where the steps end."""
        for exchanges, block in self.runs:
            fits = min(exchanges, steps // block) if block else exchanges
            if fits:
                yield Segment(fits, block)
            if fits < exchanges:
                return
            steps -= fits * block


@kind("rate")
@dataclass(frozen=True)
class Rate:
    """A step size that falls with time: scale / (t + delay)^power at exchange t = 1, 2, ...

    >>> Rate(2.0)(np.array([1, 4, 2**50]))
    array([2.00000000e+00, 1.00000000e+00, 5.96046448e-08])
    >>> Rate.of("step", 0.5)(np.array([1, 4]))
    array([0.5, 0.5])
    """

    scale: float
    power: float = 0.5
    delay: int = 0

    def __post_init__(self) -> None:
        check_positive("scale", self.scale, zero=True)
        if not 0 <= self.power <= 2:
            raise ConfigurationError("power", self.power, "a number from 0 (constant) to 2")
        check_count("delay", self.delay, least=0)

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """The rate at each exchange number."""
        return self.scale / (t + self.delay).astype(np.float64) ** self.power

    def __str__(self) -> str:
        if self.power == 0:
            return f"{self.scale:.4g} at every exchange"
        time = f"(t + {self.delay})" if self.delay else "t"
        return f"{self.scale:.4g} / {time}^{self.power:g} at exchange t"

    @staticmethod
    def of(field: str, given: float | Rate) -> Rate:
        """A rate from what a user gave: a number stands for a constant."""
        if isinstance(given, Rate):
            return given
        return Rate(check_positive(field, given, "or give a Rate, which falls with time"), power=0.0)
