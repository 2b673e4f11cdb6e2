"""The same functions in a plain Python loop, learner by learner, for stepping through with a debugger."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.core import Now
from gossamer.problems import Block
from gossamer.simulation.engine import Outputs, World, begun, now_for, transmit, without_absent
from gossamer.simulation.inputs import Inputs, at
from gossamer.simulation.observing import add_up, flatten_rows, observe
from gossamer.simulation.program import Program
from gossamer.topology import spoken

_inputs_at = jax.jit(at)  # nobody steps through how noise is drawn, which is more than a hundred operations


def run_chunk(
    program: Program,
    constant: Any,
    worlds: World,
    inputs: Inputs,
    first: int,
    stop: int,
    rows: int | None = None,
    even: int | None = None,
) -> tuple[World, Outputs]:
    """What `engine.run_chunk` does, exchange by exchange and learner by learner."""
    shown: list[Outputs] = []
    added = [jnp.zeros_like(worlds.row)] * (rows or len(inputs.rows.number))
    seeds = range(jax.tree.leaves(worlds)[0].shape[0])
    for t in range(first, stop):
        inputs_t = _inputs_at(inputs, t)
        with jax.disable_jit():  # loops inside the functions run in Python too
            each = [exchange(program, constant, _pick(worlds, s), _for_seed(inputs_t, s)) for s in seeds]
            worlds = _stack([world for world, _ in each])
            shown.append(_stack([outputs for _, outputs in each]))
        added[int(inputs_t.rows.number)] = worlds.row
    transcript = _stack([shown[0]] * first + shown).transcript  # exchanges before `first` are not looked at
    return worlds, Outputs(_stack(added), transcript)


def exchange(program: Program, constant: Any, world: World, inputs: Inputs) -> tuple[World, Outputs]:
    """Decide -> learn -> speak -> mix -> listen, one learner after the other."""
    learner, specs = program.learner, program.learner.noise

    def now(function: str, i: int) -> Now:
        common = now_for(function, specs, inputs)
        return Now(common.public, _pick(common.noise, i), _pick(common.grid, i))

    played, messages, said = [], [], []
    for i in range(program.learners):
        state = _pick(world.learners, i)
        played.append(learner.decide(state, now("decide", i)))
        state = learner.learn(state, _block_of(program, inputs.block, i), now("learn", i))
        message, state = learner.speak(state, now("speak", i))
        messages.append(message)
        said.append(state)
    everything, states = without_absent(program, inputs, world.learners, _stack(messages), _stack(said))
    heard, server, heard_axis = transmit(program, constant, world.server, everything, inputs)
    listened = [
        learner.listen(_pick(states, i), heard if heard_axis is None else _pick(heard, i))
        for i in range(program.learners)
    ]
    decisions = _stack(played)
    transcript = {"decisions": decisions, "messages": spoken(everything), "broadcasts": heard}
    row = add_up(begun(program, world, inputs), observe(program, decisions, inputs))
    return World(_stack(listened), server, row), Outputs(row, {name: transcript[name] for name in program.record})


def _block_of(program: Program, block: Block, i: int) -> Block:
    return flatten_rows(block) if program.shared else Block(*(jnp.asarray(leaf)[:, i] for leaf in block))


def _for_seed(inputs: Inputs, s: int) -> Inputs:
    return inputs._replace(noise=_pick(inputs.noise, s), server_noise=_pick(inputs.server_noise, s))


def _pick(tree: Any, i: int) -> Any:
    """By NumPy, as `_stack`: JAX would compile a program for every shape, and one of seconds for thousands of rows."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[i]), tree)


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *trees)
