"""D-OGD with noise of a chosen scale on every message: uncalibrated, for benchmarks and for seeing what noise does.

    x_i(t+1) = Proj_K( sum_j P_ij x~_j(t) - eta_t grad f_{t,i}(x_i(t)) ),   x~_i = x_i + scale * noise

The decision is the projection of the noised x~_i, so that nothing un-noised is ever played or sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax

from gossamer.algorithms.descent.d_ogd import DOGD, State, d_ogd
from gossamer.checks import check_choice, check_positive
from gossamer.core import Algorithm, Now, Rate
from gossamer.mechanisms import AdditiveLaw, Independent
from gossamer.privacy import Clip, NoiseSpec, no_guarantee
from gossamer.problems import Block, Problem, check_clip
from gossamer.spec import kind
from gossamer.topology import Topology


@dataclass(frozen=True)
class NoisyOGD(DOGD):
    """One learner of D-OGD that noises what it says, and keeps the noised x~_i only."""

    mechanism: Independent

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """One vector for every message."""
        return self.mechanism.noise(used_in="speak")

    def decide(self, state: State, now: Now) -> jax.Array:
        """Play the noised decision, brought back into the decision set."""
        return self.problem.domain.project(state.x)

    def learn(self, state: State, block: Block, now: Now) -> State:
        """The gradient at the decision that was played."""
        played = self.decide(state, now)
        return state._replace(gradient=self.problem.clipped_gradient_sum(played, block, self.clip))

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """The next decision, noised."""
        x = self.problem.domain.project(state.heard - now.public["step"] * state.gradient)
        noised, _ = self.mechanism.release((), x, now.noise, now.grid)
        return noised, state._replace(x=noised)


@kind("algorithm", "noisy_ogd")
def noisy_ogd(
    problem: Problem,
    topology: Topology,
    *,
    step: float | Rate | None = None,
    scale: float,
    noise: AdditiveLaw = "laplace",
    clip: float | Clip | None = None,
) -> Algorithm:
    """Decentralised online gradient descent with uncalibrated noise on every message: no guarantee.

    Args:
        problem: loss and decision set.
        topology: who hears whom; doubly stochastic weights.
        step: the step size; by default diameter / (gradient bound * sqrt(t)) where the problem has both.
        scale: multiplies the unit noise: Laplace's b, or the Gaussian's standard deviation.
        noise: "laplace", "l2-laplace" or "gaussian".
        clip: the norm that each sample's gradient is clipped to.

    >>> from gossamer import problems, topology
    >>> noisy_ogd(problems.Logistic(2), topology.ring(5), step=0.1, scale=0.5).scales
    {'message': (Scale(value=0.5, grid=0.0),)}
    """
    check_choice("noise", noise, AdditiveLaw)
    mechanism = Independent((problem.dim,), law=noise, name="message")
    release = mechanism.at_scale(message=check_positive("scale", scale, zero=True))
    exact = d_ogd(problem, topology, step=step, clip=clip)
    return replace(
        exact,
        name="noisy_ogd",
        learner=NoisyOGD(problem, check_clip(clip), mechanism),
        guarantee=no_guarantee("the noise is not calibrated to anything"),
        releases=(release,),
        parameters={"step": exact.parameters["step"], "noise": noise, **exact.parameters},
    )
