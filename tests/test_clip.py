"""Clipping and sensitivity: what is promised about one sample is what the problems enforce."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from gossamer import Clip, ConfigurationError, PrivacyError, problems
from gossamer.privacy import Sensitivity, Unit
from gossamer.privacy.clip import norm_slack
from gossamer.problems import Block

DIM = 6


def affine(params, x):
    return params["w"] @ x


PROBLEMS = {
    "linear": problems.Linear(DIM),
    "least squares": problems.LeastSquares(DIM),
    "logistic": problems.Logistic(DIM),
    "softmax": problems.Softmax(2, 3),
    "model": problems.Model(affine, {"w": np.zeros((3, 2), np.float32)}, features=(2,), classes=3),
}
CLIPS = {
    "l2": Clip(l2=0.7),
    "l1": Clip(l1=0.7),
    "l2 blocks": Clip(l2=(0.5, 0.25), blocks=(4, 2)),
    "l1 blocks": Clip(l1=(0.5, 0.25, 2.0), blocks=(1, 2, 3)),
}
every_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
every_clip = pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)


def rows(problem, count, seed, size=30.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, *problem.feature_shape)) * size * rng.exponential(size=(count, 1))
    y = rng.normal(size=count) if isinstance(problem, problems.LeastSquares) else rng.integers(0, 2, count)
    return Block(x.astype(np.float32), y.astype(np.float32 if y.dtype.kind == "f" else np.int32))


@partial(jax.jit, static_argnames=("problem", "clip"))
def clipped_sum(problem, decision, block, clip):
    return problem.clipped_gradient_sum(decision, block, clip)


def reference(problem, decision, block, clip):
    """Per-sample gradients, each clipped by the definition, in double precision."""
    total = np.zeros(DIM)
    for x, y in zip(*block, strict=True):
        one = Block(x[None], y[None])
        gradient = np.asarray(clipped_sum(problem, decision, one, None), float)
        for coordinates, bound in clip.parts(DIM):
            norm = np.linalg.norm(gradient[coordinates], clip.order)
            total[coordinates] += gradient[coordinates] * min(1.0, bound / norm if norm else 1.0)
    return total


@every_problem
@every_clip
def test_the_sum_is_that_of_clipped_gradients(problem, clip):
    decision = jnp.asarray(np.random.default_rng(0).normal(size=DIM).astype(np.float32))
    block = rows(problem, 7, seed=1)
    assert_allclose(clipped_sum(problem, decision, block, clip), reference(problem, decision, block, clip), atol=2e-5)


@every_problem
@every_clip
def test_one_sample_moves_the_sum_by_no_more_than_the_sensitivity(problem, clip):
    """Neighbours that are as far apart as they can be, huge and tiny, alone and among others."""
    decision = jnp.asarray(np.random.default_rng(0).normal(size=DIM).astype(np.float32))
    largest = 0.0
    for seed in range(40):
        count = (1, 2, 5)[seed // 9 % 3]  # each with every size
        allowed = clip.sensitivity(Unit.SAMPLE, DIM, rows=count)
        block = rows(problem, count, seed, size=10.0 ** (seed % 9 - 2))
        other = Block(np.concatenate([-block.x[:1], block.x[1:]]), block.y)
        sums = [np.asarray(clipped_sum(problem, decision, each, clip), float) for each in (block, other)]
        moved = sums[0] - sums[1]
        assert np.abs(moved).sum() <= allowed.l1
        assert np.linalg.norm(moved) <= allowed.l2
        largest = max(largest, np.linalg.norm(moved) / allowed.l2)
    assert largest > 0.5  # the neighbours were worth testing


@settings(max_examples=50, deadline=None)
@given(
    bound=st.floats(1e-6, 1e6),
    dim=st.integers(1, 10_000),
    count=st.integers(1, 2_000),
    unit=st.sampled_from(list(Unit)),
)
def test_sensitivity_is_monotone_and_at_least_the_formula(bound, dim, count, unit):
    sensitivity = Clip(l2=bound).sensitivity(unit, dim, rows=count)
    assert 2 * bound < sensitivity.l2 <= Clip(l2=bound).sensitivity(unit, dim, rows=count + 1).l2
    assert sensitivity.l2 <= sensitivity.l1 * (1 + 1e-12)
    assert_allclose(sensitivity.l1, sensitivity.l2 * math.sqrt(dim))
    assert Clip(l2=2 * bound).sensitivity(unit, dim, rows=count).l1 > sensitivity.l1
    one, two = (1 + norm_slack(dim, order) for order in (1, 2))
    assert_allclose(Clip(l1=bound).sensitivity(unit, dim, rows=count).l1 / one, sensitivity.l2 / two, rtol=1e-12)


def test_rounding_of_long_sums_is_counted():
    """A gradient among B goes through A additions, each off by up to 2^-24 of B clips, for both neighbours."""
    for count, additions in ((2, 1), (100, 23 + 4), (2000, 44 + 44)):
        counted = Clip(l2=3.0).sensitivity(Unit.SAMPLE, 4, rows=count).l2 - Clip(l2=3.0).sensitivity(Unit.SAMPLE, 4).l2
        exact = additions / (2.0**24 - additions) * (1 + norm_slack(4))
        assert_allclose(counted, 2 * 3.0 * count * exact, rtol=1e-6)


def test_a_whole_batch_moves_the_sum_as_often_as_it_has_samples():
    clip = Clip(l2=1.0)
    assert_allclose(clip.sensitivity(Unit.BATCH, 4, batch=10).l2, 20.0, rtol=1e-4)
    assert_allclose(clip.sensitivity(Unit.BATCH_SAMPLE, 4, batch=10).l2, 2.0, rtol=1e-4)


def test_blocks_add_in_l1_and_in_squares_in_l2():
    sensitivity = Clip(l2=(3.0, 4.0), blocks=(9, 1)).sensitivity(Unit.SAMPLE, 10)
    assert_allclose([sensitivity.l1, sensitivity.l2], [2 * (9 + 4), 10.0], rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (Clip, ConfigurationError, "clip"),
        (lambda: Clip(l2=1.0, l1=1.0), ConfigurationError, "clip"),
        (lambda: Clip(l2=-1.0), ConfigurationError, "clip l2: got -1.0"),
        (lambda: Clip(l2=math.inf), ConfigurationError, "clip l2: got inf"),
        (lambda: Clip(l2=(1.0, 2.0)), ConfigurationError, "clip l2"),
        (lambda: Clip(l2=(1.0, 2.0), blocks=(3,)), ConfigurationError, "one bound for each of the 1 blocks"),
        (lambda: Clip(l2=(1.0,), blocks=(0,)), ConfigurationError, "clip blocks: got 0"),
        (lambda: Clip.of(None), PrivacyError, "clip: got None"),
        (lambda: Clip.of("1"), ConfigurationError, "clip: got '1'"),
        (lambda: Clip(l2=(1.0, 1.0), blocks=(2, 2)).sensitivity(Unit.SAMPLE, 5), ConfigurationError, "add up to 5"),
        (lambda: Sensitivity(math.inf, 1.0), PrivacyError, "l1 sensitivity: got inf"),
        (lambda: Sensitivity(1.0, math.nan), PrivacyError, "l2 sensitivity: got nan"),
        (lambda: Sensitivity(1.0, -1.0), PrivacyError, "l2 sensitivity: got -1.0"),
    ],
)
def test_bad_clips_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
