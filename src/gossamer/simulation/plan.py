"""How a run is cut into chunks: exchanges that one compiled call computes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from gossamer.core import Algorithm, Schedule, Segment
from gossamer.privacy import FastNoise, NoiseSource
from gossamer.streams import Feed, LiveStream, Stream

# Inputs of a chunk are about this large: big enough to hide the cost of a call, small enough to stay near the cache.
_CHUNK_BYTES = 2**23
_LONGEST_CHUNK = 4096
_SHOWN_BYTES = 2**28  # of rows and transcripts that wait on the device
# A chunk handles about so many numbers, on an accelerator and on a CPU: it takes seconds also where learners are many.
_CHUNK_WORK = (2**36, 2**30)
_DRAWN_IN_PROGRAM = 2_000  # values an exchange: see `program_draws`
_COPIED = 2**30  # bytes of records that are put on a CPU for a small run, beside those of the stream


class Chunk(NamedTuple):
    """Exchanges origin+first, ..., origin+stop-1, computed in arrays of `length` rows; `step` is their first step."""

    origin: int
    length: int
    first: int
    stop: int
    block: int
    step: int

    @property
    def start(self) -> int:
        """The number of its first exchange."""
        return self.origin + self.first

    @property
    def end(self) -> int:
        """The number of the exchange after it."""
        return self.origin + self.stop

    @property
    def exchanges(self) -> NDArray[np.int64]:
        """The numbers of its exchanges."""
        return np.arange(self.start, self.end, dtype=np.int64)

    def rows(self, every: int) -> int:
        """How many rows of so many exchanges each it is part of."""
        return (self.end - 1) // every - self.start // every + 1

    def even(self, every: int) -> int | None:
        """Where it is full: exchanges from one place at which a row may begin to the next; None if they differ."""
        full, least = self.stop - self.first == self.length, min(every, self.length)
        aligned = self.length % least == 0 and every % least == 0 and self.origin % least == 0
        return least if full and aligned else None

    def after(self) -> Chunk:
        """The exchange after it, without samples."""
        return Chunk(self.end, 1, 0, 1, 0, self.step + (self.stop - self.first) * self.block)


def chunks(segments: Iterable[Segment], length: int | None = None, done: int = 0) -> Iterator[Chunk]:
    """Cut runs of exchanges into chunks, leaving out the exchanges already done.

    `length`: exchanges per chunk; None: as many as each run of equal blocks has.

    >>> [(c.first, c.stop, c.step) for c in chunks([Segment(5, 2)], 4, done=3)]
    [(3, 4, 6), (0, 1, 8)]
    """
    origin = step = 0
    for exchanges, block in segments:
        skipped, size = min(exchanges, max(0, done - origin)), length or exchanges
        for low in range(skipped - skipped % size, exchanges, size):
            first, stop = max(0, skipped - low), min(size, exchanges - low)
            if first < stop:
                yield Chunk(origin + low, size, first, stop, block, step + (low + first) * block)
        origin += exchanges
        step += exchanges * block


def cut_at_rows(plan: Iterable[Chunk], every: int) -> Iterator[Chunk]:
    """The same exchanges in chunks of the same length, which also stop wherever a row of the result ends.

    Only the bounds of the compiled loop change, not its program: the results stay the same to the last bit.

    >>> [(c.first, c.stop, c.step) for c in cut_at_rows([Chunk(8, 8, 1, 8, 2, 18)], 5)]
    [(1, 2, 18), (2, 7, 20), (7, 8, 30)]
    """
    for chunk in plan:
        low = chunk.first
        while low < chunk.stop:
            high = min(chunk.stop, low + every - (chunk.origin + low) % every)
            yield chunk._replace(first=low, stop=high, step=chunk.step + (low - chunk.first) * chunk.block)
            low = high


def left_over(schedule: Schedule, steps: int) -> Chunk:
    """The steps after the last whole block, as one exchange in which nothing is learnt.

    >>> from gossamer import Every
    >>> left_over(Every(4), 10)
    Chunk(origin=2, length=1, first=0, stop=1, block=2, step=8)
    """
    segments = list(schedule.segments(steps))
    played = sum(exchanges * block for exchanges, block in segments)
    return Chunk(sum(exchanges for exchanges, _ in segments), 1, 0, 1, steps - played, played)


def chunk_length(
    algorithm: Algorithm,
    sources: Sequence[NoiseSource],
    block: int,
    *,
    batch: int | None = None,
    fed: bool = False,
    shown: int = 0,
) -> int:
    """Exchanges per chunk, a power of two: as many as keep what goes in and comes out at a few megabytes.

    Args:
        algorithm: whose exchanges.
        sources: of the noise, one for each seed.
        block: steps of an exchange.
        batch: samples a step where all learners see the same ones; else there is one for each.
        fed: whether the program reads samples by itself.
        shown: numbers that come out of an exchange.

    >>> from gossamer import algorithms, problems, topology
    >>> chunk_length(algorithms.d_ogd(problems.Logistic(112), topology.ring(16), step=1.0), [FastNoise(0)], block=1)
    1024
    """
    samples = (batch or algorithm.learners) * max(1, block) * math.prod(algorithm.problem.feature_shape)
    values = (0 if fed else samples) + _changing_weights(algorithm)
    if not program_draws(algorithm, sources):
        values += len(sources) * drawn(algorithm)
    work = len(sources) * (samples + algorithm.learners * algorithm.problem.dim)
    patience = _CHUNK_WORK[jax.default_backend() == "cpu"] // work
    room = _SHOWN_BYTES // (4 * max(1, shown))
    most = max(1, min(_LONGEST_CHUNK, _CHUNK_BYTES // (4 * max(1, values)), patience, room))
    return 1 << (most.bit_length() - 1)


def in_step(length: int, every: int) -> int:
    """About so many exchanges, such that rows of `every` exchanges end where chunks do, or chunks where rows do.

    An accelerator then knows all bounds of the loop beforehand. Where nothing near fits, the length stays.

    >>> in_step(1024, 8), in_step(1024, 1000), in_step(1024, 4000), in_step(1024, 997), in_step(1024, 4001)
    (1024, 1000, 1000, 997, 1024)
    """
    if every <= length:
        return length - length % every
    divisor = max(size for size in range(1, length + 1) if every % size == 0)
    return divisor if 4 * divisor >= length else length


def batch_of(stream: Stream) -> int | None:
    """Samples a step of a stream that all learners share; None where they do not, or where it can be read only once.

    >>> from gossamer import streams
    >>> batch_of(streams.common([[1.0], [2.0], [3.0]], batch=3)), batch_of(streams.random_signs(2, 3, seed=0))
    (3, None)
    """
    return len(stream.read(0, 1).y[0]) if stream.shared and not isinstance(stream, LiveStream) else None


def program_draws(algorithm: Algorithm, sources: Sequence[NoiseSource]) -> bool:
    """Whether the compiled program draws noise by itself; else the host does, beside it.

    On accelerators it does. On a CPU it does from `_DRAWN_IN_PROGRAM` values an exchange on: below, a second core draws
    on the host meanwhile; above, the program's own loops use both cores, and nothing is written down.
    """
    if not all(isinstance(source, FastNoise) and type(source).draw is FastNoise.draw for source in sources):
        return False  # a program would not know of draws that somebody has changed
    asked = {source.compiled for source in sources if isinstance(source, FastNoise)} - {None}
    if asked:
        return asked == {True}
    return jax.default_backend() != "cpu" or drawn(algorithm) >= _DRAWN_IN_PROGRAM


def program_reads(feed: Feed, draws: bool) -> bool:
    """Whether the compiled program reads samples by itself; `draws`: whether it draws noise.

    Records that are in memory it always reads: to gather them on the host takes up to half of a run. Of many records a
    small run makes no copy, and samples that are drawn themselves come from where noise does.
    """
    return draws or (feed.exact and sum(leaf.nbytes for leaf in jax.tree.leaves(feed)) <= _COPIED)


def drawn(algorithm: Algorithm) -> int:
    """Random values of an exchange, for one seed."""
    served = sum(spec.size for spec in algorithm.server.noise.values()) if algorithm.server else 0
    return algorithm.learners * sum(spec.size for spec in algorithm.learner.noise.values()) + served


def _changing_weights(algorithm: Algorithm) -> int:
    """How many mixing weights change at every exchange."""
    if algorithm.graph is None or algorithm.graph.fixed:
        return 0
    return sum(leaf.size for leaf in jax.tree.leaves(algorithm.network(np.zeros(1, np.int64))[1]))
