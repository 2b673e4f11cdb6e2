"""What many settings need for each chunk: samples are read once, and unit draws are made once for all of them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.core import Algorithm
from gossamer.core.drawing import FUNCTIONS, Draw, grids, learners_draws, schedules, server_draws
from gossamer.privacy import FastNoise, Scale
from gossamer.problems import Block
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.inputs import Drawn, Fed, Inputs, Scaled
from gossamer.simulation.plan import Chunk


def draws_of(algorithm: Algorithm) -> dict[str, Draw]:
    """All draws, by their names at the source."""
    return {draw.name: draw for draw in (*learners_draws(algorithm).values(), *server_draws(algorithm).values())}


def draws_units(feeder: Feeder) -> bool:
    """Whether equal sources make equal draws, whatever their scales."""
    return all(isinstance(source, FastNoise) for source in feeder.sources)


@dataclass(frozen=True)
class Feeders(Feeder):
    """The feeder of several settings: samples are common; schedules, scales and lattices have a leading axis."""

    each: tuple[Feeder, ...] = ()

    @classmethod
    def of(cls, each: Sequence[Feeder]) -> Self:
        """Of settings that are alike."""
        return cls(each[0].algorithm, each[0].stream, each[0].sources, each=tuple(each))

    def inputs(self, chunk: Chunk, used_in: Collection[str] = FUNCTIONS, every: int = 1) -> Inputs:
        """Everything that the programs of all settings need for one chunk."""
        ours = [grids(learners_draws(one.algorithm, used_in=used_in)) for one in self.each]
        theirs = [grids(server_draws(one.algorithm, used_in)) for one in self.each]
        known = [schedules(one.algorithm, chunk.origin, chunk.origin + chunk.length) for one in self.each]
        common = super().inputs(chunk, used_in, every)
        return common._replace(public=_stacked(known), grid=_stacked(ours), server_grid=_stacked(theirs))

    @staticmethod
    def axes(inputs: Inputs) -> Inputs:
        """Of every array, whether its leading axis is over settings."""
        mine, common = partial(everywhere, True), partial(everywhere, False)

        def of_noise(noise: Any) -> Any:
            if isinstance(noise, Scaled):
                return Scaled(False, True)
            if isinstance(noise, Drawn):
                return Drawn(replace(common(noise.recipes), scales=True), common(noise.first))
            return True

        return Inputs(
            common(inputs.block),
            {name: of_noise(noise) for name, noise in inputs.noise.items()},
            {name: of_noise(noise) for name, noise in inputs.server_noise.items()},
            mine(inputs.public),
            common(inputs.varying),
            common(inputs.rows),
            mine(inputs.grid),
            mine(inputs.server_grid),
        )

    def _samples(self, chunk: Chunk) -> Block | Fed:
        samples = super()._samples(chunk)
        if not isinstance(samples, Fed):
            rows = (np.asarray(leaf)[chunk.first : chunk.stop] for leaf in samples)
            read = Block(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in rows))
            for problem in {one.algorithm.problem for one in self.each} - {self.algorithm.problem}:
                problem.check(read, start=chunk.step)
        return samples

    def _made(self, draw: Draw, chunk: Chunk) -> Any:
        if not draws_units(self):
            return jnp.stack([one._made(draws_of(one.algorithm)[draw.name], chunk) for one in self.each])
        if not self.in_program:
            return Scaled(
                super()._made(draw._replace(scales=(Scale(1.0),) * len(draw.scales)), chunk), self._scales(draw)
            )
        made: Drawn = super()._made(draw, chunk)
        return made._replace(recipes=replace(made.recipes, scales=self._scales_by_seed(draw)))

    @cached_property
    def _kept(self) -> dict[str, Any]:
        return {}

    def _scales(self, draw: Draw) -> Any:
        """Axes (setting, learner), put on the device once."""
        if draw.name not in self._kept:
            scales = [draws_of(one.algorithm)[draw.name].scales for one in self.each]
            values = np.array([[scale.value for scale in each] for each in scales], np.float32)
            self._kept[draw.name] = jax.device_put(values)
        return self._kept[draw.name]

    def _scales_by_seed(self, draw: Draw) -> Any:
        """Axes (setting, seed, learner), as recipes have them; one for all learners where they are alike."""
        scales = np.asarray(self._scales(draw))
        alike = scales[:, :1] if (scales == scales[:, :1]).all() else scales
        shape = (len(scales), len(self.sources), alike.shape[1])
        return np.ascontiguousarray(np.broadcast_to(alike[:, None], shape))


def _stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def everywhere(value: bool, tree: Any) -> Any:
    """A tree of the same form with this value at every leaf."""
    return jax.tree.map(lambda _: value, tree)
