"""Mixing: averages survive, fused equals step by step, gathering equals multiplying, agreement at the proven rate."""

from __future__ import annotations

import tracemalloc

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import topology
from gossamer.errors import ConfigurationError
from gossamer.topology import AcceleratedGossip, Gossip, Pair, PushSum, mixing

FEW = settings(derandomize=True, deadline=None, max_examples=12)

NETWORKS = {
    "ring": topology.ring(7),
    "star": topology.star(6, weights="lazy"),
    "alone": topology.ring(1),
    "isolated": topology.isolated(3),
    "directed": topology.directed_exponential(6),
    "alternating": topology.alternating([topology.ring(5), topology.star(5)]),
    "matching": topology.random_matching(9, seed=1),
    "failures": topology.with_link_failures(topology.complete(5), 0.4, seed=2),
}
symmetric_rings = st.sampled_from([topology.ring(n, weights=w) for n in (1, 2, 5, 8) for w in ("metropolis", "lazy")])


def messages_for(learners: int, seed: int = 0) -> dict[str, np.ndarray]:
    """A pytree with leaves of different rank."""
    draws = np.random.default_rng(seed)
    shapes = {"scalar": (learners,), "matrix": (learners, 2, 3)}
    return {name: draws.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def mix_once(how: topology.Mixing, network: topology.Topology, messages: object, exchange: int = 0) -> object:
    """One exchange, compiled, with the mixing as a static argument as in the engine."""
    constant, varying = how.prepare(network, np.array([exchange]))
    now = jax.tree.map(lambda array: array[0], varying)
    return jax.jit(type(how).mix, static_argnums=0)(how, constant, now, messages)


def gather_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixing, "DENSE_LIMIT", 0)
    monkeypatch.setattr(mixing, "CHANGING_DENSE_LIMIT", 0)


def assert_trees_close(one: object, other: object, atol: float = 1e-6) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol, rtol=0), one, other)


# Plain gossip


@pytest.mark.parametrize("name", sorted(NETWORKS))
@pytest.mark.parametrize("gather", [False, True])
def test_gossip_multiplies_by_the_power_of_the_matrix(monkeypatch: pytest.MonkeyPatch, name: str, gather: bool) -> None:
    """Fused and gathered alike; and the average survives wherever the weights are doubly stochastic."""
    if gather:
        gather_everything(monkeypatch)
    network, how, exchange = NETWORKS[name], Gossip(3), 17
    constant, varying = how.prepare(network, np.array([exchange]))
    assert ("matrix" in constant | varying) != gather
    messages = messages_for(network.learners)
    heard = mix_once(how, network, messages, exchange)
    power = np.linalg.matrix_power(network.matrix(exchange), 3)
    expected = jax.tree.map(lambda leaf: np.tensordot(power, np.asarray(leaf, np.float64), 1), messages)
    assert_trees_close(heard, expected)
    assert jax.tree.map(jnp.shape, heard) == jax.tree.map(jnp.shape, messages)
    if network.is_doubly_stochastic():
        assert_trees_close(*(jax.tree.map(lambda leaf: np.mean(leaf, axis=0), tree) for tree in (heard, messages)))


def test_sparse_fixed_graphs_are_gathered() -> None:
    """64 learners that hear two others each are just sparse enough for one step, and not for two."""
    network, fewer = topology.ring(64), topology.ring(63)
    assert "speakers" in Gossip().prepare(network, np.arange(1))[0]
    for how, where in ((Gossip(2), network), (Gossip(), fewer), (Gossip(), topology.isolated(31))):
        assert "matrix" in how.prepare(where, np.arange(1))[0]
    messages = messages_for(64)
    expected = jax.tree.map(lambda leaf: np.tensordot(network.matrix(), np.asarray(leaf, np.float64), 1), messages)
    assert_trees_close(mix_once(Gossip(), network, messages), expected)
    alone = messages_for(32)
    assert_trees_close(mix_once(Gossip(), topology.isolated(32), alone), alone)


def test_prepare_separates_what_varies() -> None:
    constant, varying = Gossip(2).prepare(topology.ring(4), np.arange(10))
    assert varying == {}
    assert constant["matrix"].dtype == np.float32
    constant, varying = Gossip().prepare(NETWORKS["matching"], np.arange(10))
    assert constant == {}
    assert varying["matrix"].shape == (10, 9, 9)
    for how in (Gossip(), AcceleratedGossip(2)):
        again, nothing = how.prepare(topology.ring(4), np.arange(0))
        assert (again.keys(), nothing) == (how.prepare(topology.ring(4), np.arange(3))[0].keys(), {})


@pytest.mark.parametrize("name", sorted(name for name in NETWORKS if name != "directed"))
@pytest.mark.parametrize("gather", [False, True])
def test_rows_sum_to_one_without_any_rounding(monkeypatch: pytest.MonkeyPatch, name: str, gather: bool) -> None:
    """A row sum of 1 + 3e-8 would drift by a factor of e^3 in 10^8 exchanges."""
    if gather:
        gather_everything(monkeypatch)
    constant, varying = Gossip(1 if gather else 5).prepare(NETWORKS[name], np.arange(20))
    weights = constant | varying
    rows = weights["weights" if gather else "matrix"].astype(np.float64)
    np.testing.assert_array_equal(rows.sum(axis=-1), 1.0)


def test_columns_of_accelerated_gossip_sum_to_one() -> None:
    block = AcceleratedGossip(600).prepare(topology.ring(25, weights="lazy"), np.arange(1))[0]["block"]
    np.testing.assert_array_equal(block[:25, :25].astype(np.float64).sum(axis=0), 1.0)


def test_mixings_are_values_and_do_not_compile_twice() -> None:
    assert Gossip(2) == Gossip(2)
    assert hash(AcceleratedGossip(3)) == hash(AcceleratedGossip(3))
    traces = []

    def mix(how: Gossip, constant: dict, varying: dict, messages: jax.Array) -> jax.Array:
        traces.append(1)
        return how.mix(constant, varying, messages)

    compiled = jax.jit(mix, static_argnums=0)
    for exchange in range(3):
        _, varying = Gossip().prepare(NETWORKS["failures"], np.array([exchange]))
        compiled(Gossip(), {}, {"matrix": varying["matrix"][0]}, jnp.ones((5, 2)))
    assert len(traces) == 1


@pytest.mark.parametrize("gather", [False, True])
def test_mixing_scans_and_maps(monkeypatch: pytest.MonkeyPatch, gather: bool) -> None:
    """Under scan over exchanges and vmap over seeds, as the engine uses it."""
    if gather:
        gather_everything(monkeypatch)
    network, how = NETWORKS["failures"], Gossip()
    constant, varying = how.prepare(network, np.arange(6))
    start = jax.random.normal(jax.random.key(1), (2, 5, 3))

    def run(messages: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda held, now: (how.mix(constant, now, held), None), messages, varying)[0]

    product = np.linalg.multi_dot([network.matrix(t) for t in reversed(range(6))])
    np.testing.assert_allclose(jax.vmap(run)(start), np.einsum("ij,sjd->sid", product, start), atol=1e-5)


@pytest.mark.parametrize("gather", [False, True])
def test_mixing_follows_the_precision_of_the_messages(monkeypatch: pytest.MonkeyPatch, gather: bool) -> None:
    if gather:
        gather_everything(monkeypatch)
    with jax.enable_x64(True):
        start = jnp.arange(4.0, dtype=jnp.float64)
        assert mix_once(Gossip(2), topology.ring(4), start).dtype == jnp.float64
        assert mix_once(AcceleratedGossip(2), topology.ring(4), Pair(start, start)).now.dtype == jnp.float64


def test_large_rings_mix_without_a_square_matrix() -> None:
    n = 5000
    start = np.zeros((n, 2), np.float32)
    start[0] = 1.0
    tracemalloc.start()
    network = topology.ring(n)
    constant, varying = Gossip(2).prepare(network, np.arange(4))
    heard = np.asarray(jax.jit(Gossip(2).mix)(constant, varying, start))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(heard[[-2, -1, 0, 1, 2], 0], np.array([1, 2, 3, 2, 1]) / 9, atol=1e-7)
    assert peak < n * n  # bytes, a quarter of a float32 matrix; what XLA allocates is in the program:
    pair = Pair(start, start)
    lists = constant | {"theta": np.float32(0.5)}
    for program in (jax.make_jaxpr(Gossip(2).mix)(constant, varying, start),
                    jax.make_jaxpr(AcceleratedGossip(2).mix)(lists, {}, pair)):  # fmt: skip
        assert "5000,2" in str(program)
        assert "5000,5000" not in str(program)


def test_large_changing_topologies_gather() -> None:
    network = topology.with_link_failures(topology.ring(3000), 0.3, seed=1)
    constant, varying = Gossip().prepare(network, np.arange(2))
    assert varying["weights"].shape == (2, 3000, 3)
    start = np.arange(3000, dtype=np.float32)
    heard = Gossip().mix(constant, {name: array[1] for name, array in varying.items()}, start)
    np.testing.assert_allclose(heard, network.sparse(1) @ start, rtol=1e-6)


# Push-sum


def test_push_sum_reaches_the_average_on_a_directed_graph() -> None:
    graph = nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2), (2, 3), (3, 0), (0, 3)])
    network = topology.from_networkx(graph)
    assert not network.is_doubly_stochastic()
    value = jax.random.normal(jax.random.key(0), (4, 3))
    heard = mix_once(Gossip(60), network, PushSum(value, jnp.ones(4)))
    average = jnp.broadcast_to(value.mean(axis=0), value.shape)
    np.testing.assert_allclose(heard.ratio(), average, atol=1e-6)
    assert jnp.abs(heard.value - average).max() > 0.05  # without the mass it is wrong
    assert jnp.abs(heard.mass - 1.0).max() > 0.05


def test_push_sum_survives_failing_links() -> None:
    network = topology.with_link_failures(topology.directed_exponential(8), 0.4, seed=3)
    held = PushSum(jnp.arange(8.0), jnp.ones(8))
    for exchange in range(80):
        held = mix_once(Gossip(), network, held, exchange)
    np.testing.assert_allclose(held.ratio(), 3.5, atol=1e-5)


def test_push_sum_ratio_inside_a_learner() -> None:
    ratios = jax.vmap(lambda held: held.ratio())(PushSum(jnp.ones((3, 2, 2)), jnp.array([1.0, 2.0, 4.0])))
    np.testing.assert_array_equal(ratios[:, 1, 0], [1.0, 0.5, 0.25])
    assert PushSum({"a": jnp.ones(2)}, jnp.array(2.0)).ratio()["a"].shape == (2,)


# Accelerated gossip


def recursion(matrix: np.ndarray, steps: int, theta: float, now: np.ndarray, before: np.ndarray) -> Pair:
    """Equation (5) of paper 000, step by step."""
    for _ in range(steps):
        now, before = (1 + theta) * matrix @ now - theta * before, now
    return Pair(now, before)


@FEW
@given(symmetric_rings, st.integers(0, 40), st.floats(0.0, 1.0))
def test_polynomial_equals_the_recursion(network: topology.FixedTopology, steps: int, theta: float) -> None:
    identity = np.eye(network.learners)
    expected = recursion(network.matrix(), steps, theta, identity, identity).now
    polynomial = topology.polynomial_matrix(network.matrix(), steps, theta)
    np.testing.assert_allclose(polynomial, expected, atol=1e-11)
    np.testing.assert_allclose(polynomial.sum(axis=0), 1.0, atol=1e-11)


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 15])
@pytest.mark.parametrize("theta", [None, 0.3])
def test_accelerated_gossip_equals_the_recursion(
    monkeypatch: pytest.MonkeyPatch, gather: bool, steps: int, theta: float | None
) -> None:
    if gather:
        gather_everything(monkeypatch)
    network = topology.ring(9, weights="lazy")
    start = Pair(messages_for(9, seed=1), messages_for(9, seed=2))
    heard = mix_once(AcceleratedGossip(steps, theta), network, start)
    used = topology.accelerated_theta(network) if theta is None else theta
    for name in start.now:
        now, before = (np.asarray(half[name], np.float64).reshape(9, -1) for half in start)
        expected = recursion(network.matrix(), steps, used, now, before)
        for half in range(2):
            np.testing.assert_allclose(heard[half][name].reshape(9, -1), expected[half], atol=2e-5)


def test_decoupled_accelerated_gossip_equals_its_polynomial() -> None:
    network = topology.torus(3, 4)
    theta = topology.accelerated_theta(network)
    start = jax.random.normal(jax.random.key(3), (12, 5))
    heard = mix_once(AcceleratedGossip(6), network, Pair(start, start))
    for half, steps in ((heard.now, 6), (heard.before, 5)):
        np.testing.assert_allclose(half, topology.polynomial_matrix(network.matrix(), steps, theta) @ start, atol=2e-6)
        np.testing.assert_allclose(half.mean(axis=0), start.mean(axis=0), atol=1e-6)


def test_theta_and_block_follow_the_paper() -> None:
    network = topology.ring(25, weights="lazy")
    sigma = (1 + (1 + 2 * np.cos(2 * np.pi / 25)) / 3) / 2
    assert topology.accelerated_theta(network) == pytest.approx(1 / (1 + np.sqrt(1 - sigma**2)), rel=1e-12)
    expected = np.ceil(4 * np.log(25 * 10_000 * np.sqrt(14 * 25)) / np.sqrt(1 - sigma))
    assert topology.accelerated_block(network, 10_000) == expected == 601
    assert topology.accelerated_theta(topology.ring(1)) == 0.5
    assert topology.accelerated_block(topology.ring(1), 1) == np.ceil(4 * np.log(np.sqrt(14)))


def disagreement(matrix: np.ndarray) -> float:
    """How much of any disagreement a mixing matrix can leave: ||M - 11'/n||."""
    return float(np.linalg.norm(matrix - 1 / len(matrix), 2))


def test_lemma_f1_holds_on_the_ring_and_plain_gossip_is_slower() -> None:
    network = topology.ring(25, weights="lazy")
    matrix, theta, gap = network.matrix(), topology.accelerated_theta(network), network.spectral_gap()
    length = topology.accelerated_block(network, 10_000)

    def bound(steps: int) -> float:
        return np.sqrt(14) * (1 - (1 - 1 / np.sqrt(2)) * np.sqrt(gap)) ** steps

    for steps in (1, 10, 50, 100, 200, 400, length):
        left = disagreement(topology.polynomial_matrix(matrix, steps, theta))
        assert left <= bound(steps)
    # The bound at the L of eq. (7), which is what the regret proof needs ...
    assert left <= bound(length) <= np.sqrt(14) / (25 * 10_000 * np.sqrt(14 * 25))
    # ... is not reached by as many plain steps: each leaves a factor sigma_2.
    assert disagreement(np.linalg.matrix_power(matrix, length)) == pytest.approx((1 - gap) ** length, rel=1e-6)
    assert disagreement(np.linalg.matrix_power(matrix, length)) > 100 * bound(length)
    # A tenth of a billionth: plain gossip needs several times the steps.
    fast = next(k for k in range(1, length) if disagreement(topology.polynomial_matrix(matrix, k, theta)) < 1e-10)
    plain = np.log(1e-10) / np.log(1 - gap)
    assert plain > 4 * fast


def test_coupled_gossip_tracks_a_running_sum() -> None:
    """Carrying the pair over, with the same input added to both halves, keeps the average exact and bounded error."""
    network, how = topology.ring(8, weights="lazy"), AcceleratedGossip(6)
    held, total = Pair(jnp.zeros((8, 1)), jnp.zeros((8, 1))), 0.0
    for block in range(30):
        fresh = jax.random.normal(jax.random.key(block), (8, 1))
        held = mix_once(how, network, Pair(held.now + fresh, held.before + fresh))
        total += float(fresh.mean())
    np.testing.assert_allclose(held.now.mean(), total, atol=1e-5)
    assert jnp.abs(held.now - held.now.mean()).max() < 1.0


# Bad input

UNUSABLE = [
    lambda: Gossip(0),
    lambda: Gossip(1.5),
    lambda: AcceleratedGossip(0),
    lambda: AcceleratedGossip(3, theta=1.5),
    lambda: AcceleratedGossip(3, theta=float("nan")),
    lambda: AcceleratedGossip(3).prepare(NETWORKS["matching"], np.arange(1)),
    lambda: AcceleratedGossip(3, theta=0.5).prepare(NETWORKS["failures"], np.arange(1)),
    lambda: AcceleratedGossip(3, theta=0.5).prepare(topology.directed_ring(4), np.arange(1)),
    lambda: AcceleratedGossip(3, theta=0.5).prepare(topology.star(4, weights="uniform"), np.arange(1)),
    lambda: AcceleratedGossip(3).prepare(topology.isolated(4), np.arange(1)),
    lambda: Gossip().prepare(topology.star(3000), np.arange(1)),
    lambda: topology.accelerated_block(topology.isolated(4), 100),
    lambda: topology.accelerated_block(topology.ring(4), 0),
    lambda: topology.accelerated_theta(NETWORKS["alternating"]),
    lambda: topology.polynomial_matrix(np.array([[1.0, 0.0], [0.5, 0.5]]), 3, 0.5),
    lambda: topology.polynomial_matrix(np.ones((2, 3)), 3, 0.5),
    lambda: topology.polynomial_matrix(np.eye(2), -1, 0.5),
]


@pytest.mark.parametrize("attempt", UNUSABLE)
def test_what_cannot_be_mixed_is_refused(attempt: object) -> None:
    with pytest.raises(ConfigurationError):
        attempt()
