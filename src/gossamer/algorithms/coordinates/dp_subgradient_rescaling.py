"""DPSR: private gradient descent with row-stochastic weights and rescaled gradients (Xiong et al. 2020).

v_i(0) = e_i,  v_i(t+1) = sum_j R_ij v_j(t):  [v_i(t)]_i tends to pi_i, the weight that gossip gives to learner i

tight        g~_i(t) = clip( grad f_{t,i}(x_i(t)) ) + noise_i(t)                                      released once
             x_i(t+1) = Proj_K( sum_j R_ij x_j(t) - alpha_t g~_i(t) / [v_i(t)]_i )                    played and sent

published    x_i(t+1) = Proj_K( sum_j R_ij x~_j(t) - alpha_t clip( grad f_{t,i}(x_i(t)) ) / [v_i(t)]_i )    played
             x~_i(t+1) = x_i(t+1) + (alpha_t / [v_i(t)]_i) Lap( 2 G sqrt(d) T / epsilon )                   sent

A baseline of paper 002 for objectives that are a sum of the learners' own, on fixed directed networks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gossamer.algorithms.authoring import Calibration, noised_once, noisy_step_rate, step_rate
from gossamer.algorithms.coordinates.networks import require_connected, require_rescaling, smallest_weight
from gossamer.algorithms.coordinates.printed_noise import printed_noise
from gossamer.checks import check_choice, check_count
from gossamer.core import Algorithm, Learner, Now, Rate
from gossamer.mechanisms import AdditiveLaw, Calibrated, Independent
from gossamer.privacy import Budget, Clip, NoiseSpec, Unit, budgets_of
from gossamer.problems import Block, Problem
from gossamer.spec import kind
from gossamer.topology import Topology

_NAME = "dp_subgradient_rescaling"


class Said(NamedTuple):
    """A message: the point, and the estimate of the weights that gossip gives to everybody."""

    x: jax.Array
    v: jax.Array


class State(NamedTuple):
    """The decision in play, what was last heard, the gradient of the sample just seen, who it is, the mechanism's."""

    x: jax.Array
    heard: Said
    gradient: jax.Array
    identity: jax.Array
    private: Any


@dataclass(frozen=True)
class Rescaled(Learner):
    """What both forms share."""

    problem: Problem
    clip: Clip
    learners: int
    mechanism: Independent

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """One vector for every gradient."""
        return self.mechanism.noise(used_in="speak")

    def init(self, identity: jax.Array) -> State:
        """All learners start at the same public point, and know only themselves."""
        x = jnp.asarray(self.problem.initial_decision())
        known = jax.nn.one_hot(identity, self.learners, dtype=x.dtype)
        return State(x, Said(x, known), jnp.zeros_like(x), identity, self.mechanism.init())

    def decide(self, state: State, now: Now) -> jax.Array:
        """x_i(t)."""
        return state.x

    def learn(self, state: State, block: Block, now: Now) -> State:
        """The clipped gradient at the decision that was played; l2 is no data, and comes after the noise."""
        return state._replace(gradient=self.problem.clipped_data_gradient_sum(state.x, block, self.clip))

    def listen(self, state: State, heard: Said) -> State:
        """sum_j R_ij of what was said."""
        return state._replace(heard=heard)

    def _rate(self, state: State, now: Now) -> jax.Array:
        """alpha_t / [v_i(t)]_i."""
        rate: jax.Array = now.public["step"] / state.heard.v[state.identity]
        return rate


@dataclass(frozen=True)
class TightRescaled(Rescaled):
    """Releases every gradient once; decisions and messages are functions of what was released."""

    released = frozenset({"x"})

    def speak(self, state: State, now: Now) -> tuple[Said, State]:
        """x_i(t+1) from the noised gradient."""
        noised, private = self.mechanism.release(state.private, state.gradient, now.noise, now.grid)
        gradient = self.problem.add_l2(noised, state.x)
        x = self.problem.domain.project(state.heard.x - self._rate(state, now) * gradient)
        return state.heard._replace(x=x), state._replace(x=x, private=private)


@dataclass(frozen=True)
class PublishedRescaled(Rescaled):
    """Sends every decision with noise, and plays it without: none of its fields is released."""

    def speak(self, state: State, now: Now) -> tuple[Said, State]:
        """x_i(t+1) from the raw gradient, and x~_i(t+1), in units of the rate."""
        rate = self._rate(state, now)
        x = self.problem.domain.project(state.heard.x - rate * state.gradient)
        noised, private = self.mechanism.release(state.private, x / rate, now.noise, now.grid)
        return state.heard._replace(x=rate * noised), state._replace(x=x, private=private)


@kind("algorithm", "dp_subgradient_rescaling")
def dp_subgradient_rescaling(
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
    """Private gradient descent on a directed network, where gradients are rescaled by what gossip makes of them.

    The options are those of `dp_push_sum_dual_averaging`, but for two. `topology` is fixed and strongly connected, with
    row-stochastic weights (weights="uniform"). `step` is that of a sum over all learners; by default that of `pd_ogd`
    divided by their number.

    >>> from gossamer import problems, topology
    >>> network = topology.directed_ring(5, weights="uniform")
    >>> options = {"budget": Budget(1.0), "clip": 1.0, "step": 0.1}
    >>> print(dp_subgradient_rescaling(problems.Logistic(4), network, **options).describe())
    dp_subgradient_rescaling on directed_ring(5, uniform)
      step: 0.1 at every exchange
      clip: Clip(l2=1.0)
      noise: laplace, tight
      noise on gradient: scale 4
      guarantee: Proven: over an endless horizon, all other participants together, who see every message and every
      decision, learn about one sample of one learner at most epsilon 1.
    """
    require_rescaling(topology)
    require_connected(topology)
    check_choice("noise", noise, AdditiveLaw)
    check_choice("calibration", calibration, Calibration)
    if horizon is not None:
        check_count("horizon", horizon)
    clip, budgets, proof = Clip.of(clip), budgets_of(budget, topology.learners), f"docs/algorithms/{_NAME}.md"
    release: Calibrated[Any]
    if calibration == "tight":
        mechanism = Independent((problem.dim,), horizon=horizon, law=noise, name="gradient")
        release = mechanism.calibrate(clip.sensitivity(Unit.SAMPLE, problem.dim), budgets)
        learner: Rescaled = TightRescaled(problem, clip, topology.learners, release.mechanism)
        rate = _of_sum(noisy_step_rate(problem, step, clip, release), step, topology)
        promise = noised_once(release, clip, proof=proof)
    else:
        rate = _of_sum(step_rate(problem, step, clip), step, topology)
        release, promise = printed_noise(
            problem, topology, clip, budgets, horizon, noise, rate, smallest_weight, name="gradient", proof=proof
        )
        learner = PublishedRescaled(problem, clip, topology.learners, release.mechanism)
    return Algorithm(
        name=_NAME,
        problem=problem,
        topology=topology,
        learner=learner,
        guarantee=promise,
        public={"step": rate},
        releases=(release,),
        parameters={"step": str(rate), "clip": clip, "noise": f"{noise}, {calibration}"},
        # Published, the cost counts on weights [v_i]_i that lost messages make smaller.
        missing="own" if calibration == "tight" else None,
    )


def _of_sum(rate: Rate, step: float | Rate | None, topology: Topology) -> Rate:
    """The default for the sum of all learners' gradients from that for their mean."""
    return replace(rate, scale=rate.scale / topology.learners) if step is None else rate
