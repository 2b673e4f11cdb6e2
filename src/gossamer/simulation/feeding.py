"""The host's side of a run: cut it into chunks, and prepare what the compiled loop needs for each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

import jax
import numpy as np
from numpy.typing import NDArray

from gossamer.core import Algorithm, Federation, Segment
from gossamer.core.drawing import Draw, grids, learners_draws, schedules, server_draws
from gossamer.privacy import FastNoise, NoiseSource
from gossamer.problems import Block
from gossamer.simulation.engine import Inputs
from gossamer.streams import LiveStream, Stream

# Inputs of a chunk are about this large: big enough to hide the cost of a call, small enough to stay near the cache.
_CHUNK_BYTES = 2**23
_LONGEST_CHUNK = 4096


class Chunk(NamedTuple):
    """Exchanges origin+first, ..., origin+stop-1, computed in arrays of `length` rows; `step` is their first step."""

    origin: int
    length: int
    first: int
    stop: int
    block: int
    step: int


def chunks(segments: Iterator[Segment], length: int, done: int = 0) -> Iterator[Chunk]:
    """Cut runs of exchanges into chunks, leaving out the exchanges already done.

    >>> [(c.first, c.stop, c.step) for c in chunks(iter([Segment(5, 2)]), 4, done=3)]
    [(3, 4, 6), (0, 1, 8)]
    """
    origin = step = 0
    for exchanges, block in segments:
        skipped = min(exchanges, max(0, done - origin))
        for low in range(skipped - skipped % length, exchanges, length):
            first, stop = max(0, skipped - low), min(length, exchanges - low)
            if first < stop:
                yield Chunk(origin + low, length, first, stop, block, step + (low + first) * block)
        origin += exchanges
        step += exchanges * block


@dataclass(frozen=True)
class Feeder:
    """Reads samples, draws noise and evaluates schedules for whole chunks."""

    algorithm: Algorithm
    stream: Stream
    sources: tuple[NoiseSource, ...]

    def constant(self) -> Any:
        """The part of the mixing weights that never changes."""
        topology = self.algorithm.topology
        if isinstance(topology, Federation):
            return ()
        return self.algorithm.mixing.prepare(topology, np.zeros(1, np.int64))[0]

    def inputs(self, chunk: Chunk, used_in: Sequence[str] = ("decide", "learn", "speak", "aggregate")) -> Inputs:
        """Everything the compiled loop needs for one chunk; rows outside first, ..., stop-1 are not read.

        Only draws for the functions in `used_in` are made: steps left over at the end decide and do nothing else.
        """
        ours = learners_draws(self.algorithm, used_in=used_in)
        theirs = server_draws(self.algorithm, used_in)
        return Inputs(
            self._block(chunk),
            {name: self._made(draw, chunk) for name, draw in ours.items()},
            {name: self._made(draw, chunk) for name, draw in theirs.items()},
            schedules(self.algorithm, chunk.origin, chunk.origin + chunk.length),
            self._varying(chunk),
            grids(ours),
            grids(theirs),
        )

    def messages(self, chunk: Chunk) -> NDArray[np.int64]:
        """Messages sent in each exchange of the chunk, every gossip step counted."""
        exchanges = chunk.origin + np.arange(chunk.first, chunk.stop, dtype=np.int64)
        topology = self.algorithm.topology
        if isinstance(topology, Federation):  # whoever takes part sends one message up; everybody gets one down
            return np.asarray(topology.learners + topology.present(exchanges).sum(axis=1))
        return topology.links(exchanges) * self.algorithm.mixing.steps

    def _block(self, chunk: Chunk) -> Block:
        rows = chunk.stop - chunk.first
        samples = self.stream.read(chunk.step, chunk.step + rows * chunk.block)
        self.algorithm.problem.check(samples, start=chunk.step)
        by_exchange = (leaf.reshape(rows, chunk.block, *leaf.shape[1:]) for leaf in samples)
        return Block(*(_pad(leaf, 0, chunk) for leaf in by_exchange))

    def _made(self, draw: Draw, chunk: Chunk) -> Any:
        """Draws for all seeds, or, on an accelerator, recipes from which the compiled program makes them."""
        makers = [source for source in self.sources if _in_program(source)]
        if len(makers) == len(self.sources):
            recipes = [each.recipe(*draw, chunk.origin, chunk.origin + chunk.stop) for each in makers]
            if None not in recipes:
                return jax.tree.map(lambda *leaves: np.stack(leaves), *recipes)
        low, high = chunk.origin + chunk.first, chunk.origin + chunk.stop
        each = [draw.made(source, low, high) for source in self.sources]
        stacked = each[0][None] if len(each) == 1 else np.stack(each)
        # A source never touches its arrays again, so the CPU may use them where they are.
        return jax.device_put(_pad(stacked, 2, chunk), may_alias=True)

    def _varying(self, chunk: Chunk) -> Any:
        topology = self.algorithm.topology
        exchanges = chunk.origin + np.arange(chunk.first, chunk.stop, dtype=np.int64)
        if isinstance(topology, Federation):
            return _pad(topology.present(exchanges), 0, chunk) if topology.participation < 1 else {}
        if topology.fixed:
            return {}
        arrays = self.algorithm.mixing.prepare(topology, exchanges)[1]
        return jax.tree.map(lambda leaf: _pad(leaf, 0, chunk), arrays)


def _in_program(source: NoiseSource) -> TypeGuard[FastNoise]:
    """Whether the compiled program draws by itself, as it does on accelerators."""
    return isinstance(source, FastNoise) and source.in_program


def _pad(values: NDArray[Any], axis: int, chunk: Chunk) -> NDArray[Any]:
    """Rows first, ..., stop-1 of an axis, put in their place in `length` rows."""
    if chunk.stop - chunk.first == chunk.length:
        return values
    shape = (*values.shape[:axis], chunk.length, *values.shape[axis + 1 :])
    padded = np.zeros(shape, values.dtype)
    padded[(slice(None),) * axis + (slice(chunk.first, chunk.stop),)] = values
    return padded


def chunk_length(algorithm: Algorithm, sources: Sequence[NoiseSource], block: int, batch: int | None = None) -> int:
    """Exchanges per chunk, a power of two: as many as keep the inputs of a chunk at a few megabytes.

    `batch`: samples a step where all learners see the same ones; else there is one for each.

    >>> from gossamer import algorithms, problems, topology
    >>> chunk_length(algorithms.d_ogd(problems.Logistic(112), topology.ring(16), step=1.0), [FastNoise(0)], block=1)
    1024
    """
    on_host = sum(not _in_program(source) for source in sources)
    draws = on_host * sum(spec.size for spec in algorithm.learner.noise.values())
    samples = (batch or algorithm.learners) * max(1, block) * math.prod(algorithm.problem.feature_shape)
    served = on_host * sum(spec.size for spec in algorithm.server.noise.values()) if algorithm.server else 0
    values = algorithm.learners * draws + served + samples + _changing_weights(algorithm)
    return 1 << (max(1, min(_LONGEST_CHUNK, _CHUNK_BYTES // (4 * values))).bit_length() - 1)


def batch_of(stream: Stream) -> int | None:
    """Samples a step of a stream that all learners share; None where they do not, or where it can be read only once.

    >>> from gossamer import streams
    >>> batch_of(streams.common([[1.0], [2.0], [3.0]], batch=3)), batch_of(streams.random_signs(2, 3, seed=0))
    (3, None)
    """
    return len(stream.read(0, 1).y[0]) if stream.shared and not isinstance(stream, LiveStream) else None


def _changing_weights(algorithm: Algorithm) -> int:
    """How many mixing weights change at every exchange."""
    if isinstance(algorithm.topology, Federation) or algorithm.topology.fixed:
        return 0
    arrays = algorithm.mixing.prepare(algorithm.topology, np.zeros(1, np.int64))[1]
    return sum(leaf.size for leaf in jax.tree.leaves(arrays))
