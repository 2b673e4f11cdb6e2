"""Attacks with one finite record that breaks float32 inside a model: its gradient is not a number.

Where such a gradient enters a sum, the message is not a number either, and no noise hides that. So whoever sees
messages looks for one thing: whether they are finite. A gradient that is not finite must add exactly zero, and then
they are.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer import problems, topology
from gossamer.algorithms import pd_ogd
from gossamer.auditing.attacks.base import Attack, Case, attack, samples
from gossamer.auditing.views import View
from gossamer.privacy import Budget
from gossamer.problems import Problem


def normed(params: Any, x: jax.Array) -> jax.Array:
    """A linear model of x / |x|: at zero it is 0 / 0.

    >>> normed(jnp.ones((2, 2)), jnp.array([3.0, 4.0])).round(2).tolist()
    [1.39..., 1.39...]
    """
    return jnp.asarray(params @ (x / jnp.sqrt(jnp.sum(x * x))))


def zeros_over_their_norm() -> Case:
    """A record of zeros instead of one with ones, into a model that divides by the norm.

    >>> round(zeros_over_their_norm().algorithm.guarantee.epsilon, 6)
    1.0
    """
    problem = problems.Model(normed, np.eye(2), features=(2,), classes=2)
    return _finite_or_not(problem, np.ones(2), np.zeros(2))


def huge_pixel() -> Case:
    """A pixel of 3e38 in an image of zeros, into a convolutional network.

    >>> round(huge_pixel().algorithm.guarantee.epsilon, 6)
    1.0
    """
    problem = problems.small_cnn((10, 10, 1), 2, channels=4, hidden=4, seed=1)
    image = np.zeros((10, 10, 1))
    bright = image.copy()
    bright[5, 5] = 3e38
    return _finite_or_not(problem, image, bright)


def _finite_or_not(problem: Problem, ordinary: ArrayLike, extreme: ArrayLike) -> Case:
    """One learner, one step, epsilon 1; the score is whether all it says is finite."""
    algorithm = pd_ogd(problem, topology.isolated(1), budget=Budget(1.0), clip=1.0, step=1.0)
    stream, neighbour = (samples(np.asarray(x)[None, None], [[0]]) for x in (ordinary, extreme))

    def score(view: View) -> NDArray[np.float64]:
        finite = np.isfinite(view.messages).reshape(len(view.messages), -1).all(axis=1)
        return np.asarray(finite, np.float64)

    return Case(algorithm, stream, neighbour, score)


ATTACKS: tuple[Attack, ...] = (
    attack("zeros over their norm", "a gradient of 0 / 0", "probe", zeros_over_their_norm, runs=20_000),
    attack("pixel of 3e38", "a gradient that overflows", "probe", huge_pixel, runs=20_000),
)
