"""Where the samples of a file may come from: generators and data sets, and how they are spelled there."""

from collections.abc import Callable, Mapping
from typing import Any

from gossamer import data, problems, sets, streams, topology
from gossamer.algorithms import Entry

Maker = Callable[..., Any]


def spelled(maker: Maker) -> str:
    """The name of a function in a file: its words joined by hyphens.

    >>> spelled(streams.random_signs)
    'random-signs'
    """
    return maker.__name__.replace("_", "-")


def _by_name(*makers: Maker) -> Mapping[str, Maker]:
    return {spelled(maker): maker for maker in makers}


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
