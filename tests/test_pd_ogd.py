"""pd_ogd: the scales of its calibrations, what they guarantee, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from gossamer import (
    Budget,
    Clip,
    ConfigurationError,
    PrivacyError,
    algorithms,
    problems,
    sets,
    simulate,
    streams,
    topology,
)
from gossamer.core import Now
from gossamer.privacy import FastNoise, Scale, Unit
from tests import instances
from tests.instances import QUIET

RING = topology.ring(4)
SLACK = 3e-5  # scales are above the formula by the float32 slack of the clip, and never below it


def make(dim=9, **options):
    return algorithms.pd_ogd(problems.Linear(dim), RING, **({"step": 0.1, "clip": 0.5} | options))


def scale(**options):
    return make(**options).scales["gradient"][0].value


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"budget": Budget(2.0)}, 2 * 0.5 * 3 / 2.0),
        ({"budget": Budget(2.0), "clip": Clip(l1=0.5)}, 2 * 0.5 / 2.0),
        ({"budget": Budget(2.0), "noise": "l2-laplace"}, 2 * 0.5 / 2.0),
        ({"budget": Budget(2.0, 1e-3), "noise": "gaussian"}, 2 * 0.5 * 1.44524),
        ({"budget": Budget(2.0), "calibration": "published", "horizon": 100}, 100 * 2 * 0.5 * 3 / 2.0),
    ],
    ids=["laplace", "l1 clip", "l2-laplace", "gaussian", "published"],
)
def test_scales_are_those_of_the_formulas(options, expected):
    """SOUNDNESS 8: 2 G sqrt(d) / epsilon, 2 G_1 / epsilon, 2 G / epsilon, 2 G / mu_star, and T times as much."""
    assert_allclose(scale(**options), expected, rtol=SLACK)


def test_tight_guarantee_is_proven_against_peers_for_ever():
    promise = make(budget=Budget(1.0)).guarantee
    assert (promise.basis, promise.observer, promise.horizon, promise.unit) == ("proven", "peers", None, Unit.SAMPLE)
    assert promise.covers(Budget(1.0))
    assert not promise.covers(Budget(0.999))
    assert all(assumption.enforced for assumption in promise.assumptions)


def test_published_guarantee_says_that_decisions_are_not_private():
    promise = make(budget=Budget(1.0), calibration="published", horizon=50).guarantee
    assert (promise.basis, promise.observer, promise.horizon) == ("published", "wiretap", 50)
    assert "decisions are functions of raw gradients" in promise.sentence()
    assert_allclose(promise.epsilon, 1.0)


def test_every_learner_may_have_its_own_budget():
    budgets = [Budget(1.0), Budget(2.0), Budget(4.0), Budget(0.5)]
    algorithm = make(budget=budgets)
    assert_allclose([one.value for one in algorithm.scales["gradient"]], [3.0, 1.5, 0.75, 6.0], rtol=SLACK)
    assert_allclose(algorithm.guarantee.epsilons, [1.0, 2.0, 4.0, 0.5])
    assert "epsilon 0.5 to 4 (by learner)" in algorithm.guarantee.sentence()
    # and draws noise of its own scale: learner 3's gradients carry 8 times the noise of learner 2's
    run = simulate(algorithm, streams.random_signs(4, 9, seed=0), 400, record=("messages",), **QUIET)
    spread = np.diff(run.transcript["messages"], axis=0).std(axis=(0, 2))
    assert spread[3] > spread[0] > spread[1] > spread[2]


@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.floats(0.01, 50),
    delta=st.floats(1e-12, 0.1),
    clip=st.floats(1e-3, 1e3),
    dim=st.integers(1, 500),
    noise=st.sampled_from(["laplace", "l2-laplace", "gaussian"]),
)
def test_the_guarantee_never_exceeds_the_budget(epsilon, delta, clip, dim, noise):
    budget = Budget(epsilon, delta)
    algorithm = make(dim, budget=budget, clip=clip, noise=noise)
    assert algorithm.guarantee.covers(budget)
    secured = algorithm.releases[0].on_lattice()
    assert all(loss.epsilon(delta) <= epsilon for loss in secured.losses)
    more = Budget(2 * epsilon, delta)
    assert scale(dim=dim, budget=more, clip=clip, noise=noise) < scale(dim=dim, budget=budget, clip=clip, noise=noise)
    assert scale(dim=dim, budget=budget, clip=2 * clip, noise=noise) > scale(
        dim=dim, budget=budget, clip=clip, noise=noise
    )


def test_messages_are_the_noised_step():
    """One learner on its own, one step: x(2) = -eta (clip(g) + noise)."""
    algorithm = algorithms.pd_ogd(problems.Linear(3), topology.isolated(1), budget=Budget(1.0), clip=1.0, step=0.25)
    stream = instances.Given(np.full((1, 1, 3), 2.0, np.float32), np.zeros((1, 1), np.int32))
    run = simulate(algorithm, stream, 1, record=("messages",), **QUIET)
    draw = FastNoise(0).draw("gradient", algorithm.learner.noise["gradient"], algorithm.scales_of("gradient"), 0, 1)
    clipped = np.full(3, 1 / math.sqrt(3))
    assert_allclose(run.transcript["messages"][0, 0], -0.25 * (clipped + draw[0, 0]), rtol=1e-5)
    assert isinstance(algorithm.scales_of("gradient")[0], Scale)


def test_what_is_played_is_what_was_sent():
    """Tight: the next decision is the last message, bit for bit. Nothing else is ever played."""
    options = {"record": ("messages", "decisions"), "every": 1} | QUIET
    run = simulate(make(budget=Budget(1.0)), streams.random_signs(4, 9, seed=0), 30, **options)
    np.testing.assert_array_equal(run.transcript["decisions"][1:], run.transcript["messages"][:-1])


@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_everything_that_leaves_depends_on_gradient_plus_noise_only(l2):
    """Shift the raw gradient one way and the noise the other: message and released fields stay as they are."""
    problem = problems.Logistic(9, l2=l2, domain=sets.L2Ball(2.0))
    learner = algorithms.pd_ogd(problem, RING, budget=Budget(1.0), clip=1.0).learner
    rng = np.random.default_rng(0)
    gradient, noise, shift, x = (jnp.asarray(rng.normal(size=9), jnp.float32) for _ in range(4))
    state = learner.init(jnp.int32(0))._replace(x=x / 4, heard=x / 8)
    said = []
    for moved in (0.0, 1.0):
        now = Now({"step": jnp.float32(0.1)}, {"gradient": noise - moved * shift}, {"gradient": jnp.float32(0)})
        message, after = learner.speak(state._replace(gradient=gradient + moved * shift), now)
        said.append([message, *(getattr(after, field) for field in sorted(learner.released))])
    for one, other in zip(*said, strict=True):
        assert_allclose(one, other, atol=1e-6)
    now = Now({"step": jnp.float32(0.1)}, {"gradient": noise}, {"gradient": jnp.float32(0)})
    assert not np.allclose(learner.speak(state._replace(gradient=gradient + shift), now)[0], said[0][0], atol=1e-3)


def test_a_simulated_guarantee_says_so():
    algorithm, stream = make(budget=Budget(1.0)), streams.random_signs(4, 9, seed=0)
    assert simulate(algorithm, stream, 3, **QUIET).guarantee.sentence().endswith("; as if run with secure noise.")
    several = simulate(algorithm, stream, 3, seeds=[1, 2], progress=False).guarantee.sentence()
    assert several.endswith("; as if run with secure noise; each seed for itself.")


@pytest.mark.parametrize(
    ("noise", "epsilon"), [("laplace", 1.0), ("l2-laplace", 2.0), ("gaussian", 0.1), ("gaussian", 8.0)]
)
def test_a_secured_algorithm_keeps_its_budget(noise, epsilon):
    budgets = [Budget(epsilon, 1e-6), Budget(2 * epsilon, 1e-5), Budget(epsilon, 1e-7), Budget(epsilon, 1e-6)]
    secured = make(budget=budgets, noise=noise).secured()
    assert secured.guarantee.covers(budgets)
    assert 0 < secured.guarantee.sampler_error < 1e-12
    assert all(scale.grid > 0 for scale in secured.scales["gradient"])


def test_a_delta_that_the_sampler_alone_uses_up_is_refused():
    with pytest.raises(PrivacyError, match="delta: got 1e-15; allowed: a larger delta for secure noise"):
        make(budget=Budget(8.0, 1e-15), noise="gaussian").secured()


def test_draws_with_one_name_are_refused():
    algorithm = make(budget=Budget(1.0))
    quiet = algorithm.learner.mechanism.at_scale(gradient=1e-9)
    with pytest.raises(ConfigurationError, match="draws with different names"):
        replace(algorithm, releases=(*algorithm.releases, quiet))


def test_published_messages_are_noised_and_decisions_are_not():
    options = {"budget": Budget(1.0), "clip": 1.0, "step": 0.25, "horizon": 2, "calibration": "published"}
    algorithm = algorithms.pd_ogd(problems.Linear(3), topology.isolated(1), **options)
    stream = instances.Given(np.full((2, 1, 3), 0.1, np.float32), np.zeros((2, 1), np.int32))
    run = simulate(algorithm, stream, 2, record=("messages", "decisions"), **QUIET)
    draws = FastNoise(0).draw("gradient", algorithm.learner.noise["gradient"], algorithm.scales_of("gradient"), 0, 2)
    assert_allclose(run.transcript["decisions"][1, 0], np.full(3, -0.025), rtol=1e-5)
    assert_allclose(run.transcript["messages"][0, 0], -0.025 + 0.25 * draws[0, 0], rtol=1e-5)


def test_records_that_repeat_cost_more_and_the_run_says_so():
    x, y = np.ones((8, 9), np.float32), np.zeros(8, np.int32)
    stream = streams.from_arrays(x, y, 4, seed=0, passes=3)
    run = simulate(make(budget=Budget(1.0)), stream, 6, **QUIET)
    assert run.guarantee.occurrences == 3
    assert_allclose(run.guarantee.per_record().epsilon, 3.0)
    gaussian = make(budget=Budget(1.0, 1e-5), noise="gaussian").guarantee
    (mu,), (three,) = ([loss.mu for loss in g.losses] for g in (gaussian, gaussian.for_stream(3).per_record()))
    assert_allclose(three, math.sqrt(3) * mu)  # three releases, each of one occurrence: they compose
    assert "per record, which occurs up to 3 times, epsilon 3" in run.guarantee.sentence()


def test_default_step_knows_the_noise():
    ball = problems.Linear(9, domain=sets.L2Ball(1.0))
    rate = algorithms.pd_ogd(ball, RING, budget=Budget(2.0), clip=0.5).public["step"]
    assert_allclose(rate.scale, 2 / math.sqrt(0.5**2 + 2 * 9 * 1.5**2), rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"budget": Budget(1.0), "clip": None}, PrivacyError, "clip: got None"),
        ({"budget": Budget(1.0), "noise": "gaussian"}, PrivacyError, "delta: got 0.0; allowed: a positive delta"),
        ({"budget": Budget(1.0), "calibration": "published"}, PrivacyError, "horizon: got None"),
        ({"budget": Budget(1e-320)}, PrivacyError, "scale of gradient: got inf"),
        ({"budget": 1.0}, PrivacyError, "budget: got 1.0; allowed: one Budget"),
        ({"budget": [Budget(1.0)] * 3}, PrivacyError, "budget: got 3 budgets"),
        ({"budget": Budget(1.0), "clip": 0.0}, ConfigurationError, "clip: got 0.0"),
        ({"budget": Budget(1.0), "noise": "cauchy"}, ConfigurationError, "noise: got 'cauchy'"),
        ({"budget": Budget(1.0), "calibration": "loose"}, ConfigurationError, "calibration: got 'loose'"),
        ({"budget": Budget(1.0), "horizon": 0}, ConfigurationError, "horizon: got 0"),
        (
            {"budget": Budget(1.0, 0.1), "calibration": "published", "horizon": 9, "noise": "gaussian"},
            ConfigurationError,
            "The paper has no other",
        ),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        make(**options)


def test_published_noise_does_not_cover_regularisation():
    """l2 times a raw decision is in the gradient, and nothing clips it."""
    problem = problems.LeastSquares(9, l2=0.1)
    with pytest.raises(PrivacyError, match=r"l2: got 0\.1; allowed: 0 with calibration='published'"):
        algorithms.pd_ogd(problem, RING, budget=Budget(1.0), clip=1.0, step=0.1, horizon=9, calibration="published")


class Refusing(FastNoise):
    """Nothing may be drawn."""

    def draw(self, *args):
        raise AssertionError("noise was drawn")


@pytest.mark.parametrize("calibration", ["tight", "published"])
def test_a_run_past_the_horizon_is_refused_before_any_noise_is_drawn(calibration):
    algorithm = make(budget=Budget(1.0), horizon=10, calibration=calibration)
    stream = streams.random_signs(4, 9, seed=0)
    simulate(algorithm, stream, 10, **QUIET)
    with pytest.raises(PrivacyError, match="steps: got 11; allowed: at most the horizon of 10"):
        simulate(algorithm, stream, 11, noise=Refusing, **QUIET)


def test_the_horizon_of_a_mechanism_holds_whatever_the_guarantee_says():
    algorithm = make(budget=Budget(1.0), horizon=10)
    endless = replace(algorithm, guarantee=replace(algorithm.guarantee, horizon=None))
    with pytest.raises(PrivacyError, match="horizon: 11 releases were asked for"):
        simulate(endless, streams.random_signs(4, 9, seed=0), 11, noise=Refusing, **QUIET)


def test_a_common_batch_is_not_one_sample_of_one_learner():
    stream = streams.common(np.zeros((20, 9), np.float32))
    with pytest.raises(PrivacyError, match="one batch common to all learners"):
        simulate(make(budget=Budget(1.0)), stream, 5, noise=Refusing, **QUIET)
