"""Which candidate has the best score: noisy maxima that release an index and nothing else.

One argument proves all three. Let candidate i win where score_i + noise_i is largest, and fix everybody else's noise.
Then i wins where noise_i >= m, with m = max_j (score_j + noise_j) - score_i over the others j. One unit moves every
score by at most D, so it moves m by at most 2 D; where all scores move the same way (*monotone*), by at most D, because
then the maximum and score_i move the same way. All three laws have a hazard rate of at most 1 / scale, that is,
P(noise >= m + s) >= exp(-s / scale) P(noise >= m). So no probability changes by more than a factor of

    exp(epsilon),  epsilon = 2 D / scale,  or D / scale where scores are monotone.

Releases on a lattice keep this: rounded scores move by one spacing more, a rounded draw reaches a lattice point exactly
where the draw itself reaches the point half a spacing below, and ties go to the lower index, a fixed rule.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from gossamer.checks import check_choice, check_count
from gossamer.errors import ConfigurationError, DataError, PrivacyError
from gossamer.mechanisms.base import Grid, Mechanism, Noise, State, per_scale, snap
from gossamer.mechanisms.pairs import first_largest, two_sum
from gossamer.privacy import Budget, Concentrated, Law, Loss, Pure, Sensitivity, accounting
from gossamer.privacy.loss import BoundedRange
from gossamer.spec import kind


@dataclass(frozen=True)
class Selection(Mechanism):
    """The candidate whose noisy score is best; every release is a selection.

    The sensitivity is that of *one score*: `Sensitivity(l1=D, l2=D)` where one unit moves no score by more than D. (The
    sensitivity of the whole vector of scores is safe too: its Euclidean norm bounds every entry.)

    Attributes:
        candidates: how many there are.
        best: whether the highest score is best, or the lowest.
        monotone: whether one unit moves all scores of a selection the same way. Nothing can check that: it is the
            caller's promise, which guarantees list, and it halves the noise.
        touches: in how many selections one unit can enter the scores; None: in all of the horizon.
    """

    shape: tuple[int, ...] = field(init=False, repr=False)
    candidates: int
    _: KW_ONLY
    best: Literal["highest", "lowest"] = "highest"
    monotone: bool = False
    touches: int | None = None

    LAW: ClassVar[Law]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", (check_count("candidates", self.candidates),))
        super().__post_init__()
        check_choice("best", self.best, Literal["highest", "lowest"])
        if self.touches is not None:
            check_count("touches", self.touches)
        if self.touches is None and self.horizon is None:
            hint = "or say with touches=1 that one unit enters the scores of one selection only"
            raise PrivacyError.of("horizon", None, "a number of selections", hint)

    @property
    def order(self) -> Literal[1, 2]:
        """Both norms of one score are the same; of a vector, the Euclidean one is the better bound of an entry."""
        return 2

    @property
    def composes(self) -> bool:
        """Unless the caller says otherwise a unit may enter every selection."""
        return self.touches is None

    def promises(self) -> tuple[str, ...]:
        """That scores are monotone."""
        return ("one unit moves all scores of a selection the same way",) if self.monotone else ()

    def laws(self) -> Mapping[str, tuple[Law, tuple[int, ...]]]:
        """One number for every candidate."""
        return {self.name: (self.LAW, self.shape)}

    def rounded(self, sensitivity: Sensitivity, grid: float) -> Sensitivity:
        """On a lattice each score moves by at most one spacing more, however many candidates there are."""
        return Sensitivity(sensitivity.l1 + grid, sensitivity.l2 + grid)

    def init(self) -> State:
        """How many selections were made, where their number is bounded; else nothing."""
        return () if self.horizon is None else jnp.int32(0)

    def release(self, state: State, value: jax.Array, noise: Noise, grid: Grid) -> tuple[jax.Array, State]:
        """The index of the best noisy score, as int32; ties go to the lower one.

        The horizon used up, a score that is not a number, no finite score at all: outside a compiled program these
        raise, inside they answer -1, which is no candidate. A score of minus infinity (highest is best) excludes one.
        """
        if value.shape != self.shape:
            raise ConfigurationError("scores", value.shape, f"an array of shape {self.shape}")
        spacing, sign = grid.get(self.name), 1.0 if self.best == "highest" else -1.0
        index = largest_sum(snap(sign * value, spacing), snap(noise[self.name], spacing))
        if self.horizon is not None:
            if not isinstance(state, jax.core.Tracer):
                self.require(int(state) + 1)
            index, state = jnp.where(state < self.horizon, index, -1), jnp.minimum(state, self.horizon - 1) + 1
        if not isinstance(index, jax.core.Tracer) and int(index) < 0:
            raise DataError("scores: one is not a number or infinitely good, or all are infinitely bad.")
        return index, state

    def loss(self, sensitivity: Sensitivity, scales: Mapping[str, float], position: int | None) -> Loss:
        """As often as one unit can have entered the scores, what one selection costs."""
        if position == 0:
            return Pure(0.0)
        epsilon = per_scale(self._moved(sensitivity), scales[self.name])
        return self._compose(epsilon, self.touched(position))

    def scales(self, sensitivity: Sensitivity, budget: Budget) -> dict[str, float]:
        """2 D / epsilon, or D / epsilon for monotone scores, with the epsilon of one selection."""
        return {self.name: self._moved(sensitivity) / self._share(budget)}

    def _moved(self, sensitivity: Sensitivity) -> float:
        """How far one unit moves the difference between two scores at most."""
        return (1 if self.monotone else 2) * sensitivity.of(self.order)

    def touched(self, position: int | None) -> int:
        """The draws of the selections that a unit enters."""
        return min(bound for bound in (self.touches, position, self.horizon) if bound is not None)

    @abstractmethod
    def _compose(self, epsilon: float, count: int) -> Loss:
        """The loss of so many selections that cost epsilon each."""

    def _share(self, budget: Budget) -> float:
        """The largest epsilon of one selection with which all that one unit touches stay within the budget."""
        return budget.epsilon / self.touched(None)


@kind("mechanism", "exponential")
@dataclass(frozen=True)
class ExponentialMechanism(Selection):
    """Selects candidate i with probability proportional to exp(score_i / scale) (McSherry and Talwar 2007).

    Gumbel noise makes it so: the largest of score_i + scale * G_i is i with exactly that probability. One unit moves
    ln P(i) by (score_i' - score_i) / scale minus a term common to all i: amounts that lie within an interval of length
    2 D / scale (monotone: D / scale). Such a *bounded range* composes better than epsilon does
    (`accounting.bounded_range_renyi` has the proof).

    On a lattice, rounding the draws moves each difference of two noisy scores by at most one spacing g, so each ln P(i)
    by at most g / scale either way, for both neighbours: the interval grows by 4 g / scale, as if D were 2 g larger.

    >>> from gossamer.privacy import Budget, Sensitivity
    >>> once = ExponentialMechanism(10, horizon=1).calibrate(Sensitivity(l1=1.0, l2=1.0), Budget(0.5))
    >>> round(once.scales["noise"][0].value, 6), round(once.losses[0].epsilon(0.0), 6)
    (4.0, 0.5)
    """

    LAW: ClassVar[Law] = "gumbel"

    def rounded(self, sensitivity: Sensitivity, grid: float) -> Sensitivity:
        """One spacing for each score, and four in all for the draws, which is two for each of two scores."""
        return super().rounded(sensitivity, (5 if self.monotone else 3) * grid)

    def _compose(self, epsilon: float, count: int) -> Loss:
        return BoundedRange((epsilon,) * count)

    def _share(self, budget: Budget) -> float:
        if budget.delta == 0:
            return super()._share(budget)
        count, delta = self.touched(None), budget.delta
        return accounting.largest_within(
            lambda each: accounting.bounded_range_epsilon((each,) * count, delta), budget.epsilon
        )


@kind("mechanism", "permute-and-flip")
@dataclass(frozen=True)
class PermuteAndFlip(Selection):
    """As private as the exponential mechanism, and its expected score is never worse (McKenna and Sheldon 2020).

    In its own words: visit the candidates in random order and take the first whose coin, which shows heads with
    probability exp((score - best score) / scale), does. That is the largest of score plus exponential noise (Ding and
    others 2021), which is what is computed here. Pure losses, which add up.

    >>> import jax.numpy as jnp
    >>> flip = PermuteAndFlip(3, horizon=1)
    >>> draws, no_lattice = {"noise": jnp.array([0.1, 2.5, 0.3])}, {}
    >>> int(flip.release(flip.init(), jnp.array([2.0, 0.0, 1.0]), draws, no_lattice)[0])
    1
    """

    LAW: ClassVar[Law] = "exponential"

    def _compose(self, epsilon: float, count: int) -> Loss:
        return Pure(count * epsilon)


@kind("mechanism", "noisy-max")
@dataclass(frozen=True)
class NoisyMax(Selection):
    """The largest of score plus Laplace noise: Lap(2 D / epsilon), or Lap(D / epsilon) for monotone scores.

    With the smaller scale scores that move both ways cost up to 2 epsilon (paper 004's W does that). Permute-and-flip
    has the same guarantee with less noise; this is here because papers use it. Pure losses, which add up.

    >>> from gossamer.privacy import Budget, Sensitivity
    >>> scores = Sensitivity(l1=1.0, l2=1.0)
    >>> both_ways = NoisyMax(10, horizon=1).calibrate(scores, Budget(1.0))
    >>> one_way = NoisyMax(10, horizon=1, monotone=True).calibrate(scores, Budget(1.0))
    >>> round(both_ways.scales["noise"][0].value, 6), round(one_way.scales["noise"][0].value, 6)
    (2.0, 1.0)
    """

    LAW: ClassVar[Law] = "laplace"

    def _compose(self, epsilon: float, count: int) -> Loss:
        return Pure(count * epsilon)


def largest_sum(a: jax.Array, b: jax.Array) -> jax.Array:
    """The index of the largest a + b, compared exactly; -1 where that is not finite.

    Rounding a noisy score would move neighbours apart by more than the sensitivity.

    >>> int(largest_sum(jnp.array([2.0**24, 2.0**24]), jnp.array([0.5, 0.75])))
    1
    """
    high, low = two_sum(a, b)
    return jnp.where(jnp.isfinite(jnp.max(high)), first_largest((high, low)), -1)


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
