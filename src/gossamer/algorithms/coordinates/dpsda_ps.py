"""DPSDA-PS: DPSDA by push-sum, on directed networks that change at every round.

Algorithm 2 of paper 002, with u_i(t) the derivatives of f_t at y_i(t) on the coordinates of node i:

tight        v_i(t) = n clip( u_i(t) ) + noise_i(t)                      on the own coordinates, released once
             h_i(t+1) = v_i(t) + sum_j A_ij(t) h_j(t)                    sent
             w_i(t+1) = sum_j A_ij(t) w_j(t)                             sent, no data enter
             y_i(t+1) = Pi( h_i(t+1) / w_i(t+1), alpha(t) )              the own coordinates x_i(t+1) are played,
                        with own="exact" from (1/n) sum_{s<=t} v_i(s), which is what push-sum converges to

published    z_i(t+1) = n u_i(t) + sum_j A_ij(t) h_j(t)                                              (20)
             h_i(t+1) = z_i(t+1) + Lap(2 n L T / epsilon) on all coordinates                         (11)  sent
             y_i(t+1) = Pi( z_i(t+1) / w_i(t+1), alpha(t) )                                          (22)  played

A(0) = I and nothing is said in round 0, when there are no data: w(1) = 1, and A(t) is the network's matrix of exchange
t - 1. B-strong connectivity (section 2.1) asks nothing of A(0).
"""

from collections.abc import Sequence

from gossamer.algorithms.authoring import Calibration
from gossamer.algorithms.coordinates.dpsda import DpsdaOptions, Noise, Protects, Reduction
from gossamer.algorithms.coordinates.dual_averaging import Own
from gossamer.algorithms.coordinates.networks import require_push_sum
from gossamer.algorithms.coordinates.proximal import EUCLIDEAN, Proximal
from gossamer.core import Algorithm, Rate
from gossamer.mechanisms import Aggregation
from gossamer.privacy import Budget, Clip
from gossamer.problems import Problem
from gossamer.spec import kind
from gossamer.topology import Topology


@kind("algorithm", "dpsda_ps")
def dpsda_ps(
    problem: Problem,
    topology: Topology,
    *,
    coordinates: Sequence[int] | None = None,
    horizon: int | None = None,
    budget: Budget | None = None,
    clip: float | Clip | None = None,
    unit: Protects = "sample",
    batch: int = 1,
    reduction: Reduction = "sum",
    noise: Noise = "laplace",
    aggregation: Aggregation = "independent",
    own: Own | None = None,
    step: float | Rate | None = None,
    proximal: Proximal = EUCLIDEAN,
    gradient_noise: float = 0.0,
    calibration: Calibration = "tight",
) -> Algorithm:
    """Private dual averaging of a common objective by push-sum, on directed networks.

    Args:
        problem: loss and decision set, as for `dpsda_c`.
        topology: who hears whom, which may change at every round; column-stochastic weights (weights="push-sum").
        coordinates: for each coordinate of the decision the node that controls it; by default consecutive coordinates,
            as evenly as can be.
        horizon: the rounds that are played at most; None: no end.
        budget: for the whole horizon; None only without noise.
        clip: what each node's part of a gradient is clipped to; a number bounds its Euclidean norm.
        unit: what is protected, and clipped: one "sample" of a round's batch, or the whole "batch".
        batch: samples in every batch.
        reduction: the loss of a round is the "sum" over its batch (section 6.2 of the paper) or the "mean" (section
            2.2), of which one sample moves 1 / batch as much.
        noise: "laplace" (pure), "gaussian" (needs a delta), or "none" (no guarantee).
        aggregation: "independent", or "tree" and "blt" ("blt" Gaussian only), whose noise adds up to less in the dual.
        own: "exact" (the default): on its own coordinates a node uses the sum of what it released, which is public.
            "gossip": what it heard (the paper's, and all there is as published).
        step: alpha(t), by default 1 / sqrt(t); the decision of round t is made with alpha(t-1).
        proximal: psi of the map (7) from duals to decisions: `Euclidean()`, `Entropy()` on a simplex, or one of yours.
        gradient_noise: the standard deviation of errors with which gradients come.
        calibration: "tight", or "published": the noise as printed, with epsilon / T for every round.

    >>> from gossamer import problems, topology
    >>> options = {"budget": Budget(1.0), "clip": 1.0, "horizon": 500, "calibration": "published"}
    >>> published = dpsda_ps(problems.Linear(7), topology.directed_ring(7), **options)
    >>> round(published.scales["dual"][0].value), round(published.guarantee.epsilon, 5)
    (7000, 0.014)
    """
    given = locals()
    require_push_sum(topology)
    return DpsdaOptions("dpsda_ps", push=True, **given).algorithm()
