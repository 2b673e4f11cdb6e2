"""Attacks on mechanisms alone: for each the pair of inputs on which nearly all that is claimed is really lost."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from gossamer.auditing.attacks.base import Attack, ReleaseCase, attack
from gossamer.auditing.views import Floats, log_ratio
from gossamer.mechanisms import (
    AboveThreshold,
    AdditiveLaw,
    Calibrated,
    ExponentialMechanism,
    Factorized,
    Independent,
    Keeping,
    NoisyMax,
    PermuteAndFlip,
    SharedFlip,
    Spread,
    TreeSum,
)
from gossamer.mechanisms.factors import Buffered, SquareRoot
from gossamer.mechanisms.selection import Selection
from gossamer.mechanisms.threshold import Shift
from gossamer.privacy import Budget, Sensitivity

PURE, APPROXIMATE = Budget(1.0), Budget(1.0, 0.1)
MOVE = Sensitivity(l1=2.0, l2=2.0)
"""Values from -1 to 1."""
ONE_SCORE = Sensitivity(l1=1.0, l2=1.0)
"""No score, and no query, moves by more than 1."""
LEAVES = 4


def _budget(law: AdditiveLaw) -> Budget:
    return APPROXIMATE if law == "gaussian" else PURE


def _scale(release: Calibrated[Any], name: str = "noise") -> float:
    return release.scales[name][0].value


# --- Additive noise. The claim is reached: the value moves by all of its sensitivity in one coordinate.


def _total(ratios: Floats) -> Floats:
    """Of independent releases."""
    return np.asarray(ratios.sum(axis=1), np.float64)


def one_value(law: AdditiveLaw) -> ReleaseCase:
    """One number, +1 or -1."""
    release = Independent((1,), law=law).calibrate(MOVE, _budget(law))

    def score(shown: NDArray[Any]) -> Floats:
        return log_ratio(law, _scale(release), shown[:, 0], 1.0, -1.0)

    return ReleaseCase(release, [[1.0]], [[-1.0]], score, supremum=release.losses[0].epsilon(release.deltas[0]))


def first_leaf(law: AdditiveLaw) -> ReleaseCase:
    """Leaf 1 enters a node of every level: those that end at the leaves 1, 2, 4, ..., where the prefix is one node."""
    release = TreeSum((1,), horizon=LEAVES, law=law).calibrate(MOVE, _budget(law))
    ends = 2 ** np.arange(release.mechanism.height) - 1

    def score(shown: NDArray[Any]) -> Floats:
        return _total(log_ratio(law, _scale(release), shown[:, ends], 1.0, -1.0))

    return _prefixes(release, [1.0, *[0.0] * (LEAVES - 1)], score)


def second_segment() -> ReleaseCase:
    """Endless: leaf 2 opens a segment of two, and enters its first node and its root, each with twice the noise."""
    release = TreeSum((1,), law="laplace").calibrate(MOVE, PURE)

    def score(shown: NDArray[Any]) -> Floats:
        nodes = np.asarray(shown[:, 1:], np.float64) - shown[:, :1]
        return _total(log_ratio("laplace", 2 * _scale(release), nodes, 1.0, -1.0))

    return _prefixes(release, [0.0, 1.0, 0.0], score)


def first_row(make: Callable[[], Factorized], rows: int = 8) -> ReleaseCase:
    """Value 1 moves every row of C x by its column of C: with C (A^-1 prefixes) = C x + z the draws are z again."""
    release = make().calibrate(MOVE, APPROXIMATE)
    matrix = dense(release.mechanism.factor, rows)

    def score(shown: NDArray[Any]) -> Floats:
        values = np.diff(np.asarray(shown[..., 0], np.float64), axis=1, prepend=0.0)
        return log_ratio("gaussian", _scale(release), values @ matrix.T, matrix[:, 0], -matrix[:, 0])

    return _prefixes(release, [1.0, *[0.0] * (rows - 1)], score)


def dense(factor: Any, rows: int) -> Floats:
    """The matrix that a factor stands for, from its definition: not by the code that makes the noise.

    >>> dense(SquareRoot(2), 3)
    array([[1. , 0. , 0. ],
           [0.5, 1. , 0. ],
           [0. , 0.5, 1. ]])
    """
    lag = np.subtract.outer(np.arange(rows), np.arange(rows))
    below = np.maximum(lag - 1, 0)
    if isinstance(factor, Buffered):
        terms = [s * (1 - r) ** below for r, s in zip(factor.rates, factor.scales, strict=True)]
        entries = np.where(lag > 0, np.sum(terms, axis=0), 1.0)
    else:
        assert isinstance(factor, SquareRoot)
        column = np.cumprod(np.concatenate([[1.0], 1 - 0.5 / np.arange(1, max(2, rows))]))
        entries = np.where(lag < factor.bands, column[np.maximum(lag, 0)], 0.0)
    return np.asarray(np.where(lag >= 0, entries, 0.0), np.float64)


def _prefixes(release: Calibrated[Any], values: list[float], score: Callable[[NDArray[Any]], Floats]) -> ReleaseCase:
    """Values of which the one that is not 0 changes its sign."""
    column = np.array(values)[:, None]
    supremum = release.spent(len(values)).epsilon(release.deltas[0])
    return ReleaseCase(release, column, -column, score, supremum=supremum)


# --- Selections. Candidate 0 falls back as far as one unit moves it; the event is that it wins.


def falling_back(kind: type[Selection], monotone: bool) -> ReleaseCase:
    """Candidate 0 is behind its rivals, and on the neighbour further behind: by 2 D, or by D where all move one way.

    >>> [round(falling_back(kind, monotone=False).supremum, 3) for kind in _CHANCES]
    [0.951, 1.0, 1.0]
    """
    rivals, gap, wins = _CHANCES[kind]
    release = kind(1 + rivals, horizon=1, monotone=monotone).calibrate(ONE_SCORE, PURE)
    scores = np.zeros((1, 1 + rivals))
    scores[0, 0] = -gap * _scale(release)
    others = scores + (0.0 if monotone else 1.0)
    others[0, 0] = scores[0, 0] - 1.0
    return ReleaseCase(release, scores, others, _won, supremum=float(np.log(wins(gap) / wins(gap + 1))))


def _won(shown: NDArray[Any]) -> Floats:
    return np.asarray(shown[:, 0] == 0, np.float64)


def _noisy_max_wins(gap: float, rivals: int = 9) -> float:
    """The chance of a candidate `gap` scales behind equal rivals, Laplace noise on each."""
    x = np.linspace(-40.0, 40.0, 2**17 + 1)
    return float(np.trapezoid(np.exp(-np.abs(x)) / 2 * laplace_below(x - gap) ** rivals, x))


def laplace_below(x: Floats) -> Floats:
    """The chance of Laplace noise of scale 1 to be below.

    >>> float(laplace_below(np.float64(0.0)))
    0.5
    """
    tail = np.exp(-np.abs(x)) / 2
    return np.where(x < 0, tail, 1 - tail)


# Rivals, the gap in scales, and the chance to win as a function of it. Rivals keep the best of their noises positive,
# where a Laplace tail is exponential; the exponential mechanism loses all of its epsilon at rare outcomes only.
_CHANCES: Mapping[type[Selection], tuple[int, float, Callable[[float], float]]] = {
    ExponentialMechanism: (1, 2.5, lambda gap: float(1 / (1 + np.exp(gap)))),
    PermuteAndFlip: (1, 0.0, lambda gap: float(np.exp(-gap) / 2)),
    NoisyMax: (9, 0.0, _noisy_max_wins),
}


def shared_scores() -> ReleaseCase:
    """Two candidates with equal scores, of which one falls back by 2 D: permute-and-flip loses all of it."""
    release = SharedFlip(2, touches=1).calibrate(ONE_SCORE, PURE)
    return ReleaseCase(release, [[0.0, 0.0]], [[-1.0, 1.0]], _won, supremum=2 / _scale(release))


def spread_scores() -> ReleaseCase:
    """One selection of two, in which all that may move moves: not sharp, as concentrated privacy is not at delta 0.1.

    >>> round(spread_scores().supremum, 3)
    0.816
    """
    release, behind = Spread(2, touches=1).calibrate(ONE_SCORE, APPROXIMATE), 0.8
    wins, then = (1 / (1 + math.exp((behind + moved) / _scale(release))) for moved in (0.0, 2.0))
    scores, others = [[0.0, behind]], [[-1.0, behind + 1]]
    return ReleaseCase(release, scores, others, _won, supremum=math.log((wins - APPROXIMATE.delta) / then))


def not_kept() -> ReleaseCase:
    """No loss, or 1: the event is that a choice does not survive it."""
    release = Keeping((), restless=0.2).calibrate(ONE_SCORE, PURE)
    scale = _scale(release)
    offset = -scale * math.log1p(-0.2)

    def gone(shown: NDArray[Any]) -> Floats:
        return np.asarray(~shown[:, 0], np.float64)

    lost = math.log((1 - 0.8 * math.exp(-1 / scale)) / 0.2)
    return ReleaseCase(release, [offset], [offset + 1], gone, supremum=lost)


# --- Thresholds. Many queries below force the noisy threshold up, to where its density is exponential.


def many_below(shift: Shift) -> ReleaseCase:
    """Six queries at the threshold and one above it: neighbours move the six up, and the last one as they may.

    With a constant shift all queries move up, through the first increment; the event is then that none is above.

    >>> [round(many_below(shift).supremum, 3) for shift in SHIFTS]
    [0.971, 0.969, 0.997]
    """
    release = AboveThreshold(count=1, shift=shift).calibrate(ONE_SCORE, PURE)
    ends: dict[Shift, tuple[list[float], list[float]]] = {
        "any": ([1.0], [0.0]),
        "monotone": ([1.0], [1.0]),
        "constant": ([], []),
    }
    queries, others = (np.array([level] * 6 + end) for level, end in zip((0.0, 1.0), ends[shift], strict=True))

    def survived(shown: NDArray[Any]) -> Floats:
        below = ~shown[:, :6].any(axis=1)
        return np.asarray(below & shown[:, 6:].all(axis=1), np.float64)

    scales = _scale(release, "threshold"), _scale(release, "query")
    losses = np.log(first_above(queries, *scales) / first_above(others, *scales))
    supremum = float(np.abs(losses).max())
    if shift == "constant":
        queries, others = (np.diff(each, prepend=0.0) for each in (queries, others))
    return ReleaseCase(release, queries, others, survived, supremum=supremum)


def first_above(queries: Floats, threshold: float, query: float) -> Floats:
    """The chance of each query to be the first above a threshold of 0, and last the chance that none is.

    `threshold` and `query` are the scales of their noise; a threshold may have none, 0.

    >>> first_above(np.zeros(2), 0.0, 1.0).round(3)
    array([0.5 , 0.25, 0.25])
    """
    z = np.linspace(-40.0, 40.0, 2**17 + 1)
    below = laplace_below((threshold * z - queries[:, None]) / query)
    before = np.concatenate([np.ones((1, len(z))), np.cumprod(below, axis=0)])
    above = np.concatenate([1 - below, np.ones((1, len(z)))])
    return np.asarray(np.trapezoid(np.exp(-np.abs(z)) / 2 * before * above, z, axis=1), np.float64)


ADDITIVE: tuple[AdditiveLaw, ...] = get_args(AdditiveLaw)
SHIFTS: Mapping[Shift, int] = {"any": 500_000, "monotone": 500_000, "constant": 100_000}
"""Runs by what one unit does to the queries: the rarer the event, the more."""


_RUNS: Mapping[type[Selection], int] = {ExponentialMechanism: 200_000}  # its event is rare too


def _selections(kind: type[Selection]) -> tuple[Attack, ...]:
    return tuple(
        attack(name, "the noise of a score", "sharp", falling_back, kind, monotone, runs=_RUNS.get(kind, 100_000))
        for name, monotone in (("scores both ways", False), ("scores one way", True))
    )


MECHANISMS: Mapping[str, tuple[Attack, ...]] = {
    "Independent": tuple(attack("one value", "the noise of one release", "sharp", one_value, law) for law in ADDITIVE),
    "TreeSum": (
        *(attack("first leaf", "every level", "sharp", first_leaf, law) for law in ADDITIVE),
        attack("endless, second leaf", "the weights of a segment", "sharp", second_segment),
    ),
    "Factorized": (
        attack("toeplitz", "the whole column", "sharp", first_row, partial(Factorized.toeplitz, (1,), 8)),
        attack("banded", "the whole column", "sharp", first_row, partial(Factorized.banded, (1,), None, 4)),
        attack("blt", "the whole column", "sharp", first_row, partial(Factorized.blt, (1,), 8)),
    ),
    "ExponentialMechanism": _selections(ExponentialMechanism),
    "PermuteAndFlip": _selections(PermuteAndFlip),
    "NoisyMax": _selections(NoisyMax),
    "SharedFlip": (attack("one score", "the noise of a score", "sharp", shared_scores),),
    "Spread": (attack("one score", "the noise of a score", "realistic", spread_scores),),
    "Keeping": (attack("not kept", "the noise of keeping", "sharp", not_kept),),
    "AboveThreshold": tuple(
        attack(f"many below, {shift}", "threshold and query", "sharp", many_below, shift, runs=runs)
        for shift, runs in SHIFTS.items()
    ),
}
