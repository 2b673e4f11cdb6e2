"""Nodes against the simulator: the same algorithm objects, one node for each learner, the same noise.

Over Zenoh on loop-back with mutual TLS; all five nodes run in threads of one process.
"""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from gossamer import Budget, simulate, topology
from gossamer.algorithms import REGISTRY
from gossamer.core import Algorithm
from gossamer.net.node.agreement import prepared
from tests import instances
from tests.networks import make_member, run_all, samples_of, simulator_noise, zenoh_transports

pytestmark = pytest.mark.unoptimized

EXCHANGES = 200
GOSSIPING = [name for name, entry in REGISTRY.items() if entry.network == "graph"]
# Examples have large epsilons, for which the error of secure draws would need a larger delta.
BUDGETS = {"dpsda_c": {"budget": Budget(8.0, 1e-3)}, "dpsda_ps": {"budget": Budget(12.0)}}


def equal_to_the_simulator(algorithm: Algorithm, name: str, folder: Path, exchanges: int = EXCHANGES) -> None:
    """Run five nodes, and the simulator with their noise: what is played agrees to 1e-5."""
    *_, last = algorithm.schedule.segments(10**9)
    steps = exchanges * last.block
    stream = instances.stream(5, steps, name=name)
    members = [
        make_member(folder / str(i), algorithm, i, transport, samples_of(stream, i, steps), exchanges=exchanges)
        for i, transport in enumerate(zenoh_transports(folder / "certificates", algorithm))
    ]
    run_all(members)
    noise = simulator_noise(algorithm, members)
    run = simulate(algorithm, stream, steps, seed=0, noise=noise, record=["decisions"], progress=False)
    played = np.stack([[member.played[t] for member in members] for t in range(exchanges)])
    expected = np.asarray(run.transcript["decisions"])
    assert np.ptp(expected[-1]) > 0
    scale = np.linalg.norm(expected, axis=-1).max(axis=-1)  # of an exchange
    apart = np.linalg.norm(played - expected, axis=-1).max(axis=-1)
    np.testing.assert_array_less(apart, 1e-5 * scale + 1e-30)


@pytest.mark.parametrize("name", GOSSIPING)
def test_trajectories_are_those_of_the_simulator(name: str, tmp_path: Path) -> None:
    algorithm = prepared(instances.algorithm(name, **BUDGETS.get(name, {})), allow_no_guarantee=True)
    equal_to_the_simulator(algorithm, name, tmp_path)


def test_noise_after_gossip(tmp_path: Path) -> None:
    options = {"noise_at": "after-gossip", "aggregation": "tree", "steps_per_exchange": 3}
    equal_to_the_simulator(prepared(instances.algorithm("pd_ftgl", **options)), "pd_ftgl", tmp_path)


CHANGING = {
    "random matching": ("pd_ogd", topology.random_matching(5, seed=1), {}),
    "failing links": ("ldp_endless", topology.with_link_failures(topology.ring(5), 0.3, seed=1), {}),
    "plain gossip in steps": ("pd_ftgl", topology.random_matching(5, seed=1), {"steps_per_exchange": 3}),
    "push-sum on graphs in turn": (
        "dpsda_ps",
        topology.alternating([topology.directed_ring(5), topology.directed_exponential(5)]),
        {"budget": Budget(12.0)},
    ),
    "push-sum with failing links": (
        "dp_push_sum_dual_averaging",
        topology.with_link_failures(topology.star(5, weights="push-sum"), 0.3, seed=2),
        {},
    ),
    "pieces in turn": ("pd_ogd", topology.alternating([nx.Graph([(0, 1), (2, 3), (4, 4)]), nx.cycle_graph(5)]), {}),
}


@pytest.mark.parametrize("case", CHANGING)
def test_networks_that_change(case: str, tmp_path: Path) -> None:
    name, network, changed = CHANGING[case]
    options = {**REGISTRY[name].example, **changed}
    algorithm = prepared(REGISTRY[name].make(instances.problem(name), network, **options))
    equal_to_the_simulator(algorithm, name, tmp_path, exchanges=60)
