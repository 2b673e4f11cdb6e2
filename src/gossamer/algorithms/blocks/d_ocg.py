"""D-OCG: decentralised online conditional gradient with accelerated gossip (Wan et al. 2024), as in paper 000.

AD-FTGL with a linear oracle in place of the projection, and L' <= L steps of gossip a block:

    z_i^0(z+1)  = z_i^{L'}(z) + d_i(z),   z_i^{-1}(z+1) = z_i^{L'-1}(z) + d_i(z),   gossiped by eq. (5)
    F_{z,i}(x)  = <z_i^{L'}(z-1), x> + (alpha (z-2) L + 2h)/2 |x|^2
    x_i(z+1)    = CG(K, L, F_{z,i}, x_i(z)), x_i(1) = x_i(2) = 0

It is the non-private reference of `pd_ocg`.
"""

from gossamer.algorithms.authoring import require_averaging, require_oracle
from gossamer.algorithms.blocks.ad_ftgl import coupled_block, without_noise
from gossamer.algorithms.blocks.pd_ocg import ConditionalGradient, projection_free_block
from gossamer.checks import check_count
from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError
from gossamer.privacy import Clip
from gossamer.problems import Problem
from gossamer.spec import kind
from gossamer.topology import Topology


@kind("algorithm", "d_ocg")
def d_ocg(
    problem: Problem,
    topology: Topology,
    *,
    horizon: int | None = None,
    steps_per_exchange: int | None = None,
    gossip_steps: int | None = None,
    regularization: float = 1.0,
    strong_convexity: float = 0.0,
    clip: float | Clip | None = None,
) -> Algorithm:
    """Decentralised online conditional gradient; nothing is private.

    Args:
        problem: loss and decision set, which needs a linear oracle: it must be bounded.
        topology: a fixed network with symmetric doubly stochastic weights.
        horizon: T in L and h; by default h grows with the steps played so far, and `steps_per_exchange` must be given.
        steps_per_exchange: L, steps and oracle calls a block; None takes sqrt(T), or (T / ln T)^(2/3) for strongly
            convex losses.
        gossip_steps: L', steps of gossip a block; None takes Wan et al.'s (see `ad_ftgl`), at most L.
        regularization: multiplies h = (G / R) sqrt(12 L T), or h = alpha L for strongly convex losses.
        strong_convexity: alpha of every step's loss; as for `ad_ftgl`.
        clip: the norm that each sample's gradient is clipped to.

    >>> from gossamer import problems, sets, topology
    >>> problem = problems.Logistic(4, domain=sets.L1Ball(3.0))
    >>> d_ocg(problem, topology.ring(8), horizon=10_000).schedule
    Every(block=100)
    """
    given = locals()
    require_averaging(topology)
    require_oracle(problem)
    if horizon is not None:
        check_count("horizon", horizon)
    elif steps_per_exchange is None:
        allowed = "a whole number where there is no horizon"
        raise ConfigurationError("steps_per_exchange", None, allowed, "try steps_per_exchange=100")
    length, steps = given.pop("steps_per_exchange"), given.pop("gossip_steps")
    usual = projection_free_block(horizon or 1, strong_convexity)
    length = check_count("steps_per_exchange", usual if length is None else length)
    if steps is None:
        steps = min(length, coupled_block(topology)) if topology.learners > 1 else 1
    check_count("gossip_steps", steps, most=length)
    return without_noise("d_ocg", ConditionalGradient(length), block=length, gossip_steps=steps, **given)
