"""D-FTRL: decentralised dual averaging (Hosseini et al. 2013), eq. (3) and (4) of paper 000.

z_i(t+1) = sum_j P_ij z_j(t) + grad f_{t,i}(x_i(t))
x_i(t+1) = argmin_{x in K} <z_i(t+1), x> + |x|^2 / (2 eta_t)  =  Proj_K( -eta_t z_i(t+1) )
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from gossamer.algorithms.descent.d_ogd import DOGD, State, d_ogd
from gossamer.core import Algorithm, Now, Rate
from gossamer.privacy import Clip
from gossamer.problems import Problem, check_clip
from gossamer.spec import kind
from gossamer.topology import Topology


@dataclass(frozen=True)
class DFTRL(DOGD):
    """One learner of decentralised dual averaging: as in D-OGD, but what is said and heard are duals."""

    def init(self, identity: jax.Array) -> State:
        """Duals start at zero."""
        x = jnp.asarray(self.problem.initial_decision())
        return State(x, jnp.zeros_like(x), jnp.zeros_like(x))

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """z_i(t+1), and the decision it gives."""
        dual = state.heard + state.gradient
        return dual, state._replace(x=self.problem.domain.project(-now.public["step"] * dual))


@kind("algorithm", "d_ftrl")
def d_ftrl(
    problem: Problem, topology: Topology, *, step: float | Rate | None = None, clip: float | Clip | None = None
) -> Algorithm:
    """Decentralised follow the regularised leader (dual averaging); nothing is private.

    Args:
        problem: loss and decision set.
        topology: who hears whom; doubly stochastic weights.
        step: eta_t; by default diameter / (gradient bound * sqrt(t)) where the problem has both.
        clip: the norm that each sample's gradient is clipped to.

    >>> from gossamer import problems, topology
    >>> d_ftrl(problems.Logistic(2), topology.ring(5), step=0.1).topology.name
    'ring(5)'
    """
    primal = d_ogd(problem, topology, step=step, clip=clip)
    return replace(primal, name="d_ftrl", learner=DFTRL(problem, check_clip(clip)))
