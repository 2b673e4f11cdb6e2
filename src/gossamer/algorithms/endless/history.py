"""Gradients of all past samples (paper 003, line 4 of Algorithm 1), which are kept as they are, or as `sums`.

d_t(theta) = mean over k <= t of grad l(theta, xi_k). Four ways to have it:

exact        every sample in a buffer; one pass over it a round
sampled      every sample in a buffer, a few of them drawn a round: for networks
statistics   least squares: sum x x' and sum x y, constant time a round
polynomial   logistic regression with a slope that is linear in the score: the same sums, and a stated error
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from gossamer.algorithms.authoring import require_one_bound
from gossamer.algorithms.endless import hidden
from gossamer.algorithms.endless.fading import Rounding
from gossamer.checks import check_count
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.privacy import Assumption, Clip, NoiseSpec, Unit
from gossamer.problems import Block, Problem

Kept = Literal["exact", "statistics", "polynomial", "sampled"]
PICKS = "picks"
COUNTED = 2**31 - 1
"""Samples that a counter holds; runs with more are refused."""
ROUNDING = 2.0**-24
"""Float32: u, the relative error of one operation."""


class Buffer(NamedTuple):
    """All samples so far, in the first `rows` places."""

    x: jax.Array
    y: jax.Array
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

    @property
    @abstractmethod
    def bounded(self) -> Assumption:
        """What bounds that norm."""

    @property
    @abstractmethod
    def smoothness(self) -> float | None:
        """L of one sample's loss; None where nothing bounds it."""

    @property
    @abstractmethod
    def convex(self) -> bool:
        """Whether these are gradients of convex losses."""

    def constants(self, smoothness: float | None, exchanges: int, rows: int) -> dict[str, Any]:
        """What `Fading` needs to know about the losses.

        Args:
            smoothness: L, where nothing bounds it.
            exchanges: that there are at most.
            rows: samples that are added between two of them.
        """
        problem, known, largest = self.problem, self.smoothness, self.largest_gradient
        if smoothness is not None and known is not None:
            raise ConfigurationError("smoothness", smoothness, f"None: the problem knows it, {known:g}")
        known = smoothness if known is None else known
        if known is None:
            hint = "nothing bounds what a sample leaves behind: give the problem a feature_bound, or a smoothness"
            raise PrivacyError.of("smoothness", None, "a smooth loss", hint)
        curvature, rounding = (known - problem.l2) * norm_share(problem) ** 2, Rounding()
        if hidden.counted(problem.domain):
            error = self.error(curvature, exchanges, rows)
            rounding = hidden.rounding(problem.domain, problem.dim, problem.l2, largest, error)
        return {
            "change": 2 * largest / rows,
            "smoothness": problem.l2 + curvature,
            "strong_convexity": problem.l2,
            "convex": self.convex,
            "rounding": rounding,
        }

    @abstractmethod
    def error(self, curvature: float, exchanges: int, rows: int) -> float:
        """How far float32 puts a gradient from the exact one at most, wherever theta is in a bounded decision set.

        Exact is the gradient at theta of samples as they are kept, with the norms of features that float32 gives. It is
        computed at the high part of theta, a share of u = 2^-24 away.

        Args:
            curvature: the smoothness of a sample's data term.
            exchanges: as for `constants`.
            rows: as well.
        """


@dataclass(frozen=True)
class Exact(History):
    """All samples in a buffer.

    Attributes:
        size: of the buffer: more samples than that are refused before a run begins.

    >>> from gossamer.problems import LeastSquares
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
        return self._unless_full(kept, total / at_least_one(kept.rows))

    @property
    def largest_gradient(self) -> float:
        """The clip, with the roundings of clipping."""
        assert self.clip is not None
        return self.clip.sensitivity(Unit.SAMPLE, self.problem.dim).l2 / 2

    @property
    def bounded(self) -> Assumption:
        """The clip."""
        enforced_by = "gossamer.problems.Problem.clipped_data_gradient_sum"
        return Assumption(f"every sample's gradient is clipped: {self.clip}", enforced_by)

    @property
    def smoothness(self) -> float | None:
        """That of the problem: clipping does not add to it."""
        return self.problem.smoothness

    @property
    def convex(self) -> bool:
        """A clipped slope of one inner product still grows with it; a clipped vector need not be a gradient."""
        assert self.clip is not None
        problem = self.problem
        never = problem.lipschitz is not None and problem.lipschitz <= self.clip.norm
        return problem.strong_convexity is not None and (problem.scalar_link or never)

    def error(self, curvature: float, exchanges: int, rows: int) -> float:
        """Scores, slopes and clipping of every row, and the sum of all rows.

        A score is a sum of as many products as a sample has features, in any order. With theta and the clipped features
        it is off by (features + 8) u |x| |theta|, and so the gradient by the curvature times (features + 8) u R:
        clipping moves no two slopes apart. Slope, clip, product and mean are 32 operations on a gradient, with 8 for a
        sigmoid. A softmax has one for every class, and slopes that are small differences of numbers up to 1, so that
        there it is a share of the largest gradient before the clip. What a sum of rows adds is what `Clip.sensitivity`
        counts for as many rows as the buffer has. Empty rows are zeros and round nothing.

        >>> from gossamer.problems import Logistic
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
        scores = curvature * (features + 8) * ROUNDING * problem.domain.radius
        return scores + (32 + outputs) * ROUNDING * largest + (all_rows - one) / (2 * self.size)

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


def buffer_of(problem: Problem, kept: Kept, clip: float | Clip | None, size: int | None, picks: int) -> Exact:
    """A buffer of that size, of which `picks` samples are drawn where it is sampled.

    >>> from gossamer.problems import Logistic
    >>> buffer_of(Logistic(3), "exact", 1.0, None, 32)
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: buffer: got None; allowed: a number of samples with history='exact'. All ...
    """
    bounded = Clip.of(clip)
    require_one_bound(bounded)
    if size is None:
        hint = "all samples are kept; 'statistics' and 'polynomial' need constant memory"
        raise ConfigurationError("buffer", None, f"a number of samples with history={kept!r}", hint)
    if kept == "sampled":
        return Sampled(problem, bounded, size, check_count("picks", picks))
    if not problem.zero_rows_are_silent:
        raise ConfigurationError("history", "exact", "'sampled' for models that are not linear")
    return Exact(problem, bounded, size)


def at_least_one(rows: jax.Array) -> jax.Array:
    """What a sum of so many rows is divided by."""
    return jnp.maximum(rows, 1).astype(jnp.float32)


def norm_share(problem: Problem) -> float:
    """By how much float32 may leave features longer than their bound: 1 and a little.

    >>> from gossamer.problems import Logistic
    >>> 1 < norm_share(Logistic(3, feature_bound=1.0)) < 1 + 2**-15
    True
    """
    return Clip(l2=1.0).sensitivity(Unit.SAMPLE, math.prod(problem.feature_shape)).l2 / 2
