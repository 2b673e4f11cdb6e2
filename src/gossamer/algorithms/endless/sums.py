"""Sums instead of samples: histories of constant size, for `ldp_endless`.

Sums do not know single samples, so they cannot clip gradients: features and labels are clipped on arrival, and the
largest gradient follows from those bounds and the decision set.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gossamer.algorithms.endless.history import COUNTED, ROUNDING, History, Kept, at_least_one, norm_share
from gossamer.errors import ConfigurationError
from gossamer.mechanisms import pairs
from gossamer.privacy import Assumption, Clip
from gossamer.privacy.clip import check_bound
from gossamer.problems import Block, LeastSquares, Logistic, Problem
from gossamer.problems.numerics import arrived

_PRECISE = jax.lax.Precision.HIGHEST


class Sums(NamedTuple):
    """sum x x', sum x y and their number, of samples clipped on arrival.

    Each sum is a pair of float32 arrays: one alone would stop growing after some ten million samples.
    """

    outer: pairs.Pair
    labelled: pairs.Pair
    rows: jax.Array


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
        return total / at_least_one(kept.rows)

    @property
    def largest_gradient(self) -> float:
        """(slope R r + pull Y) R with features of norm R, decisions of norm r and labels up to Y."""
        assert self.problem.feature_bound is not None
        bound, radius = self.problem.feature_bound * norm_share(self.problem), self.problem.domain.radius
        return bound * (self.slope * bound * radius + self.pull * self.label_bound) * (1 + 2.0**-22)

    @property
    def bounded(self) -> Assumption:
        """What arrives."""
        return Assumption("features and labels are clipped on arrival", f"{__name__}.Statistics.add")

    @property
    def smoothness(self) -> float:
        """Slope R^2 + l2."""
        assert self.problem.feature_bound is not None
        return self.slope * self.problem.feature_bound**2 + self.problem.l2

    @property
    def convex(self) -> bool:
        """Sums of squares are."""
        return True

    def error(self, curvature: float, exchanges: int, rows: int) -> float:
        """Of the sums, and of what is made of them, all as shares of the largest gradient.

        A product of two features, summed over the new rows, is off by (rows + 1) u of its terms, and by u more where
        it is fused into the sum of pairs. That sum is off by 2 u^2 of all its terms after each addition. The product
        with theta sums d terms, and everything else is 8 operations. The matrix of all |x_i x_j| has the norm |x|^2, so
        that these are shares of the sum of |x|^2 |theta|, and of |x| |y|.

        >>> from gossamer.sets import L2Ball
        >>> sums = least_squares_sums(LeastSquares(20, feature_bound=1.0, domain=L2Ball(5.0)), 3.0)
        >>> f"{sums.error(2.0, 2000, 1):.1e}", f"{sums.error(2.0, COUNTED, 1):.1e}"
        ('3.5e-05', '2.8e-04')
        """
        return self.largest_gradient * ((self.problem.dim + rows + 16) * ROUNDING + 2 * exchanges * ROUNDING**2)


def sums_of(problem: Problem, kept: Kept, clip: float | Clip | None, label_bound: float | None) -> Statistics:
    """Those of least squares, or of logistic regression.

    >>> sums_of(LeastSquares(3), "statistics", 1.0, 2.0)
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: clip: got 1.0; allowed: None with history='statistics'. Sums do not know ...
    """
    if clip is not None:
        hint = "sums do not know single samples: features and labels are clipped on arrival"
        raise ConfigurationError("clip", clip, f"None with history={kept!r}", hint)
    return logistic_sums(problem) if kept == "polynomial" else least_squares_sums(problem, label_bound)


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


def _bounded(problem: Problem) -> Problem:
    if problem.feature_bound is None or not math.isfinite(problem.domain.radius):
        allowed = "a problem with a feature_bound and a bounded domain"
        raise ConfigurationError("problem", problem, allowed, "its largest gradient follows from them")
    return problem


def _summable(sums: Statistics) -> Statistics:
    """Refuse bounds with which sums of as many samples as are counted could leave float32."""
    if sums.largest_gradient * COUNTED > 1e38:
        given, allowed = f"gradients of up to {sums.largest_gradient:.3g}", f"at most {1e38 / COUNTED:.3g}"
        raise ConfigurationError("problem", given, allowed, "give a smaller feature_bound, label_bound or domain")
    return sums
