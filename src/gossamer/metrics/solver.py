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
from gossamer.problems import Block, Hinge, LeastSquares, Linear, Logistic, Problem, Softmax
from gossamer.problems.numerics import arrived
from gossamer.sets import Everywhere
from gossamer.streams import Stream

_PIECE = 2**15  # rows per piece of a sum: bounds the memory that double precision takes
_SOLVED = 2**20  # features up to which linear equations are solved: a second at most
_NONNEGATIVE = (Logistic, LeastSquares, Softmax)  # the loss of these bounds how far it is above its infimum


class Comparator(NamedTuple):
    """A best decision: its mean loss per sample, and how far at most that is above the minimum.

    `gap` is NaN where there is no such bound: on an unbounded set, without l2, unless the loss is nearly zero.
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
            without bounds by |gradient|^2 / (2 l2) where there is l2. Without both a loss below the tolerance is near
            its infimum, attained or not, because it is never negative. Else nothing bounds the accuracy: the norm of
            the gradient is brought below the tolerance, and the gap is NaN.
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
        found = _minimize(
            problem, pieces, weights, jnp.asarray(_start(problem, rows, tolerance)), tolerance, iterations
        )
        loss = float(_value(problem, pieces, weights, found.x))
    if not float(found.gap) <= tolerance:
        raise GossamerError(
            f"the comparator reached an accuracy of {float(found.gap):.2e} in {iterations} iterations, and "
            f"{tolerance:.0e} was asked for: raise iterations or tolerance"
        )
    if problem.l2 > 0 or math.isfinite(problem.domain.diameter):
        return Comparator(np.asarray(found.x), loss, float(found.gap))
    interpolates = isinstance(problem, _NONNEGATIVE) and loss <= tolerance
    return Comparator(np.asarray(found.x), loss, loss if interpolates else math.nan)


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


def _start(problem: Problem, rows: Block, tolerance: float) -> NDArray[np.float64]:
    """Where to search from: the solution itself, where linear equations have it.

    That is so for least squares, and for logistic regression without l2 on no more samples than dimensions: then every
    score can be had, and the infimum is zero. It is not attained; scores of log(2 / tolerance) are near enough.
    """
    origin = np.asarray(problem.initial_decision(), np.float64)
    count, dim = len(rows.y), problem.dim
    fits = isinstance(problem, Logistic) and not problem.l2 and count <= dim
    unbounded = isinstance(problem.domain, Everywhere) and count * dim <= _SOLVED
    if not (unbounded and (fits or isinstance(problem, LeastSquares))):
        return origin
    x, y = np.asarray(_arrived(rows.x, problem.feature_bound)), np.asarray(rows.y)
    if not fits:
        return _ridge(x, y.astype(np.float64), count * problem.l2 / 2)
    wanted = np.where(y == 1, 1, -1) * math.log(2 / tolerance)
    found = _ridge(x, wanted, 0.0)
    return found if np.abs(x @ found - wanted).max() < 0.5 else origin


@partial(jax.jit, static_argnames="bound")
def _arrived(x: jax.Array, bound: float | None) -> jax.Array:
    """Features in double precision, clipped as the problem clips them."""
    return arrived(x.astype(jnp.float64), bound)


def _ridge(x: NDArray[np.float64], y: NDArray[np.float64], weight: float) -> NDArray[np.float64]:
    """The w of least |x w - y|^2 + weight |w|^2."""
    if not weight:
        return np.asarray(np.linalg.lstsq(x, y)[0])
    if x.shape[0] < x.shape[1]:
        return np.asarray(x.T @ np.linalg.solve(x @ x.T + weight * np.eye(x.shape[0]), y))
    return np.asarray(np.linalg.solve(x.T @ x + weight * np.eye(x.shape[1]), x.T @ y))


@partial(jax.jit, static_argnames="problem")
def _value(problem: Problem, pieces: Block, weights: jax.Array, x: jax.Array) -> jax.Array:
    """The weighted mean loss."""

    def add(total: jax.Array, piece: tuple[Block, jax.Array]) -> tuple[jax.Array, None]:
        block, weight = piece
        return total + jnp.vdot(weight, problem.losses(x, _double(block, x.dtype))), None

    total, _ = lax.scan(add, jnp.zeros((), x.dtype), (pieces, weights))
    return total


@partial(jax.jit, static_argnames="problem")
def _minimize(
    problem: Problem, pieces: Block, weights: jax.Array, start: jax.Array, tolerance: float, iterations: int
) -> _Iterate:
    """FISTA with backtracking and restarts (O'Donoghue and Candes 2015) until the certificate is small enough."""
    value = partial(_value, problem, pieces, weights)
    slope = jax.value_and_grad(value)
    domain = problem.domain

    def certificate(x: jax.Array) -> jax.Array:
        loss, gradient = slope(x)
        if math.isfinite(domain.diameter):
            return jnp.vdot(gradient, x) + domain.support(-gradient)
        square = jnp.vdot(gradient, gradient)
        if problem.l2:
            return square / (2 * problem.l2)
        return jnp.minimum(jnp.sqrt(square), loss) if isinstance(problem, _NONNEGATIVE) else jnp.sqrt(square)

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
        return _Iterate(x, y, jnp.where(restart, 1.0, momentum), curvature, certificate(x), it.number + 1)

    def unfinished(it: _Iterate) -> jax.Array:
        return (it.gap > tolerance) & (it.number < iterations)

    one = jnp.ones((), start.dtype)
    first = _Iterate(start, start, one, one, certificate(start), jnp.zeros((), jnp.int32))
    return lax.while_loop(unfinished, step, first)
