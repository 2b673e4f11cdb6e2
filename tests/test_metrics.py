"""Regrets by hand on tiny cases, and comparators against other solvers."""

from __future__ import annotations

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import optimize

from gossamer import ConfigurationError, GossamerError, metrics, problems, sets, simulate, streams
from gossamer.metrics import descent, solver
from gossamer.privacy.clip import norm_slack
from gossamer.problems import Block
from tests import instances
from tests.instances import QUIET

pytestmark = pytest.mark.unoptimized


def rows(stream, steps, start=0):
    block = stream.read(start, steps)
    return Block(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in block))


def mean_loss(problem, w, block):
    return float(jnp.mean(problem.losses(jnp.asarray(w, jnp.float32), block)))


# -- comparators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", [sets.Everywhere(), sets.L2Ball(0.5), sets.Box(-0.3, 0.2, dim=5), sets.L1Ball(0.7)])
@pytest.mark.parametrize("kind", [problems.Logistic, problems.LeastSquares])
def test_best_decision_agrees_with_scipy(kind, domain):
    problem = kind(5, l2=0.05, domain=domain)
    stream = instances.stream(steps=40)
    if kind is problems.LeastSquares:
        stream.y = stream.y.astype(np.float32)
    best = metrics.best_decision(problem, stream, 40, tolerance=1e-9)
    block = rows(stream, 40)
    x, y = block.x.astype(np.float64), block.y.astype(np.float64)

    def loss(w):
        score = x @ w
        data = np.logaddexp(0, score) - y * score if kind is problems.Logistic else (score - y) ** 2
        return data.mean() + 0.025 * w @ w

    constraints, bounds = (), None
    if isinstance(domain, sets.L2Ball):
        constraints = {"type": "ineq", "fun": lambda w: 0.25 - w @ w}
    if isinstance(domain, sets.Box):
        bounds = [(-0.3, 0.2)] * 5
    if isinstance(domain, sets.L1Ball):
        constraints = {"type": "ineq", "fun": lambda w: 0.7 - np.abs(w).sum()}
    found = optimize.minimize(loss, np.zeros(5), method="SLSQP", bounds=bounds, constraints=constraints,
                              options={"ftol": 1e-12, "maxiter": 500})  # fmt: skip
    assert_allclose(best.loss, found.fun, atol=3e-6)
    assert_allclose(best.loss, loss(best.decision), atol=1e-12)
    assert -1e-15 <= best.gap <= 1e-9


def test_without_bounds_and_l2_there_is_no_certificate():
    assert np.isnan(metrics.best_decision(problems.Logistic(5), instances.stream(), 200, tolerance=1e-4).gap)


def random_rows(samples, dim, labels=None):
    """One step of as many learners as samples, with features longer than 1."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=samples).astype(np.float32) if labels is None else np.asarray(labels)
    return streams.from_arrays(rng.normal(size=(samples, dim)), y, samples, seed=0, shuffle=False)


@pytest.mark.parametrize(("samples", "l2"), [(12, 0.0), (12, 0.1), (30, 0.0)])
def test_least_squares_are_solved_as_equations(samples, l2, monkeypatch):
    """With fewer and with more samples than dimensions; without equations the search finds the same."""
    problem, stream = problems.LeastSquares(20, l2=l2, feature_bound=2.0), random_rows(samples, 20)
    best = metrics.best_decision(problem, stream, 1, iterations=0)
    x, y = (leaf.astype(np.float64) for leaf in rows(stream, 1))
    x *= np.minimum(1, 2.0 / (1 + norm_slack(20)) / np.linalg.norm(x, axis=1))[:, None]
    tall = np.vstack([x, np.sqrt(samples * l2 / 2) * np.eye(20)])
    expected = np.linalg.pinv(tall) @ np.append(y, np.zeros(20))
    assert_allclose(best.decision, expected, atol=1e-6)
    assert_allclose(best.loss, np.mean((x @ expected - y) ** 2) + l2 / 2 * expected @ expected, atol=1e-12)
    assert np.isnan(best.gap) if (samples, l2) == (30, 0.0) else 0 <= best.gap < 1e-12
    monkeypatch.setattr(solver, "_SOLVED", 0)
    searched = metrics.best_decision(problem, stream, 1)
    assert searched.decision.tolist() != best.decision.tolist()
    assert best.loss - 1e-12 <= searched.loss <= best.loss + 1e-6


def test_the_infimum_of_separable_samples_is_zero_to_the_tolerance(monkeypatch):
    """80 samples in 100 dimensions, as in paper 001: every labelling can be separated, and no decision is best."""
    labels = np.random.default_rng(1).integers(0, 2, 80)
    problem, stream = problems.Logistic(100, feature_bound=1.0), random_rows(80, 100, labels)
    best = metrics.best_decision(problem, stream, 1, tolerance=1e-6, iterations=0)
    assert 0 < best.loss == best.gap <= 1e-6
    assert_allclose(mean_loss(problem, best.decision, rows(stream, 1)), best.loss, rtol=1e-3)
    monkeypatch.setattr(solver, "_SOLVED", 0)
    searched = metrics.best_decision(problem, stream, 1, tolerance=1e-6)  # the norm of the gradient is small before
    assert np.isnan(searched.gap)
    assert searched.loss < 1e-4


def test_samples_that_contradict_each_other_cannot_be_separated():
    x, y = np.ones((2, 3), np.float32), np.array([0, 1])
    best = metrics.best_decision(problems.Logistic(3), streams.from_arrays(x, y, 2, seed=0), 1)
    assert_allclose(best.loss, np.log(2), rtol=1e-9)
    assert np.isnan(best.gap)


def test_best_decision_in_a_trace_norm_ball_has_an_exact_certificate():
    problem = problems.Softmax(3, 4, domain=sets.TraceNormBall(2.0, (4, 3)))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    stream = streams.from_arrays(x, np.argmax(x @ rng.normal(size=(3, 4)), axis=1), 3, seed=0)
    best = metrics.best_decision(problem, stream, 20, tolerance=1e-6)
    block = rows(stream, 20)
    gradient = np.zeros((4, 3))
    for a, label in zip(block.x.astype(np.float64), block.y, strict=True):
        scores = best.decision.reshape(4, 3) @ a
        chances = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        gradient += np.outer(chances - np.eye(4)[label], a) / len(block.y)
    # The exact Frank-Wolfe gap, from a full singular value decomposition.
    exact = np.vdot(gradient, best.decision) + 2.0 * np.linalg.svd(gradient, compute_uv=False)[0]
    assert_allclose(best.gap, exact, atol=1e-9)
    assert 0 <= exact <= 1e-6


def test_best_linear_decision_is_the_extreme_point():
    problem = problems.Linear(4, domain=sets.Simplex())
    stream = streams.random_signs(3, 4, seed=5)
    best = metrics.best_decision(problem, stream, 50)
    totals = rows(stream, 50).x.mean(axis=0, dtype=np.float64)
    assert best.decision.argmax() == totals.argmin()
    assert_allclose(best.loss, totals.min(), rtol=1e-12)


def test_comparators_that_cannot_be_had_are_refused():
    stream = instances.stream()
    with pytest.raises(ConfigurationError, match="a convex problem with a smooth loss"):
        metrics.best_decision(problems.Hinge(5), stream, 10)
    with pytest.raises(ConfigurationError, match="a bounded set"):
        metrics.best_decision(problems.Linear(5), stream, 10)
    with pytest.raises(GossamerError, match=r"reached an accuracy of .* in 2 iterations, and 1e-09 was asked for"):
        metrics.best_decision(instances.problem(), stream, 200, tolerance=1e-9, iterations=2)


# -- comparators of many prefixes --------------------------------------------------------------------------------------

GRID = (40, 3, 17, 18, 3)


@pytest.mark.parametrize("domain", [sets.Everywhere(), sets.L2Ball(0.5), sets.Box(-0.3, 0.2, dim=5)])
@pytest.mark.parametrize("l2", [0.0, 0.05])
@pytest.mark.parametrize("kind", [problems.Logistic, problems.LeastSquares, problems.Linear])
def test_one_search_finds_what_separate_searches_find(kind, l2, domain):
    problem, stream = kind(5, l2=l2, feature_bound=1.5, domain=domain), instances.stream(steps=40)
    if kind is problems.Linear and not l2 and isinstance(domain, sets.Everywhere):  # it has no minimum
        with pytest.raises(ConfigurationError, match="a bounded set"):
            metrics.best_decisions(problem, stream, GRID)
        return
    if kind is problems.LeastSquares:
        stream.y = stream.y.astype(np.float32)
    found = metrics.best_decisions(problem, stream, GRID, tolerance=1e-7)
    for steps, best in zip(GRID, found, strict=True):
        alone = metrics.best_decision(problem, stream, steps, tolerance=1e-7)
        assert_allclose(best.loss, alone.loss, atol=1e-7)
        assert np.isnan(best.gap) == np.isnan(alone.gap)
        assert np.isnan(best.gap) or -1e-15 <= best.gap <= 1e-7
        assert_allclose(mean_loss(problem, best.decision, rows(stream, steps)), best.loss, atol=1e-6)


def test_prefixes_longer_than_one_piece_are_whole():
    problem, stream = problems.Logistic(3, l2=0.1), streams.smooth_cycle_logistic(7, 3, seed=0)
    steps = [1, 36, 37, 73, 74, 1200]  # pieces of 263 samples, 7 in a step
    for best, end in zip(metrics.best_decisions(problem, stream, steps, tolerance=1e-9), steps, strict=True):
        assert_allclose(best.loss, metrics.best_decision(problem, stream, end, tolerance=1e-9).loss, atol=1e-9)


def test_one_program_is_compiled_for_all_prefixes():
    problem, stream = problems.Logistic(4, l2=0.1), streams.smooth_cycle_logistic(3, 4, seed=0)
    before = descent.minimize._cache_size()
    metrics.best_decisions(problem, stream, range(1, 40))
    assert descent.minimize._cache_size() == before + 1


def test_prefixes_of_samples_that_can_be_separated():
    """One sample a step in 20 dimensions: the first 20 fit, and the rest, labelled at random, soon do not."""
    stream = random_rows(60, 20, np.random.default_rng(1).integers(0, 2, 60))
    stream = streams.from_arrays(*rows(stream, 1), 1, seed=0, shuffle=False)
    small, large = metrics.best_decisions(problems.Logistic(20, feature_bound=1.0), stream, [20, 60])
    assert 0 < small.loss == small.gap <= 1e-6
    assert np.isnan(large.gap)
    assert large.loss == pytest.approx(
        metrics.best_decision(problems.Logistic(20, feature_bound=1.0), stream, 60).loss, abs=1e-6
    )


def test_few_rows_of_least_squares_keep_all_digits():
    """A feature of size 1e-9 explains the targets: in sums of products it would be lost beside the others."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3)).astype(np.float32) * np.array([1, 1, 1e-9], np.float32)
    stream = streams.from_arrays(x, 1e9 * x[:, 2], 1, seed=0, shuffle=False)
    for best in metrics.best_decisions(problems.LeastSquares(3), stream, [2, 10, 50]):
        assert best.loss < 1e-9


def test_another_loss_than_that_of_least_squares_is_not_reduced():
    class Double(problems.LeastSquares):
        def _link(self, score, y):
            return 2 * super()._link(score, y) + jnp.square(score) ** 2

    stream = random_rows(30, 4)
    best = metrics.best_decisions(Double(4, l2=0.1), stream, [1])[0]
    assert_allclose(best.loss, metrics.best_decision(Double(4, l2=0.1), stream, 1).loss, atol=1e-6)
    assert_allclose(best.loss, mean_loss(Double(4, l2=0.1), best.decision, rows(stream, 1)), rtol=1e-5)


def test_prefixes_that_cannot_be_had_are_refused():
    problem, stream = problems.Logistic(5, l2=0.1), instances.stream()
    with pytest.raises(ConfigurationError, match="at: got 0; allowed: numbers of steps of at least 1"):
        metrics.best_decisions(problem, stream, [5, 0])
    with pytest.raises(ConfigurationError, match="a convex problem with a smooth loss"):
        metrics.best_decisions(problems.Hinge(5), stream, [5])
    with pytest.raises(ConfigurationError, match="a bounded set"):
        metrics.best_decisions(problems.Linear(5), stream, [5])
    with pytest.raises(GossamerError, match="raise iterations or tolerance"):
        metrics.best_decisions(problem, stream, [5, 9], tolerance=1e-9, iterations=2)
    assert metrics.best_decisions(problem, stream, []) == []


# -- regrets -----------------------------------------------------------------------------------------------------------


def test_static_regret_is_average_loss_less_the_best():
    stream = instances.stream()
    run = simulate(instances.algorithm("d_ogd"), stream, 60, every=10, **QUIET)
    regret = metrics.static_regret(run, instances.problem(), stream, at=[20, 60])
    for row, steps in zip(regret, (20, 60), strict=True):
        best = metrics.best_decision(instances.problem(), stream, steps).loss
        assert_allclose(row, run.losses[: steps // 10].mean(axis=0) - best, atol=1e-6)
    assert_allclose(metrics.static_regret(run, instances.problem(), stream), regret[1:], atol=1e-6)


def test_static_regret_takes_any_grid_of_recorded_steps():
    """In the order given; the comparators of several seeds are the same."""
    stream, problem = instances.stream(), instances.problem()
    run = simulate(instances.algorithm("noisy_ogd"), stream, 60, every=10, seeds=[0, 1], progress=False)
    curve = metrics.static_regret(run, problem, stream, at=run.steps)
    assert curve.shape == (2, 6, 5)
    assert_allclose(metrics.average_loss(run)[1] - metrics.average_loss(run)[0], curve[1] - curve[0], atol=1e-12)
    for at in ([60, 20, 20], np.array([60, 20, 20], np.int32), np.array([60.0, 20.0, 20.0])):
        found = metrics.static_regret(run, problem, stream, at=at)
        assert_allclose(found, curve[:, [5, 1, 1]], atol=1e-6)
    assert_allclose(metrics.static_regret(run, problem, stream, at=range(10, 31, 10)), curve[:, :3], atol=1e-6)
    assert_allclose(metrics.static_regret(run, problem, stream, at=30), curve[:, 2:3], atol=1e-6)
    assert metrics.static_regret(run, problem, stream, at=[]).shape == (2, 0, 5)


def test_before_the_first_sample_there_is_nothing_to_regret():
    run = SimpleNamespace(steps=np.array([0, 10]), losses=np.array([[np.nan], [0.5]]), measure="global")
    regret = metrics.static_regret(run, problems.Logistic(5, l2=0.1), instances.stream(), at=run.steps)
    assert regret[0].tolist() == [0.0]
    assert np.isfinite(regret).all()


def test_regret_at_a_step_that_was_not_recorded_is_refused():
    stream = instances.stream()
    run = simulate(instances.algorithm("d_ogd"), stream, 60, every=10, **QUIET)
    for step, nearest in ((15, "are 10 and 20"), (3, "is 10"), (61, "is 60"), (10.5, "are 10 and 20")):
        with pytest.raises(
            ConfigurationError, match=f"at: got {step}; allowed: the end of a recorded row: .* {nearest}"
        ):
            metrics.static_regret(run, instances.problem(), stream, at=[20, step])
    for grid in (run.steps > 20, [[10, 20]], "all"):
        with pytest.raises(ConfigurationError, match=r"allowed: a list of steps\. Use at=run\.steps"):
            metrics.static_regret(run, instances.problem(), stream, at=grid)


def test_regret_of_local_losses_is_refused():
    stream = instances.stream()
    run = simulate(instances.algorithm("d_ogd"), stream, 20, measure="local", **QUIET)
    with pytest.raises(ConfigurationError, match=r"measure: got 'local'; allowed: 'global' or 'joint'"):
        metrics.static_regret(run, instances.problem(), stream)


def test_dynamic_regret_compares_every_row_with_its_own_best():
    stream = instances.stream()
    run = simulate(instances.algorithm("online_federated"), stream, 12, every=1, **QUIET)
    best = [metrics.best_decision(instances.problem(), stream, s, start=s - 4).loss for s in (4, 8, 12)]
    expected = np.cumsum(run.losses - np.array(best)[:, None], axis=0) / np.arange(1, 4)[:, None]
    assert_allclose(metrics.dynamic_regret(run, instances.problem(), stream), expected, rtol=1e-9)
    assert (metrics.dynamic_regret(run, instances.problem(), stream)[-1] >= expected[-1] - 1e-9).all()


def test_pseudo_regret_of_decisions_and_of_their_average():
    problem = problems.LeastSquares(3, domain=sets.Box(-5.0, 5.0, dim=3))
    stream = streams.linear_regression(3, seed=0)
    rng = np.random.default_rng(0)
    decisions = rng.normal(size=(4, 25, 3)).astype(np.float32)
    block = stream.read(0, 25)
    losses = [(block.x[t, 0] @ decisions[s, t] - block.y[t, 0]) ** 2 for s in range(4) for t in range(25)]
    best = metrics.best_decision(problem, stream, 25).loss
    assert_allclose(metrics.pseudo_regret(decisions, problem, stream), np.mean(losses) - best, rtol=1e-5)
    average = metrics.running_average(decisions)
    assert_allclose(average[2, 9], decisions[2, :10].mean(axis=0), rtol=1e-5)
    assert metrics.pseudo_regret(average, problem, stream) < metrics.pseudo_regret(decisions, problem, stream)


def test_tracking_error_and_instantaneous_regret():
    problem, stream, at = problems.Logistic(5, l2=0.1), instances.stream(), [10, 50]
    decisions = np.random.default_rng(0).normal(size=(2, 5, 5))
    errors = metrics.tracking_error(decisions, problem, stream, at)
    regrets = metrics.instantaneous_regret(decisions.astype(np.float32), problem, stream, at)
    for row, t in enumerate(at):
        best = metrics.best_decision(problem, stream, t, tolerance=1e-8)
        both = 2 * np.sqrt(2 * 1e-8 / 0.1)  # how far two optima of this tolerance and l2 can be apart
        assert_allclose(np.sqrt(errors[row]), np.linalg.norm(decisions[row] - best.decision, axis=1), atol=both)
        losses = [mean_loss(problem, w, rows(stream, t)) for w in decisions[row]]
        assert_allclose(regrets[row], np.array(losses) - best.loss, atol=1e-6)
    assert (regrets > 0).all()
    # Strong convexity ties the two together: F(w) - F* >= l2/2 |w - w*|^2.
    assert (regrets >= 0.05 * errors - 1e-6).all()


def test_expert_regret_is_against_the_best_single_expert():
    stream = streams.random_signs(2, 3, seed=0)
    losses = stream.read(0, 5000).x
    run = SimpleNamespace(steps=np.array([5000]), losses=np.array([[0.25, 0.5]]), measure="local")
    with pytest.raises(ConfigurationError, match="measure: got 'global'"):
        metrics.expert_regret(SimpleNamespace(**(vars(run) | {"measure": "global"})), stream)
    best = losses.mean(axis=(0, 1), dtype=np.float64).min()
    assert_allclose(metrics.expert_regret(run, stream), [0.25 - best, 0.5 - best], rtol=1e-6)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(widths=st.lists(st.integers(1, 9), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_average_loss_weighs_rows_by_their_steps(widths, seed):
    losses = np.random.default_rng(seed).normal(size=(len(widths), 2))
    run = SimpleNamespace(steps=np.cumsum(widths), losses=losses, measure="global")
    flat = np.repeat(losses, widths, axis=0)
    expected = np.array([flat[:stop].mean(axis=0) for stop in np.cumsum(widths)])
    assert_allclose(metrics.average_loss(run), expected, rtol=1e-9, atol=1e-12)
