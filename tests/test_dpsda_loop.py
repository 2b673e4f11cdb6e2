"""The NumPy loop that DPSDA is timed against does what the simulator does."""

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from bench import dpsda, loops
from gossamer import Budget, FastNoise, algorithms, problems, sets, simulate, streams, topology

BOX = sets.Box(-dpsda.BOX, dpsda.BOX)
PARTS = ([(0, 1), (2, 3)], [(1, 2), (3, 4)], [(4, 0)])


def parts(kind):
    return [nx.create_empty_copy(kind(nx.path_graph(5))) for _ in PARTS]


def network(kind, weights):
    graphs = parts(kind)
    for graph, links in zip(graphs, PARTS, strict=True):
        graph.add_edges_from(links)
    return topology.alternating(graphs, weights=weights)


@pytest.mark.parametrize(
    ("make", "problem", "graph", "batch", "scipy"),
    [
        (algorithms.dpsda_c, problems.LeastSquares(15, domain=BOX), network(nx.Graph, "metropolis"), 1, False),
        (algorithms.dpsda_ps, problems.Logistic(15, domain=BOX), network(nx.DiGraph, "push-sum"), 30, False),
        (algorithms.dpsda_c, problems.LeastSquares(128, domain=BOX), topology.random_regular(128, 4, seed=0), 1, False),
        (algorithms.dpsda_c, problems.LeastSquares(128, domain=BOX), topology.random_regular(128, 4, seed=0), 1, True),
    ],
)
def test_the_loop_of_the_benchmark_does_what_the_simulator_does(make, problem, graph, batch, scipy):
    """From the same draws; the clip is active, and 128 nodes gather."""
    rounds, n = 60, graph.learners
    algorithm = make(problem, graph, horizon=rounds, budget=Budget(2000.0), clip=dpsda.CLIP / 4, batch=batch, step=0.2)
    x, y = dpsda.samples(problem, rounds * batch)
    run = simulate(
        algorithm, streams.common(x, y, batch=batch), rounds, seed=0, measure="joint", every=1, progress=False
    )
    draws = FastNoise(0).draw("dual", algorithm.learner.noise["dual"], algorithm.scales_of("dual"), 0, rounds)
    setting = dpsda.setting_of(algorithm, rounds, scipy)._replace(clip=dpsda.CLIP / 4)
    assert isinstance(setting.mixing[0], sparse.csr_array if scipy else loops.Lists if n > dpsda.DENSE else np.ndarray)
    by_round = x.reshape(rounds, batch, -1), y.reshape(rounds, batch).astype(np.float32)
    losses = loops.dpsda(*by_round, setting, iter(np.swapaxes(draws, 0, 1)))
    assert np.ptp(losses) > 0.3
    np.testing.assert_allclose(losses, run.losses[:, 0], rtol=1e-4, atol=1e-5)
