"""Follow the leader: everybody plays the expert that has lost least so far; nothing is private.

S(x) = all clients' losses of expert x so far,   x_{t+1} = argmin_x S(x), the lowest number where there are several
"""

from __future__ import annotations

from dataclasses import dataclass

import jax

from gossamer.algorithms.experts.clients import Adding, Client, clients_of, experts_of, least, loss_bits, phases_of
from gossamer.core import Algorithm, Federation, Now, Phases, Segment
from gossamer.mechanisms import pairs
from gossamer.privacy import no_guarantee
from gossamer.problems import Experts
from gossamer.spec import kind


@dataclass(frozen=True)
class Leader(Adding):
    """Names the expert with the least total of all that it was sent."""

    def named(self, totals: pairs.Pair, now: Now) -> jax.Array:
        """The lowest number where there are several."""
        return least(totals)


@kind("algorithm", "follow_the_leader")
def follow_the_leader(experts: int | Experts, clients: int | Federation, *, horizon: int, phase: int = 1) -> Algorithm:
    """The expert with the least loss so far, of all clients together.

    Args:
        experts: how many, or the problem.
        clients: how many.
        horizon: steps.
        phase: steps between two exchanges.

    >>> from gossamer import simulate, streams
    >>> stream = streams.hidden_expert(2, 3, seed=0)
    >>> run = simulate(follow_the_leader(3, 2, horizon=10), stream, 10, seed=0, measure="local", progress=False)
    >>> run.losses[:, 0].round(1).tolist()
    [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    problem, network = experts_of(experts), clients_of(clients)
    rounds, bits = phases_of(horizon, phase), loss_bits(network.learners, phase)
    return Algorithm(
        name="follow_the_leader",
        problem=problem,
        topology=network,
        learner=Client(problem, bits),
        server=Leader(problem),
        guarantee=no_guarantee("clients send their losses, and what is played follows from them"),
        schedule=Phases((Segment(rounds, phase),)),
        parameters={"phase": phase},
    )
