"""Settings that run together, in one program."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.core import Algorithm, Federation
from gossamer.core.drawing import grids
from gossamer.simulation import engine
from gossamer.simulation.engine import Outputs, World
from gossamer.simulation.feeders import Feeders, draws_of, draws_units, everywhere
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.inputs import Inputs
from gossamer.simulation.plan import Chunk, chunks, cut_at_rows, left_over
from gossamer.simulation.program import Program
from gossamer.simulation.run import Run
from gossamer.simulation.settings import Shared, Traced, run
from gossamer.simulation.sizes import even_of, length_of, slots_of
from gossamer.simulation.tally import Tally, put_down, report
from gossamer.simulation.testing import HeldOut

_BATCH_BYTES = (2**31, 2**26)  # that settings in one program may fill with states, on an accelerator and on a CPU


@dataclass(frozen=True, eq=False)
class Setting:
    """One algorithm of a run of many: who feeds it, its program, its test, and what was traced of all of them."""

    feeder: Feeder
    program: Program
    held_out: HeldOut | None
    known: dict[Hashable, Traced]

    @property
    def algorithm(self) -> Algorithm:
        """What runs."""
        return self.feeder.algorithm

    def traced(self, key: Hashable, function: Callable[..., Any], args: Sequence[Any]) -> Traced:
        """The program of a function of this setting, traced once for each key; equal programs share it."""
        mine = self.program, key
        if mine not in self.known:
            self.known[mine] = Traced.of(partial(function, self.program), args)
        return self.known[mine]

    def likeness(self, steps: int) -> Hashable:
        """What settings have in common that may run together, apart from the form of their programs."""
        algorithm, feeder = self.algorithm, self.feeder
        draws = draws_of(algorithm)
        sources = feeder.sources if draws_units(feeder) else tuple(map(type, feeder.sources))
        return (
            tuple(algorithm.schedule.segments(steps)),
            _network(algorithm),
            tuple((name, draw.spec, len(draw.scales)) for name, draw in sorted(draws.items())),
            tuple(sorted(grids(draws))),
            tuple(sorted(algorithm.public)),
            (sources, feeder.in_program, feeder.fed, feeder.width),
        )


class ApartError(Exception):
    """Settings whose programs differ in more than numbers: they run in these parts."""

    def __init__(self, parts: list[list[Setting]]) -> None:
        super().__init__()
        self.parts = parts


def parted(settings: Iterable[Setting], key: Callable[[Setting], Hashable]) -> list[list[Setting]]:
    """Settings of equal keys, in the order in which they come."""
    parts: dict[Hashable, list[Setting]] = {}
    for setting in settings:
        parts.setdefault(key(setting), []).append(setting)
    return list(parts.values())


def _network(algorithm: Algorithm) -> Hashable:
    """Equal where the same learners hear each other with the same weights."""
    if isinstance(algorithm.topology, Federation):
        return algorithm.topology
    if not algorithm.topology.fixed:
        return id(algorithm.topology), algorithm.mixing
    weights, tree = jax.tree.flatten(algorithm.network(np.zeros(1, np.int64))[0])
    return tree, tuple((np.shape(leaf), np.asarray(leaf).dtype, np.asarray(leaf).tobytes()) for leaf in weights)


def batch_size(setting: Setting, seeds: int, steps: int) -> int:
    """How many settings one program holds: as many as keep states and what is computed of samples small."""
    program, learners = setting.program, setting.program.learners
    states = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(jax.eval_shape(lambda: engine.start(program))))
    block = max(segment.block for segment in setting.algorithm.schedule.segments(steps))
    rows = block * (setting.feeder.width if program.shared else 1)
    sampled = learners * rows * math.prod(program.problem.feature_shape)
    measured = learners * program.measured(block, setting.feeder.width)
    room: int = _BATCH_BYTES[jax.default_backend() == "cpu"]
    return max(1, room // int(4 * seeds * (states + sampled + measured)))


class _Played(NamedTuple):
    """A chunk that JAX is computing, or has computed; `ahead` holds the decisions after it that are to be tested."""

    chunk: Chunk
    outputs: Outputs
    ahead: jax.Array | None


class Together:
    """Settings in one program, for so many steps."""

    def __init__(self, settings: Sequence[Setting], steps: int, every: int, length: int | None, size: int) -> None:
        """Of alike settings; `every`: exchanges per row; `length`: of chunks; `size`: settings that run at once."""
        self.settings, self.steps, self.every = list(settings), steps, every
        self.feeder = Feeders.of([setting.feeder for setting in settings])
        self.length = length_of(self.feeder, settings[0].program, steps, every, length, settings=size)
        self.rest = left_over(self.feeder.algorithm.schedule, steps)
        self._ready: dict[Hashable, tuple[Shared, list[Any]]] = {}

    def compare(self) -> None:
        """Refuse settings whose programs differ in more than numbers, by `ApartError`, before anything runs."""
        worlds = self._start()
        first = next(iter(self._plan()))
        self._program("chunk", *self._chunk_call(first, worlds, self.feeder.inputs(first, every=self.every)))
        self._program("play", *self._play_call(worlds, self.rest, self.every))

    def _plan(self) -> Iterable[Chunk]:
        plan = chunks(self.feeder.algorithm.schedule.segments(self.steps), self.length)
        return cut_at_rows(plan, self.every) if self.settings[0].held_out else plan

    def run(self, seeds: list[int], begun: float, advance: Callable[[int], None]) -> list[Run]:
        """Play all chunks, and report the run of every setting."""
        tallies = [Tally(self.every) for _ in self.settings]
        worlds = self._start()
        before: _Played | None = None
        for chunk in self._plan():
            inputs = self.feeder.inputs(chunk, every=self.every)  # JAX computes the chunk before meanwhile
            worlds, outputs = self._call("chunk", *self._chunk_call(chunk, worlds, inputs))
            tested = self.settings[0].held_out is not None and chunk.end % self.every == 0
            ahead = self._call("play", *self._play_call(worlds, chunk.after(), 1))[0] if tested else None
            self._look(tallies, before)
            advance(chunk.start)
            before = _Played(chunk, outputs, ahead)
        self._look(tallies, before)
        decisions = self._play_rest(tallies, worlds)
        return [
            report(one.feeder, one.program, tally, last, seed=seeds, debug=False, begun=begun)
            for one, tally, last in zip(self.settings, tallies, decisions, strict=True)
        ]

    def _look(self, tallies: Sequence[Tally], played: _Played | None) -> None:
        """Wait for the outputs of a chunk, and put them down for every setting."""
        if played is None:
            return
        chunk, outputs, ahead = played
        shown, scored = jax.tree.map(np.asarray, (outputs, ahead))
        for i, (one, tally) in enumerate(zip(self.settings, tallies, strict=True)):
            mine = jax.tree.map(lambda leaf, i=i: leaf[i], shown)
            put_down(one.feeder, one.program, tally, chunk, mine, one.algorithm.messages(chunk.exchanges))
            if one.held_out and scored is not None:
                tally.add_test(one.held_out.evaluate(scored[i]))

    def _play_rest(self, tallies: Sequence[Tally], worlds: World) -> Any:
        """The steps after the last whole block; returns the last decisions: axes (setting, seed, learner, ...)."""
        decisions, rows = jax.tree.map(np.asarray, self._call("play", *self._play_call(worlds, self.rest, self.every)))
        for one, tally, last, row in zip(self.settings, tallies, decisions, rows, strict=True):
            if self.rest.block:
                put_down(one.feeder, one.program, tally, self.rest, Outputs(row[None], {}), np.zeros(1, np.int64))
            if one.held_out and tally.tested < tally.rows:  # the run ends within a row
                tally.add_test(one.held_out.evaluate(last))
        return decisions

    # -- the programs ------------------------------------------------------------------------------------------------

    def _start(self) -> World:
        """The states before the first exchange: axes (setting, seed, learner, ...)."""
        seeds = len(self.feeder.sources)
        worlds: World = jax.device_put(
            jax.tree.map(
                lambda leaf: np.broadcast_to(np.asarray(leaf)[:, None], (leaf.shape[0], seeds, *leaf.shape[1:])),
                self._call("start", engine.start, (), ()),
            )
        )
        return worlds

    def _chunk_call(self, chunk: Chunk, worlds: World, inputs: Inputs) -> tuple[Callable[..., Any], Any, Any]:
        """The function of one setting, its arguments for all of them, and which of these have an axis over settings."""
        slots = slots_of(chunk.length, self.every)
        args = (self.feeder.constant, worlds, inputs)
        axes = (everywhere(False, self.feeder.constant), everywhere(True, worlds), Feeders.axes(inputs))
        even = even_of(chunk, self.every)
        if even is not None:

            def whole(program: Program, constant: Any, worlds: World, inputs: Inputs) -> Any:
                return engine.run_chunk(program, constant, worlds, inputs, 0, chunk.length, slots, even)

            return whole, args, axes

        def part(program: Program, *args: Any) -> Any:
            return engine.run_chunk(program, *args, slots)

        bounds = np.int32(chunk.first), np.int32(chunk.stop)
        return part, (*args, *bounds), (*axes, False, False)

    def _play_call(self, worlds: World, chunk: Chunk, every: int) -> tuple[Callable[..., Any], Any, Any]:
        """The same for the decisions of an exchange in which nothing is learnt."""
        inputs = self.feeder.inputs(chunk, used_in=("decide",), every=every)
        return engine.play, (worlds, inputs), (everywhere(True, worlds), Feeders.axes(inputs))

    def _call(self, name: str, function: Callable[..., Any], args: Any, axes: Any) -> Any:
        shared, values = self._program(name, function, args, axes)
        return run(shared, len(self.settings), values, jax.tree.leaves(args))

    def _program(self, name: str, function: Callable[..., Any], args: Any, axes: Any) -> tuple[Shared, list[Any]]:
        """The one program of all settings for arguments of these shapes, and the numbers of each."""
        leaves, tree = jax.tree.flatten(args)
        mine = jax.tree.leaves(axes)
        shapes = [
            jax.ShapeDtypeStruct(np.shape(leaf)[one:], jnp.result_type(leaf))  # type: ignore[no-untyped-call]
            for leaf, one in zip(leaves, mine, strict=True)
        ]
        # Whether a whole chunk has bounds that are known is seen by its arguments.
        key = name, tree, tuple((one.shape, one.dtype) for one in shapes)
        if key not in self._ready:

            def flat(program: Program, *leaves: Any) -> Any:
                return function(program, *jax.tree.unflatten(tree, leaves))

            traced = {one: one.traced(key, flat, shapes) for one in self.settings}
            parts = parted(self.settings, lambda one: traced[one].form)
            if len(parts) > 1:
                raise ApartError(parts)
            self._ready[key] = Shared.of(list(traced.values()), tuple(0 if one else None for one in mine))
        return self._ready[key]
