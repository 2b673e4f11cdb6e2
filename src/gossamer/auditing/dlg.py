"""Deep leakage from gradients (Zhu et al. 2019): find the sample that a gradient was taken at.

Not a bound on epsilon but a picture of it: what somebody who hears a message can make of it. The attacker knows the
problem and the parameters, starts at random features, and moves them until their gradient is the one that was seen.
Where it knows between which values features lie, as of pixels, guesses begin and stay there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer.auditing.views import Floats
from gossamer.checks import check_count, check_positive, check_seed
from gossamer.errors import ConfigurationError
from gossamer.privacy import Clip
from gossamer.problems import Block, Problem
from gossamer.problems.linear import BinaryLink
from gossamer.problems.numerics import arrived


class Guess(NamedTuple):
    """Features and label."""

    x: jax.Array
    y: jax.Array


@dataclass(frozen=True)
class Reconstruction:
    """The sample whose gradient is nearest to what was seen.

    Attributes:
        x: its features.
        y: its label.
        mismatch: squared distance of its gradient from the one seen, as a share of the latter's squared norm.
    """

    x: Floats
    y: float
    mismatch: float

    def error(self, x: ArrayLike) -> float:
        """The mean squared error of the features, against the true ones.

        >>> Reconstruction(np.array([1.0, 0.0]), 1.0, 0.0).error([1.0, 2.0])
        2.0
        """
        truth = np.asarray(x, np.float64)
        if truth.shape != self.x.shape:
            raise ConfigurationError("x", truth.shape, f"features of shape {self.x.shape}")
        return float(np.mean(np.square(self.x - truth)))


def dlg(
    problem: Problem,
    parameters: ArrayLike,
    gradient: ArrayLike,
    *,
    seed: int,
    label_known: float | None = None,
    clip: float | Clip | None = None,
    bounds: tuple[float, float] | None = None,
    steps: int = 1000,
    restarts: int = 4,
    rate: float = 0.1,
) -> Reconstruction:
    """Reconstruct one sample from its gradient, or from a difference of messages divided by the step.

    Args:
        problem: whose gradient it is, regularisation included.
        parameters: at which it was taken.
        gradient: what was seen of it, with or without noise.
        seed: of the first guesses.
        label_known: the label, where the attacker knows it; None: every class is tried, and any number for regression.
            Two classes without a bias cannot be told apart: minus the features with the other label look the same.
        clip: what the gradient was clipped to, if anything.
        bounds: between which all features lie, (0, 1) for pixels; None: anywhere.
        steps: of Adam, with a rate that falls to 0 like a cosine.
        restarts: first guesses, for every class that is tried; the best match is returned.
        rate: the first rate, in units of the features.

    >>> from gossamer.problems import Logistic
    >>> problem, parameters, x = Logistic(3), np.zeros(3), np.array([0.5, -1.0, 0.2])
    >>> seen = problem.clipped_gradient_sum(jnp.zeros(3), Block(jnp.array([x], jnp.float32), jnp.array([1])), None)
    >>> found = dlg(problem, parameters, seen, label_known=1, seed=0)
    >>> found.x.round(3), found.error(x) < 1e-6
    (array([ 0.5, -1. ,  0.2]), True)
    """
    seen, at = (np.asarray(given, np.float32) for given in (gradient, parameters))
    for name, given in (("gradient", seen), ("parameters", at)):
        if given.shape != (problem.dim,) or not np.isfinite(given).all():
            raise ConfigurationError(name, given.shape, f"{problem.dim} finite numbers")
    if not seen.any():
        raise ConfigurationError("gradient", "all zeros", "a gradient that tells something")
    check_positive("rate", rate)
    labels, free = _labels(problem, label_known)
    guesses = len(labels) * check_count("restarts", restarts)
    rng = np.random.default_rng(check_seed(seed))
    low, high = _bounds(bounds)
    size = (guesses, *problem.feature_shape)
    starts = (rng.normal(size=size) if bounds is None else rng.uniform(low, high, size=size)).astype(np.float32)
    asked = np.repeat(labels, restarts)
    bounded = None if clip is None else Clip.of(clip)
    x, y, mismatch = _search(
        problem, bounded, (low, high), check_count("steps", steps), free, at, seen, starts, asked, np.float32(rate)
    )
    best = int(np.argmin(np.where(np.isfinite(mismatch), mismatch, np.inf)))
    return Reconstruction(np.asarray(x[best], np.float64), float(y[best]), float(mismatch[best]))


def _labels(problem: Problem, known: float | None) -> tuple[NDArray[np.float32], bool]:
    """Labels to start from, and whether they are searched for too."""
    if known is not None:
        return np.array([known], np.float32), False
    if not problem.classifies:
        return np.zeros(1, np.float32), True
    classes = 2 if isinstance(problem, BinaryLink) else getattr(problem, "classes", None)
    if classes is None:
        raise ConfigurationError("label_known", None, "a label", "the problem does not say how many classes it has")
    return np.arange(classes, dtype=np.float32), False


def _bounds(given: tuple[float, float] | None) -> tuple[float, float]:
    low, high = (-math.inf, math.inf) if given is None else given
    if given is not None and not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigurationError("bounds", given, "two finite numbers, the smaller one first")
    return low, high


def _within(problem: Problem, bounds: tuple[float, float], x: jax.Array) -> jax.Array:
    """Features as they are after arrival; beyond the bound a gradient says nothing about their length."""
    return arrived(jnp.clip(x, *bounds)[None], problem.feature_bound)[0]


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _search(
    problem: Problem,
    clip: Clip | None,
    bounds: tuple[float, float],
    steps: int,
    free: bool,
    parameters: jax.Array,
    gradient: jax.Array,
    starts: jax.Array,
    labels: jax.Array,
    rate: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """All guesses at once: features, labels and mismatches after the last step."""
    size = jnp.sum(jnp.square(gradient))

    def mismatch(guess: Guess) -> jax.Array:
        label = guess.y.astype(jnp.int32) if problem.classifies else guess.y
        found = problem.clipped_gradient_sum(parameters, Block(guess.x[None], label[None]), clip)
        return jnp.sum(jnp.square(found - gradient)) / size

    def one(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        def allowed(guess: Guess) -> Guess:
            return Guess(_within(problem, bounds, guess.x), guess.y if free else y)

        last = _adam(mismatch, allowed, Guess(x, y), steps, rate)
        return last.x, last.y, mismatch(last)

    return jax.vmap(one)(starts, labels)


def _adam(
    loss: Callable[[Guess], jax.Array], allowed: Callable[[Guess], Guess], start: Guess, steps: int, rate: jax.Array
) -> Guess:
    """Adam with a rate that falls to 0 like a cosine; guesses are brought back to what is allowed."""

    def move(carry: tuple[Guess, Guess, Guess], k: jax.Array) -> tuple[tuple[Guess, Guess, Guess], None]:
        guess, mean, square = carry
        slope = jax.grad(loss)(guess)
        mean = jax.tree.map(lambda m, s: 0.9 * m + 0.1 * s, mean, slope)
        square = jax.tree.map(lambda m, s: 0.999 * m + 0.001 * s * s, square, slope)
        now = rate * (1 + jnp.cos(jnp.pi * k / steps)) / 2
        early = jnp.sqrt(1 - 0.999 ** (k + 1)) / (1 - 0.9 ** (k + 1))
        guess = jax.tree.map(lambda g, m, q: g - now * early * m / (jnp.sqrt(q) + 1e-12), guess, mean, square)
        return (allowed(guess), mean, square), None

    zeros = jax.tree.map(jnp.zeros_like, start)
    (last, _, _), _ = jax.lax.scan(move, (allowed(start), zeros, zeros), jnp.arange(steps, dtype=jnp.float32))
    return last
