"""One exchange of all learners, and the compiled loop over a chunk of exchanges.

`exchange` is the whole protocol. The compiled engine vectorises the learner's functions over learners (and seeds) and
loops; the debug engine (`debug.py`) calls the same functions learner by learner in Python.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from gossamer.core import Message, Now, State
from gossamer.privacy import NoiseSpec
from gossamer.problems import Block
from gossamer.simulation.inputs import Ahead, Inputs, Rows, ahead, at
from gossamer.simulation.observing import add_up, disagreement, flatten_rows, observe
from gossamer.simulation.program import Program
from gossamer.topology import spoken

_UNROLL = 4  # exchanges that an accelerator starts at once where it knows how many there are


class World(NamedTuple):
    """The states of all learners (leading axis: learner) and of the server, and what the row so far adds up to."""

    learners: State
    server: State
    row: jax.Array


class Outputs(NamedTuple):
    """What one exchange shows: what its row adds up to with it, and the transcript that was asked for."""

    row: jax.Array
    transcript: Mapping[str, Any]


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
    return World(learners, program.server.init() if program.server else (), jnp.zeros((2, program.figures)))


def start_many(program: Program, copies: int) -> World:
    """The same for several seeds, or replicates: axes (copy, learner, ...).

    Copied by NumPy: JAX would compile a few programs for every shape and number of copies. On a mesh no device, and no
    host, may have room for all of them; and what is on an accelerator stays there.
    """
    if program.spread.mesh is not None or jax.default_backend() != "cpu":
        dealt: World = _start_dealt(program, copies)
        return dealt
    worlds: World = jax.device_put(
        jax.tree.map(lambda leaf: np.broadcast_to(leaf, (copies, *leaf.shape)), start(program))
    )
    return worlds


@partial(jax.jit, static_argnames=("program", "copies"))
def _start_dealt(program: Program, copies: int) -> World:
    worlds = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (copies, *leaf.shape)), start(program))
    dealt: World = program.spread.worlds(worlds, program.row_parts > 1)
    return dealt


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
    row = add_up(world.row, observe(program, played, inputs))
    transcript = {"decisions": played, "messages": spoken(messages), "broadcasts": heard}
    return World(listened, server, row), Outputs(row, {name: transcript[name] for name in program.record})


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
        return program.spread.mix(program.mixing, constant, inputs.varying, messages), server, 0
    now = now_for("aggregate", program.server.noise, inputs)
    now = Now(now.public, *jax.tree.map(lambda leaf: leaf[0], (now.noise, now.grid)))  # there is one server
    broadcast, server = program.spread.whole(program.server.aggregate(server, messages, now))
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
        Rows(0, True, 0),
        {},
        {},
    )
    now = now_for("speak", learner.noise, inputs)
    messages, _ = jax.vmap(learner.speak, (0, PER_LEARNER))(world.learners, now)
    return spoken(messages), transmit(program, (), world.server, messages, inputs)[0] if server else ()


def begun(program: Program, world: World, inputs: Inputs) -> jax.Array:
    """The row so far, before an exchange; one that begins holds how far the decisions in play are apart."""
    apart, parts = disagreement(program, decisions(program, world, inputs)), program.row_parts
    fresh = jnp.zeros((2, parts, program.figures // parts)).at[0, :, -1].set(apart).reshape(2, -1)
    return jnp.where(inputs.rows.begins, fresh, world.row)


_SEEDED = Inputs(None, 0, 0, None, None, None, None, None)  # type: ignore[arg-type]  # noise and server_noise


def seeded_begun(program: Program, worlds: World, inputs: Inputs) -> jax.Array:
    """`begun` for every seed at once."""
    rows: jax.Array = jax.vmap(partial(begun, program), (0, _SEEDED))(worlds, inputs)
    return rows


def seeded_exchange(program: Program, constant: Any, worlds: World, inputs: Inputs) -> tuple[World, Outputs]:
    """`exchange` for every seed at once: worlds and noise have a leading axis, everything else is common."""
    return jax.vmap(partial(exchange, program), (None, 0, _SEEDED))(constant, worlds, inputs)


def _run_chunk(
    program: Program,
    constant: Any,
    worlds: World,
    inputs: Inputs,
    first: jax.Array | int,
    stop: jax.Array | int,
    rows: int | None = None,
    even: int | None = None,
) -> tuple[World, Outputs]:
    """Exchanges first, ..., stop-1 of a chunk, whose result has so many rows, by default one for each exchange.

    Rows have axes (row, seed, ...), the transcript (exchange, seed, ...). `even`: the chunk is played as a whole, and
    rows begin at multiples of so many exchanges only.
    """
    length, spread = inputs.rows.number.shape[0], program.spread
    samples_lie = spread.whole if program.shared else spread.split

    def exchange_at(worlds: World, t: jax.Array | int, known: Ahead) -> tuple[World, Outputs]:
        here = at(inputs, t, known)
        here = here._replace(block=samples_lie(here.block), noise=spread.split(here.noise))
        return seeded_exchange(program, constant, worlds, here)

    traced, (_, shapes) = jax.make_jaxpr(exchange_at, return_shape=True)(worlds, 0, ahead(inputs, 0))
    kept = _kept(traced, worlds)
    transcript = jax.tree.map(lambda s: jnp.zeros((length, *s.shape), s.dtype), shapes.transcript)
    outputs = Outputs(spread.row(jnp.zeros((rows or length, *shapes.row.shape)), program.row_parts > 1), transcript)
    put = partial(lax.dynamic_update_index_in_dim, axis=0)
    outputs = outputs._replace(row=put(outputs.row, worlds.row, inputs.rows.number[first]))

    def begin(t: jax.Array | int, carry: _Carry) -> _Carry:
        """A row, or a chunk in its middle."""
        worlds, outputs, known = carry
        number = inputs.rows.number[t]
        row = seeded_begun(program, worlds._replace(row=outputs.row[number]), at(inputs, t, known))
        return worlds, outputs._replace(row=put(outputs.row, row, number)), known

    def step(t: jax.Array, carry: _Carry) -> _Carry:
        before, outputs, known = carry
        number = inputs.rows.number[t]  # the row so far is read where it is written
        worlds, shown = exchange_at(before._replace(row=outputs.row[number]), t, known)
        worlds = jax.tree.map(lambda new, old, keep: new if keep else old, worlds, before, kept)
        worlds = spread.worlds(worlds, program.row_parts > 1)
        transcript = jax.tree.map(lambda all_, one: put(all_, one, t), outputs.transcript, shown.transcript)
        return worlds, Outputs(put(outputs.row, shown.row, number), transcript), spread.split(ahead(inputs, t + 1))

    carry = (worlds, outputs, spread.split(ahead(inputs, first)))
    if even is None:
        worlds, outputs, _ = _row_by_row(begin, step, inputs.rows.begins, first, stop, carry)
    else:
        worlds, outputs, _ = _evenly(begin, step, length // even, even, carry)
    return worlds._replace(row=outputs.row[inputs.rows.number[stop - 1]]), outputs


_Carry = tuple[World, Outputs, Ahead]
_Part = Callable[[Any, _Carry], _Carry]


def _row_by_row(begin: _Part, step: _Part, begins: Any, first: Any, stop: Any, carry: _Carry) -> _Carry:
    """With bounds that are run-time values."""

    def row(now: tuple[Any, _Carry]) -> tuple[Any, _Carry]:
        origin, carry = now
        within = lambda now: (now[0] == origin) | ((now[0] < stop) & ~begins[now[0]])  # noqa: E731
        played: tuple[Any, _Carry] = lax.while_loop(
            within, lambda now: (now[0] + 1, step(*now)), (origin, begin(origin, carry))
        )
        return played

    start = (jnp.asarray(first, jnp.int32), carry)
    last: tuple[Any, _Carry] = lax.while_loop(lambda now: now[0] < stop, row, start)
    return last[1]


def _evenly(begin: _Part, step: _Part, rows: int, every: int, carry: _Carry) -> _Carry:
    """With known bounds: an accelerator need not ask the host after every exchange whether it was the last."""

    def row(number: jax.Array, carry: _Carry) -> _Carry:
        origin = number * every
        within = lambda k, carry: step(origin + k, carry)  # noqa: E731
        played: _Carry = lax.fori_loop(0, every, within, begin(origin, carry), unroll=min(every, _UNROLL))
        return played

    last: _Carry = lax.fori_loop(0, rows, row, carry)
    return last


def _kept(traced: Any, worlds: World) -> Any:
    """Which parts of the states an exchange reads: what is only handed on within an exchange need not be kept after it.

    On a million learners every such part would be another pass over the memory.
    """
    read = {id(var) for equation in traced.jaxpr.eqns for var in equation.invars}
    read |= {id(var) for var in traced.jaxpr.outvars}
    leaves, tree = jax.tree.flatten(worlds)
    kept: Any = jax.tree.unflatten(tree, [id(var) in read for var in traced.jaxpr.invars[: len(leaves)]])
    return kept._replace(row=False)  # the row is kept where it is written


run_chunk = jax.jit(_run_chunk, static_argnames=("program", "rows", "even"))
"""A chunk that is not full, or is resumed in its middle, runs the very same compiled loop: its bounds are run-time
values. Results do not depend on where a run was cut, to the last bit."""

run_small_chunk = jax.jit(
    _run_chunk,
    static_argnames=("program", "rows", "even"),
    compiler_options={"xla_disable_hlo_passes": "cpu-parallel-task-assigner"},
)
"""The same for small exchanges on a CPU (`sizes.runner`), whose loops are not split between threads: to wake one takes
longer than to do its part."""


@partial(jax.jit, static_argnames="program")
def play(program: Program, worlds: World, inputs: Inputs) -> tuple[jax.Array, jax.Array]:
    """Play the first block of a chunk with the decisions of these worlds and learn nothing: the steps left over.

    Returns the decisions, axes (seed, learner, coordinate), and a row of their own, axes (seed, 2, figure).
    """
    here = at(inputs, 0)

    def one(world: World, noise: Mapping[str, Any]) -> tuple[jax.Array, jax.Array]:
        mine = here._replace(noise=noise)
        played = decisions(program, world, mine)
        return played, add_up(begun(program, world, mine), observe(program, played, here))

    result: tuple[jax.Array, jax.Array] = jax.vmap(one)(worlds, here.noise)
    return result
