"""What a file may name: every problem, decision set, graph, generator and data set, and how it is spelled there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gossamer import data, problems, sets, streams, topology
from gossamer.algorithms import Entry

Maker = Callable[..., Any]

LISTED = "`gossamer algorithms` lists them, and what each is"
"""Where to look for an algorithm that does not exist."""


def spelled(maker: Maker) -> str:
    """The name of a class or function in a file: lower case, words joined by hyphens.

    >>> spelled(sets.L2Ball), spelled(topology.watts_strogatz)
    ('l2-ball', 'watts-strogatz')
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", maker.__name__)
    return words.replace("_", "-").lower()


def _by_name(*makers: Maker) -> Mapping[str, Maker]:
    return {spelled(maker): maker for maker in makers}


PROBLEMS = _by_name(
    problems.Logistic,
    problems.Softmax,
    problems.LeastSquares,
    problems.Hinge,
    problems.Linear,
    problems.Experts,
    problems.small_cnn,
)

SETS = _by_name(sets.Everywhere, sets.L2Ball, sets.L1Ball, sets.Box, sets.Simplex, sets.TraceNormBall)

TOPOLOGIES = _by_name(
    topology.ring,
    topology.path,
    topology.complete,
    topology.star,
    topology.torus,
    topology.hypercube,
    topology.watts_strogatz,
    topology.erdos_renyi,
    topology.random_regular,
    topology.directed_ring,
    topology.directed_exponential,
    topology.random_matching,
    topology.alternating,
    topology.with_link_failures,
)

GENERATORS = _by_name(
    streams.heterogeneous_logistic,
    streams.linear_regression,
    streams.random_signs,
    streams.smooth_cycle_logistic,
    streams.clusters,
    streams.poker_hands,
    streams.stochastic_experts,
    streams.realizable_experts,
    streams.drifting_experts,
    streams.hard_experts,
    streams.hidden_expert,
)

DATASETS: Mapping[str, Callable[..., data.Dataset]] = {
    entry.name: getattr(data, entry.name) for entry in data.available()
}


def setting(entry: Entry, dim: int, learners: int) -> tuple[problems.Problem, Any]:
    """A problem and a network for one who asks about an algorithm and names neither.

    >>> from gossamer.algorithms import REGISTRY
    >>> setting(REGISTRY["fed_svt"], 3, 4)
    (Experts(dim=3, ...), 4)
    """
    network = topology.ring(learners, weights="lazy") if entry.network == "graph" else learners
    if entry.losses == "experts":
        return problems.Experts(dim), network
    return problems.Logistic(dim, feature_bound=1.0, domain=sets.L2Ball(1.0)), network
