"""The numbers of a run that people compare, and the words that a printed run and a table share."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gossamer.metrics.regret import Record, average_loss

Doubles = NDArray[np.float64]


class Outcome(Record, Protocol):
    """The part of a run that its summary needs."""

    @property
    def accuracy(self) -> Doubles | None:
        """Share of correct predictions in each row, axes (..., row, learner); None without classes."""

    @property
    def consensus(self) -> Doubles:
        """Mean squared distance of the decisions from their average in each row, axes (..., row)."""

    @property
    def decisions(self) -> NDArray[np.float32]:
        """What every learner would play next, axes (..., learner, coordinate)."""

    @property
    def measured(self) -> NDArray[np.int64] | None:
        """The learners whose losses are measured where these are an estimate; None: all."""


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


def summarize(run: Outcome) -> Summary:
    """The numbers of a run.

    >>> from gossamer import algorithms, problems, simulate, streams, topology
    >>> algorithm = algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1)
    >>> run = simulate(algorithm, streams.random_signs(4, 3, seed=1), 50, seed=0)
    >>> summarize(run).accuracy is None, summarize(run).average_loss == float(run.losses.mean())
    (True, True)
    """
    loss, accuracy, consensus = _finals(run)
    return Summary(float(loss.mean()), None if accuracy is None else float(accuracy.mean()), float(consensus.mean()))


def numbers_in_words(run: Outcome) -> dict[str, str]:
    """The same numbers as texts, the consensus error last: means with their spread, which `spread_in_words` explains.

    Several seeds: the mean over learners, ± its standard deviation over seeds. One seed: the range over learners, or
    ± the standard error of an estimate.

    >>> from types import SimpleNamespace
    >>> losses, consensus = np.array([[[0.5, 0.7]], [[0.6, 0.6]], [[0.7, 0.8]]]), np.array([[0.25], [0.5], [0.75]])
    >>> rest = {"measure": "global", "accuracy": None, "measured": None}
    >>> run = SimpleNamespace(steps=np.array([9]), losses=losses, consensus=consensus, **rest)
    >>> numbers_in_words(run)
    {'average loss': '0.6500 ± 0.0866', 'consensus error in the last tenth': '0.5 ± 0.25'}
    """
    loss, accuracy, consensus = _finals(run)
    estimated = run.measured is not None
    told = {"average loss": _with_spread(loss, "{:.4f}".format, estimated)}
    if accuracy is not None:
        told["accuracy in the last tenth"] = _with_spread(accuracy, percent, estimated)
    return told | {"consensus error in the last tenth": _with_spread(consensus, "{:.3g}".format)}


def spread_in_words(run: Outcome) -> str:
    """What stands after ± in the numbers of this run, and what they are estimated on; nothing with one exact seed.

    >>> from types import SimpleNamespace
    >>> spread_in_words(SimpleNamespace(losses=np.zeros((3, 10, 4)), measured=None))
    'mean ± standard deviation over 3 seeds'
    >>> some = {"measured": np.arange(4), "decisions": np.zeros((5000, 2))}
    >>> spread_in_words(SimpleNamespace(losses=np.zeros((10, 4)), **some))
    'estimated on 4 of 5,000 learners, ± standard error'
    """
    several = f"mean ± standard deviation over {seed_count(run):,} seeds" if seed_count(run) > 1 else ""
    if run.measured is None:
        return several
    sample = f"estimated on {len(run.measured):,} of {run.decisions.shape[-2]:,} learners"
    if not several:
        return f"{sample}, ± standard error"
    error = standard_error(_finals(run)[0].mean(axis=0))
    return f"{several}; {sample}, standard error of the average loss {error:.4f}"


def standard_error(values: Doubles) -> Doubles:
    """Of the mean of values along the last axis, which are of a sample of learners, each with an error of its own.

    The spread of the values holds both what learners differ by and what each was measured wrong by. With a sample of a
    share s of all learners, the error is larger than the true one by at most a factor 1 / sqrt(1 - s).

    >>> float(standard_error(np.array([1.0, 3.0])))
    1.0
    """
    return np.asarray(values.std(axis=-1, ddof=1) / np.sqrt(values.shape[-1]))


def seed_count(run: Record) -> int:
    """How many seeds a run has.

    >>> from types import SimpleNamespace
    >>> seed_count(SimpleNamespace(losses=np.zeros((3, 10, 4)))), seed_count(SimpleNamespace(losses=np.zeros((10, 4))))
    (3, 1)
    """
    return run.losses.shape[0] if run.losses.ndim > 2 else 1


def last_tenth(run: Record, values: Doubles) -> Doubles:
    """The rows of the last tenth of the steps, and always the very last; the rows are the axis before the last.

    >>> from types import SimpleNamespace
    >>> last_tenth(SimpleNamespace(steps=np.array([50, 95, 100])), np.array([[1.0], [2.0], [3.0]])).tolist()
    [[2.0], [3.0]]
    """
    return values[..., run.steps > 0.9 * run.steps[-1], :]


def percent(share: float) -> str:
    """A share of one for people.

    >>> percent(0.9312)
    '93.1%'
    """
    return f"{100 * share:.1f}%"


def _finals(run: Outcome) -> tuple[Doubles, Doubles | None, Doubles]:
    """Average loss, late accuracy and late consensus error, axes (seed, learner)."""
    accuracy = None if run.accuracy is None else np.atleast_2d(last_tenth(run, run.accuracy).mean(axis=-2))
    consensus = last_tenth(run, run.consensus[..., None]).mean(axis=-2)
    return np.atleast_2d(average_loss(run)[..., -1, :]), accuracy, np.atleast_2d(consensus)


def _with_spread(values: Doubles, show: Callable[[float], str], estimated: bool = False) -> str:
    """The mean of values (seed, learner), with what varies most for people: seeds, or else learners, or its error."""
    mean, low, high = show(values.mean()), show(values.min()), show(values.max())
    if len(values) > 1:
        return f"{mean} ± {show(values.mean(axis=1).std(ddof=1))}"
    if estimated:
        return f"{mean} ± {show(float(standard_error(values[0])))}"
    return mean if low == high else f"{mean} (learners {low} to {high})"
