"""Minimise the mean loss of the first rows of a block: accelerated projected gradient, in double precision.

How many rows count is a number, not a shape: one compiled program serves every prefix of the same rows.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from gossamer.problems import Block, LeastSquares, Logistic, Problem, Softmax

T = TypeVar("T")

NONNEGATIVE = (Logistic, LeastSquares, Softmax)  # the loss of these bounds how far it is above its infimum


class Iterate(NamedTuple):
    """Accelerated projected gradient: last point, extrapolated point, momentum, curvature, certificate, number."""

    x: jax.Array
    y: jax.Array
    momentum: jax.Array
    curvature: jax.Array
    gap: jax.Array
    number: jax.Array


def double(block: Block, dtype: Any = jnp.float64) -> Block:
    """Features, and labels that are real numbers, in this precision."""
    x, y = jnp.asarray(block.x), jnp.asarray(block.y)
    return Block(x.astype(dtype), y.astype(dtype) if jnp.issubdtype(y.dtype, jnp.floating) else y)


def pieces(rows: Block, length: int) -> Block:
    """Rows cut into pieces of this length, (pieces, length, ...), the last one padded with zeros."""
    pad = -len(rows.y) % length
    padded = (np.concatenate([leaf, np.zeros((pad, *leaf.shape[1:]), leaf.dtype)]) for leaf in rows)
    return Block(*(jnp.asarray(leaf.reshape(-1, length, *leaf.shape[1:])) for leaf in padded))


def _sum(cut: Block, count: jax.Array, of: Callable[[Block, jax.Array], T]) -> T:
    """The sum of `of(piece, weights)` over the pieces that hold the first rows, each of weight 1 / count."""
    length = cut.y.shape[1]

    def part(index: Any) -> T:
        row = index * length + jnp.arange(length)
        return of(Block(cut.x[index], cut.y[index]), jnp.where(row < count, 1 / count, 0))

    def add(index: jax.Array, total: T) -> T:
        return jax.tree.map(jnp.add, total, part(index))  # type: ignore[no-any-return]

    if len(cut.y) == 1:
        return part(0)  # a loop whose length only the device knows costs small problems a third of their time
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(partial(part, 0)))
    return lax.fori_loop(0, (count + length - 1) // length, add, nothing)  # type: ignore[no-any-return]


@partial(jax.jit, static_argnames="problem")
def value(problem: Problem, cut: Block, count: jax.Array, x: jax.Array) -> jax.Array:
    """The mean loss of the first rows."""
    return _sum(cut, count, partial(_weighted, problem, x))


def _slope(problem: Problem, cut: Block, count: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean loss and its gradient, piece by piece: nothing but their sums is kept."""
    return _sum(cut, count, lambda *part: jax.value_and_grad(partial(_weighted, problem))(x, *part))


def _weighted(problem: Problem, x: jax.Array, block: Block, weights: jax.Array) -> jax.Array:
    return jnp.vdot(weights, problem.losses(x, double(block, x.dtype)))


@partial(jax.jit, static_argnames="problem")
def minimize(
    problem: Problem,
    cut: Block,
    count: jax.Array,
    start: jax.Array,
    curvature: jax.Array,
    tolerance: float,
    iterations: int,
) -> Iterate:
    """FISTA with backtracking and restarts (O'Donoghue and Candes 2015) until the certificate is small enough."""
    value_of = partial(value, problem, cut, count)
    slope = partial(_slope, problem, cut, count)
    domain = problem.domain

    def certificate(x: jax.Array) -> jax.Array:
        loss, gradient = slope(x)
        if math.isfinite(domain.diameter):
            return jnp.vdot(gradient, x) + domain.support(-gradient)
        square = jnp.vdot(gradient, gradient)
        if problem.l2:
            return square / (2 * problem.l2)
        return jnp.minimum(jnp.sqrt(square), loss) if isinstance(problem, NONNEGATIVE) else jnp.sqrt(square)

    def step(it: Iterate) -> Iterate:
        at_y, gradient = slope(it.y)

        def too_long(trial: tuple[jax.Array, jax.Array]) -> jax.Array:
            x, curvature = trial
            move = x - it.y
            bound = at_y + jnp.vdot(gradient, move) + curvature / 2 * jnp.vdot(move, move)
            longer: jax.Array = value_of(x) > bound + 1e-15 * jnp.abs(at_y)
            return longer

        def shorter(trial: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            return forward(2 * trial[1])

        def forward(curvature: jax.Array) -> tuple[jax.Array, jax.Array]:
            return domain.project(it.y - gradient / curvature), curvature

        x, curvature = lax.while_loop(too_long, shorter, forward(it.curvature / 1.1))
        momentum = (1 + jnp.sqrt(1 + 4 * it.momentum**2)) / 2
        restart = jnp.vdot(it.y - x, x - it.x) > 0
        y = jnp.where(restart, x, x + (it.momentum - 1) / momentum * (x - it.x))
        return Iterate(x, y, jnp.where(restart, 1.0, momentum), curvature, certificate(x), it.number + 1)

    def unfinished(it: Iterate) -> jax.Array:
        return (it.gap > tolerance) & (it.number < iterations)

    one = jnp.ones((), start.dtype)
    first = Iterate(start, start, one, curvature, certificate(start), jnp.zeros((), jnp.int32))
    return lax.while_loop(unfinished, step, first)
