"""`audit`: attack a guarantee by running its algorithm on two neighbouring inputs many times."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer.auditing.bound import Event, Floats, Side, choose_event, epsilon_bounds, largest_bound, rounded
from gossamer.auditing.neighbours import changed_learners, check_values
from gossamer.auditing.replicates import AlgorithmRunner, Batches, ReleaseRunner, Runner
from gossamer.auditing.views import SEES, Statistic
from gossamer.checks import check_count, check_seed
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError
from gossamer.mechanisms import Calibrated, Mechanism
from gossamer.privacy import OBSERVERS, Basis, FastNoise, Guarantee, Loss, NoiseSource, Observer
from gossamer.simulation.simulate import check_run
from gossamer.streams import Stream

CERTAIN = 0.999
"""The confidence at which a bound above the claim is called a contradiction."""
_FEWEST_RUNS = 100


@dataclass(frozen=True)
class Audit:
    """What an audit found: a lower bound on epsilon beside the claim.

    A bound below the claim proves nothing: another attack may do better. A bound above it does, up to its confidence.

    Attributes:
        subject: what was audited.
        basis: why the claim is believed.
        claimed: epsilon at `delta`, for the learners whose data differ; infinite where nothing is claimed.
        delta: at which both epsilons are stated.
        observer: who attacked; None for a mechanism alone, whose releases are all seen.
        covered: whether the claim is against this observer, or one who sees more.
        runs: on each of the two inputs; the event was chosen on half of them and counted on the others.
        confidence: of the bound.
        event: what was looked for.
        hits: how often it was there on the input on which it is likelier, and on the other.
        trials: of how many runs, on each.
    """

    subject: str
    basis: Basis
    claimed: float
    delta: float
    observer: Observer | None
    covered: bool
    runs: int
    confidence: float
    event: Event
    hits: tuple[int, int]
    trials: int

    def bound(self, confidence: float) -> float:
        """The lower bound on epsilon at another confidence, from the same counts."""
        return float(epsilon_bounds(*self.hits, self.trials, self.delta, confidence))

    @property
    def epsilon(self) -> float:
        """The lower bound on epsilon: the truth is below it with probability at most 1 - confidence."""
        return self.bound(self.confidence)

    @property
    def reach(self) -> float:
        """The largest bound that so many runs can show at all."""
        return largest_bound(self.trials, self.delta, self.confidence)

    @property
    def contradicts(self) -> bool:
        """Whether the bound is above the claim at 99.9 % confidence."""
        return self.bound(CERTAIN) > self.claimed

    @property
    def refutes(self) -> bool:
        """Whether a proven guarantee is contradicted by an observer it is against: proof or code is wrong."""
        return self.contradicts and self.covered and self.basis == "proven"

    def sentence(self) -> str:
        """The whole finding in words.

        >>> event = Event(0.5, above=True, likelier="stream")
        >>> found = Audit("coin", "proven", 1.0, 0.0, "peers", True, 2000, 0.95, event, (500, 184), 1000)
        >>> print(found.sentence())
        coin, observed by peers: epsilon is at least 0.805 with 95% confidence (score >= 0.5 in 500 of 1,000 runs on the
        stream and in 184 on its neighbour); claimed: 1. Not contradicted, which proves nothing.
        """
        sure = f"{100 * self.confidence:g}% confidence"
        whom = "" if self.observer is None else f", observed by {self.observer}"
        at = f" at delta {self.delta:g}" if self.delta else ""
        other = "its neighbour" if self.event.likelier == "stream" else "the stream"
        counts = f"{self.event} in {self.hits[0]:,} of {self.trials:,} runs on the {self.event.likelier} and in "
        counts += f"{self.hits[1]:,} on {other}"
        claim = f"{self.claimed:.4g}" if math.isfinite(self.claimed) else "nothing"
        return (
            f"{self.subject}{whom}: epsilon{at} is at least {self.epsilon:.3g} with {sure} "
            f"({counts}); claimed: {claim}. {self._verdict()}."
        )

    def _verdict(self) -> str:
        if self.contradicts:
            stronger = "" if self.covered else ", by an observer whom the claim is not against"
            return "Contradicted, with 99.9% confidence" + stronger
        return "Not contradicted, which proves nothing"


def audit(
    algorithm: Algorithm,
    stream: Stream,
    neighbour: Stream,
    *,
    statistic: Statistic,
    runs: int,
    seed: int,
    steps: int | None = None,
    observer: Observer | None = None,
    confidence: float = 0.95,
    delta: float | None = None,
    noise: Callable[[int], NoiseSource] = FastNoise,
) -> Audit:
    """Run an algorithm many times on two neighbouring streams, and bound epsilon from below.

    Args:
        algorithm: made by a function of `gossamer.algorithms`.
        stream: one input.
        neighbour: another, which differs by one unit of the guarantee.
        statistic: gives every run of a `View` a score, large where it looks like a run on `stream`. It is called on
            batches of runs, must look at each run by itself, and had better compute in float64: see `rounded`.
        runs: on each input. Half of them choose what to look for, the others are counted.
        seed: of the noise; there is no default.
        steps: samples per learner; by default all of the stream. Steps after the last whole block are not played.
        observer: who looks; by default the one of the guarantee.
        confidence: of the bound.
        delta: at which epsilon is bounded; by default that of the guarantee.
        noise: makes the noise source from a seed.

    >>> from gossamer import Budget, algorithms, problems, streams, topology
    >>> algorithm = algorithms.pd_ogd(problems.Linear(1), topology.isolated(1), budget=Budget(1.0), clip=1.0, step=1.0)
    >>> one, other = (streams.from_arrays([[g]], [0.0], 1, seed=0) for g in (1.0, -1.0))
    >>> found = audit(algorithm, one, other, statistic=lambda view: -view.messages[:, 0, 0, 0], runs=20_000, seed=1)
    >>> round(found.claimed, 6), found.epsilon > 0.8, found.contradicts
    (1.0, True, False)
    """
    promise, who = algorithm.guarantee, observer or algorithm.guarantee.observer
    length = _steps(steps, stream, neighbour)
    for each in (stream, neighbour):
        check_run(algorithm, each, length, "global", None, None, ())
    _check_settings(runs, seed, confidence, delta)
    if who not in OBSERVERS or (who == "broadcasts" and algorithm.server is None):
        raise ConfigurationError("observer", who, ", ".join(OBSERVERS), "only a server has broadcasts")
    changed = changed_learners(stream, neighbour, length, promise.unit)
    claimed, at = _claim(promise, changed, delta)
    runner = AlgorithmRunner(algorithm, {"stream": stream, "neighbour": neighbour}, length, who, noise(seed))
    event, hits, trials = _attack(runner, statistic, Batches.of(runs, runner.values), runs, at, confidence)
    covered = SEES[who] <= SEES[promise.observer]
    return Audit(algorithm.name, promise.basis, claimed, at, who, covered, runs, confidence, event, hits, trials)


def audit_release(
    release: Calibrated[Mechanism],
    values: ArrayLike,
    neighbours: ArrayLike,
    *,
    statistic: Callable[[NDArray[Any]], NDArray[Any]],
    runs: int,
    seed: int,
    confidence: float = 0.95,
    delta: float | None = None,
    noise: Callable[[int], NoiseSource] = FastNoise,
) -> Audit:
    """The same for one mechanism alone, which releases one value after the other.

    Args:
        release: a calibrated mechanism; its claim is what it says is spent after so many releases.
        values: one input, axes (position, *shape).
        neighbours: another, which one unit of data can turn it into.
        statistic: gives every run a score from its releases, axes (run, position, ...).
        runs: on each input.
        seed: of the noise.
        confidence: of the bound.
        delta: at which epsilon is bounded; by default that of the budget.
        noise: makes the noise source from a seed.

    >>> from gossamer import Budget
    >>> from gossamer.mechanisms import Independent
    >>> from gossamer.privacy import Sensitivity
    >>> noisy = Independent((1,)).calibrate(Sensitivity(l1=2.0, l2=2.0), Budget(1.0))
    >>> found = audit_release(noisy, [[1.0]], [[-1.0]], statistic=lambda shown: shown[:, 0, 0], runs=20_000, seed=1)
    >>> 0.8 < found.epsilon < found.claimed
    True
    """
    _check_settings(runs, seed, confidence, delta)
    ours, theirs = np.asarray(values, np.float32), np.asarray(neighbours, np.float32)
    check_values(release, ours, theirs)
    at = release.deltas[0] if delta is None else delta
    claimed = release.spent(len(ours)).epsilon(at)
    runner = ReleaseRunner(release, {"stream": ours, "neighbour": theirs}, noise(seed))
    event, hits, trials = _attack(runner, statistic, Batches.of(runs, runner.values), runs, at, confidence)
    subject = type(release.mechanism).__name__
    return Audit(subject, "proven", claimed, at, None, True, runs, confidence, event, hits, trials)


def _attack(
    runner: Runner,
    statistic: Callable[[Any], NDArray[Any]],
    batches: Batches,
    runs: int,
    delta: float,
    confidence: float,
) -> tuple[Event, tuple[int, int], int]:
    """Choose the event on the first half of the runs, and count it on the other."""

    def scores_on(side: Side) -> Floats:
        return np.concatenate([_scores(statistic, runner(side, k, batches.size)) for k in range(batches.number)])

    scores: dict[Side, Floats] = {"stream": scores_on("stream"), "neighbour": scores_on("neighbour")}
    half = runs // 2
    event = choose_event(scores["stream"][:half], scores["neighbour"][:half], delta, confidence)
    other: Side = "neighbour" if event.likelier == "stream" else "stream"
    hits, misses = (event.count(scores[side][half:runs]) for side in (event.likelier, other))
    return event, (hits, misses), runs - half


def _scores(statistic: Callable[[Any], NDArray[Any]], shown: Any) -> Floats:
    runs = len(jax.tree.leaves(shown)[0])
    scores = np.asarray(statistic(shown))
    if scores.shape != (runs,) or np.isnan(scores).any():
        raise ConfigurationError("statistic", scores.shape, f"({runs},): one number, not NaN, for every run")
    return rounded(scores)


def _claim(promise: Guarantee, changed: tuple[int, ...], delta: float | None) -> tuple[float, float]:
    """Epsilon and delta for those whose data differ: the weakest of their guarantees."""
    terms: list[tuple[Loss, float]] = list(zip(promise.losses, promise.deltas, strict=True))
    terms = [terms[learner] for learner in changed] if len(terms) > 1 else terms
    if delta is not None:
        return max((_epsilon(promise, loss, delta) for loss, _ in terms), default=math.inf), delta
    epsilons = [loss.epsilon(each) for loss, each in terms]
    deltas = [each + promise.sampler_share(epsilon) for epsilon, (_, each) in zip(epsilons, terms, strict=True)]
    return max(epsilons, default=math.inf), max(deltas, default=0.0)


def _epsilon(promise: Guarantee, loss: Loss, delta: float) -> float:
    """Epsilon at another delta, less the share of inexact noise: as much as an epsilon larger by 1 would need."""
    most = loss.epsilon(delta) + 1
    left = delta - promise.sampler_share(most)
    epsilon = loss.epsilon(left) if left >= 0 else math.inf
    return epsilon if epsilon <= most else math.inf


def _steps(steps: int | None, stream: Stream, neighbour: Stream) -> int:
    lengths = [each for each in (steps, stream.length, neighbour.length) if each is not None]
    if not lengths:
        raise ConfigurationError("steps", None, "a number of steps", "these streams have no end")
    return lengths[0] if steps is not None else min(lengths)


def _check_settings(runs: int, seed: int, confidence: float, delta: float | None) -> None:
    check_count("runs", runs, least=_FEWEST_RUNS)
    check_seed(seed)
    if not 0 < confidence < 1:
        raise ConfigurationError("confidence", confidence, "a number between 0 and 1", "common choices: 0.95, 0.999")
    if delta is not None and not 0 <= delta < 1:
        raise ConfigurationError("delta", delta, "a number from 0 to below 1")
