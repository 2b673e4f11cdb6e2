"""Privacy losses: what a mechanism costs, in the currency in which its proof is tight.

A loss converts to epsilon at any delta, to the loss of a group (the same record in several places), and composes with
the losses of other releases.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain
from typing import Any

from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.privacy import accounting
from gossamer.privacy.budget import as_float


@dataclass(frozen=True)
class Loss(ABC):
    """What one unit of data costs at most, in numbers of at least 0 or tuples of them."""

    def __post_init__(self) -> None:
        for field in fields(self):
            given, several = getattr(self, field.name), str(field.type).startswith("tuple")
            numbers = tuple(map(as_float, given if several and isinstance(given, Sequence) else (given,)))
            if several != isinstance(given, Sequence) or not all(number >= 0 for number in numbers):
                allowed = "a tuple of numbers of at least 0" if several else "a number of at least 0"
                raise PrivacyError.of(f"{type(self).__name__} {field.name}", given, allowed)
            object.__setattr__(self, field.name, numbers if several else numbers[0])

    @property
    def least_delta(self) -> float:
        """Below this delta no epsilon is known."""
        return 0.0

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """The smallest epsilon that holds at this delta; infinite where none does."""

    @abstractmethod
    def group(self, size: int) -> Loss:
        """The loss of `size` units that change together (group privacy)."""

    def as_mixed(self) -> Mixed:
        """The same as a loss to which others can be added."""
        raise PrivacyError.of("loss", self, "a kind that composes with others: " + ", ".join(_KINDS.values()))

    def repeated(self, times: int) -> Loss:
        """The loss of so many releases, each of which costs this much."""
        return compose([self] * times)

    def to_json(self) -> dict[str, Any]:
        """Kind and numbers."""
        return {"kind": _KINDS[type(self)]} | {name: _written(value) for name, value in vars(self).items()}

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> Loss:
        """The loss that `to_json` wrote.

        >>> Loss.from_json(Gaussian(0.5).to_json())
        Gaussian(mu=0.5)
        """
        kinds = {name: kind for kind, name in _KINDS.items()}
        if facts.get("kind") not in kinds:
            raise ConfigurationError("kind of loss", facts.get("kind"), ", ".join(map(repr, kinds)))
        return kinds[facts["kind"]](**{name: _read(value) for name, value in facts.items() if name != "kind"})


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

    def repeated(self, times: int) -> Loss:
        """Epsilon adds up."""
        return Pure(times * self.value)

    def group(self, size: int) -> Loss:
        """Epsilon adds up."""
        return Pure(size * self.value)

    def as_mixed(self) -> Mixed:
        """One pure part."""
        return Mixed(pure=(self.value,))


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

    def repeated(self, times: int) -> Loss:
        """Mu grows with the root."""
        return Gaussian(math.sqrt(times) * self.mu)

    def group(self, size: int) -> Loss:
        """Mu adds up."""
        return Gaussian(size * self.mu)

    def as_mixed(self) -> Mixed:
        """A Gaussian part."""
        return Mixed(mu=self.mu)


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

    def repeated(self, times: int) -> Loss:
        """Rho adds up."""
        return Concentrated(times * self.rho)

    def group(self, size: int) -> Loss:
        """Rho grows with the square (Bun and Steinke 2016)."""
        return Concentrated(size**2 * self.rho)

    def as_mixed(self) -> Mixed:
        """A concentrated part."""
        return Mixed(rho=self.rho)


@dataclass(frozen=True)
class BoundedRange(Loss):
    """Exponential mechanisms one after another, each with its epsilon: pure, and more concentrated than pure losses.

    >>> ten = BoundedRange((0.1,) * 10)
    >>> ten.epsilon(0.0), round(ten.epsilon(1e-6), 3)
    (1.0, 0.7)
    """

    values: tuple[float, ...]

    def epsilon(self, delta: float) -> float:
        """The sum, or less where delta allows it."""
        return accounting.bounded_range_epsilon(self.values, delta)

    def group(self, size: int) -> Loss:
        """The range of the log ratio adds up."""
        return BoundedRange(tuple(size * value for value in self.values))

    def as_mixed(self) -> Mixed:
        """Parts of bounded range."""
        return Mixed(bounded_range=self.values)


@dataclass(frozen=True)
class Approximate(Loss):
    """One point of the privacy curve: epsilon at one delta, and nothing else known.

    >>> Approximate(1.0, 1e-6).epsilon(1e-5), Approximate(1.0, 1e-6).epsilon(1e-7)
    (1.0, inf)
    """

    value: float
    delta: float

    @property
    def least_delta(self) -> float:
        """The known delta."""
        return self.delta

    def epsilon(self, delta: float) -> float:
        """Epsilon where delta is at least the known one."""
        return self.value if delta >= self.delta else math.inf

    def repeated(self, times: int) -> Loss:
        """Both add up."""
        return Approximate(times * self.value, min(1.0, times * self.delta))

    def group(self, size: int) -> Approximate:
        """Epsilon adds up, and delta grows by 1 + e^epsilon + ... + e^((size-1) epsilon)."""
        return Approximate(size * self.value, _grown(self.delta, self.value, size))

    def as_mixed(self) -> Mixed:
        """An approximate part."""
        return Mixed(value=self.value, delta=self.delta)


@dataclass(frozen=True)
class Mixed(Loss):
    """Releases of several kinds on the same data, each chosen after those before it.

    Attributes:
        pure: pure epsilons, one per mechanism.
        bounded_range: epsilons of exponential mechanisms.
        mu: of the Gaussian mechanisms.
        rho: of the concentrated mechanisms.
        value: epsilon of the approximate mechanisms.
        delta: delta of the approximate mechanisms.

    >>> round(Mixed(pure=(0.25,), bounded_range=(0.03805,) * 60).epsilon(1e-5), 3)
    0.799
    """

    pure: tuple[float, ...] = ()
    bounded_range: tuple[float, ...] = ()
    mu: float = 0.0
    rho: float = 0.0
    value: float = 0.0
    delta: float = 0.0

    @property
    def least_delta(self) -> float:
        """The delta of the approximate part."""
        return self.delta

    def epsilon(self, delta: float) -> float:
        """What is left of delta after the approximate part goes to the others together."""
        if delta < self.delta:
            return math.inf
        return self.value + accounting.mixed_epsilon(
            delta - self.delta, pure=self.pure, bounded_range=self.bounded_range, mu=self.mu, rho=self.rho
        )

    def group(self, size: int) -> Loss:
        """Every part grows by its own rule."""
        return Mixed(
            tuple(size * value for value in self.pure),
            tuple(size * value for value in self.bounded_range),
            size * self.mu,
            size**2 * self.rho,
            size * self.value,
            _grown(self.delta, self.value, size),
        )

    def as_mixed(self) -> Mixed:
        """Itself."""
        return self

    def simplest(self) -> Loss:
        """As a loss of one kind, where only one is there."""
        parts: list[Loss] = [Pure(math.fsum(self.pure))] if any(self.pure) else []
        parts += [BoundedRange(self.bounded_range)] if any(self.bounded_range) else []
        parts += [Gaussian(self.mu)] if self.mu else []
        parts += [Concentrated(self.rho)] if self.rho else []
        parts += [Approximate(self.value, self.delta)] if self.value or self.delta else []
        if not parts:
            return Pure(0.0)
        return parts[0] if len(parts) == 1 else self


def compose(losses: Sequence[Loss]) -> Loss:
    """What several releases about the same unit cost together; each may be chosen after those before it.

    Pure epsilons add up, Gaussian mu by the root of the sum of squares, rho adds up, and kinds are mixed through their
    Renyi divergences. It is also the loss of one sample of *each* of several learners, where every learner makes its
    own releases from its own data with its own noise (observer `peers`): on neighbours that differ at every learner,
    the transcript is such a composition of interactive mechanisms (Lyu 2022; Vadhan and Zhang 2023).

    >>> compose([Pure(0.25), Pure(0.5)]), compose([Gaussian(3.0), Gaussian(4.0)])
    (Pure(value=0.75), Gaussian(mu=5.0))
    >>> compose([Pure(0.25), Gaussian(0.3)])
    Mixed(pure=(0.25,), bounded_range=(), mu=0.3, rho=0.0, value=0.0, delta=0.0)
    """
    parts = [loss.as_mixed() for loss in losses]
    return Mixed(
        pure=tuple(chain.from_iterable(part.pure for part in parts)),
        bounded_range=tuple(chain.from_iterable(part.bounded_range for part in parts)),
        mu=math.hypot(*(part.mu for part in parts)),
        rho=math.fsum(part.rho for part in parts),
        value=math.fsum(part.value for part in parts),
        delta=min(1.0, math.fsum(part.delta for part in parts)),
    ).simplest()


def worst(losses: Sequence[Loss]) -> Loss:
    """A loss that none of these exceeds: the largest of one kind; their composition where kinds differ.

    >>> worst([Pure(0.25), Pure(0.5)])
    Pure(value=0.5)
    """
    kinds = {type(loss) for loss in losses}
    numbers = [tuple(asdict(loss).values()) for loss in losses]
    if len(kinds) == 1 and kinds <= {Pure, Gaussian, Concentrated, Approximate}:
        return kinds.pop()(*map(max, zip(*numbers, strict=True)))
    return losses[0] if len(set(losses)) == 1 else compose(losses)


def _grown(delta: float, epsilon: float, size: int) -> float:
    """Delta times 1 + e^epsilon + ... + e^((size-1) epsilon), at most 1."""
    if delta == 0 or epsilon == 0:
        return min(1.0, size * delta)
    if size * epsilon > 700:
        return 1.0
    return min(1.0, delta * math.expm1(size * epsilon) / math.expm1(epsilon))


def _written(value: Any) -> Any:
    """Infinity as text: JSON has no number for it."""
    return [*map(_written, value)] if isinstance(value, tuple) else str(value) if value == math.inf else value


def _read(value: Any) -> Any:
    return tuple(map(float, value)) if isinstance(value, list) else float(value)


_KINDS: dict[type[Loss], str] = {
    Pure: "pure",
    Gaussian: "gaussian",
    Concentrated: "zcdp",
    BoundedRange: "bounded-range",
    Approximate: "approximate",
    Mixed: "mixed",
}
