"""The numbers of a run that people compare, and tables of them for terminals and pages alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.metrics import average_loss
from gossamer.simulation import Run

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """A table of finished texts, so that a terminal and a page show the same digits.

    >>> Table(("algorithm", "loss"), (("d_ogd", "0.31"),)).rows[0]
    ('d_ogd', '0.31')
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Summary(NamedTuple):
    """What a run came to, as means over learners and seeds.

    Attributes:
        average_loss: mean loss per sample over all steps.
        accuracy: share of correct predictions in the last tenth of the steps; None without classes.
        consensus: mean squared distance of the decisions from their average, in the last tenth.
    """

    average_loss: float
    accuracy: float | None
    consensus: float


def summarize(run: Run) -> Summary:
    """The numbers of a run.

    >>> from gossamer import algorithms, problems, simulate, streams, topology
    >>> algorithm = algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1)
    >>> run = simulate(algorithm, streams.random_signs(4, 3, seed=1), 50, seed=0)
    >>> summarize(run).accuracy is None, summarize(run).average_loss == float(run.losses.mean())
    (True, True)
    """
    accuracy = None if run.accuracy is None else float(last_tenth(run, run.accuracy).mean())
    late = last_tenth(run, run.consensus[..., None])
    return Summary(float(average_loss(run)[..., -1, :].mean()), accuracy, float(late.mean()))


def last_tenth(run: Run, values: Doubles) -> Doubles:
    """The rows of the last tenth of the steps, and always the very last; the rows are the axis before the last.

    >>> from types import SimpleNamespace
    >>> last_tenth(SimpleNamespace(steps=np.array([50, 95, 100])), np.array([[1.0], [2.0], [3.0]])).tolist()
    [[2.0], [3.0]]
    """
    return values[..., run.steps > 0.9 * run.steps[-1], :]


def summary_table(run: Run) -> Table:
    """One line per number, the guarantee last.

    >>> from gossamer import algorithms, problems, simulate, streams, topology
    >>> algorithm = algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1)
    >>> run = simulate(algorithm, streams.random_signs(4, 3, seed=1), 50, seed=0)
    >>> summary_table(run).rows[-1]
    ('guarantee', 'No privacy guarantee: messages and decisions are functions of raw gradients.')
    """
    numbers = summarize(run)
    rows = [("steps (samples per learner)", f"{run.steps[-1]:,}")]
    rows += [("average loss", f"{numbers.average_loss:.4f}")]
    if numbers.accuracy is not None:
        rows += [("accuracy in the last tenth", percent(numbers.accuracy))]
    rows += [
        ("consensus error in the last tenth", f"{numbers.consensus:.3g}"),
        ("messages sent", f"{run.messages:,}"),
        ("bytes sent", f"{run.bytes:,}"),
        ("seconds", f"{run.wall_time:.1f}"),
        ("guarantee", run.guarantee.sentence()),
    ]
    return Table((run.name, f"{run.measure} measure"), tuple(rows))


def percent(share: float) -> str:
    """A share of one for people.

    >>> percent(0.9312)
    '93.1%'
    """
    return f"{100 * share:.1f}%"
