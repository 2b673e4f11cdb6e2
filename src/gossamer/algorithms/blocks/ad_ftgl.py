"""AD-FTGL: accelerated decentralised follow-the-generalised-leader (Wan et al. 2024), as paper 000 describes it.

Rounds are cut into blocks of L. In block z every learner plays x_i(z), sums
d_i(z) = sum_t (grad f_{t,i}(x_i(z)) - alpha x_i(z)) over the block, and meanwhile takes part in L
steps of accelerated gossip on the duals, *coupled* between blocks:

    z_i^0(z+1)    = z_i^L(z)     + d_i(z)
    z_i^{-1}(z+1) = z_i^{L-1}(z) + d_i(z)
    z_i^{k+1}     = (1 + theta) sum_j P_ij z_j^k - theta z_i^{k-1},  k = 0, ..., L-1                (eq. 5)
    x_i(z+1)      = argmin_{x in K} <z_i^L(z), x> + (alpha (z-1) L + 2h)/2 |x|^2                    (eq. 6)

so a decision lags the data by the block that is being gossiped. Coupling carries the consensus error of old blocks on
into later gossip, which keeps shrinking it: L may be far smaller than one block alone would need.
"""

from __future__ import annotations

import math

from gossamer.algorithms.authoring import require_averaging
from gossamer.algorithms.blocks.learner import Leader, open_algorithm
from gossamer.checks import check_count
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError
from gossamer.privacy import Clip
from gossamer.problems import Problem
from gossamer.spec import kind
from gossamer.topology import Topology


@kind("algorithm", "ad_ftgl")
def ad_ftgl(
    problem: Problem,
    topology: Topology,
    *,
    block: int | None = 4,
    regularization: float = 1.0,
    strong_convexity: float = 0.0,
    horizon: int | None = None,
    clip: float | Clip | None = None,
) -> Algorithm:
    """Accelerated decentralised follow-the-generalised-leader; nothing is private.

    Args:
        problem: loss and decision set.
        topology: a fixed network with symmetric doubly stochastic weights.
        block: steps and gossip steps per block, L. None takes Wan et al.'s ceil(sqrt 2 ln(sqrt 14 n) / ((sqrt 2 - 1)
            sqrt rho)), which their proof needs and which is far too long in practice on poorly connected graphs.
        regularization: multiplies h = (G / R) sqrt(6 L T), which balances the non-private terms of eq. (8), or
            h = alpha L for strongly convex losses. Where the problem has no gradient bound G or radius R, their ratio
            is taken as 1.
        strong_convexity: alpha of every step's loss: the problem's l2, if that is what makes it strongly convex, times
            the batch size on a common stream, whose loss is a sum over the batch.
        horizon: T in h; by default the steps played so far, so that the run may be of any length.
        clip: the norm that each sample's gradient is clipped to.

    >>> from gossamer import problems, topology
    >>> ad_ftgl(problems.Logistic(2), topology.ring(64, weights="lazy"), block=None).schedule
    Every(block=467)
    """
    require_averaging(topology)
    if horizon is not None:
        check_count("horizon", horizon)
    length = coupled_block(topology) if block is None else check_count("block", block)
    return open_algorithm(
        "ad_ftgl",
        problem,
        topology,
        Leader(),
        block=length,
        gossip_steps=length,
        strong_convexity=strong_convexity,
        regularization=regularization,
        horizon=horizon,
        clip=clip,
    )


def coupled_block(topology: Topology) -> int:
    """Wan et al.'s block: ceil(sqrt 2 ln(sqrt 14 n) / ((sqrt 2 - 1) sqrt rho)).

    >>> from gossamer import topology
    >>> coupled_block(topology.complete(9))
    13
    """
    n, rho = topology.learners, topology.spectral_gap()
    if rho <= 0:
        raise ConfigurationError("block", None, "a whole number, on a network without a spectral gap", "try block=4")
    return math.ceil(math.sqrt(2) * math.log(math.sqrt(14) * n) / ((math.sqrt(2) - 1) * math.sqrt(rho)))
