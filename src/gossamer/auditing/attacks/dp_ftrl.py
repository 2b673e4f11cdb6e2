"""Attacks on dp_ftrl: one sample of one learner, where all that the trusted server broadcasts is seen.

Without bounds on decisions a broadcast is -eta S_t / n, so its increments show y = x + S^-1 z: x are sums of all
learners, z independent draws, and S is the matrix of `strategy`. S y is independent again, and the first sample moves
it by 2 clips times the first column of S: all that is claimed.
"""

from functools import partial
from typing import Any

import numpy as np

from gossamer import problems
from gossamer.algorithms import dp_ftrl
from gossamer.auditing.attacks.base import Attack, Case, samples
from gossamer.auditing.attacks.pd_ftgl import strategy
from gossamer.auditing.attacks.pd_ogd import BUDGETS, CLIP
from gossamer.auditing.views import Floats, View, log_ratio
from gossamer.core import Federation
from gossamer.mechanisms import AdditiveLaw, Aggregation
from gossamer.privacy import Gaussian

ROUNDS = 8


def first_sample(aggregation: Aggregation, noise: AdditiveLaw, learners: int | Federation = 3, tau: int = 1) -> Case:
    """Linear losses: learner 0's first sample has the gradient +1 or -1, and all others of anybody have 0.

    >>> [round(first_sample(each, "gaussian").supremum, 3) for each in ("blt", "toeplitz", "tree", "independent")]
    [1.0, 1.0, 1.0, 1.0]
    >>> round(first_sample("tree", "laplace", tau=4).supremum, 3)
    1.0
    """
    algorithm = dp_ftrl(
        problems.Linear(1),
        learners,
        horizon=ROUNDS * tau,
        budget=BUDGETS[noise],
        clip=CLIP,
        step=1.0,
        noise=noise,
        aggregation=aggregation,
        steps_per_exchange=tau,
    )
    network, scale = Federation.of(learners), algorithm.scales["gradient"][0].value
    first = int(np.flatnonzero(network.present(np.arange(ROUNDS))[:, 0])[0])
    matrix = strategy(algorithm.releases[0].mechanism, ROUNDS)
    column = matrix[:, first]

    def score(view: View) -> Floats:
        sums = -network.learners * network.participation * np.asarray(view.broadcasts[:, :, 0], np.float64)
        return log_ratio(noise, scale, np.diff(sums, axis=1, prepend=0.0) @ matrix.T, column, -column)

    x: Any = np.zeros((ROUNDS * tau, network.learners, 1))
    x[first * tau, 0] = 1.0
    stream, neighbour = (samples(sign * x, np.zeros(x.shape[:2])) for sign in (1, -1))
    moved = 2 * np.abs(column) / scale
    exact = Gaussian(float(np.linalg.norm(moved))).epsilon(algorithm.guarantee.delta)
    return Case(algorithm, stream, neighbour, score, supremum=exact if noise == "gaussian" else float(moved.sum()))


_SHOWS = "the first sample of one of three learners, in all broadcasts"
ATTACKS = (
    Attack("first sample, blt", _SHOWS, "sharp", partial(first_sample, "blt", "gaussian")),
    Attack("first sample, tree", _SHOWS, "sharp", partial(first_sample, "tree", "laplace", tau=4)),
    Attack(
        "some absent",
        "the same where learners miss exchanges",
        "realistic",
        partial(first_sample, "blt", "gaussian", Federation(3, participation=0.7, seed=1)),
    ),
)
