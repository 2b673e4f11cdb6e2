"""DPSDA-C and DPSDA-PS: the paper's equations, noise, what one batch moves, networks, bounds, refusals.

Seeds are fixed: what passes once passes always. False-alarm rates are those of fresh seeds.
"""

from __future__ import annotations

import math
from functools import lru_cache

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2

from gossamer import (
    Budget,
    Clip,
    ConfigurationError,
    PrivacyError,
    metrics,
    problems,
    sets,
    simulate,
    streams,
    topology,
)
from gossamer.algorithms import dpsda_c, dpsda_ps
from gossamer.algorithms.authoring import Lagged
from gossamer.algorithms.coordinates.networks import smallest_mass
from gossamer.algorithms.coordinates.theorems import (
    corollary_1,
    corollary_2,
    lemma_3,
    lemma_6,
    theorem_3,
    theorem_5,
)
from gossamer.auditing.attacks.dpsda import NETWORKS
from gossamer.auditing.attacks.pd_ftgl import strategy
from gossamer.core import Rate
from gossamer.mechanisms.independent import reach
from gossamer.privacy import FastNoise, Pure, Sensitivity, Unit
from gossamer.privacy.secure import SecureNoise
from gossamer.problems import Block
from tests.instances import QUIET

pytestmark = pytest.mark.unoptimized

N, DIM, ROUNDS = 4, 6, 9
OWNERS = (0, 0, 2, 3, 2, 0)  # node 1 controls nothing
RING = topology.ring(N)
STAR = topology.star(N, weights="push-sum")
UNDIRECTED = topology.alternating([nx.empty_graph(N), nx.path_graph(N), nx.star_graph(N - 1)])


def digraphs(*edges, nodes=N):
    """An alternating digraph, from the edges of each of its parts."""
    parts = []
    for each in edges:
        part = nx.empty_graph(nodes, nx.DiGraph)
        part.add_edges_from(each)
        parts.append(part)
    return topology.alternating(parts)


DIRECTED = digraphs([(0, 1), (0, 2)], [(1, 2), (3, 0)], [(2, 3)])
BOX = sets.Box((-0.3, -0.2, -0.3, -0.2, -0.3, -0.2), 0.25)


def data(batch=1, rounds=ROUNDS, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rounds * batch, DIM)).astype(np.float32)
    return x, rng.integers(0, 2, rounds * batch).astype(np.int32)


def make(kind=dpsda_c, problem=None, network=None, **options):
    problem = problem or problems.Logistic(DIM)
    network = network or (RING if kind is dpsda_c else STAR)
    given = {"coordinates": OWNERS, "budget": Budget(50.0, 1e-3), "clip": 0.5} | options
    return kind(problem, network, **given)


def run(made, batch=1, seed=5, rounds=ROUNDS, **options):
    options = {"every": 1, "record": ("messages", "decisions"), "seed": seed, "progress": False} | options
    return simulate(made, streams.common(*data(batch, rounds), batch), rounds, **options)


def duals(transcript):
    """What messages carry, without masses."""
    name = "messages.value" if "messages.value" in transcript else "messages"
    return np.asarray(transcript[name], np.float64)


# -- the paper's equations ---------------------------------------------------------------------------------------------


def own_gradients(y, x, labels, clip, whole, places):
    """u_i: derivatives of the summed logistic loss on the coordinates of a node, each sample or their sum clipped."""
    x = x.astype(np.float64)
    rows = (1 / (1 + np.exp(-x @ y)) - labels)[:, None] * x[:, places]
    rows = rows.sum(axis=0, keepdims=True) if whole else rows
    if clip is not None:
        norms = np.linalg.norm(rows, ord=clip.order, axis=1, keepdims=True)
        rows = rows * np.minimum(1, clip.bounds[0] / np.maximum(norms, 1e-300))
    return rows.sum(axis=0)


def drawn(made, name, seed, rounds):
    """The draws of the run, and correlated noise from the definition of its matrix."""
    if name not in made.scales:
        return None
    spec = made.learner.noise[name]
    z = FastNoise(seed).draw(name, spec, made.scales_of(name), 0, rounds).astype(np.float64)
    mechanism = made.releases[0].mechanism
    if name != "dual" or mechanism.sums is False:
        return z
    return np.einsum("ts,isw->itw", np.linalg.inv(strategy(mechanism, rounds)), z)


def protocol(made, options, batch=1, seed=5, rounds=ROUNDS, owners=OWNERS, project=None):
    """Algorithms 1 and 2 as fixed, node by node, with A(0) = I; as printed: tests/test_dpsda_text.py."""
    x, labels = data(batch, rounds)
    published, whole = options.get("calibration") == "published", options.get("unit") == "batch"
    exact = options.get("own", "gossip" if published else "exact") == "exact"
    clip, l2 = Clip.of(options.get("clip", 0.5)), made.problem.l2
    n, d = made.learners, made.problem.dim
    noise, error = drawn(made, "dual", seed, rounds), drawn(made, "error", seed, rounds)
    places = [[k for k in range(d) if owners[k] == i] for i in range(n)]
    project = project or (lambda point: np.clip(point, *np.broadcast_arrays(BOX.low, BOX.high)))
    h, w, own = np.zeros((n, d)), np.ones(n), np.zeros((n, d))
    y = np.tile(project(np.zeros(d)), (n, 1))
    said, played = [], []
    for t in range(rounds):
        played.append(y.copy())
        if t:
            matrix = made.topology.matrix(t - 1)
            h, w = matrix @ h, matrix @ w
        z, y_next = h.copy(), np.empty_like(y)
        rows = slice(t * batch, (t + 1) * batch)
        for i in range(n):
            u = own_gradients(y[i], x[rows], labels[rows], clip, whole, places[i]) + batch * l2 * y[i, places[i]]
            v = n * u
            if error is not None:
                v = v + n * error[i, t, : len(places[i])]
            if noise is not None and not published:
                v = v + noise[i, t, : len(places[i])]
            z[i, places[i]] += v
            own[i, places[i]] += v
            average = z[i] / w[i]
            if exact:
                average[places[i]] = own[i, places[i]] / n
            y_next[i] = project(-1 / math.sqrt(max(t, 1)) * average)
        h = z + noise[:, t] if published else z
        y = y_next
        said.append(h)
    return np.array(said), np.array(played)


BOXED = problems.Logistic(DIM, domain=BOX)
CASES = {
    "c, laplace, gossip, changing": {"network": UNDIRECTED, "own": "gossip"},
    "c, blt, l2, errors": {
        "problem": problems.Logistic(DIM, domain=BOX, l2=0.3),
        "noise": "gaussian",
        "aggregation": "blt",
        "gradient_noise": 0.2,
        "horizon": ROUNDS,
    },
    "c, samples of a batch, l1": {"batch": 3, "clip": Clip(l1=0.4)},
    "c, batches, tree": {"batch": 3, "unit": "batch", "aggregation": "tree", "horizon": ROUNDS},
    "c, published": {"calibration": "published", "horizon": ROUNDS},
    "ps, laplace, changing": {"kind": dpsda_ps, "network": DIRECTED},
    "ps, gossip, gaussian tree, batch": {
        "kind": dpsda_ps,
        "own": "gossip",
        "noise": "gaussian",
        "aggregation": "tree",
        "batch": 2,
        "horizon": ROUNDS,
        "network": DIRECTED,
    },
    "ps, published, batch": {
        "kind": dpsda_ps,
        "calibration": "published",
        "horizon": ROUNDS,
        "unit": "batch",
        "batch": 2,
        "gradient_noise": 0.1,
    },
    "ps, no noise": {"kind": dpsda_ps, "noise": "none", "budget": None, "network": DIRECTED},
}


@pytest.mark.parametrize("case", CASES)
def test_messages_and_decisions_are_those_of_the_paper(case):
    """With the same draws, and correlated noise from an explicit matrix, in double precision."""
    options = CASES[case]
    made = make(**{"problem": BOXED} | options)
    batch = options.get("batch", 1)
    said, played = protocol(made, options, batch)
    shown = run(made, batch).transcript
    assert_allclose(duals(shown), said, rtol=1e-4, atol=1e-4 * np.abs(said).max())
    assert_allclose(shown["decisions"], played, rtol=1e-4, atol=2e-5)
    assert np.ptp(played) > 0.4  # both ends of the box are reached, and what lies between them
    assert len(np.unique(played)) > 20


def test_a_ball_is_another_proximal_map():
    radius = 0.5
    made = make(problem=problems.Logistic(DIM, domain=sets.L2Ball(radius)))
    inside = lambda point: point * min(1, radius / max(np.linalg.norm(point), 1e-300))  # noqa: E731
    said, played = protocol(made, {}, project=inside)
    shown = run(made).transcript
    assert_allclose(shown["messages"], said, rtol=1e-4, atol=1e-3)
    assert_allclose(shown["decisions"], played, rtol=1e-4, atol=1e-4)
    lengths = np.linalg.norm(played[1:], axis=-1)
    assert lengths.max() > 0.9999 * radius > 0.9 * radius > lengths.min()


# -- scales and guarantees ---------------------------------------------------------------------------------------------

SEVEN = topology.ring(7)


def scale(**options):
    options = {"budget": Budget(1.0), "clip": 1.0} | options
    return dpsda_c(problems.Linear(7), SEVEN, **options).scales["dual"][0].value


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 98.0),
        ({"horizon": 500}, 98.0),
        ({"clip": 0.25, "budget": Budget(2.0)}, 98.0 / 8),
        ({"budget": Budget(1.0, 1e-5), "noise": "gaussian"}, 138.2),
        ({"horizon": 500, "calibration": "published"}, 7000.0),
        ({"horizon": 500, "aggregation": "tree"}, 9 * 98.0),
    ],
)
def test_noise_for_a_total_of_one_is_that_of_the_analysis(options, expected):
    """SOUNDNESS 3: 2 n^2 c / epsilon, 2 n^1.5 c / mu_star, and 2 n c T / epsilon as published; H times for a tree."""
    assert_allclose(scale(**options), expected, rtol=1e-3 if "noise" in options else 3e-5)


@pytest.mark.parametrize("kind", [dpsda_c, dpsda_ps])
def test_tight_guarantees_cover_the_budget_and_no_less(kind):
    promise = make(kind, budget=Budget(2.0)).guarantee
    assert (promise.basis, promise.observer, promise.horizon) == ("proven", "outsiders", None)
    assert promise.unit is Unit.BATCH_SAMPLE
    assert promise.covers(Budget(2.0))
    assert not promise.covers(Budget(1.999))
    assert all(assumption.enforced for assumption in promise.assumptions)
    assert make(kind, unit="batch").guarantee.unit is Unit.BATCH


def test_blocks_of_several_coordinates_cost_their_l1_norm():
    """2 n c sum_i sqrt(d_i) and 2 n c sqrt(nodes that control any): three, of 3, 2 and 1."""
    laplace, gaussian = make(budget=Budget(1.0)), make(budget=Budget(1.0, 1e-3), noise="gaussian")
    expected = 2 * N * 0.5 * (math.sqrt(3) + math.sqrt(2) + 1)
    assert_allclose(laplace.scales["dual"][0].value, expected, rtol=3e-5)
    assert_allclose(moves(gaussian), 2 * N * 0.5 * math.sqrt(3), rtol=3e-5)
    assert_allclose(make(budget=Budget(1.0), clip=Clip(l1=0.5)).scales["dual"][0].value, 2 * N * 0.5 * 3, rtol=3e-5)


def brute_force(steps, horizon, stretch):
    """The cost of a unit that enters round t0, in units of the first message, maximised over t0."""
    costs = []
    for entered in range(horizon):
        moved = total = 1.0
        for e in range(entered + 1, horizon):
            moved = min(1.0, stretch * steps[e - 1] * moved)
            total += moved
        costs.append(total)
    return costs


@pytest.mark.parametrize(("smooth", "expected"), [(0.01, 7.5), (0.05, 10.6), (0.25, 54.7), (1.0, 441.5)])
def test_what_the_published_noise_really_costs(smooth, expected):
    """The table of SOUNDNESS 3 in units of epsilon / T, from a recursion over every round that a unit may enter."""
    horizon = 500
    problem = problems.Logistic(7, feature_bound=2 * math.sqrt(smooth))
    options = {"budget": Budget(1.0), "clip": 1.0, "horizon": horizon, "calibration": "published"}
    made = dpsda_c(problem, SEVEN, **options)
    assert_allclose(horizon * made.guarantee.epsilon, expected, atol=0.06)
    steps = [1 / math.sqrt(max(t, 1)) for t in range(horizon)]
    costs = brute_force(steps, horizon, 7 * smooth)
    assert np.argmax(costs) == 0
    assert_allclose(horizon * made.guarantee.epsilon, 7 * costs[0], rtol=1e-4)
    assert_allclose(reach(Lagged(Rate(1.0)), horizon, 7 * smooth), costs[0])
    promise = made.guarantee
    assert (promise.basis, promise.observer, promise.unit) == ("published", "wiretap", Unit.BATCH_SAMPLE)
    assert "learns everything" in promise.sentence()
    assert "claims epsilon 0.002 a round and 1 in all" in promise.reason


def test_losses_that_are_not_smooth_leak_in_every_round():
    options = {"budget": Budget(1.0), "clip": 1.0, "horizon": 5, "calibration": "published"}
    assert_allclose(dpsda_c(problems.Hinge(7), SEVEN, **options).guarantee.epsilon, 7.0, rtol=1e-4)
    assert_allclose(dpsda_c(problems.Linear(7), SEVEN, **options).guarantee.epsilon, 7.0 / 5, rtol=1e-4)


def test_masses_below_one_make_published_decisions_move_further():
    network = NETWORKS[dpsda_ps]
    mass, least = np.ones(7), 1.0
    for _ in range(20):
        mass = network.matrix() @ mass
        least = min(least, mass.min())
    assert_allclose(smallest_mass(network, 20), least)
    assert least < 0.7
    options = {"budget": Budget(1.0), "clip": 1.0, "horizon": 20, "calibration": "published"}
    problem = problems.Logistic(7, feature_bound=0.4)
    cost = dpsda_ps(problem, network, **options).guarantee.epsilon
    costs = brute_force([1 / math.sqrt(max(t, 1)) for t in range(20)], 20, 7 * 0.04 / least)
    assert_allclose(cost, 7 / 20 * costs[0], rtol=1e-4)
    assert cost > dpsda_c(problem, SEVEN, **options).guarantee.epsilon


# -- what one unit moves -----------------------------------------------------------------------------------------------


def moves(made):
    """The sensitivity behind an independent release: its loss times its scale, l1 for Laplace, l2 for a Gaussian."""
    (loss,), (scale,) = made.guarantee.losses, made.scales["dual"]
    return scale.value * (loss.value if isinstance(loss, Pure) else loss.mu)


@lru_cache
def stacked(unit, order, batch):
    """What all nodes release without noise, as a function of estimates and batch; and how far it may move."""
    options = {"clip": Clip(**{order: 0.5}), "unit": unit, "batch": batch}
    made, other = make(**options), make(**options, noise="gaussian")
    learn, init = made.learner.learn, jax.vmap(made.learner.init)(jnp.arange(N))
    program = jax.jit(lambda y, block: jax.vmap(learn, (0, None, None))(init._replace(y=y), block, None).gradient)
    return program, moves(made), moves(other)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.floats(1e-3, 1e3),
    unit=st.sampled_from(["sample", "batch"]),
    order=st.sampled_from(["l1", "l2"]),
    batch=st.just(3),
)
def test_the_stack_of_all_nodes_moves_by_no_more_than_the_sensitivity(seed, size, unit, order, batch):
    """Any two batches, or batches that differ in one sample, at any estimates of the nodes: both norms."""
    rng = np.random.default_rng(seed)
    program, l1, l2 = stacked(unit, order, batch)
    estimates = rng.normal(size=(N, DIM)).astype(np.float32)
    x, y = (size * rng.normal(size=(batch, DIM))).astype(np.float32), rng.integers(0, 2, batch).astype(np.int32)
    changed = np.arange(batch) < (batch if unit == "batch" else 1)
    others = -x if rng.random() < 0.5 else rng.normal(size=x.shape).astype(np.float32)
    neighbour = Block(np.where(changed[:, None], others, x), np.where(changed, 1 - y, y))
    ours, theirs = (np.asarray(program(estimates, block), np.float64).ravel() for block in (Block(x, y), neighbour))
    assert np.linalg.norm(ours - theirs, ord=1) <= l1
    assert np.linalg.norm(ours - theirs) <= l2


def test_the_sensitivity_is_reached():
    """Steep losses of opposite sign: nothing smaller is enough."""
    options = {"clip": 1.0, "budget": Budget(1.0, 1e-3)}
    pure, gaussian = (dpsda_c(problems.Linear(7), SEVEN, **options, noise=law) for law in ("laplace", "gaussian"))
    learner = pure.learner
    batches = [Block(np.full((1, 7), size, np.float32), np.zeros(1)) for size in (9, -9)]
    both = [[learner.learn(learner.init(i), batch, None).gradient for i in range(7)] for batch in batches]
    moved = np.subtract(*np.asarray(both, np.float64)).ravel()
    assert_allclose([np.abs(moved).sum(), np.linalg.norm(moved)], [moves(pure), moves(gaussian)], rtol=3e-5)


# -- noise -------------------------------------------------------------------------------------------------------------


def noise_in_messages(kind, rounds=600, **options):
    """What each node adds to the dual in every round, where all gradients are 0; and the algorithm."""
    network = NETWORKS[kind]
    made = kind(problems.Linear(14), network, clip=1.0, **options)
    stream = streams.common(np.zeros((rounds, 14), np.float32))
    messages = duals(simulate(made, stream, rounds, record=("messages",), **QUIET).transcript)
    heard = np.concatenate([np.zeros_like(messages[:1]), network.matrix() @ messages[:-1]])
    return messages - heard, made


def chi_squared(sample, variance, rate=1e-6):
    """Whether a sum of squares is one of Gaussians of this variance: two-sided, with this rate of false alarms."""
    low, high = chi2.ppf([rate / 2, 1 - rate / 2], sample.size)
    return low < np.sum(np.square(sample)) / variance < high


@pytest.mark.parametrize("kind", [dpsda_c, dpsda_ps])
def test_noise_is_on_the_own_coordinates_and_of_the_scale_that_is_claimed(kind):
    """False alarm 1e-6; a scale that is off by a twelfth is seen."""
    added, made = noise_in_messages(kind, rounds=300, budget=Budget(1.0, 1e-3), noise="gaussian")
    own = np.array([[owner == node for owner in made.coordinates] for node in range(7)])
    spread = np.abs(added[:, own]).max()
    assert np.abs(added[:, ~own]).max() < 1e-5 * spread  # float32 sums of what was heard
    noise, claimed = added[:, own], made.scales["dual"][0].value
    assert chi_squared(noise, claimed**2)
    assert not chi_squared(noise, (claimed * 12 / 13) ** 2)
    assert not chi_squared(noise, (claimed * 13 / 12) ** 2)


def test_published_noise_is_on_all_coordinates():
    """Laplace: mean |x| is the scale, with a relative deviation of 1 / sqrt(58,800). Six of them: 2e-9."""
    added, made = noise_in_messages(dpsda_c, budget=Budget(600.0), horizon=600, calibration="published")
    assert_allclose(np.abs(added).mean(axis=0), made.scales["dual"][0].value, rtol=6 / math.sqrt(600))
    assert_allclose(np.abs(added).mean(), made.scales["dual"][0].value, rtol=6 / math.sqrt(added.size))


@pytest.mark.parametrize(("aggregation", "expected"), [("independent", "rounds"), ("blt", "log")])
def test_noise_in_the_exact_sum_grows_as_its_mechanism_says(aggregation, expected):
    """The variance of the sum of increments after 300 and 1,200 rounds, in 350 coordinates; false alarm 1e-6."""
    rounds, wide = 1200, 350
    options = {"noise": "gaussian", "budget": Budget(1.0, 1e-3), "horizon": rounds, "aggregation": aggregation}
    network = topology.ring(7)
    made = dpsda_c(problems.Linear(wide), network, clip=1.0, **options)
    stream = streams.common(np.zeros((rounds, wide), np.float32))
    shown = simulate(made, stream, rounds, record=("decisions",), **QUIET).transcript["decisions"]
    sigma, matrix = made.scales["dual"][0].value, strategy(made.releases[0].mechanism, rounds)
    rows = np.linalg.norm(np.cumsum(np.linalg.inv(matrix), axis=0), axis=1)
    variances = []
    for played in (300, rounds - 1):
        step = made.public["step"](np.array([played]))[0]
        own = metrics.joint_decisions(shown[played], made.coordinates) * 7 / step
        assert chi_squared(own, (sigma * rows[played - 1]) ** 2)
        variances.append(rows[played - 1] ** 2)
    grown = variances[-1] / variances[0]
    assert (3.9 < grown < 4.1) if expected == "rounds" else grown < 2


# -- own="exact" -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "network"), [(dpsda_c, UNDIRECTED), (dpsda_ps, DIRECTED)])
def test_the_exact_sum_is_what_gossip_converges_to(kind, network):
    """Five rounds with data, and many without gradients: gossip ends at the sum of what a node added, divided by n."""
    rng = np.random.default_rng(3)
    rounds, busy = 200, 5
    x = np.zeros((rounds, DIM), np.float32)
    x[:busy] = rng.normal(size=(busy, DIM))
    made = make(kind, problems.Linear(DIM), network, noise="none", budget=None, clip=None, own="gossip")
    found = simulate(made, streams.common(x), rounds, record=("decisions",), **QUIET)
    played = metrics.joint_decisions(found.transcript["decisions"], OWNERS)
    total = x.astype(np.float64).sum(axis=0)
    assert_allclose(-math.sqrt(rounds - 2) * played[-1], total, rtol=1e-4, atol=1e-5)
    assert np.abs(-math.sqrt(busy - 1) * played[busy] - total).max() > 0.1


@pytest.mark.parametrize(
    ("kind", "network", "own", "aggregation"),
    [
        (dpsda_c, UNDIRECTED, "exact", "blt"),
        (dpsda_ps, DIRECTED, "exact", "tree"),
    ],
)
def test_decisions_are_functions_of_messages_and_public_weights(kind, network, own, aggregation):
    """Post-processing: no data, no draw and no state of a node is needed to say what it plays."""
    made = make(kind, BOXED, network, noise="gaussian", horizon=ROUNDS, own=own, aggregation=aggregation)
    shown = run(made).transcript
    messages = duals(shown)
    mine = np.array([[owner == node for owner in OWNERS] for node in range(N)])
    h, w, total = np.zeros((N, DIM)), np.ones(N), np.zeros((N, DIM))
    for t in range(ROUNDS - 1):
        if t:
            h, w = network.matrix(t - 1) @ messages[t - 1], network.matrix(t - 1) @ w
        total += messages[t] - h
        average = messages[t] / (w[:, None] if kind is dpsda_ps else 1)
        average = np.where(mine, total / N, average) if own == "exact" else average
        y = np.clip(-1 / math.sqrt(max(t, 1)) * average, *np.broadcast_arrays(BOX.low, BOX.high))
        assert_allclose(shown["decisions"][t + 1], y, atol=1e-5)


# -- networks ----------------------------------------------------------------------------------------------------------


def test_push_sum_reaches_the_average_where_the_union_is_strongly_connected():
    """Only over three rounds together; and masses are not one, so that plain gossip would not."""
    assert not any(part.is_strongly_connected() for part in DIRECTED.parts)
    assert DIRECTED.is_strongly_connected(window=3)
    rounds = 400
    x = np.zeros((rounds, DIM), np.float32)
    x[0] = np.arange(1, DIM + 1)
    made = make(dpsda_ps, problems.Linear(DIM), DIRECTED, noise="none", budget=None, clip=None, own="gossip")
    shown = simulate(made, streams.common(x), rounds, every=1, record=("messages",), **QUIET).transcript
    mass = shown["messages.mass"][-1]
    assert_allclose(duals(shown)[-1] / mass[:, None], np.tile(x[0], (N, 1)), rtol=1e-4)
    assert np.ptp(mass) > 0.3


def test_a_union_that_is_not_strongly_connected_is_refused_with_its_cut():
    with pytest.raises(ConfigurationError, match=r"parts: got .*3.*; allowed: graphs that are connected together"):
        digraphs([(0, 1), (1, 2)], [(2, 0), (3, 1)])


REGRESSION = problems.LeastSquares(21, domain=sets.Box(-5.0, 5.0))


def regression(rounds):
    """Paper 002, Section 6.1: a linear model with noise. The stream, and the least loss of so many rounds."""
    rng = np.random.default_rng(0)
    best = rng.normal(size=21)
    a = rng.uniform(-0.5, 0.5, (rounds, 21))
    b = a @ best + rng.normal(0, math.sqrt(0.2), rounds)

    def least(stop):
        found, (loss,), *_ = np.linalg.lstsq(a[:stop], b[:stop])
        assert np.abs(found).max() < 5  # inside the box
        return loss / stop

    return streams.common(a, b.astype(np.float32)), least


def test_failing_links_leave_the_average_of_the_duals_where_it_is():
    """DPSDA-C: the average dual is the sum of all that was added, to float32, at every round."""
    network = topology.with_link_failures(topology.ring(N), 0.3, seed=2)
    assert len({tuple(network.links(np.array([t]))) for t in range(ROUNDS)}) > 1
    made = make(dpsda_c, problems.Logistic(DIM), network, own="gossip")
    messages = duals(run(made).transcript)
    heard = np.stack([np.zeros((N, DIM)), *(network.matrix(t) @ messages[t] for t in range(ROUNDS - 1))])
    added = np.cumsum((messages - heard).sum(axis=1), axis=0)
    assert_allclose(messages.sum(axis=1), added, rtol=1e-5, atol=1e-5 * np.abs(added).max())


def test_push_sum_learns_although_links_fail():
    """30 % of links down: average regret falls at least like T^-0.5 from 500 to 4,000 rounds, from 0.147 to 0.034."""
    network = topology.with_link_failures(topology.directed_exponential(7), 0.3, seed=1)
    made = dpsda_ps(REGRESSION, network, noise="none", clip=None)
    stream, least = regression(4000)
    losses = simulate(made, stream, 4000, measure="joint", every=500, **QUIET).losses[:, 0]
    early, late = losses[0] - least(500), losses.mean() - least(4000)
    assert 0 < late < early * 8**-0.5


# -- correlated noise --------------------------------------------------------------------------------------------------


def test_correlated_noise_with_the_exact_sum_halves_the_regret():
    """Regression, T = 5,000, n = 7, clip 0.1, best steps of {0.03, 0.1, 0.3, 1, 3}; regrets per round.

    At (2, 1e-5): blt 0.363, independent 1.179, playing 0 costs 1.240; at (1, 1e-5) blt 0.558.
    """
    rounds = 5000
    stream, least = regression(rounds)
    best = least(rounds)
    zero = float(np.mean(np.square(stream.read(0, rounds).y))) - best

    def regret(epsilon, aggregation, step):
        made = dpsda_c(
            REGRESSION,
            SEVEN,
            horizon=rounds,
            budget=Budget(epsilon, 1e-5),
            clip=0.1,
            noise="gaussian",
            aggregation=aggregation,
            step=Rate(step),
        )
        found = simulate(made, stream, rounds, seeds=[0, 1, 2], measure="joint", every=rounds, progress=False)
        return float(found.losses.mean()) - best

    correlated, fresh, tighter = regret(2.0, "blt", 3.0), regret(2.0, "independent", 0.1), regret(1.0, "blt", 1.0)
    assert correlated <= 0.5 * fresh
    assert correlated <= 0.35 * zero
    assert tighter <= 0.6 * zero
    assert fresh < zero


# -- bounds ------------------------------------------------------------------------------------------------------------

CONSTANTS = {"nodes": 3, "epsilon": 0.5, "bound": 1.5, "lipschitz": 2.0, "smoothness": 0.7, "diameter": 4.0, "psi": 6.0}


def test_theorem_3_and_corollary_1_are_as_printed():
    """With L^ in the first term, as the proof has it (Appendix F); the theorem as printed drops the hat."""
    n, e, hat, lip, g, d, c = CONSTANTS.values()
    phi = 0.25
    theta = 1 - phi / (4 * n**2)
    inside = 3 * n**5 * hat**2 / (theta**2 * (1 - theta) ** 2) + 3 * n**5 * hat**2
    inside += 24 * n**7 * hat**2 / (theta**2 * (1 - theta) ** 2 * e**2)
    assert_allclose(lemma_3(nodes=n, epsilon=e, bound=hat, least_weight=phi), inside / n)
    m1 = 16 * n**2 * hat**2 / e**2 + 2 * n * hat**2 + c + 2 * (lip + n**0.5 * d * g) * inside**0.5
    assert_allclose(theorem_3(**CONSTANTS, least_weight=phi), m1)
    assert_allclose(corollary_1(**CONSTANTS, least_weight=phi), 2 * m1)


def test_theorem_5_and_corollary_2_are_as_printed():
    n, e, hat, lip, g, d, c = CONSTANTS.values()
    gamma, window, beta = 0.4, 2, 2
    lam = (1 - 1 / n ** (n * window)) ** (1 / window)
    inside = 8 * n**3 * beta**2 * hat**2 / (gamma**2 * lam**2 * (1 - lam) ** 2)
    inside += 64 * n**5 * beta**2 * hat**2 / (gamma**2 * (1 - lam) ** 2 * e**2)
    masses = {"window": window, "least_mass": gamma}
    assert_allclose(lemma_6(nodes=n, epsilon=e, bound=hat, **masses), inside / n, rtol=1e-9)
    m2 = 16 * n**2 * hat**2 / e**2 + 2 * n * hat**2 + c + 2 * (lip + n**0.5 * d * g) * inside**0.5
    given = CONSTANTS | masses
    assert_allclose(theorem_5(**given), m2, rtol=1e-9)
    assert_allclose(corollary_2(**given), 2 * m2, rtol=1e-9)
    assert math.isfinite(theorem_5(**given | {"nodes": 7, "window": 4}))


def test_measured_regret_lies_below_the_bounds_and_decisions_in_sets_of_their_own():
    """Remark 4: every node has a box of its own. The bounds are far above what is measured, by a factor of 10,000."""
    rounds, dim = 300, 7
    high = np.array([1.0 + 0.1 * k for k in range(dim)])
    problem = problems.Linear(dim, feature_bound=1.0, domain=sets.Box(tuple(-high), tuple(high)))
    rng = np.random.default_rng(0)
    x = rng.normal(0.3, size=(rounds, dim))
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    least = -np.abs(x.astype(np.float64).sum(axis=0)) @ high
    network = topology.directed_ring(dim)
    given = {"budget": Budget(rounds * 1.0), "clip": 1.0, "horizon": rounds, "calibration": "published"}
    constants = {
        "nodes": dim,
        "epsilon": 1.0,
        "bound": 1.0,
        "lipschitz": 1.0,
        "smoothness": 0.0,
        "diameter": 2 * high[-1],
        "psi": float(np.square(high).sum() / 2),
    }
    for made, bound in (
        (dpsda_c(problem, SEVEN, **given), theorem_3(**constants, least_weight=1 / 3)),
        (
            dpsda_ps(problem, network, **given),
            theorem_5(**constants, window=1, least_mass=smallest_mass(network, rounds)),
        ),
    ):
        found = simulate(made, streams.common(x), rounds, record=("decisions",), **QUIET)
        played = metrics.joint_decisions(found.transcript["decisions"], made.coordinates)
        assert (np.abs(played) <= high.astype(np.float32)).all()
        assert_allclose(np.abs(played).max(axis=0), high)
        for decisions, most in ((played, bound), (metrics.running_average(played), 2 * bound)):
            assert 0 < np.sum(x * decisions) - least < most * math.sqrt(rounds)


# -- secure noise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"budget": Budget(1.0)},
        {"budget": Budget(1.0), "aggregation": "tree"},
        {"budget": Budget(1.0, 1e-6), "noise": "gaussian", "aggregation": "blt", "horizon": ROUNDS},
    ],
)
def test_secured_budgets_are_kept_and_rounding_counts_all_nodes(options):
    made = make(**options)
    secured, (release,) = made.secured(), made.secured().releases
    assert release.mechanism.together == N
    assert secured.guarantee.covers(options["budget"]) or isinstance(secured.guarantee.losses[0], Pure)
    assert secured.guarantee.epsilon <= options["budget"].epsilon
    assert 0 < secured.guarantee.sampler_error < 1e-9
    exact, grid = Sensitivity(1.0, 1.0), release.scales["dual"][0].grid
    assert grid > 0
    rounded = release.mechanism.rounded(exact, grid)
    assert rounded.l1 >= exact.l1 + N * 3 * grid  # four nodes of three padded coordinates
    assert rounded.l2 >= exact.l2 + math.sqrt(N * 3) * grid
    shown = run(secured, noise=lambda seed: SecureNoise(bytes(32), f"run {seed}", "test")).transcript
    first = duals(shown)[0] / grid
    assert_array_equal(first, np.round(first))
    assert np.abs(first).max() > 2**15


# -- refused -----------------------------------------------------------------------------------------------------------

PUBLISHED = {"calibration": "published", "horizon": 9, "budget": Budget(1.0)}


@pytest.mark.parametrize("kind", [dpsda_c, dpsda_ps])
@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"budget": None}, PrivacyError, "budget: got None; allowed: one Budget for all"),
        ({"budget": [Budget(1.0)] * 4}, PrivacyError, "budget: got .*; allowed: one Budget for all"),
        ({"budget": 1.0}, PrivacyError, "budget: got 1.0"),
        ({"budget": Budget(1.0), "noise": "gaussian"}, PrivacyError, "delta: got 0.0; allowed: a positive delta"),
        ({"clip": None}, PrivacyError, "clip: got None"),
        ({"clip": 0.0}, ConfigurationError, "clip: got 0.0"),
        (
            {"clip": Clip(l2=(1.0, 1.0), blocks=(3, 3))},
            ConfigurationError,
            "clip: got .*; allowed: one bound, for the part of every node. The blocks are those of `coordinates`",
        ),
        ({"coordinates": (0, 1)}, ConfigurationError, "coordinates: got .*; allowed: 6 numbers from 0 to 3"),
        ({"coordinates": (0, 0, 0, 0, 0, 4)}, ConfigurationError, "coordinates: got .*; allowed: 6 numbers"),
        ({"coordinates": (0, 0, 0, 0, 0, -1)}, ConfigurationError, "coordinates: got .*; allowed: 6 numbers"),
        ({"coordinates": (0.0,) * 6}, ConfigurationError, "coordinates: got .*; allowed: 6 numbers"),
        ({"horizon": 0}, ConfigurationError, "horizon: got 0"),
        ({"batch": 0}, ConfigurationError, "batch: got 0"),
        ({"unit": "day"}, ConfigurationError, "unit: got 'day'; allowed: 'sample' or 'batch'"),
        ({"noise": "l2-laplace"}, ConfigurationError, "noise: got 'l2-laplace'; allowed: 'laplace' or 'gaussian'"),
        (
            {"aggregation": "none"},
            ConfigurationError,
            "aggregation: got 'none'; allowed: 'independent', 'tree' or 'blt'",
        ),
        ({"aggregation": "toeplitz"}, ConfigurationError, "got 'toeplitz'; .* 'tree' or 'blt'. .*remember all noise"),
        ({"own": "best"}, ConfigurationError, "own: got 'best'; allowed: 'exact' or 'gossip'"),
        ({"calibration": "loose"}, ConfigurationError, "calibration: got 'loose'; allowed: 'tight' or 'published'"),
        ({"step": 0.0}, ConfigurationError, "step: got 0.0"),
        ({"gradient_noise": -1.0}, ConfigurationError, "gradient_noise: got -1.0"),
        (
            {"aggregation": "blt"},
            PrivacyError,
            "aggregation: got 'blt'; allowed: 'tree' or 'independent' with laplace noise",
        ),
        ({"noise": "none"}, ConfigurationError, "budget: got .*; allowed: None with noise='none'"),
        (
            {"noise": "none", "budget": None, "aggregation": "tree"},
            ConfigurationError,
            "aggregation: got 'tree'; allowed: 'independent' with noise='none'",
        ),
        (
            {"noise": "none", "budget": None, "calibration": "published"},
            ConfigurationError,
            "calibration: got 'published'; allowed: 'tight' with noise='none'",
        ),
        (
            {"calibration": "published"},
            PrivacyError,
            "horizon: got None; allowed: a number of steps",
        ),
        (
            {**PUBLISHED, "noise": "gaussian", "budget": Budget(1.0, 0.1)},
            ConfigurationError,
            "noise: got 'gaussian'; allowed: 'laplace' with calibration='published'",
        ),
        (
            {**PUBLISHED, "aggregation": "tree"},
            ConfigurationError,
            "aggregation: got 'tree'; allowed: 'independent' with calibration='published'",
        ),
        (
            {**PUBLISHED, "own": "exact"},
            ConfigurationError,
            "own: got 'exact'; allowed: 'gossip' with calibration='published'",
        ),
        (
            {**PUBLISHED, "batch": 2},
            PrivacyError,
            "unit: got 'sample'; allowed: 'batch' with calibration='published'. Raw decisions carry one sample",
        ),
        (
            {**PUBLISHED, "clip": Clip(l1=1.0)},
            ConfigurationError,
            "clip: got .*; allowed: one bound of the Euclidean norm",
        ),
        (
            {**PUBLISHED, "problem": problems.Logistic(DIM, l2=0.1)},
            PrivacyError,
            "l2: got 0.1; allowed: 0 with calibration='published'",
        ),
    ],
)
def test_bad_options_are_refused(kind, options, error, says):
    with pytest.raises(error, match=says):
        make(kind, **options)


def test_networks_must_keep_what_is_added():
    with pytest.raises(ConfigurationError, match=r"topology: got .*; allowed: doubly stochastic weights"):
        make(dpsda_c, network=STAR)
    with pytest.raises(ConfigurationError, match=r"topology: got .*; allowed: column-stochastic weights"):
        make(dpsda_ps, network=topology.star(N, weights="uniform"))
    for kind in (dpsda_c, dpsda_ps):
        with pytest.raises(ConfigurationError, match="topology: got 4; allowed: a topology"):
            make(kind, network=4)


def test_streams_must_be_common_and_in_batches_as_declared():
    made = make(batch=3)
    with pytest.raises(ConfigurationError, match="stream: got 'batches of 1'; allowed: batches of 3"):
        run(made, batch=1)
    with pytest.raises(PrivacyError, match="stream: got 'samples of its own for every learner'"):
        simulate(make(), streams.random_signs(N, DIM, seed=0), 3, **QUIET)


def test_a_run_past_the_horizon_is_refused():
    with pytest.raises(PrivacyError, match="steps: got 9; allowed: at most the horizon of 8"):
        run(make(horizon=8))
