"""Measured regret of PD-FTGL and PD-OCG against the bounds that they state, and what must fail the same check.

The full tables are printed by `python -m bench.blocks`; these are parts of them. Streams and
seeds are fixed, so the results do not vary.
"""

from __future__ import annotations

import numpy as np
import pytest

from bench import loops
from bench.blocks import CASES, FAST, SLOW, below, exponent, first_below, means, of_zero, worst
from bench.workloads import LETTER, letter_setting, letter_stream, private_letter
from gossamer import FastNoise, simulate

SEEDS = 2
BY_NAME = {case.name: case for case in CASES}
TOO_LATE = ("3.11: pd_ocg, strongly convex", "ours: pd_ocg, strongly convex")
"""Their bounds are above the trivial one at small T: nothing can be above them there, and nothing is shown."""
NEEDS_LONG = ("3.8: pd_ftgl, strongly convex", "3.10: pd_ocg")
SHOWN = [name for name in BY_NAME if name not in TOO_LATE]


@pytest.mark.parametrize("name", SHOWN)
def test_regret_is_below_the_bound_and_grows_at_its_rate(name):
    case = BY_NAME[name]
    regrets = worst(case, case.horizons[:2], SEEDS)
    bounds = {steps: case.bound(steps) for steps in regrets}
    assert all(bounds[steps] < case.trivial(steps) for steps in regrets)
    assert below(regrets, case.bound)
    assert abs(exponent(means(regrets)) - exponent(bounds)) < 0.1


@pytest.mark.parametrize("name", SHOWN)
def test_playing_zero_fails_the_same_check(name):
    case = BY_NAME[name]
    assert not below(of_zero(case, case.horizons[-1:], SEEDS), case.bound)


@pytest.mark.parametrize("name", [name for name in SHOWN if name != "ours: pd_ocg"])
def test_a_step_ten_times_too_small_fails_the_same_check(name):
    """Our bound for pd_ocg is mostly what an inexact minimum may cost: at T = 3,000,000 it hides even this step."""
    case = BY_NAME[name]
    steps = case.horizons[-1] if name in NEEDS_LONG else case.horizons[1]
    assert not below(worst(case, [steps], SEEDS, **SLOW), case.bound)


def test_a_step_ten_times_too_large_fails_the_same_check():
    """Only our bound with long blocks is sharp enough to show it: the others count what linear losses never cost."""
    case = BY_NAME["ours: pd_ftgl, L=16"]
    assert not below(worst(case, case.horizons[:1], SEEDS, **FAST), case.bound)


@pytest.mark.parametrize("name", TOO_LATE)
def test_bounds_of_strongly_convex_conditional_gradients_come_late(name):
    case = BY_NAME[name]
    assert case.bound(case.horizons[0]) > case.trivial(case.horizons[0])
    assert first_below(case) > 500_000


def test_the_numpy_loop_of_the_benchmark_does_what_the_simulator_does():
    """With the same noise; 50 blocks of 8. Decisions go through another decomposition in float32."""
    steps, block = 400, 8
    algorithm, stream = private_letter(block, steps), letter_stream()
    run = simulate(algorithm, stream, steps, seed=3, every=1, progress=False)
    spec, scales = algorithm.learner.noise["gradient"], algorithm.scales_of("gradient")
    draws = iter(np.moveaxis(FastNoise(3).draw("gradient", spec, scales, 0, steps // block), 1, 0))
    samples = stream.read(0, steps)
    losses, decisions = loops.pd_ftgl(
        samples.x,
        samples.y,
        LETTER.classes,
        letter_setting(algorithm),
        lambda: next(draws).reshape(-1, LETTER.classes, LETTER.features),
    )
    by_block = losses.reshape(-1, block, losses.shape[1]).mean(axis=1)
    assert np.ptp(by_block) > 0.1
    np.testing.assert_allclose(by_block, run.losses, atol=1e-5)
    np.testing.assert_allclose(decisions.reshape(run.decisions.shape), run.decisions, atol=1e-4)
