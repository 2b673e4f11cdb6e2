"""PD-OCG: private decentralised online conditional gradient (paper 000, Algorithms 3 and 4).

PD-FTGL with a linear oracle in place of the projection. Gossip and noise are those of `pd_ftgl`, but for L' <= L steps
of gossip a block; decisions follow from the dual one block later, so that the oracle is called while the block is
played:

    x_i(1) = x_i(2) = 0
    F_{z,i}(x)  = <zhat_i(z-1), x> + (alpha (z-2) L + 2h)/2 |x|^2                                                 (9)
    x_i(z+1)    = CG(K, L, F_{z,i}, x_i(z)):     L times     v = argmin_{v in K} <grad F(x), v>                (Alg. 4)
                                                             s = argmin_{0 <= s <= 1} F(x + s (v - x))
                                                             x = x + s (v - x)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from gossamer.algorithms.authoring import Calibration, require_oracle
from gossamer.algorithms.blocks.block_options import BlockOptions, Coupling, NoiseAt
from gossamer.algorithms.blocks.pd_ftgl import Printed, assemble, choose
from gossamer.algorithms.blocks.theorems import theorem_3_9
from gossamer.checks import check_count
from gossamer.core import Algorithm
from gossamer.mechanisms import AdditiveLaw, Aggregation
from gossamer.privacy import Budget, Clip
from gossamer.problems import Problem
from gossamer.sets import DecisionSet
from gossamer.spec import kind
from gossamer.topology import Topology, accelerated_block


@dataclass(frozen=True)
class ConditionalGradient:
    """Algorithm 4 of paper 000: so many steps towards the same minimum with a linear oracle and exact line search.

    It works on the dual of the block before, F(x) = <before, x> + weight/2 |x|^2, so that its steps can be taken while
    the block is played.

    >>> from gossamer.sets import L1Ball
    >>> update = ConditionalGradient(iterations=200)
    >>> dual, zero = jnp.array([1.0, -3.0]), jnp.zeros(2)
    >>> update(L1Ball(1.0), zero, dual, dual, jnp.float32(2.0)).round(2).tolist()
    [...0.0, 1.0]
    """

    iterations: int
    lag = 1

    @property
    def error(self) -> float:
        """Jaggi 2013: after k steps F is within 8 W R^2 / (k + 2) of its minimum, so x within 4 R / sqrt(k + 2)."""
        return 4 / math.sqrt(self.iterations + 2)

    def __call__(
        self, domain: DecisionSet, x: jax.Array, before: jax.Array, dual: jax.Array, weight: jax.Array
    ) -> jax.Array:
        """X + s (v - x) with v = argmin over K of <grad F(x), v> and the best s in [0, 1], again and again."""

        def step(_: int, point: jax.Array) -> jax.Array:
            slope = before + weight * point
            move = domain.linear_minimizer(slope) - point
            curvature = weight * jnp.vdot(move, move)
            length = -jnp.vdot(slope, move) / jnp.where(curvature > 0, curvature, 1)
            return point + jnp.clip(length, 0, 1) * move

        found: jax.Array = jax.lax.fori_loop(0, self.iterations, step, x)
        return found


@kind("algorithm", "pd_ocg")
def pd_ocg(
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
    steps_per_exchange: int | None = None,
    gossip_steps: int | None = None,
    regularization: float = 1.0,
    calibration: Calibration = "tight",
) -> Algorithm:
    """Private decentralised online conditional gradient: `pd_ftgl` without projections.

    The options are those of `pd_ftgl`, but for these. The decision set must be bounded, since a linear oracle minimises
    over it. `steps_per_exchange` is L, steps and oracle calls a block; None takes that of Corollary 3.10, sqrt(T), or
    3.11, (T / ln T)^(2/3), for strongly convex losses. `gossip_steps` is L', steps of gossip a block, at most L; None
    takes eq. (10), or L where that is less or nothing is known. `regularization` multiplies the h of Corollary 3.10
    (published), or alpha L (strongly convex, Corollary 3.11), where `pd_ftgl` has 3.7 and 3.8.

    >>> from gossamer import problems, sets, topology
    >>> problem = problems.Logistic(4, feature_bound=1.0, domain=sets.L1Ball(3.0))
    >>> algorithm = pd_ocg(problem, topology.complete(8), horizon=10_000, budget=Budget(1.0), clip=1.0)
    >>> algorithm.schedule, algorithm.mixing.steps
    (Every(block=100), 55)
    """
    given = locals()
    require_oracle(problem)
    options = BlockOptions.of("pd_ocg", **given)
    asked, gossiped = options.steps_per_exchange, options.gossip_steps
    usual = projection_free_block(options.horizon, strong_convexity)
    length = check_count("steps_per_exchange", usual if asked is None else asked)
    update, needed = ConditionalGradient(length), _gossip_steps(options)
    steps = min(length, needed) if gossiped is None else check_count("gossip_steps", gossiped, most=length)
    chosen = choose(options, [length], update, steps)
    if not options.published:
        return assemble(options, chosen, update)
    as_printed = asked is None and gossiped is None and needed <= length
    return assemble(options, chosen, update, Printed(15, 1, theorem_3_9, as_printed))


def projection_free_block(horizon: int, strong_convexity: float) -> int:
    """The block of Corollaries 3.10 and 3.11: sqrt(T), or (T / ln T)^(2/3) for strongly convex losses.

    >>> projection_free_block(150_000, 0.0), projection_free_block(10_000, 0.1)
    (387, 105)
    """
    length = (horizon / math.log(horizon)) ** (2 / 3) if strong_convexity and horizon > 1 else math.sqrt(horizon)
    return max(1, int(length))


def _gossip_steps(options: BlockOptions) -> int:
    """Eq. (10), which the corollaries assume to be at most L; as many as there are steps where it says nothing."""
    if options.topology.learners == 1:
        return 1
    return accelerated_block(options.topology, options.horizon) if options.mixes_as_known else options.horizon
