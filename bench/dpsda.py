"""DPSDA (paper 002) at three sizes: `python -m bench.dpsda` times these workloads alone, `make bench` with all others.

The sizes of the paper's regression (7 nodes, 21 coordinates) on networks that change, 1,000 nodes with a coordinate
each on a sparse graph, and that of MNIST (7 nodes, 784 pixels, batches of 100).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import networkx as nx
import numpy as np

from bench import loops
from bench.workloads import Workload, noise_alone
from gossamer import Budget, algorithms, problems, sets, simulate, streams, topology
from gossamer.core import Algorithm
from gossamer.problems import Problem
from gossamer.topology import Topology
from gossamer.topology.time_varying import Alternating

Noise = Literal["laplace", "gaussian"]
Make = Callable[..., Algorithm]

BOX, CLIP = 5.0, 1.0
DENSE = 100
"""Up to this many nodes the NumPy loop mixes with a dense matrix, above by neighbour lists: each where it is faster."""


def workloads() -> tuple[Workload, ...]:
    """All lines of the table."""
    few, many = problems.LeastSquares(21, domain=BOX_OF_PAPER), problems.LeastSquares(1000, domain=BOX_OF_PAPER)
    pixels = problems.Logistic(784, domain=BOX_OF_PAPER)
    sparse = topology.random_regular(1000, 4, seed=0)
    return (
        workload(algorithms.dpsda_c, few, undirected(), 20_000, noise="laplace"),
        workload(algorithms.dpsda_c, few, undirected(), 20_000, noise="gaussian"),
        workload(algorithms.dpsda_ps, few, directed(), 20_000, noise="laplace"),
        workload(algorithms.dpsda_ps, few, directed(), 20_000, noise="gaussian"),
        workload(algorithms.dpsda_c, many, sparse, 300, noise="laplace"),
        workload(algorithms.dpsda_c, many, sparse, 300, noise="laplace", scipy=True),
        workload(algorithms.dpsda_c, pixels, undirected(), 600, noise="laplace", batch=100),
    )


BOX_OF_PAPER = sets.Box(-BOX, BOX)


def undirected() -> Alternating:
    """Seven nodes: the links of the ring, and a chord, dealt over four graphs that no two rounds in a row connect."""
    links = [[(0, 1), (4, 5)], [(1, 2), (5, 6)], [(2, 3), (6, 0)], [(3, 4), (1, 5)]]
    return topology.alternating([_graph(nx.Graph, each) for each in links], weights="metropolis")


def directed() -> Alternating:
    """The same with one direction each: any four rounds in a row are strongly connected, fewer are not."""
    links = [[(0, 1), (4, 5)], [(1, 2), (5, 6)], [(2, 3), (6, 0)], [(3, 4), (1, 5)]]
    return topology.alternating([_graph(nx.DiGraph, each) for each in links], weights="push-sum")


def workload(
    make: Make,
    problem: Problem,
    network: Topology,
    rounds: int,
    *,
    noise: Noise,
    batch: int = 1,
    scipy: bool = False,
) -> Workload:
    """One line: Laplace noise is drawn afresh, Gaussian noise is correlated (`aggregation="blt"`).

    `scipy`: the loop mixes with a sparse matrix of SciPy's, in place of NumPy alone.
    """
    correlated = noise == "gaussian"
    algorithm = make(
        problem,
        network,
        horizon=rounds,
        budget=Budget(2.0, 1e-5 if correlated else 0.0),
        clip=CLIP,
        batch=batch,
        noise=noise,
        aggregation="blt" if correlated else "independent",
    )
    x, y = samples(problem, rounds * batch)
    stream = streams.common(x, y, batch=batch)
    by_round = x.reshape(rounds, batch, -1), y.reshape(rounds, batch).astype(np.float32)
    scale, setting = algorithm.scales_of("dual")[0].value, setting_of(algorithm, rounds, scipy)

    def loop() -> object:
        rng, width = np.random.default_rng(0), problem.dim // network.learners
        drawn = loops.correlated_noise if correlated else loops.laplace_noise
        return loops.dpsda(*by_round, setting, drawn(rounds, network.learners, width, scale, rng))

    law = "blt" if correlated else "Laplace"
    return Workload(
        f"{algorithm.name}, {network.learners} nodes, d={problem.dim}"
        + f", B={batch}" * (batch > 1)
        + f", {law}"
        + ", loop with SciPy" * scipy,
        rounds,
        lambda: simulate(algorithm, stream, rounds, seed=0, measure="joint", progress=False),
        loop,
        lambda: noise_alone(algorithm, rounds),
    )


def setting_of(algorithm: Algorithm, rounds: int, scipy: bool = False) -> loops.Dual:
    """What the NumPy loop needs to do the same as this algorithm."""
    network = algorithm.topology
    assert isinstance(network, Topology)
    period = len(network.parts) if isinstance(network, Alternating) else 1
    sparse = [network.sparse(exchange).astype(np.float32) for exchange in range(period)]
    return loops.Dual(
        mixing=sparse if scipy else _mixing(network, period),
        nodes=network.learners,
        push=algorithm.name == "dpsda_ps",
        steps=algorithm.public["step"](np.arange(1, rounds + 1)).astype(np.float32),
        clip=CLIP,
        box=BOX,
        link=loops.LOGISTIC if isinstance(algorithm.problem, problems.Logistic) else loops.SQUARE,
    )


def _mixing(network: Topology, period: int) -> list[np.ndarray] | list[loops.Lists]:
    """What NumPy alone mixes fastest with."""
    if network.learners <= DENSE:
        return [network.matrix(exchange).astype(np.float32) for exchange in range(period)]
    speakers, weights = network.neighbours(np.arange(period))
    return [loops.Lists(s.astype(np.int64), w.astype(np.float32)) for s, w in zip(speakers, weights, strict=True)]


def samples(problem: Problem, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Features of norm about 1, and labels that a linear model gives."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rows, problem.dim), dtype=np.float32) / np.float32(np.sqrt(problem.dim))
    score = x @ rng.uniform(-1, 1, problem.dim).astype(np.float32)
    return x, (score > 0).astype(np.int32) if problem.classifies else score


def _graph(kind: type[nx.Graph], links: Sequence[tuple[int, int]]) -> nx.Graph:
    graph = kind()
    graph.add_nodes_from(range(7))
    graph.add_edges_from(links)
    return graph


if __name__ == "__main__":
    from bench.__main__ import compare

    compare(workloads())
