"""Rates of `online_federated` that paper 001 states, and noise that must fail the same check.

The full tables are printed by `python -m bench.federated`; these are smaller runs of the same measurements. Streams and
seeds are fixed, so the results do not vary.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench import loops
from bench.federated import (
    INDEPENDENT,
    MIXED,
    STATIC,
    TAU,
    THEOREM,
    Claim,
    federation,
    least_squares,
    measure,
    regrets,
    replay,
    wave,
)
from gossamer import Budget, FastNoise, algorithms, problems, simulate, streams
from tests.instances import QUIET

pytestmark = pytest.mark.unoptimized

ROUNDS, SEEDS = (250, 4_000), 64


@pytest.fixture(scope="module")
def curves():
    """By claim, each on one problem: correlated noise is compiled again for every R, independent noise is not."""
    return {claim.name: measure(least_squares(), claim, ROUNDS, SEEDS) for claim in (THEOREM, INDEPENDENT, MIXED)}


def at_rate(curve, claim: Claim) -> bool:
    """Whether what noise adds falls like R^-2/3, or R^-1/2: within 0.07, which three standard errors are below."""
    power, error = curve.noise_exponent
    assert 3 * error < 0.07
    return abs(power - {"IV.10": -2 / 3, "IV.11": -1 / 2}[claim.name]) < 0.07


@pytest.mark.parametrize("claim", [THEOREM, INDEPENDENT], ids=["correlated", "independent"])
def test_regret_falls_at_the_rate_that_is_stated(curves, claim):
    curve = curves[claim.name]
    assert (curve.noise_share > 0.7).all()
    assert at_rate(curve, claim)
    assert curve.total_exponent[0] < -0.4


def test_noise_that_does_not_cancel_fails_the_same_check(curves):
    """Independent noise with the step for correlated noise: R^-1/3, with logarithms."""
    assert not at_rate(curves[MIXED.name], THEOREM)
    assert (curves[MIXED.name].mean > 2 * curves[THEOREM.name].mean).all()


@pytest.mark.parametrize("claim", [THEOREM, INDEPENDENT], ids=["correlated", "independent"])
def test_regret_is_below_the_bound_with_its_constants(curves, claim):
    assert (curves[claim.name].mean < curves[claim.name].bounds).all()


def test_static_regret_is_below_its_bound():
    """Corollary IV.12, with targets that move: the best fixed decision loses the square of the moves."""
    case, rounds = replace(least_squares(distance=0.1), moves=0.3), 250
    made = federation(case, rounds, STATIC.step(rounds), STATIC.noise)
    found = regrets(case, made, rounds, 8).mean() - 0.3**2
    start, variation = 2 * 0.1**2, rounds * case.variation
    losses = {"mu": case.mu, "smoothness": case.smooth, "start": start, "variation": variation}
    stated = made.theoretical_bound(regret="static", **losses) / (rounds * TAU)
    assert 0.005 * stated < found < stated < made.theoretical_bound(**losses) / (rounds * TAU)


def test_the_steps_are_within_what_the_bounds_allow():
    for case in (least_squares(), wave()):
        assert all(claim.step(250) <= case.alpha / (8 * case.smooth) for claim in (THEOREM, INDEPENDENT))


def test_a_second_implementation_gives_the_same_regret(curves):
    """Eq. (2) in NumPy with the same draws; hardly a gradient is clipped: Assumption IV.2 holds on the path."""
    case, rounds = least_squares(), ROUNDS[0]
    squares, clipped = replay(case, federation(case, rounds, THEOREM.step(rounds), "blt"), rounds, SEEDS)
    assert squares / case.problem.dim == pytest.approx(curves[THEOREM.name].mean[0], rel=1e-4)
    assert clipped < 1e-4


def test_the_loop_of_the_benchmark_does_what_the_simulator_does():
    """Noise of the Toeplitz square root, made by FFT from the same draws; the clip is active."""
    rounds, tau, learners, dim, clip = 30, 4, 3, 5, 0.4
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rounds * tau * learners, dim)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int32)
    algorithm = algorithms.online_federated(
        problems.Logistic(dim),
        learners,
        horizon=rounds * tau,
        steps_per_exchange=tau,
        budget=Budget(2.0, 1e-3),
        clip=clip,
        step=0.05,
        aggregation="toeplitz",
    )
    stream = streams.from_arrays(x, y, learners, seed=0, shuffle=False)
    run = simulate(algorithm, stream, rounds * tau, measure="local", every=1, **QUIET)
    draws = FastNoise(0).draw(
        "gradient", algorithm.learner.noise["gradient"], algorithm.scales_of("gradient"), 0, rounds
    )
    noise = np.stack([loops.correlate(one.reshape(-1, dim).T).T for one in draws], axis=1)
    shape = rounds, tau, learners
    losses = loops.federated_logreg(
        x.reshape(*shape, dim), y.reshape(shape).astype(np.float32), 0.05, clip, iter(noise)
    )
    assert np.ptp(losses) > 0.3  # they learn, so that equal losses say something
    np.testing.assert_allclose(losses, run.losses, rtol=1e-4, atol=1e-4)
