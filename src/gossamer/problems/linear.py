"""Losses of one inner product <x, w>: logistic, least squares, hinge and linear.

A sample's gradient is its features times the slope of the loss at the score, so its norm is |slope| |x| and
the clipped sum is one product of weights and features: no per-sample gradient is ever formed.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.privacy import Clip
from gossamer.problems.base import Block, Problem
from gossamer.problems.checks import check_classes, check_targets
from gossamer.problems.numerics import clipped_sum
from gossamer.spec import kind


@dataclass(frozen=True)
class ScalarLink(Problem):
    """A loss of the score <x, w>, given by `_link` and its derivative `_slope`."""

    scalar_link: ClassVar[bool] = True
    zero_rows_are_silent: ClassVar[bool] = True

    def predict(self, decision: jax.Array, x: jax.Array) -> jax.Array:
        """The scores <x, w> of the rows."""
        return self._scores(decision, self._arrived(x))

    def _data_losses(self, decision: jax.Array, block: Block) -> jax.Array:
        return self._link(self._scores(decision, self._arrived(block.x)), block.y)

    def _clipped_data_gradient_sum(self, decision: jax.Array, block: Block, clip: Clip | None) -> jax.Array:
        x = self._arrived(block.x)
        return clipped_sum(x, clip, self._slope(self._scores(decision, x), block.y))

    def _clipped_part_sum(
        self, decision: jax.Array, block: Block, clip: Clip | None, places: jax.Array, *, consecutive: bool
    ) -> jax.Array:
        x = self._arrived(block.x)
        slopes = self._slope(self._scores(decision, x, common=True), block.y)
        return clipped_sum(_columns(x, places, consecutive), clip, slopes)

    def _row_gradients(self, decision: jax.Array, block: Block, places: jax.Array) -> jax.Array:
        x = self._arrived(block.x)
        return self._slope(self._scores(decision, x), block.y)[:, None] * _columns(x, places)

    def _scores(self, decision: jax.Array, x: jax.Array, *, common: bool = False) -> jax.Array:
        # The second order is for one row that all learners share: in the first, XLA would transpose all decisions.
        factors = (decision, x[0]) if common and x.shape[0] == 1 else (x, decision)
        # Full float32 on every device: some guarantees count on the digits of a score, not only on the clip.
        return jnp.atleast_1d(jnp.matmul(*factors, precision=jax.lax.Precision.HIGHEST))

    @abstractmethod
    def _link(self, score: jax.Array, y: jax.Array) -> jax.Array:
        """The loss as a function of the score."""

    @abstractmethod
    def _slope(self, score: jax.Array, y: jax.Array) -> jax.Array:
        """The derivative of the loss in the score."""


def _columns(x: jax.Array, places: jax.Array, consecutive: bool = False) -> jax.Array:
    """These columns; zeros for places outside. Consecutive ones are read row by row, others number by number."""
    if consecutive:
        return jax.lax.dynamic_slice_in_dim(x, places[0], places.shape[0], axis=1)
    return jnp.take(x, places, axis=1, mode="fill", fill_value=0)


@dataclass(frozen=True)
class BinaryLink(ScalarLink):
    """A score whose sign is the predicted label, 0 or 1."""

    @property
    def classifies(self) -> bool:
        """Yes."""
        return True

    @property
    def lipschitz(self) -> float | None:
        """The feature bound: slopes are at most 1."""
        return self.feature_bound

    def predict(self, decision: jax.Array, x: jax.Array) -> jax.Array:
        """Label 1 where the score is positive, else 0."""
        return (self._scores(decision, self._arrived(x)) > 0).astype(jnp.int32)

    def _check_labels(self, y: np.ndarray, start: int) -> None:
        check_classes(y, 2, start)


@kind("problem", "logistic")
@dataclass(frozen=True)
class Logistic(BinaryLink):
    """Logistic regression: log(1 + exp(-s <x, w>)) with s = -1 for label 0 and +1 for label 1.

    >>> problem = Logistic(dim=2, feature_bound=2.0)
    >>> float(problem.loss(jnp.zeros(2), jnp.ones(2), jnp.array(1)))
    0.69314...
    >>> block = Block(jnp.ones((3, 2)), jnp.array([1, 1, 0]))
    >>> problem.clipped_gradient_sum(jnp.zeros(2), block, clip=None).tolist()
    [-0.5, -0.5]
    >>> problem.lipschitz, problem.smoothness
    (2.0, 1.0)
    """

    @property
    def smoothness(self) -> float | None:
        """R^2 / 4 + l2 with features of norm at most R."""
        return None if self.feature_bound is None else self.feature_bound**2 / 4 + self.l2

    def probabilities(self, decision: jax.Array, x: jax.Array) -> jax.Array:
        """Of label 0 and of label 1: the sigmoid of the score.

        >>> Logistic(dim=1).probabilities(jnp.ones(1), jnp.array([[0.0], [2.0]])).round(2).tolist()
        [[0.5, 0.5], [0.1..., 0.8...]]
        """
        scores = self._scores(decision, self._arrived(x))
        return jnp.stack([jax.nn.sigmoid(-scores), jax.nn.sigmoid(scores)], axis=1)

    def _link(self, score: jax.Array, y: jax.Array) -> jax.Array:
        return jax.nn.softplus(jnp.where(y == 1, -score, score))

    def _slope(self, score: jax.Array, y: jax.Array) -> jax.Array:
        # Each branch keeps its relative precision where the slope is tiny.
        return jnp.where(y == 1, -jax.nn.sigmoid(-score), jax.nn.sigmoid(score))


@kind("problem", "hinge")
@dataclass(frozen=True)
class Hinge(BinaryLink):
    """The support vector machine's loss: max(0, 1 - s <x, w>) with s = -1 for label 0 and +1 for label 1.

    >>> problem = Hinge(dim=2)
    >>> float(problem.loss(jnp.array([0.5, 0.0]), jnp.ones(2), jnp.array(0)))
    1.5
    """

    def _link(self, score: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.maximum(1 - jnp.where(y == 1, score, -score), 0)

    def _slope(self, score: jax.Array, y: jax.Array) -> jax.Array:
        sign = jnp.where(y == 1, 1, -1).astype(score.dtype)
        return jnp.where(sign * score < 1, -sign, 0)


@kind("problem", "least-squares")
@dataclass(frozen=True)
class LeastSquares(ScalarLink):
    """Linear regression: (<x, w> - y)^2, without a factor 1/2, as in paper 002.

    >>> problem = LeastSquares(dim=2, feature_bound=2.0)
    >>> float(problem.loss(jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0]), jnp.array(5.0)))
    9.0
    >>> problem.smoothness
    8.0
    """

    @property
    def smoothness(self) -> float | None:
        """2 R^2 + l2 with features of norm at most R."""
        return None if self.feature_bound is None else 2 * self.feature_bound**2 + self.l2

    def _link(self, score: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.square(score - y)

    def _slope(self, score: jax.Array, y: jax.Array) -> jax.Array:
        return 2 * (score - y)

    def _check_labels(self, y: np.ndarray, start: int) -> None:
        check_targets(y, start)


@kind("problem", "linear")
@dataclass(frozen=True)
class Linear(ScalarLink):
    """The loss <x, w> itself, for experts and linear games: features are losses, labels are ignored.

    >>> problem = Linear(dim=2)
    >>> float(problem.loss(jnp.array([0.25, 0.75]), jnp.array([1.0, 0.0]), jnp.array(0)))
    0.25
    >>> problem.smoothness
    0.0
    """

    @property
    def lipschitz(self) -> float | None:
        """The feature bound."""
        return self.feature_bound

    @property
    def smoothness(self) -> float:
        """That of the regularisation alone."""
        return self.l2

    def _link(self, score: jax.Array, y: jax.Array) -> jax.Array:
        return score

    def _slope(self, score: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.ones_like(score)

    def _check_labels(self, y: np.ndarray, start: int) -> None:
        """Nothing to check: labels are ignored."""
