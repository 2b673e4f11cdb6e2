"""Graphs, weights, singular values, changing topologies, and what bad input gets."""

from __future__ import annotations

import time
import tracemalloc

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gossamer import topology
from gossamer.errors import ConfigurationError
from gossamer.topology.base import dense, padded, unpadded

FEW = settings(derandomize=True, deadline=None, max_examples=25)
AWAY = 2**40 + 1

UNDIRECTED = {
    "ring": topology.ring,
    "path": topology.path,
    "complete": topology.complete,
    "star": topology.star,
    "torus": lambda n, **w: topology.torus(3, n, **w),
    "hypercube": lambda n, **w: topology.hypercube(n % 6, **w),
    "watts_strogatz": lambda n, **w: topology.watts_strogatz(n + 4, 4, 0.2, seed=3, **w),
    "erdos_renyi": lambda n, **w: topology.erdos_renyi(n + 4, 0.9, seed=1, **w),
    "random_regular": lambda n, **w: topology.random_regular(2 * n + 2, 3, seed=n, **w),
    "from_networkx": lambda n, **w: topology.from_networkx(nx.wheel_graph(n + 3), **w),
}
DIRECTED = {"ring": topology.directed_ring, "exponential": topology.directed_exponential}
every_graph = st.sampled_from(sorted(UNDIRECTED))
every_size = st.integers(1, 20)


@FEW
@given(every_graph, every_size)
def test_metropolis_is_symmetric_and_doubly_stochastic(kind: str, n: int) -> None:
    graph = UNDIRECTED[kind](n)
    matrix = graph.matrix()
    assert matrix.shape == (graph.learners, graph.learners)
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-14)
    assert np.all(matrix >= 0)
    assert graph.is_doubly_stochastic()
    assert graph.is_strongly_connected()
    assert not graph.directed
    assert graph.fixed


def test_metropolis_follows_its_formula() -> None:
    graph = nx.lollipop_graph(4, 3)
    matrix = topology.from_networkx(graph).matrix()
    for i, j in graph.edges:
        assert matrix[i, j] == 1 / (1 + max(graph.degree[i], graph.degree[j]))
    assert np.count_nonzero(matrix - np.diag(np.diag(matrix))) == 2 * graph.number_of_edges()


@FEW
@given(every_graph, every_size)
def test_lazy_is_half_of_metropolis_and_positive_semidefinite(kind: str, n: int) -> None:
    lazy, plain = UNDIRECTED[kind](n, weights="lazy"), UNDIRECTED[kind](n)
    np.testing.assert_allclose(lazy.matrix(), (plain.matrix() + np.eye(plain.learners)) / 2, atol=1e-15)
    assert np.linalg.eigvalsh(lazy.matrix()).min() > -1e-14
    assert lazy.is_doubly_stochastic()


@FEW
@given(every_size, st.sampled_from(sorted(DIRECTED)))
def test_push_sum_columns_and_uniform_rows(n: int, kind: str) -> None:
    columns, rows = DIRECTED[kind](n), DIRECTED[kind](n, weights="uniform")
    np.testing.assert_allclose(columns.matrix().sum(axis=0), 1.0, atol=1e-14)
    np.testing.assert_allclose(rows.matrix().sum(axis=1), 1.0, atol=1e-14)
    assert columns.directed
    assert columns.is_strongly_connected()


def test_push_sum_and_uniform_split_by_out_and_in_degree() -> None:
    graph = nx.DiGraph([(0, 1), (0, 2), (1, 0), (2, 0), (2, 1)])
    push = topology.from_networkx(graph).matrix()
    np.testing.assert_allclose(push, [[1 / 3, 1 / 2, 1 / 3], [1 / 3, 1 / 2, 1 / 3], [1 / 3, 0, 1 / 3]])
    heard = topology.from_networkx(graph, weights="uniform").matrix()
    np.testing.assert_allclose(heard, [[1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3], [1 / 2, 0, 1 / 2]])
    assert not topology.from_networkx(graph).is_doubly_stochastic()


def test_an_edge_means_that_its_head_hears_its_tail() -> None:
    assert topology.directed_ring(4).hears(1) == ((0, 0.5),)
    assert [j for j, _ in topology.directed_exponential(6).hears(0)] == [2, 4, 5]


def test_self_loops_are_ignored() -> None:
    graph = nx.cycle_graph(5)
    graph.add_edge(2, 2)
    np.testing.assert_array_equal(topology.from_networkx(graph).matrix(), topology.ring(5).matrix())


def test_learners_follow_sorted_nodes_or_insertion() -> None:
    chain = topology.from_networkx(nx.path_graph([2, 0, 1]))  # 2 - 0 - 1: node 0 is in the middle
    assert [j for j, _ in chain.hears(0)] == [1, 2]
    mixed = topology.from_networkx(nx.path_graph(["b", 7, "a"]))
    assert [j for j, _ in mixed.hears(1)] == [0, 2]


@FEW
@given(every_graph, every_size)
def test_renaming_learners_renames_the_weights(kind: str, n: int) -> None:
    base = UNDIRECTED[kind](n).matrix()
    order = np.random.default_rng(n).permutation(len(base))
    graph = nx.from_numpy_array((base > 0).astype(int))
    renamed = topology.from_networkx(nx.relabel_nodes(graph, dict(enumerate(order.tolist()))))
    np.testing.assert_allclose(renamed.matrix()[np.ix_(order, order)], base, atol=1e-15)


@pytest.mark.parametrize("make", [topology.ring, topology.path, topology.complete, topology.star, topology.isolated])
def test_one_learner_alone(make: object) -> None:
    alone = make(1)
    np.testing.assert_array_equal(alone.matrix(), [[1.0]])
    assert alone.spectral_gap() == 1.0
    assert alone.second_singular_value() == 0.0
    assert alone.hears(0) == ()
    assert alone.own_weight(0) == 1.0
    assert alone.is_strongly_connected()


def test_one_learner_alone_elsewhere() -> None:
    for alone in (topology.hypercube(0), topology.torus(1, 1), topology.directed_ring(1)):
        np.testing.assert_array_equal(alone.matrix(), [[1.0]])
    assert topology.random_matching(1, seed=0).own_weight(0) == 1.0


def test_hears_and_own_weight_are_the_rows_of_the_matrix() -> None:
    for graph in (topology.star(7), topology.directed_exponential(7), topology.random_matching(7, seed=2)):
        matrix = graph.matrix(exchange=3)
        for i in range(7):
            row = np.zeros(7)
            row[i] = graph.own_weight(i, exchange=3)
            for j, weight in graph.hears(i, exchange=3):
                assert j != i
                row[j] = weight
            np.testing.assert_array_equal(row, matrix[i])


def test_links_count_directed_messages() -> None:
    times = np.arange(3)
    assert topology.ring(10).links(times).tolist() == [20, 20, 20]
    assert topology.directed_ring(10).links(times).tolist() == [10, 10, 10]
    assert topology.star(10).links(times).tolist() == [18, 18, 18]
    assert topology.isolated(10).links(times).tolist() == [0, 0, 0]


def test_names() -> None:
    assert topology.ring(16).name == "ring(16)"
    assert topology.ring(16, weights="lazy").name == "ring(16, lazy)"
    assert repr(topology.torus(3, 4)) == "torus(3, 4)"
    assert topology.with_link_failures(topology.ring(4), 0.1, seed=0).name == "with_link_failures(ring(4), 0.1)"


# Singular values


@pytest.mark.parametrize("n", [2, 3, 8, 25])
def test_second_singular_value_of_rings(n: int) -> None:
    # The eigenvalues of a circulant matrix are known; a ring of two is the complete graph.
    around = (1 + 2 * np.cos(2 * np.pi * np.arange(n) / n)) / 3 if n > 2 else np.array([1.0, 0.0])
    expected = np.sort(np.abs(around))[-2]
    assert topology.ring(n).second_singular_value() == pytest.approx(expected, abs=1e-13)
    assert topology.ring(n).spectral_gap() == pytest.approx(1 - expected, abs=1e-13)


def test_second_singular_value_of_a_directed_matrix() -> None:
    graph = topology.from_networkx(nx.DiGraph([(0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]))
    expected = np.linalg.svd(graph.matrix(), compute_uv=False)[1]
    assert graph.second_singular_value() == pytest.approx(expected, abs=1e-14)


def test_isolated_learners_never_agree() -> None:
    assert topology.isolated(3).spectral_gap() == pytest.approx(0.0, abs=1e-15)
    assert not topology.isolated(3).is_strongly_connected()


def test_large_graphs_have_singular_values_without_a_dense_matrix() -> None:
    gap = topology.hypercube(12).spectral_gap()  # Lanczos converges
    assert gap == pytest.approx(2 / 13, rel=1e-8)
    slow = topology.ring(2100).spectral_gap()  # Lanczos does not, the shifted factors do
    assert slow == pytest.approx(2 / 3 * (1 - np.cos(2 * np.pi / 2100)), rel=1e-6)


def test_large_topologies_allocate_no_square_matrix() -> None:
    tracemalloc.start()
    large = topology.with_link_failures(topology.ring(5000), 0.1, seed=1)
    lists = large.neighbours(np.arange(3))
    assert large.own_weight(4999, exchange=2) >= 1 / 3
    assert topology.star(5000).links(np.arange(1)).tolist() == [9998]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lists.weights.shape == (3, 5000, 3)
    assert peak < 5000 * 5000  # bytes: an eighth of a float64 matrix, a quarter of float32


# Neighbour lists


@FEW
@given(every_graph, every_size)
def test_lists_and_matrix_are_the_same_weights(kind: str, n: int) -> None:
    graph = UNDIRECTED[kind](n)
    lists = padded(graph.sparse())
    np.testing.assert_array_equal(dense(lists), graph.matrix())
    np.testing.assert_array_equal(unpadded(lists).toarray(), graph.matrix())


# Changing topologies

PAIRS = [nx.Graph([(0, 1), (2, 3)]), nx.Graph([(1, 2), (3, 0)])]


def test_alternating_uses_exchange_modulo_period_far_away() -> None:
    parts = [topology.ring(6), topology.star(6), topology.path(6)]
    cycle = topology.alternating(parts)
    for exchange in (0, 1, 2, 3, AWAY, AWAY + 1, 2**62):
        np.testing.assert_array_equal(cycle.matrix(exchange), parts[exchange % 3].matrix())
    assert cycle.links(np.array([0, 1, 2, AWAY])).tolist() == [12, 10, 10, [12, 10, 10][AWAY % 3]]
    assert cycle.is_doubly_stochastic()
    assert not topology.alternating([parts[0], topology.star(6, weights="uniform")]).is_doubly_stochastic()


@pytest.mark.parametrize(
    "network",
    [
        topology.directed_exponential(7),
        topology.star(5),
        topology.isolated(3),
        topology.alternating(PAIRS),
        topology.alternating([topology.directed_ring(4), topology.isolated(4)]),
        topology.with_link_failures(topology.directed_ring(5), 0.5, seed=3),
        topology.random_matching(6, seed=1),
    ],
    ids=str,
)
def test_whom_a_learner_ever_meets(network: topology.Topology) -> None:
    ever = dense(network.neighbours(np.arange(200))).any(axis=0)
    np.fill_diagonal(ever, False)
    for learner in range(network.learners):
        hears, heard_by = network.ever_meets(learner)
        assert hears == frozenset(np.flatnonzero(ever[learner]).tolist())
        assert heard_by == frozenset(np.flatnonzero(ever[:, learner]).tolist())
    for stranger in (-1, network.learners):
        with pytest.raises(ConfigurationError, match="learner"):
            network.ever_meets(stranger)


def test_alternating_windows() -> None:
    halves = topology.alternating(PAIRS)
    assert not halves.is_strongly_connected(window=1)
    assert halves.is_strongly_connected(window=2)
    rarely = topology.alternating([topology.ring(4), topology.isolated(4), topology.isolated(4)])
    assert [rarely.is_strongly_connected(window) for window in (1, 2, 3, 9)] == [False, False, True, True]
    # Exchanges 0 and 1 together connect everybody, 1 and 2 together do not: every window must.
    uneven = topology.alternating([*PAIRS, PAIRS[1]])
    assert [uneven.is_strongly_connected(window) for window in (2, 3)] == [False, True]


def test_matchings_are_symmetric_and_doubly_stochastic() -> None:
    for n in (2, 7, 16):
        matrices = dense(topology.random_matching(n, seed=5).neighbours(np.arange(50)))
        np.testing.assert_array_equal(matrices, matrices.swapaxes(1, 2))
        np.testing.assert_array_equal(matrices.sum(axis=1), 1.0)
        alone = np.count_nonzero(np.diagonal(matrices, axis1=1, axis2=2) == 1.0, axis=1)
        assert np.all(alone == n % 2)
        assert np.all(topology.random_matching(n, seed=5).links(np.arange(50)) == n - n % 2)


@pytest.mark.parametrize(("n", "matchings"), [(4, 3), (5, 15)])
def test_matchings_are_uniform(n: int, matchings: int) -> None:
    """Chi-squared over all matchings; false alarm 1e-6 a side: neither too uneven nor too even."""
    draws = 6000
    matrices = dense(topology.random_matching(n, seed=11).neighbours(np.arange(draws)))
    _, counts = np.unique(matrices.reshape(draws, -1), axis=0, return_counts=True)
    assert len(counts) == matchings
    statistic = np.sum((counts - draws / matchings) ** 2) / (draws / matchings)
    assert 1e-6 < stats.chi2.sf(statistic, matchings - 1) < 1 - 1e-6


@pytest.mark.parametrize("weights", ["metropolis", "lazy"])
def test_failures_keep_symmetry_and_double_stochasticity(weights: str) -> None:
    base = topology.watts_strogatz(12, 4, 0.3, seed=1, weights=weights)
    flaky = topology.with_link_failures(base, 0.4, seed=3)
    matrices = dense(flaky.neighbours(np.arange(200)))
    np.testing.assert_array_equal(matrices, matrices.swapaxes(1, 2))
    np.testing.assert_allclose(matrices.sum(axis=1), 1.0, atol=1e-14)
    off = ~np.eye(12, dtype=bool)
    assert np.all((matrices[:, off] == 0) | (matrices[:, off] == base.matrix()[off]))
    np.testing.assert_array_equal(np.count_nonzero(matrices[:, off], axis=1), flaky.links(np.arange(200)))
    assert flaky.is_doubly_stochastic()
    assert flaky.is_strongly_connected()


def test_failures_keep_rows_of_uniform_and_columns_of_push_sum() -> None:
    graph = nx.gnp_random_graph(9, 0.6, seed=2, directed=True)
    custom = topology.from_networkx(graph).matrix()
    for weights, axis in (("uniform", 2), ("push-sum", 1), (custom, 1)):
        flaky = topology.with_link_failures(topology.from_networkx(graph, weights=weights), 0.3, seed=4)
        matrices = dense(flaky.neighbours(np.arange(100)))
        np.testing.assert_allclose(matrices.sum(axis=axis), 1.0, atol=1e-14)
        assert np.abs(matrices.sum(axis=3 - axis) - 1.0).max() > 0.1
        assert not flaky.is_doubly_stochastic()
        assert np.any((matrices > 0) != (matrices.swapaxes(1, 2) > 0))  # one-way links fail one by one


@pytest.mark.parametrize("probability", [0.0, 0.05, 0.5, 0.95])
def test_links_fail_as_often_as_they_should(probability: float) -> None:
    """Binomial test in both directions for the total and for every link; false alarm below 1e-6 in all."""
    times, n = 4000, 10
    flaky = topology.with_link_failures(topology.ring(n), probability, seed=8)
    failed = n - flaky.links(np.arange(times)) // 2
    assert stats.binomtest(int(failed.sum()), times * n, probability).pvalue > 1e-7
    heard = dense(flaky.neighbours(np.arange(times)))
    for i in range(n):
        lost = int(np.count_nonzero(heard[:, i, (i + 1) % n] == 0))
        assert stats.binomtest(lost, times, probability).pvalue > 1e-8


def test_links_fail_independently() -> None:
    """The number of failures per exchange is binomial, its variance too; false alarm 1e-6 a side."""
    times, n = 4000, 10
    failed = n - topology.with_link_failures(topology.ring(n), 0.5, seed=9).links(np.arange(times)) // 2
    counts = np.bincount(failed, minlength=n + 1)
    expected = times * stats.binom.pmf(np.arange(n + 1), n, 0.5)
    statistic = np.sum((counts - expected) ** 2 / expected)
    assert 1e-6 < stats.chi2.sf(statistic, n) < 1 - 1e-6


RANDOM = {
    "matching": lambda seed: topology.random_matching(9, seed=seed),
    "failures": lambda seed: topology.with_link_failures(topology.complete(6), 0.5, seed=seed),
}


@FEW
@given(st.sampled_from(sorted(RANDOM)), st.integers(0, 2**40), st.integers(0, 2**62 - 20), st.integers(1, 20))
def test_public_randomness_ignores_chunks(kind: str, seed: int, start: int, length: int) -> None:
    changing = RANDOM[kind](seed)
    times = start + np.arange(length, dtype=np.int64)
    whole = dense(changing.neighbours(times))
    cut = length // 2
    pieces = [dense(changing.neighbours(part)) for part in (times[:cut], times[cut:])]
    np.testing.assert_array_equal(whole, np.concatenate(pieces))
    np.testing.assert_array_equal(whole[-1], RANDOM[kind](seed).matrix(int(times[-1])))


@pytest.mark.parametrize("kind", sorted(RANDOM))
def test_public_randomness_depends_on_every_bit(kind: str) -> None:
    times = np.array([5, 5 + 2**32, 5 + 2**53, 5 + 2**61, 6], dtype=np.int64)
    many = np.concatenate([times + 64 * repeat for repeat in range(10)])
    matrices = dense(RANDOM[kind](1).neighbours(many)).reshape(10, 5, -1).swapaxes(0, 1).reshape(5, -1)
    assert len(np.unique(matrices, axis=0)) == 5
    others = [dense(RANDOM[kind](seed).neighbours(many)) for seed in (0, 1, 1 + 2**32, 1 + 2**64)]
    assert len({each.tobytes() for each in others}) == 4


def test_random_topologies_make_thousands_of_exchanges_per_second() -> None:
    for changing in (
        topology.random_matching(16, seed=1),
        topology.with_link_failures(topology.ring(16), 0.1, seed=1),
    ):
        start = time.perf_counter()
        changing.neighbours(np.arange(2000))
        assert time.perf_counter() - start < 1.0


def test_changing_topologies_have_no_spectral_gap() -> None:
    for changing in (topology.random_matching(4, seed=0), topology.alternating(PAIRS)):
        assert not changing.fixed
        with pytest.raises(ConfigurationError, match="fixed topolog"):
            changing.spectral_gap()


# Bad input


def test_disconnected_graphs_name_a_cut() -> None:
    with pytest.raises(ConfigurationError, match=r"learners 3, 4 cannot hear the others"):
        topology.from_networkx(nx.Graph([(0, 1), (1, 2), (3, 4)]))
    with pytest.raises(ConfigurationError, match=r"learner 0 cannot hear the others"):
        topology.from_networkx(nx.DiGraph([(0, 1), (1, 2), (2, 1)]))
    with pytest.raises(ConfigurationError, match=r"learners 0, 1, 2, 3, 4 and 5 more cannot hear"):
        topology.from_networkx(nx.disjoint_union(nx.cycle_graph(10), nx.cycle_graph(11)))
    with pytest.raises(ConfigurationError, match="learners 0, 1 cannot hear"):
        topology.alternating([PAIRS[0], PAIRS[0]])
    with pytest.raises(ConfigurationError, match="learner 0 cannot hear"):
        topology.complete(2, weights=np.eye(2))


def test_random_graphs_in_pieces_say_what_to_change() -> None:
    with pytest.raises(ConfigurationError, match="Change the seed, or raise p"):
        topology.erdos_renyi(30, 0.01, seed=0)
    with pytest.raises(ConfigurationError, match="Change the seed"):
        topology.watts_strogatz(30, 2, 0.9, seed=2)


HALF = np.full((2, 2), 0.5)
BAD_WEIGHTS = [
    (np.array([[0.5, 0.5], [0.5, 0.4]]), r"row 1 that sums to 1 -0.1"),
    (np.ones((3, 3)), r"shape \(3, 3\)"),
    (HALF * np.nan, r"entry \[0, 0\]"),
    (np.array([[1.5, -0.5], [0.5, 0.5]]), r"entry \[0, 1\]"),
    ("metropolish", "metropolis | lazy"),
]


@pytest.mark.parametrize(("weights", "message"), BAD_WEIGHTS)
def test_weights_that_cannot_be_used(weights: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        topology.complete(2, weights=weights)


def test_custom_weights() -> None:
    rows = np.array([[0.9, 0.1], [0.5, 0.5]])
    np.testing.assert_array_equal(topology.complete(2, weights=rows).matrix(), rows)
    np.testing.assert_array_equal(topology.complete(2, weights=rows.T).matrix(), rows.T)
    with pytest.raises(ConfigurationError, match=r"a weight at \[0, 2\].*zero where there is no edge"):
        topology.path(3, weights=np.full((3, 3), 1 / 3))
    with pytest.raises(ConfigurationError, match="directed graph"):
        topology.directed_ring(3, weights="metropolis")


BAD_SETTINGS = [
    lambda: topology.ring(0),
    lambda: topology.ring(2.5),
    lambda: topology.ring(True),
    lambda: topology.isolated(-1),
    lambda: topology.complete(5000),
    lambda: topology.torus(0, 3),
    lambda: topology.hypercube(-1),
    lambda: topology.hypercube(64),
    lambda: topology.watts_strogatz(10, 11, 0.1, seed=0),
    lambda: topology.watts_strogatz(10, 4, 1.5, seed=0),
    lambda: topology.erdos_renyi(10, -0.1, seed=0),
    lambda: topology.erdos_renyi(10, float("nan"), seed=0),
    lambda: topology.random_regular(5, 3, seed=0),
    lambda: topology.random_regular(5, 5, seed=0),
    lambda: topology.random_regular(6, 3, seed=-1),
    lambda: topology.from_networkx(nx.Graph()),
    lambda: topology.from_networkx(nx.MultiGraph([(0, 1), (0, 1)])),
    lambda: topology.alternating([]),
    lambda: topology.alternating([topology.ring(3), topology.ring(4)]),
    lambda: topology.alternating([nx.path_graph(3), nx.path_graph([1, 2, 3])]),
    lambda: topology.alternating([topology.random_matching(4, seed=0)]),
    lambda: topology.alternating(PAIRS).is_strongly_connected(window=0),
    lambda: topology.random_matching(0, seed=0),
    lambda: topology.random_matching(4, seed=-3),
    lambda: topology.with_link_failures(topology.ring(4), 1.0, seed=0),
    lambda: topology.with_link_failures(topology.ring(4), -0.1, seed=0),
    lambda: topology.with_link_failures(topology.random_matching(4, seed=0), 0.1, seed=0),
    lambda: topology.ring(4).hears(4),
    lambda: topology.ring(4).matrix(exchange=-1),
    lambda: topology.ring(4).links(np.array([0.5])),
    lambda: topology.random_matching(4, seed=0).matrix(exchange=2**62 + 1),
    lambda: topology.ring(3000).matrix(),
    lambda: topology.star(3000).neighbours(np.arange(1)),
]


@pytest.mark.parametrize("attempt", BAD_SETTINGS)
def test_impossible_settings_are_refused(attempt: object) -> None:
    with pytest.raises(ConfigurationError):
        attempt()
