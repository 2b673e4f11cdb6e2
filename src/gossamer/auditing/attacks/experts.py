"""Attacks on prediction from experts (paper 004): fed_ope_stoch, fed_svt and shrinking_dartboard.

Local clients are attacked through the likelihood ratio of their messages. Of a trusted server only the experts that it
names are seen: there the score is whether one rare sequence of them occurs, and its probability is computed exactly.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer import problems, sets
from gossamer.algorithms import fed_ope_stoch, fed_svt, shrinking_dartboard
from gossamer.algorithms.authoring import Calibration
from gossamer.algorithms.experts.fed_svt import Draws, SvtCalibration
from gossamer.auditing.attacks.base import Attack, Case, Pair, attack, epsilon_of, samples
from gossamer.auditing.attacks.mechanisms import first_above, laplace_below
from gossamer.auditing.attacks.pd_ftgl import strategy
from gossamer.auditing.views import Floats, View, log_ratio
from gossamer.core import Algorithm
from gossamer.mechanisms import ExponentialMechanism
from gossamer.privacy import Budget

BUDGETS = {"laplace": Budget(1.0), "gaussian": Budget(1.0, 0.1)}


def _pair(x: NDArray[Any], other: NDArray[Any], place: int = 0) -> Pair:
    """One client's samples, and the same with another one at this place."""
    changed = x.copy()
    changed[place] = other
    one, two = (samples(each[:, None], np.zeros((len(x), 1))) for each in (x, changed))
    return one, two


def _scale(algorithm: Algorithm, name: str) -> float:
    return algorithm.scales[name][0].value


# --- fed_ope_stoch, local: messages.


def one_vertex(law: str) -> Case:
    """Two experts, one sample, which both lose 1 or both lose nothing: the first root."""
    algorithm = fed_ope_stoch(2, 1, horizon=2, budget=BUDGETS[law], trust="local")
    scale, ends = _scale(algorithm, "gradient"), (np.full(2, 0.5), np.full(2, -0.5))

    def score(view: View) -> Floats:
        return log_ratio(algorithm.learner.noise["gradient"].law, scale, view.messages[:, 0, 0], *ends)

    exact = epsilon_of(algorithm, law, (2 if law == "laplace" else math.sqrt(2)) / scale)
    return Case(algorithm, *_pair(np.ones((1, 2)), np.zeros(2)), score, supremum=exact)


_STEEP = 100.0
_SQUARES: Mapping[str, Any] = {"lipschitz": 1.0, "smoothness": 1e6, "trees": 1}
"""Squared losses so steep that all gradients, and all their differences, are clamped."""


def right_child() -> Case:
    """Two experts, squared losses, one tree: the sample of the right child, with the vertex released.

    After the first leaf x is an expert w. Differences of gradients are c x with c = <x, e_w - x_parent>: both
    coordinates have the sign of c, and features (2, 1) and (1, 2) have opposite ones.
    """
    problem = problems.LeastSquares(2, domain=sets.Simplex())
    algorithm = fed_ope_stoch(problem, 1, horizon=4, budget=Budget(1.0), trust="local", **_SQUARES)
    scale = _scale(algorithm, "gradient")
    x = np.zeros((3, 2))
    x[2] = _STEEP * np.array([2.0, 1.0])

    def score(view: View) -> Floats:
        child = np.diff(view.messages[:, :2, 0].astype(np.float64), axis=1)[:, 0] / 4  # noise and all, in units of 2 r
        sign = np.where(view.broadcasts[:, 0] == 0, 0.5, -0.5)[:, None]
        return log_ratio("laplace", scale, child, sign, -sign)

    return Case(algorithm, *_pair(x, x[2, ::-1], place=2), score, supremum=2 / scale)


def both_leaves(dim: int, calibration: Calibration = "tight") -> Case:
    """Linear losses, one tree: a sample of the root, all 1 or all -1, is in the messages of both leaves.

    The paper's proof looks at one coordinate, of which there are `dim` in each message.

    >>> case = both_leaves(10, "published")
    >>> round(case.supremum, 3), case.claimed, round(case.algorithm.guarantee.epsilon, 2)
    (5.0, 1.0, 5.0)
    >>> round(both_leaves(10).supremum, 3)
    1.0
    """
    published = calibration == "published"
    problem = problems.Linear(dim, domain=sets.Simplex())
    options: dict[str, Any] = {"lipschitz": 1.0, "trust": "local", "release": "leaf", "trees": 1}
    options |= {"horizon": 128 if published else 4, "calibration": calibration}
    algorithm = fed_ope_stoch(problem, 1, budget=Budget(1.0), **options)
    x = np.zeros((127 if published else 3, dim))
    x[0] = 1.0
    scale, unit = _scale(algorithm, "gradient"), float(algorithm.public["unit"](np.array([1]))[0])

    def score(view: View) -> Floats:
        both = np.asarray(view.messages[:, :2, 0], np.float64).reshape(-1, 2 * dim)
        return log_ratio("laplace", scale * unit, both, 0.5, -0.5)

    exact, claimed = 2 * dim / (scale * unit), 1.0 if published else None
    return Case(algorithm, *_pair(x, -x[0]), score, supremum=exact, claimed=claimed)


# --- fed_ope_stoch, central: the experts that are named.


def named_expert() -> Case:
    """Two samples of one root: one says 1 is better, the other says that 0 is, or that 1 is."""
    algorithm = fed_ope_stoch(2, 1, horizon=4, budget=Budget(1.0))
    x = np.array([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])

    def score(view: View) -> Floats:
        return np.asarray(view.broadcasts[:, 1] == 0, np.float64)

    return Case(algorithm, *_pair(x, x[1], place=2), score, supremum=2 / _scale(algorithm, "choice"))


_RIVALS = 8


def noisy_max(calibration: Calibration = "tight") -> Case:
    """One tree, squared losses: the sample of the right child moves one expert up, and all its rivals down.

    Expert 0 is good at the root. Where it is named, differences are c x with c > 0 for both features, and are clamped
    to +-2 alpha: 1 gains what its rivals lose. The event: 0 is named first, then 1.

    >>> round(noisy_max("published").supremum, 2), noisy_max("published").claimed
    (1.84, 1.0)
    """
    published = calibration == "published"
    dim = 2 + _RIVALS
    algorithm = fed_ope_stoch(
        problems.LeastSquares(dim, domain=sets.Simplex()),
        1,
        horizon=128 if published else 4,
        budget=Budget(1.0),
        calibration=calibration,
        **_SQUARES,
    )
    x = np.zeros((127 if published else 3, dim))
    root = np.r_[-1.0, np.ones(dim - 1)]  # its score at the uniform point is positive: the gradient has these signs
    child = np.r_[10.0, -1.0, np.ones(_RIVALS)]
    flipped = np.r_[10.0, 1.0, -np.ones(_RIVALS)]
    x[:2], x[-1] = _STEEP * root, _STEEP * child

    def score(view: View) -> Floats:
        return np.asarray((view.broadcasts[:, 0] == 0) & (view.broadcasts[:, 1] == 1), np.float64)

    unit = float(algorithm.public["unit"](np.array([1]))[0])
    scale = unit * _scale(algorithm, "choice")
    wins = _noisy_max_first if published else _flip_first
    after = [np.r_[1.0, 1 - 2 * s, np.full(_RIVALS, 1 + 2 * s)] / scale for s in (1.0, -1.0)]
    exact = math.log(wins(after[0]) / wins(after[1]))
    pair, claimed = _pair(x, _STEEP * flipped, place=-1), 1.0 if published else None
    return Case(algorithm, *pair, score, supremum=exact, claimed=claimed)


def _noisy_max_first(values: Floats) -> float:
    """The chance that value 1 is least, with Laplace noise on all."""
    x = np.linspace(-60.0, 60.0, 2**16 + 1)
    others = np.prod([laplace_below(values[i] - values[1] - x) for i in range(len(values)) if i != 1], axis=0)
    return float(np.trapezoid(np.exp(-np.abs(x)) / 2 * others, x))


def _flip_first(values: Floats) -> float:
    """The chance that value 1 less an exponential draw is least of all."""
    x = np.linspace(0.0, 60.0, 2**16 + 1)
    others = np.prod([_below(x + values[i] - values[1]) for i in range(len(values)) if i != 1], axis=0)
    return float(np.trapezoid(np.exp(-x) * others, x))


def _below(x: Floats) -> Floats:
    return np.where(x > 0, -np.expm1(-np.maximum(x, 0)), 0.0)


# --- fed_svt.


def _svt_case(algorithm: Algorithm, phases: Floats) -> Case:
    """Two experts whose whole losses of every phase are given; of the first sample 1 loses 1, or 0 does instead.

    The score is whether the server names expert 0 throughout.
    """
    x = np.zeros((len(phases), algorithm.schedule.runs[1].block, 2))  # type: ignore[attr-defined]
    for phase, losses in enumerate(phases.astype(int)):
        for expert, loss in enumerate(losses):
            start = int(phase == expert == 0)  # the first sample is the one that changes
            x[phase, start : start + loss, expert] = 1.0
    moved = phases.copy()
    moved[0] += 1.0, -1.0
    exact = math.log(_stays(algorithm, phases) / _stays(algorithm, moved))

    def score(view: View) -> Floats:
        return np.asarray((view.broadcasts == 0).all(axis=1), np.float64)

    return Case(algorithm, *_pair(x.reshape(-1, 2), np.array([1.0, 0.0])), score, supremum=exact)


def _stays(algorithm: Algorithm, phases: Floats) -> float:
    """The exact probability that expert 0 of two is named throughout, drawn again or not."""
    totals = np.cumsum(phases, axis=0)

    def after(drawn: int, left: int) -> float:
        """Given that it was drawn after so many phases."""
        if left == 0 or drawn == len(phases):
            return 1.0
        first = _first_above(algorithm, np.cumsum(phases[drawn:, 0]))
        again = (
            first[phase - drawn - 1] * _drawn(algorithm, totals[phase - 1]) * after(phase, left - 1)
            for phase in range(drawn + 1, len(phases) + 1)
        )
        return float(first[-1] + sum(again))

    return after(0, algorithm.server.comparing.count) / 2  # type: ignore[union-attr]


def _limit(algorithm: Algorithm) -> float:
    return float(algorithm.public["threshold"](np.array([1]))[0])


def _first_above(algorithm: Algorithm, queries: Floats) -> Floats:
    return first_above(queries - _limit(algorithm), _scale(algorithm, "threshold"), _scale(algorithm, "query"))


def _drawn(algorithm: Algorithm, totals: Floats) -> float:
    """The chance of expert 0 of two to be drawn."""
    gap = (totals[0] - totals[1]) / _scale(algorithm, "choice")
    if isinstance(algorithm.server.drawing, ExponentialMechanism):  # type: ignore[union-attr]
        return float(1 / (1 + np.exp(gap)))
    return float(np.exp(-gap) / 2 if gap > 0 else 1 - np.exp(gap) / 2)


def whole_path(draws: Draws = "permute-and-flip") -> Case:
    """Comparing and all draws: 0 stays at the threshold for a while, then loses much, and is drawn again, twice.

    While it stays it is far behind, so that a draw would name 1. Before the second draw it loses 0.7 of the threshold:
    too little for a change if all before was as it should be, but enough after a draw that was not seen.

    The exponential mechanism loses less here: it loses all of eta at rare outcomes only.

    >>> round(whole_path().supremum, 2), round(whole_path("exponential").supremum, 2)
    (0.98, 0.78)
    """
    quiet, block = 4, 256
    algorithm = fed_svt(
        2, 1, horizon=100_000 * block, steps_per_exchange=block, budget=Budget(1.0), failure=0.45, draws=draws
    )
    limit = math.ceil(_limit(algorithm))
    half, most = round(0.5 * limit), round(0.7 * limit)
    phases = np.zeros((quiet + 3, 2))
    phases[0] = limit, 1.0
    phases[-3:] = (half, half + limit - 1), (most, 0.0), (100.0, 100.0 + most)
    return _svt_case(algorithm, phases)


def literal_threshold(calibration: SvtCalibration = "literal", epsilon: float = 4.0, quiet: int = 9) -> Case:
    """Line 9 as printed: every phase just below the threshold costs, and comparing has half of epsilon.

    All experts lose the same, and one more on the neighbour. The event: the first one stays, and then, with half the
    threshold more, it is left. After a draw that was not seen it would not be: its losses count from there.

    >>> case = literal_threshold()
    >>> round(case.supremum, 2), case.claimed
    (2.55, 2.0)
    >>> case = literal_threshold("published")
    >>> round(case.supremum, 2), case.algorithm.guarantee.epsilon
    (0.92, 3.0)
    """
    dim, block = 8, 1024
    options: dict[str, Any] = {"steps_per_exchange": block, "failure": 0.45, "calibration": calibration}
    algorithm = fed_svt(dim, 1, horizon=block * (quiet + 1), budget=Budget(epsilon), **options)
    limit = math.floor(_limit(algorithm))
    x = np.zeros((quiet + 1, block, dim))
    x[0, 1:limit] = 1.0  # the query is 1 below, and the first sample may bring it to the threshold
    x[-1, : limit // 2] = 1.0
    queries = np.r_[np.full(quiet, limit - 1.0), 1.5 * limit]
    chances = [_first_above(algorithm, queries + move)[quiet] for move in (0.0, 1.0)]

    def score(view: View) -> Floats:
        stays = (view.broadcasts[:, :-1] == view.broadcasts[:, :1]).all(axis=1)
        return np.asarray(stays & (view.broadcasts[:, -1] != view.broadcasts[:, 0]), np.float64)

    pair, claimed = _pair(x.reshape(-1, dim), np.ones(dim)), epsilon / 2 if calibration == "literal" else None
    return Case(algorithm, *pair, score, "broadcasts", supremum=math.log(chances[0] / chances[1]), claimed=claimed)


def noised_sums(law: str) -> Case:
    """Local: both losses of the first phase are 1 or 0, and every node of the tree (or row of the matrix) is seen."""
    rounds = 2
    algorithm = fed_svt(2, 1, horizon=rounds, steps_per_exchange=1, budget=BUDGETS[law], trust="local")
    (release,) = algorithm.releases
    matrix, scale = strategy(release.mechanism, rounds), _scale(algorithm, "sums")
    moved = np.repeat(matrix[:, :1], 2, axis=1)

    def score(view: View) -> Floats:
        rows = np.einsum("ts,rsd->rtd", matrix, np.asarray(view.messages[:, :, 0], np.float64))
        ratios = log_ratio(algorithm.learner.noise["sums"].law, scale, rows, moved, 0 * moved)
        return np.asarray(ratios.sum(axis=1), np.float64)

    size = moved.sum() if law == "laplace" else np.linalg.norm(moved)
    pair = _pair(np.array([[1.0, 1.0], [0.0, 0.0]]), np.zeros(2))
    return Case(algorithm, *pair, score, supremum=epsilon_of(algorithm, law, float(size) / scale))


# --- shrinking_dartboard.


def restless_change() -> Case:
    """One phase: the played expert loses 1 or nothing, and it is left for the one that wins or loses against all.

    >>> round(restless_change().supremum, 3)
    0.959
    """
    dim = 12
    algorithm = shrinking_dartboard(dim, 1, horizon=2, steps_per_exchange=2, budget=Budget(1.0))
    eta = 1 / _scale(algorithm, "keep")
    offset = float(algorithm.public["restless"](np.array([1]))[0])
    worst = np.r_[np.zeros(dim - 1), 1.0]

    def score(view: View) -> Floats:
        first, then = view.broadcasts[:, 0], view.broadcasts[:, 1]
        return np.asarray((first != dim - 1) & (then == dim - 1), np.float64)

    def chance(loss: float, gap: float) -> float:
        drawn = 1 / (1 + (dim - 1) * math.exp(gap / _scale(algorithm, "choice")))
        return (1 - math.exp(-eta * (loss + offset))) * drawn

    pair = _pair(np.array([1 - worst, worst]), worst)
    return Case(algorithm, *pair, score, supremum=math.log(chance(1, 0) / chance(0, 2)))


FED_OPE_STOCH: tuple[Attack, ...] = (
    *(attack("one vertex", "the noise of a root", "sharp", one_vertex, law) for law in BUDGETS),
    attack("right child", "clamped differences", "sharp", right_child),
    attack("both leaves", "two messages", "sharp", both_leaves, 2),
    attack("named expert", "the noise of a choice", "sharp", named_expert),
    attack("both leaves, d=10", "all coordinates", "realistic", both_leaves, 10),
    attack("noisy max", "scores both ways", "realistic", noisy_max),
    attack("published: messages, d=10", "the claim", "flaw", both_leaves, 10, "published", runs=800_000),
    attack("published: messages, d=20", "the claim", "flaw", both_leaves, 20, "published"),
    attack("published: noisy max", "the claim", "flaw", noisy_max, "published"),
)
FED_SVT: tuple[Attack, ...] = (
    attack("whole path", "comparing and drawing", "sharp", whole_path, runs=200_000),
    attack("whole path, exponential", "the usual draws", "realistic", whole_path, "exponential", runs=200_000),
    *(attack("noised sums", "local noise", "sharp", noised_sums, law) for law in BUDGETS),
    attack("published: threshold", "the noisy threshold", "realistic", literal_threshold, "published"),
    attack("literal: threshold", "the share of comparing", "flaw", literal_threshold),
)
SHRINKING_DARTBOARD: tuple[Attack, ...] = (attack("restless change", "keeping and drawing", "sharp", restless_change),)
