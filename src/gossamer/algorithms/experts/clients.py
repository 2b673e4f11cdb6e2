"""Clients that predict from experts and send sums of losses to a server (paper 004), and what they are made from.

A client plays the expert, or the mixture, that the server last named, and sends the losses of a whole block, added up
for every expert. Losses are multiples of 2^-bits, so that sums over all clients of a block are exact in float32: one
sample moves them by 1 at most, not by 1 and a rounding.
"""

import math
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gossamer.checks import check_count
from gossamer.core import Algorithm, Federation, Learner, Now, Phases, Segment
from gossamer.errors import ConfigurationError
from gossamer.privacy import Assumption, Guarantee
from gossamer.problems import Block, Experts
from gossamer.spec import kind

_EXACT, _FINEST, _COARSEST = 24, 12, 4


class State(NamedTuple):
    """What a client remembers.

    Attributes:
        choice: the expert (a number) or the mixture (a vector) that the server last broadcast.
        sums: every expert's losses in the last block.
        private: the state of the client's mechanism, where it has one.
    """

    choice: jax.Array
    sums: jax.Array
    private: Any


@dataclass(frozen=True)
class Client(Learner):
    """Plays the expert that the server named, and sends the sums of its losses: the server is trusted with them."""

    problem: Experts
    bits: int

    released = frozenset({"choice"})

    def init(self, identity: jax.Array) -> State:
        """The server names the first expert before anything is played."""
        return State(self._first(), jnp.zeros(self.problem.dim), self._start())

    def _first(self) -> jax.Array:
        return jnp.zeros((), jnp.int32)

    def _start(self) -> Any:
        return ()

    def decide(self, state: State, now: Now) -> jax.Array:
        """All weight on one expert."""
        one: jax.Array = jax.nn.one_hot(state.choice, self.problem.dim)
        return one

    def learn(self, state: State, block: Block, now: Now) -> State:
        """The losses of all experts, whichever was played."""
        return state._replace(sums=self.problem.loss_sums(block, self.bits))

    def speak(self, state: State, now: Now) -> tuple[jax.Array, State]:
        """One number for every expert."""
        return state.sums, state

    def listen(self, state: State, heard: jax.Array) -> State:
        """What to play next."""
        return state._replace(choice=heard)


@dataclass(frozen=True)
class MixingClient(Client):
    """Plays the mixture that the server broadcasts."""

    def _first(self) -> jax.Array:
        return jnp.asarray(self.problem.initial_decision())

    def decide(self, state: State, now: Now) -> jax.Array:
        """The mixture."""
        return state.choice


def experts_of(problem: int | Experts) -> Experts:
    """The problem that a user gave; a number stands for so many experts."""
    if isinstance(problem, Experts) and not problem.summed:
        return problem
    if isinstance(problem, bool) or not isinstance(problem, Integral) or problem < 2:
        raise ConfigurationError("problem", problem, "a number of experts, at least 2, or problems.Experts(...)")
    return Experts(int(problem))


def clients_of(learners: int | Federation) -> Federation:
    """The network that a user gave, if everybody takes part in every round."""
    network = Federation.of(learners)
    if network.participation < 1:
        hint = "absent clients would count as clients without losses"
        raise ConfigurationError("learners", network, "a federation that is always complete", hint)
    return network


def loss_bits(learners: int, steps: int) -> int:
    """To how many binary digits losses are rounded, so that the sum over all clients and steps is exact in float32.

    >>> loss_bits(16, 10), loss_bits(1024, 1000)
    (12, 4)
    """
    bits = min(_FINEST, _EXACT - math.ceil(math.log2(learners * steps)))
    if bits < _COARSEST:
        most = 2 ** (_EXACT - _COARSEST) // learners
        raise ConfigurationError("steps_per_exchange", steps, f"at most {most:,} with {learners:,} learners")
    return bits


def exchanges_of(horizon: int, steps: int) -> int:
    """How many exchanges after so many steps each fit into the horizon, at least one.

    >>> exchanges_of(100, 30)
    3
    """
    if check_count("steps_per_exchange", steps) > check_count("horizon", horizon):
        raise ConfigurationError("steps_per_exchange", steps, f"at most the horizon of {horizon:,} steps")
    return horizon // steps


@kind("algorithm", "summed", readable=False)
def summed(algorithm: Algorithm, *, pooled: bool = False) -> Algorithm:
    """The same algorithm for a stream of sums (`streams.Experts.sums`): a row is what a block adds up to.

    Args:
        algorithm: one that sends sums of losses only.
        pooled: one client stands for all of them, and its rows are the sums over all. Only where clients add no noise
            of their own: the server then hears exactly the sums.

    >>> from gossamer import Budget, streams
    >>> from gossamer.algorithms import fed_svt
    >>> algorithm = fed_svt(10, 64, horizon=1000, budget=Budget(1.0))
    >>> stream = streams.realizable_experts(64, 10, seed=0).sums(algorithm.schedule, 1000, pooled=True)
    >>> from gossamer import simulate
    >>> simulate(summed(algorithm, pooled=True), stream, 100, seed=0, measure="local", progress=False).losses.shape
    (101, 1)
    """
    problem, learner = algorithm.problem, algorithm.learner
    if not isinstance(problem, Experts) or not isinstance(algorithm.schedule, Phases):
        raise ConfigurationError("algorithm", algorithm.name, "one that predicts from experts in phases")
    if pooled and learner.noise:
        raise ConfigurationError("pooled", True, "False where clients add noise of their own")
    if not getattr(learner, "whole", True):
        raise ConfigurationError("algorithm", algorithm.name, "one that uses all samples of a block")
    problem = replace(problem, summed=True)
    return replace(
        algorithm,
        problem=problem,
        guarantee=_of_sums(algorithm.guarantee),
        learner=replace(learner, problem=problem),  # type: ignore[call-arg]
        topology=Federation(1) if pooled else algorithm.topology,
        schedule=Phases(tuple(Segment(run.exchanges, min(run.block, 1)) for run in algorithm.schedule.runs)),
    )


def _of_sums(promise: Guarantee) -> Guarantee:
    """Nothing clips what is summed up already."""
    if promise.basis == "none":
        return promise
    summands = Assumption("rows are sums of losses between 0 and 1, and a sample is one summand")
    reason = "; ".join(filter(None, (promise.reason, f"nothing makes it true that {summands.claim}")))
    return replace(promise, basis="heuristic", reason=reason, assumptions=(*promise.assumptions, summands))
