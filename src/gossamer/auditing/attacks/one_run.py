"""Attacks in one run: many canaries, each of which is one of two records, by a fair coin.

With linear losses a canary's gradient is +clip or -clip along a direction of its own: all that one unit can move.

Of a model the records are faint images with one of two labels. At small features the gradient of a classifier is nearly
that of its last biases, the probabilities less the unit vector of the label, whatever the parameters are. Two labels
are then about sqrt(2) apart, where a clip of 1 allows 2. Images as they are do less once the model is sure of them.
"""

from collections.abc import Mapping

import numpy as np

from gossamer import problems, topology
from gossamer.algorithms import online_federated, pd_ogd
from gossamer.auditing.attacks.base import Attack, Case, Pair, samples, signs
from gossamer.auditing.attacks.matched import matched_filter
from gossamer.auditing.attacks.pd_ogd import BUDGETS, CLIP
from gossamer.checks import check_count
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError
from gossamer.privacy import Budget
from gossamer.streams import Stream

FAINT = 0.1
LARGE = Budget(4.0, 1e-5)
"""One run shows a large epsilon better than a small one: of (1, 1e-5) 4,000 canaries show nothing."""


def canary_case(algorithm: Algorithm, stream: Stream, neighbour: Stream, supremum: float | None = None) -> Case:
    """The case of two streams that differ in many samples, scored by a matched filter."""
    score = matched_filter(algorithm, stream, neighbour)
    return Case(algorithm, stream, neighbour, score, supremum=supremum, method="one-run")


def own_gradients() -> Case:
    """A ring of four, linear losses in one dimension with Laplace noise: every sample is +1 or -1."""
    x, budget = np.ones((1000, 4, 1)), BUDGETS["laplace"]
    algorithm = pd_ogd(problems.Linear(1), topology.ring(4), budget=budget, clip=CLIP, step=1.0)
    return canary_case(algorithm, *signs(x), budget.epsilon)


def own_directions() -> Case:
    """Ten learners, linear losses in 256 dimensions, correlated noise: each sample is plus or minus a direction."""
    x = np.random.default_rng(0).normal(size=(400, 10, 256))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    algorithm = online_federated(
        problems.Linear(256), 10, horizon=len(x), steps_per_exchange=1, budget=LARGE, clip=CLIP, step=0.1
    )
    return canary_case(algorithm, *signs(x), LARGE.epsilon)


def faint_images() -> Case:
    """Five learners, a small network on images of noise, correlated noise."""
    rng = np.random.default_rng(0)
    x, y = rng.random(size=(240, 5, 10, 10, 1)), rng.integers(0, 4, size=(240, 5))
    problem = problems.small_cnn((10, 10, 1), classes=4, channels=4, hidden=8, seed=0)
    algorithm = online_federated(problem, 5, horizon=len(x), steps_per_exchange=1, budget=LARGE, clip=CLIP, step=0.02)
    return canary_case(algorithm, *two_labels(samples(x, y), steps=len(x), classes=4, canaries=800, seed=1))


def two_labels(stream: Stream, *, steps: int, classes: int, canaries: int, seed: int) -> Pair:
    """The first steps of a stream, twice: at so many random places samples are faint, with one label or another.

    >>> stream = samples(np.ones((5, 4, 2)), np.ones((5, 4), int))
    >>> one, other = (each.read(0, 5) for each in two_labels(stream, steps=5, classes=3, canaries=8, seed=0))
    >>> int(np.sum(one.y != other.y)), int(np.sum(one.x < 1)), bool((one.x == other.x).all())
    (8, 16, True)
    """
    x, y = (np.array(leaf) for leaf in stream.read(0, steps))
    if check_count("canaries", canaries) > y.size:
        raise ConfigurationError("canaries", canaries, f"at most the {y.size:,} samples of {steps:,} steps")
    rng = np.random.default_rng(seed)
    places = np.unravel_index(rng.choice(y.size, canaries, replace=False), y.shape)
    x[places] *= FAINT
    y[places] = rng.integers(0, classes, canaries)
    other = y.copy()
    other[places] = (y[places] + rng.integers(1, classes, canaries)) % classes
    return samples(x, y), samples(x, other)


ONE_RUN: Mapping[str, tuple[Attack, ...]] = {
    "pd_ogd": (Attack("own gradients", "4,000 canaries", "realistic", own_gradients, runs=None),),
    "online_federated": (
        Attack("own directions", "4,000 canaries", "realistic", own_directions, runs=None),
        Attack("faint images", "800 canaries in a network", "realistic", faint_images, runs=None),
    ),
}
"""Attacks in one run by the name of the algorithm."""
