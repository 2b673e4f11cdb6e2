"""The local form of `fed_svt`: each client noises its sums, and the server names the leader; nobody trusts the server.

    every N steps, client i:  sends the increments of a noisy prefix sum of its losses of expert x, for all x
    server:                   x = argmin of all that it was sent so far

There is no sparse vector, which needs the exact sum. One sample moves each of d sums by 1: d in the l1 norm, sqrt(d) in
the Euclidean one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from gossamer.algorithms.experts.clients import Client, State, loss_bits
from gossamer.algorithms.experts.follow_the_leader import Leader
from gossamer.core import Algorithm, Federation, Now, Phases, Segment
from gossamer.mechanisms import Additive, AdditiveLaw, Aggregation, prefix_sum
from gossamer.privacy import Assumption, Budget, Guarantee, NoiseSpec, Sensitivity, Unit, declared
from gossamer.problems import Experts


@dataclass(frozen=True)
class NoisyClient(Client):
    """Trusts nobody: what it sends are the increments of a noisy sum."""

    mechanism: Additive

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """One vector for every exchange."""
        return self.mechanism.noise(used_in="speak")

    def _start(self) -> Any:
        return self.mechanism.init()

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """The sums of the last steps through the mechanism."""
        sums = declared(state.sums, "one sample moves every sum of losses by 1, since losses lie between 0 and 1")
        noisy, private = self.mechanism.increment(state.private, sums, now.noise, now.grid)
        return noisy, state._replace(private=private)


def noisy_leader(
    experts: Experts, network: Federation, budget: Budget, aggregation: Aggregation | None, horizon: int, steps: int
) -> Algorithm:
    """What `fed_svt` makes with trust="local", from what it has checked; `steps`: between two exchanges.

    >>> noisy_leader(Experts(3), Federation(2), Budget(1.0), None, 40, 10).parameters["noise"]
    'laplace, tree'
    """
    law: AdditiveLaw = "gaussian" if budget.delta else "laplace"
    kind: Aggregation = aggregation or ("blt" if budget.delta else "tree")
    rounds, d = horizon // steps, experts.dim
    release = prefix_sum(kind, (d,), rounds, law=law, name="sums").calibrate(
        Sensitivity(l1=float(d), l2=math.sqrt(d)), budget
    )
    return Algorithm(
        name="fed_svt",
        problem=experts,
        topology=network,
        learner=NoisyClient(experts, loss_bits(network.learners, steps), release.mechanism),
        server=Leader(experts),
        guarantee=Guarantee(
            basis="proven",
            losses=release.losses,
            deltas=release.deltas,
            unit=Unit.SAMPLE,
            observer="peers",
            horizon=horizon,
            repeats="group",
            assumptions=(Assumption("losses lie between 0 and 1", "gossamer.problems.Experts.loss_sums"),),
            proof="docs/algorithms/fed_svt.md",
        ),
        schedule=Phases((Segment(rounds, steps),)),
        releases=(release,),
        parameters={"steps_per_exchange": steps, "trust": "local", "noise": f"{law}, {kind}"},
    )
