"""Settings and results that are allowed and make little sense: each is one sentence for standard error."""

import jax.numpy as jnp
import numpy as np

from gossamer.privacy import Guarantee
from gossamer.privacy.guarantee import rounded_up
from gossamer.problems import Block, Problem
from gossamer.reports import summarize
from gossamer.simulation import Run
from gossamer.streams import Stream

LOUD = 20.0
"""Odds of e^20 to 1: whoever sees the releases may be practically certain."""
LIKELY = 1e-2
_ROWS, _PIECES = 4096, 64  # enough samples for a mean with two digits, and no second run


def about_privacy(promise: Guarantee) -> list[str]:
    """What is odd about a guarantee.

    >>> from gossamer.privacy import Pure
    >>> about_privacy(Guarantee("proven", losses=(Pure(1e6),), deltas=(0.0,)))
    ['epsilon 1,000,000 is no privacy to speak of: choose at most 10, or use an algorithm without noise.']
    """
    if promise.basis == "none":
        return []
    said = []
    if promise.epsilon > LOUD:
        shown = f"{promise.epsilon:,.4g}" if promise.epsilon < 1e4 else f"{promise.epsilon:,.0f}"
        said += [f"epsilon {shown} is no privacy to speak of: choose at most 10, or use an algorithm without noise."]
    if promise.delta > LIKELY:
        said += [
            f"delta {rounded_up(promise.delta)} is large: with about this probability nothing is promised. "
            "Choose it well below 1 / (number of records), such as 1e-5."
        ]
    return said


def about_labels(only: int | None) -> list[str]:
    """What is odd about labels: they are all the same one.

    >>> about_labels(0), about_labels(None)
    (['all labels are 0: there is nothing to learn.'], [])
    """
    return [] if only is None else [f"all labels are {only}: there is nothing to learn."]


def about_learning(run: Run, problem: Problem, stream: Stream) -> list[str]:
    """What is odd about the losses of a run: never learning would have done better.

    >>> from gossamer import Budget, algorithms, problems, simulate, streams, topology
    >>> stream = streams.smooth_cycle_logistic(4, 3, seed=1)
    >>> for epsilon in (1e-9, 1e3):
    ...     options = {"budget": Budget(epsilon), "clip": 1.0, "step": 0.1}
    ...     algorithm = algorithms.pd_ogd(problems.Logistic(3), topology.ring(4), **options)
    ...     run = simulate(algorithm, stream, 50, seed=0)
    ...     print(about_learning(run, algorithm.problem, stream))
    ['the average loss, ..., is above 0.693, that of never learning. The noise is larger than what the data say: ...']
    []
    """
    loss, idle = summarize(run).average_loss, _idle_loss(problem, stream, int(run.steps[-1]))
    if loss - 3 * (run.loss_error or 0.0) <= idle:  # what is estimated may be above by chance
        return []
    said = f"the average loss, {loss:.3g}, is above {idle:.3g}, that of never learning."
    if run.guarantee.basis == "none":
        return [f"{said} Try a smaller step, or more steps."]
    return [f"{said} The noise is larger than what the data say: try a larger epsilon, or more steps."]


def _idle_loss(problem: Problem, stream: Stream, steps: int) -> float:
    """The mean loss of the first decision: over all steps, or over pieces of them, evenly spread, where there are many.

    Every learner begins with the same decision, so this is the mean of every measure.
    """
    width = max(1, _ROWS // stream.read(0, 1).y.size)
    starts = range(0, steps, width)
    chosen = sorted({starts[place] for place in np.linspace(0, len(starts) - 1, _PIECES).round().astype(int)})
    decision, total, rows = jnp.asarray(problem.initial_decision()), 0.0, 0
    for start in chosen:
        x, y = stream.read(start, min(start + width, steps))
        block = Block(x.reshape(-1, *x.shape[2:]), y.reshape(-1))
        total, rows = total + float(np.asarray(problem.losses(decision, block), np.float64).sum()), rows + y.size
    return total / rows
