"""The best fixed decision in hindsight, to a stated accuracy.

Comparators come from this solver, never from a long run of the algorithm that is being judged. It is an accelerated
projected gradient method in double precision that stops at a *certificate*: a bound on how far the loss can still fall.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError, GossamerError
from gossamer.problems import Block, Hinge, Linear, Problem
from gossamer.sets import Everywhere
from gossamer.streams import Stream

_PIECE = 2**15  # rows per piece of a sum: bounds the memory that double precision takes


class Comparator(NamedTuple):
    """A best decision: its mean loss per sample, and how far at most that is above the minimum.

    `gap` is NaN where there is no such bound: on an unbounded set, without l2.
    """

    decision: NDArray[np.float64]
    loss: float
    gap: float


class _Iterate(NamedTuple):
    """Accelerated projected gradient: last point, extrapolated point, momentum, curvature, certificate, number."""

    x: jax.Array
    y: jax.Array
    momentum: jax.Array
    curvature: jax.Array
    gap: jax.Array
    number: jax.Array


def best_decision(
    problem: Problem,
    stream: Stream,
    steps: int,
    *,
    start: int = 0,
    tolerance: float = 1e-6,
    iterations: int = 20_000,
) -> Comparator:
    """The decision of least mean loss over steps start, ..., steps-1 of all learners.

    Args:
        problem: a convex problem with a smooth loss, or `Linear`.
        stream: the samples.
        steps: the step after the last one that counts.
        start: the first step that counts.
        tolerance: the accuracy of the mean loss. On a bounded decision set it is certified by the Frank-Wolfe gap;
            without bounds by |gradient|^2 / (2 l2) where there is l2. Without both nothing bounds the accuracy: the
            norm of the gradient is brought below the tolerance, and the gap is NaN.
        iterations: the most iterations to try; not reaching the tolerance raises.

    >>> from gossamer import problems, sets, streams
    >>> data = streams.random_signs(4, 3, seed=0)
    >>> best = best_decision(problems.Linear(3, domain=sets.L2Ball(1.0)), data, 100)
    >>> round(float(np.linalg.norm(best.decision)), 6), best.gap
    (1.0, 0.0)
    """
    rows = _all_rows(stream, start, steps)
    if isinstance(problem, Linear) and not problem.l2:
        return _best_linear(problem, rows)
    if isinstance(problem, Hinge) or problem.strong_convexity is None:
        raise ConfigurationError("problem", problem, "a convex problem with a smooth loss, or Linear")
    with jax.enable_x64(True):
        pieces, weights = _pieces(rows)
        found = _minimize(problem, pieces, weights, tolerance, iterations)
        loss = _value(problem, pieces, weights, found.x)
    if not float(found.gap) <= tolerance:
        raise GossamerError(
            f"the comparator reached an accuracy of {float(found.gap):.2e} in {iterations} iterations, and "
            f"{tolerance:.0e} was asked for: raise iterations or tolerance"
        )
    certified = problem.l2 > 0 or math.isfinite(problem.domain.diameter)
    return Comparator(np.asarray(found.x), float(loss), float(found.gap) if certified else math.nan)


def mean_loss(problem: Problem, decision: NDArray[Any], rows: Block) -> float:
    """The mean loss of a decision over rows of samples, in double precision.

    >>> from gossamer.problems import Logistic
    >>> round(mean_loss(Logistic(2), np.zeros(2), Block(np.ones((3, 2)), np.array([0, 1, 1]))), 6)
    0.693147
    """
    with jax.enable_x64(True):
        return float(_value(problem, *_pieces(rows), jnp.asarray(decision, jnp.float64)))


def played_loss(problem: Problem, decisions: NDArray[Any], block: Block) -> float:
    """The mean loss of decisions (seed, step, coordinate), each on the samples of its step, in double precision.

    >>> from gossamer.problems import Linear
    >>> played_loss(Linear(1), np.array([[[1.0], [3.0]]]), Block(np.ones((2, 1, 1)), np.zeros((2, 1))))
    2.0
    """
    with jax.enable_x64(True):
        return float(_played(problem, jnp.asarray(decisions, jnp.float64), _double(block, jnp.float64)))


@partial(jax.jit, static_argnames="problem")
def _played(problem: Problem, decisions: jax.Array, block: Block) -> jax.Array:
    def at_step(x: jax.Array, samples: Block) -> jax.Array:
        return jnp.mean(problem.losses(x, samples))

    return jnp.mean(jax.vmap(jax.vmap(at_step), (0, None))(decisions, block))


def _double(block: Block, dtype: Any) -> Block:
    """Features, and labels that are real numbers, in this precision."""
    x, y = jnp.asarray(block.x), jnp.asarray(block.y)
    return Block(x.astype(dtype), y.astype(dtype) if jnp.issubdtype(y.dtype, jnp.floating) else y)


def _best_linear(problem: Linear, rows: Block) -> Comparator:
    """Closed form: the extreme point against the mean loss vector."""
    if isinstance(problem.domain, Everywhere):
        raise ConfigurationError("domain", problem.domain, "a bounded set: linear losses have no minimum elsewhere")
    with jax.enable_x64(True):
        double = _double(rows, jnp.float64)
        mean = problem.clipped_gradient_sum(jnp.zeros(problem.dim), double, None) / len(rows.y)
        best = problem.domain.linear_minimizer(mean)
        return Comparator(np.asarray(best), float(best @ mean), 0.0)


def _all_rows(stream: Stream, start: int, steps: int) -> Block:
    """Every sample of these steps, (rows, ...)."""
    block = stream.read(start, steps)
    return Block(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in block))


def _pieces(rows: Block) -> tuple[Block, jax.Array]:
    """Rows cut into equal pieces, padded with rows of weight zero; weights sum to 1."""
    count = len(rows.y)
    length = min(_PIECE, count)
    pad = -count % length
    weights = np.concatenate([np.full(count, 1 / count), np.zeros(pad)]).reshape(-1, length)
    padded = (np.concatenate([leaf, np.zeros((pad, *leaf.shape[1:]), leaf.dtype)]) for leaf in rows)
    return Block(*(jnp.asarray(leaf.reshape(-1, length, *leaf.shape[1:])) for leaf in padded)), jnp.asarray(weights)


@partial(jax.jit, static_argnames="problem")
def _value(problem: Problem, pieces: Block, weights: jax.Array, x: jax.Array) -> jax.Array:
    """The weighted mean loss."""

    def add(total: jax.Array, piece: tuple[Block, jax.Array]) -> tuple[jax.Array, None]:
        block, weight = piece
        return total + jnp.vdot(weight, problem.losses(x, _double(block, x.dtype))), None

    total, _ = lax.scan(add, jnp.zeros((), x.dtype), (pieces, weights))
    return total


@partial(jax.jit, static_argnames="problem")
def _minimize(problem: Problem, pieces: Block, weights: jax.Array, tolerance: float, iterations: int) -> _Iterate:
    """FISTA with backtracking and restarts (O'Donoghue and Candes 2015) until the certificate is small enough."""
    value = partial(_value, problem, pieces, weights)
    slope = jax.value_and_grad(value)
    domain = problem.domain

    def certificate(x: jax.Array, gradient: jax.Array) -> jax.Array:
        if math.isfinite(domain.diameter):
            return jnp.vdot(gradient, x) + domain.support(-gradient)
        square = jnp.vdot(gradient, gradient)
        return square / (2 * problem.l2) if problem.l2 else jnp.sqrt(square)

    def step(it: _Iterate) -> _Iterate:
        at_y, gradient = slope(it.y)

        def too_long(trial: tuple[jax.Array, jax.Array]) -> jax.Array:
            x, curvature = trial
            move = x - it.y
            bound = at_y + jnp.vdot(gradient, move) + curvature / 2 * jnp.vdot(move, move)
            longer: jax.Array = value(x) > bound + 1e-15 * jnp.abs(at_y)
            return longer

        def shorter(trial: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            return forward(2 * trial[1])

        def forward(curvature: jax.Array) -> tuple[jax.Array, jax.Array]:
            return domain.project(it.y - gradient / curvature), curvature

        x, curvature = lax.while_loop(too_long, shorter, forward(it.curvature / 1.1))
        momentum = (1 + jnp.sqrt(1 + 4 * it.momentum**2)) / 2
        restart = jnp.vdot(it.y - x, x - it.x) > 0
        y = jnp.where(restart, x, x + (it.momentum - 1) / momentum * (x - it.x))
        gap = certificate(x, jax.grad(value)(x))
        return _Iterate(x, y, jnp.where(restart, 1.0, momentum), curvature, gap, it.number + 1)

    def unfinished(it: _Iterate) -> jax.Array:
        return (it.gap > tolerance) & (it.number < iterations)

    x = jnp.asarray(problem.initial_decision(), weights.dtype)
    one, infinite = jnp.ones((), x.dtype), jnp.full((), jnp.inf, x.dtype)
    return lax.while_loop(unfinished, step, _Iterate(x, x, one, one, infinite, jnp.zeros((), jnp.int32)))
