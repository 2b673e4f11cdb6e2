"""Multi-class logistic regression, clipped without per-sample gradients."""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.checks import check_count
from gossamer.privacy import Clip
from gossamer.problems.base import Block, Problem
from gossamer.problems.checks import check_class_count, check_classes
from gossamer.problems.numerics import best_class, clipped_sum, cross_entropy
from gossamer.spec import kind


def _facts(problem: Softmax) -> dict[str, Any]:
    """What it was made of: its `dim` counted the features."""
    options = {name: getattr(problem, name) for name in ("classes", "l2", "feature_bound", "domain")}
    return {"dim": problem.features, **options}


@kind("problem", "softmax", facts=_facts)
@dataclass(frozen=True)
class Softmax(Problem):
    """Cross-entropy of one score per class, as in paper 000.

    A decision is the matrix of shape (classes, features), flattened row by row. The constructor's `dim`
    counts the features of a sample; the attribute `dim`, as for every problem, is the length of a decision:
    classes times features.

    >>> problem = Softmax(dim=16, classes=26)
    >>> problem.dim, problem.features
    (416, 16)
    >>> float(problem.loss(jnp.zeros(416), jnp.ones(16), jnp.array(3)))
    3.258...
    """

    dim: InitVar[int]
    classes: int
    features: int = field(init=False)

    zero_rows_are_silent: ClassVar[bool] = True

    def __post_init__(self, dim: int) -> None:
        check_count("dim", dim)
        check_class_count(self.classes)
        object.__setattr__(self, "features", dim)
        object.__setattr__(self, "dim", dim * self.classes)
        super().__post_init__()

    @property
    def classifies(self) -> bool:
        """Yes."""
        return True

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """One vector of features."""
        return (self.features,)

    @property
    def lipschitz(self) -> float | None:
        """sqrt(2) R: no vector of probabilities is farther than sqrt(2) from a label."""
        return None if self.feature_bound is None else math.sqrt(2) * self.feature_bound

    @property
    def smoothness(self) -> float | None:
        """R^2 / 2 + l2: the Hessian of log-sum-exp has eigenvalues of at most 1/2."""
        return None if self.feature_bound is None else self.feature_bound**2 / 2 + self.l2

    def predict(self, decision: jax.Array, x: jax.Array) -> jax.Array:
        """The class of the largest score."""
        return best_class(self._scores(decision, self._arrived(x)))

    def probabilities(self, decision: jax.Array, x: jax.Array) -> jax.Array:
        """The softmax of the scores."""
        return jax.nn.softmax(self._scores(decision, self._arrived(x)), axis=0).T

    def _data_losses(self, decision: jax.Array, block: Block) -> jax.Array:
        return cross_entropy(self._scores(decision, self._arrived(block.x)), block.y)

    def _clipped_data_gradient_sum(self, decision: jax.Array, block: Block, clip: Clip | None) -> jax.Array:
        x = self._arrived(block.x)
        slopes = self._slopes(decision, x, block.y)
        if clip is not None and clip.blocks is not None:  # blocks cut the outer product: form it
            return clipped_sum((slopes.T[:, :, None] * x[:, None, :]).reshape(x.shape[0], self.dim), clip)
        # The norm of an outer product is the product of the norms, l1 and l2.
        return clipped_sum(x, clip, slopes).reshape(-1)

    def _row_gradients(self, decision: jax.Array, block: Block, places: jax.Array) -> jax.Array:
        x = self._arrived(block.x)
        slopes = self._slopes(decision, x, block.y)
        slopes = jnp.take(slopes, places // self.features, axis=0, mode="fill", fill_value=0)
        return slopes.T * jnp.take(x, places % self.features, axis=1)

    def _slopes(self, decision: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        """What every row is multiplied with in the gradient of every class, (classes, rows)."""
        probabilities = jax.nn.softmax(self._scores(decision, x), axis=0)
        return probabilities - jax.nn.one_hot(y, self.classes, dtype=decision.dtype, axis=0)

    def _scores(self, decision: jax.Array, x: jax.Array) -> jax.Array:
        """(classes, rows)."""
        weights = decision.reshape(self.classes, self.features)
        return jnp.matmul(weights, x.T, precision=jax.lax.Precision.HIGHEST)  # as in `ScalarLink`

    def _check_labels(self, y: np.ndarray, start: int) -> None:
        check_classes(y, self.classes, start)
