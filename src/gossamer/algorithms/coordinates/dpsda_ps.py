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
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gossamer.algorithms.authoring import Calibration
from gossamer.algorithms.coordinates.dpsda import DpsdaOptions, Noise, Protects
from gossamer.algorithms.coordinates.dual_averaging import Own
from gossamer.algorithms.coordinates.networks import require_push_sum
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
    noise: Noise = "laplace",
    aggregation: Aggregation = "independent",
    own: Own | None = None,
    step: float | Rate | None = None,
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
        noise: "laplace" (pure), "gaussian" (needs a delta), or "none" (no guarantee).
        aggregation: "independent", or "tree" and "blt" ("blt" Gaussian only), whose noise adds up to less in the dual.
        own: "exact" (the default): on its own coordinates a node uses the sum of what it released, which is public.
            "gossip": what it heard (the paper's, and all there is as published).
        step: alpha(t), by default 1 / sqrt(t); the decision of round t is made with alpha(t-1).
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


def theorem_5(
    *,
    nodes: int,
    epsilon: float,
    bound: float,
    lipschitz: float,
    smoothness: float,
    diameter: float,
    psi: float,
    window: int,
    least_mass: float,
) -> float:
    """M_2 of Theorem 5: the pseudo-regret of DPSDA-PS, as published, over T rounds is at most M_2 sqrt(T).

    Args:
        nodes: n.
        epsilon: of one round.
        bound: L^, of |u_i|.
        lipschitz: L, of the norm of the gradient of f_t.
        smoothness: G of f_t.
        diameter: D_chi, of the set of one coordinate, or with different sets of the largest (Remark 4).
        psi: C, the largest |x|^2 / 2 in the decision set.
        window: B: any B rounds together are strongly connected; lambda = (1 - n^(-n B))^(1/B).
        least_mass: gamma, from `smallest_mass`.

    >>> few = {"nodes": 2, "lipschitz": 1.0, "smoothness": 1.0, "diameter": 2.0, "psi": 1.0, "least_mass": 1.0}
    >>> round(theorem_5(epsilon=math.inf, bound=1.0, window=1, **few))
    658
    """
    n, beta = nodes, 2.0
    # lambda is so near to 1 that 1 - lambda must not be computed as a difference: 5e-25 for n = 7 and B = 4.
    log_lambda = math.log1p(-(float(n) ** (-n * window))) / window
    gap, square = -math.expm1(log_lambda), math.exp(2 * log_lambda)
    disagreement = 8 * n**3 * beta**2 / (least_mass**2 * gap**2) * (1 / square + 8 * n**2 / epsilon**2)
    gradients = (16 * n**2 / epsilon**2 + 2 * n) * bound**2
    return gradients + psi + 2 * (lipschitz + math.sqrt(n) * diameter * smoothness) * bound * math.sqrt(disagreement)


def corollary_2(**constants: Any) -> float:
    """2 M_2 of Corollary 2: for the running average of the decisions; the arguments are those of `theorem_5`.

    What `corollary_1` says about its proof holds here too.

    >>> few = {"nodes": 2, "lipschitz": 1.0, "smoothness": 1.0, "diameter": 2.0, "psi": 1.0, "least_mass": 1.0}
    >>> round(corollary_2(epsilon=math.inf, bound=1.0, window=1, **few))
    1317
    """
    return 2 * theorem_5(**constants)
