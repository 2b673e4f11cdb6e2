"""Centralised online gradient descent: a server sees every gradient, and everybody plays the same decision.

x(t+1) = Proj_K( x(t) - eta_t (1/n) sum_i grad f_{t,i}(x(t)) )
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gossamer.algorithms.authoring import step_rate
from gossamer.core import Algorithm, Federation, Learner, Now, Rate, Server
from gossamer.privacy import Clip, no_guarantee
from gossamer.problems import Block, Problem, check_clip
from gossamer.spec import kind


class State(NamedTuple):
    """The decision last broadcast, and the gradient of the block just played."""

    x: jax.Array
    gradient: jax.Array


@dataclass(frozen=True)
class GradientSender(Learner):
    """Plays what the server broadcasts and sends back its gradient."""

    problem: Problem
    clip: Clip | None

    released = frozenset({"x"})

    def init(self, identity: jax.Array) -> State:
        """Everybody starts at the same point."""
        x = jnp.asarray(self.problem.initial_decision())
        return State(x, jnp.zeros_like(x))

    def decide(self, state: State, now: Now) -> jax.Array:
        """Play the broadcast decision."""
        return state.x

    def learn(self, state: State, block: Block, now: Now) -> State:
        """The gradient at the decision that was played."""
        return state._replace(gradient=self.problem.clipped_gradient_sum(state.x, block, self.clip))

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """The raw gradient."""
        return state.gradient, state

    def listen(self, state: State, heard: jax.Array) -> State:
        """The next decision."""
        return state._replace(x=heard)


@dataclass(frozen=True)
class GradientServer(Server):
    """Takes one projected step along the mean gradient."""

    problem: Problem

    def init(self) -> jax.Array:
        """The decision is the whole state."""
        return jnp.asarray(self.problem.initial_decision())

    def aggregate(self, state: jax.Array, messages: jax.Array, now: Now) -> tuple[jax.Array, jax.Array]:
        """x(t+1), kept and broadcast."""
        x = self.problem.domain.project(state - now.public["step"] * jnp.mean(messages, axis=0))
        return x, x


@kind("algorithm", "centralized_ogd")
def centralized_ogd(
    problem: Problem, learners: int | Federation, *, step: float | Rate | None = None, clip: float | Clip | None = None
) -> Algorithm:
    """Online gradient descent on the mean gradient of all learners; nothing is private.

    Args:
        problem: loss and decision set.
        learners: how many; a `Federation` where not all take part in every round.
        step: the step size; by default diameter / (gradient bound * sqrt(t)) where the problem has both.
        clip: the norm that each sample's gradient is clipped to.

    >>> from gossamer.problems import Logistic
    >>> centralized_ogd(Logistic(2), 3, step=0.1).topology.name
    'server with 3 learners'
    """
    clip = check_clip(clip)
    rate = step_rate(problem, step, clip)
    return Algorithm(
        name="centralized_ogd",
        problem=problem,
        topology=Federation.of(learners),
        learner=GradientSender(problem, clip),
        server=GradientServer(problem),
        guarantee=no_guarantee("every learner sends its raw gradients to the server"),
        public={"step": rate},
        parameters={"step": str(rate)} | ({} if clip is None else {"clip": clip}),
    )
