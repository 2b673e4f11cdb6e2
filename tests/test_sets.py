from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from gossamer.errors import ConfigurationError
from gossamer.sets import Box, DecisionSet, Everywhere, L1Ball, L2Ball, Simplex, TraceNormBall

DIM = 12
BOUNDED: list[DecisionSet] = [
    L2Ball(2.0),
    L1Ball(2.0),
    Box(-0.5, 1.5, dim=DIM),
    Box(tuple(-0.1 * i for i in range(DIM)), tuple(0.2 * i + 0.1 for i in range(DIM))),
    Simplex(DIM),
    TraceNormBall(2.0, (4, 3)),
    TraceNormBall(2.0, (3, 4)),
]
SETS = [Everywhere(), *BOUNDED]
SCALES = (0.01, 0.5, 3.0, 1e4)
few = settings(derandomize=True, deadline=None, max_examples=25)


def points(seed: int, scale: float = 1.0, count: int = 40) -> np.ndarray:
    return (scale * np.random.default_rng(seed).normal(size=(count, DIM))).astype(np.float32)


@partial(jax.jit, static_argnums=(0, 1))
def compiled(domain: DecisionSet, method: str, x: jax.Array) -> jax.Array:
    return jax.vmap(getattr(domain, method))(x)


def project(domain: DecisionSet, x: Any) -> np.ndarray:
    return np.asarray(compiled(domain, "project", x))


def minimize_linear(domain: DecisionSet, g: Any) -> np.ndarray:
    return np.asarray(compiled(domain, "linear_minimizer", g))


def contains(domain: DecisionSet, x: Any) -> np.ndarray:
    return np.asarray(compiled(domain, "contains", x))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("domain", SETS, ids=str)
def test_projection_is_a_member_and_idempotent(domain: DecisionSet, scale: float) -> None:
    once = project(domain, points(0, scale))
    assert contains(domain, once).all()
    np.testing.assert_allclose(project(domain, once), once, rtol=0, atol=3e-6 * min(domain.radius, 1))


@pytest.mark.parametrize("domain", SETS, ids=str)
def test_projection_keeps_members(domain: DecisionSet) -> None:
    inside = project(domain, points(1)) * 0.9 + 0.1 * project(domain, points(2))
    np.testing.assert_allclose(project(domain, inside), inside, rtol=0, atol=1e-6)


@pytest.mark.parametrize("domain", SETS, ids=str)
def test_projection_is_non_expansive(domain: DecisionSet) -> None:
    for scale in (0.5, 3.0):
        a, b = points(3, scale), points(4, scale)
        moved = np.linalg.norm(project(domain, a) - project(domain, b), axis=1)
        assert (moved <= np.linalg.norm(a - b, axis=1) * (1 + 1e-5)).all()


@pytest.mark.parametrize("domain", BOUNDED, ids=str)
def test_projection_satisfies_the_variational_inequality(domain: DecisionSet) -> None:
    x, members = points(5, 3.0), np.concatenate([project(domain, points(seed, 5.0)) for seed in range(20, 25)])
    nearest = project(domain, x)
    products = np.einsum("id,ijd->ij", (x - nearest).astype(float), members[None] - nearest[:, None])
    assert products.max() <= 2e-5 * np.linalg.norm(x, axis=1).max()
    assert np.abs(x - nearest).max() > 0.1  # the inequality is not met trivially


@pytest.mark.parametrize("domain", [L1Ball(2.0), Simplex(DIM)], ids=str)
def test_projection_agrees_with_a_general_solver(domain: DecisionSet) -> None:
    x = points(7, 1.0, 1)[0].astype(float)
    if isinstance(domain, Simplex):
        rule = {"type": "eq", "fun": lambda p: p[:DIM].sum() + p[DIM:].sum() - 1}
        bounds = [(0, None)] * DIM + [(0, 0)] * DIM
    else:
        rule = {"type": "ineq", "fun": lambda p: 2.0 - p.sum()}
        bounds = [(0, None)] * (2 * DIM)
    solved = minimize(
        lambda p: np.sum((p[:DIM] - p[DIM:] - x) ** 2),
        np.full(2 * DIM, 0.05),
        bounds=bounds,
        constraints=[rule],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(
        project(domain, np.tile(x, (40, 1)).astype(np.float32))[0], solved.x[:DIM] - solved.x[DIM:], atol=1e-5
    )


def reference_trace_projection(x: np.ndarray, radius: float) -> np.ndarray:
    u, s, v = np.linalg.svd(x.astype(np.float64), full_matrices=False)
    if s.sum() <= radius:
        return x.astype(np.float64)
    excess = np.cumsum(s) - radius
    last = np.nonzero(s * np.arange(1, len(s) + 1) > excess)[0][-1]
    return (u * np.maximum(s - excess[last] / (last + 1), 0)) @ v


SPECTRA = {
    "random": np.linspace(0.1, 3, 16),
    "flat": np.full(16, 1.0),
    "ill-conditioned": 10.0 ** -np.arange(16),
    "mixed levels": np.r_[1.0, np.full(15, 1e-3)],
    "rank one": np.r_[1.0, np.zeros(15)],
    "rank three": np.r_[3.0, 2.0, 1.9, np.zeros(13)],
    "zero": np.zeros(16),
}


@pytest.mark.parametrize("shape", [(26, 16), (16, 26)], ids=str)
@pytest.mark.parametrize("kind", SPECTRA)
def test_trace_norm_projection_agrees_with_float64(kind: str, shape: tuple[int, int]) -> None:
    draws = np.random.default_rng(8)
    radius, ball = 10.0, TraceNormBall(10.0, shape)
    u, v = (np.linalg.qr(draws.normal(size=(side, 16)))[0] for side in shape)
    total = max(SPECTRA[kind].sum(), 1e-30)
    sizes = np.array([0.5, 1.0, 1.001, 1.5, 10.0, 1e3, 1e4])[:, None, None]
    matrices = (((u * (SPECTRA[kind] * radius / total)) @ v.T) * sizes).astype(np.float32)
    found = project(ball, matrices.reshape(len(sizes), -1)).astype(np.float64).reshape(matrices.shape)
    for x, projected in zip(matrices, found, strict=True):
        # The input itself is only known to its own rounding, which the projection passes on.
        allowed = 1e-4 * radius + 4 * np.finfo(np.float32).eps * np.linalg.norm(x)
        assert np.linalg.norm(projected - reference_trace_projection(x, radius)) <= allowed
        assert np.linalg.svd(projected, compute_uv=False).sum() <= radius * (1 + 1e-5)


def vertices(domain: DecisionSet) -> np.ndarray:
    if isinstance(domain, Simplex):
        return np.eye(DIM)
    if isinstance(domain, L1Ball):
        return np.vstack([np.eye(DIM), -np.eye(DIM)]) * domain.radius
    assert isinstance(domain, Box)
    low, high = np.broadcast_to(domain.low, DIM), np.broadcast_to(domain.high, DIM)
    corners = (np.arange(2**DIM)[:, None] >> np.arange(DIM)) & 1
    return np.where(corners == 1, high, low)


@pytest.mark.parametrize("domain", BOUNDED, ids=str)
def test_linear_minimizer_is_a_member_and_best(domain: DecisionSet) -> None:
    for scale in (1e-25, 1.0, 1e4):
        g = points(9, scale)
        found = minimize_linear(domain, g)
        assert contains(domain, found).all()
        values = np.sum(g.astype(float) * found, axis=1)
        if isinstance(domain, L2Ball):
            best = -domain.radius * np.linalg.norm(g.astype(float), axis=1)
        elif isinstance(domain, TraceNormBall):
            matrices = g.astype(float).reshape(-1, *domain.shape)
            best = -domain.radius * np.linalg.svd(matrices, compute_uv=False)[:, 0]
        else:
            best = (g.astype(float) @ vertices(domain).T).min(axis=1)
        np.testing.assert_allclose(values, best, rtol=1e-5)


@pytest.mark.parametrize("shape", [(26, 16), (5, 30), (1, 7), (7, 1), (1, 1), (120, 100)], ids=str)
def test_trace_norm_oracle_on_structured_matrices(shape: tuple[int, int]) -> None:
    draws, small = np.random.default_rng(10), min(shape)
    u, v = (np.linalg.qr(draws.normal(size=(side, small)))[0] for side in shape)
    plain = np.eye(*shape)
    alternating = np.outer(np.ones(shape[0]), (-1.0) ** np.arange(shape[1]))
    difference = np.zeros(shape)
    difference[0, 0], difference[0, -1] = 1.0, -1.0
    close = (u * np.linspace(1.0, 0.99, small)) @ v.T
    flat = (u * np.ones(small)) @ v.T
    matrices = np.stack([plain, alternating, difference, close, flat, u[:, :1] @ v[:, :1].T, 0 * plain])
    ball, vectors = TraceNormBall(1.0, shape), matrices.reshape(7, -1).astype(np.float32)
    found = minimize_linear(ball, vectors)
    assert contains(ball, found).all()
    best = np.linalg.svd(matrices, compute_uv=False)[:, 0]
    np.testing.assert_allclose(-np.sum(found * vectors, axis=1), best, rtol=2e-4)


@pytest.mark.parametrize("domain", BOUNDED, ids=str)
def test_radius_and_diameter_are_attained_and_never_exceeded(domain: DecisionSet) -> None:
    g = points(11)
    ends, others = minimize_linear(domain, g), minimize_linear(domain, -g)
    lengths, distances = np.linalg.norm(ends, axis=1), np.linalg.norm(ends - others, axis=1)
    assert lengths.max() <= domain.radius * (1 + 1e-5)
    assert distances.max() == pytest.approx(domain.diameter, rel=1e-5)
    if not isinstance(domain, Box):
        assert lengths.max() == pytest.approx(domain.radius, rel=1e-5)


def test_sizes_of_boxes_and_everywhere() -> None:
    assert Box(0.0, (3.0, 4.0)).radius == 5.0
    assert Box((-3.0, 1.0), (0.0, 4.0)).radius == 5.0
    assert Box((-3.0, 1.0), (0.0, 5.0)).diameter == 5.0
    assert math.isinf(Everywhere().radius)
    assert math.isinf(Everywhere().diameter)
    assert Simplex(1).diameter == 0.0


@pytest.mark.parametrize("domain", BOUNDED, ids=str)
def test_contains_refuses_points_outside(domain: DecisionSet) -> None:
    outside = points(12, 3.0)
    assert not contains(domain, outside).any()
    assert domain.contains(jnp.asarray(outside[0]), tolerance=1e6)


def test_everywhere_contains_all_finite_points() -> None:
    assert Everywhere().contains(jnp.array([1e30]))
    assert not Everywhere().contains(jnp.array([jnp.nan]))


@pytest.mark.parametrize("domain", SETS, ids=str)
def test_origin_is_the_member_nearest_to_zero(domain: DecisionSet) -> None:
    start = domain.origin(DIM)
    assert start.shape == (DIM,)
    assert domain.contains(start)
    expected = np.full(DIM, 1 / DIM) if isinstance(domain, Simplex) else np.zeros(DIM)
    np.testing.assert_allclose(np.maximum(start, 0), expected, atol=1e-7)


@pytest.mark.parametrize("domain", SETS, ids=str)
def test_dtype_follows_the_input(domain: DecisionSet) -> None:
    with jax.enable_x64(True):
        x = points(13, 3.0).astype(np.float64)
        projected = compiled(domain, "project", x)
        assert projected.dtype == jnp.float64
        assert projected.shape == x.shape
        assert jax.vmap(partial(domain.contains, tolerance=1e-12))(projected).all()
        if domain != Everywhere():
            assert minimize_linear(domain, x).dtype == np.float64
        single = jax.eval_shape(domain.project, x[0].astype(np.float32))
        assert single.dtype == jnp.float32


def test_equal_sets_share_one_compilation() -> None:
    traces = []

    def trace(domain: DecisionSet, x: jax.Array) -> jax.Array:
        traces.append(domain)
        return domain.project(x)

    once = jax.jit(trace, static_argnums=0)
    for make in (lambda: L2Ball(1.0), lambda: TraceNormBall(1.0, (2, 2)), lambda: Box((0.0,) * 4, 1.0)):
        assert make() == make()
        assert hash(make()) == hash(make())
        once(make(), jnp.ones(4))
        once(make(), jnp.ones(4))
    assert len(traces) == 3
    assert L2Ball(1.0) != L2Ball(2.0)
    assert L2Ball(1.0) != L1Ball(1.0)


@few
@given(
    values=st.sampled_from([1, 2, 7]).flatmap(lambda d: st.lists(st.floats(-50, 50, width=32), min_size=d, max_size=d)),
    shift=st.sampled_from([0.0, 1e4]),
)
def test_simplex_and_l1_projections_of_any_vector(values: list[float], shift: float) -> None:
    x = np.asarray(values, np.float32) + np.float32(shift)
    ball = L1Ball(0.75)
    assert contains(ball, project(ball, x[None])).all()
    kept = project(Simplex(), x[None])[0]
    assert kept.sum() == pytest.approx(1.0, abs=1e-5)
    support = kept > 0
    thresholds = x.astype(float) - kept
    # One threshold for all that is kept, and nothing that is dropped lies above it.
    assert np.ptp(thresholds[support]) <= 1e-5
    assert (thresholds[~support] <= thresholds[support].min() + 1e-5).all()


BAD = [
    (lambda: L2Ball(0.0), "radius"),
    (lambda: L2Ball(-1.0), "radius"),
    (lambda: L1Ball(math.nan), "radius"),
    (lambda: L1Ball(math.inf), "radius"),
    (lambda: L2Ball("1"), "radius"),  # type: ignore[arg-type]
    (lambda: TraceNormBall(0.0, (2, 2)), "radius"),
    (lambda: TraceNormBall(1.0, (2, 0)), "shape"),
    (lambda: TraceNormBall(1.0, [2, 2]), "shape"),  # type: ignore[arg-type]
    (lambda: Simplex(0), "dim"),
    (lambda: Box(1.0, 0.0), "low"),
    (lambda: Box((0.0, 2.0), 1.0), "low"),
    (lambda: Box(0.0, math.inf), "high"),
    (lambda: Box([0.0], 1.0), "low"),  # type: ignore[arg-type]
    (lambda: Box((), 1.0), "low"),
    (lambda: Box((0.0, 0.0), (1.0,)), "low, high, dim"),
    (lambda: Box((0.0, 0.0), 1.0, dim=3), "low, high, dim"),
    (lambda: Box(0.0, 1.0, dim=0), "dim"),
    (lambda: Box(0.0, 1.0).radius, "dim"),
    (lambda: Box(0.0, 1.0).diameter, "dim"),
    (lambda: Everywhere().linear_minimizer(jnp.ones(2)), "domain"),
    (lambda: Simplex(3).project(jnp.ones(2)), "x"),
    (lambda: Box((0.0, 0.0), 1.0).linear_minimizer(jnp.ones(3)), "x"),
    (lambda: TraceNormBall(1.0, (2, 2)).contains(jnp.ones(5)), "x"),
    (lambda: jax.jit(TraceNormBall(1.0, (2, 2)).project)(jnp.ones(5)), "x"),
    (lambda: L2Ball(1.0).project(jnp.ones((2, 2))), "x"),
]


@pytest.mark.parametrize(("call", "field"), BAD)
def test_bad_settings_name_their_field(call: Any, field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        call()
    assert caught.value.field == field
