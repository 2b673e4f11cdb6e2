"""The best fixed decision in hindsight, to a stated accuracy.

Comparators come from this solver, never from a long run of the algorithm that is being judged. It is an accelerated
projected gradient method in double precision that stops at a *certificate*: a bound on how far the loss can still fall.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError, GossamerError
from gossamer.metrics.descent import NONNEGATIVE, Iterate, double, minimize, pieces, value
from gossamer.problems import Block, Hinge, LeastSquares, Linear, Logistic, Problem
from gossamer.problems.numerics import arrived
from gossamer.sets import Everywhere
from gossamer.streams import Stream

_PIECE = 2**15  # rows per piece of a sum at most: bounds the memory that double precision takes
_PARTS = 32  # pieces that many prefixes of the same rows are cut into: a short one sums over few of them
_SOLVED = 2**20  # features up to which linear equations are solved: a second at most


class Comparator(NamedTuple):
    """A best decision: its mean loss per sample, and how far at most that is above the minimum.

    `gap` is NaN where there is no such bound: on an unbounded set, without l2, unless the loss is nearly zero.
    """

    decision: NDArray[np.float64]
    loss: float
    gap: float


_KNOWN: WeakKeyDictionary[Stream, dict[tuple[Problem, tuple[int, ...], float], list[Comparator]]] = WeakKeyDictionary()


class _Task(NamedTuple):
    """A mean loss to minimise: that of these rows, which are the first `len(rows.y)` of the pieces."""

    problem: Problem
    rows: Block
    cut: Block


def best_decision(
    problem: Problem, stream: Stream, steps: int, *, start: int = 0, tolerance: float = 1e-6, iterations: int = 20_000
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
    _check(problem)
    rows = _all_rows(stream, start, steps)
    with jax.enable_x64(True):
        if _is_linear(problem):
            return next(_best_linear(problem, rows, [len(rows.y)]))
        task = _Task(problem, rows, pieces(rows, min(_PIECE, len(rows.y))))
        return next(_search([task], tolerance, iterations))


def best_decisions(
    problem: Problem, stream: Stream, at: Sequence[int], *, tolerance: float = 1e-6, iterations: int = 20_000
) -> list[Comparator]:
    """The best decisions over the first steps, for every number of steps in `at`: one search that goes on.

    Each is what `best_decision` finds, to the same tolerance, certified the same way. The search for one starts where
    the search for the next smaller one ended, in a program that is compiled once. They are kept as long as the stream
    is: metrics of many runs on one stream need the same ones.

    Args:
        problem: a convex problem with a smooth loss, or `Linear`.
        stream: the samples.
        at: numbers of steps, each at least 1, in any order.
        tolerance: the accuracy of every mean loss, as for `best_decision`.
        iterations: the most iterations to try for each; not reaching the tolerance raises.

    >>> from gossamer import problems, streams
    >>> data = streams.smooth_cycle_logistic(4, 3, seed=0)
    >>> found = best_decisions(problems.Logistic(3, l2=0.1), data, [100, 50])
    >>> alone = best_decision(problems.Logistic(3, l2=0.1), data, 50)
    >>> abs(found[1].loss - alone.loss) <= 1e-6
    True
    """
    ends = sorted({int(steps) for steps in at})
    if not ends:
        return []
    if ends[0] < 1:
        raise ConfigurationError("at", ends[0], "numbers of steps of at least 1")
    _check(problem)
    known, key = _KNOWN.setdefault(stream, {}), (problem, tuple(ends), tolerance)
    if key not in known:
        known[key] = _best_at(problem, stream, ends, tolerance, iterations)
    return [known[key][ends.index(steps)] for steps in at]


def _best_at(problem: Problem, stream: Stream, ends: list[int], tolerance: float, iterations: int) -> list[Comparator]:
    rows = _all_rows(stream, 0, ends[-1])
    counts = [steps * (len(rows.y) // ends[-1]) for steps in ends]
    with jax.enable_x64(True):
        if _is_linear(problem):
            return list(_best_linear(problem, rows, counts))
        tasks = _reduced if _reduces(problem) else _prefixes
        return list(_search(tasks(problem, rows, counts), tolerance, iterations))


def _is_linear(problem: Problem) -> bool:
    return isinstance(problem, Linear) and not problem.l2


def _check(problem: Problem) -> None:
    """Refuse problems that have no comparator, or none that can be certified."""
    if isinstance(problem, Hinge) or problem.strong_convexity is None:
        raise ConfigurationError("problem", problem, "a convex problem with a smooth loss, or Linear")
    if _is_linear(problem) and isinstance(problem.domain, Everywhere):
        raise ConfigurationError("domain", problem.domain, "a bounded set: linear losses have no minimum elsewhere")


def _prefixes(problem: Problem, rows: Block, counts: list[int]) -> Iterator[_Task]:
    """The first rows, so many of them, as prefixes of the same pieces."""
    cut = _cut_for_prefixes(rows)
    for count in counts:
        yield _Task(problem, Block(*(leaf[:count] for leaf in rows)), cut)


def _cut_for_prefixes(rows: Block) -> Block:
    count = len(rows.y)
    return pieces(rows, min(_PIECE, count, max(256, math.ceil(count / _PARTS))))


def _reduces(problem: Problem) -> bool:
    """Whether a few rows have the same mean loss as all; another class's loss need not be that of least squares."""
    return type(problem) is LeastSquares and (problem.dim + 1) * problem.dim <= _SOLVED


def _reduced(problem: Problem, rows: Block, counts: list[int]) -> Iterator[_Task]:
    """The first rows of least squares, so many of them, as dim + 1 rows whose mean loss is the same for all decisions.

    They are the triangular factor of features and targets. It goes on from one prefix to the next, and, unlike sums of
    products, it has all digits of the rows.
    """
    size = problem.dim + 1
    table = np.column_stack([np.asarray(_arrived(rows.x, problem.feature_bound)), rows.y])
    factor = np.zeros((0, size))
    for start, count in zip([0, *counts], counts, strict=False):
        factor = np.asarray(np.linalg.qr(np.vstack([factor, table[start:count]]), mode="r"))
        few = np.pad(factor, [(0, size - len(factor)), (0, 0)]) * math.sqrt(size / count)
        block = Block(few[:, :-1], few[:, -1])
        yield _Task(replace(problem, feature_bound=None), block, pieces(block, size))


def _search(tasks: Iterable[_Task], tolerance: float, iterations: int) -> Iterator[Comparator]:
    """The comparator of every task; each search starts where the one before ended, if that is better than anew."""
    found: Iterate | None = None
    for task in tasks:
        loss_at = partial(value, task.problem, task.cut, len(task.rows.y))
        start = jnp.asarray(_start(task.problem, task.rows, tolerance))
        curvature = jnp.ones((), start.dtype)
        if found is not None:
            start, curvature = min(start, found.x, key=loss_at), found.curvature
        found = minimize(task.problem, task.cut, len(task.rows.y), start, curvature, tolerance, iterations)
        yield _comparator(task.problem, found, float(loss_at(found.x)), tolerance)


def _comparator(problem: Problem, found: Iterate, loss: float, tolerance: float) -> Comparator:
    """What was found, with what is known about its accuracy."""
    gap = float(found.gap)
    if not gap <= tolerance:
        raise GossamerError(
            f"the comparator reached an accuracy of {gap:.2e} in {int(found.number)} iterations, and "
            f"{tolerance:.0e} was asked for: raise iterations or tolerance"
        )
    if not (problem.l2 > 0 or math.isfinite(problem.domain.diameter)):
        gap = loss if isinstance(problem, NONNEGATIVE) and loss <= tolerance else math.nan
    return Comparator(np.asarray(found.x), loss, gap)


def prefix_losses(problem: Problem, stream: Stream, at: Sequence[int], decisions: NDArray[Any]) -> NDArray[np.float64]:
    """The mean loss of decisions (row, learner, coordinate) over all samples up to the step of their row.

    >>> from gossamer import streams
    >>> from gossamer.problems import Logistic
    >>> prefix_losses(Logistic(2), streams.smooth_cycle_logistic(4, 2, seed=0), [5], np.zeros((1, 3, 2))).round(6)
    array([[0.693147, 0.693147, 0.693147]])
    """
    rows = _all_rows(stream, 0, max(at))
    with jax.enable_x64(True):
        cut = _cut_for_prefixes(rows)
        counts = [steps * len(rows.y) // max(at) for steps in at]
        plays = jnp.asarray(decisions, jnp.float64)
        losses = [[value(problem, cut, count, x) for x in row] for count, row in zip(counts, plays, strict=True)]
        return np.array(losses, np.float64)


def played_loss(problem: Problem, decisions: NDArray[Any], block: Block) -> float:
    """The mean loss of decisions (seed, step, coordinate), each on the samples of its step, in double precision.

    >>> from gossamer.problems import Linear
    >>> played_loss(Linear(1), np.array([[[1.0], [3.0]]]), Block(np.ones((2, 1, 1)), np.zeros((2, 1))))
    2.0
    """
    with jax.enable_x64(True):
        return float(_played(problem, jnp.asarray(decisions, jnp.float64), double(block)))


@partial(jax.jit, static_argnames="problem")
def _played(problem: Problem, decisions: jax.Array, block: Block) -> jax.Array:
    def at_step(x: jax.Array, samples: Block) -> jax.Array:
        return jnp.mean(problem.losses(x, samples))

    return jnp.mean(jax.vmap(jax.vmap(at_step), (0, None))(decisions, block))


def _best_linear(problem: Problem, rows: Block, counts: list[int]) -> Iterator[Comparator]:
    """Closed form, for the first rows, so many of them: the extreme point against the mean loss vector."""
    losses = np.asarray(_arrived(rows.x, problem.feature_bound))
    sums = np.cumsum(np.add.reduceat(losses, [0, *counts[:-1]]), axis=0)
    for count, total in zip(counts, sums, strict=True):
        mean = jnp.asarray(total / count)
        best = problem.domain.linear_minimizer(mean)
        yield Comparator(np.asarray(best), float(best @ mean), 0.0)


def _all_rows(stream: Stream, start: int, steps: int) -> Block:
    """Every sample of these steps, (rows, ...)."""
    block = stream.read(start, steps)
    return Block(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in block))


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
    # One shape for all that fit: it is compiled for.
    padded = np.pad(rows.x, [(0, dim - count), (0, 0)]) if fits else rows.x
    x, y = np.asarray(_arrived(padded, problem.feature_bound))[:count], np.asarray(rows.y)
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
