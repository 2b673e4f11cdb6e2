"""What every mechanism can do, and what calibrating one gives.

A `Mechanism` is structure: which draws it needs, how it releases, how its privacy loss follows from sensitivity and
scale. A `Calibrated` one knows its sensitivity and its scales, and computes its loss from those same numbers.
Compiled programs depend on the structure alone, so another budget does not compile again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from types import MappingProxyType
from typing import Any, Generic, Literal, Self, TypeVar

import jax
import jax.numpy as jnp

from gossamer.checks import check_count, check_positive
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.privacy import (
    Budget,
    Law,
    Loss,
    NoiseSpec,
    Pure,
    Scale,
    SecureNoise,
    Sensitivity,
    UsedIn,
    accounting,
    budgets_of,
)
from gossamer.privacy.marks import mark_methods
from gossamer.spec import family

State = Any
Noise = Mapping[str, jax.Array]
Grid = Mapping[str, jax.Array]

_LEAST, _MOST = 1e-30, 1e30  # scales within which float32 has its digits, lattices included
_NUDGE = 1 + 2.0**-40  # scales are rounded up, so that the guarantee never exceeds the budget by a rounding


@family("mechanism")
@dataclass(frozen=True)
class Mechanism(ABC):
    """Turns exact values into private ones, one release at a time.

    Attributes:
        shape: of the value that is released.
        horizon: how many releases the proof covers; None: it holds for endless streams.
        name: of its draws; mechanisms of one learner need different names.
        together: learners that release at once values that one unit moves, each with draws of its own. Sensitivities
            are then those of the values of all of them, stacked.
    """

    shape: tuple[int, ...]
    _: KW_ONLY
    horizon: int | None = None
    name: str = "noise"
    together: int = 1

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        mark_methods(cls, release=("release", "increment"))

    def __post_init__(self) -> None:
        if not isinstance(self.shape, tuple):
            raise ConfigurationError("shape", self.shape, "a tuple of whole numbers", "try shape=(10,)")
        if self.horizon is not None:
            object.__setattr__(self, "horizon", check_count("horizon", self.horizon))

    @property
    @abstractmethod
    def order(self) -> Literal[1, 2]:
        """The norm of the sensitivity that counts."""

    @abstractmethod
    def laws(self) -> Mapping[str, tuple[Law, tuple[int, ...]]]:
        """The draws of one release: name -> law and shape."""

    @property
    def sums(self) -> bool:
        """Whether the sum of all values so far is released at every value, and not the value."""
        return False

    @property
    def composes(self) -> bool:
        """Whether the loss counts one unit in every release: then values may depend on it again and again."""
        return False

    def adds_up(self, method: str) -> bool:
        """Whether what one of its methods releases is rounded with the values before it: their size then matters."""
        return self.sums and method == "release"

    def promises(self) -> tuple[str, ...]:
        """What the loss takes from whoever made the mechanism, and no program shows."""
        return ()

    def noise(self, used_in: UsedIn, times: int | None = None) -> dict[str, NoiseSpec]:
        """The draws of one release as a learner declares them, for the function that releases.

        With `times`, those of so many releases in one exchange, along a first axis.
        """
        lead = () if times is None else (times,)
        return {name: NoiseSpec(law, (*lead, *shape), used_in) for name, (law, shape) in self.laws().items()}

    @abstractmethod
    def init(self) -> State:
        """The state before the first release."""

    @abstractmethod
    def release(self, state: State, value: jax.Array, noise: Noise, grid: Grid) -> tuple[jax.Array, State]:
        """The private value, and the state after it; draws come at scale, with the spacing of their lattice, if any."""

    @abstractmethod
    def loss(self, sensitivity: Sensitivity, scales: Mapping[str, float], position: int | None) -> Loss:
        """What one unit of data costs at most after `position` releases (None: for ever) with these scales."""

    @abstractmethod
    def scales(self, sensitivity: Sensitivity, budget: Budget) -> dict[str, float]:
        """The smallest scales whose loss over the whole horizon is within the budget."""

    def calibrate(
        self, sensitivity: Sensitivity | Sequence[Sensitivity], budget: Budget | Sequence[Budget]
    ) -> Calibrated[Self]:
        """Scales for one sensitivity and budget, or for those of each learner."""
        sensitivities = tuple(sensitivity) if isinstance(sensitivity, Sequence) else (sensitivity,)
        if not sensitivities or not all(isinstance(one, Sensitivity) for one in sensitivities):
            raise PrivacyError.of("sensitivity", sensitivity, "a Sensitivity", "a clip gives one: Clip(l2=1.0)...")
        budgets = budgets_of(budget)
        if 1 not in (len(budgets), len(sensitivities)) and len(budgets) != len(sensitivities):
            allowed = f"1, or one for each of {len(budgets)}"
            raise PrivacyError.of("sensitivity", f"{len(sensitivities)} of them", allowed)
        budgets *= len(sensitivities) if len(budgets) == 1 else 1
        each = [self.scales(sensitivities[i % len(sensitivities)], one) for i, one in enumerate(budgets)]
        for name, scale in ((name, one[name]) for one in each for name in one):
            _check_scale(name, scale)
        scales = {name: tuple(Scale(one[name] * _NUDGE) for one in each) for name in self.laws()}
        calibrated = Calibrated(self, sensitivities, scales)
        pure = [isinstance(loss, Pure) for loss in calibrated.losses]
        return replace(calibrated, deltas=tuple(0.0 if p else b.delta for p, b in zip(pure, budgets, strict=True)))

    def at_scale(
        self, sensitivity: Sensitivity | Sequence[Sensitivity] | None = None, **scales: float | Sequence[float]
    ) -> Calibrated[Self]:
        """With scales that somebody chose, each one number or one per learner; the loss follows from them."""
        if set(scales) != set(self.laws()):
            raise ConfigurationError("scales", sorted(scales), f"one for each of {sorted(self.laws())}")
        each = {name: given if isinstance(given, Sequence) else (given,) for name, given in scales.items()}
        checked = {
            name: tuple(Scale(check_positive(name, one, zero=True)) for one in given) for name, given in each.items()
        }
        for name, given in each.items():
            for one in given:
                _check_scale(name, one)
        known = () if sensitivity is None else sensitivity if isinstance(sensitivity, Sequence) else (sensitivity,)
        if len({len(known or (0,)), *map(len, each.values())} - {1}) > 1:
            allowed = "as many scales as sensitivities, or one of either for all learners"
            raise ConfigurationError("scales", f"{len(known)} sensitivities", allowed)
        return Calibrated(self, tuple(known), checked, (0.0,) * max(len(known), *map(len, checked.values())))

    def touched(self, position: int | None) -> float:
        """How many of the draws of `position` releases the proof needs to be exact for one unit; all unless it says."""
        return math.inf if position is None else float(position)

    def overflow(self) -> float:
        """On a lattice: how likely the draws are at most to leave the range that its arithmetic is exact in."""
        return 0.0

    def rounded(self, sensitivity: Sensitivity, grid: float) -> Sensitivity:
        """The sensitivity where values are rounded to a lattice first: one spacing more in every coordinate."""
        size = self.together * math.prod(self.shape)
        return Sensitivity(sensitivity.l1 + grid * size, sensitivity.l2 + grid * math.sqrt(size))

    def require(self, position: int) -> None:
        """Refuse a number of releases that the horizon does not cover."""
        if self.horizon is not None and position > self.horizon:
            raise PrivacyError(
                f"horizon: {position:,} releases were asked for, and {type(self).__name__} is calibrated for "
                f"{self.horizon:,}. Make it with a longer horizon; nothing was released."
            )

    def _guard(self, released: jax.Array, value: jax.Array) -> jax.Array:
        """The value, where so many releases came before that one more is covered.

        Outside a compiled program an exhausted mechanism raises. Inside, where nothing can raise, it answers NaN:
        engines refuse before they run, and a program that does not must not get a number.
        """
        if self.horizon is None:
            return value
        if not isinstance(released, jax.core.Tracer):
            self.require(int(released) + 1)
        return jnp.where(released < self.horizon, value, jnp.nan)


def _check_scale(name: str, scale: float) -> None:
    """Refuse scales that float32 does not hold."""
    if scale and not _LEAST <= scale <= _MOST:
        allowed = f"{_LEAST:g} to {_MOST:g}, for float32"
        raise PrivacyError.of(f"scale of {name}", scale, allowed, "change the clip, the step or the budget")


M_co = TypeVar("M_co", bound=Mechanism, covariant=True)


@dataclass(frozen=True)
class Calibrated(Generic[M_co]):
    """A mechanism with its sensitivity and scales: what scales the noise also computes the guarantee.

    Attributes:
        mechanism: the structure.
        sensitivities: how far one unit moves a value, one for all learners or one for each; none: not known, so there
            is no guarantee.
        scales: name of a draw -> its scale, one for all learners or one for each.
        deltas: the delta at which each learner's loss is stated: that of its budget, or 0 where the loss is pure.
    """

    mechanism: M_co
    sensitivities: tuple[Sensitivity, ...]
    scales: Mapping[str, tuple[Scale, ...]]
    deltas: tuple[float, ...] = (0.0,)

    def __post_init__(self) -> None:
        plain = {name: tuple(Scale(*map(float, scale)) for scale in each) for name, each in self.scales.items()}
        object.__setattr__(self, "scales", MappingProxyType(plain))
        for name in ("sensitivities", "deltas"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name, each in self.scales.items():
            for scale in each:
                lattice = scale.grid == 0 or (
                    scale.grid > 0 and math.frexp(scale.grid)[0] == 0.5 and (scale.value / scale.grid).is_integer()
                )
                if not (0 <= scale.value < math.inf and lattice):
                    allowed = "a finite number of at least 0, on a lattice a multiple of its spacing, a power of two"
                    raise PrivacyError.of(f"scale of {name}", scale, allowed)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The loss over the whole horizon: one for all learners, or one for each."""
        return tuple(self.spent(self.mechanism.horizon, learner) for learner in range(len(self._each())))

    def spent(self, position: int | None, learner: int = 0) -> Loss:
        """What one unit of data has cost after this many releases (None: for ever): what a ledger records."""
        if not self.sensitivities:
            raise PrivacyError.of("sensitivity", None, "a bound", "without one a release has no finite loss")
        if position is not None:
            self.mechanism.require(check_count("position", position, least=0))
        elif self.mechanism.horizon is not None:
            raise PrivacyError.of("position", None, f"at most {self.mechanism.horizon:,} releases")
        return self.mechanism.loss(self._exact_or_rounded(learner), self._each()[learner], position)

    def _each(self) -> list[dict[str, float]]:
        """Every learner's scales by name."""
        count = max(len(self.sensitivities), *map(len, self.scales.values()))
        return [{name: each[i % len(each)].value for name, each in self.scales.items()} for i in range(count)]

    def on_lattice(self) -> Calibrated[M_co]:
        """The same guarantee for releases on a lattice, as secure noise makes them.

        A value is rounded to a multiple of the spacing before noise is added, which moves two neighbours apart by at
        most the spacing in every coordinate more. That is counted: scales grow by the same share as the sensitivity.
        """
        silent = any(scale.value == 0 for each in self.scales.values() for scale in each)
        if not self.sensitivities or not all(one.l2 for one in self.sensitivities) or silent:
            raise PrivacyError.of("sensitivity", self.sensitivities, "a positive bound, and noise for it")
        each = [self._lattice_scales(learner) for learner in range(len(self._each()))]
        return replace(self, scales={name: tuple(one[name] for one in each) for name in self.scales})

    def keeping_back(self, error: float) -> Calibrated[M_co]:
        """The same with so much more noise that a sampler's error fits into each delta; pure losses stay."""
        if not any(self.deltas):
            return self
        epsilons = [loss.epsilon(delta) for loss, delta in zip(self.losses, self.deltas, strict=True)]
        left = [d - accounting.sampler_share(error, e) for e, d in zip(epsilons, self.deltas, strict=True)]
        if min(left) <= 0:
            hint = f"the sampler's error alone is {error:.1g}, and counts 1 + e^epsilon times"
            raise PrivacyError.of("delta", min(self.deltas), "a larger delta for secure noise", hint)
        budgets = [Budget(e, d) for e, d in zip(epsilons, left, strict=True)]
        return self.mechanism.calibrate(self.sensitivities, budgets)

    def sampler_error(self) -> float:
        """How far secure draws that one unit touches are from their law at most, in total variation: the worst learner.

        With the chance that arithmetic on the lattice leaves its range, about which the proof says nothing.
        Infinite for correlated noise without an end, every draw of which matters to every unit.
        """
        specs, touched = self.mechanism.noise("speak"), self.mechanism.touched(self.mechanism.horizon)
        learners = range(max(map(len, self.scales.values())))
        each = [
            sum(SecureNoise.error(specs[name], scales[learner % len(scales)]) for name, scales in self.scales.items())
            for learner in learners
        ]
        return touched * max(each) + self.mechanism.overflow()

    def _lattice_scales(self, learner: int) -> dict[str, Scale]:
        values = self._each()[learner]
        laws = {name: law for name, (law, _) in self.mechanism.laws().items()}
        # Of several draws the one with the largest scale decides: none may exceed what float32 holds exactly.
        grid = max(2.0 ** (math.floor(math.log2(value)) - LATTICE_BITS[laws[name]]) for name, value in values.items())
        exact, order = self._sensitivity(learner), self.mechanism.order
        grown = self.mechanism.rounded(exact, grid).of(order) / exact.of(order)
        if grown > 2:
            size = self.mechanism.together * math.prod(self.mechanism.shape)
            share = exact.of(order) / max(values.values())
            raise PrivacyError(
                f"lattice: rounding {size:,} numbers to 2^-{LATTICE_BITS[max(laws.values())]} of the noise moves them "
                f"farther than the data do, which is {share:.1g} of it. Use a larger epsilon, or Gaussian noise, whose "
                f"rounding grows with the square root of the dimension only."
            )
        return {name: Scale(math.ceil(value * grown / grid) * grid, grid) for name, value in values.items()}

    def _sensitivity(self, learner: int) -> Sensitivity:
        return self.sensitivities[learner % len(self.sensitivities)]

    def _exact_or_rounded(self, learner: int) -> Sensitivity:
        grid = max(each[learner % len(each)].grid for each in self.scales.values())
        return self.mechanism.rounded(self._sensitivity(learner), grid)


LATTICE_BITS: Mapping[Law, int] = {
    "laplace": 17,
    "gaussian": 19,
    "l2-laplace": 12,
    "gumbel": 17,
    "exponential": 17,
    "uniform": 17,
}
"""A scale is 2^bits spacings or more, less than 2^(bits+2): draws of up to 32 scales (8 for a Gaussian, and mostly
twice that) are whole multiples below 2^24, which float32 holds exactly. `SecureNoise.error` counts what lies beyond."""


def per_scale(moved: float, scale: float) -> float:
    """How many scales something moves; infinitely many where there is no noise.

    >>> per_scale(1.0, 2.0), per_scale(1.0, 0.0), per_scale(0.0, 0.0)
    (0.5, inf, 0.0)
    """
    return moved / scale if scale else (math.inf if moved else 0.0)


def snap(value: jax.Array, spacing: jax.Array | None) -> jax.Array:
    """The nearest point of the lattice; the value itself where there is none.

    The spacing is a power of two: dividing by it and multiplying with it are exact.

    >>> snap(jnp.array([0.3, -0.6]), jnp.array(0.25)).tolist(), snap(jnp.array([0.5]), None).tolist()
    ([0.25, -0.5], [0.5])
    """
    return value if spacing is None else jnp.round(value / spacing) * spacing
