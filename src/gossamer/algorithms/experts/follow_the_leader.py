"""Follow the leader: everybody plays the expert that has lost least so far; nothing is private.

S(x) = all clients' losses of expert x so far,   x_{t+1} = argmin_x S(x), the lowest number where there are several
"""

from dataclasses import dataclass

import jax

from gossamer.algorithms.experts.clients import Client, clients_of, exchanges_of, experts_of, loss_bits
from gossamer.algorithms.experts.totals import Adding, least
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
def follow_the_leader(
    problem: int | Experts, learners: int | Federation, *, horizon: int, steps_per_exchange: int = 1
) -> Algorithm:
    """The expert with the least loss so far, of all clients together.

    Args:
        problem: the experts, or how many.
        learners: how many clients.
        horizon: steps.
        steps_per_exchange: between two changes of the leader.

    >>> from gossamer import simulate, streams
    >>> stream = streams.hidden_expert(2, 3, seed=0)
    >>> run = simulate(follow_the_leader(3, 2, horizon=10), stream, 10, seed=0, measure="local", progress=False)
    >>> run.losses[:, 0].round(1).tolist()
    [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    experts, network = experts_of(problem), clients_of(learners)
    rounds, bits = exchanges_of(horizon, steps_per_exchange), loss_bits(network.learners, steps_per_exchange)
    return Algorithm(
        name="follow_the_leader",
        problem=experts,
        topology=network,
        learner=Client(experts, bits),
        server=Leader(experts),
        guarantee=no_guarantee("clients send their losses, and what is played follows from them"),
        schedule=Phases((Segment(rounds, steps_per_exchange),)),
        parameters={"steps_per_exchange": steps_per_exchange},
    )
