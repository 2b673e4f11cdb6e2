"""Extreme finite numbers: whatever a record holds, it moves a clipped sum by no more than the sensitivity says."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from bench.gpu_bounds import CLASSES, FEATURES, SIZES, cases, clips, model, ratios, small_problems, sums
from gossamer import Budget, Clip, ConfigurationError, algorithms, problems, sets
from gossamer.algorithms.endless.sums import least_squares_sums, logistic_sums
from gossamer.auditing.attacks.pd_ogd import EXTREMES
from gossamer.privacy import Unit
from gossamer.privacy.clip import _additions, norm_group, norm_slack
from gossamer.problems import Block, Model, Problem, numerics
from gossamer.problems.numerics import arrived, clipped_sum, row_norms

PROBLEMS = small_problems()
BUILT_IN = {name: problem for name, problem in PROBLEMS.items() if not isinstance(problem, Model)}
MODELS = {name: problem for name, problem in PROBLEMS.items() if isinstance(problem, Model)}
HUGE = np.float32(3.4e38)
CASES, ROWS = 16, 3
finite = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from(SIZES)


def every(chosen: dict[str, Problem]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("problem", chosen.values(), ids=chosen)


@every(PROBLEMS)
def test_no_finite_record_moves_a_sum_by_more_than_the_sensitivity(problem: Problem) -> None:
    """Both norms, every kind of clip, compiled and mapped over cases; a sum that is not finite counts as infinite."""
    bounds = clips(problem.dim, 1.0)

    @settings(derandomize=True, deadline=None, max_examples=25)
    @given(entries=st.lists(finite, min_size=12, max_size=12), seed=st.integers(0, 2**32))
    def holds(entries: list[float], seed: int) -> None:
        decisions, blocks, others = cases(problem, CASES, ROWS, seed)
        rng, values = np.random.default_rng(seed), np.array(entries, np.float32)
        blocks.x[::2] = rng.choice(values, blocks.x[::2].shape)
        others.x[::2, 0] = rng.choice(values, others.x[::2, 0].shape)
        others.x[::2, 1:] = blocks.x[::2, 1:]
        assert ratios(problem, bounds, decisions, blocks, others).moved <= 1

    holds()


@pytest.mark.parametrize("name", ["least squares", "softmax", "divided"])
@pytest.mark.parametrize("bound", [1e-12, 1e12])
def test_the_ends_of_the_range_of_bounds_are_kept_and_attained(name: str, bound: float) -> None:
    problem = PROBLEMS[name]
    for rows in (1, 30):
        found = ratios(problem, clips(problem.dim, bound), *cases(problem, 300, rows, seed=rows))
        assert max(found) <= 1
        assert found.moved > 0.999
        assert (found.alone > 0.999) == (rows == 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Clip(l2=0.99e-12),
        lambda: Clip(l1=1e-30),
        lambda: Clip(l2=1e13),
        lambda: Clip(l2=(1.0, 1e-20), blocks=(1, 1)),
        lambda: Clip.of(1e-30),
        lambda: problems.Logistic(2, feature_bound=1e-13),
        lambda: problems.Logistic(2, feature_bound=1e20),
        lambda: least_squares_sums(problems.LeastSquares(2, feature_bound=1.0, domain=sets.L2Ball(1.0)), 1e13),
    ],
)
def test_bounds_that_float32_cannot_keep_are_refused(make) -> None:
    with pytest.raises(ConfigurationError, match=r"allowed: 1e-12 to 1e\+12"):
        make()


def test_sums_that_could_leave_float32_are_refused() -> None:
    wide = problems.LeastSquares(2, feature_bound=1e12, domain=sets.L2Ball(1e6))
    with pytest.raises(ConfigurationError, match="smaller feature_bound"):
        least_squares_sums(wide, 1.0)


def in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clipped sums on a device that keeps subnormal numbers and adds one after the other: XLA on a CPU does neither."""
    assert np.float32(1e-40) * np.float32(0.5) > 0
    single = np.float32
    for name, replaced in {
        "jnp": SimpleNamespace(**vars(np) | {"sum": lambda x, axis: np.add.accumulate(x, axis).take(-1, axis)}),
        "_precise": np.einsum,
        "_written_down": lambda sums: sums,
        "shrink_factor": lambda norm, bound: single(bound) / np.maximum(norm, single(bound)),
    }.items():
        monkeypatch.setattr(numerics, name, replaced)


@pytest.mark.parametrize("bound", [1e-12, 1.0])
@np.errstate(all="ignore")
def test_subnormal_numbers_make_nothing_longer(bound: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights and features of all sizes, alone: the factor that clips, or the clipped weight, may be subnormal."""
    in_numpy(monkeypatch)
    rng, dim = np.random.default_rng(0), 3
    found = []
    for _ in range(500):
        size, weight = 10.0 ** rng.uniform([-45, -45], [38.5, 38.5])
        row, weights = (size * rng.normal(size=(1, dim)) / 4).astype(np.float32), np.array([weight], np.float32)
        for clip in (Clip(l2=bound), Clip(l1=bound)):
            for total in (clipped_sum(row, clip, weights), clipped_sum(row, clip, weights[None].repeat(2, axis=0))):
                allowed = bound * (1 + norm_slack(total.size, clip.order))
                found.append(np.linalg.norm(total.astype(float).ravel(), clip.order) / allowed)
    assert 0.999 < max(found) <= 1


# -- exactly zero ------------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=0)
def all_gradients(problem: Model, decision: jax.Array, block: Block) -> jax.Array:
    return problem._all_row_gradients(decision, block)


@every({name: one for name, one in MODELS.items() if name != "root of params"})
def test_a_model_whose_gradient_is_not_finite_adds_exactly_zero(problem: Model) -> None:
    """Such rows alone have the sum zero; among others it is, bit for bit, the same with any other such row."""
    _, blocks, _ = cases(problem, 200, 1, seed=5)
    each = Block(blocks.x[:, 0], blocks.y[:, 0])
    decision = np.asarray(problem.initial_decision())
    gradients = np.asarray(all_gradients(problem, decision, each))
    bad = ~np.isfinite(gradients).all(axis=1)
    good = np.flatnonzero(~bad & gradients.any(axis=1))[0]
    chosen = np.resize(np.flatnonzero(bad), (CASES, ROWS))
    assert len(np.unique(chosen)) >= 3
    chosen[8:, [0, 2]] = good
    block, decisions = Block(each.x[chosen], each.y[chosen]), np.broadcast_to(decision, (CASES, problem.dim))
    for total in map(np.asarray, sums(problem, clips(problem.dim, 1.0), decisions, block)):
        assert_array_equal(total[:8], 0)
        assert_array_equal(total[8:], total[8:9].repeat(CASES - 8, axis=0))
        assert total[8].any()


@every(BUILT_IN)
def test_a_record_whose_norm_overflows_is_as_one_without_features(problem: Problem) -> None:
    _, blocks, _ = cases(problem, 1, ROWS, seed=7)
    x = np.random.default_rng(0).normal(size=(1, ROWS, *problem.feature_shape)).astype(np.float32)
    x = x.repeat(CASES, axis=0)
    x[0, 1], x[1, 1], x[2, 1] = HUGE, -HUGE, 0
    y = blocks.y.repeat(CASES, axis=0) if problem.classifies else np.ones((CASES, ROWS), np.float32)
    decisions = np.ones((CASES, problem.dim), np.float32)
    for total in map(np.asarray, sums(problem, clips(problem.dim, 1.0), decisions, Block(x, y))):
        assert_array_equal(total[:3], total[2:3].repeat(3, axis=0))
        assert total[2].any()


def test_an_overflowing_target_adds_exactly_zero() -> None:
    problem = problems.LeastSquares(2)
    block = Block(np.ones((2, 2), np.float32), np.array([HUGE, 0.5], np.float32))
    summed = jax.jit(problem.clipped_data_gradient_sum, static_argnums=2)
    for clip in (None, Clip(l2=1.0), Clip(l1=1.0), Clip(l2=(1.0, 1.0), blocks=(1, 1))):
        for places in (None, jnp.arange(2)):
            both, second = (summed(jnp.zeros(2), Block(block.x[i:], block.y[i:]), clip, places) for i in (0, 1))
            assert_array_equal(both, second)
            assert np.asarray(both).any()


@pytest.mark.parametrize("clip", [None, Clip(l2=1.0), Clip(l1=1.0), Clip(l2=(1.0, 1.0), blocks=(2, 1))])
@pytest.mark.parametrize("count", [3, 60])
def test_rows_and_weights_that_are_not_finite_add_exactly_zero(clip, count: int) -> None:
    """Infinite features with weight zero, weights without a number, finite ones whose product overflows, huge ones."""
    rows = np.ones((count, 3), np.float32)
    weights = np.ones(count, np.float32)
    clipped = jax.jit(clipped_sum, static_argnums=1)
    clean = clipped(rows[2:], clip, weights[2:])
    for row, weight in (
        ([np.inf, 0, 0], 0),
        ([np.nan, 1, 1], 1),
        ([0, 0, 0], np.inf),
        ([1, 1, 1], np.nan),
        ([1e30, 1, 1], 1e30),
        ([1, 1, -np.inf], 1e-30),
    ):
        rows[1], weights[1], rows[0], weights[0] = row, weight, [np.inf] * 3, np.nan
        np.testing.assert_allclose(clipped(rows, clip, weights), clean, rtol=1e-5)
        assert_array_equal(clipped(rows[:2], clip, weights[:2]), 0)


def test_without_a_clip_too_a_gradient_that_is_not_finite_is_zero() -> None:
    problem = MODELS["normed"]
    block = Block(np.array([np.zeros(FEATURES), np.ones(FEATURES)], np.float32), np.zeros(2, np.int32))
    decision = problem.initial_decision()
    gradients = np.asarray(jax.jit(problem.row_gradients)(decision, block))
    assert not gradients[0].any()
    assert gradients[1].any()
    total = jax.jit(problem.clipped_data_gradient_sum, static_argnums=2)(decision, block, None)
    np.testing.assert_allclose(total, gradients[1], rtol=1e-6)


def test_features_never_arrive_longer_than_their_bound() -> None:
    """In exact arithmetic, for lengths with one sum and with groups; zeros where the norm overflows."""
    rng = np.random.default_rng(0)
    for dim in (1, 3, 100, 1000, 70_000):
        x = rng.normal(size=(20, dim)) * 10.0 ** rng.integers(-30, 18, (20, 1))
        x[0] = HUGE
        found = np.linalg.norm(np.asarray(arrived(jnp.asarray(x, jnp.float32), 0.7), float), axis=1)
        assert found[0] == 0
        assert 0.7 * (1 - 2 * norm_slack(dim)) < found.max() <= 0.7


def test_sums_of_samples_stay_within_their_bounds() -> None:
    ball = sets.L2Ball(3.0)
    x = np.array([[HUGE, -HUGE], [3e20, 1.0], [1e-40, 0.0], [3.0, 4.0]], np.float32)
    for history, y in (
        (least_squares_sums(problems.LeastSquares(2, feature_bound=2.0, domain=ball), 5.0), [HUGE, -HUGE, 1.0, 2.0]),
        (logistic_sums(problems.Logistic(2, feature_bound=2.0, domain=ball)), [0, 1, 0, 1]),
    ):
        kept = history.add(history.init(), Block(jnp.asarray(x), jnp.asarray(y)))
        gradient = np.asarray(history.gradient(kept, jnp.array([3.0, 0.0]), {}), float)
        assert 0 < np.linalg.norm(gradient) <= history.largest_gradient
        assert np.trace(np.asarray(kept.outer[0], float)) <= len(x) * 4


def test_sums_of_losses_are_between_zero_and_their_number() -> None:
    problem = problems.Experts(2)
    block = Block(jnp.array([[HUGE, -HUGE], [1e-45, 0.5], [jnp.nan, 1.0]]), jnp.zeros(3))
    assert problem.loss_sums(block, bits=2).tolist() == [1.0, 0.5]


def test_clamped_gradients_of_experts_are_bounded() -> None:
    """One sample moves a coordinate of what a client of fed_ope_stoch sums by 1 at most, whatever it holds."""
    problem = problems.Logistic(2, feature_bound=1.0, domain=sets.Simplex())
    client = algorithms.fed_ope_stoch(problem, 1, horizon=64, budget=Budget(1.0), trees=1).learner
    x = jnp.array([[HUGE, HUGE]])
    for root in (True, False):
        for half in (0.0, 1e-45, 1.0):
            total = client._sums(
                jnp.zeros(2),
                jnp.ones(2),
                jnp.asarray(root),
                jnp.float32(half),
                Block(x, jnp.array([1])),
                jnp.float32(1),
            )
            assert np.abs(np.asarray(total)).max() <= 0.5


def test_a_batch_clipped_as_a_whole_is_bounded() -> None:
    """Sums of a batch may overflow where no gradient does: then they count as zero."""
    batch = np.full((2, 3), 3e38, np.float32)
    total = clipped_sum(batch, None)
    assert np.isinf(total).all()
    assert_array_equal(clipped_sum(total[None], Clip(l2=1.0)), 0)


# -- norms -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [100, 129, 5_000, 61_482, 1_000_000])
@pytest.mark.parametrize("order", [1, 2])
def test_norms_are_not_below_what_the_slack_says(dim: int, order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that a sum loses beside a 1: half an ulp each. In one long sum a million of them are 1 % or so."""
    x = np.full((1, dim), 2.0 ** (-24.5 / order), np.float32)
    for place in (0, dim // 2, dim - 1):
        x[0, place] = 1
    exact = np.linalg.norm(x[0].astype(float), order)
    norms = [jax.jit(row_norms, static_argnums=1)(x, order)[0]]
    in_numpy(monkeypatch)
    for found in (*norms, row_norms(x, order)[0]):
        assert exact * (1 - norm_slack(dim, order)) <= found <= exact * (1 + norm_slack(dim, order))


def test_compilers_may_not_join_the_groups_of_a_norm() -> None:
    text = str(jax.make_jaxpr(row_norms)(jnp.ones((1, 200))))
    assert text.index("reduce_sum") < text.index("optimization_barrier") < text.rindex("reduce_sum")
    assert "optimization_barrier" not in str(jax.make_jaxpr(row_norms)(jnp.ones((1, 128))))


def test_norms_of_outer_products_go_through_no_more_additions_than_are_counted() -> None:
    """What `norm_slack` says of weights and features by themselves; and longer vectors never have fewer."""

    def additions(dim: int) -> int:
        return _additions(dim, norm_group(dim))

    for one in (*range(1, 300), 512, 784, 1000, 4096, 20_000):
        for other in (*range(1, 300, 7), 784, 16_384, 61_482):
            assert additions(one) + additions(other) <= additions(one * other)
    counts = [additions(dim) for dim in range(1, 70_000)]
    assert counts == sorted(counts)


@pytest.mark.parametrize(
    ("dim", "most"), [(10, 2e-6), (100, 5e-6), (10_000, 8e-6), (61_482, 1.7e-5), (10**6, 6.2e-5), (10**7, 2e-4)]
)
def test_the_slack_is_small(dim: int, most: float) -> None:
    assert 2.0**-24 < norm_slack(dim) < most
    assert math.isclose(Clip(l2=3.0).sensitivity(Unit.SAMPLE, dim).l2, 6 * (1 + norm_slack(dim)), rel_tol=1e-12)


# -- models that start nowhere -----------------------------------------------------------------------------------------


def without_start(params, x):
    return params["w"] @ x / jnp.sum(params["b"]) + jnp.log(jnp.sum(params["b"]))


def test_a_model_without_a_finite_output_at_its_start_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"apply: got 'no finite output.*Look for logarithms"):
        model(without_start, classes=CLASSES)
    for name in ("normed", "layer_normed", "logged", "divided", "rooted"):
        assert MODELS[name].dim  # made: they are finite somewhere


# -- attacks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", EXTREMES, ids=[attack.name for attack in EXTREMES])
def test_messages_do_not_show_a_record_whose_gradient_is_not_finite(attack) -> None:
    """Where such gradients enter sums, 3,000 runs on each input show an epsilon of 6 at least."""
    case = attack.make()
    found = case.audit(runs=3_000, seed=1)
    assert case.algorithm.guarantee.basis == "proven"
    assert found.covered
    assert found.epsilon == 0
    assert not found.contradicts


def test_the_records_of_the_attacks_have_gradients_that_are_not_finite() -> None:
    for attack in EXTREMES:
        case = attack.make()
        problem, sample = case.algorithm.problem, case.neighbour.read(0, 1)
        assert np.isfinite(sample.x).all()
        one = Block(jnp.asarray(sample.x[:, 0]), jnp.asarray(sample.y[:, 0]))
        assert not np.isfinite(all_gradients(problem, problem.initial_decision(), one)).all()
