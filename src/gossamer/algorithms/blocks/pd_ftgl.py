"""PD-FTGL: private decentralised follow-the-generalised-leader (paper 000, Algorithms 1 and 2).

Rounds are cut into blocks of L. In block z every learner plays x_i(z) and sums its clipped gradients,
d_i(z) = sum_t (clip(grad f_{t,i}(x_i(z))) - alpha x_i(z)); meanwhile block z-1 is gossiped, L accelerated steps.

before gossip   S~_i(z)      = PrivateSum of clip(grad f) over blocks 1..z                     the only release
(default)       d~_i(z)      = S~_i(z) - S~_i(z-1) - L alpha x_i(z)
   coupled      z_i^0(z+1)   = z_i^L(z) + d~_i(z),  z_i^{-1}(z+1) = z_i^{L-1}(z) + d~_i(z)     sent, gossiped by (5)
   decoupled    z_i(z+1)     = z_i(z) + [d~_i(z) gossiped by (5) from d^0 = d^{-1} = d~_i(z)]

after gossip    w_i(z-1)     = d_i^L(z-1), gossiped by (5) from d^0 = d^{-1} = d_i(z-1)        sent raw
(the paper)     zhat_i(z)    = PrivateSum(w_i(1), ..., w_i(z-1))                               released

                d_i^{k+1}    = (1 + theta) sum_j P_ij d_j^k - theta d_i^{k-1},  k = 0..L-1     (5)
                x_i(z+1)     = argmin_{x in K} <zhat_i(z), x> + (alpha (z-1) L + 2h)/2 |x|^2   (6), or with z_i^L(z)

A sample is in one block and moves its sum by at most 2 G, whatever L is. So blocks cost nothing in privacy, and divide
the noise by L.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gossamer.algorithms.blocks import block_rule
from gossamer.algorithms.blocks.learner import Leader
from gossamer.algorithms.blocks.private import Aggregation, Calibration, Coupling, NoiseAt, Setting
from gossamer.checks import check_count
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError
from gossamer.mechanisms import AdditiveLaw
from gossamer.privacy import Budget, Clip
from gossamer.problems import Problem
from gossamer.spec import kind
from gossamer.topology import Topology, accelerated_block


@kind("algorithm", "pd_ftgl")
def pd_ftgl(
    problem: Problem,
    topology: Topology,
    *,
    horizon: int,
    budget: Budget | Sequence[Budget],
    clip: float | Clip,
    noise: AdditiveLaw = "laplace",
    noise_at: NoiseAt | None = None,
    gossip: Coupling | None = None,
    aggregation: Aggregation | None = None,
    strong_convexity: float = 0.0,
    block: int | None = None,
    regularization: float = 1.0,
    calibration: Calibration = "tight",
) -> Algorithm:
    """Private decentralised follow-the-generalised-leader.

    Args:
        problem: loss and decision set.
        topology: who hears whom. Fixed, with symmetric doubly stochastic weights: gossip is accelerated. Before gossip
            it may also change or fail: gossip is plain then, and `block` must be given.
        horizon: the steps that will be played at most, T.
        budget: for the whole horizon; before gossip also one for each learner.
        clip: what each sample's gradient is clipped to; a number bounds its Euclidean norm, G.
        noise: "laplace" and "l2-laplace" are pure, "gaussian" needs a delta.
        noise_at: "before-gossip" (the default) protects messages and decisions; "after-gossip" (the paper's, and all
            there is as published) protects decisions from the public, and peers see raw gradients.
        gossip: "coupled" carries disagreements on into the next blocks, which shrink them further (the default before
            gossip); "decoupled" gossips every block for itself (the paper's, and all there is after gossip).
        aggregation: "tree", "toeplitz" or "blt" sum with correlated noise (the last two Gaussian only), "independent"
            adds fresh noise to every block; None takes the one that `block_rule` finds best.
        strong_convexity: alpha of every sample's loss: the problem's l2, if that is what makes it strongly convex.
        block: L, steps and gossip steps a block; None takes the one that `block_rule` finds best,
            and eq. (7) with calibration="published".
        regularization: multiplies h: the best one by `block_rule`, that of Corollary 3.7 (published), or alpha L
            (strongly convex, Corollary 3.8).
        calibration: "tight" is the smallest noise that we can prove; "published" is as printed.

    >>> from gossamer import problems, topology
    >>> problem, ring = problems.Logistic(4, feature_bound=1.0), topology.ring(8, weights="lazy")
    >>> print(pd_ftgl(problem, ring, horizon=10_000, budget=Budget(1.0), clip=1.0).describe())
    pd_ftgl on ring(8, lazy)
      block: ...
      regularization: 1 (h = ...)
      clip: Clip(l2=1.0)
      gossip: coupled, noise before gossip
      noise: laplace, ..., tight
      noise on gradient: scale ...
      guarantee: Proven: over 10,000 steps, all other participants together, who see every message and every
      decision, learn about one sample of one learner at most epsilon 1.
    """
    setting = Setting.of(
        "pd_ftgl",
        problem,
        topology,
        horizon=horizon,
        budget=budget,
        clip=clip,
        noise=noise,
        noise_at=noise_at,
        gossip=gossip,
        aggregation=aggregation,
        strong_convexity=strong_convexity,
        regularization=regularization,
        calibration=calibration,
    )
    update = Leader()
    blocks = _blocks(setting) if block is None else [check_count("block", block)]
    chosen = setting.choose(blocks, aggregation, update)
    if not setting.published:
        return setting.algorithm(chosen, update, h=None, corollary=None)
    corollary = corollary_3_8 if strong_convexity else corollary_3_7
    h, bound = corollary(setting, chosen.block)
    return setting.algorithm(chosen, update, h=h, corollary=bound if block is None and setting.semidefinite else None)


def _blocks(setting: Setting) -> list[int]:
    """The blocks to choose from: that of eq. (7) as printed, or a grid that contains it."""
    if not setting.mixes_as_known:
        hint = "on a network that changes, or is very large, nothing is known about how fast gossip converges: try 16"
        raise ConfigurationError("block", None, "a whole number", hint)
    printed = accelerated_block(setting.topology, setting.horizon) if setting.topology.learners > 1 else 1
    return [printed] if setting.published else block_rule.lengths(setting.horizon, printed)


def corollary_3_7(setting: Setting, block: int) -> tuple[float, float]:
    """The h and the bound on E[R_{T,i}] of Corollary 3.7: convex losses."""
    n, d, T = setting.topology.learners, setting.problem.dim, setting.horizon
    G, R, epsilon = setting.printed_bound, setting.radius, setting.budgets[0].epsilon
    log = 2 + math.log2(T)
    h = G * math.sqrt(14 * block * T * log) / R
    return h, 7 * n * G * R * math.sqrt(block * T * log) + 4 * n * d * G * R * log**1.5 * math.sqrt(T / block) / epsilon


def corollary_3_8(setting: Setting, block: int) -> tuple[float, float]:
    """The h and the bound of Corollary 3.8: strongly convex losses. Its printed noise term lacks a factor G."""
    n, d, T = setting.topology.learners, setting.problem.dim, setting.horizon
    G, R, epsilon = setting.printed_bound, setting.radius, setting.budgets[0].epsilon
    alpha = setting.strong_convexity
    wide = G + 2 * alpha * R
    lag = 24 * n * G * block * wide * (1 + math.log(T / block)) / alpha
    noise = 27 * n * d * G * wide * (2 + math.log2(T)) ** 3 / (alpha * epsilon)
    return alpha * block, lag + noise + n * alpha * block * R**2
