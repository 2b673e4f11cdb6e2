"""The host's side of a run: what the compiled loop needs for each chunk."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from gossamer.core import Algorithm
from gossamer.core.drawing import FUNCTIONS, Draw, grids, learners_draws, schedules, server_draws
from gossamer.privacy import NoiseSource
from gossamer.problems import Block
from gossamer.simulation.engine import Inputs
from gossamer.simulation.plan import Chunk, in_program
from gossamer.streams import Stream


@dataclass(frozen=True)
class Feeder:
    """Reads samples, draws noise and evaluates schedules for whole chunks."""

    algorithm: Algorithm
    stream: Stream
    sources: tuple[NoiseSource, ...]

    def constant(self) -> Any:
        """The part of the mixing weights that never changes."""
        return self.algorithm.network(np.zeros(1, np.int64))[0]

    def inputs(self, chunk: Chunk, used_in: Collection[str] = FUNCTIONS) -> Inputs:
        """Everything the compiled loop needs for one chunk; rows outside first, ..., stop-1 are not read.

        Only draws for the functions in `used_in` are made: steps left over at the end decide and do nothing else.
        """
        ours, theirs = learners_draws(self.algorithm, used_in=used_in), server_draws(self.algorithm, used_in)
        return Inputs(
            self._block(chunk),
            {name: self._made(draw, chunk) for name, draw in ours.items()},
            {name: self._made(draw, chunk) for name, draw in theirs.items()},
            schedules(self.algorithm, chunk.origin, chunk.origin + chunk.length),
            self._varying(chunk),
            grids(ours),
            grids(theirs),
        )

    def _block(self, chunk: Chunk) -> Block:
        rows = chunk.stop - chunk.first
        samples = self.stream.read(chunk.step, chunk.step + rows * chunk.block)
        self.algorithm.problem.check(samples, start=chunk.step)
        by_exchange = (leaf.reshape(rows, chunk.block, *leaf.shape[1:]) for leaf in samples)
        return Block(*(_pad(leaf, 0, chunk) for leaf in by_exchange))

    def _made(self, draw: Draw, chunk: Chunk) -> Any:
        """Draws for all seeds, or, on an accelerator, recipes from which the compiled program makes them."""
        makers = [source for source in self.sources if in_program(source)]
        if len(makers) == len(self.sources):
            recipes = [each.recipe(*draw, chunk.origin, chunk.end) for each in makers]
            if None not in recipes:
                return jax.tree.map(lambda *leaves: np.stack(leaves), *recipes)
        each = [draw.made(source, chunk.start, chunk.end) for source in self.sources]
        stacked = each[0][None] if len(each) == 1 else np.stack(each)
        # A source never touches its arrays again, so the CPU may use them where they are.
        return jax.device_put(_pad(stacked, 2, chunk), may_alias=True)

    def _varying(self, chunk: Chunk) -> Any:
        if self.algorithm.topology.fixed:
            return {}
        return jax.tree.map(lambda leaf: _pad(leaf, 0, chunk), self.algorithm.network(chunk.exchanges)[1])


def _pad(values: NDArray[Any], axis: int, chunk: Chunk) -> NDArray[Any]:
    """Rows first, ..., stop-1 of an axis, put in their place in `length` rows."""
    if chunk.stop - chunk.first == chunk.length:
        return values
    shape = (*values.shape[:axis], chunk.length, *values.shape[axis + 1 :])
    padded = np.zeros(shape, values.dtype)
    padded[(slice(None),) * axis + (slice(chunk.first, chunk.stop),)] = values
    return padded
