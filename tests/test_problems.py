from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import ConfigurationError, DataError
from gossamer.privacy import Clip
from gossamer.privacy.clip import norm_slack
from gossamer.problems import (
    Block,
    Hinge,
    LeastSquares,
    Linear,
    Logistic,
    Model,
    Problem,
    Softmax,
    check_clip,
    small_cnn,
)
from gossamer.sets import L2Ball, Simplex, TraceNormBall
from gossamer.spec import build, spec_of

FEATURES, CLASSES = 4, 3
# As many rows and the same clip wherever neither matters: every other number would be compiled again.
ROWS, CLIP = 6, 0.5
few = settings(derandomize=True, deadline=None, max_examples=15)


def perceptron(params: Any, x: jax.Array) -> jax.Array:
    return params["out"] @ jnp.tanh(params["in"] @ x)


def weights(outputs: int) -> dict[str, np.ndarray]:
    draws = np.random.default_rng(0)
    return {"in": draws.normal(size=(5, FEATURES)), "out": draws.normal(size=(outputs, 5))}


def model(**options: Any) -> Model:
    return Model(perceptron, weights(CLASSES), features=(FEATURES,), classes=CLASSES, **options)


def regression_model(**options: Any) -> Model:
    return Model(perceptron, weights(1), "squared", features=(FEATURES,), **options)


MAKERS: dict[str, Callable[..., Problem]] = {
    "logistic": partial(Logistic, FEATURES),
    "softmax": partial(Softmax, FEATURES, CLASSES),
    "least squares": partial(LeastSquares, FEATURES),
    "hinge": partial(Hinge, FEATURES),
    "linear": partial(Linear, FEATURES),
    "model": model,
    "regression model": regression_model,
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def samples(problem: Problem, rows: int, seed: int, scale: float = 1.0) -> tuple[np.ndarray, Block]:
    draws = np.random.default_rng(seed)
    decision = draws.normal(size=problem.dim).astype(np.float32)
    x = (scale * draws.normal(size=(rows, *problem.feature_shape))).astype(np.float32)
    classes = getattr(problem, "classes", 2) or 2
    labels = draws.integers(0, classes, rows).astype(np.int32)
    return decision, Block(x, labels if problem.classifies else draws.normal(size=rows).astype(np.float32))


@partial(jax.jit, static_argnums=(0, 3))
def clipped_sum(problem: Problem, decision: Any, block: Block, clip: float | None) -> jax.Array:
    return problem.clipped_gradient_sum(decision, block, clip)


@partial(jax.jit, static_argnums=(0, 3))
def part_sum(problem: Problem, decision: Any, block: Block, clip: Clip | None, places: Any) -> jax.Array:
    return problem.clipped_data_gradient_sum(decision, block, clip, places)


@partial(jax.jit, static_argnums=0)
def per_sample_gradients(problem: Problem, decision: Any, block: Block) -> jax.Array:
    return jax.vmap(jax.grad(problem.loss), in_axes=(None, 0, 0))(decision, block.x, block.y)


def reference_sum(problem: Problem, decision: np.ndarray, block: Block, clip: float | None) -> np.ndarray:
    pull = problem.l2 * decision.astype(float)
    data = np.asarray(per_sample_gradients(problem, decision, block), float) - pull
    if clip is not None:
        data *= np.minimum(1, clip / np.maximum(np.linalg.norm(data, axis=1, keepdims=True), 1e-30))
    return data.sum(axis=0) + len(block.x) * pull


@every
def test_unclipped_sum_is_the_gradient_of_the_losses(make: Callable[..., Problem]) -> None:
    for bound in (None, 1.5):
        problem = make(l2=0.3, feature_bound=bound)
        decision, block = samples(problem, ROWS, seed=1)
        mean_gradient = jax.jit(jax.grad(lambda w, p=problem, b=block: p.losses(w, b).mean()))(decision)
        np.testing.assert_allclose(clipped_sum(problem, decision, block, None) / ROWS, mean_gradient, atol=2e-5)


@every
def test_clipped_sum_equals_clipped_per_sample_gradients(make: Callable[..., Problem]) -> None:
    problem = make(l2=0.1, feature_bound=2.0)

    @few
    @given(seed=st.integers(0, 10**6), rows=st.sampled_from([1, ROWS]), scale=st.sampled_from([1e-3, 1.0, 30.0]))
    def agrees(seed: int, rows: int, scale: float) -> None:
        decision, block = samples(problem, rows, seed, scale)
        for clip in (CLIP, 3.0):
            expected = reference_sum(problem, decision, block, clip)
            np.testing.assert_allclose(
                clipped_sum(problem, decision, block, clip), expected, atol=1e-5 * rows, rtol=1e-4
            )

    agrees()


@every
def test_one_row_moves_the_sum_by_at_most_twice_the_clip(make: Callable[..., Problem]) -> None:
    problem = make()
    for scale in (1e-25, 1e-12, 1.0, 1e12, 1e25, 1e38):
        decision, block = samples(problem, ROWS, seed=2)
        with np.errstate(over="ignore"):
            x = np.nan_to_num(block.x * np.float32(scale), posinf=3e38, neginf=-3e38)
        for y in (block.y, block.y * (1 if problem.classifies else np.float32(1e37))):
            total = np.asarray(clipped_sum(problem, decision, Block(x, y), CLIP), float)
            assert np.linalg.norm(total) <= ROWS * CLIP * (1 + 1e-5)


@every
@pytest.mark.parametrize("rows", [1, 30])
def test_parts_of_gradients_are_clipped_and_summed_by_themselves(make: Callable[..., Problem], rows: int) -> None:
    """One place is outside; a row that overflows adds nothing. For one row and for many, and for one block or two."""
    problem = make(feature_bound=2.0)
    decision, block = samples(problem, rows, seed=5)
    places = np.array([problem.dim - 1, 0, 1, problem.dim], np.int32)
    parts = np.asarray(per_sample_gradients(problem, decision, block), float)[:, places[:3]]
    for bounds, blocks in (((math.inf,), (3,)), ((0.3,), (3,)), ((0.2, 0.1), (1, 2))):
        pieces = np.split(parts, np.cumsum(blocks)[:-1], axis=1)
        norms = [np.maximum(np.linalg.norm(piece, axis=1, keepdims=True), 1e-30) for piece in pieces]
        clipped = [
            piece * np.minimum(1, bound / norm) for piece, bound, norm in zip(pieces, bounds, norms, strict=True)
        ]
        clip = Clip(l2=bounds, blocks=(1, 3)) if len(blocks) > 1 else Clip(l2=0.3) if bounds[0] < 1 else None
        found = part_sum(problem, decision, block, clip, places)
        expected = [*np.concatenate(clipped, axis=1).sum(axis=0), 0.0]
        np.testing.assert_allclose(found, expected, atol=1e-5 * rows, rtol=1e-4)
    in_a_row = np.arange(problem.dim - 3, problem.dim, dtype=np.int32)
    cut = partial(problem.clipped_data_gradient_sum, clip=Clip(l2=0.3), consecutive=True)
    taken = part_sum(problem, decision, block, Clip(l2=0.3), in_a_row)
    np.testing.assert_allclose(cut(decision, block, places=in_a_row), taken, atol=1e-6)
    block.x[0] = 3e38
    total = part_sum(make(), decision, block, Clip(l2=0.3), places)
    assert np.linalg.norm(np.asarray(total, float)) <= 0.3 * rows * (1 + 1e-5)


@every
def test_no_rows_give_zero(make: Callable[..., Problem]) -> None:
    problem = make(l2=0.5)
    decision, block = samples(problem, 0, seed=3)
    for clip in (None, 1.0):
        np.testing.assert_array_equal(clipped_sum(problem, decision, block, clip), np.zeros(problem.dim))


@every
def test_rows_without_features_give_no_nan(make: Callable[..., Problem]) -> None:
    problem = make(feature_bound=0.5)
    decision, block = samples(problem, ROWS, seed=4)
    empty = Block(np.zeros_like(block.x), block.y)
    total = np.asarray(clipped_sum(problem, decision, empty, CLIP))
    assert np.isfinite(total).all()
    if not isinstance(problem, Model):
        np.testing.assert_array_equal(total, 0)
    assert np.isfinite(problem.losses(jnp.asarray(decision), empty)).all()


@every
def test_l2_is_added_outside_the_clip(make: Callable[..., Problem]) -> None:
    plain, regularised = make(), make(l2=10.0)
    decision, block = samples(plain, ROWS, seed=5)
    difference = clipped_sum(regularised, decision, block, CLIP) - clipped_sum(plain, decision, block, CLIP)
    np.testing.assert_allclose(difference, ROWS * 10.0 * decision, rtol=1e-4, atol=1e-3)
    extra = regularised.losses(decision, block) - plain.losses(decision, block)
    np.testing.assert_allclose(extra, np.full(ROWS, 5.0 * decision @ decision), rtol=1e-4)


@every
def test_features_are_clipped_on_arrival(make: Callable[..., Problem]) -> None:
    bounded, free = make(feature_bound=0.5), make()
    decision, block = samples(bounded, ROWS, seed=6, scale=3.0)
    norms = np.linalg.norm(block.x, axis=1, keepdims=True)
    arrived = Block(block.x * np.minimum(1, 0.5 / norms).astype(np.float32), block.y)
    decision = jnp.asarray(decision)
    np.testing.assert_allclose(bounded.losses(decision, block), free.losses(decision, arrived), rtol=1e-4)
    np.testing.assert_allclose(
        bounded.predict(decision, block.x), free.predict(decision, arrived.x), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        clipped_sum(bounded, decision, block, CLIP), clipped_sum(free, decision, arrived, CLIP), atol=1e-5
    )


@every
def test_predictions_and_accuracy(make: Callable[..., Problem]) -> None:
    problem = make()
    decision, block = samples(problem, ROWS, seed=7)
    predicted = problem.predict(jnp.asarray(decision), block.x)
    assert predicted.shape == (ROWS,)
    hits = problem.correct(jnp.asarray(decision), block)
    if problem.classifies:
        assert predicted.dtype == jnp.int32
        assert hits is not None
        np.testing.assert_array_equal(hits, (np.asarray(predicted) == block.y).astype(np.float32))
        own = Block(block.x, np.asarray(predicted))
        assert problem.losses(decision, own).mean() < problem.losses(decision, block).mean()
    else:
        assert hits is None
        assert predicted.dtype == jnp.float32


@every
def test_the_loss_is_that_of_the_probabilities(make: Callable[..., Problem]) -> None:
    """Where there are probabilities, they sum to one, and the loss is minus the logarithm of the label's."""
    problem = make()
    decision, block = samples(problem, ROWS, seed=7)
    found = problem.probabilities(jnp.asarray(decision), block.x)
    if found is None:
        assert isinstance(problem, Hinge) or not problem.classifies
        return
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    own = np.asarray(found)[np.arange(ROWS), block.y]
    np.testing.assert_allclose(-np.log(own), problem.losses(decision, block), rtol=1e-4, atol=1e-6)


def test_losses_against_their_formulas() -> None:
    decision, block = samples(Logistic(FEATURES), 9, seed=8)
    x, sign = block.x.astype(float), np.where(block.y == 1, 1, -1)
    scores = x @ decision.astype(float)
    one = jnp.asarray(decision)
    np.testing.assert_allclose(Logistic(FEATURES).losses(one, block), np.log1p(np.exp(-sign * scores)), rtol=1e-5)
    np.testing.assert_allclose(
        Hinge(FEATURES).losses(one, block), np.maximum(0, 1 - sign * scores), rtol=1e-5, atol=1e-6
    )
    targets = Block(block.x, np.full(9, 0.5, np.float32))
    np.testing.assert_allclose(LeastSquares(FEATURES).losses(one, targets), (scores - 0.5) ** 2, rtol=1e-4)
    np.testing.assert_allclose(Linear(FEATURES).losses(one, block), scores, rtol=1e-5)


def test_softmax_rows_of_the_decision_are_classes() -> None:
    problem = Softmax(FEATURES, CLASSES)
    decision, block = samples(problem, 9, seed=9)
    scores = block.x.astype(float) @ decision.reshape(CLASSES, FEATURES).astype(float).T
    own = scores[np.arange(9), block.y][:, None]
    # The loss as paper 000 writes it: log(1 + sum of exp(score of another class - score of the label)).
    expected = np.log(np.exp(scores - own).sum(axis=1))
    np.testing.assert_allclose(problem.losses(jnp.asarray(decision), block), expected, rtol=1e-4)
    np.testing.assert_array_equal(problem.predict(jnp.asarray(decision), block.x), scores.argmax(axis=1))


@pytest.mark.parametrize("make", [MAKERS["logistic"], MAKERS["softmax"], MAKERS["hinge"]])
def test_huge_scores_do_not_overflow(make: Callable[..., Problem]) -> None:
    problem = make()
    x = np.eye(FEATURES, dtype=np.float32)[:1].repeat(2, axis=0)
    decision = jnp.zeros(problem.dim).at[0].set(1e4)
    block = Block(x, np.array([0, 1], np.int32))
    losses = np.sort(problem.losses(decision, block))
    np.testing.assert_allclose(losses, [0.0, 1e4], rtol=2e-4)
    assert np.isfinite(clipped_sum(problem, decision, block, 1.0)).all()


WITH_CONSTANTS = {name: MAKERS[name] for name in ("logistic", "softmax", "least squares", "hinge", "linear")}


@pytest.mark.parametrize("make", WITH_CONSTANTS.values(), ids=WITH_CONSTANTS.keys())
def test_constants_hold_and_are_nearly_attained(make: Callable[..., Problem]) -> None:
    problem = make(feature_bound=1.5, l2=0.2)
    bare = dataclasses.replace(problem, l2=0.0, **_dim_of(problem))
    steepest, curvature = 0.0, []
    hessian = jax.jit(jax.vmap(jax.hessian(problem.loss), in_axes=(None, 0, 0)))
    for seed, size in enumerate((0.0, 0.01, 1.0, 30.0)):
        decision, block = samples(problem, 200, seed, scale=5.0)
        decision = decision * np.float32(size)
        gradients = np.asarray(per_sample_gradients(bare, decision, block))
        steepest = max(steepest, np.linalg.norm(gradients, axis=1).max())
        curvature.append(np.linalg.eigvalsh(np.asarray(hessian(decision, block.x, block.y), float)))
    if problem.lipschitz is not None:
        assert 0.97 * problem.lipschitz <= steepest <= problem.lipschitz * (1 + 1e-5)
    assert np.min(curvature) >= 0.2 - 1e-5
    assert problem.strong_convexity == 0.2
    if problem.smoothness is not None:
        # Three classes at zero reach 1/3 of R^2; the 1/2 needs two classes of probability 1/2 each.
        share = 0.7 if isinstance(problem, Softmax) else 0.99
        assert share * problem.smoothness <= np.max(curvature) <= problem.smoothness * (1 + 1e-5)


def _dim_of(problem: Problem) -> dict[str, int]:
    return {"dim": problem.features} if isinstance(problem, Softmax) else {}


def test_softmax_smoothness_is_attained_by_two_classes() -> None:
    problem = Softmax(2, 2, feature_bound=2.0)
    hessian = jax.jit(jax.hessian(problem.loss))(jnp.zeros(4), jnp.array([2.0, 0.0]), jnp.array(0))
    assert np.linalg.eigvalsh(np.asarray(hessian)).max() == pytest.approx(2.0 / (1 + norm_slack(2)) ** 2)
    assert problem.smoothness == pytest.approx(2.0)


def test_constants_need_a_feature_bound() -> None:
    for name in ("logistic", "softmax", "hinge", "linear"):
        assert MAKERS[name]().lipschitz is None
    for name in ("logistic", "softmax", "least squares"):
        assert MAKERS[name]().smoothness is None
    assert Hinge(2, feature_bound=1.0).smoothness is None
    assert LeastSquares(2, feature_bound=1.0).lipschitz is None
    assert Linear(2, l2=0.5).smoothness == 0.5
    net = model(feature_bound=1.0)
    assert (net.lipschitz, net.smoothness, net.strong_convexity) == (None, None, None)


def test_which_losses_have_a_scalar_link() -> None:
    scalar = {name for name, make in MAKERS.items() if make().scalar_link}
    assert scalar == {"logistic", "least squares", "hinge", "linear"}
    assert {name for name, make in MAKERS.items() if make().zero_rows_are_silent} == scalar | {"softmax"}
    assert {name for name, make in MAKERS.items() if make().classifies} == {
        "logistic",
        "softmax",
        "hinge",
        "model",
    }


@every
def test_rows_without_features_are_silent_where_a_problem_says_so(make: Callable[..., Problem]) -> None:
    problem = make()
    decision, block = samples(problem, ROWS, seed=10)
    gradients = problem.row_gradients(decision, Block(jnp.zeros_like(block.x), block.y))
    assert not (problem.zero_rows_are_silent and jnp.any(gradients != 0))


@every
def test_equal_problems_share_one_compilation(make: Callable[..., Problem]) -> None:
    assert make(l2=0.5) == make(l2=0.5)
    assert hash(make(l2=0.5)) == hash(make(l2=0.5))
    assert make() != make(l2=0.5)
    decision, block = samples(make(), ROWS, seed=10)
    clipped_sum(make(l2=10.0), decision, block, CLIP)
    before = clipped_sum._cache_size()  # type: ignore[attr-defined]
    clipped_sum(make(l2=10.0), decision, block, CLIP)
    assert clipped_sum._cache_size() == before  # type: ignore[attr-defined]


@every
def test_double_precision_follows_the_input(make: Callable[..., Problem]) -> None:
    problem = make(l2=0.1, feature_bound=2.0)
    decision, block = samples(problem, ROWS, seed=11)
    with jax.enable_x64(True):
        wide = jnp.asarray(decision, jnp.float64)
        y = block.y if problem.classifies else block.y.astype(np.float64)
        block64 = Block(jnp.asarray(block.x, jnp.float64), jnp.asarray(y))
        assert clipped_sum(problem, wide, block64, CLIP).dtype == jnp.float64
        assert problem.losses(wide, block64).dtype == jnp.float64
    single = clipped_sum(problem, decision, block, CLIP)
    assert single.dtype == jnp.float32
    assert single.shape == (problem.dim,)


def test_vmap_over_learners() -> None:
    problem = Softmax(FEATURES, CLASSES)
    pairs = [samples(problem, 5, seed) for seed in range(3)]
    decisions = np.stack([decision for decision, _ in pairs])
    blocks = Block(*(np.stack(parts) for parts in zip(*(block for _, block in pairs), strict=True)))
    together = jax.vmap(lambda w, b: clipped_sum(problem, w, b, 0.5))(decisions, blocks)
    alone = np.stack([clipped_sum(problem, decision, block, 0.5) for decision, block in pairs])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_initial_decisions() -> None:
    np.testing.assert_array_equal(Logistic(3).initial_decision(), np.zeros(3, np.float32))
    np.testing.assert_allclose(Linear(4, domain=Simplex()).initial_decision(), np.full(4, 0.25))
    assert Softmax(16, 26, domain=TraceNormBall(10.0, (26, 16))).initial_decision().shape == (416,)
    expected = np.concatenate([weights(CLASSES)[name].ravel() for name in ("in", "out")])
    np.testing.assert_allclose(model().initial_decision(), expected, rtol=1e-6)
    assert np.linalg.norm(model(domain=L2Ball(1.0)).initial_decision()) == pytest.approx(1.0)
    inside = jax.jit(lambda: jnp.asarray(Linear(4, domain=Simplex()).initial_decision()))()
    np.testing.assert_allclose(inside, np.full(4, 0.25))


def test_model_params_restore_the_tree() -> None:
    tree = model().params(jnp.asarray(model().initial_decision()))
    for name, value in weights(CLASSES).items():
        np.testing.assert_allclose(tree[name], value, rtol=1e-6)


def test_models_with_another_start_are_different() -> None:
    other = {name: value + 1 for name, value in weights(CLASSES).items()}
    assert model() != Model(perceptron, other, features=(FEATURES,), classes=CLASSES)


def test_small_cnn() -> None:
    problem = small_cnn((12, 10, 2), classes=3, channels=4, hidden=5, seed=1)
    assert problem.dim == (18 * 4 + 4) + (36 * 4 + 4) + (1 * 1 * 4 * 5 + 5) + (5 * 3 + 3)
    assert problem == small_cnn((12, 10, 2), classes=3, channels=4, hidden=5, seed=1)
    assert problem != small_cnn((12, 10, 2), classes=3, channels=4, hidden=5, seed=2)
    decision = problem.initial_decision()
    _, block = samples(problem, 4, seed=12)
    gradients = np.asarray(per_sample_gradients(problem, decision, block))
    clip = float(np.median(np.linalg.norm(gradients, axis=1)))
    np.testing.assert_allclose(
        clipped_sum(problem, decision, block, clip),
        reference_sum(problem, decision, block, clip),
        atol=1e-5,
    )
    assert np.abs(clipped_sum(problem, decision, block, None) - gradients.sum(axis=0)).max() < 1e-5


def test_small_cnn_convolves() -> None:
    problem = small_cnn((12, 12, 2), classes=3, channels=4, hidden=5, seed=1)
    layers = problem.params(jnp.asarray(problem.initial_decision()))
    image = samples(problem, 1, seed=13)[1].x
    hidden = jnp.asarray(image)
    for layer in layers[:2]:
        kernel = layer["weights"].reshape(3, 3, hidden.shape[3], -1)
        hidden = jax.lax.conv_general_dilated(
            hidden, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        hidden = jax.lax.reduce_window(jax.nn.relu(hidden), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    dense = jax.nn.relu(hidden.reshape(1, -1) @ layers[2]["weights"])
    np.testing.assert_allclose(
        problem.apply(layers, jnp.asarray(image[0])), (dense @ layers[3]["weights"])[0], atol=1e-5
    )


def zeros(shape: tuple[int, ...], dtype: Any = np.int32) -> np.ndarray:
    return np.zeros(shape, dtype)


def test_check_accepts_any_leading_axes() -> None:
    for shape in ((5,), (3, 5), (2, 3, 5)):
        Logistic(4).check(Block(zeros((*shape, 4), np.float32), zeros(shape)))
        Linear(4).check(Block(zeros((*shape, 4), np.float32), zeros(shape)))
        LeastSquares(4).check(Block(zeros((*shape, 4), np.float32), zeros(shape, np.float32)))
        small = small_cnn((10, 10, 1), 2, channels=1, hidden=1, seed=0)
        small.check(Block(zeros((*shape, 10, 10, 1), np.float32), zeros(shape)))


BAD_DATA = [
    (Logistic(4), (2, 3), np.int32, "features have shape"),
    (Logistic(4), (4,), np.int32, "features have shape"),
    (Logistic(4), (2, 4), np.float32, "not integers"),
    (LeastSquares(4), (2, 4), np.int32, "not real numbers"),
    (Softmax(4, 3), (2, 12), np.int32, "features have shape"),
]


@pytest.mark.parametrize(("problem", "shape", "dtype", "kind"), BAD_DATA)
def test_check_refuses_shapes_and_kinds(problem: Problem, shape: tuple[int, ...], dtype: Any, kind: str) -> None:
    with pytest.raises(DataError, match=kind):
        problem.check(Block(zeros(shape, np.float32), zeros(shape[:-1], dtype)))


def test_check_refuses_labels_of_another_shape() -> None:
    with pytest.raises(DataError, match="labels have shape"):
        Logistic(4).check(Block(zeros((3, 2, 4), np.float32), zeros((3,))))


@pytest.mark.parametrize("bad", [-77, 77])
@pytest.mark.parametrize("problem", [Logistic(4), Hinge(4), Softmax(4, 3), model()], ids=lambda p: type(p).__name__)
def test_check_names_the_position_and_never_the_value(problem: Problem, bad: int) -> None:
    y = zeros((3, 2))
    y[2, 1] = bad
    with pytest.raises(DataError, match=r"label out of range at position \(102, 1\)") as caught:
        problem.check(Block(zeros((3, 2, 4), np.float32), y), start=100)
    assert "77" not in str(caught.value)


@pytest.mark.parametrize("problem", [LeastSquares(4), regression_model()], ids=lambda p: type(p).__name__)
def test_check_refuses_targets_that_are_not_finite(problem: Problem) -> None:
    y = zeros((3, 2), np.float32)
    y[1, 0] = np.inf
    with pytest.raises(DataError, match=r"target not finite at position \(1, 0\)"):
        problem.check(Block(zeros((3, 2, 4), np.float32), y))


START = weights(CLASSES)
BAD_SETTINGS: list[tuple[Callable[[], Any], str]] = [
    (lambda: Logistic(0), "dim"),
    (lambda: Logistic(2.0), "dim"),  # type: ignore[arg-type]
    (lambda: Logistic(True), "dim"),
    (lambda: Hinge(2, l2=-0.1), "l2"),
    (lambda: Hinge(2, l2=math.nan), "l2"),
    (lambda: Hinge(2, l2="1"), "l2"),  # type: ignore[arg-type]
    (lambda: Linear(2, feature_bound=0.0), "feature_bound"),
    (lambda: Linear(2, feature_bound=math.inf), "feature_bound"),
    (lambda: Linear(2, domain=Simplex(3)), "domain"),
    (lambda: Linear(2, domain="simplex"), "domain"),  # type: ignore[arg-type]
    (lambda: Softmax(16, 26, domain=TraceNormBall(1.0, (16, 16))), "domain"),
    (lambda: Softmax(0, 3), "dim"),
    (lambda: Softmax(3, 1), "classes"),
    (lambda: check_clip(0.0), "clip"),
    (lambda: check_clip(-1.0), "clip"),
    (lambda: check_clip(math.inf), "clip"),
    (lambda: Model(perceptron, START, features=(FEATURES,)), "classes"),
    (lambda: Model(perceptron, START, features=(FEATURES,), classes=4), "apply"),
    (lambda: Model(perceptron, START, "squared", features=(FEATURES,)), "apply"),
    (lambda: Model(perceptron, START, "hinge", features=(FEATURES,), classes=3), "loss"),  # type: ignore[arg-type]
    (lambda: Model(perceptron, {"in": np.arange(3)}, features=(3,), classes=3), "params"),
    (lambda: Model(perceptron, START, features=[4], classes=3), "features"),  # type: ignore[arg-type]
    (lambda: Model(perceptron, {}, features=(4,), classes=3), "dim"),
    (lambda: small_cnn((8, 8, 1), 10, seed=0), "image_shape"),
    (lambda: small_cnn((28, 28, 1), 1, seed=0), "classes"),
    (lambda: small_cnn((28, 28, 1), 10, channels=0, seed=0), "channels"),
]


@pytest.mark.parametrize(("call", "field"), BAD_SETTINGS)
def test_bad_settings_name_their_field(call: Callable[[], Any], field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        call()
    assert caught.value.field == field
    check_clip(None)
    check_clip(1)


def test_play_starts_where_it_is_said():
    ball = L2Ball(1.0)
    problem = Logistic(2, domain=ball, start=(0.5, -0.25))
    np.testing.assert_array_equal(problem.initial_decision(), np.float32([0.5, -0.25]))
    again = build("[problem]", spec_of(problem), "problem")
    assert again == problem
    assert again != Logistic(2, domain=ball)
    for start, said in [
        ((2.0, 0.0), "a member of the decision set"),
        ((0.5,), "2 finite"),
        ((0.5, math.nan), "finite"),
    ]:
        with pytest.raises(ConfigurationError, match=said):
            Logistic(2, domain=ball, start=start)
