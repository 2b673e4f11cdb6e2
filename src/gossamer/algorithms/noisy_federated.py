"""Federated averaging with noise of a chosen scale on every local step: uncalibrated, for benchmarks.

round r:  z = x^r;  for each of tau samples: z = z - eta (clip(grad f_i(z)) + scale * noise);  send x^r - z
server:   x^{r+1} = Proj_K( x^r - mean_i (x^r - z_i) )
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gossamer.algorithms.steps import step_rate
from gossamer.checks import check_count, check_positive
from gossamer.core import Algorithm, Every, Federation, Learner, Now, Rate, Server
from gossamer.mechanisms import AdditiveLaw, Independent
from gossamer.privacy import Clip, NoiseSpec, no_guarantee
from gossamer.problems import Block, Problem, check_clip


class State(NamedTuple):
    """The model last broadcast, and how far the local steps moved from it (noised)."""

    x: jax.Array
    move: jax.Array


@dataclass(frozen=True)
class NoisyLocalSteps(Learner):
    """Takes noisy steps on its own samples between two broadcasts."""

    problem: Problem
    clip: Clip | None
    mechanism: Independent
    local_steps: int

    released = frozenset({"x"})

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """One vector for every local step."""
        return self.mechanism.noise(used_in="learn")

    def init(self, identity: jax.Array) -> State:
        """Everybody starts at the same point."""
        x = jnp.asarray(self.problem.initial_decision())
        return State(x, jnp.zeros_like(x))

    def decide(self, state: State, now: Now) -> jax.Array:
        """Play the global model."""
        return state.x

    def learn(self, state: State, block: Block, now: Now) -> State:
        """Tau noisy local steps, each on a fresh sample."""

        def step(z: jax.Array, samples: tuple[Block, jax.Array]) -> tuple[jax.Array, None]:
            one, noise = samples
            gradient = self.problem.clipped_gradient_sum(z, one, self.clip)
            return z - now.public["step"] * (gradient + noise), None

        by_step = Block(*(leaf.reshape(self.local_steps, -1, *leaf.shape[1:]) for leaf in block))
        z, _ = jax.lax.scan(step, state.x, (by_step, now.noise["step"]), unroll=min(8, self.local_steps))
        return state._replace(move=state.x - z)

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """x^r - z."""
        return state.move, state

    def listen(self, state: State, heard: jax.Array) -> State:
        """x^{r+1}."""
        return state._replace(x=heard)


@dataclass(frozen=True)
class AveragingServer(Server):
    """Moves the global model by the mean of the learners' moves."""

    problem: Problem

    def init(self) -> jax.Array:
        """The global model is the whole state."""
        return jnp.asarray(self.problem.initial_decision())

    def aggregate(self, state: jax.Array, messages: jax.Array, now: Now) -> tuple[jax.Array, jax.Array]:
        """x^{r+1}, kept and broadcast."""
        x = self.problem.domain.project(state - jnp.mean(messages, axis=0))
        return x, x


def noisy_federated(
    problem: Problem,
    learners: int,
    *,
    local_steps: int,
    step: float | Rate | None = None,
    scale: float,
    law: AdditiveLaw = "gaussian",
    clip: float | Clip | None = None,
) -> Algorithm:
    """Federated averaging with uncalibrated noise on every local step: no guarantee.

    Args:
        problem: loss and decision set.
        learners: how many.
        local_steps: samples, and steps, between two exchanges with the server.
        step: the step size; by default diameter / (gradient bound * sqrt(round)) where the problem has both.
        scale: multiplies the unit noise added to every gradient.
        law: "laplace", "l2-laplace" or "gaussian".
        clip: the norm that each sample's gradient is clipped to.

    >>> from gossamer.problems import Logistic
    >>> noisy_federated(Logistic(2), 20, local_steps=4, step=0.1, scale=0.5).schedule
    Every(block=4)
    """
    clip = check_clip(clip)
    mechanism = Independent((check_count("local_steps", local_steps), problem.dim), law=law, name="step")
    release = mechanism.at_scale(step=check_positive("scale", scale, zero=True))
    rate = step_rate(problem, step, clip)
    return Algorithm(
        name="noisy_federated",
        problem=problem,
        topology=Federation(learners),
        learner=NoisyLocalSteps(problem, clip, mechanism, local_steps),
        server=AveragingServer(problem),
        guarantee=no_guarantee("the noise is not calibrated to anything"),
        schedule=Every(local_steps),
        public={"step": rate},
        releases=(release,),
        parameters={"step": str(rate), "local steps": local_steps, "law": law}
        | ({} if clip is None else {"clip": clip}),
    )
