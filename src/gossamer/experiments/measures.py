"""The metrics of studies: those of `gossamer.metrics`, each with the word that cells are stored by.

>>> [metric().word for metric in (final_loss, average_loss, accuracy, late_accuracy, held_out, static_regret)]
['final loss', 'average loss', 'accuracy', 'late accuracy', 'test accuracy', 'static regret']
>>> [metric().word for metric in (dynamic_regret, expert_regret, pseudo_regret)]
['dynamic regret', 'expert regret', 'pseudo-regret']
>>> held_out("loss").word, pseudo_regret(averaged=True).word
('test loss', 'pseudo-regret of the running average')
>>> tracking_error([10, 100]).word, instantaneous_regret([10]).word
('tracking error at 10, 100', 'instantaneous regret at 10')
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gossamer import metrics
from gossamer.errors import ConfigurationError
from gossamer.experiments.cells import Doubles, Metric, Played
from gossamer.metrics.summary import last_tenth
from gossamer.simulation import Run


def final_loss() -> Metric:
    """Mean loss per sample over all steps, mean over learners."""
    return Metric("final loss", lambda played: metrics.average_loss(played.run)[..., -1, :].mean(axis=-1))


def average_loss() -> Metric:
    """Mean loss per sample so far, of every learner: AL(t, i) of paper 000."""
    return Metric("average loss", lambda played: metrics.average_loss(played.run), _steps)


def accuracy() -> Metric:
    """Share of correct predictions since the point before, of every learner."""
    return Metric("accuracy", lambda played: _classified(played.run), _steps)


def late_accuracy() -> Metric:
    """Share of correct predictions in the last tenth of the steps, mean over learners."""
    return Metric("late accuracy", lambda played: last_tenth(played.run, _classified(played.run)).mean(axis=(-2, -1)))


def held_out(quantity: str = "accuracy") -> Metric:
    """Accuracy, or loss, on the samples held out, of every learner: for cells with a `test`."""
    field = {"accuracy": "test_accuracy", "loss": "test_losses"}[quantity]
    return Metric(f"test {quantity}", lambda played: getattr(played.run, field), lambda played: played.run.test_steps)


def static_regret() -> Metric:
    """Average regret so far against the best fixed decision, of every learner: R_{T,i} / (n T) of paper 000."""

    def of(played: Played) -> Doubles:
        return metrics.static_regret(played.run, played.algorithm.problem, played.stream, at=played.run.steps)

    return Metric("static regret", of, _steps)


def dynamic_regret() -> Metric:
    """Mean of the loss less the least loss of the same row, of every learner: paper 001, for cells with every = 1."""

    def of(played: Played) -> Doubles:
        return metrics.dynamic_regret(played.run, played.algorithm.problem, played.stream)

    return Metric("dynamic regret", of, _steps)


def expert_regret() -> Metric:
    """Regret per step against the best single expert, mean over clients: paper 004, for cells measured "local"."""
    return Metric("expert regret", lambda played: metrics.expert_regret(played.run, played.stream).mean(axis=-1))


def pseudo_regret(averaged: bool = False) -> Metric:
    """Pseudo-regret per step of the joint decisions, or of their running average: paper 002, for cells of every = 1.

    Of every seed; the expectation is their mean.
    """

    def of(played: Played) -> Doubles:
        joint = joint_decisions(played)
        plays = metrics.running_average(joint) if averaged else joint
        return np.array([metrics.pseudo_regret(play, played.algorithm.problem, played.stream) for play in plays])

    word = "pseudo-regret of the running average" if averaged else "pseudo-regret"
    return Metric(word, of, record=("decisions",))


def tracking_error(at: Sequence[int]) -> Metric:
    """|theta_i(t) - theta_t*|^2 of every learner after so many steps: paper 003, for algorithms with blocks of 1."""
    return _against_best("tracking error", metrics.tracking_error, at)


def instantaneous_regret(at: Sequence[int]) -> Metric:
    """F_t(theta_i(t)) - F_t(theta_t*) of every learner after so many steps: paper 003."""
    return _against_best("instantaneous regret", metrics.instantaneous_regret, at)


def joint_decisions(played: Played) -> Any:
    """The decision of every step, put together from the coordinates that each learner controls, axes (seed, step, d).

    For metrics that record "decisions".
    """
    owners = played.algorithm.coordinates
    if owners is None:
        hint = "pseudo-regret is of algorithms whose learners share out the coordinates"
        raise ConfigurationError("metric", "joint decisions", "algorithms such as dpsda_c", hint)
    return metrics.joint_decisions(played.run.transcript["decisions"], owners)


def decisions(played: Played) -> Doubles:
    """What 0, 1, ... samples led to, axes (seed, samples, learner, coordinate): for blocks of 1, with a last one ahead.

    For metrics that record "decisions". Exchanges before the first sample are left out.
    """
    run = played.run
    every = np.concatenate([run.transcript["decisions"], run.decisions[:, None]], axis=1)
    return every[:, -int(run.steps[-1]) - 1 :].astype(np.float64)


def _against_best(word: str, measure: Any, at: Sequence[int]) -> Metric:
    def of(played: Played) -> Doubles:
        plays = decisions(played)[:, list(at)].swapaxes(0, 1)  # (point, seed, learner, coordinate)
        points = plays.reshape(len(at), -1, plays.shape[-1])  # the best decisions are the same for all seeds
        found = measure(points, played.algorithm.problem, played.stream, at)
        return np.asarray(found.reshape(plays.shape[:-1]).swapaxes(0, 1))

    name = f"{word} at {', '.join(map(str, at))}"
    return Metric(name, of, lambda played: at, ("decisions",))


def _steps(played: Played) -> Any:
    return played.run.steps


def _classified(run: Run) -> Doubles:
    if run.accuracy is None:
        raise ConfigurationError("metric", "accuracy", "metrics of losses", "the problem has no classes")
    return run.accuracy
