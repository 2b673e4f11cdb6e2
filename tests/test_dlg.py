"""Gradient inversion: exact where a closed form exists, worse with noise, and what it refuses."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from gossamer import Budget, ConfigurationError, algorithms, problems, simulate, topology
from gossamer.auditing import Reconstruction, dlg, samples
from gossamer.problems import Block
from tests.instances import QUIET

pytestmark = pytest.mark.unoptimized

DIM = 8
STEPS = {"steps": 400, "restarts": 3, "seed": 0}


def sample(seed=0):
    x = np.random.default_rng(seed).normal(size=DIM).astype(np.float32)
    return x / np.linalg.norm(x)


def parameters(problem, seed=1):
    return np.random.default_rng(seed).normal(size=problem.dim).astype(np.float32) * 0.5


def gradient(problem, at, x, y, clip=None):
    return np.asarray(problem.clipped_gradient_sum(jnp.asarray(at), Block(jnp.asarray(x[None]), jnp.array([y])), clip))


LOGISTIC = problems.Logistic(DIM, l2=0.1)
SOFTMAX = problems.Softmax(DIM, classes=4, feature_bound=2.0)


def closed_form(problem, at, seen):
    """Where only one sample can have this gradient: features are a row of it, over the slope of its score."""
    if problem is LOGISTIC:  # label 1: the slope solves a = -sigmoid(-<row, w> / a)
        row, slope = np.float64(seen) - 0.1 * at, -0.5
        for _ in range(200):
            slope = 0.5 * slope - 0.5 / (1 + np.exp(row @ at / slope))
        return row / slope
    rows, w = np.float64(seen).reshape(4, DIM), np.float64(at).reshape(4, DIM)
    x = rows[2] / -0.5
    for _ in range(200):
        scores = np.exp(w @ x - (w @ x).max())
        x = 0.5 * x + 0.5 * rows[2] / (scores[2] / scores.sum() - 1)
    return x


@pytest.mark.parametrize(("problem", "label"), [(LOGISTIC, 1), (SOFTMAX, 2)], ids=["logistic", "softmax"])
def test_one_sample_is_found_where_a_closed_form_finds_it(problem, label):
    x, at = sample(), parameters(problem)
    seen = gradient(problem, at, x, label)
    found = dlg(problem, at, seen, label_known=label, **STEPS)
    assert_allclose(found.x, closed_form(problem, at, seen), atol=1e-3)
    assert_allclose(found.x, x, atol=1e-3)
    assert found.mismatch < 1e-9
    assert found.y == label


def test_the_class_is_found_too():
    x, at = sample(), parameters(SOFTMAX)
    found = dlg(SOFTMAX, at, gradient(SOFTMAX, at, x, 3), **STEPS)
    assert found.y == 3
    assert found.error(x) < 1e-6


def test_minus_the_features_with_the_other_label_look_the_same():
    x, at, problem = sample(), np.zeros(DIM, np.float32), problems.Logistic(DIM)
    seen = gradient(problem, at, x, 1)
    other = dlg(problem, at, seen, label_known=0, **STEPS)
    assert_allclose(other.x, -x, atol=1e-3)
    assert other.mismatch < 1e-9


def test_a_target_that_is_not_known_is_searched_for():
    """The length is lost: only the product of features and target is in the gradient at 0."""
    problem, x = problems.LeastSquares(DIM), sample()
    found = dlg(problem, np.zeros(DIM), gradient(problem, np.zeros(DIM, np.float32), x, 0.8), **STEPS)
    assert found.mismatch < 1e-6
    assert_allclose(found.y * found.x, 0.8 * x, atol=1e-3)


def test_a_clipped_gradient_tells_the_direction():
    x, at, problem = 3 * sample(), np.zeros(DIM, np.float32), problems.Logistic(DIM)
    found = dlg(problem, at, gradient(problem, at, x, 1, clip=0.5), label_known=1, clip=0.5, **STEPS)
    assert found.x @ x / np.linalg.norm(found.x) / np.linalg.norm(x) > 0.999


def test_noise_makes_it_worse():
    """Mean squared errors over 8 draws at each size of the noise, ten times as large each."""
    x, at, rng = sample(), parameters(SOFTMAX), np.random.default_rng(2)
    seen = gradient(SOFTMAX, at, x, 2)
    errors = [
        np.mean([dlg(SOFTMAX, at, seen + s * rng.normal(size=32), label_known=2, **STEPS).error(x) for _ in range(8)])
        for s in (0.0, 0.01, 0.1, 1.0)
    ]
    assert errors[0] < 1e-6
    assert errors[0] < errors[1] < 0.1 * errors[2]
    assert errors[2] < 0.2 * errors[3]
    assert errors[3] > np.mean(x**2)  # no better than to say 0


def test_a_model_is_inverted_as_its_linear_twin_is():
    x, at = sample(), parameters(SOFTMAX)
    model = problems.Model(scores, {"w": np.zeros((4, DIM), np.float32)}, features=(DIM,), classes=4, feature_bound=2.0)
    found = dlg(model, at, gradient(model, at, x, 2), label_known=2, **STEPS)
    assert found.error(x) < 1e-6


def scores(params, x):
    return params["w"] @ x


def test_messages_of_a_learner_give_its_sample_away_without_noise_only():
    """The first message of `ldp_endless`, divided by the step: without noise, and with that of (2, 1e-5)."""
    x, problem = sample(), problems.Logistic(DIM, feature_bound=1.0)
    stream = samples(np.stack([[x, x]]), np.ones((1, 2), np.int32))
    errors = []
    for noise in ({"sigma": 1e-6}, {"budget": Budget(2.0, 1e-5)}):
        learner = algorithms.ldp_endless(
            problem, topology.complete(2), clip=1.0, horizon=1, noise="gaussian", growth=0.0, **noise
        )
        said = simulate(learner, stream, 1, record=["messages"], **QUIET).transcript["messages"]
        errors.append(dlg(problem, np.zeros(DIM), -said[0, 0], label_known=1, **STEPS).error(x))
    assert errors[0] < 1e-6
    assert errors[1] > np.mean(x**2)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"gradient": np.ones(3)}, r"gradient: got \(3,\); allowed: 8 finite numbers"),
        ({"gradient": np.full(DIM, np.nan)}, "gradient: got"),
        ({"gradient": np.zeros(DIM)}, "gradient: got 'all zeros'"),
        ({"parameters": np.ones(3)}, "parameters: got"),
        ({"steps": 0}, "steps"),
        ({"restarts": 0}, "restarts"),
        ({"rate": 0.0}, "rate"),
        ({"seed": None}, "seed"),
        ({"bounds": (1.0, 0.0)}, "bounds: got .*the smaller one first"),
        ({"bounds": (0.0, np.inf)}, "bounds: got"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, says):
    given = {"parameters": np.zeros(DIM), "gradient": np.ones(DIM), "seed": 0} | changes
    with pytest.raises(ConfigurationError, match=says):
        dlg(LOGISTIC, given.pop("parameters"), given.pop("gradient"), **given)


def test_an_error_is_that_of_features_of_the_same_shape():
    with pytest.raises(ConfigurationError, match="x: got"):
        Reconstruction(np.zeros(DIM), 1.0, 0.0).error(np.zeros(3))


def test_pixels_behind_convolutions_are_found_where_their_bounds_are_known():
    """Without bounds the guess is worse than a black image."""
    network = problems.small_cnn((14, 14, 1), classes=4, seed=0)
    side = np.linspace(-1, 1, 14)
    image = np.exp(-((side[:, None] - 0.11) ** 2 + (side + 0.18) ** 2) / 0.15)[..., None].astype(np.float32)
    at = np.asarray(network.initial_decision())
    seen = gradient(network, at, image, 1)
    free, bounded = (dlg(network, at, seen, label_known=1, bounds=each, **STEPS) for each in (None, (0.0, 1.0)))
    assert free.error(image) > np.mean(image**2)
    assert bounded.error(image) < 1e-2
    assert 0 <= bounded.x.min() < bounded.x.max() <= 1
