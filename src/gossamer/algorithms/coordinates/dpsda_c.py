"""DPSDA-C: dual averaging of a common objective by nodes that control its coordinates, on undirected networks.

Algorithm 1 of paper 002, with u_i(t) the derivatives of f_t at y_i(t) on the coordinates of node i:

tight        v_i(t) = n clip( u_i(t) ) + noise_i(t)                      on the own coordinates, released once
             h_i(t+1) = v_i(t) + sum_j W_ij(t) h_j(t)                    sent
             y_i(t+1) = Pi( h_i(t+1), alpha(t) )                         the own coordinates x_i(t+1) are played,
                        with own="exact" from (1/n) sum_{s<=t} v_i(s), which is what gossip converges to

published    z_i(t+1) = n u_i(t) + sum_j W_ij(t) h_j(t)                                              (12)
             h_i(t+1) = z_i(t+1) + Lap(2 n L T / epsilon) on all coordinates                         (11)  sent
             y_i(t+1) = Pi( z_i(t+1), alpha(t) )                                                     (13)  played

Pi(z, a) = argmin_{x in K} <z, x> + psi(x) / a, by default Proj_K(-a z)                              (7)

W(0) = I and nothing is said in round 0, when there are no data: W(t) is the network's matrix of exchange t - 1.
"""

from collections.abc import Sequence

from gossamer.algorithms.authoring import Calibration, require_averaging
from gossamer.algorithms.coordinates.dpsda import DpsdaOptions, Noise, Protects, Reduction
from gossamer.algorithms.coordinates.dual_averaging import Own
from gossamer.algorithms.coordinates.proximal import EUCLIDEAN, Proximal
from gossamer.core import Algorithm, Rate
from gossamer.mechanisms import Aggregation
from gossamer.privacy import Budget, Clip
from gossamer.problems import Problem
from gossamer.spec import kind
from gossamer.topology import Topology


@kind("algorithm", "dpsda_c")
def dpsda_c(
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
    """Private dual averaging of a common objective, its coordinates shared out among the nodes of a network.

    Runs on common batches (`streams.common`); measure it with `simulate(..., measure="joint")`.

    Args:
        problem: loss and decision set. A set that is a product over nodes (a `Box`) contains the joint decision; in any
            other each node's estimate lies, and the joint decision as nearly as nodes agree.
        topology: who hears whom, which may change at every round; doubly stochastic weights.
        coordinates: for each coordinate of the decision the node that controls it; by default consecutive coordinates,
            as evenly as can be. `np.repeat(range(3), [5, 2, 2])` gives the first node five.
        horizon: the rounds that are played at most; None: no end.
        budget: for the whole horizon; None only without noise.
        clip: what each node's part of a gradient is clipped to; a number bounds its Euclidean norm.
        unit: what is protected, and clipped: one "sample" of a round's batch, or the whole "batch".
        batch: samples in every batch.
        reduction: the loss of a round is the "sum" over its batch (section 6.2 of the paper) or the "mean" (section
            2.2), of which one sample moves 1 / batch as much.
        noise: "laplace" (pure), "gaussian" (needs a delta), or "none" (no guarantee).
        aggregation: "independent": fresh noise at every round, which adds up in the dual like sqrt(t). "tree" and "blt"
            ("blt" Gaussian only) release the sum of all gradients, whose noise grows like log(t).
        own: "exact" (the default): on its own coordinates a node uses the sum of what it released, which is public.
            "gossip": what it heard (the paper's, and all there is as published).
        step: alpha(t), by default 1 / sqrt(t); the decision of round t is made with alpha(t-1).
        proximal: psi of the map (7) from duals to decisions: `Euclidean()`, `Entropy()` on a simplex, or one of yours.
        gradient_noise: the standard deviation of errors with which gradients come (xi in the paper's experiments).
        calibration: "tight", or "published": the noise as printed, with epsilon / T for every round.

    >>> from gossamer import problems, sets, topology
    >>> problem = problems.LeastSquares(7, domain=sets.Box(-5.0, 5.0))
    >>> print(dpsda_c(problem, topology.ring(7), budget=Budget(1.0), clip=1.0).describe())
    dpsda_c on ring(7)
      coordinates: 1 for each node
      step: 1 / max(t-1, 1)^0.5 at exchange t
      clip: Clip(l2=1.0) of a sample's gradient, on the coordinates of each node
      noise: laplace, independent, tight
      own coordinates: exact
      noise on dual: scale 98
      guarantee: Proven: over an endless horizon, people outside the network, who read every message and see every
      decision but no data, learn about one sample of a common batch at most epsilon 1.
    """
    given = locals()
    require_averaging(topology)
    return DpsdaOptions("dpsda_c", push=False, **given).algorithm()
