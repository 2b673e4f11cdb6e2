"""One learner of an algorithm by itself: its compiled functions, and what they are given at each exchange."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Literal
from numpy.typing import NDArray

from gossamer.core import Algorithm, Learner, Now
from gossamer.core.drawing import grids, learners_draws, schedules
from gossamer.errors import ConfigurationError
from gossamer.net.data.samples import label_type
from gossamer.net.node.agreement import block_at
from gossamer.net.node.gossip import Accelerated, Averaging, Cumulative, LocalGossip, Values
from gossamer.net.wire.frames import Leaf
from gossamer.privacy import NoiseSource, NoiseSpec, Scale
from gossamer.problems import Block
from gossamer.topology import Pair, spoken

State = Any
_DRAWN = 2**20  # numbers that are drawn at once
_LONGEST = 256  # exchanges for which is drawn at once


@partial(jax.jit, static_argnames="learner")
def _start(learner: Learner, identity: jax.Array) -> State:
    return learner.init(identity)


@partial(jax.jit, static_argnames="learner")
def _decide(learner: Learner, state: State, now: Now) -> jax.Array:
    return learner.decide(state, now)


@partial(jax.jit, static_argnames="learner")
def _release(learner: Learner, state: State, block: Block, learning: Now, speaking: Now) -> tuple[Any, State]:
    return learner.speak(learner.learn(state, block, learning), speaking)


@partial(jax.jit, static_argnames="learner")
def _listen(learner: Learner, state: State, heard: Any) -> State:
    return learner.listen(state, heard)


class _Chunk(NamedTuple):
    """Schedules and draws of exchanges start, ..., stop-1."""

    start: int
    stop: int
    public: Mapping[str, NDArray[np.float32]]
    noise: Mapping[str, NDArray[np.float32]]


class _Silence:
    """Draws of the right shapes, for programs to be compiled with."""

    def draw(self, name: str, spec: NoiseSpec, scales: Sequence[Scale], start: int, stop: int) -> NDArray[np.float32]:
        return np.zeros((len(scales), stop - start, *spec.shape), np.float32)


class Participant:
    """Learner number `learner` of a gossip algorithm.

    Attributes:
        noise: where its draws come from; given before the first exchange at the latest.
        leaves: dtype and shape of the arrays of its messages.
        theta: of accelerated gossip; None where gossip is plain.

    >>> from gossamer import algorithms, problems, topology
    >>> from gossamer.privacy import FastNoise
    >>> algorithm = algorithms.d_ogd(problems.Linear(2), topology.ring(3), step=0.5)
    >>> one = Participant(algorithm, 0, FastNoise(0))
    >>> block = Block(np.ones((1, 2), np.float32), np.zeros(1, np.float32))
    >>> gossip, state = one.release(one.start(), block, exchange=0)
    >>> one.decide(one.listen(state, gossip), exchange=1)
    array([-0.5, -0.5], dtype=float32)
    """

    def __init__(self, algorithm: Algorithm, learner: int, noise: NoiseSource | None = None) -> None:
        topology = algorithm.graph
        if topology is None:
            raise ConfigurationError(
                "algorithm", algorithm.name, "one that gossips", "learners around a server do not run as nodes"
            )
        self.algorithm, self.learner, self.noise = algorithm, learner, noise
        self._functions = algorithm.running[0]
        self._draws = learners_draws(algorithm, [learner])
        self._specs = {name: draw.spec for name, draw in self._draws.items()}
        self._grid = {name: spacing[0] for name, spacing in grids(self._draws).items()}
        self._chunk = _Chunk(0, 0, {}, {})
        self.theta = algorithm.mixing.theta_on(topology)
        message = jax.eval_shape(self._shapes)
        self._tree = jax.tree.structure(spoken(message))
        self._pairs = isinstance(message, Pair)
        self.leaves = tuple(
            Leaf(leaf.dtype.newbyteorder("<").str, leaf.shape) for leaf in jax.tree.leaves(spoken(message))
        )

    def start(self) -> State:
        """The state before the first exchange."""
        return _start(self._functions, jnp.asarray(self.learner))

    def warm_up(self) -> None:
        """Compile everything, so that no neighbour has to wait for it: one exchange of another one, without noise."""
        other = Participant(self.algorithm, self.learner, _Silence())
        gossip, state = other.release(other.start(), other._blank(), 0)
        other.decide(other.listen(state, gossip), 0)

    def decide(self, state: State, exchange: int) -> NDArray[np.float32]:
        """What is played until this exchange speaks."""
        return np.asarray(_decide(self._functions, state, self._now("decide", exchange)))

    def release(
        self, state: State, block: Block, exchange: int, carried: LocalGossip | None = None
    ) -> tuple[LocalGossip, State]:
        """Learn from the block and speak: the message, ready to be gossiped, and the state.

        `carried`: what gossip remembers from the exchange before.
        """
        learning, speaking = self._now("learn", exchange), self._now("speak", exchange)
        message, state = _release(self._functions, state, block, learning, speaking)
        values = _arrays(spoken(message))
        if self.algorithm.missing == "later":
            known = carried if isinstance(carried, Cumulative) else Cumulative(values)
            return replace(known, now=_wide(values)), state
        if self.theta is not None:
            return Accelerated(values, _arrays(message.before), self.theta), state
        return Averaging(values), state

    def listen(self, state: State, gossip: LocalGossip) -> State:
        """Hear what gossip made of the messages."""
        now, *before = gossip.heard()
        heard = self._message(now)
        if self._pairs:
            heard = Pair(heard, self._message(before[0] if before else now))
        return _listen(self._functions, state, heard)

    def stored(self, state: State, said: Values) -> list[Any]:
        """What must be kept of a state after `release`, beside the message that was said.

        For each of its arrays: the array; the number of the message's array that it equals; or None where nothing later
        depends on it, as on a raw gradient.
        """
        leaves = zip(map(np.asarray, jax.tree.leaves(state)), self._needed, strict=True)
        return [_reference(leaf, said) if needed else None for leaf, needed in leaves]

    def restored(self, stored: list[Any], said: Values) -> State:
        """The state that was `stored`, with the message that was said."""
        shapes, tree = jax.tree.flatten(jax.eval_shape(self.start))
        each = []
        for shape, kept in zip(shapes, stored, strict=True):
            found = np.zeros(shape.shape) if kept is None else said[kept] if isinstance(kept, int) else kept
            each.append(np.asarray(found, shape.dtype))
        return jax.tree.unflatten(tree, each)

    @cached_property
    def _needed(self) -> tuple[bool, ...]:
        learner = self._functions

        def exchange(state: State, others: Any) -> tuple[State, Any]:
            heard, block, deciding, learning, speaking = others
            state = learner.listen(state, heard)
            decision = learner.decide(state, deciding)
            message, state = learner.speak(learner.learn(state, block, learning), speaking)
            return state, (decision, message)

        zeros = self._message(tuple(np.zeros(leaf.shape) for leaf in self.leaves))
        heard = Pair(zeros, zeros) if self._pairs else zeros
        nows = [self._now(function, 0) for function in ("decide", "learn", "speak")]
        return needed_leaves(exchange, jax.eval_shape(self.start), (heard, self._blank(), *nows))

    def _blank(self) -> Block:
        """A block of zeros: its shape is what matters."""
        problem, rows = self.algorithm.problem, block_at(self.algorithm.schedule, 1) * self.algorithm.batch
        return Block(np.zeros((rows, *problem.feature_shape), np.float32), np.zeros(rows, label_type(problem)))

    def _message(self, values: Values) -> Any:
        each = [np.asarray(value, leaf.dtype) for value, leaf in zip(values, self.leaves, strict=True)]
        return jax.tree.unflatten(self._tree, each)

    def _shapes(self) -> Any:
        """What the learner says without having learnt: for the shapes of its messages."""
        noise = {name: jnp.zeros(spec.shape) for name, spec in self._specs.items()}
        public = {name: jnp.ones(()) for name in self.algorithm.public}
        now = Now(public, noise, jax.tree.map(jnp.asarray, self._grid)).only_for("speak", self._specs)
        return self._functions.speak(self.start(), now)[0]

    def _now(self, function: str, exchange: int) -> Now:
        """What one function is given. Schedules and draws are made for some exchanges at once, from this one on."""
        if not self._chunk.start <= exchange < self._chunk.stop:
            assert self.noise is not None
            size = max(1, sum(spec.size for spec in self._specs.values()))
            stop = exchange + max(1, min(_LONGEST, _DRAWN // size))
            noise = {name: draw.made(self.noise, exchange, stop)[0] for name, draw in self._draws.items()}
            self._chunk = _Chunk(exchange, stop, schedules(self.algorithm, exchange, stop), noise)
        row = exchange - self._chunk.start
        public, noise = ({name: each[row] for name, each in made.items()} for made in self._chunk[2:])
        return Now(public, noise, self._grid).only_for(function, self._specs)


def keeps_start(algorithm: Algorithm) -> bool:
    """Whether a learner that learns nothing goes on playing what it began with.

    One whose decisions follow from the sum of all gradients plays the middle of its set then, wherever it began.

    >>> from gossamer import algorithms, problems, topology
    >>> problem, network = problems.Linear(2, start=(0.5, 0.25)), topology.ring(3)
    >>> keeps_start(algorithms.d_ogd(problem, network, step=0.5))
    True
    >>> keeps_start(algorithms.d_ftrl(problem, network, step=0.5))
    False
    """
    one = Participant(algorithm, 0, _Silence())
    gossip, state = one.release(one.start(), one._blank(), 0)
    following = one.decide(one.listen(state, gossip), 1)
    return bool(np.allclose(following, algorithm.problem.initial_decision(), rtol=1e-2, atol=1e-6))


def needed_leaves(function: Callable[[Any, Any], tuple[Any, Any]], state: Any, others: Any) -> tuple[bool, ...]:
    """For each array of the state, whether the results of one exchange, or of any later one, depend on it.

    Args:
        function: one exchange: takes the state and everything else, gives the state after it and all other results.
        state: arrays, or their shapes.
        others: likewise.

    >>> from typing import NamedTuple
    >>> import jax.numpy as jnp
    >>> def exchange(state, gradient):
    ...     total, last = state
    ...     return (total + gradient, gradient), total
    >>> needed_leaves(exchange, (jnp.zeros(2), jnp.zeros(2)), jnp.ones(2))
    (True, False)
    """
    jaxpr = jax.make_jaxpr(function)(state, others).jaxpr
    size = len(jax.tree.leaves(state))
    needed: set[int] = set()
    while True:  # from the results backwards, until nothing is added
        results = [jaxpr.outvars[place] for place in needed] + list(jaxpr.outvars[size:])
        found = _inputs(jaxpr, results)
        now = needed | {place for place, variable in enumerate(jaxpr.invars[:size]) if variable in found}
        if now == needed:
            return tuple(place in needed for place in range(size))
        needed = now


def _inputs(jaxpr: Jaxpr, results: Sequence[Any]) -> set[Any]:
    """All variables that these results are computed from; an operation needs all that it is given."""
    found = {variable for variable in results if not isinstance(variable, Literal)}
    for equation in reversed(jaxpr.eqns):
        if found & set(equation.outvars):
            found |= {variable for variable in equation.invars if not isinstance(variable, Literal)}
    return found


def _reference(leaf: NDArray[Any], said: Values) -> NDArray[Any] | int:
    """The number of the array of a message that is the same to the last bit, or else the array."""
    for number, value in enumerate(said):
        if leaf.dtype == value.dtype and np.array_equal(_bits(leaf), _bits(value)):
            return number
    return leaf


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """As whole numbers: 0.0 is not -0.0, and NaN is NaN."""
    return array.view(f"u{array.itemsize}")


def _arrays(tree: Any) -> Values:
    return tuple(np.asarray(leaf) for leaf in jax.tree.leaves(tree))


def _wide(values: Values) -> Values:
    """Running sums are kept in float64, so that they lose nothing over a long run."""
    return tuple(value.astype(np.float64) for value in values)
