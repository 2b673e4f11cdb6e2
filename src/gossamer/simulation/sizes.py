"""How a run is cut by default: exchanges for each row of its result, and for each call of the compiled program."""

import math
from typing import Any

import jax

from gossamer.simulation import engine
from gossamer.simulation.feeders import draws_units
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.plan import Chunk, batch_of, chunk_length, in_step
from gossamer.simulation.program import Program

_ROWS = 1000  # rows a run keeps unless told otherwise
_ROW_NUMBERS, _FEWEST_ROWS = 2**25, 4  # with many learners fewer, so that they do not fill the memory
_TESTED_ROWS = 50  # likewise where every row ends with a test
_SPLIT = 100_000  # numbers of an exchange: with fewer, one thread is faster than two, 1.5 times with 84,000


def usual_every(program: Program, seeds: int, exchanges: int, *, tested: bool) -> int:
    """Exchanges for each row of the result, unless told otherwise."""
    fitting = max(_FEWEST_ROWS, min(_ROWS, _ROW_NUMBERS // (seeds * program.figures)))
    return max(1, exchanges // (_TESTED_ROWS if tested else fitting))


def length_of(
    feeder: Feeder, program: Program, steps: int, every: int, chunk: int | None = None, settings: int = 1
) -> int:
    """Exchanges for each compiled call of so many settings: as many as `chunk` says, or what is usual."""
    if chunk:
        return chunk
    schedule = feeder.algorithm.schedule
    once = draws_units(feeder) and not feeder.in_program  # for all settings together
    length = chunk_length(
        feeder.algorithm,
        feeder.sources * (1 if once else settings),
        max(segment.block for segment in schedule.segments(steps)),
        batch=batch_of(feeder.stream),
        fed=feeder.fed,
        shown=settings * program.shown(len(feeder.sources), every) if feeder.in_program else 0,
    )
    if not feeder.in_program:
        return length
    return in_step(min(length, 1 << (schedule.exchanges(steps) - 1).bit_length()), every)


def slots_of(length: int, every: int) -> int:
    """Rows that the result of a chunk has room for: few different numbers, since each is a program of its own.

    >>> slots_of(100, 1), slots_of(100, 30)
    (100, 8)
    """
    return 1 << (length // every + 1).bit_length() if every > 1 else length


def even_of(chunk: Chunk, every: int) -> int | None:
    """On an accelerator, where the chunk allows it: exchanges from one place at which a row may begin to the next."""
    return None if jax.default_backend() == "cpu" else chunk.even(every)


def runner(feeder: Feeder, chunk: Chunk) -> Any:
    """The compiled loop of a chunk: that of small exchanges, or the one that splits what it does between threads.

    A program that draws noise has enough to do for two threads also where its numbers are few.
    """
    algorithm = feeder.algorithm
    samples = feeder.width * max(1, chunk.block) * math.prod(algorithm.problem.feature_shape)
    numbers = len(feeder.sources) * (samples + algorithm.learners * algorithm.problem.dim)
    alone = jax.default_backend() == "cpu" and feeder.spread.mesh is None
    return engine.run_small_chunk if alone and not feeder.in_program and numbers < _SPLIT else engine.run_chunk
