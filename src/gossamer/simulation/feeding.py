"""The host's side of a run: what the compiled loop needs for each chunk."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from gossamer.core import Algorithm
from gossamer.core.drawing import FUNCTIONS, Draw, grids, learners_draws, schedules, server_draws
from gossamer.privacy import FastNoise, NoiseSource
from gossamer.privacy.compiled import Recipe
from gossamer.privacy.words import Time
from gossamer.problems import Block
from gossamer.simulation.inputs import Drawn, Fed, Inputs, Rows
from gossamer.simulation.plan import Chunk, batch_of, program_draws, program_reads
from gossamer.simulation.spread import ALONE, Spread
from gossamer.streams import Feed, Stream
from gossamer.streams.base import FEED_STEPS


@dataclass(frozen=True)
class Feeder:
    """Reads samples, draws noise and evaluates schedules for whole chunks, or lets the program do so by itself."""

    algorithm: Algorithm
    stream: Stream
    sources: tuple[NoiseSource, ...]
    spread: Spread = ALONE

    @cached_property
    def constant(self) -> Any:
        """The part of the mixing weights that never changes, put on the device once."""
        return self.spread.put_constant(self.algorithm.network(np.zeros(1, np.int64))[0])

    @cached_property
    def in_program(self) -> bool:
        """Whether the program draws noise."""
        return program_draws(self.algorithm, self.sources)

    @property
    def fed(self) -> bool:
        """Whether the program reads samples."""
        return self.records is not None

    @cached_property
    def records(self) -> Feed | None:
        """What the program reads samples from, before it is put on the device; None where the host reads."""
        feed = self.stream.feed()
        return feed if feed is not None and program_reads(feed, self.in_program) else None

    @cached_property
    def width(self) -> int:
        """Samples a step."""
        return batch_of(self.stream) or self.algorithm.learners

    def inputs(self, chunk: Chunk, used_in: Collection[str] = FUNCTIONS, every: int = 1) -> Inputs:
        """Everything the compiled loop needs for one chunk; rows outside first, ..., stop-1 are not read.

        Only draws for the functions in `used_in` are made: steps left over at the end decide and do nothing else.
        `every`: exchanges for each row of the result.
        """
        ours, theirs = learners_draws(self.algorithm, used_in=used_in), server_draws(self.algorithm, used_in)
        return Inputs(
            self._samples(chunk),
            {name: self._made(draw, chunk) for name, draw in ours.items()},
            {name: self._made(draw, chunk) for name, draw in theirs.items()},
            schedules(self.algorithm, chunk.origin, chunk.origin + chunk.length),
            self._varying(chunk),
            rows_of(chunk, every),
            self._once(("grids", *ours), lambda: grids(ours), 0),
            self._once(("server grids", *theirs), lambda: grids(theirs)),
        )

    def _samples(self, chunk: Chunk) -> Block | Fed:
        if self._feed is not None and chunk.step + (chunk.stop - chunk.first) * chunk.block <= FEED_STEPS:
            # Rows before the chunk's first are never read: that their steps may be below 0 does no harm.
            return Fed(self._feed, np.uint32((chunk.step - chunk.first * chunk.block) % 2**32), chunk.block)
        rows = chunk.stop - chunk.first
        samples = self.stream.read(chunk.step, chunk.step + rows * chunk.block)
        self.algorithm.problem.check(samples, start=chunk.step)
        by_exchange = (leaf.reshape(rows, chunk.block, *leaf.shape[1:]) for leaf in samples)
        return self.spread.put_samples(Block(*(_pad(leaf, 0, chunk) for leaf in by_exchange)), self.stream.shared)

    @cached_property
    def _feed(self) -> Feed | None:
        """The stream as programs read it, on the device; None where the host reads."""
        if not self.fed:
            return None
        return self.stream.on_device(self.algorithm.problem, self.spread.put_feed(self.stream.shared))

    def _made(self, draw: Draw, chunk: Chunk) -> Any:
        """Draws for all seeds, or recipes from which the compiled program makes them."""
        if self.in_program:
            return Drawn(self._once(("recipes", draw.name), lambda: self._recipes(draw), 1), Time.of(chunk.origin))
        each = [draw.made(source, chunk.start, chunk.end) for source in self.sources]
        stacked = each[0][None] if len(each) == 1 else np.stack(each)
        # A source never touches its arrays again, so the CPU may use them where they are.
        return self.spread.put(_pad(stacked, 2, chunk), 1)

    @cached_property
    def _known(self) -> dict[tuple[str, ...], Any]:
        return {}

    def _once(self, name: tuple[str, ...], make: Callable[[], Any], axis: int | None = None) -> Any:
        """The same for every chunk: made once, and put on the device; `axis`: that of the learners."""
        if name not in self._known:
            self._known[name] = self.spread.put(make(), axis)
        return self._known[name]

    def _recipes(self, draw: Draw) -> Recipe:
        recipes = [source.recipe(*draw) for source in self.sources if isinstance(source, FastNoise)]
        stacked: Recipe = jax.tree.map(lambda *leaves: np.stack(leaves), *recipes)
        return stacked

    def _varying(self, chunk: Chunk) -> Any:
        if self.algorithm.topology.fixed:
            return {}
        varying = self.algorithm.network(chunk.exchanges)[1]
        return self.spread.put_varying(jax.tree.map(lambda leaf: _pad(leaf, 0, chunk), varying))


def rows_of(chunk: Chunk, every: int) -> Rows:
    """Which row of the chunk's result each exchange belongs to, and where rows begin.

    >>> rows_of(Chunk(4, 4, 0, 4, 1, 4), 3)[:2]
    (array([0, 0, 1, 1], dtype=int32), array([False, False,  True, False]))
    """
    exchanges = np.arange(chunk.origin, chunk.origin + chunk.length, dtype=np.int64)
    numbers = np.maximum(exchanges // every - chunk.start // every, 0)
    return Rows(numbers.astype(np.int32), exchanges % every == 0, exchanges.astype(np.uint32))


def _pad(values: NDArray[Any], axis: int, chunk: Chunk) -> NDArray[Any]:
    """Rows first, ..., stop-1 of an axis, put in their place in `length` rows."""
    if chunk.stop - chunk.first == chunk.length:
        return values
    shape = (*values.shape[:axis], chunk.length, *values.shape[axis + 1 :])
    padded = np.zeros(shape, values.dtype)
    padded[(slice(None),) * axis + (slice(chunk.first, chunk.stop),)] = values
    return padded
