"""Attacks on online_federated: one sample of one learner, all of whose messages are seen.

Tau times a message is a sum over a block of rows of y = x + S^-1 z: x are the exact values, z the independent draws,
and S is the matrix of `strategy`. A block is the tau rows of a round with noise on every step, one row with noise on
every round. So what is seen is Gaussian around sums of x, with covariance s^2 K, K = P (S^T S)^-1 P^T, where P sums
over blocks. Times W with W K W^T = I its noise is independent again. With linear losses neighbours have the same values
but for the first, and differ in what is seen by 2 W P e_1. Where a block is one row, W = S, and this is the whole first
column of S: all that is claimed. In longer blocks some of it stays hidden.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer import problems
from gossamer.algorithms import online_federated
from gossamer.algorithms.federated.round_sum import LossClass
from gossamer.auditing.attacks.base import Attack, Case, attack, epsilon_of, own_budgets, samples, signs
from gossamer.auditing.attacks.pd_ftgl import strategy
from gossamer.auditing.attacks.pd_ogd import BUDGETS, CLIP, gradients, scale_of
from gossamer.auditing.views import Floats, View, log_ratio
from gossamer.core import Algorithm, Federation
from gossamer.mechanisms import Aggregation, Mechanism
from gossamer.privacy import Budget
from gossamer.problems import Block
from gossamer.problems.checks import check_targets
from gossamer.problems.linear import ScalarLink
from gossamer.streams import smooth_cycle_logistic

GAUSSIAN = BUDGETS["gaussian"]
OWN = (Budget(0.5, 0.1), Budget(2.0, 0.1))
MISSED = Federation(2, participation=0.7, seed=1)
"""Learner 0 misses rounds 1, 8 and 9 of twelve."""


def whitening(mechanism: Mechanism, rows: int, block: int) -> Floats:
    """W, from the definition of the noise: not by the code that makes it.

    >>> from gossamer.mechanisms import TreeSum
    >>> tree = TreeSum((1,), horizon=4)
    >>> whitening(tree, 4, block=1).round(6) + 0.0
    array([[1., 0., 0., 0.],
           [1., 1., 0., 0.],
           [0., 0., 1., 0.],
           [1., 1., 1., 1.]])
    >>> whitening(tree, 4, block=2).round(6) + 0.0
    array([[1., 0.],
           [1., 1.]])
    """
    noise = np.linalg.inv(strategy(mechanism, rows))
    seen = noise.reshape(rows // block, block, rows).sum(axis=1)
    return np.asarray(np.linalg.inv(np.linalg.cholesky(seen @ seen.T)), np.float64)


def first_sample(
    aggregation: Aggregation,
    learners: int | Federation = 1,
    *,
    learner: int = 0,
    rounds: int = 8,
    steps_per_exchange: int = 1,
    budget: Budget | tuple[Budget, ...] = GAUSSIAN,
    **options: Any,
) -> Case:
    """Linear losses: the first sample that a learner ever uses has the gradient +1 or -1, and all others have 0.

    >>> [round(first_sample(name).supremum, 3) for name in ("blt", "toeplitz", "tree", "independent")]
    [1.0, 1.0, 1.0, 1.0]
    >>> case = first_sample("blt", steps_per_exchange=4, release="rounds")
    >>> round(case.supremum, 3), round(first_sample("blt", steps_per_exchange=4).supremum, 3)
    (1.0, 0.688)
    """
    options |= {"horizon": rounds * steps_per_exchange, "steps_per_exchange": steps_per_exchange, "step": 0.1}
    algorithm = online_federated(
        problems.Linear(1), learners, budget=budget, clip=CLIP, aggregation=aggregation, **options
    )
    there = _present(algorithm, learner, rounds)
    block = algorithm.learner.noise["gradient"].size
    matrix = whitening(algorithm.releases[0].mechanism, block * len(there), block)

    def score(view: View) -> Floats:
        sums = steps_per_exchange * np.asarray(view.messages[:, there, learner, 0], np.float64)
        return log_ratio("gaussian", scale_of(algorithm, learner), sums @ matrix.T, matrix[:, 0], -matrix[:, 0])

    x = np.zeros((rounds * steps_per_exchange, algorithm.learners, 1))
    x[there[0] * steps_per_exchange, learner] = 1.0
    return Case(algorithm, *signs(x), score, supremum=_exact(algorithm, 2 * matrix[:, 0], learner))


def _present(algorithm: Algorithm, learner: int, rounds: int) -> NDArray[np.intp]:
    """The rounds in which a learner takes part."""
    assert isinstance(algorithm.topology, Federation)
    return np.flatnonzero(algorithm.topology.present(np.arange(rounds))[:, learner])


def _exact(algorithm: Algorithm, moved: Any, learner: int = 0) -> float:
    """The epsilon of independent Gaussian draws whose means move by so much."""
    return epsilon_of(algorithm, "gaussian", float(np.linalg.norm(moved)) / scale_of(algorithm, learner), learner)


def flipped_label() -> Case:
    """Three learners, five features, six rounds of one step: one label flipped at the second.

    All later gradients react to it, through what was released. Everybody can compute them from the decisions, and take
    them off. As for `pd_ogd`, a flipped label moves a gradient by exactly the features.

    >>> round(flipped_label().supremum, 3)
    0.222
    """
    step, learner, rounds = 1, 1, 6
    problem = problems.Logistic(5, feature_bound=1.0)
    algorithm = online_federated(problem, 3, horizon=rounds, steps_per_exchange=1, budget=GAUSSIAN, clip=CLIP, step=0.5)
    x, y = smooth_cycle_logistic(3, 5, seed=0).read(0, rounds)
    flipped = y.copy()
    flipped[step, learner] = 1 - y[step, learner]
    matrix = whitening(algorithm.releases[0].mechanism, rounds, 1)
    moved = (y[step, learner] - flipped[step, learner]) * np.outer(matrix[:, step], x[step, learner])

    def score(view: View) -> Floats:
        played = view.decisions[:, :, learner]
        own = [Block(x[t, learner][None], y[t, learner][None]) for t in range(rounds)]
        exact = np.stack([gradients(problem, played[:, t], sample) for t, sample in enumerate(own)], axis=1)
        noise = matrix @ (np.asarray(view.messages[:, :, learner], np.float64) - exact)
        ratios = log_ratio("gaussian", scale_of(algorithm, learner), noise, 0.0, moved)
        return np.asarray(ratios.sum(axis=1), np.float64)

    return Case(algorithm, samples(x, y), samples(x, flipped), score, supremum=_exact(algorithm, moved, learner))


@dataclass(frozen=True)
class Repelling(ScalarLink):
    """The loss -log cosh(<x, w> - y): smooth, but steps lead away from the label, on whichever side of it one is.

    >>> problem = Repelling(1, feature_bound=1.0)
    >>> problem.scalar_link, problem.smoothness, problem.strong_convexity
    (True, 1.0, None)
    """

    @property
    def smoothness(self) -> float | None:
        """R^2 with features of norm at most R, and l2."""
        return None if self.feature_bound is None else self.feature_bound**2 + self.l2

    @property
    def strong_convexity(self) -> None:
        """None: it is not convex."""
        return None

    def _link(self, score: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.log(2.0) + (score - y) - jax.nn.softplus(2 * (score - y))

    def _slope(self, score: jax.Array, y: jax.Array) -> jax.Array:
        return -jnp.tanh(score - y)

    def _check_labels(self, y: np.ndarray, start: int) -> None:
        check_targets(y, start)


def shortcut(loss_class: LossClass) -> Case:
    """Noise on one round of eight steps, and losses that are not convex: the first sample decides where all steps lead.

    It takes the first step to one side of zero or to the other, and from there all others follow it: every gradient is
    clip or -clip throughout. So the sum of the round moves by 2 clip tau. Who believes the losses to be convex counts
    2 clip.

    >>> shortcut("scalar-link").algorithm.guarantee.basis, round(shortcut("scalar-link").supremum, 1)
    ('heuristic', 10.9)
    >>> shortcut("any").algorithm.guarantee.basis, round(shortcut("any").supremum, 4)
    ('proven', 1.0)
    """
    tau, clip = 8, 0.25
    options: dict[str, Any] = {"horizon": tau, "steps_per_exchange": tau, "release": "rounds", "loss_class": loss_class}
    problem = Repelling(1, feature_bound=1.0)
    algorithm = online_federated(problem, 1, budget=Budget(1.0, 1e-5), clip=clip, step=2.0, **options)

    def score(view: View) -> Floats:
        sums = tau * np.asarray(view.messages[:, 0, 0], np.float64)
        return log_ratio("gaussian", scale_of(algorithm), sums, clip * tau, -clip * tau)

    labels = np.zeros((tau, 1), np.float32)
    labels[0] = 9.0
    pair = samples(np.ones((tau, 1, 1)), labels), samples(np.ones((tau, 1, 1)), -labels)
    return Case(algorithm, *pair, score, supremum=_exact(algorithm, 2 * clip * tau))


# All of the claim is really lost; but at this delta 1,000,000 runs show 0.9 of it, and CI has
# 30,000 for what is not sharp.
_RARE: dict[str, Any] = {"rounds": 64, "budget": Budget(0.5, 1e-3), "runs": 1_000_000}
_FOUR: dict[str, Any] = {"steps_per_exchange": 4}
_AS_PRINTED = "what the printed noise gives"

ATTACKS: tuple[Attack, ...] = (
    *(
        attack(f"first sample, {name}", "the whole column", "sharp", first_sample, name)
        for name in ("blt", "toeplitz", "tree", "independent")
    ),
    attack("first sample, rounds", "the sum of a round", "sharp", first_sample, "blt", release="rounds", **_FOUR),
    *own_budgets(OWN, first_sample, "blt", 2),
    attack("missed rounds", "noise goes on where it stopped", "sharp", first_sample, "blt", MISSED, rounds=12),
    attack("64 rows", "the whole column", "realistic", first_sample, "blt", **_RARE),
    attack("64 rows, published", _AS_PRINTED, "realistic", first_sample, "blt", calibration="published", **_RARE),
    attack("four steps a round", "some of the column is hidden", "realistic", first_sample, "blt", **_FOUR),
    attack("flipped label", "a whole transcript", "realistic", flipped_label),
    attack("not convex, any", "a round steered by one sample", "realistic", shortcut, "any", runs=1_000_000),
    attack("not convex, scalar-link", "the class is not true", "flaw", shortcut, "scalar-link"),
)
