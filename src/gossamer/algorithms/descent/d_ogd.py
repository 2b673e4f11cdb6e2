"""D-OGD: decentralised online gradient descent (Yan et al. 2013), the reference of every gossip algorithm here.

x_i(t+1) = Proj_K( sum_j P_ij x_j(t) - eta_t grad f_{t,i}(x_i(t)) )
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gossamer.algorithms.authoring import require_averaging, step_rate
from gossamer.core import Algorithm, Learner, Now, Rate
from gossamer.privacy import Clip, no_guarantee
from gossamer.problems import Block, Problem, check_clip
from gossamer.spec import kind
from gossamer.topology import Topology


class State(NamedTuple):
    """Decision in play, what was last heard, and the gradient of the block just played."""

    x: jax.Array
    heard: jax.Array
    gradient: jax.Array


@dataclass(frozen=True)
class DOGD(Learner):
    """One learner of D-OGD."""

    problem: Problem
    clip: Clip | None

    released = frozenset({"x"})

    def init(self, identity: jax.Array) -> State:
        """All learners start at the same point."""
        x = jnp.asarray(self.problem.initial_decision())
        return State(x, x, jnp.zeros_like(x))

    def decide(self, state: State, now: Now) -> jax.Array:
        """Play x_i(t)."""
        return state.x

    def learn(self, state: State, block: Block, now: Now) -> State:
        """The gradient at the decision that was played."""
        return state._replace(gradient=self.problem.clipped_gradient_sum(state.x, block, self.clip))

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """x_i(t+1) from sum_j P_ij x_j(t), heard after the last exchange, and the gradient."""
        x = self.problem.domain.project(state.heard - now.public["step"] * state.gradient)
        return x, state._replace(x=x)

    def listen(self, state: State, heard: jax.Array) -> State:
        """sum_j P_ij x_j(t+1)."""
        return state._replace(heard=heard)


@kind("algorithm", "d_ogd")
def d_ogd(
    problem: Problem, topology: Topology, *, step: float | Rate | None = None, clip: float | Clip | None = None
) -> Algorithm:
    """Decentralised online gradient descent; nothing is private.

    Args:
        problem: loss and decision set.
        topology: who hears whom; doubly stochastic weights.
        step: the step size; by default diameter / (gradient bound * sqrt(t)) where the problem has both.
        clip: the norm that each sample's gradient is clipped to.

    >>> from gossamer import problems, sets, topology
    >>> d_ogd(problems.Linear(2, feature_bound=1.0, domain=sets.L2Ball(1.0)), topology.ring(5)).parameters["step"]
    '2 / t^0.5 at exchange t'
    """
    clip = check_clip(clip)
    require_averaging(topology)
    rate = step_rate(problem, step, clip)
    return Algorithm(
        name="d_ogd",
        problem=problem,
        topology=topology,
        learner=DOGD(problem, clip),
        guarantee=no_guarantee("messages and decisions are functions of raw gradients"),
        public={"step": rate},
        parameters={"step": str(rate)} | ({} if clip is None else {"clip": clip}),
    )
