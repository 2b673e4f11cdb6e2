"""`audit`: attack a guarantee by running its algorithm many times on two inputs, or once with many canaries."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer.auditing.bound import Event, Side, choose_event, epsilon_bounds, guess_bound, largest_bound, rounded
from gossamer.auditing.neighbours import changed_learners, check_values
from gossamer.auditing.one_run import Canaries, Guesses, Scores, guess_coins, transcript
from gossamer.auditing.replicates import AlgorithmRunner, Batches, ReleaseRunner
from gossamer.auditing.views import SEES, Floats, Statistic
from gossamer.checks import check_choice, check_count, check_seed
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError
from gossamer.mechanisms import Calibrated, Mechanism
from gossamer.privacy import OBSERVERS, Basis, FastNoise, Guarantee, Loss, NoiseSource, Observer, no_guarantee
from gossamer.simulation.checks import check_run
from gossamer.streams import Stream

Method = Literal["many-runs", "one-run"]
"""Many runs on each of two neighbouring inputs, or one run with many canaries."""
Per = Literal["occurrence", "record"]


CERTAIN = 0.999
"""The confidence at which a bound above the claim is called a contradiction."""
_FEWEST_RUNS = 100


@dataclass(frozen=True)
class Audit(ABC):
    """What an audit found: a lower bound on epsilon beside the claim.

    A bound below the claim proves nothing: another attack may do better. A bound above it does, up to its confidence.

    Attributes:
        subject: what was audited.
        basis: why the claim is believed.
        claimed: epsilon at `delta`, for the learners whose data differ; infinite where nothing is claimed.
        delta: at which both epsilons are stated.
        observer: who attacked; None for a mechanism alone, whose releases are all seen.
        covered: whether the claim is against this observer, or one who sees more.
        confidence: of the bound.
    """

    subject: str
    basis: Basis
    claimed: float
    delta: float
    observer: Observer | None
    covered: bool
    confidence: float

    @abstractmethod
    def bound(self, confidence: float) -> float:
        """The lower bound on epsilon at another confidence, from the same counts."""

    @property
    @abstractmethod
    def reach(self) -> float:
        """The largest bound that such an audit can show at all."""

    @property
    @abstractmethod
    def counts(self) -> str:
        """What was counted, in words."""

    @property
    def epsilon(self) -> float:
        """The lower bound on epsilon: the truth is below it with probability at most 1 - confidence."""
        return self.bound(self.confidence)

    @property
    def contradicts(self) -> bool:
        """Whether the bound is above the claim at 99.9 % confidence."""
        return self.bound(CERTAIN) > self.claimed

    @property
    def refutes(self) -> bool:
        """Whether a proven guarantee is contradicted by an observer it is against: proof or code is wrong."""
        return self.contradicts and self.covered and self.basis == "proven"

    def sentence(self) -> str:
        """The whole finding in words."""
        sure = f"{100 * self.confidence:g}% confidence"
        whom = "" if self.observer is None else f", observed by {self.observer}"
        at = f" at delta {self.delta:g}" if self.delta else ""
        claim = f"{self.claimed:.4g}" if math.isfinite(self.claimed) else "nothing"
        return (
            f"{self.subject}{whom}: epsilon{at} is at least {self.epsilon:.3g} with {sure} "
            f"({self.counts}); claimed: {claim}. {self._verdict()}."
        )

    def _verdict(self) -> str:
        if self.contradicts:
            stronger = "" if self.covered else ", by an observer whom the claim is not against"
            return "Contradicted, with 99.9% confidence" + stronger
        return "Not contradicted, which proves nothing"


@dataclass(frozen=True)
class ManyRuns(Audit):
    """What many runs on each of two neighbouring inputs showed.

    Attributes:
        runs: on each of the two inputs; the event was chosen on half of them and counted on the others.
        event: what was looked for.
        hits: how often it was there on the input on which it is likelier, and on the other.
        trials: of how many runs, on each.

    >>> event = Event(0.5, above=True, likelier="stream")
    >>> found = ManyRuns("coin", "proven", 1.0, 0.0, "peers", True, 0.95, 2000, event, (500, 184), 1000)
    >>> print(found.sentence())
    coin, observed by peers: epsilon is at least 0.805 with 95% confidence (score >= 0.5 in 500 of 1,000 runs on the
    stream and in 184 on its neighbour); claimed: 1. Not contradicted, which proves nothing.
    """

    runs: int
    event: Event
    hits: tuple[int, int]
    trials: int

    def bound(self, confidence: float) -> float:
        """By Clopper and Pearson: see `epsilon_bounds`."""
        return float(epsilon_bounds(*self.hits, self.trials, self.delta, confidence))

    @property
    def reach(self) -> float:
        """The bound of an event that is there in every run on one input, and in none on the other."""
        return largest_bound(self.trials, self.delta, self.confidence)

    @property
    def counts(self) -> str:
        """How often the event was there."""
        other = "its neighbour" if self.event.likelier == "stream" else "the stream"
        return (
            f"{self.event} in {self.hits[0]:,} of {self.trials:,} runs on the {self.event.likelier} "
            f"and in {self.hits[1]:,} on {other}"
        )


@dataclass(frozen=True)
class OneRun(Audit):
    """What one run with many canaries showed.

    Attributes:
        canaries: places at which a coin decided between two records; half of them served to choose how many to guess.
        guesses: about the other half.

    >>> found = OneRun("coin", "proven", 1.0, 0.0, "peers", True, 0.95, 2000, Guesses(1000, 1000, 731))
    >>> print(found.sentence())
    coin, observed by peers: epsilon is at least 0.881 with 95% confidence (731 of 1,000 guesses right about 1,000
    canaries in one run); claimed: 1. Not contradicted, which proves nothing.
    """

    canaries: int
    guesses: Guesses

    def bound(self, confidence: float) -> float:
        """By Steinke, Nasr and Jagielski: see `guess_bound`."""
        return guess_bound(*self.guesses, self.delta, confidence)

    @property
    def reach(self) -> float:
        """The bound if every guess were right, about every canary."""
        counted = self.guesses.counted
        return guess_bound(counted, counted, counted, self.delta, self.confidence)

    @property
    def counts(self) -> str:
        """How many guesses were right."""
        counted, guessed, right = self.guesses
        return f"{right:,} of {guessed:,} guesses right about {counted:,} canaries in one run"


def audit(
    algorithm: Algorithm,
    stream: Stream,
    neighbour: Stream,
    *,
    statistic: Statistic | Scores,
    runs: int | None = None,
    seed: int,
    method: Method = "many-runs",
    steps: int | None = None,
    observer: Observer | None = None,
    per: Per = "occurrence",
    confidence: float = 0.95,
    delta: float | None = None,
    noise: Callable[[int], NoiseSource] = FastNoise,
) -> Audit:
    """Run an algorithm on two streams, many times or once, and bound epsilon from below.

    Args:
        algorithm: made by a function of `gossamer.algorithms`.
        stream: one input.
        neighbour: another. For many runs it differs by one unit of the guarantee; `per` record: by whatever was made
            of records of which one was replaced. For one run it differs in many samples, each of which is a canary: a
            fair coin decides which of its two records is in the data.
        statistic: for many runs: gives every run of a `View` a score, large where it looks like a run on `stream`. It
            is called on batches of runs, must look at each run by itself, and had better compute in float64: see
            `rounded`. For one run: gives every canary a score, from the parts of the run as they come: positive where
            its record looks like the one of `stream`, the farther from 0 the surer. See `matched_filter`.
        runs: on each input. Half of them choose what to look for, the others are counted. None with one run.
        seed: of the noise, and of the coins; there is no default.
        method: "many-runs", or "one-run": for what is too large to be run many times. It shows less.
        steps: samples per learner; by default all of the stream. Steps after the last whole block are not played.
        observer: who looks; by default the one of the guarantee.
        per: whether the claim for one occurrence is audited, or that for a whole record of this stream.
        confidence: of the bound.
        delta: at which epsilon is bounded; by default that of the guarantee.
        noise: makes the noise source from a seed.

    >>> from gossamer import Budget, algorithms, problems, streams, topology
    >>> algorithm = algorithms.pd_ogd(problems.Linear(1), topology.isolated(1), budget=Budget(1.0), clip=1.0, step=1.0)
    >>> one, other = (streams.from_arrays([[g]], [0.0], 1, seed=0) for g in (1.0, -1.0))
    >>> found = audit(algorithm, one, other, statistic=lambda view: -view.messages[:, 0, 0, 0], runs=20_000, seed=1)
    >>> round(found.claimed, 6), found.epsilon > 0.8, found.contradicts
    (1.0, True, False)

    In one run, with two thousand canaries of one learner:

    >>> from gossamer.auditing import matched_filter, samples
    >>> ones = np.ones((2000, 1, 1))
    >>> one, other = (samples(sign * ones, np.zeros((2000, 1))) for sign in (1, -1))
    >>> found = audit(algorithm, one, other, statistic=matched_filter(algorithm, one, other), method="one-run", seed=1)
    >>> found.canaries, 0.5 < found.epsilon < 1
    (2000, True)
    """
    check_choice("per", per, Per)
    promise = algorithm.guarantee if per == "occurrence" else _of_records(algorithm.guarantee, stream)
    who = observer or promise.observer
    length = _steps(steps, stream, neighbour)
    for each in (stream, neighbour):
        check_run(algorithm, each, length, "global", None, None, ())
    check_choice("method", method, Method)
    _check_settings(runs, method, seed, confidence, delta)
    if who not in OBSERVERS or (who == "broadcasts" and algorithm.server is None):
        raise ConfigurationError("observer", who, ", ".join(OBSERVERS), "only a server has broadcasts")
    covered = SEES[who] <= SEES[promise.observer]
    if runs is None:
        if per == "record":
            raise ConfigurationError("per", per, "'occurrence' with method='one-run'", "each canary is one sample")
        canaries = Canaries.between(stream, neighbour, algorithm.schedule, length)
        claimed, at = _claim(promise, canaries.whose, delta)
        tossed, coins = canaries.toss(stream, neighbour, seed)
        parts = transcript(algorithm, tossed, length, who, noise(seed))
        right = guess_coins(cast(Scores, statistic)(canaries, parts), coins, at, confidence)
        return OneRun(algorithm.name, promise.basis, claimed, at, who, covered, confidence, len(coins), right)
    changed = changed_learners(stream, neighbour, length, promise.unit if per == "occurrence" else None)
    claimed, at = _claim(promise, changed, delta)
    runner = AlgorithmRunner(algorithm, {"stream": stream, "neighbour": neighbour}, length, who, noise(seed))
    found = algorithm.name, promise.basis, claimed, at, who, covered, confidence
    return ManyRuns(*found, *_attack(runner, cast(Statistic, statistic), runs, at, confidence))


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
    _check_settings(runs, "many-runs", seed, confidence, delta)
    ours, theirs = np.asarray(values, np.float32), np.asarray(neighbours, np.float32)
    check_values(release, ours, theirs)
    at = release.deltas[0] if delta is None else delta
    claimed = release.spent(len(ours)).epsilon(at)
    runner = ReleaseRunner(release, {"stream": ours, "neighbour": theirs}, noise(seed))
    found = _attack(runner, statistic, runs, at, confidence)
    return ManyRuns(type(release.mechanism).__name__, "proven", claimed, at, None, True, confidence, *found)


def _attack(
    runner: AlgorithmRunner | ReleaseRunner,
    statistic: Callable[[Any], NDArray[Any]],
    runs: int,
    delta: float,
    confidence: float,
) -> tuple[int, Event, tuple[int, int], int]:
    """Choose the event on the first half of the runs, and count it on the other: the fields of `ManyRuns`."""
    batches = Batches.of(runs, runner.values)

    def scores_on(side: Side) -> Floats:
        return np.concatenate([_scores(statistic, runner(side, k, batches.size)) for k in range(batches.number)])

    scores: dict[Side, Floats] = {"stream": scores_on("stream"), "neighbour": scores_on("neighbour")}
    half = runs // 2
    event = choose_event(scores["stream"][:half], scores["neighbour"][:half], delta, confidence)
    other: Side = "neighbour" if event.likelier == "stream" else "stream"
    hits, misses = (event.count(scores[side][half:runs]) for side in (event.likelier, other))
    return runs, event, (hits, misses), runs - half


def _scores(statistic: Callable[[Any], NDArray[Any]], shown: Any) -> Floats:
    runs = len(jax.tree.leaves(shown)[0])
    scores = np.asarray(statistic(shown))
    if scores.shape != (runs,) or np.isnan(scores).any():
        raise ConfigurationError("statistic", scores.shape, f"({runs},): one number, not NaN, for every run")
    return rounded(scores)


def _of_records(promise: Guarantee, stream: Stream) -> Guarantee:
    """What is claimed of whole records, by the same observer; where nothing is, no guarantee."""
    known = promise.for_stream(stream.occurrences, promises=stream.unenforced, public_labels=stream.public_labels)
    return known.per_record() or replace(no_guarantee("nothing is claimed per record"), observer=promise.observer)


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


def _check_settings(runs: int | None, method: Method, seed: int, confidence: float, delta: float | None) -> None:
    if method == "many-runs":
        check_count("runs", runs, least=_FEWEST_RUNS)
    elif runs is not None:
        raise ConfigurationError("runs", runs, "None with method='one-run'")
    check_seed(seed)
    if not 0 < confidence < 1:
        raise ConfigurationError("confidence", confidence, "a number between 0 and 1", "common choices: 0.95, 0.999")
    if delta is not None and not 0 <= delta < 1:
        raise ConfigurationError("delta", delta, "a number from 0 to below 1")
