"""The baselines of paper 002, DPPS and DPSR: their equations, noise, what the published noise costs, refusals."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose

from gossamer import Budget, Clip, ConfigurationError, PrivacyError, problems, sets, simulate, topology
from gossamer.algorithms import dp_push_sum_dual_averaging as dpps
from gossamer.algorithms import dp_subgradient_rescaling as dpsr
from gossamer.algorithms.coordinates.networks import smallest_mass, smallest_weight
from gossamer.core import Rate
from gossamer.privacy import FastNoise, Unit
from tests.instances import QUIET, Given

N, DIM, STEPS = 4, 3, 9
GRAPH = nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])
NETWORKS = {
    dpps: topology.from_networkx(GRAPH),
    dpsr: topology.from_networkx(GRAPH, weights="uniform"),
}
BOX = sets.Box(-0.3, (0.2, 0.3, 0.25))
CLIP = 0.5


def make(kind, problem=None, network=None, **options):
    given = {"budget": Budget(20.0, 1e-3), "clip": CLIP, "step": Rate(0.5)} | options
    return kind(problem or problems.Logistic(DIM, domain=BOX), network or NETWORKS[kind], **given)


def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS, N, DIM)).astype(np.float32)
    return Given(x, rng.integers(0, 2, (STEPS, N)).astype(np.int32))


DATA = data()


def gradient(y, t, i):
    """The clipped gradient of a logistic loss."""
    x = DATA.x[t, i].astype(np.float64)
    g = (1 / (1 + np.exp(-x @ y)) - DATA.y[t, i]) * x
    return g * min(1, CLIP / np.linalg.norm(g))


def inside(points):
    return np.clip(points, BOX.low, np.array(BOX.high))


def draws(made, name):
    return FastNoise(5).draw(name, made.learner.noise[name], made.scales_of(name), 0, STEPS).astype(np.float64)


def push_sum(made, published):
    """DPPS in double precision."""
    noise, l2, a = draws(made, "dual"), made.problem.l2, made.topology.matrix()
    h, w, y = np.zeros((N, DIM)), np.ones(N), np.zeros((N, DIM))
    said, played = [], []
    for t in range(STEPS):
        played.append(y)
        if t:
            h, w = a @ h, a @ w
        z = h + np.stack([gradient(y[i], t, i) for i in range(N)]) + l2 * y
        h = z + noise[:, t]
        y = inside(-0.5 / math.sqrt(max(t, 1)) * (z if published else h) / w[:, None])
        said.append(h)
    return np.array(said), np.array(played)


def rescaled(made, published):
    """DPSR in double precision; v_i is kept as the i-th row of R^t."""
    noise, l2, r = draws(made, "gradient"), made.problem.l2, made.topology.matrix()
    x = heard = np.zeros((N, DIM))
    v, said, played = np.eye(N), [], []
    for t in range(STEPS):
        played.append(x)
        rate = (0.5 / math.sqrt(t + 1) / v.diagonal())[:, None]
        g = np.stack([gradient(x[i], t, i) for i in range(N)]) + l2 * x
        x = inside(heard - rate * (g if published else g + noise[:, t]))
        said.append(x + rate * noise[:, t] if published else x)
        heard, v = r @ said[-1], r @ v
    return np.array(said), np.array(played)


REFERENCES = {dpps: push_sum, dpsr: rescaled}
SENT = {dpps: "messages.value", dpsr: "messages.x"}


@pytest.mark.parametrize("kind", REFERENCES)
@pytest.mark.parametrize(
    "options",
    [
        {"problem": problems.Logistic(DIM, domain=BOX, l2=0.2), "noise": "l2-laplace"},
        {"calibration": "published", "horizon": STEPS, "budget": Budget(20.0 * STEPS)},
    ],
    ids=["tight", "published"],
)
def test_messages_and_decisions_are_those_of_the_authors(kind, options):
    made, published = make(kind, **options), "calibration" in options
    said, played = REFERENCES[kind](made, published)
    shown = simulate(made, DATA, STEPS, seed=5, every=1, record=("messages", "decisions"), progress=False).transcript
    assert_allclose(shown[SENT[kind]], said, rtol=1e-4, atol=1e-4 * np.abs(said).max())
    assert_allclose(shown["decisions"], played, rtol=1e-4, atol=1e-5)
    assert len(np.unique(played)) > 20


def test_rescaling_makes_gradients_of_all_learners_count_alike():
    """[R^t]_ii tends to the Perron vector, by which gossip weighs learners; divided by it, all count once.

    One gradient of each learner at a constant step: every learner ends at the sum of all, where none but the rows sum
    to one.
    """
    network = NETWORKS[dpsr]
    matrix, steps = network.matrix(), 120
    perron = np.linalg.matrix_power(matrix, 400)[0]
    assert np.ptp(perron) > 0.05
    x = np.zeros((steps, N, DIM), np.float32)
    late = 60  # when [R^t]_ii has converged
    x[late] = np.arange(N)[:, None] + 1.0
    made = make(dpsr, problems.Linear(DIM), budget=Budget(1e9), clip=100.0, step=0.1)
    run = simulate(made, Given(x, np.zeros((steps, N), np.float32)), steps, every=1, record=("decisions",), **QUIET)
    assert_allclose(run.transcript["decisions"][-1], -0.1 * (1 + 2 + 3 + 4), rtol=1e-3)


def test_the_weights_that_gradients_are_divided_by():
    network = NETWORKS[dpsr]
    shown = simulate(make(dpsr), DATA, STEPS, record=("messages",), **QUIET).transcript["messages.v"]
    power = np.eye(N)
    for t in range(STEPS):
        assert_allclose(shown[t], power, atol=1e-6)
        power = network.matrix() @ power
    least = min(np.linalg.matrix_power(network.matrix(), t).diagonal().min() for t in range(1, 60))
    assert_allclose(smallest_weight(network, 60), least)
    assert least < network.matrix().diagonal().min()


@pytest.mark.parametrize("kind", REFERENCES)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"budget": Budget(2.0)}, 2 * CLIP * math.sqrt(DIM) / 2),
        ({"budget": Budget(2.0), "clip": Clip(l1=CLIP)}, 2 * CLIP / 2),
        ({"budget": Budget(2.0), "noise": "l2-laplace"}, 2 * CLIP / 2),
        ({"budget": Budget(2.0, 1e-3), "noise": "gaussian"}, 2 * CLIP * 1.44524),
        ({"budget": Budget(2.0), "calibration": "published", "horizon": 50}, 50 * 2 * CLIP * math.sqrt(DIM) / 2),
    ],
)
def test_scales_are_those_of_the_formulas(kind, options, expected):
    (scales,) = make(kind, **options).scales.values()
    assert_allclose(scales[0].value, expected, rtol=3e-5)


@pytest.mark.parametrize("kind", REFERENCES)
def test_guarantees(kind):
    promise = make(kind, budget=Budget(1.0)).guarantee
    assert (promise.basis, promise.observer, promise.horizon, promise.unit) == ("proven", "peers", None, Unit.SAMPLE)
    assert promise.covers(Budget(1.0))
    assert not promise.covers(Budget(0.999))
    budgets = [Budget(1.0), Budget(2.0), Budget(4.0), Budget(0.5)]
    assert_allclose(make(kind, budget=budgets).guarantee.epsilons, [1.0, 2.0, 4.0, 0.5])
    published = make(kind, budget=Budget(1.0), horizon=50, calibration="published").guarantee
    assert (published.basis, published.observer, published.horizon) == ("published", "wiretap", 50)
    assert_allclose(published.epsilon, 1.0, rtol=1e-4)  # without a bound of the features, all of it
    assert "whoever sees one besides the messages learns everything" in published.reason


@pytest.mark.parametrize("kind", REFERENCES)
def test_smooth_losses_leak_less_than_the_published_noise_allows_for(kind):
    """a(e+1) = min(1, G step(e) / weight) a(e): typed out for both."""
    smooth, horizon, budget = 0.3, 40, Budget(1.0)
    problem = problems.Logistic(DIM, feature_bound=2 * math.sqrt(smooth))
    made = make(kind, problem, budget=budget, horizon=horizon, calibration="published", step=Rate(0.8))
    if kind is dpps:
        steps, least = [0.8 / math.sqrt(max(t, 1)) for t in range(horizon)], smallest_mass(NETWORKS[dpps], horizon)
    else:
        steps, least = [0.8 / math.sqrt(t + 1) for t in range(horizon)], smallest_weight(NETWORKS[dpsr], horizon)
    assert least < 0.7
    moved = total = 1.0
    for step in steps[: horizon - 1]:
        moved = min(1.0, smooth * step / least * moved)
        total += moved
    assert_allclose(made.guarantee.epsilon, total / horizon, rtol=1e-4)
    assert made.guarantee.epsilon < 0.3


PUBLISHED = {"calibration": "published", "horizon": 9, "budget": Budget(1.0)}


@pytest.mark.parametrize("kind", REFERENCES)
@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"clip": None}, PrivacyError, "clip: got None"),
        ({"clip": 0.0}, ConfigurationError, "clip: got 0.0"),
        ({"budget": 1.0}, PrivacyError, "budget: got 1.0; allowed: one Budget"),
        ({"budget": [Budget(1.0)] * 3}, PrivacyError, "budget: got 3 budgets"),
        ({"budget": Budget(1.0), "noise": "gaussian"}, PrivacyError, "delta: got 0.0; allowed: a positive delta"),
        ({"noise": "cauchy"}, ConfigurationError, "noise: got 'cauchy'; allowed: 'laplace' or 'l2-laplace'"),
        ({"calibration": "loose"}, ConfigurationError, "calibration: got 'loose'; allowed: 'tight' or 'published'"),
        ({"horizon": 0}, ConfigurationError, "horizon: got 0"),
        ({"step": 0.0}, ConfigurationError, "step: got 0.0"),
        ({"calibration": "published"}, PrivacyError, "horizon: got None; allowed: a number of steps"),
        ({**PUBLISHED, "noise": "l2-laplace"}, ConfigurationError, "noise: got 'l2-laplace'; allowed: 'laplace' with"),
        ({**PUBLISHED, "clip": Clip(l1=1.0)}, ConfigurationError, "clip: got .*; allowed: one bound of the Euclidean"),
        (
            {**PUBLISHED, "problem": problems.Logistic(DIM, l2=0.1, domain=BOX)},
            PrivacyError,
            "l2: got 0.1; allowed: 0 with calibration='published'",
        ),
    ],
)
def test_bad_options_are_refused(kind, options, error, says):
    with pytest.raises(error, match=says):
        make(kind, **options)


def test_networks_that_do_not_fit_are_refused():
    with pytest.raises(ConfigurationError, match=r"topology: got .*; allowed: column-stochastic weights"):
        make(dpps, network=NETWORKS[dpsr])
    for unfit in (NETWORKS[dpps], topology.random_matching(N, seed=0), 4):
        with pytest.raises(ConfigurationError, match=r"topology: got .*; allowed: fixed, with row-stochastic weights"):
            make(dpsr, network=unfit)
    for kind in REFERENCES:
        with pytest.raises(ConfigurationError, match="topology: got 'learner 0 cannot hear the others'"):
            make(kind, network=topology.isolated(N))
