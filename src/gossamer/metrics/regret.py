"""Regrets, all per sample: the papers' sums are these times the number of steps (and of learners).

`run` is anything with `steps`, `losses` and `measure`: what `simulate` returns.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer.errors import ConfigurationError
from gossamer.metrics.solver import best_decision, best_decisions, played_loss, prefix_losses
from gossamer.problems import Problem
from gossamer.streams import Stream

Doubles = NDArray[np.float64]


class Record(Protocol):
    """The part of a run that regrets need."""

    @property
    def steps(self) -> NDArray[np.int64]:
        """Steps played up to the end of each row."""

    @property
    def losses(self) -> Doubles:
        """Mean loss per sample in each row, axes (..., row, learner)."""

    @property
    def measure(self) -> str:
        """Which samples the losses are measured on."""


def average_loss(run: Record) -> Doubles:
    """Mean loss per sample from the first step to each row, per learner: AL(t, i) of paper 000.

    >>> from types import SimpleNamespace
    >>> average_loss(SimpleNamespace(steps=np.array([10, 30]), losses=np.array([[1.0], [0.4]]), measure="local"))
    array([[1. ],
           [0.6]])
    """
    return _mean_so_far(run, run.losses)


def _mean_so_far(run: Record, values: Doubles) -> Doubles:
    """The mean over all steps up to each row; rows without steps count nothing."""
    width = np.diff(run.steps, prepend=0)[:, None]
    total = np.cumsum(np.where(width > 0, values, 0) * width, axis=-2)
    return np.asarray(total / np.maximum(run.steps, 1)[:, None])


def static_regret(
    run: Record, problem: Problem, stream: Stream, *, at: ArrayLike | None = None, tolerance: float = 1e-6
) -> Doubles:
    """Average regret against the best fixed decision, axes (..., row, learner): R_{T,i} / (n T) of paper 000.

    Args:
        run: measured "global" or "joint".
        problem: what the run minimised.
        stream: what it ran on.
        at: steps to give the regret at, in any order; `at=run.steps` gives the whole curve. By default the last one
            only. Each is the end of a row of the run: losses inside of a row are not known one by one.
        tolerance: accuracy of the comparators.

    >>> from gossamer import algorithms, problems, sets, simulate, streams, topology
    >>> problem, stream = problems.Linear(3, domain=sets.L2Ball(1.0)), streams.random_signs(4, 3, seed=0)
    >>> run = simulate(algorithms.d_ogd(problem, topology.ring(4), step=0.1), stream, 60, seed=0, every=10)
    >>> static_regret(run, problem, stream).shape, static_regret(run, problem, stream, at=run.steps).shape
    ((1, 4), (6, 4))
    >>> static_regret(run, problem, stream, at=[15])
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: at: got 15; allowed: the end of a recorded row: the nearest are 10 and 20.
    Use at=run.steps, or simulate(..., every=1) for a row at every exchange.
    """
    _needs(run, "global", "joint")
    rows = _rows(run, run.steps[-1:] if at is None else np.atleast_1d(at))
    wanted = [int(step) for step in run.steps[rows]]
    played = sorted({step for step in wanted if step > 0})  # a row before the first sample has nothing to regret
    found = best_decisions(problem, stream, played, tolerance=tolerance)
    losses = {0: 0.0} | {step: best.loss for step, best in zip(played, found, strict=True)}
    best = np.array([losses[step] for step in wanted])
    return np.asarray(average_loss(run)[..., rows, :] - best[:, None])


def dynamic_regret(run: Record, problem: Problem, stream: Stream, *, tolerance: float = 1e-6) -> Doubles:
    """Mean of the loss less the least loss of the same row, axes (..., row, learner): Regret_d / (R tau) of paper 001.

    Run with `every=1`, so that a row is a round; the comparator may change at every row. Every round has a solver of
    its own, which takes milliseconds. Least losses are infima: without l2 and bounds, logistic regression on samples
    that can be separated has zero, to the tolerance, though no decision attains it.
    """
    _needs(run, "global", "joint")
    ends = [0, *run.steps.tolist()]
    best = [
        best_decision(problem, stream, stop, start=start, tolerance=tolerance).loss if start < stop else 0.0
        for start, stop in pairwise(ends)
    ]
    return _mean_so_far(run, run.losses - np.array(best)[:, None])


def pseudo_regret(decisions: NDArray[Any], problem: Problem, stream: Stream, *, tolerance: float = 1e-6) -> float:
    """Expected loss of the decisions less that of the best fixed one, per step: paper 002's pseudo-regret / T.

    Args:
        decisions: axes (seed, step, coordinate) or (step, coordinate): one decision per step, from `joint_decisions`,
            or from `running_average` for eq. (19). The expectation is the mean over seeds.
        problem: what was minimised.
        stream: what was played.
        tolerance: accuracy of the comparator.
    """
    plays = decisions.reshape(-1, *decisions.shape[-2:])
    best = best_decision(problem, stream, plays.shape[1], tolerance=tolerance).loss
    return played_loss(problem, plays, stream.read(0, plays.shape[1])) - best


def joint_decisions(decisions: NDArray[Any], coordinates: Sequence[int]) -> NDArray[Any]:
    """The decision put together from the coordinates each learner controls: (..., learner, d) to (..., d).

    >>> joint_decisions(np.array([[1, 2, 3], [10, 20, 30]]), coordinates=[0, 1, 1])
    array([ 1, 20, 30])
    """
    owners = np.asarray(coordinates)
    return np.asarray(decisions[..., owners, np.arange(len(owners))])


def running_average(decisions: NDArray[Any]) -> Doubles:
    """(1/t) sum_{s<=t} x(s) along the step axis (the one before the last).

    >>> running_average(np.array([[2.0], [4.0]]))
    array([[2.],
           [3.]])
    """
    count = np.arange(1, decisions.shape[-2] + 1)[:, None]
    return np.asarray(np.cumsum(decisions, axis=-2, dtype=np.float64) / count)


def tracking_error(
    decisions: NDArray[Any], problem: Problem, stream: Stream, at: Sequence[int], *, tolerance: float = 1e-8
) -> Doubles:
    """|theta_i - theta_t*|^2 of paper 003, where theta_t* minimises the mean loss of all samples up to step t.

    Args:
        decisions: axes (row, learner, coordinate): what was played at each of the steps `at`.
        problem: strongly convex, else theta_t* is not unique.
        stream: what was played.
        at: one step for each row.
        tolerance: accuracy of the optimum's loss.
    """
    best = np.stack([best.decision for best in best_decisions(problem, stream, at, tolerance=tolerance)])
    return np.asarray(np.sum((decisions - best[:, None]) ** 2, axis=-1))


def instantaneous_regret(
    decisions: NDArray[Any], problem: Problem, stream: Stream, at: Sequence[int], *, tolerance: float = 1e-8
) -> Doubles:
    """F_t(theta_i) - F_t(theta_t*) of paper 003, where F_t is the mean loss of all samples up to step t.

    The arguments are those of `tracking_error`.
    """
    losses = prefix_losses(problem, stream, at, decisions)
    best = [best.loss for best in best_decisions(problem, stream, at, tolerance=tolerance)]
    return np.asarray(losses - np.array(best)[:, None])


def expert_regret(run: Record, stream: Stream) -> Doubles:
    """Mean loss less that of the best single expert in hindsight, axes (..., learner): paper 004's regret / T.

    Args:
        run: of a `Linear` problem on the simplex, measured "local": each client on its own losses, as in paper 004,
            while the best expert is common to all.
        stream: x holds the experts' losses.
    """
    _needs(run, "local")
    steps = int(run.steps[-1])
    totals = sum(
        np.sum(stream.read(low, min(steps, low + 4096)).x, axis=(0, 1), dtype=np.float64)
        for low in range(0, steps, 4096)
    )
    rows = steps * stream.read(0, 1).x.shape[1]
    return np.asarray(average_loss(run)[..., -1, :] - float(np.min(totals)) / rows)


def _needs(run: Record, *measures: str) -> None:
    if run.measure not in measures:
        allowed = " or ".join(map(repr, measures))
        raise ConfigurationError("measure", run.measure, allowed, f"simulate(..., measure={measures[0]!r})")


def _rows(run: Record, steps: NDArray[Any]) -> NDArray[np.int64]:
    """The rows that end at these steps."""
    if steps.ndim > 1 or (steps.size and steps.dtype.kind not in "iuf"):
        raise ConfigurationError("at", steps.tolist(), "a list of steps", "use at=run.steps for the whole curve")
    rows = np.searchsorted(run.steps, steps)
    last = len(run.steps) - 1
    missing = np.flatnonzero(run.steps[np.minimum(rows, last)] != steps)
    if missing.size:
        after = int(rows[missing[0]])
        ends = run.steps[max(0, after - 1) : after + 1].tolist()
        nearest = f"the nearest {'is' if len(ends) == 1 else 'are'} {' and '.join(map(str, ends))}"
        hint = "use at=run.steps, or simulate(..., every=1) for a row at every exchange"
        raise ConfigurationError("at", steps[missing[0]].item(), f"the end of a recorded row: {nearest}", hint)
    return rows
