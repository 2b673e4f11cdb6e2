"""PD-OGD: decentralised online gradient descent with private gradients (Li et al. 2018, DOLA).

tight        g~_i(t) = clip( grad f_{t,i}(x_i(t)) ) + noise_i(t)                             released once
             x_i(t+1) = Proj_K( sum_j P_ij x_j(t) - eta_t g~_i(t) )                          played and sent

published    x_i(t+1) = Proj_K( sum_j P_ij x~_j(t) - eta_t clip( grad f_{t,i}(x_i(t)) ) )    played, not noised
             x~_i(t+1) = x_i(t+1) + eta_t noise_i(t),  noise ~ Lap( 2 G sqrt(d) T / epsilon )      sent

A sample moves one gradient by at most 2 G. In the tight form that gradient is released once and everything after it
is post-processing: the loss is the same after one step and after a billion. In the published form later gradients are
taken at points that were never released, so every later message may move, and each gets a share epsilon / T.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gossamer.algorithms.authoring import (
    Calibration,
    noised_once,
    noisy_step_rate,
    published_horizon,
    raw_decisions,
    require_averaging,
    step_rate,
)
from gossamer.checks import check_choice
from gossamer.core import Algorithm, Learner, Now, Rate
from gossamer.mechanisms import AdditiveLaw, Independent
from gossamer.privacy import Budget, Clip, NoiseSpec, Sensitivity, Unit, budgets_of
from gossamer.problems import Block, Problem
from gossamer.spec import kind
from gossamer.topology import Topology

_PROOF = "docs/algorithms/pd_ogd.md"


class State(NamedTuple):
    """The decision in play, what was last heard, the gradient of the sample just seen, and the mechanism's state."""

    x: jax.Array
    heard: jax.Array
    gradient: jax.Array
    private: Any


@dataclass(frozen=True)
class GradientDescent(Learner):
    """What both forms share: start, gradient and what is heard."""

    problem: Problem
    clip: Clip
    mechanism: Independent

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """One vector for every gradient."""
        return self.mechanism.noise(used_in="speak")

    def init(self, identity: jax.Array) -> State:
        """All learners start at the same public point."""
        x = jnp.asarray(self.problem.initial_decision())
        return State(x, x, jnp.zeros_like(x), self.mechanism.init())

    def decide(self, state: State, now: Now) -> jax.Array:
        """x_i(t)."""
        return state.x

    def learn(self, state: State, block: Block, now: Now) -> State:
        """The clipped gradient at the decision that was played; l2 is no data, and comes after the noise."""
        return state._replace(gradient=self.problem.clipped_data_gradient_sum(state.x, block, self.clip))

    def listen(self, state: State, heard: jax.Array) -> State:
        """sum_j P_ij of what was said."""
        return state._replace(heard=heard)


@dataclass(frozen=True)
class TightOGD(GradientDescent):
    """Releases every gradient once; decisions and messages are functions of what was released."""

    released = frozenset({"x"})

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """x_i(t+1) from the noised gradient."""
        noised, private = self.mechanism.release(state.private, state.gradient, now.noise, now.grid)
        gradient = self.problem.add_l2(noised, state.x)
        x = self.problem.domain.project(state.heard - now.public["step"] * gradient)
        return x, state._replace(x=x, private=private)


@dataclass(frozen=True)
class PublishedOGD(GradientDescent):
    """Sends every decision with noise, and plays it without: none of its fields is released."""

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """x_i(t+1) from the raw gradient, and x~_i(t+1): noise is in units that are public, here the step."""
        unit = now.public["unit"]
        gradient = self.problem.add_l2(state.gradient, state.x)
        x = self.problem.domain.project(state.heard - now.public["step"] * gradient)
        noised, private = self.mechanism.release(state.private, x / unit, now.noise, now.grid)
        return unit * noised, state._replace(x=x, private=private)


@kind("algorithm", "pd_ogd")
def pd_ogd(
    problem: Problem,
    topology: Topology,
    *,
    budget: Budget | Sequence[Budget],
    clip: float | Clip,
    horizon: int | None = None,
    noise: AdditiveLaw = "laplace",
    step: float | Rate | None = None,
    calibration: Calibration = "tight",
) -> Algorithm:
    """Private decentralised online gradient descent.

    Args:
        problem: loss and decision set.
        topology: who hears whom; doubly stochastic weights.
        budget: for the whole horizon, or one for each learner.
        clip: what each sample's gradient is clipped to; a number bounds its Euclidean norm.
        horizon: the steps that are played at most; None: no end (tight only, whose loss does not grow).
        noise: "laplace" and "l2-laplace" are pure, "gaussian" needs a delta. l2-Laplace is smaller than Laplace from a
            few dimensions on, unless gradients are clipped in the l1 norm.
        step: the step size; by default diameter / (root mean square of a noisy gradient * sqrt(t)).
        calibration: "tight": the gradient is noised once. "published": as its authors scale it, a share of the budget
            for each of `horizon` messages; decisions are then not protected.

    >>> from gossamer import problems, topology
    >>> algorithm = pd_ogd(problems.Logistic(4), topology.ring(5), budget=Budget(1.0), clip=1.0, step=0.1)
    >>> print(algorithm.describe())
    pd_ogd on ring(5)
      step: 0.1 at every exchange
      clip: Clip(l2=1.0)
      noise: laplace, tight
      noise on gradient: scale 4
      guarantee: Proven: over an endless horizon, all other participants together, who see every message and every
      decision, learn about one sample of one learner at most epsilon 1.
    """
    require_averaging(topology)
    budgets = budgets_of(budget, topology.learners)
    clip = Clip.of(clip)
    check_choice("noise", noise, AdditiveLaw)
    check_choice("calibration", calibration, Calibration)
    if calibration == "tight":  # 2 G sqrt(d) / epsilon, 2 G / epsilon or 2 G / mu_star(epsilon, delta)
        mechanism = Independent((problem.dim,), horizon=horizon, law=noise, name="gradient")
        release = mechanism.calibrate(clip.sensitivity(Unit.SAMPLE, problem.dim), budgets)
        learner: GradientDescent = TightOGD(problem, clip, release.mechanism)
        rate = noisy_step_rate(problem, step, clip, release)
        promise = noised_once(release, clip, proof=_PROOF)
    else:  # Lap(2 G sqrt(d) / (epsilon / T)), times the step
        rounds = published_horizon(problem, horizon, noise)
        mechanism = Independent((problem.dim,), horizon=rounds, law=noise, name="gradient", touches=rounds)
        release = mechanism.calibrate(Sensitivity(l1=2 * clip.norm * math.sqrt(problem.dim), l2=2 * clip.norm), budgets)
        learner = PublishedOGD(problem, clip, release.mechanism)
        rate, promise = step_rate(problem, step, clip), raw_decisions(release, clip, proof=_PROOF)
    return Algorithm(
        name="pd_ogd",
        problem=problem,
        topology=topology,
        learner=learner,
        guarantee=promise,
        public={"step": rate} if calibration == "tight" else {"step": rate, "unit": rate},
        releases=(release,),
        parameters={"step": str(rate), "clip": clip, "noise": f"{noise}, {calibration}"},
    )
