"""Hedge: a mixture of experts whose weights fall exponentially with their losses; nothing is private.

w_t(x) ~ exp( -eta S(x) / m ),   S(x) = all clients' losses of expert x so far,   eta = sqrt(8 ln(d) / (T N))
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from gossamer.algorithms.experts.clients import (
    Adding,
    MixingClient,
    clients_of,
    experts_of,
    loss_bits,
    phases_of,
    relative,
)
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
    experts: int | Experts,
    clients: int | Federation,
    *,
    horizon: int,
    phase: int = 1,
    step: float | None = None,
) -> Algorithm:
    """Exponential weights on the losses of all clients together.

    Args:
        experts: how many, or the problem.
        clients: how many.
        horizon: steps.
        phase: N: steps between two exchanges.
        step: eta, by default sqrt(8 ln(d) / (horizon * phase)).

    >>> hedge(10, 4, horizon=1000).parameters["step"]
    '0.1357'
    """
    problem, network = experts_of(experts), clients_of(clients)
    rounds, bits = phases_of(horizon, phase), loss_bits(network.learners, phase)
    usual = math.sqrt(8 * math.log(problem.dim) / (horizon * phase))
    rate = usual if step is None else check_positive("step", step)
    return Algorithm(
        name="hedge",
        problem=problem,
        topology=network,
        learner=MixingClient(problem, bits),
        server=Weights(problem),
        guarantee=no_guarantee("clients send their losses, and what is played follows from them"),
        schedule=Phases((Segment(rounds, phase),)),
        public={"step": Rate(rate / network.learners, power=0.0)},
        parameters={"phase": phase, "step": f"{rate:.4g}"},
    )
