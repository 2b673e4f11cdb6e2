"""Gradients of learners that are not neighbours: exact without noise, hidden by noise that is proven, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gossamer import Budget, ConfigurationError, algorithms, problems, sets, topology
from gossamer.auditing import samples, unmix

pytestmark = pytest.mark.unoptimized

DIM = 48
RING = topology.ring(6)


def stream(steps, learners=6, seed=0):
    """Every learner has one record, and sees it at every step."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1, learners, DIM))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    return samples(np.tile(x, (steps, 1, 1)), np.tile(rng.integers(0, 2, size=(1, learners)), (steps, 1)))


def d_ogd(problem=None, network=RING):
    return algorithms.d_ogd(problem or problems.Linear(DIM), network, step=0.1)


@pytest.mark.parametrize("observer", [0, 4])
def test_raw_messages_show_gradients_of_all(observer):
    """On a ring of six, learners at distance 2 and 3 too, after three steps: one row of unknowns each, and no noise."""
    found = unmix(d_ogd(), stream(3), 3, observer=observer, seed=0)
    assert found.hops[observer] == 0
    assert sorted(found.hops) == [0, 1, 1, 2, 2, 3]
    assert_allclose(found.determined, 1.0, atol=1e-6)
    assert found.beyond(2).min() > 0.999
    assert_allclose(found.gradients, stream(3).read(0, 1).x[0], atol=1e-3)


def test_what_was_not_heard_of_yet_is_not_determined():
    """After two steps nothing has come from three hops away."""
    found = unmix(d_ogd(), stream(2), 2, seed=0)
    assert_allclose(found.determined, np.where(found.hops < 3, 1.0, 0.0), atol=1e-6)
    assert found.cosines[3] == 0
    assert found.cosines[found.hops < 3].min() > 0.999


def test_learners_that_look_alike_are_not_told_apart():
    """From a leaf of a star all other leaves have the same weight in everything: their sum is seen, a third of each."""
    star = topology.star(5)
    leaf = int(np.argmin((star.matrix() > 0).sum(axis=0)))
    found = unmix(d_ogd(network=star), stream(10, learners=5), 10, observer=leaf, seed=0)
    assert_allclose(found.determined, np.where(found.hops == 2, 1 / 3, 1.0), atol=1e-6)
    assert (found.beyond(2) < 0.9).all()


@pytest.mark.parametrize(
    "network", [topology.directed_ring(6), topology.path(6), topology.watts_strogatz(6, 4, 0.3, seed=1)]
)
def test_other_networks(network):
    found = unmix(d_ogd(network=network), stream(8), 8, seed=0)
    assert_allclose(found.determined, 1.0, atol=1e-5)
    assert found.cosines.min() > 0.99


def test_gradients_that_move_a_little_are_found():
    """Logistic regression with l2: gradients change as decisions do."""
    problem = problems.Logistic(DIM, l2=0.05, feature_bound=1.0)
    assert unmix(d_ogd(problem), stream(6), 6, seed=0).beyond(2).min() > 0.99


def test_means_of_gradients_that_are_new_at_every_step_are_found_in_part():
    """Around a mean of norm 1, each off by 0.2: the farther away, the less; by chance it would be 0 +- 0.14."""
    x = stream(12).read(0, 12).x + 0.03 * np.random.default_rng(1).normal(size=(12, 6, DIM))
    found = unmix(d_ogd(), samples(x, np.zeros((12, 6))), 12, seed=0)
    assert found.cosines[found.hops == 1].min() > 0.95
    assert found.beyond(2).min() > 0.5
    assert found.beyond(3).max() < 0.95


def test_little_noise_hides_little_and_proven_noise_nearly_all():
    """Over 40 runs the mean of each cosine has a standard error of 1 / sqrt(48 * 40) = 0.023: four are 0.09.

    What is left of the signal is below 0.03: noise of norm 70 or more on gradients of norm 1, and twelve messages.
    """
    data = stream(12)
    little = algorithms.noisy_ogd(problems.Linear(DIM), RING, step=0.1, scale=1e-4)
    assert unmix(little, data, 12, seed=0).beyond(2).min() > 0.99
    proven = algorithms.pd_ogd(problems.Linear(DIM), RING, budget=Budget(1.0), clip=1.0, step=0.1)
    assert (proven.guarantee.basis, proven.guarantee.epsilon) == ("proven", pytest.approx(1.0))
    cosines = np.mean([unmix(proven, data, 12, seed=seed).beyond(2) for seed in range(40)], axis=0)
    assert np.abs(cosines).max() < 0.12


def test_noise_as_published_is_seen_through_where_the_budget_is_large():
    """The same messages: what is heard less a step, with noise in units of the step."""
    problem = problems.Linear(DIM, feature_bound=1.0)
    options = {"clip": 1.0, "step": 0.1, "horizon": 6, "calibration": "published"}
    weak = algorithms.pd_ogd(problem, RING, budget=Budget(1e6), **options)
    assert unmix(weak, stream(6), 6, seed=0).beyond(2).min() > 0.99


@pytest.mark.parametrize(
    ("algorithm", "options", "says"),
    [
        (algorithms.local_ogd(problems.Linear(DIM), 6, step=0.1), {}, "algorithm: got 'local_ogd'"),
        (d_ogd(problems.Linear(DIM, domain=sets.L2Ball(1.0))), {}, "A projection is not linear"),
        (d_ogd(), {"observer": 6}, "observer: got 6; allowed: a learner: 0 to 5"),
        (d_ogd(), {"seed": -1}, "seed"),
    ],
)
def test_what_makes_no_sense_is_refused(algorithm, options, says):
    with pytest.raises(ConfigurationError, match=says):
        unmix(algorithm, stream(3), 3, **({"seed": 0} | options))
