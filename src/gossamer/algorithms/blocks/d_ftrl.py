"""D-FTGL: decentralised follow-the-generalised-leader, eqs. (3) and (4) of paper 000.

z_i(t+1) = sum_j P_ij z_j(t) + grad f_{t,i}(x_i(t)) - alpha x_i(t)                                              (4)
x_i(t+1) = argmin_{x in K} <z_i(t+1), x> + (alpha t + 2h)/2 |x|^2                                               (3)

Here 2h is 1 / eta_t, which may grow with t. With alpha = 0 it is D-FTRL, decentralised dual averaging (Hosseini et al.
2013): x_i(t+1) = Proj_K( -eta_t z_i(t+1) ).
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer.algorithms.descent.d_ogd import DOGD, State, d_ogd
from gossamer.checks import check_positive
from gossamer.core import Algorithm, Now, Rate
from gossamer.privacy import Clip
from gossamer.problems import Problem, check_clip
from gossamer.spec import kind
from gossamer.topology import Topology


@dataclass(frozen=True)
class DFTGL(DOGD):
    """One learner: as in D-OGD, but what is said and heard are duals."""

    strong_convexity: float

    def init(self, identity: jax.Array) -> State:
        """Duals start at zero."""
        x = jnp.asarray(self.problem.initial_decision())
        return State(x, jnp.zeros_like(x), jnp.zeros_like(x))

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """z_i(t+1), and the decision it gives."""
        alpha = self.strong_convexity
        fresh = state.gradient - alpha * state.x if alpha else state.gradient
        dual = state.heard + fresh
        return dual, state._replace(x=self.problem.domain.project(-now.public["step"] * dual))


@dataclass(frozen=True)
class LeaderStep:
    """One over the weight of eq. (3): eta_t / (1 + alpha t eta_t).

    >>> LeaderStep(Rate(0.5, 0.0), strong_convexity=1.0)(np.array([1, 2]))
    array([0.33333333, 0.25      ])
    """

    rate: Rate
    strong_convexity: float

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """At each exchange number."""
        eta = self.rate(t)
        return eta / (1 + self.strong_convexity * t * eta)


@kind("algorithm", "d_ftrl")
def d_ftrl(
    problem: Problem,
    topology: Topology,
    *,
    step: float | Rate | None = None,
    strong_convexity: float = 0.0,
    clip: float | Clip | None = None,
) -> Algorithm:
    """Decentralised follow the leader, regularised (dual averaging) or generalised; nothing is private.

    Args:
        problem: loss and decision set.
        topology: who hears whom; doubly stochastic weights.
        step: eta_t = 1 / (2h); by default diameter / (gradient bound * sqrt(t)) where the problem has both, and for
            strongly convex losses 1 / (2 alpha): the h = alpha L of Corollary 3.8 in blocks of one step.
        strong_convexity: alpha of every step's loss, as for `ad_ftgl`; 0 for convex losses.
        clip: the norm that each sample's gradient is clipped to.

    >>> from gossamer import problems, topology
    >>> made = d_ftrl(problems.Logistic(2, l2=0.1), topology.ring(5), strong_convexity=0.1)
    >>> made.parameters["step"], made.public["step"](np.array([1, 8])).round(2).tolist()
    ('5 at every exchange', [3.33, 1.0])
    """
    alpha = check_positive("strong_convexity", strong_convexity, zero=True)
    usual = 1 / (2 * alpha) if alpha and step is None else step
    primal = d_ogd(problem, topology, step=usual, clip=clip)
    rate = primal.public["step"]
    assert isinstance(rate, Rate)
    return replace(
        primal,
        name="d_ftrl",
        learner=DFTGL(problem, check_clip(clip), alpha),
        public={"step": LeaderStep(rate, alpha) if alpha else rate},
        parameters=dict(primal.parameters) | ({"strong convexity": alpha} if alpha else {}),
    )
