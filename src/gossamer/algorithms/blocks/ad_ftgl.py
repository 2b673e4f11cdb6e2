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

import math
from dataclasses import dataclass

from gossamer.algorithms.authoring import require_averaging
from gossamer.algorithms.blocks.block_learner import BlockLearner, State, Update, Weight, bound_and_radius
from gossamer.algorithms.blocks.pd_ftgl import Leader
from gossamer.checks import check_count, check_positive
from gossamer.core import Algorithm, Every, Now
from gossamer.errors import ConfigurationError
from gossamer.privacy import Clip, no_guarantee
from gossamer.problems import Problem, check_clip
from gossamer.spec import kind
from gossamer.topology import AcceleratedGossip, Pair, Topology


@dataclass(frozen=True)
class CoupledBlocks(BlockLearner):
    """One learner of AD-FTGL, or of D-OCG, as the update says."""

    def speak(self, state: State, now: Now) -> tuple[Pair, State]:
        """The next decision from what was gossiped during this block; then d_i(z) starts on its way."""
        fresh, heard = self._fresh(state.gradient, state.x), state.heard
        return Pair(heard.now + fresh, heard.before + fresh), self._next(state, heard.now, now)


@kind("algorithm", "ad_ftgl")
def ad_ftgl(
    problem: Problem,
    topology: Topology,
    *,
    steps_per_exchange: int | None = 4,
    regularization: float = 1.0,
    strong_convexity: float = 0.0,
    horizon: int | None = None,
    clip: float | Clip | None = None,
) -> Algorithm:
    """Accelerated decentralised follow-the-generalised-leader; nothing is private.

    Args:
        problem: loss and decision set.
        topology: a fixed network with symmetric doubly stochastic weights.
        steps_per_exchange: steps and gossip steps per block, L. None takes Wan et al.'s
            ceil(sqrt 2 ln(sqrt 14 n) / ((sqrt 2 - 1) sqrt rho)), which their proof needs and which is far too long in
            practice on poorly connected graphs.
        regularization: multiplies h = (G / R) sqrt(6 L T), which balances the non-private terms of eq. (8), or
            h = alpha L for strongly convex losses. Where the problem has no gradient bound G or radius R, their ratio
            is taken as 1.
        strong_convexity: alpha of every step's loss: the problem's l2, if that is what makes it strongly convex, times
            the batch size on a common stream, whose loss is a sum over the batch.
        horizon: T in h; by default the steps played so far, so that the run may be of any length.
        clip: the norm that each sample's gradient is clipped to.

    >>> from gossamer import problems, topology
    >>> ad_ftgl(problems.Logistic(2), topology.ring(64, weights="lazy"), steps_per_exchange=None).schedule
    Every(block=467)
    """
    given = locals()
    require_averaging(topology)
    if horizon is not None:
        check_count("horizon", horizon)
    length = given.pop("steps_per_exchange")
    length = coupled_block(topology) if length is None else check_count("steps_per_exchange", length)
    return without_noise("ad_ftgl", Leader(), block=length, gossip_steps=length, **given)


def coupled_block(topology: Topology) -> int:
    """Wan et al.'s block: ceil(sqrt 2 ln(sqrt 14 n) / ((sqrt 2 - 1) sqrt rho)).

    >>> from gossamer import topology
    >>> coupled_block(topology.complete(9))
    13
    """
    n, rho = topology.learners, topology.spectral_gap()
    if rho <= 0:
        allowed = "a whole number, on a network without a spectral gap"
        raise ConfigurationError("steps_per_exchange", None, allowed, "try steps_per_exchange=4")
    return math.ceil(math.sqrt(2) * math.log(math.sqrt(14) * n) / ((math.sqrt(2) - 1) * math.sqrt(rho)))


def without_noise(
    name: str,
    update: Update,
    *,
    problem: Problem,
    topology: Topology,
    block: int,
    gossip_steps: int,
    strong_convexity: float,
    regularization: float,
    horizon: int | None,
    clip: float | Clip | None,
) -> Algorithm:
    """Coupled blocks without noise: AD-FTGL, or D-OCG, as the update says; nothing is private.

    h = (G / R) sqrt(6 (1 + lag) L T), which balances the terms of eqs. (8) and (11) that have no noise in them, or
    alpha L; without a horizon T is the number of steps played so far.
    """
    clip = check_clip(clip)
    mixing = AcceleratedGossip(gossip_steps)
    mixing.check(topology)
    check_positive("regularization", regularization, "try 1.0")
    check_positive("strong_convexity", strong_convexity, zero=True)
    bound, radius = bound_and_radius(problem, clip)
    per_root = bound / radius * math.sqrt(6 * (1 + update.lag) * block)
    h = strong_convexity * block or per_root * math.sqrt(horizon or 1)
    anytime = horizon is None and not strong_convexity
    parameters: dict[str, object] = {"steps per exchange": block}
    parameters |= {"gossip steps": gossip_steps} if gossip_steps != block else {}
    parameters |= {"regularization": regularization}
    parameters |= {"strong convexity": strong_convexity} if strong_convexity else {}
    return Algorithm(
        name=name,
        problem=problem,
        topology=topology,
        learner=CoupledBlocks(problem, clip, strong_convexity, block, update),
        guarantee=no_guarantee("messages and decisions are functions of raw gradients"),
        mixing=mixing,
        schedule=Every(block),
        public={"weight": Weight(regularization * h, block, strong_convexity, update.lag, anytime)},
        parameters=parameters | ({} if clip is None else {"clip": clip}),
    )
