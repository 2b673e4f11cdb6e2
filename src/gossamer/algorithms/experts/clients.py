"""What algorithms that predict from experts with a server share (paper 004): clients, exact sums, runs on sums.

A client plays the expert, or the mixture, that the server last named, and sends the losses of a whole block, added up
for every expert. Losses are multiples of 2^-bits, so that sums over all clients of a block are exact in float32: one
sample moves them by 1 at most, not by 1 and a rounding.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gossamer.checks import check_count
from gossamer.core import Algorithm, Federation, Learner, Now, Phases, Segment, Server
from gossamer.errors import ConfigurationError
from gossamer.mechanisms import pairs
from gossamer.privacy import Assumption, Guarantee
from gossamer.problems import Block, Experts, Problem

_EXACT, _FINEST, _COARSEST = 24, 12, 4

CAP = 64.0
"""In scales of a selection: an expert so much worse than the best one is drawn with probability e^-64."""
ROUNDED = 2.0**-23
"""Float32: by how much of the cap one sample moves a score farther, where `relative` has rounded it."""
SPARE, BELOW = 1e-4, 1 - 2.0**-40
"""Of delta, what is kept for the error of a secure sampler; of epsilon, what is left after the rounding of its sums."""


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


@dataclass(frozen=True)
class Adding(Server):
    """Adds up all that it is sent, and broadcasts what to play next."""

    problem: Experts

    def init(self) -> jax.Array:
        """No losses."""
        return pairs.zeros((self.problem.dim,))

    def aggregate(self, state: jax.Array, messages: jax.Array, now: Now) -> tuple[jax.Array, jax.Array]:
        """A function of the totals."""
        totals = pairs.add(pairs.unpack(state), jnp.sum(messages, axis=0))
        return self.named(totals, now), pairs.pack(totals)

    @abstractmethod
    def named(self, totals: pairs.Pair, now: Now) -> jax.Array:
        """The expert, or the mixture."""


def experts_of(experts: int | Experts) -> Experts:
    """The problem that a user gave; a number stands for so many experts.

    >>> experts_of(3).dim
    3
    """
    if isinstance(experts, Problem):
        if not isinstance(experts, Experts) or experts.summed:
            raise ConfigurationError("experts", experts, "how many there are, or problems.Experts(...)")
        return experts
    return Experts(check_count("experts", experts, least=2))


def clients_of(clients: int | Federation) -> Federation:
    """The network that a user gave, if everybody takes part in every round.

    >>> clients_of(3).learners
    3
    """
    network = Federation.of(clients)
    if network.participation < 1:
        hint = "absent clients would count as clients without losses"
        raise ConfigurationError("clients", network, "a federation that is always complete", hint)
    return network


def loss_bits(clients: int, phase: int) -> int:
    """To how many binary digits losses are rounded, so that the sum over all clients of a phase is exact in float32.

    >>> loss_bits(16, 10), loss_bits(1024, 1000)
    (12, 4)
    """
    bits = min(_FINEST, _EXACT - math.ceil(math.log2(clients * phase)))
    if bits < _COARSEST:
        most = 2 ** (_EXACT - _COARSEST) // clients
        raise ConfigurationError("phase", phase, f"at most {most:,} steps with {clients:,} clients")
    return bits


def phases_of(horizon: int, phase: int) -> int:
    """How many whole phases fit, at least one.

    >>> phases_of(100, 30)
    3
    """
    if check_count("phase", phase) > check_count("horizon", horizon):
        raise ConfigurationError("phase", phase, f"at most the horizon of {horizon:,} steps")
    return horizon // phase


def floored(totals: pairs.Pair, floor: jax.Array) -> pairs.Pair:
    """Totals less the floor, those below it as 0: max with a bound does not move scores apart.

    >>> floored((jnp.array([5.0, 1.0]), jnp.zeros(2)), jnp.float32(2.0))[0].tolist()
    [3.0, 0.0]
    """
    over = pairs.add(totals, -floor)
    negative = (over[0] < 0) | ((over[0] == 0) & (over[1] < 0))
    return jnp.where(negative, 0.0, over[0]), jnp.where(negative, 0.0, over[1])


def least(totals: pairs.Pair) -> jax.Array:
    """The number of the least total; of several the lowest.

    >>> int(least((jnp.array([2.0, 1.0, 1.0]), jnp.array([0.0, 0.0, -1e-9]))))
    2
    """
    high, low = totals
    return jnp.argmin(jnp.where(high == jnp.min(high), low, jnp.inf)).astype(jnp.int32)


def relative(totals: pairs.Pair, cap: jax.Array) -> jax.Array:
    """By how much each total exceeds the least one, at most `cap`: scores that select as the totals would.

    What is common to all scores does not change which is selected, and min(total, least + cap) moves no farther than
    the totals do. Totals may be far larger than float32 holds exactly; the excess is rounded once, by cap * 2^-24.

    >>> totals = jnp.array([2.0**30, 2.0**30, 2.0**30 + 2**20]), jnp.array([1.5, 0.0, 0.0])
    >>> relative(totals, jnp.float32(100.0)).tolist()
    [1.5, 0.0, 100.0]
    """
    best = least(totals)
    excess = pairs.add(pairs.add(totals, -totals[0][best]), -totals[1][best])
    return jnp.minimum(excess[0] + excess[1], cap)


def summed(algorithm: Algorithm, *, pooled: bool = False) -> Algorithm:
    """The same algorithm for a stream of sums (`streams.Experts.sums`): a row is what a block adds up to.

    Args:
        algorithm: one that sends sums of losses only.
        pooled: one client stands for all of them, and its rows are the sums over all. Only where clients add no noise
            of their own: the server then hears exactly the sums.

    >>> from gossamer import Budget, streams
    >>> from gossamer.algorithms import fed_svt
    >>> algorithm = fed_svt(10, 64, horizon=1000, phase=10, budget=Budget(1.0))
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
