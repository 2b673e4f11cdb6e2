"""Hedge: a mixture of experts whose weights fall exponentially with their losses; nothing is private.

w_t(x) ~ exp( -eta S(x) / m ),   S(x) = all clients' losses of expert x so far,   eta = sqrt(8 ln(d) / (T N))
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from gossamer.algorithms.experts.clients import MixingClient, clients_of, exchanges_of, experts_of, loss_bits
from gossamer.algorithms.experts.totals import Adding, relative
from gossamer.checks import check_positive
from gossamer.core import Algorithm, Federation, Now, Phases, Rate, Segment
from gossamer.mechanisms import pairs
from gossamer.privacy import no_guarantee
from gossamer.problems import Experts
from gossamer.spec import kind


@dataclass(frozen=True)
class Weights(Adding):
    """Broadcasts the mixture."""

    def named(self, totals: pairs.Pair, now: Now) -> jax.Array:
        """Exponential in what an expert lost more than the best."""
        mixture: jax.Array = jax.nn.softmax(-now.public["step"] * relative(totals, jnp.float32(jnp.inf)))
        return mixture


@kind("algorithm", "hedge")
def hedge(
    problem: int | Experts,
    learners: int | Federation,
    *,
    horizon: int,
    steps_per_exchange: int = 1,
    step: float | None = None,
) -> Algorithm:
    """Exponential weights on the losses of all clients together.

    Args:
        problem: the experts, or how many.
        learners: how many clients.
        horizon: steps.
        steps_per_exchange: N.
        step: eta, by default sqrt(8 ln(d) / (horizon * N)).

    >>> hedge(10, 4, horizon=1000).parameters["step"]
    '0.1357'
    """
    experts, network = experts_of(problem), clients_of(learners)
    rounds, bits = exchanges_of(horizon, steps_per_exchange), loss_bits(network.learners, steps_per_exchange)
    usual = math.sqrt(8 * math.log(experts.dim) / (horizon * steps_per_exchange))
    rate = usual if step is None else check_positive("step", step)
    return Algorithm(
        name="hedge",
        problem=experts,
        topology=network,
        learner=MixingClient(experts, bits),
        server=Weights(experts),
        guarantee=no_guarantee("clients send their losses, and what is played follows from them"),
        schedule=Phases((Segment(rounds, steps_per_exchange),)),
        public={"step": Rate(rate / network.learners, power=0.0)},
        parameters={"steps_per_exchange": steps_per_exchange, "step": f"{rate:.4g}"},
    )
