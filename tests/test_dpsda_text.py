"""DPSDA-C and DPSDA-PS against loops in NumPy and double precision, written from the text of paper 002 alone.

Algorithms 1 and 2 with one coordinate for each node, as printed. The simulator's exchanges are their rounds with two
liberties, both about round 0, in which nothing is known: A(0) = I, and eta(0) = 0. So the matrix of exchange t is
A(t+1), and its message is h(t+1), which holds the gradient of the same exchange.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from gossamer import Budget, ConfigurationError, PrivacyError, problems, sets, simulate, streams, topology
from gossamer.algorithms import dpsda_c, dpsda_ps
from gossamer.algorithms.coordinates.proximal import EUCLIDEAN, Entropy, Proximal
from gossamer.algorithms.coordinates.theorems import lemma_3, lemma_6, theorem_1
from gossamer.privacy import FastNoise

N, ROUNDS, BATCH, SEED = 5, 12, 3, 7
LOW, HIGH = -0.4, 0.3
LINKS = [[(0, 1), (2, 3)], [(1, 2), (3, 4), (0, 3)], [(4, 0)]]


def network(kind, weights):
    graphs = [nx.empty_graph(N, kind) for _ in LINKS]
    for graph, links in zip(graphs, LINKS, strict=True):
        graph.add_edges_from(links)
    return topology.alternating(graphs, weights=weights)


NETWORKS = {dpsda_c: network(nx.Graph, "metropolis"), dpsda_ps: network(nx.DiGraph, "push-sum")}


@dataclass(frozen=True)
class Centred(Proximal):
    """What a user gives: psi(x) = c |x - 0.1|^2 / 2, whose minimiser is not a projection of the dual's direction."""

    c: float

    def minimizer(self, dual, step, domain):
        return domain.project(0.1 - step / self.c * dual)

    def largest(self, domain):
        return self.c * (HIGH - LOW) ** 2 * N / 2


def softmax(values):
    weights = np.exp(values - values.max())
    return weights / weights.sum()


BOX, SIMPLEX = sets.Box(LOW, HIGH), sets.Simplex()
MAPS = {
    "euclidean": (EUCLIDEAN, BOX, lambda z, a: np.clip(-a * z, LOW, HIGH)),
    "entropy": (Entropy(), SIMPLEX, lambda z, a: softmax(-a * z)),
    "a user's": (Centred(2.0), BOX, lambda z, a: np.clip(0.1 - a * z / 2, LOW, HIGH)),
}


def algorithm_1(W, u, eta, pi, y, rounds):
    """DPSDA-C: h(t) and y(t), t = 0, ..., rounds."""
    z, hs, ys = np.zeros((N, N)), [], [y]
    for t in range(rounds):
        h = z + eta[t]  # (11)
        z = np.array(
            [
                [
                    N * (i == k) * u(i, t, ys[-1][i])
                    + h[i, k]
                    + sum(W[t][i, j] * (h[j, k] - h[i, k]) for j in range(N))
                    for k in range(N)
                ]
                for i in range(N)
            ]
        )  # (12)
        ys.append(np.array([pi(z[i], 1 / np.sqrt(max(t, 1))) for i in range(N)]))  # (13)
        hs.append(h)
    return np.array([*hs, z + eta[rounds]]), np.array(ys)


def algorithm_2(A, u, eta, pi, y, rounds):
    """DPSDA-PS: h(t) and y(t), t = 0, ..., rounds."""
    z, w, hs, ys = np.zeros((N, N)), np.ones(N), [], [y]
    for t in range(rounds):
        h = z + eta[t]  # (11)
        z = np.array(
            [
                [N * (i == k) * u(i, t, ys[-1][i]) + sum(A[t][i, j] * h[j, k] for j in range(N)) for k in range(N)]
                for i in range(N)
            ]
        )  # (20)
        w = np.array([sum(A[t][i, j] * w[j] for j in range(N)) for i in range(N)])  # (21)
        ys.append(np.array([pi(z[i] / w[i], 1 / np.sqrt(max(t, 1))) for i in range(N)]))  # (22)
        hs.append(h)
    return np.array([*hs, z + eta[rounds]]), np.array(ys)


TEXT = {dpsda_c: algorithm_1, dpsda_ps: algorithm_2}
X = np.random.default_rng(0).normal(size=(ROUNDS, BATCH, N)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(0, 2, (ROUNDS, BATCH)).astype(np.int32)


def derivative(reduction, errors):
    """u_i(t): the i-th derivative of f_t, the sum or the mean of logistic losses, at y_i(t), and xi_i(t)."""

    def u(i, t, y):
        a, b = X[t].astype(np.float64), 2.0 * LABELS[t] - 1
        terms = -b * a[:, i] / (1 + np.exp(b * (a @ y)))
        return (terms.mean() if reduction == "mean" else terms.sum()) + errors[i, t]

    return u


@pytest.mark.parametrize("kind", [dpsda_c, dpsda_ps])
@pytest.mark.parametrize("noise", ["none", "published"])
@pytest.mark.parametrize(("reduction", "mapping"), [("sum", "euclidean"), ("mean", "entropy"), ("mean", "a user's")])
def test_runs_are_those_of_the_text_with_the_identity_as_first_matrix_and_no_noise_before_data(
    kind, noise, reduction, mapping
):
    """Messages and decisions, with the draws of the run; both ends of the box are reached, or all of the simplex."""
    proximal, domain, pi = MAPS[mapping]
    problem = problems.Logistic(N, domain=domain)
    options = {"reduction": reduction, "proximal": proximal, "batch": BATCH, "gradient_noise": 0.2, "own": "gossip"}
    if noise == "none":
        made = kind(problem, NETWORKS[kind], noise="none", **options)
    else:
        given = {"budget": Budget(4e3), "clip": 30.0, "unit": "batch", "horizon": ROUNDS, "calibration": "published"}
        made = kind(problem, NETWORKS[kind], **given, **options)
    stream = streams.common(X.reshape(-1, N), LABELS.ravel(), BATCH)
    record = ("messages", "decisions")
    shown = simulate(made, stream, ROUNDS, seed=SEED, record=record, every=1, progress=False).transcript

    draws = {
        name: FastNoise(SEED).draw(name, spec, made.scales_of(name), 0, ROUNDS).astype(np.float64)
        for name, spec in made.learner.noise.items()
    }
    eta = np.zeros((ROUNDS + 1, N, N))
    if noise == "published":
        eta[1:] = draws["dual"].swapaxes(0, 1)
    matrices = [np.eye(N), *(made.topology.matrix(t) for t in range(ROUNDS))]
    start = np.tile(problem.initial_decision().astype(np.float64), (N, 1))
    hs, ys = TEXT[kind](matrices, derivative(reduction, draws["error"][..., 0]), eta, pi, start, ROUNDS)

    said = shown["messages.value"] if kind is dpsda_ps else shown["messages"]
    assert_allclose(said, hs[1:], rtol=2e-5, atol=2e-5 * np.abs(hs).max())
    assert_allclose(shown["decisions"], ys[:-1], rtol=2e-5, atol=1e-5)
    assert np.ptp(ys[1:]) > 0.5
    assert len(np.unique(ys.round(3))) > 20


@pytest.mark.parametrize("kind", [dpsda_c, dpsda_ps])
def test_lemmas_and_theorem_1_bound_what_the_loops_do(kind):
    """Without noise: how far duals are from their average, and the regret against the best decision of the box."""
    (proximal, domain, pi), errors = MAPS["euclidean"], np.zeros((N, ROUNDS))
    u = derivative("mean", errors)
    matrices = [np.eye(N), *(NETWORKS[kind].matrix(t) for t in range(ROUNDS))]
    zs, ys = TEXT[kind](matrices, u, np.zeros((ROUNDS + 1, N, N)), pi, np.zeros((N, N)), ROUNDS)
    masses = np.ones((ROUNDS + 1, N))
    for t in range(1, ROUNDS if kind is dpsda_ps else 0):
        masses[t + 1] = matrices[t] @ masses[t]
    average = zs.mean(axis=1)
    spread = np.square(zs / masses[:, :, None] - average[:, None]).sum(axis=(1, 2))
    bound = max(abs(u(i, t, ys[t, i])) for t in range(ROUNDS) for i in range(N))
    given = {"nodes": N, "epsilon": np.inf, "bound": bound}
    if kind is dpsda_c:
        most = lemma_3(least_weight=min(m[m > 0].min() for m in matrices), **given)
    else:
        most = lemma_6(window=3, least_mass=masses.min(), **given)
    assert 0 < spread.max() < most

    slope = lambda t, y: np.array([u(i, t, y) for i in range(N)])  # noqa: E731
    loss = lambda t, y: np.logaddexp(0, -(2.0 * LABELS[t] - 1) * (X[t].astype(np.float64) @ y)).mean()  # noqa: E731
    played, rounds = ys[:, range(N), range(N)], range(1, ROUNDS)
    best = minimize(lambda v: sum(loss(t, v) for t in rounds), np.zeros(N), bounds=[(LOW, HIGH)] * N).fun
    regret = sum(loss(t, played[t]) for t in rounds) - best
    steps = [1 / np.sqrt(max(t - 1, 1)) for t in rounds]
    central = {t: pi(average[t], step) for t, step in zip(rounds, steps, strict=True)}
    heard = {t: np.array([u(i, t, ys[t, i]) for i in range(N)]) for t in rounds}
    limit = theorem_1(
        steps=steps,
        last_step=1 / np.sqrt(ROUNDS - 1),
        moved=[float(heard[t] @ heard[t]) for t in rounds],
        apart=[float(np.linalg.norm(played[t] - central[t])) for t in rounds],
        misled=[float(np.linalg.norm(slope(t, central[t]) - heard[t])) for t in rounds],
        lipschitz=max(float(np.linalg.norm(slope(t, y))) for t in rounds for y in (played[t], central[t])),
        diameter=HIGH - LOW,
        psi=proximal.largest(domain.of_dimension(N)),
        nodes=N,
    )
    assert 0 < regret < limit < 50 * regret


# -- sums and means ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [dpsda_c, dpsda_ps])
@pytest.mark.parametrize("own", ["exact", "gossip"])
def test_a_mean_is_a_sum_with_a_shorter_step_when_samples_are_protected(kind, own):
    """Clip, noise and guarantee follow exactly: the noise is 1 / B of it, and all decisions are the same."""
    problem = problems.Logistic(N, domain=BOX, l2=0.2)
    stream = streams.common(X.reshape(-1, N), LABELS.ravel(), BATCH)
    common = {"budget": Budget(60.0), "clip": 0.5, "batch": BATCH, "own": own}
    total = kind(problem, NETWORKS[kind], step=0.3 / BATCH, **common)
    mean = kind(problem, NETWORKS[kind], step=0.3, reduction="mean", **common)
    assert_allclose(mean.scales["dual"][0].value * BATCH, total.scales["dual"][0].value, rtol=3e-7)
    assert mean.guarantee.covers(Budget(60.0))
    assert_allclose(mean.guarantee.epsilon, total.guarantee.epsilon, rtol=1e-6)
    options = {"record": ("decisions",), "every": 1, "seed": SEED, "progress": False}
    ours, theirs = (simulate(each, stream, ROUNDS, **options).transcript["decisions"] for each in (mean, total))
    assert_allclose(ours, theirs, atol=2e-6)
    assert np.ptp(ours) > 0.6


def test_one_sample_of_a_mean_moves_what_nodes_release_by_no_more_than_the_sensitivity_and_by_nearly_as_much():
    """Ninety-nine samples that stay and one that flips, features far above the clip."""
    batch = 100
    made = dpsda_c(problems.Linear(N), topology.ring(N), budget=Budget(1.0), clip=1.0, batch=batch, reduction="mean")
    learner, bound = made.learner, made.releases[0].sensitivities[0]
    x = np.full((batch, N), 7.0, np.float32)
    other = x.copy()
    other[0] *= -1
    released = [
        [learner.learn(learner.init(i), problems.Block(each, np.zeros(batch)), None).gradient for i in range(N)]
        for each in (x, other)
    ]
    moved = np.abs(np.subtract(*np.asarray(released, np.float64))).sum()
    assert_allclose(moved, 2 * N * N / batch, rtol=1e-4)
    assert moved <= bound.l1 < 2 * N * N / batch * (1 + 2e-4)


def test_a_batch_that_is_protected_as_a_whole_is_clipped_after_its_mean():
    """The clip bounds the mean then, and the noise is that of a sum with the same clip."""
    problem = problems.Linear(N)
    common = {"budget": Budget(1.0), "clip": 1.0, "batch": 4, "unit": "batch"}
    total, mean = (dpsda_c(problem, topology.ring(N), reduction=each, **common) for each in ("sum", "mean"))
    assert total.scales["dual"][0].value == mean.scales["dual"][0].value
    batch = problems.Block(np.full((4, N), 0.5, np.float32), np.zeros(4))
    learnt = [float(each.learner.learn(each.learner.init(0), batch, None).gradient[0]) for each in (total, mean)]
    assert_allclose(learnt, [N * 1.0, N * 0.5], rtol=1e-5)


def test_smoothness_of_a_mean_is_that_of_a_sample_and_counts_in_what_the_published_noise_costs():
    problem = problems.Logistic(N, feature_bound=0.5)
    given = {"budget": Budget(1.0), "clip": 1.0, "unit": "batch", "horizon": 50, "calibration": "published"}
    costs = {
        (batch, reduction): dpsda_c(problem, topology.ring(N), batch=batch, reduction=reduction, **given).guarantee
        for batch, reduction in ((1, "sum"), (8, "mean"), (8, "sum"))
    }
    assert_allclose(costs[8, "mean"].epsilon, costs[1, "sum"].epsilon, rtol=1e-6)
    assert costs[8, "sum"].epsilon > 1.5 * costs[8, "mean"].epsilon


# -- proximal functions ------------------------------------------------------------------------------------------------


def test_a_proximal_function_changes_no_noise_and_no_guarantee_where_duals_are_noised():
    problem = problems.Logistic(N, domain=SIMPLEX)
    given = {"budget": Budget(2.0), "clip": 1.0}
    plain, entropic = (dpsda_c(problem, topology.ring(N), proximal=each, **given) for each in (EUCLIDEAN, Entropy()))
    assert entropic.guarantee == plain.guarantee
    assert entropic.scales == plain.scales
    assert "Entropy" in entropic.describe()


def test_of_a_strangers_proximal_function_nobody_knows_what_the_published_noise_costs():
    """(10) is a property of theirs: without it every message may cost as much as the first."""
    problem = problems.Logistic(N, domain=BOX, feature_bound=0.1)
    given = {"budget": Budget(1.0), "clip": 1.0, "horizon": 50, "calibration": "published"}
    ours, theirs = (
        dpsda_c(problem, topology.ring(N), proximal=each, **given).guarantee for each in (EUCLIDEAN, Centred(1.0))
    )
    assert_allclose(theirs.epsilon, N * 1.0, rtol=1e-4)
    assert ours.epsilon < 0.2 * theirs.epsilon


def test_a_strangers_proximal_function_that_tells_others_what_it_sees_is_refused():
    @dataclass(frozen=True)
    class Talking(Centred):
        def minimizer(self, dual, step, domain):
            jax.debug.print("{}", dual)
            return super().minimizer(dual, step, domain)

    with pytest.raises(PrivacyError, match="speak does more than its program shows"):
        dpsda_c(problems.Logistic(N, domain=BOX), topology.ring(N), proximal=Talking(1.0), budget=Budget(1.0), clip=1.0)


def test_entropy_needs_a_simplex():
    with pytest.raises(ConfigurationError, match=r"domain: got .*; allowed: a Simplex with proximal=Entropy\(\)"):
        dpsda_c(problems.Logistic(N, domain=BOX), topology.ring(N), proximal=Entropy(), noise="none")


@pytest.mark.parametrize(("proximal", "domain"), [(EUCLIDEAN, SIMPLEX), (Entropy(), SIMPLEX), (EUCLIDEAN, BOX)])
def test_our_maps_minimise_and_do_not_expand(proximal, domain):
    """(7), against random members of the set, and (10)."""
    rng = np.random.default_rng(0)
    psi = (
        (lambda x: (x * np.log(np.maximum(x, 1e-30))).sum(-1))
        if proximal == Entropy()
        else (lambda x: (x**2).sum(-1) / 2)
    )
    members = rng.dirichlet(np.ones(N), 2000) if domain is SIMPLEX else rng.uniform(LOW, HIGH, (2000, N))
    for step in (0.1, 1.0, 7.0):
        z, other = rng.normal(size=(2, N)).astype(np.float32)
        x, moved = (np.asarray(proximal.minimizer(jnp.asarray(each), step, domain), np.float64) for each in (z, other))
        value = lambda x, z=z, step=step: x @ z + psi(x) / step  # noqa: E731
        assert value(x) <= value(members).min() + 1e-6
        assert np.linalg.norm(x - moved) <= step * np.linalg.norm(z - other) * (1 + 1e-6)
