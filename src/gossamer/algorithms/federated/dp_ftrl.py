"""DP-FTRL: private follow-the-regularised-leader with a trusted server (Agarwal and Singh 2017; Kairouz et al. 2021).

learner i, exchange t:  g_i = sum over its tau new samples of clip( grad f(x_t) )         sent as it is
server:                 S_t = PrivateSum( sum_i g_i ) over exchanges 1..t                 released
                        x_{t+1} = argmin_{x in K} <S_t / n + tau l2 (x_1 + .. + x_t), x> + |x|^2 / (2 eta_t)
"""

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from gossamer.algorithms.authoring import noise_energy, noised_once, step_rate
from gossamer.algorithms.descent.centralized_ogd import GradientSender
from gossamer.checks import check_choice, check_count
from gossamer.core import Algorithm, Every, Federation, Now, Rate, Server, State
from gossamer.mechanisms import Additive, AdditiveLaw, Aggregation, pairs, prefix_sum
from gossamer.privacy import Budget, Clip, NoiseSpec, Sensitivity, Unit, budgets_of, declared
from gossamer.problems import Block, Problem
from gossamer.problems.numerics import row_norms
from gossamer.spec import kind


class DataGradientSender(GradientSender):
    """Plays what the server broadcasts, and sends g_i: l2 is no data, and the server adds it after the noise."""

    def learn(self, state: State, block: Block, now: Now) -> State:
        """g_i, at the decision that was played."""
        return state._replace(gradient=self.problem.clipped_data_gradient_sum(state.x, block, self.clip))


@dataclass(frozen=True)
class Leader(Server):
    """Trusted with all g_i. Their sum is released once, and all that is broadcast is made of releases."""

    problem: Problem
    mechanism: Additive
    samples: int
    present: float
    longest: float

    @property
    def noise(self) -> dict[str, NoiseSpec]:
        """One vector for every exchange."""
        return self.mechanism.noise(used_in="aggregate")

    def init(self) -> State:
        """The public x_1; what x_t is made of, S_(t-1) / n and l2; the state of the mechanism."""
        return jnp.asarray(self.problem.initial_decision()), jnp.zeros(self.mechanism.shape), self.mechanism.init()

    def aggregate(self, state: State, messages: jax.Array, now: Now) -> tuple[jax.Array, State]:
        """x_{t+1}. What is longer than any g_i counts as zero: beside it the sum would round the g_i of all others."""
        (x, dual, private), none = state, jnp.zeros(self.mechanism.shape)
        kept = jnp.where(row_norms(messages)[:, None] <= self.longest, messages, 0.0)
        (total, _), _ = jax.lax.scan(lambda pair, one: (pairs.add(pair, one), None), (none, none), kept)
        total = declared(total, "one sample moves the sum of all messages as far as its own, and by two roundings")
        noisy, private = self.mechanism.increment(private, total, now.noise, now.grid)
        dual = self.problem.add_l2(dual + noisy / self.present, x, self.samples)
        x = self.problem.domain.project(-now.public["step"] * dual)
        return x, (x, dual, private)


@kind("algorithm", "dp_ftrl")
def dp_ftrl(
    problem: Problem,
    learners: int | Federation,
    *,
    horizon: int | None,
    budget: Budget,
    clip: float | Clip,
    step: float | Rate | None = None,
    noise: AdditiveLaw = "gaussian",
    aggregation: Aggregation = "blt",
    steps_per_exchange: int = 1,
) -> Algorithm:
    """Follow the regularised leader on a sum of all gradients, whose noise is the same for any number of learners.

    Args:
        problem: loss and decision set.
        learners: how many; a `Federation` where not all take part in every exchange: n is how many do on average.
        horizon: the samples that each learner will see at most; None: no end ("blt", "tree" and "independent").
        budget: for the whole horizon; one for all, since their sum has one noise.
        clip: what each sample's gradient is clipped to; a number bounds its Euclidean norm.
        step: eta_t; by default diameter / sqrt(t G (G + noise in S_t / n)), G the largest gradient of an exchange.
        noise: "gaussian", which needs a delta; "laplace" and "l2-laplace" are pure.
        aggregation: as in `online_federated`; with pure noise "tree" or "independent".
        steps_per_exchange: tau, samples that each learner digests between two exchanges.

    >>> from gossamer.problems import Logistic
    >>> dp_ftrl(Logistic(9), 50, horizon=1000, budget=Budget(1.0, 1e-5), clip=1.0, step=0.1).guarantee.sentence()
    'Proven: over 1,000 steps, whoever sees all that the trusted server sends out, learns about one sample of ...'
    """
    check_choice("noise", noise, AdditiveLaw)
    network, bounded, d = Federation.of(learners), Clip.of(clip), problem.dim
    n, tau = network.learners, check_count("steps_per_exchange", steps_per_exchange)
    rounds = None if horizon is None else check_count("horizon", horizon, least=tau) // tau
    mechanism = prefix_sum(aggregation, (d,), rounds, law=noise, name="gradient")
    own, longest = bounded.sensitivity(Unit.SAMPLE, d, rows=tau), bounded.sensitivity(Unit.BATCH, d, batch=tau).l2
    off, present = n * longest * 2.0**-23 * (1.01 + n * 2.0**-22), n * network.participation  # off: by two roundings
    release = mechanism.calibrate(Sensitivity(own.l1 + math.sqrt(d) * off, own.l2 + off), budgets_of(budget, 1))
    promise, rate = noised_once(release, bounded, proof="docs/algorithms/dp_ftrl.md"), step_rate(problem, step, bounded)
    if step is None:
        largest, energy = tau * problem.domain.diameter / rate.scale, noise_energy(mechanism.noise("speak")["gradient"])
        spread = release.scales["gradient"][0].value * math.sqrt(mechanism.mean_error(rounds or 2**20) * energy)
        rate = Rate(problem.domain.diameter / math.sqrt(largest * (largest + spread / present)))
    return Algorithm(
        name="dp_ftrl",
        problem=problem,
        topology=network,
        learner=DataGradientSender(problem, bounded),
        server=Leader(problem, mechanism, tau, present, longest),
        guarantee=replace(promise, observer="broadcasts", horizon=horizon, repeats="group"),
        schedule=Every(tau),
        public={"step": rate},
        releases=(release,),
        parameters={"steps per exchange": tau, "step": str(rate), "clip": bounded, "noise": f"{noise}, {aggregation}"},
    )
