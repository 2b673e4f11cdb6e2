"""The statistics of an audit: an event chosen on one half of the runs, and what counting it on the other half proves.

Under (epsilon, delta)-differential privacy every event has P(event | D) <= e^epsilon P(event | D') + delta for every
two neighbours. So an event with probability p on one of them and q on the other shows epsilon >= ln((p - delta) / q).

An audit in one run counts right guesses about fair coins instead: `guess_tail` says how many there can be.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gossamer.auditing.views import Floats

Counts = NDArray[np.int64]
Side = Literal["stream", "neighbour"]

_CANDIDATES = 256  # thresholds tried per spacing: equal shares of the scores, and shares that fall towards either end


@dataclass(frozen=True)
class Event:
    """What an observer looks for: a score at or beyond a threshold, which is likelier on one of the two inputs.

    >>> Event(0.5, above=True, likelier="stream").count(np.array([0.0, 0.5, 0.7]))
    2
    >>> str(Event(0.5, above=False, likelier="neighbour"))
    'score <= 0.5'
    """

    threshold: float
    above: bool
    likelier: Side

    def count(self, scores: Floats) -> int:
        """How many scores are in the event."""
        hits = scores >= self.threshold if self.above else scores <= self.threshold
        return int(np.count_nonzero(hits))

    def __str__(self) -> str:
        return f"score {'>=' if self.above else '<='} {self.threshold:.6g}"


def clopper_pearson(hits: Any, trials: int, confidence: float) -> tuple[Floats, Floats]:
    """The exact two-sided confidence interval of a probability, from hits in independent trials.

    >>> low, high = clopper_pearson([0, 5, 10], 10, 0.95)
    >>> low.round(4), high.round(4)
    (array([0.    , 0.1871, 0.6915]), array([0.3085, 0.8129, 1.    ]))
    """
    tail = (1 - confidence) / 2
    low = _at_least(hits, trials, tail)
    return low, 1 - _at_least(trials - np.asarray(hits), trials, tail)


def _at_least(hits: Any, trials: int, tail: float) -> Floats:
    """The probability at which so many hits or more have the probability `tail`; 0 without hits."""
    from scipy.special import betaincinv

    some = np.maximum(np.asarray(hits, np.float64), 1)
    return np.where(np.asarray(hits) > 0, betaincinv(some, trials - some + 1, tail), 0.0)


def epsilon_bounds(hits: Any, others: Any, trials: int, delta: float, confidence: float) -> Floats:
    """Lower bounds on epsilon at delta: ln((p_low - delta) / q_up), and never below 0.

    Each of the two probabilities is outside its interval on the side that matters with probability at most
    (1 - confidence) / 2, so the bound is above the true epsilon with probability at most 1 - confidence.

    >>> epsilon_bounds([500, 10], [184, 9], 1000, delta=0.0, confidence=0.95).round(3)
    array([0.805, 0.   ])
    """
    tail = (1 - confidence) / 2
    low, high = _at_least(hits, trials, tail), 1 - _at_least(trials - np.asarray(others), trials, tail)
    excess = np.maximum(low - delta, 0)
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(excess / high), 0)


def largest_bound(trials: int, delta: float, confidence: float) -> float:
    """The bound from an event that happens in every trial on one input and in none on the other: more cannot be shown.

    >>> round(largest_bound(50_000, 0.0, 0.95), 2)
    9.51
    """
    return float(epsilon_bounds(trials, 0, trials, delta, confidence))


def guess_tail(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """How likely so many right guesses are at most, if the run is (epsilon, delta)-private: a p-value.

    Theorem 5.2 of Steinke, Nasr and Jagielski (2023). A fair coin for each canary decides which of two records is in
    the data; that one coin is all that differs is what makes two inputs neighbours, so the bound is for the unit in
    which the two records are one. Whoever sees the output guesses some of the coins. With W right guesses of r,

        P(W >= v)  <=  f(v) + 2 m delta max_i (f(v - i) - f(v)) / i,   f(v) = P(Binomial(r, 1 / (1 + e^-epsilon)) >= v).

    >>> guess_tail(10, 10, 10, epsilon=0.0, delta=0.0) == 2.0**-10
    True
    >>> guess_tail(10, 10, 10, epsilon=0.0, delta=1e-3)
    0.00373...
    """
    from scipy.special import bdtrc, expit

    fewer = np.arange(1, right + 1)
    tail = float(bdtrc(right - 1, guesses, expit(epsilon)))
    steepest = np.max((bdtrc(right - fewer - 1, guesses, expit(epsilon)) - tail) / fewer, initial=0.0)
    return min(1.0, tail + 2 * canaries * delta * float(steepest))


def guess_bound(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """The largest epsilon at which so many right guesses are less likely than 1 - confidence, and never below 0.

    About a share 2 delta / (1 - confidence) of the canaries must be guessed right beyond what epsilon explains. So with
    a delta that is not much smaller than 1 - confidence nothing is shown at all.

    >>> round(guess_bound(1000, 1000, 731, 0.0, 0.95), 3)  # randomised response with epsilon 1: 0.731 are right
    0.881
    >>> round(guess_bound(1000, 1000, 731, 1e-3, 0.95), 3), guess_bound(1000, 1000, 731, 1e-3, 0.999)
    (0.842, 0.0)
    """
    from scipy.optimize import brentq

    def excess(epsilon: float) -> float:
        return guess_tail(canaries, guesses, right, epsilon, delta) - (1 - confidence)

    if guesses == 0 or excess(0.0) >= 0:
        return 0.0
    top = 1.0
    while excess(top) < 0:
        top *= 2
    return float(brentq(excess, 0.0, top, xtol=1e-9))


def choose_guesses(scores: Floats, coins: NDArray[np.bool_], delta: float, confidence: float) -> float:
    """The share of canaries to guess that has the largest bound here: all, a half, a quarter, ...

    Each is judged at a confidence that holds for all of them together, as in `choose_event`.

    >>> rng = np.random.default_rng(0)
    >>> coins = rng.random(4000) < 0.5
    >>> choose_guesses(coins + rng.normal(size=4000), coins, 0.0, 0.95) < 1  # few are sure, and those show more
    True
    """
    shares = 0.5 ** np.arange(max(1, int(np.log2(len(scores))) - 2))
    strict = 1 - (1 - confidence) / len(shares)
    bounds = [guess_bound(len(scores), *guess(scores, coins, share), delta, strict) for share in shares]
    return float(shares[int(np.argmax(bounds))])


def guess(scores: Floats, coins: NDArray[np.bool_], share: float) -> tuple[int, int]:
    """How many coins are guessed, and how many of them right: by the sign of the scores, those far from 0 first.

    >>> guess(np.array([3.0, -1.0, 0.1, 2.0]), np.array([True, False, False, False]), share=0.5)
    (2, 1)
    """
    guesses = max(1, round(share * len(scores)))
    surest = np.argsort(-np.abs(scores), kind="stable")[:guesses]
    return guesses, int(np.count_nonzero((scores[surest] > 0) == coins[surest]))


def choose_event(scores: Floats, others: Floats, delta: float, confidence: float) -> Event:
    """The event with the largest estimated bound: either tail of the scores, either input as the likelier one.

    Thousands of events are compared, so each is judged at a confidence that holds for all of them together. Else the
    winner would be a rare event that was lucky here, and is ordinary on the runs that count.

    >>> rng = np.random.default_rng(0)
    >>> event = choose_event(rng.laplace(1.0, size=4000), rng.laplace(-1.0, size=4000), 0.0, 0.95)
    >>> event.above, event.likelier, 0.5 < event.threshold < 2.5
    (True, 'stream', True)
    """
    thresholds = _thresholds(np.concatenate([scores, others]))
    ours, theirs = _tails(scores, thresholds), _tails(others, thresholds)
    found: list[tuple[float, Event]] = []
    strict = 1 - (1 - confidence) / (4 * len(thresholds))
    for above, hits, misses in zip((True, False), ours, theirs, strict=True):
        pairs: dict[Side, tuple[Counts, Counts]] = {"stream": (hits, misses), "neighbour": (misses, hits)}
        for likelier, pair in pairs.items():
            bounds = epsilon_bounds(*pair, len(scores), delta, strict)
            top = int(np.argmax(bounds))
            found.append((float(bounds[top]), Event(float(thresholds[top]), above, likelier)))
    return max(found, key=lambda one: one[0])[1]


def _thresholds(pooled: Floats) -> Floats:
    """Scores at equally spaced ranks, and at ranks that grow geometrically from either end, where the tails are."""
    last = len(pooled) - 1
    even = np.linspace(0, last, _CANDIDATES)
    tail = np.geomspace(1, len(pooled), _CANDIDATES) - 1
    ranks = np.unique(np.concatenate([even, tail, last - tail]).round().astype(np.int64))
    return np.unique(np.sort(pooled)[ranks])


def _tails(scores: Floats, thresholds: Floats) -> tuple[Counts, Counts]:
    """How many scores are at or above, and at or below, each threshold."""
    ordered = np.sort(scores)
    above = len(scores) - np.searchsorted(ordered, thresholds, side="left")
    return above, np.searchsorted(ordered, thresholds, side="right")


def rounded(scores: NDArray[Any]) -> Floats:
    """Scores without their last digits: to one part in 10^9, and to one in 10^4 where they were computed in float32.

    A log-likelihood ratio often has an atom at its supremum, and floating point splits an atom into last-bit patterns
    whose counts say more about rounding than about the mechanism. Rounded, an audit is one of the
    mechanism as it is on paper. The patterns are a real leak of noise in floats all the same: what is audited here is
    the calibration, and it is secure noise, on a lattice, that closes that leak.

    >>> rounded(np.array([1 + 2.2e-16, 1.0, 1.5, -np.inf])).tolist()
    [1.0, 1.0, 1.5, -inf]
    """
    share = 1e-4 if scores.dtype in (np.float16, np.float32) else 1e-9
    scores = scores.astype(np.float64)
    size = np.where(np.isfinite(scores), np.maximum(np.abs(scores), 1), 1.0)  # below 1, to as many decimals
    grain = share * 2.0 ** np.floor(np.log2(size))
    return np.asarray(np.round(scores / grain) * grain, np.float64)
