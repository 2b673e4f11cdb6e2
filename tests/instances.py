"""Small instances of everything, found by discovery, for the contract tests."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np

from gossamer import problems, sets, topology
from gossamer.algorithms import REGISTRY
from gossamer.core import Algorithm
from gossamer.problems import Block, Problem
from gossamer.streams import Stream

DIM = 5
QUIET = {"seed": 0, "progress": False}


def problem(name: str = "pd_ogd") -> Problem:
    if REGISTRY[name].losses == "experts":
        return problems.Experts(DIM)
    return problems.Logistic(DIM, l2=0.01, feature_bound=2.0, domain=sets.L2Ball(3.0))


def network(name: str, learners: int, order: list[int] | None = None) -> Any:
    """What an algorithm of this name runs on; `order` renames the learners of the graph."""
    if REGISTRY[name].network != "graph":
        return learners
    graph = nx.path_graph(learners) if learners < 3 else nx.lollipop_graph(3, learners - 3)
    renamed = nx.relabel_nodes(graph, dict(enumerate(order or range(learners))))
    ordered = nx.Graph()
    ordered.add_nodes_from(range(learners))
    ordered.add_edges_from(renamed.edges)
    return topology.from_networkx(ordered)


def algorithm(name: str, learners: int = 5, order: list[int] | None = None, **changed: Any) -> Algorithm:
    entry = REGISTRY[name]
    options = dict(entry.example) | changed
    if entry.data == "common":  # renamed learners control what they did before
        owners = np.repeat(np.arange(learners), [len(part) for part in np.array_split(np.arange(DIM), learners)])
        options["coordinates"] = np.asarray(order or range(learners))[owners]
    return entry.make(problem(name), network(name, learners, order), **options)


# Few numbers of learners: each of them is compiled for.
TOPOLOGIES = {
    "ring": topology.ring(6),
    "path": topology.path(5, weights="lazy"),
    "complete": topology.complete(5),
    "star": topology.star(5),
    "torus": topology.torus(3, 3),
    "hypercube": topology.hypercube(3),
    "watts_strogatz": topology.watts_strogatz(8, 4, 0.3, seed=1),
    "erdos_renyi": topology.erdos_renyi(8, 0.6, seed=1),
    "random_regular": topology.random_regular(8, 3, seed=1),
    "from_networkx": topology.from_networkx(nx.wheel_graph(6)),
    "isolated": topology.isolated(5),
    "directed_ring": topology.directed_ring(5),
    "directed_exponential": topology.directed_exponential(6),
    "alternating": topology.alternating([topology.ring(6), topology.star(6)]),
    "random_matching": topology.random_matching(6, seed=1),
    "with_link_failures": topology.with_link_failures(topology.ring(6), 0.3, seed=1),
}


class Given(Stream):
    """The samples x (steps, learners, features) and y (steps, learners), as they are, or common batches of them."""

    def __init__(self, x: np.ndarray, y: np.ndarray, shared: bool = False) -> None:
        self.x, self.y = x, y
        self.length, self.learners = len(x), None if shared else x.shape[1]
        self.shared, self.occurrences, self.description, self.features = shared, 1, "given samples", x.shape[2:]

    def _read(self, start: int, stop: int) -> Block:
        return Block(self.x[start:stop], self.y[start:stop])


def stream(
    learners: int = 5, steps: int = 200, order: list[int] | None = None, seed: int = 3, name: str = "pd_ogd"
) -> Given:
    """Every learner has its own data; `order` gives learner i's data to learner order[i].

    For algorithms on common data one sample a step, which is the same for all.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(steps, learners, DIM)).astype(np.float32)
    y = (x @ rng.normal(size=DIM) + rng.normal(size=learners) > 0).astype(np.int32)
    if REGISTRY[name].data == "common":
        return Given(x[:, :1], y[:, :1], shared=True)
    if REGISTRY[name].losses == "experts":
        x = 1 / (1 + np.exp(-x)).astype(np.float32)
    place = np.argsort(order) if order is not None else np.arange(learners)
    return Given(x[:, place], y[:, place])
