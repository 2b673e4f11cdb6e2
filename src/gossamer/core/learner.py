"""One learner's side of a protocol, and the server's, as pure functions over an explicit state.

The same functions run vectorised over all learners in one compiled program, one by one in a Python loop, and alone in
a process on a network. In one exchange an engine calls

    decide (played on the block)  ->  learn  ->  speak  ->  (the network mixes)  ->  listen

`speak` first applies the update from what was learnt now and heard *last* time, then forms the message; so mixing may
take until the next `speak`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax

from gossamer.privacy import NoiseSpec
from gossamer.problems import Block

State = Any
"""A NamedTuple of arrays: all that a learner or a server remembers."""
Message = Any
"""The only thing that leaves a learner: an array or a NamedTuple of arrays."""


class Now(NamedTuple):
    """What a function is given at one exchange besides the state.

    Attributes:
        public: schedules such as step sizes, by name: functions of the exchange number alone, computed on the host in
            double precision.
        noise: the draws declared for this function, by name, at the scale that the algorithm's releases say.
        grid: the spacing of the lattice of each draw, by name; none where there is no lattice.
    """

    public: Mapping[str, jax.Array]
    noise: Mapping[str, jax.Array]
    grid: Mapping[str, jax.Array]

    def only_for(self, function: str, specs: Mapping[str, NoiseSpec]) -> Now:
        """The same for one function: every public value, and only the draws that were declared for it."""
        names = [name for name, spec in specs.items() if spec.used_in == function]
        spacing = {name: self.grid[name] for name in names if name in self.grid}
        return Now(self.public, {name: self.noise[name] for name in names}, spacing)


@dataclass(frozen=True)
class Learner(ABC):
    """One learner: frozen and hashable, since compiled programs take it as a static argument.

    Numbers that a user sweeps belong in the algorithm: step sizes in its `public` schedules, noise scales in its
    `releases`. Another value does not compile again.
    """

    released: ClassVar[frozenset[str]] = frozenset()
    """The state fields that `decide` may read: what was noised, or is known to everybody. All others are raw."""

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """The randomness this learner needs at every exchange: name -> law, shape and the function that gets it."""
        return {}

    @abstractmethod
    def init(self, identity: jax.Array) -> State:
        """The state before the first exchange of the learner with this number."""

    @abstractmethod
    def decide(self, state: State, now: Now) -> jax.Array:
        """The decision played on the next block. Reads only released fields and never changes the state."""

    @abstractmethod
    def learn(self, state: State, block: Block, now: Now) -> State:
        """Digest the losses of the block at the decision that was played."""

    @abstractmethod
    def speak(self, state: State, now: Now) -> tuple[Message, State]:
        """Update from what was learnt and last heard, privatise, and say the result."""

    @abstractmethod
    def listen(self, state: State, heard: Message) -> State:
        """Keep what the network made of everybody's messages."""


@dataclass(frozen=True)
class Server(ABC):
    """The middle of a star: gathers one message from every learner and answers all of them alike."""

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """The randomness the server needs at every exchange."""
        return {}

    @abstractmethod
    def init(self) -> State:
        """The state before the first exchange."""

    @abstractmethod
    def aggregate(self, state: State, messages: Message, now: Now) -> tuple[Message, State]:
        """What is broadcast to every learner, given all messages (leading axis: learner)."""
