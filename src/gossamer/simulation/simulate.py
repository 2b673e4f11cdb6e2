"""`simulate`: run an algorithm over a stream."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from gossamer.core import Algorithm
from gossamer.errors import GossamerError
from gossamer.privacy import FastNoise, NoiseSource
from gossamer.problems import Block
from gossamer.simulation import checkpoint as checkpoints
from gossamer.simulation import debug as debugger
from gossamer.simulation import engine, memory
from gossamer.simulation.bar import progress_bar
from gossamer.simulation.checkpoint import Keeper, Progress, Seen
from gossamer.simulation.checks import check_run, check_seeds
from gossamer.simulation.engine import Outputs, World
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.mesh import agreement, lost, spread_over
from gossamer.simulation.plan import Chunk, chunks, cut_at_rows, left_over
from gossamer.simulation.program import Measure, Program
from gossamer.simulation.run import Run
from gossamer.simulation.sizes import even_of, length_of, runner, slots_of, usual_every
from gossamer.simulation.tally import put_down, report
from gossamer.simulation.testing import HeldOut
from gossamer.streams import Stream


def simulate(
    algorithm: Algorithm,
    stream: Stream,
    steps: int,
    *,
    seed: int | None = None,
    seeds: Sequence[int] | None = None,
    noise: Callable[[int], NoiseSource] = FastNoise,
    measure: Measure = "global",
    every: int | None = None,
    record: Sequence[str] = (),
    chunk: int | None = None,
    debug: bool = False,
    progress: bool = True,
    checkpoint: str | Path | None = None,
    test: Block | None = None,
    mesh: Mesh | int | None = None,
) -> Run:
    """Run an algorithm over the first `steps` samples of every learner.

    Args:
        algorithm: made by a function of `gossamer.algorithms`.
        stream: the learners' samples.
        steps: samples per learner; exchanges follow from the algorithm's schedule. Steps after the last whole block
            are played with the last decision and never released.
        seed: of the noise; there is no default.
        seeds: several at once instead, in one compiled program: results get a leading seed axis.
        noise: makes the noise source from a seed.
        measure: "global": each decision on the samples of all learners; "local": on the learner's own; "joint": the
            decision put together from the coordinates that each learner controls, on all samples.
        every: exchanges per row of the result, each row a mean over all its steps; by default about 1000 rows,
            or about 50 where there is a test, and fewer with more than ten thousand learners.
        record: any of "decisions", "messages" and, where there is a server, "broadcasts": the transcript of what was
            played, said and answered. Of accelerated gossip it holds the first iterate of each exchange; the others are
            public linear functions of the first ones.
        chunk: exchanges per compiled call; by default what keeps the inputs of a call at a few megabytes.
        debug: run the same functions in plain Python, learner by learner.
        progress: show a progress bar where the output is a terminal.
        checkpoint: a file that the run continues from where it exists, and that is kept up to date.
        test: samples held out, x (rows, features...) and y (rows,). At the end of every row of the result the
            decisions that would be played next are evaluated on them. Nothing else in the run depends on them.
        mesh: devices that the learners are dealt over: a `jax.sharding.Mesh` with one axis, "learners", also over
            several processes of `jax.distributed`, which all call `simulate` alike; or a number of local devices. It
            must divide the learners. Results do not depend on it.

    Returns:
        The run: see `Run`.

    >>> from gossamer import algorithms, problems, simulate, streams, topology
    >>> stream = streams.random_signs(4, 3, seed=1)
    >>> run = simulate(algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1), stream, 200, seed=0)
    >>> run.losses.shape, run.messages, run.bytes
    ((200, 4), 1600, 19200)
    """
    begun = time.perf_counter()
    spread = spread_over(mesh, algorithm.learners, debug=debug)
    with agreement(spread) as facts:
        chosen = check_seeds(seed, seeds)
        check_run(algorithm, stream, steps, measure, every, chunk, record)
        feeder = Feeder(algorithm, stream, tuple(noise(s) for s in chosen), spread)
        program = replace(Program.of(algorithm, stream.shared, measure, tuple(record), debug), spread=spread)
        held_out = None if test is None else HeldOut.of(program, test)
        keeper = Keeper()
        if checkpoint is not None or spread.several:
            identity = checkpoints.identity(feeder, program, chosen, held_out)
            keeper = Keeper(None if checkpoint is None else Path(checkpoint), identity, spread=spread)
            facts.update(identity, steps=steps, every=every, chunk=chunk, mesh=str(mesh), checkpoint=bool(checkpoint))
    exchanges = algorithm.schedule.exchanges(steps)
    usual = usual_every(program, len(chosen), exchanges, tested=held_out is not None)
    with agreement(spread) as facts:
        memory.require(feeder, program, steps, every or usual, chunk)
        done = keeper.resume(engine.start_many(program, len(chosen)), every, usual, exchanges, stream)
        facts["exchanges in the checkpoint"], facts["samples in it"] = done.exchanges, done.seen.digest
    done = done._replace(worlds=spread.put_worlds(done.worlds, program.row_parts > 1))
    done.tally.expected = exchanges // done.tally.every + 1
    length = length_of(feeder, program, steps, done.tally.every, chunk)
    plan = chunks(algorithm.schedule.segments(steps), length, done.exchanges)
    if held_out:
        plan = cut_at_rows(plan, done.tally.every)
    with progress_bar(progress, algorithm.name, exchanges, done.exchanges) as advance, lost(spread, checkpoint):
        done = _play_all(feeder, program, plan, done, debug, keeper, advance, held_out)
        last = _play_rest(feeder, program, steps, done)
    if held_out and done.tally.tested < done.tally.rows:  # the run ends within a row
        done.tally.add_test(held_out.evaluate(last))
    return report(
        feeder, program, done.tally, last, seed=chosen[0] if seeds is None else chosen, debug=debug, begun=begun
    )


class _Played(NamedTuple):
    """A chunk that JAX is computing, or has computed: its states and its outputs.

    `ahead` holds the decisions after it, where they are to be tested; `seen` all samples up to its end.
    """

    chunk: Chunk
    worlds: World
    outputs: Outputs
    ahead: jax.Array | None
    seen: Seen


def _play_all(
    feeder: Feeder,
    program: Program,
    plan: Iterator[Chunk],
    done: Progress,
    debug: bool,
    keeper: Keeper,
    advance: Callable[[int], None],
    held_out: HeldOut | None,
) -> Progress:
    """Every whole block, chunk by chunk.

    Only `look` moves the progress on: the states and the sums of a chunk together. Whatever interrupts a run, the
    checkpoint on disk never holds the one without the other.
    """
    constant, worlds, tally, seen = feeder.constant, done.worlds, done.tally, done.seen

    def look(progress: Progress, played: _Played | None, *, last: bool) -> Progress:
        """Wait for the outputs of a chunk, and put them down."""
        if played is None:
            return progress
        chunk, worlds, outputs, ahead, seen = played
        scores = held_out.evaluate(feeder.spread.fetch(ahead)) if held_out and ahead is not None else None
        put_down(feeder, program, tally, chunk, outputs, feeder.algorithm.messages(chunk.exchanges))
        if scores is not None:
            tally.add_test(scores)
        progress = Progress(chunk.end, worlds, tally, seen)
        keeper.keep(progress, now=last)
        advance(progress.exchanges)
        return progress

    played: _Played | None = None
    for chunk in plan:
        try:
            inputs = feeder.inputs(chunk, every=tally.every)  # JAX computes the chunk before meanwhile, on another core
        except GossamerError:  # a live stream ended early: what was played is kept
            look(done, played, last=True)
            raise
        run_chunk = debugger.run_chunk if debug else runner(feeder, chunk)
        slots, even = slots_of(chunk.length, tally.every), even_of(chunk, tally.every)
        worlds, outputs = run_chunk(program, constant, worlds, inputs, chunk.first, chunk.stop, slots, even)
        tested = held_out is not None and chunk.end % tally.every == 0
        ahead = _play_next(feeder, program, worlds, chunk.after())[0] if tested else None
        seen = keeper.saw(seen, feeder.stream, inputs.block, chunk)
        done = look(done, played, last=False)
        played = _Played(chunk, worlds, outputs, ahead, seen)
    return look(done, played, last=True)


def _play_rest(feeder: Feeder, program: Program, steps: int, done: Progress) -> NDArray[np.float32]:
    """The steps after the last whole block; returns the last decisions, axes (seed, learner, coordinate)."""
    rest = left_over(feeder.algorithm.schedule, steps)
    decisions, row = _play_next(feeder, program, done.worlds, rest, done.tally.every)
    if rest.block:
        put_down(feeder, program, done.tally, rest, Outputs(row[None], {}), np.zeros(1, np.int64))
    return feeder.spread.fetch(decisions)


def _play_next(
    feeder: Feeder, program: Program, worlds: World, chunk: Chunk, every: int = 1
) -> tuple[jax.Array, jax.Array]:
    """The decisions of a single exchange in which nothing is learnt, and what its row adds up to."""
    inputs = feeder.inputs(chunk, used_in=("decide",), every=every)
    played: tuple[jax.Array, jax.Array] = engine.play(program, worlds, inputs)
    return played
