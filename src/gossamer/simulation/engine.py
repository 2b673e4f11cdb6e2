"""One exchange of all learners, and the compiled loop over a chunk of exchanges.

`exchange` is the whole protocol. The compiled engine vectorises the learner's functions over learners (and seeds) and
loops; the debug engine (`debug.py`) calls the same functions learner by learner in Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from gossamer.core import Algorithm, Learner, Message, Now, Server, State
from gossamer.privacy import NoiseSpec
from gossamer.privacy.compiled import Recipe, draw_at
from gossamer.problems import Block, Problem
from gossamer.topology import Mixing, spoken

Measure = Literal["global", "local", "joint"]


@dataclass(frozen=True)
class Program:
    """All that shapes the compiled loop: equal programs on equal shapes do not compile again."""

    learner: Learner
    server: Server | None
    mixing: Mixing
    problem: Problem
    learners: int
    shared: bool
    measure: Measure
    coordinates: tuple[int, ...] | None
    record: tuple[str, ...]

    @property
    def own_samples(self) -> bool:
        """Whether a decision is measured on the samples of its own learner, and not on all."""
        return self.measure == "local" and not self.shared

    @classmethod
    def of(
        cls, algorithm: Algorithm, shared: bool, measure: Measure, record: tuple[str, ...], debug: bool = False
    ) -> Program:
        """The program of an algorithm; `shared`: every learner sees the same batch; `debug`: functions as written."""
        learner, server = (algorithm.learner, algorithm.server) if debug else algorithm.running
        return cls(
            learner,
            server,
            algorithm.mixing,
            algorithm.problem,
            algorithm.learners,
            shared,
            measure,
            algorithm.coordinates if measure == "joint" else None,
            record,
        )


class Inputs(NamedTuple):
    """What the host supplies for a chunk of C exchanges, or, sliced, for one of them.

    Attributes:
        block: samples, axes (C, block, learner or batch, ...).
        noise: the learners' draws by name, axes (seed, learner, C, ...), or recipes for drawing them here.
        server_noise: the server's draws by name, axes (seed, 1, C, ...), or recipes.
        public: schedules by name, axis (C,).
        varying: the part of the mixing weights that changes from exchange to exchange, leading axis C; in a
            federation who takes part, axes (C, learner), or nothing where everybody does.
        grid: the lattice of the learners' draws by name, axis (learner,): the same at every exchange.
        server_grid: that of the server's draws, axis (1,).
    """

    block: Block
    noise: Mapping[str, Any]
    server_noise: Mapping[str, Any]
    public: Mapping[str, Any]
    varying: Any
    grid: Mapping[str, Any]
    server_grid: Mapping[str, Any]


class World(NamedTuple):
    """The states of all learners (leading axis: learner) and of the server."""

    learners: State
    server: State


class Outputs(NamedTuple):
    """What one exchange shows: sums over the block's rows, and the transcript that was asked for."""

    loss: jax.Array
    correct: jax.Array | None
    disagreement: jax.Array
    transcript: Mapping[str, Any]


def at(inputs: Inputs, t: jax.Array | int) -> Inputs:
    """The inputs of one exchange of the chunk."""
    first = partial(jax.tree.map, lambda leaf: leaf[t])
    return Inputs(
        first(inputs.block),
        {name: draws_at(draws, t) for name, draws in inputs.noise.items()},
        {name: draws_at(draws, t) for name, draws in inputs.server_noise.items()},
        first(inputs.public),
        first(inputs.varying),
        inputs.grid,
        inputs.server_grid,
    )


def draws_at(draws: Any, t: jax.Array | int) -> jax.Array:
    """One name's draws of one exchange, axes (seed, learner, ...): taken from the chunk's, or made now."""
    here: jax.Array = (
        jax.vmap(draw_at, (0, None))(draws, t)
        if isinstance(draws, Recipe)
        else lax.dynamic_index_in_dim(draws, t, 2, keepdims=False)
    )
    return here


def now_for(function: str, specs: Mapping[str, NoiseSpec], inputs: Inputs) -> Now:
    """What one function is given at one exchange."""
    served = function == "aggregate"
    draws, grid = (inputs.server_noise, inputs.server_grid) if served else (inputs.noise, inputs.grid)
    return Now(inputs.public, draws, grid).only_for(function, specs)


PER_LEARNER = Now(public=None, noise=0, grid=0)  # type: ignore[arg-type]  # in_axes: schedules are common, draws are not


@partial(jax.jit, static_argnames="program")
def start(program: Program) -> World:
    """The states before the first exchange."""
    learners = jax.vmap(program.learner.init)(jnp.arange(program.learners))
    return World(learners, program.server.init() if program.server else ())


def start_many(program: Program, copies: int) -> World:
    """The same for several seeds, or replicates: axes (copy, learner, ...).

    Copied by NumPy: JAX would compile a few programs for every shape and number of copies.
    """
    worlds: World = jax.device_put(
        jax.tree.map(lambda leaf: np.broadcast_to(leaf, (copies, *leaf.shape)), start(program))
    )
    return worlds


def decisions(program: Program, world: World, inputs: Inputs) -> jax.Array:
    """What every learner plays: axes (learner, coordinate)."""
    now = now_for("decide", program.learner.noise, inputs)
    played: jax.Array = jax.vmap(program.learner.decide, (0, PER_LEARNER))(world.learners, now)
    return played


def exchange(program: Program, constant: Any, world: World, inputs: Inputs) -> tuple[World, Outputs]:
    """Decide -> learn -> speak -> mix -> listen, for all learners at once."""
    learner, specs = program.learner, program.learner.noise
    played = decisions(program, world, inputs)
    block_axis = None if program.shared else 1
    block = flatten_rows(inputs.block) if program.shared else inputs.block
    learnt = jax.vmap(learner.learn, (0, block_axis, PER_LEARNER))(
        world.learners, block, now_for("learn", specs, inputs)
    )
    messages, said = jax.vmap(learner.speak, (0, PER_LEARNER))(learnt, now_for("speak", specs, inputs))
    messages, said = without_absent(program, inputs, world.learners, messages, said)
    heard, server, heard_axis = transmit(program, constant, world.server, messages, inputs)
    listened = jax.vmap(learner.listen, (0, heard_axis))(said, heard)
    shown = observe(program, played, inputs.block)
    transcript = {"decisions": played, "messages": spoken(messages), "broadcasts": heard}
    kept = {name: transcript[name] for name in program.record}
    return World(listened, server), shown._replace(transcript=kept)


def without_absent(
    program: Program, inputs: Inputs, before: State, messages: Message, said: State
) -> tuple[Message, State]:
    """Of learners that miss a round of a federation, zeros instead of a message, and the state from before it."""
    if program.server is None or not jax.tree.leaves(inputs.varying):
        return messages, said

    def keep(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(inputs.varying.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    zeros = jax.tree.map(jnp.zeros_like, messages)
    return jax.tree.map(keep, messages, zeros), jax.tree.map(keep, said, before)


def transmit(
    program: Program, constant: Any, server: State, messages: Message, inputs: Inputs
) -> tuple[Message, State, int | None]:
    """What is heard, the server's new state, and the learner axis of what is heard (None: all hear the same)."""
    if program.server is None:
        return program.mixing.mix(constant, inputs.varying, messages), server, 0
    now = now_for("aggregate", program.server.noise, inputs)
    now = Now(now.public, *jax.tree.map(lambda leaf: leaf[0], (now.noise, now.grid)))  # there is one server
    broadcast, server = program.server.aggregate(server, messages, now)
    return broadcast, server, None


def first_messages(program: Program, public: Sequence[str]) -> tuple[Message, Message]:
    """What the learners say, and the server answers, at a first exchange without data: for counting bytes."""

    def zeros(specs: Mapping[str, NoiseSpec], count: int) -> dict[str, jax.Array]:
        return {name: jnp.zeros((count, *spec.shape)) for name, spec in specs.items()}

    world, learner, server = start(program), program.learner, program.server
    theirs = server.noise if server else {}
    inputs = Inputs(
        Block(None, None),
        zeros(learner.noise, program.learners),
        zeros(theirs, 1),
        {name: jnp.ones(()) for name in public},
        (),
        {},
        {},
    )
    now = now_for("speak", learner.noise, inputs)
    messages, _ = jax.vmap(learner.speak, (0, PER_LEARNER))(world.learners, now)
    return spoken(messages), transmit(program, (), world.server, messages, inputs)[0] if server else ()


def flatten_rows(block: Block) -> Block:
    """(steps, learner or batch, ...) to (rows, ...)."""
    return Block(*(leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]) for leaf in block))


def observe(program: Program, played: jax.Array, block: Block) -> Outputs:
    """Losses and correct predictions summed over the rows that each decision is measured on, and the disagreement."""
    centred = played - jnp.mean(played, axis=0, keepdims=True)
    # Sums of squares by learner, and not one product: that would write all of `centred` down first.
    disagreement = jnp.sum(jnp.sum(jnp.square(centred), axis=1)) / len(played)
    if program.measure == "joint":
        played = played[jnp.array(program.coordinates), jnp.arange(played.shape[1])][None]
    rows = block if program.own_samples else flatten_rows(block)

    def total(values: Any) -> jax.Array:
        return jax.vmap(lambda x, b: jnp.sum(values(x, b)), (0, 1 if program.own_samples else None))(played, rows)

    correct = total(program.problem.correct) if program.problem.classifies else None
    return Outputs(total(program.problem.losses), correct, disagreement, {})


def measured(program: Program, block: Block) -> int:
    """How many samples each decision is measured on in one exchange; axes (exchange, step, learner or batch, ...)."""
    steps, rows = block.x.shape[1:3]
    return int(steps if program.own_samples else steps * rows)


def seeded_exchange(program: Program, constant: Any, worlds: World, inputs: Inputs) -> tuple[World, Outputs]:
    """`exchange` for every seed at once: worlds and noise have a leading axis, everything else is common."""
    axes = Inputs(None, noise=0, server_noise=0, public=None, varying=None, grid=None, server_grid=None)  # type: ignore[arg-type]
    return jax.vmap(partial(exchange, program), (None, 0, axes))(constant, worlds, inputs)


@partial(jax.jit, static_argnames="program")
def run_chunk(
    program: Program, constant: Any, worlds: World, inputs: Inputs, first: jax.Array, stop: jax.Array
) -> tuple[World, Outputs]:
    """Exchanges first, ..., stop-1 of a chunk: outputs have axes (exchange, seed, ...).

    The bounds are run-time values, so that a chunk that is not full, or is resumed in its middle, runs the very same
    compiled loop: results do not depend on where a run was cut, to the last bit.
    """
    length = jax.tree.leaves(inputs.block)[0].shape[0]
    _, shapes = jax.eval_shape(partial(seeded_exchange, program), constant, worlds, at(inputs, 0))
    outputs = jax.tree.map(lambda s: jnp.zeros((length, *s.shape), s.dtype), shapes)

    def body(t: jax.Array, carry: tuple[World, Outputs]) -> tuple[World, Outputs]:
        worlds, outputs = carry
        worlds, shown = seeded_exchange(program, constant, worlds, at(inputs, t))
        return worlds, jax.tree.map(lambda all_, one: all_.at[t].set(one), outputs, shown)

    result: tuple[World, Outputs] = lax.fori_loop(first, stop, body, (worlds, outputs))
    return result


@partial(jax.jit, static_argnames="program")
def play(program: Program, worlds: World, inputs: Inputs) -> tuple[jax.Array, Outputs]:
    """Play the block with the decisions of these worlds and learn nothing: the steps left over at the end."""

    def one(world: World, noise: Mapping[str, Any]) -> tuple[jax.Array, Outputs]:
        played = decisions(program, world, inputs._replace(noise=noise))
        return played, observe(program, played, inputs.block)

    result: tuple[jax.Array, Outputs] = jax.vmap(one)(worlds, inputs.noise)
    return result
