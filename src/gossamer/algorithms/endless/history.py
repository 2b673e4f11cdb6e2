"""Gradients of all past samples (paper 003, line 4 of Algorithm 1): kept as they are, sampled, or as sums.

d_t(theta) = mean over k <= t of grad l(theta, xi_k). Four ways to have it:

exact        every sample in a buffer; one pass over it a round
sampled      every sample in a buffer, a few of them drawn a round: for networks
statistics   least squares: sum x x' and sum x y, constant time a round
polynomial   logistic regression with a slope that is linear in the score: the same sums, and a stated error

Statistics do not know single samples, so they cannot clip gradients: features and labels are clipped on arrival, and
the largest gradient follows from those bounds and the decision set.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gossamer.errors import ConfigurationError
from gossamer.mechanisms import pairs
from gossamer.privacy import Clip, NoiseSpec, Unit
from gossamer.privacy.clip import check_bound
from gossamer.problems import Block, LeastSquares, Logistic, Problem
from gossamer.problems.numerics import arrived

PICKS = "picks"
COUNTED = 2**31 - 1
"""Samples that a counter holds; runs with more are refused."""
_PRECISE = jax.lax.Precision.HIGHEST
_ROUNDING = 2.0**-24  # float32: u, the relative error of one operation


class Buffer(NamedTuple):
    """All samples so far, in the first `rows` places."""

    x: jax.Array
    y: jax.Array
    rows: jax.Array


class Sums(NamedTuple):
    """sum x x', sum x y and their number, of samples clipped on arrival.

    Each sum is a pair of float32 arrays: one alone would stop growing after some ten million samples.
    """

    outer: pairs.Pair
    labelled: pairs.Pair
    rows: jax.Array


@dataclass(frozen=True)
class History(ABC):
    """What a learner keeps of its samples.

    Attributes:
        problem: whose gradients are wanted.
        clip: of every sample's gradient; None for sums.
    """

    problem: Problem
    clip: Clip | None

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """Public randomness that it needs in `learn`."""
        return {}

    @abstractmethod
    def init(self) -> Any:
        """Before the first sample."""

    @abstractmethod
    def add(self, kept: Any, block: Block) -> Any:
        """With more samples."""

    @abstractmethod
    def gradient(self, kept: Any, theta: jax.Array, draws: Mapping[str, jax.Array]) -> jax.Array:
        """The mean of the clipped data gradients of all samples so far, without l2."""

    @property
    @abstractmethod
    def largest_gradient(self) -> float:
        """The largest norm of a sample's gradient, as exact arithmetic has it."""

    @abstractmethod
    def error(self, curvature: float, exchanges: int, batch: int) -> float:
        """How far float32 puts a gradient from the exact one at most, wherever theta is in a bounded decision set.

        Exact is the gradient at theta of samples as they are kept, with the norms of features that float32 gives. It is
        computed at the high part of theta, a share of u = 2^-24 away.

        Args:
            curvature: the smoothness of a sample's data term.
            exchanges: that there are at most.
            batch: samples between two exchanges.
        """


@dataclass(frozen=True)
class Exact(History):
    """All samples in a buffer.

    Attributes:
        size: of the buffer: more samples than that are refused before a run begins.

    >>> history = Exact(LeastSquares(1), None, size=4)
    >>> kept = history.add(history.init(), Block(jnp.array([[1.0], [1.0]]), jnp.array([1.0, 3.0])))
    >>> history.gradient(kept, jnp.zeros(1), {}).tolist()
    [-4.0]
    """

    size: int

    def init(self) -> Buffer:
        """An empty buffer; its labels have the type of the problem's."""
        kind = jnp.int32 if self.problem.classifies else jnp.float32
        x = jnp.zeros((self.size, *self.problem.feature_shape))
        return Buffer(x, jnp.zeros(self.size, kind), jnp.zeros((), jnp.int32))

    def add(self, kept: Buffer, block: Block) -> Buffer:
        """The samples in the next places."""
        x = jax.lax.dynamic_update_slice_in_dim(kept.x, block.x.astype(kept.x.dtype), kept.rows, 0)
        y = jax.lax.dynamic_update_slice_in_dim(kept.y, block.y.astype(kept.y.dtype), kept.rows, 0)
        return Buffer(x, y, kept.rows + block.x.shape[0])

    def gradient(self, kept: Buffer, theta: jax.Array, draws: Mapping[str, jax.Array]) -> jax.Array:
        """Empty places hold zero features, and these have the gradient zero."""
        total = self.problem.clipped_data_gradient_sum(theta, Block(kept.x, kept.y), self.clip)
        return self._unless_full(kept, total / _at_least_one(kept.rows))

    @property
    def largest_gradient(self) -> float:
        """The clip, with the roundings of clipping."""
        assert self.clip is not None
        return self.clip.sensitivity(Unit.SAMPLE, self.problem.dim).l2 / 2

    def error(self, curvature: float, exchanges: int, batch: int) -> float:
        """Scores, slopes and clipping of every row, and the sum of all rows.

        A score is a sum of as many products as a sample has features, in any order. With theta and the clipped features
        it is off by (features + 8) u |x| |theta|, and so the gradient by the curvature times (features + 8) u R:
        clipping moves no two slopes apart. Slope, clip, product and mean are 32 operations on a gradient, with 8 for a
        sigmoid. A softmax has one for every class, and slopes that are small differences of numbers up to 1, so that
        there it is a share of the largest gradient before the clip. What a sum of rows adds is what `Clip.sensitivity`
        counts for as many rows as the buffer has. Empty rows are zeros and round nothing.

        >>> from gossamer.sets import L2Ball
        >>> history = Exact(Logistic(112, feature_bound=1.0, domain=L2Ball(10.0)), Clip(l2=1.0), size=2000)
        >>> f"{history.error(0.25, 2000, 1):.1e}"
        '2.5e-05'
        """
        assert self.clip is not None
        problem, clip = self.problem, self.clip
        features = math.prod(problem.feature_shape)
        outputs = problem.dim // features
        largest = clip.norm if outputs == 1 else max(clip.norm, problem.lipschitz or 0.0)
        all_rows, one = (clip.sensitivity(Unit.SAMPLE, problem.dim, rows=rows).l2 for rows in (self.size, 1))
        scores = curvature * (features + 8) * _ROUNDING * problem.domain.radius
        return scores + (32 + outputs) * _ROUNDING * largest + (all_rows - one) / (2 * self.size)

    def _unless_full(self, kept: Buffer, gradient: jax.Array) -> jax.Array:
        """Engines refuse a run that does not fit; a program that does not must not get a number."""
        return jnp.where(kept.rows <= self.size, gradient, jnp.nan)


@dataclass(frozen=True)
class Sampled(Exact):
    """All samples in a buffer, of which `picks` are drawn with replacement for every gradient."""

    picks: int

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """One uniform number for every pick."""
        return {PICKS: NoiseSpec("uniform", (self.picks,), "learn")}

    def gradient(self, kept: Buffer, theta: jax.Array, draws: Mapping[str, jax.Array]) -> jax.Array:
        """The mean over the picks."""
        last = jnp.maximum(kept.rows - 1, 0)
        rows = jnp.minimum((draws[PICKS] * kept.rows.astype(jnp.float32)).astype(jnp.int32), last)
        picked = Block(kept.x[rows], kept.y[rows])
        gradient = self.problem.clipped_data_gradient_sum(theta, picked, self.clip) / self.picks
        return self._unless_full(kept, gradient)


@dataclass(frozen=True)
class Statistics(History):
    """Sums instead of samples: the gradient of one is (slope <x, theta> - pull y) x.

    Attributes:
        slope: 2 for least squares, about 1/4 for logistic regression.
        pull: 2 for least squares; 1/2 for logistic regression, whose labels are -1 and 1 here.
        label_bound: labels are clipped to this.

    >>> history = Statistics(LeastSquares(1, feature_bound=1.0), None, slope=2.0, pull=2.0, label_bound=5.0)
    >>> kept = history.add(history.init(), Block(jnp.array([[1.0], [2.0]]), jnp.array([1.0, 30.0])))
    >>> round(history.gradient(kept, jnp.zeros(1), {}).item(), 3)
    -6.0
    """

    slope: float
    pull: float
    label_bound: float

    def init(self) -> Sums:
        """Nothing yet."""
        d = self.problem.dim
        outer, labelled = ((jnp.zeros(shape), jnp.zeros(shape)) for shape in ((d, d), (d,)))
        return Sums(outer, labelled, jnp.zeros((), jnp.int32))

    def add(self, kept: Sums, block: Block) -> Sums:
        """Features are clipped to the problem's bound, labels to theirs; what is not finite counts as zero."""
        x = arrived(block.x, self.problem.feature_bound)
        y = jnp.where(block.y == 1, 1.0, -1.0) if self.problem.classifies else block.y
        y = jnp.clip(jnp.where(jnp.isfinite(y), y, 0), -self.label_bound, self.label_bound)
        outer = pairs.add(kept.outer, jnp.matmul(x.T, x, precision=_PRECISE))
        labelled = pairs.add(kept.labelled, jnp.matmul(x.T, y, precision=_PRECISE))
        return Sums(outer, labelled, kept.rows + x.shape[0])

    def gradient(self, kept: Sums, theta: jax.Array, draws: Mapping[str, jax.Array]) -> jax.Array:
        """(slope sum x x' theta - pull sum x y) / count."""
        total = self.slope * jnp.matmul(kept.outer[0], theta, precision=_PRECISE) - self.pull * kept.labelled[0]
        total = jnp.where(kept.rows >= 0, total, jnp.nan)  # the counter has come round: see `COUNTED`
        return total / _at_least_one(kept.rows)

    @property
    def largest_gradient(self) -> float:
        """(slope R r + pull Y) R with features of norm R, decisions of norm r and labels up to Y."""
        assert self.problem.feature_bound is not None
        bound, radius = self.problem.feature_bound * norm_share(self.problem), self.problem.domain.radius
        return bound * (self.slope * bound * radius + self.pull * self.label_bound) * (1 + 2.0**-22)

    def error(self, curvature: float, exchanges: int, batch: int) -> float:
        """Of the sums, and of what is made of them, all as shares of the largest gradient.

        A product of two features, summed over a batch, is off by (batch + 1) u of its terms, and by u more where it is
        fused into the sum of pairs. That sum is off by 2 u^2 of all its terms after each addition. The product with
        theta sums d terms, and everything else is 8 operations. The matrix of all |x_i x_j| has the norm |x|^2, so that
        these are shares of the sum of |x|^2 |theta|, and of |x| |y|.

        >>> from gossamer.sets import L2Ball
        >>> sums = least_squares_sums(LeastSquares(20, feature_bound=1.0, domain=L2Ball(5.0)), 3.0)
        >>> f"{sums.error(2.0, 2000, 1):.1e}", f"{sums.error(2.0, COUNTED, 1):.1e}"
        ('3.5e-05', '2.8e-04')
        """
        return self.largest_gradient * ((self.problem.dim + batch + 16) * _ROUNDING + 2 * exchanges * _ROUNDING**2)

    @property
    def smoothness(self) -> float:
        """L of one sample's loss: slope R^2 + l2."""
        assert self.problem.feature_bound is not None
        return self.slope * self.problem.feature_bound**2 + self.problem.l2


def least_squares_sums(problem: Problem, label_bound: float | None) -> Statistics:
    """Exact statistics for least squares.

    >>> from gossamer.sets import L2Ball
    >>> least_squares_sums(LeastSquares(2, feature_bound=1.0, domain=L2Ball(2.0)), 3.0).slope
    2.0
    """
    if not isinstance(problem, LeastSquares):
        hint = "only its gradient is linear in two sums: use history='polynomial' for logistic regression, or 'exact'"
        raise ConfigurationError("history", "statistics", "least squares", hint)
    if label_bound is None:
        raise ConfigurationError("label_bound", None, "a positive number", "labels are clipped to it on arrival")
    return _summable(Statistics(_bounded(problem), None, 2.0, 2.0, check_bound("label_bound", label_bound)))


def logistic_sums(problem: Problem) -> Statistics:
    """Statistics for logistic regression with the linear slope nearest to the sigmoid on all possible scores.

    >>> from gossamer.sets import L2Ball
    >>> sums = logistic_sums(Logistic(2, feature_bound=1.0, domain=L2Ball(2.0)))
    >>> round(sums.slope, 3), round(slope_error(2.0)[1], 3)
    (0.204, 0.027)
    """
    if not isinstance(problem, Logistic):
        raise ConfigurationError("history", "polynomial", "logistic regression")
    bound = _bounded(problem).feature_bound
    assert bound is not None
    return _summable(Statistics(problem, None, slope_error(bound * problem.domain.radius)[0], 0.5, 1.0))


def slope_error(largest: float) -> tuple[float, float]:
    """The b for which 1/2 + b s is nearest to the sigmoid of s, |s| <= largest, and how far it is at most.

    sigmoid(s) - 1/2 is concave for s > 0 and starts at 0, so the best line through 0 has equal errors with opposite
    signs at `largest` and where the sigmoid is as steep as the line.

    >>> import numpy as np
    >>> slope, error = slope_error(3.0)
    >>> s = np.linspace(-3, 3, 10001)
    >>> bool(abs(np.abs(1 / (1 + np.exp(-s)) - 0.5 - slope * s).max() - error) < 1e-6)
    True
    """
    if not math.isfinite(largest):
        hint = "no line is near the sigmoid everywhere: give the problem a feature_bound and a bounded domain"
        raise ConfigurationError("history", "polynomial", "bounded scores", hint)
    low, high = 0.0, 0.25

    def gap(slope: float) -> float:
        steep = 2 * math.acosh(max(1.0, 0.5 / math.sqrt(slope))) if slope < 0.25 else 0.0
        inside = 0.5 * math.tanh(min(steep, largest) / 2) - slope * min(steep, largest)
        return inside - (slope * largest - 0.5 * math.tanh(largest / 2))

    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if gap(middle) > 0 else (low, middle)
    return high, high * largest - 0.5 * math.tanh(largest / 2)


def _at_least_one(rows: jax.Array) -> jax.Array:
    return jnp.maximum(rows, 1).astype(jnp.float32)


def _bounded(problem: Problem) -> Problem:
    if problem.feature_bound is None or not math.isfinite(problem.domain.radius):
        allowed = "a problem with a feature_bound and a bounded domain"
        raise ConfigurationError("problem", problem, allowed, "its largest gradient follows from them")
    return problem


def norm_share(problem: Problem) -> float:
    """By how much float32 may leave features longer than their bound: 1 and a little.

    >>> 1 < norm_share(Logistic(3, feature_bound=1.0)) < 1 + 2**-15
    True
    """
    return Clip(l2=1.0).sensitivity(Unit.SAMPLE, math.prod(problem.feature_shape)).l2 / 2


def _summable(sums: Statistics) -> Statistics:
    """Refuse bounds with which sums of as many samples as are counted could leave float32."""
    if sums.largest_gradient * COUNTED > 1e38:
        given, allowed = f"gradients of up to {sums.largest_gradient:.3g}", f"at most {1e38 / COUNTED:.3g}"
        raise ConfigurationError("problem", given, allowed, "give a smaller feature_bound, label_bound or domain")
    return sums
