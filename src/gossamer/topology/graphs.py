"""Fixed graphs: regular ones from arrays, since they may have millions of learners, the others built on networkx.

The position of a node of networkx in the sorted nodes is the learner's number.
"""

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
from scipy import sparse

from gossamer.checks import check_count, check_seed
from gossamer.errors import ConfigurationError
from gossamer.spec import kind
from gossamer.topology import weights as rules
from gossamer.topology.base import DENSE_LIMIT, Floats, Integers
from gossamer.topology.fixed import FixedTopology

MOST_DIMENSIONS = 20


@kind("topology", "ring")
def ring(learners: int, *, weights: str | Floats = "metropolis") -> FixedTopology:
    """Each learner hears the one before and the one after it.

    >>> round(ring(4).spectral_gap(), 6)
    0.666667
    """
    learners = check_count("learners", learners, 1)
    return _regular(f"ring({learners})", _next(learners, [1]), weights, learners)


@kind("topology", "path")
def path(learners: int, *, weights: str | Floats = "metropolis") -> FixedTopology:
    """A ring that is cut open.

    >>> path(3).hears(0)
    ((1, 0.333...),)
    """
    learners = check_count("learners", learners, 1)
    speakers, hearers = _next(learners, [1])
    return _regular(f"path({learners})", (speakers[:-1], hearers[:-1]), weights, learners)


@kind("topology", "complete")
def complete(learners: int, *, weights: str | Floats = "metropolis") -> FixedTopology:
    """Everybody hears everybody: one exchange is the exact average.

    >>> complete(4).matrix()[0]
    array([0.25, 0.25, 0.25, 0.25])
    """
    # Its weights are n-by-n by nature.
    learners = check_count("learners", learners, 1, most=DENSE_LIMIT)
    return _build(f"complete({learners})", nx.complete_graph(learners), weights)


@kind("topology", "star")
def star(learners: int, *, weights: str | Floats = "metropolis") -> FixedTopology:
    """Learner 0 in the middle hears everybody; the others hear only learner 0.

    >>> star(3).hears(2)
    ((0, 0.333...),)
    """
    return _build(f"star({learners})", nx.star_graph(check_count("learners", learners, 1) - 1), weights)


@kind("topology", "torus")
def torus(rows: int, columns: int, *, weights: str | Floats = "metropolis") -> FixedTopology:
    """A grid whose sides are glued; learner `row * columns + column` hears its four neighbours.

    >>> [speaker for speaker, weight in torus(3, 4).hears(0)]
    [1, 3, 4, 8]
    """
    rows, columns = check_count("rows", rows, 1), check_count("columns", columns, 1)
    place = np.arange(rows * columns)
    row, column = place // columns, place % columns
    right, down = row * columns + (column + 1) % columns, (row + 1) % rows * columns + column
    edges = np.concatenate([place, place]), np.concatenate([right, down])
    return _regular(f"torus({rows}, {columns})", edges, weights, rows * columns)


@kind("topology", "hypercube")
def hypercube(dimension: int, *, weights: str | Floats = "metropolis") -> FixedTopology:
    """2^dimension learners; two hear each other when their numbers differ in one bit.

    >>> [speaker for speaker, weight in hypercube(3).hears(5)]
    [1, 4, 7]
    """
    dimension = check_count("dimension", dimension, 0, most=MOST_DIMENSIONS)
    place, bits = np.arange(2**dimension), 2 ** np.arange(dimension)
    edges = np.repeat(place, dimension), (place[:, None] ^ bits).ravel()
    return _regular(f"hypercube({dimension})", edges, weights, 2**dimension)


@kind("topology", "watts-strogatz")
def watts_strogatz(
    learners: int, k: int, p: float, *, seed: int, weights: str | Floats = "metropolis"
) -> FixedTopology:
    """A ring in which each learner hears its k nearest, with each link rewired with probability p.

    >>> watts_strogatz(20, 4, 0.3, seed=1).links(np.arange(1))
    array([80])
    """
    learners, seed = check_count("learners", learners), check_seed(seed)
    k = check_count("k", k, 0, most=learners)
    graph = nx.watts_strogatz_graph(learners, k, _probability("p", p), seed=seed)
    return _build(f"watts_strogatz({learners}, {k}, {p})", graph, weights, "change the seed, raise k or lower p")


@kind("topology", "erdos-renyi")
def erdos_renyi(learners: int, p: float, *, seed: int, weights: str | Floats = "metropolis") -> FixedTopology:
    """Every pair is linked with probability p; refused when it comes out in pieces.

    >>> erdos_renyi(10, 0.5, seed=1).is_doubly_stochastic()
    True
    """
    learners, seed = check_count("learners", learners), check_seed(seed)
    graph = nx.fast_gnp_random_graph(learners, _probability("p", p), seed=seed)
    return _build(f"erdos_renyi({learners}, {p})", graph, weights, "change the seed, or raise p")


@kind("topology", "random-regular")
def random_regular(learners: int, degree: int, *, seed: int, weights: str | Floats = "metropolis") -> FixedTopology:
    """A uniformly random graph in which everybody hears `degree` others.

    >>> len(random_regular(10, 3, seed=1).hears(7))
    3
    """
    learners, seed = check_count("learners", learners), check_seed(seed)
    degree = check_count("degree", degree, 0, most=learners - 1)
    if learners * degree % 2:
        hint = f"take degree={degree + 1} or one learner more"
        raise ConfigurationError("degree", degree, "an even learners * degree", hint)
    graph = nx.random_regular_graph(degree, learners, seed=seed)
    return _build(f"random_regular({learners}, {degree})", graph, weights, "change the seed, or raise the degree")


@kind("topology", "isolated")
def isolated(learners: int) -> FixedTopology:
    """Nobody talks. The only fixed topology that need not be connected.

    >>> isolated(2).matrix(), isolated(2).links(np.arange(1))
    (array([[1., 0.],
           [0., 1.]]), array([0]))
    """
    identity = sparse.eye_array(check_count("learners", learners, 1)).tocsr()
    return FixedTopology(f"isolated({learners})", directed=False, weights="metropolis", matrix=identity)


@kind("topology", "directed-ring")
def directed_ring(learners: int, *, weights: str | Floats = "push-sum") -> FixedTopology:
    """Each learner hears only the one before it.

    >>> directed_ring(3).matrix()
    array([[0.5, 0. , 0.5],
           [0.5, 0.5, 0. ],
           [0. , 0.5, 0.5]])
    """
    learners = check_count("learners", learners, 1)
    return _regular(f"directed_ring({learners})", _next(learners, [1]), weights, learners, directed=True)


@kind("topology", "directed-exponential")
def directed_exponential(learners: int, *, weights: str | Floats = "push-sum") -> FixedTopology:
    """Learner i is heard by i + 1, i + 2, i + 4, ... (mod n): few links, and news spreads in log n steps.

    >>> [speaker for speaker, weight in directed_exponential(8).hears(0)]
    [4, 6, 7]
    """
    jumps = [2**power for power in range((check_count("learners", learners, 1) - 1).bit_length())]
    return _regular(f"directed_exponential({learners})", _next(learners, jumps), weights, learners, directed=True)


@kind("topology", "graph")
def from_networkx(graph: nx.Graph, *, weights: str | Floats | None = None) -> FixedTopology:
    """Any connected Graph, or strongly connected DiGraph, of networkx.

    Learner i is the i-th node in sorted order (in the order of insertion where nodes cannot be compared). The
    edge i -> j of a DiGraph means that j hears i. Self loops and edge attributes are ignored: everybody has a
    weight of its own. Default weights: "metropolis", on a DiGraph "push-sum".

    >>> from_networkx(nx.Graph([("ann", "bob"), ("bob", "cyd")])).hears(1)
    ((0, 0.333...), (2, 0.333...))
    """
    return _build(graph_name(graph), graph, weights)


def weigh_graph(name: str, graph: nx.Graph, weights: str | Floats | None) -> FixedTopology:
    """A topology from a graph that may be in pieces."""
    if graph.number_of_nodes() < 1 or graph.is_multigraph():
        given = f"{type(graph).__name__} of {graph.number_of_nodes()} nodes"
        raise ConfigurationError("graph", given, "a Graph or DiGraph with at least one node")
    return _weighed(name, _who_hears_whom(graph), weights, graph.is_directed())


def _weighed(name: str, adjacency: sparse.csr_array, weights: str | Floats | None, directed: bool) -> FixedTopology:
    default = "push-sum" if directed else "metropolis"
    weights = default if weights is None else weights
    matrix = rules.weigh(adjacency, weights, directed)
    rule = weights if isinstance(weights, str) else "custom"
    shown = name if rule == default else f"{name[:-1]}, {rule})"
    return FixedTopology(shown, directed, rule, matrix)


def graph_name(graph: nx.Graph) -> str:
    """What a graph without a constructor is called."""
    return f"{type(graph).__name__}({graph.number_of_nodes()})"


def in_order(graph: nx.Graph) -> list[Any]:
    """The nodes as learners 0, 1, ...: sorted, or as inserted where they cannot be compared."""
    try:
        return sorted(graph)
    except TypeError:
        return list(graph)


def _build(
    name: str, graph: nx.Graph, weights: str | Floats | None, hint: str = "add links between the pieces"
) -> FixedTopology:
    return _connected(weigh_graph(name, graph, weights), hint)


def _next(learners: int, jumps: list[int]) -> tuple[Integers, Integers]:
    """Who is heard, and by whom, where learner i is heard by i + jump (mod n)."""
    speakers = np.tile(np.arange(learners), len(jumps))
    return speakers, (speakers + np.repeat(jumps, learners)) % learners


def _regular(
    name: str,
    edges: tuple[Integers, Integers],
    weights: str | Floats,
    learners: int,
    *,
    directed: bool = False,
) -> FixedTopology:
    """From who is heard and by whom; without a direction both hear each other."""
    speakers, hearers = edges
    if not directed:
        speakers, hearers = np.concatenate([speakers, hearers]), np.concatenate([hearers, speakers])
    other = speakers != hearers
    shape = (learners, learners)
    adjacency = sparse.csr_array((np.ones(other.sum()), (hearers[other], speakers[other])), shape=shape)
    adjacency.data[:] = 1.0  # a link that was named twice
    return _connected(_weighed(name, adjacency, weights, directed), "add links between the pieces")


def _connected(topology: FixedTopology, hint: str) -> FixedTopology:
    if not topology.is_strongly_connected():
        cut = rules.describe_cut(topology.sparse())
        raise ConfigurationError("graph", f"{topology.name}: {cut}", "a connected graph", hint)
    return topology


def _edges(graph: nx.Graph) -> dict[str, Any]:
    """A graph by the numbers of its learners."""
    number = {node: place for place, node in enumerate(in_order(graph))}
    ends = [(number[one], number[other]) for one, other in graph.edges]
    return {
        "learners": len(number),
        "edges": sorted(ends if graph.is_directed() else map(sorted, ends)),
        "directed": graph.is_directed(),
    }


@kind("graph", of=(nx.Graph, nx.DiGraph), facts=_edges)
def _graph(learners: int, edges: Sequence[tuple[int, int]], directed: bool = False) -> nx.Graph:
    """A graph that was written down."""
    graph = nx.empty_graph(check_count("learners", learners, 1), create_using=nx.DiGraph if directed else nx.Graph)
    for ends in edges:
        for end in ends:
            check_count("edges", end, 0, most=learners - 1)
    graph.add_edges_from(edges)
    return graph


def _who_hears_whom(graph: nx.Graph) -> sparse.csr_array:
    heard = nx.to_scipy_sparse_array(graph, nodelist=in_order(graph), dtype=np.float64, weight=None, format="csr")
    # Row i of networkx's matrix lists who hears i.
    adjacency = sparse.csr_array(heard.T)
    adjacency.setdiag(0.0)
    adjacency.eliminate_zeros()
    return adjacency


def _probability(field: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise ConfigurationError(field, value, "a probability from 0 to 1")
    return float(value)
