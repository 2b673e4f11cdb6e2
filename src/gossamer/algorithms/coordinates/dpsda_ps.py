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

    The options are those of `dpsda_c`, but for the weights of `topology`: they are column-stochastic
    (weights="push-sum"), and links may change at every round.

    >>> from gossamer import problems, topology
    >>> options = {"budget": Budget(1.0), "clip": 1.0, "horizon": 500, "calibration": "published"}
    >>> published = dpsda_ps(problems.Linear(7), topology.directed_ring(7), **options)
    >>> round(published.scales["dual"][0].value), round(published.guarantee.epsilon, 5)
    (7000, 0.014)
    """
    given = locals()
    require_push_sum(topology)
    return DpsdaOptions("dpsda_ps", push=True, **given).algorithm()
