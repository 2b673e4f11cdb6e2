"""dsgd, pdop and d_ftrl: against NumPy, what a sample costs by brute force, and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from gossamer import Clip, ConfigurationError, PrivacyError, problems, sets, simulate, topology
from gossamer.algorithms import d_ftrl, dsgd, pdop
from gossamer.algorithms.authoring import Geometric, Growth
from gossamer.algorithms.descent.gossip_descent import worst_sample
from gossamer.core import Rate
from tests.instances import QUIET, Given

RING, DIM, STEPS = topology.ring(5), 3, 30
LOSS = problems.Logistic(DIM, feature_bound=1.0, l2=0.1, domain=sets.L2Ball(1.5))


class Draws:
    """Noise of unit scale that a test knows too, times the scale."""

    unit = np.random.default_rng(0).laplace(size=(5, STEPS, DIM))

    def draw(self, name, spec, scales, start, stop):
        return (scales[0].value * self.unit[:, start:stop]).astype(np.float32)


def reference(stream, clip, steps, scales):
    """x(1), ... played and x~(1), ... sent, in double precision."""
    x, said, played, sent = np.zeros((5, DIM)), np.zeros((5, DIM)), [], []
    for t in range(STEPS):
        features, labels = np.float64(stream.x[t]), stream.y[t]
        slopes = 1 / (1 + np.exp(-np.sum(features * x, axis=1))) - labels
        rows = slopes[:, None] * features
        rows *= np.minimum(1, clip / np.linalg.norm(rows, axis=1, keepdims=True))
        x = RING.matrix() @ said - steps[t] * (rows + 0.1 * x)
        x *= np.minimum(1, 1.5 / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300))
        said = x + scales[t] * Draws.unit[:, t]
        played.append(x)
        sent.append(said)
    return np.array(played), np.array(sent)


T = np.arange(1, STEPS + 1)


@pytest.mark.parametrize(
    ("make", "options", "steps", "scales"),
    [
        (dsgd, {"sigma": 0.3, "growth": 0.2}, 1 / (T + 1), 0.3 / math.sqrt(2) * (T + 1) ** 0.2),
        (dsgd, {"sigma": 0.3, "step": Rate(2.0, 0.5)}, 2 / np.sqrt(T), np.full(STEPS, 0.3 / math.sqrt(2))),
        (dsgd, {"sigma": 0.3, "step": 0.2}, np.full(STEPS, 0.2), np.full(STEPS, 0.3 / math.sqrt(2))),
        (pdop, {"scale": (0.4, 0.9), "step": (0.5, 0.8)}, 0.5 * 0.8**T, 0.4 * 0.9**T),
    ],
    ids=["dsgd", "dsgd, own step", "dsgd, constant step", "pdop"],
)
def test_they_are_what_their_papers_say(make, options, steps, scales):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(STEPS, 5, DIM))
    x *= rng.uniform(0.2, 1.0, (STEPS, 5, 1)) / np.linalg.norm(x, axis=2, keepdims=True)
    stream = Given(x.astype(np.float32), (x.sum(axis=2) > 0).astype(np.int32))
    made = make(LOSS, RING, clip=0.3, horizon=STEPS, **options)
    run = simulate(made, stream, STEPS, record=["messages", "decisions"], noise=lambda seed: Draws(), **QUIET)
    played, sent = reference(stream, 0.3, steps, scales)
    assert_allclose(run.transcript["messages"], sent, atol=2e-5)
    assert_allclose(run.transcript["decisions"][1:], played[:-1], atol=2e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.3], ids=["D-FTRL", "D-FTGL"])
def test_decentralised_follow_the_leader_is_equations_3_and_4(alpha):
    """Paper 000, with h = 2, in double precision."""
    rng, h, radius = np.random.default_rng(1), 2.0, 1.5
    x, P = rng.normal(size=(STEPS, 5, DIM)).astype(np.float32), RING.matrix()
    y = (x.sum(axis=2) > 0).astype(np.int32)
    loss = problems.Logistic(DIM, l2=alpha, domain=sets.L2Ball(radius))
    run = simulate(
        d_ftrl(loss, RING, step=1 / (2 * h), strong_convexity=alpha), Given(x, y), STEPS, record=["decisions"], **QUIET
    )
    z, decision, expected = np.zeros((5, DIM)), np.zeros((5, DIM)), []
    for t in range(1, STEPS + 1):
        expected.append(decision)
        a = x[t - 1].astype(np.float64)
        gradients = (1 / (1 + np.exp(-np.sum(a * decision, axis=1))) - y[t - 1])[:, None] * a + alpha * decision
        z = P @ z + gradients - alpha * decision
        decision = -z / (alpha * t + 2 * h)
        decision = decision * np.minimum(1, radius / np.maximum(np.linalg.norm(decision, axis=1, keepdims=True), 1e-9))
    assert_allclose(run.transcript["decisions"], expected, rtol=0, atol=2e-5)
    assert np.linalg.norm(expected[-1], axis=1).min() > 0.3


def brute_force(steps, scales, smoothness):
    """The cost of every sample k, from the distances it makes at all messages."""
    costs = []
    for k in range(len(steps)):
        moved, total = steps[k], steps[k] / scales[k]
        for later in range(k + 1, len(steps)):
            moved = steps[later] * min(smoothness * moved, 1.0)
            total += moved / scales[later]
        costs.append(total)
    return costs


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.floats(0.1, 3.0), st.floats(0.0, 1.0)),
    st.one_of(st.builds(Growth, st.floats(0.0, 1.0)), st.builds(Geometric, st.just(1.0), st.floats(0.7, 0.99))),
    st.floats(0.0, 3.0),
    st.integers(1, 25),
)
def test_the_worst_sample_is_the_worst_of_all(step, unit, smoothness, rounds):
    exchanges = np.arange(1, rounds + 1)
    costs = brute_force(Rate(*step)(exchanges), unit(exchanges), smoothness)
    assert_allclose(worst_sample(Rate(*step), unit, smoothness, rounds), max(costs), rtol=1e-9)


def test_it_need_not_be_the_first_one():
    falling = Geometric(1.0, 0.5)
    costs = brute_force(np.full(6, 0.1), falling(np.arange(1, 7)), 0.0)
    assert int(np.argmax(costs)) == 5
    assert_allclose(worst_sample(Rate(0.1, 0.0), falling, 0.0, 6), 0.1 * 2**6)


def hidden(steps, samples, heard):
    """x(1), ... of one learner that hears the same in both runs: squared losses, clipped to 1."""
    x, path = 0.0, []
    for (feature, target), said, step in zip(samples, heard, steps, strict=True):
        x = said - step * np.clip(2 * (feature * x - target) * feature, -1, 1)
        path.append(x)
    return np.array(path)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.05, 0.6), st.integers(0, 2**31), st.integers(0, 9))
def test_no_pair_costs_more(size, seed, k):
    """Double precision, the same messages, another sample anywhere."""
    rng, steps = np.random.default_rng(seed), Rate(size, 0.3)(np.arange(1, 11))
    samples = np.stack([rng.uniform(-1, 1, 10), rng.normal(size=10)], axis=1)
    other = samples.copy()
    other[k] = rng.uniform(-1, 1), 5 * rng.normal()
    heard = rng.normal(size=10)
    moved = np.abs(hidden(steps, samples, heard) - hidden(steps, other, heard))
    assert moved.sum() <= 2 * worst_sample(Rate(size, 0.3), Growth(0.0), 2.0, 10) * (1 + 1e-9)


def test_budgets_are_what_messages_really_cost():
    """sqrt(d) C worst / scale; against those who see no decision."""
    smooth = 0.25 + 0.1
    made = dsgd(LOSS, RING, sigma=0.5, clip=0.3, horizon=STEPS)
    worst = max(brute_force(1 / (T + 1), np.ones(STEPS), smooth))
    assert_allclose(made.guarantee.epsilon, math.sqrt(DIM) * 0.6 * worst * math.sqrt(2) / 0.5, rtol=3e-5)
    finite = [pdop(LOSS, RING, clip=0.3, horizon=h).guarantee.epsilon for h in (30, 1000, 2000)]
    worst = max(brute_force(0.5 * 0.96**T, 0.98**T, smooth))
    assert_allclose(finite[0], math.sqrt(DIM) * 0.6 * worst / 0.5, rtol=3e-5)
    assert_allclose(finite[1], finite[2], rtol=1e-9)
    assert (made.guarantee.basis, made.guarantee.observer) == ("published", "wiretap")
    assert "decisions are functions of raw gradients" in made.guarantee.reason


@pytest.mark.parametrize(
    ("make", "changes", "error", "says"),
    [
        (dsgd, {"sigma": 0.0}, ConfigurationError, "sigma: got 0"),
        (dsgd, {"step": 0.0}, ConfigurationError, "step: got 0"),
        (dsgd, {"growth": -1.0}, ConfigurationError, "growth: got -1"),
        (dsgd, {"horizon": 0}, ConfigurationError, "horizon: got 0"),
        (dsgd, {"clip": None}, PrivacyError, "clip: got None"),
        (dsgd, {"clip": Clip(l1=1.0)}, ConfigurationError, "clip: got .*one bound of the Euclidean norm"),
        (dsgd, {"topology": topology.star(5, weights="push-sum")}, ConfigurationError, "topology"),
        (pdop, {"step": (0.5, 0.98)}, ConfigurationError, "step: got .*a ratio q with 0 < q < p < 1"),
        (pdop, {"scale": (0.5, 1.0)}, ConfigurationError, "step: got .*0 < q < p < 1"),
        (pdop, {"scale": (0.0, 0.98)}, ConfigurationError, "scale: got 0"),
        (pdop, {"step": (0.0, 0.9)}, ConfigurationError, "step: got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(make, changes, error, says):
    given_ = {"problem": LOSS, "topology": RING, "clip": 1.0, "horizon": 10} | ({"sigma": 1.0} if make is dsgd else {})
    given_ |= changes
    with pytest.raises(error, match=says):
        make(given_.pop("problem"), given_.pop("topology"), **given_)
