"""Rates of regret that the algorithms must have, and that a wrong step schedule must not.

The full tables are printed by `python -m bench.regret`; these are smaller runs of the same measurements. Streams and
seeds are fixed, so the results do not vary.
"""

from __future__ import annotations

import pytest

from bench.regret import BALL, LOGISTIC, STRONGLY_CONVEX, WRONG_STEPS, mirrored, ring, signs, slope, smooth_cycle
from gossamer import Rate, algorithms, simulate, streams, topology
from gossamer.metrics import average_loss, best_decision
from tests.instances import QUIET

# Two decades, in multiples of every period below. The best decision of each is a compiled program: few are enough.
AT = (64, 192, 640, 1920, 6400)
ENDS = (64, 640, 6400)


@pytest.mark.parametrize(
    ("algorithm", "data"),
    [
        (algorithms.d_ogd(BALL, ring()), signs),
        (algorithms.ad_ftgl(BALL, ring()), signs),
        (algorithms.d_ogd(BALL, ring()), mirrored(1)),
        (algorithms.ad_ftgl(BALL, ring()), mirrored(8)),
    ],
    ids=["d_ogd-signs", "ad_ftgl-signs", "d_ogd-mirrored", "ad_ftgl-mirrored"],
)
def test_average_regret_falls_like_the_square_root(algorithm, data):
    assert -0.6 < slope(algorithm, data, AT, seeds=6) < -0.4


@pytest.mark.parametrize("rate", WRONG_STEPS.values(), ids=WRONG_STEPS)
def test_wrong_step_schedules_fail_the_same_test(rate):
    assert not -0.6 < slope(algorithms.d_ogd(BALL, ring(), step=rate), mirrored(1), AT, seeds=6) < -0.4


def test_wrong_regularization_fails_the_same_test():
    """The weight of strongly convex losses grows like t, and linear losses are not strongly convex."""
    wrong = algorithms.ad_ftgl(BALL, ring(), strong_convexity=0.5)
    assert not -0.6 < slope(wrong, mirrored(8), AT, seeds=6) < -0.4


def test_logistic_regression_on_a_smooth_cycle():
    plain = slope(algorithms.d_ogd(LOGISTIC, ring(), step=Rate(1.0)), smooth_cycle, ENDS, seeds=1)
    strongly = slope(algorithms.d_ogd(STRONGLY_CONVEX, ring(), step=Rate(10.0, power=1.0)), smooth_cycle, ENDS, seeds=1)
    assert plain < -0.45
    assert strongly < plain


def test_accelerated_gossip_beats_plain_gossip_on_a_long_cycle():
    """Settings are the best of the grids of `bench.regret`; there the factor is 3.5 with blocks of 4."""
    steps, stream = 10_000, streams.smooth_cycle_logistic(64, 10, seed=0)
    best = best_decision(LOGISTIC, stream, steps, tolerance=1e-5).loss
    ogd = algorithms.d_ogd(LOGISTIC, topology.ring(64), step=Rate(0.5))
    ftgl = algorithms.ad_ftgl(LOGISTIC, ring(64), steps_per_exchange=4, regularization=0.3)
    plain, fast = (average_loss(simulate(a, stream, steps, **QUIET))[-1].mean() - best for a in (ogd, ftgl))
    assert plain > 3 * fast > 0
