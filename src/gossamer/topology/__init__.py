"""Topologies: who hears whom and with which weight, and how messages mix.

>>> from gossamer import topology
>>> topology.ring(16)
ring(16)
"""

from gossamer.topology.base import DENSE_LIMIT, Neighbours, Topology
from gossamer.topology.fixed import FixedTopology
from gossamer.topology.graphs import (
    complete,
    directed_exponential,
    directed_ring,
    erdos_renyi,
    from_networkx,
    hypercube,
    isolated,
    path,
    random_regular,
    ring,
    star,
    torus,
    watts_strogatz,
)
from gossamer.topology.mixing import (
    AcceleratedGossip,
    Gossip,
    Mixing,
    Pair,
    PushSum,
    accelerated_block,
    accelerated_theta,
    polynomial_matrix,
    spoken,
)
from gossamer.topology.time_varying import alternating, public_draws, random_matching, with_link_failures

__all__ = [
    "DENSE_LIMIT",
    "AcceleratedGossip",
    "FixedTopology",
    "Gossip",
    "Mixing",
    "Neighbours",
    "Pair",
    "PushSum",
    "Topology",
    "accelerated_block",
    "accelerated_theta",
    "alternating",
    "complete",
    "directed_exponential",
    "directed_ring",
    "erdos_renyi",
    "from_networkx",
    "hypercube",
    "isolated",
    "path",
    "polynomial_matrix",
    "public_draws",
    "random_matching",
    "random_regular",
    "ring",
    "spoken",
    "star",
    "torus",
    "watts_strogatz",
    "with_link_failures",
]
