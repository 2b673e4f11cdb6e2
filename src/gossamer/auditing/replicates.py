"""Many runs at once: the same compiled loop as in a simulation, with its axis of seeds as the axis of replicates."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from jax import lax
from numpy.typing import NDArray

from gossamer.auditing.bound import Side
from gossamer.auditing.views import SEES, View
from gossamer.core import Algorithm
from gossamer.core.drawing import Draw, learners_draws, server_draws
from gossamer.mechanisms import Calibrated, Mechanism
from gossamer.privacy import NoiseSource, NoiseSpec, Observer
from gossamer.simulation import engine
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.inputs import Inputs
from gossamer.simulation.plan import Chunk, chunks
from gossamer.simulation.program import Program
from gossamer.streams import Stream

_BATCH_VALUES = 2**22  # float32 numbers that a batch of replicates draws and shows: a few tens of megabytes


class Batches(NamedTuple):
    """How replicates are cut into batches of one size, so that memory stays small and nothing compiles again.

    >>> Batches.of(runs=10, values=2**20)
    Batches(size=4, number=3)
    """

    size: int
    number: int

    @classmethod
    def of(cls, runs: int, values: int) -> Self:
        """Batches for so many runs, each with so many numbers."""
        number = math.ceil(runs / max(1, _BATCH_VALUES // values))
        return cls(math.ceil(runs / number), number)


class Silence:
    """A source of nothing, for inputs whose draws come from elsewhere."""

    def draw(self, name: str, spec: NoiseSpec, scales: Any, start: int, stop: int) -> NDArray[np.float32]:
        """Zeros."""
        return np.zeros((len(scales), stop - start, *spec.shape), np.float32)


class AlgorithmRunner:
    """Runs an algorithm on either of two streams, and shows what an observer sees.

    Data, schedules and lattices are those of a simulation. The draws of all replicates come from one source, as if they
    were so many more exchanges, under a name that no other batch and not the other stream has.
    """

    def __init__(
        self, algorithm: Algorithm, streams: Mapping[Side, Stream], steps: int, observer: Observer, source: NoiseSource
    ) -> None:
        self.algorithm, self.source = algorithm, source
        self.seen = tuple(sorted(SEES[observer] - (set() if algorithm.server else {"broadcasts"})))
        self.plan = list(chunks(algorithm.schedule.segments(steps)))  # audits are short: batches make up for it
        shared = streams["stream"].shared
        self.program = Program.of(algorithm, shared, "global" if shared else "local", self.seen)
        feeders = {side: Feeder(algorithm, stream, (Silence(),)) for side, stream in streams.items()}
        self.constant = feeders["stream"].constant
        self.inputs = {side: [feeder.inputs(chunk) for chunk in self.plan] for side, feeder in feeders.items()}

    @property
    def values(self) -> int:
        """About how many numbers one replicate draws and shows."""
        exchanges = sum(chunk.length for chunk in self.plan)
        drawn = sum(spec.size for spec in self.algorithm.learner.noise.values())
        return exchanges * self.algorithm.learners * (drawn + len(self.seen) * self.algorithm.problem.dim)

    def __call__(self, side: Side, number: int, size: int) -> View:
        """What the observer sees of batch `number`: `size` replicates with noise of their own."""
        worlds = engine.start_many(self.program, size)
        shown = []
        for chunk, data in zip(self.plan, self.inputs[side], strict=True):
            inputs = self._with_draws(data, f"{side}/{number}/", chunk, size)
            worlds, outputs = engine.run_chunk(self.program, self.constant, worlds, inputs, 0, chunk.length)
            shown.append(outputs.transcript)
        joined = jax.tree.map(lambda *parts: np.concatenate([np.asarray(part) for part in parts]), *shown)
        return View(**jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), joined))

    def _with_draws(self, inputs: Inputs, prefix: str, chunk: Chunk, size: int) -> Inputs:
        ours, theirs = learners_draws(self.algorithm), server_draws(self.algorithm)
        span = chunk.origin, chunk.origin + chunk.length
        return inputs._replace(
            noise=draws(self.source, prefix, ours, size, *span),
            server_noise=draws(self.source, prefix, theirs, size, *span),
        )


class ReleaseRunner:
    """Runs one mechanism alone over either of two sequences of values, and shows what it releases.

    >>> from gossamer.mechanisms import Independent
    >>> from gossamer.privacy import FastNoise
    >>> noisy, inputs = Independent((1,)).at_scale(noise=2.0), {"stream": [[1.0]], "neighbour": [[-1.0]]}
    >>> ReleaseRunner(noisy, inputs, FastNoise(0))("stream", number=0, size=50).shape
    (50, 1, 1)
    """

    def __init__(self, release: Calibrated[Mechanism], values: Mapping[Side, Any], source: NoiseSource) -> None:
        self.release, self.source = release, source
        self.inputs = {side: np.asarray(each, np.float32) for side, each in values.items()}
        self.grid = {name: np.float32(each[0].grid) for name, each in release.scales.items() if each[0].grid}

    @property
    def values(self) -> int:
        """About how many numbers one replicate draws and shows."""
        sizes = [math.prod(shape) for _, shape in self.release.mechanism.laws().values()]
        return len(self.inputs["stream"]) * (sum(sizes) + math.prod(self.release.mechanism.shape))

    def __call__(self, side: Side, number: int, size: int) -> NDArray[Any]:
        """What batch `number` releases: axes (run, position, ...)."""
        mechanism, values = self.release.mechanism, self.inputs[side]
        specs = {n: Draw(n, spec, self.release.scales[n][:1]) for n, spec in mechanism.noise(used_in="speak").items()}
        noise = draws(self.source, f"{side}/{number}/", specs, size, 0, len(values))
        return np.asarray(released(mechanism, values, {name: draw[:, 0] for name, draw in noise.items()}, self.grid))


@partial(jax.jit, static_argnames="mechanism")
def released(mechanism: Mechanism, values: Any, noise: Mapping[str, Any], grid: Mapping[str, Any]) -> jax.Array:
    """One value after the other released, for every run: draws have axes (run, position, ...), and so has the result.

    >>> from gossamer.mechanisms import Independent
    >>> noise, no_lattice = {"noise": np.ones((3, 2, 1), np.float32)}, {}
    >>> released(Independent((1,)), np.zeros((2, 1), np.float32), noise, no_lattice).shape
    (3, 2, 1)
    """

    def one_run(noise: Mapping[str, Any]) -> jax.Array:
        def one(state: Any, now: tuple[Any, Mapping[str, Any]]) -> tuple[Any, jax.Array]:
            shown, after = mechanism.release(state, now[0], now[1], grid)
            return after, shown

        return lax.scan(one, mechanism.init(), (values, noise))[1]

    return jax.vmap(one_run)(noise)


def draws(
    source: NoiseSource, prefix: str, wanted: Mapping[str, Draw], size: int, start: int, stop: int
) -> dict[str, NDArray[np.float32]]:
    """The draws of `size` replicates by name, axes (replicate, learner, exchange, ...), from one call of the source.

    Replicates follow one another on the source's axis of exchanges, where all draws are independent.

    >>> from gossamer.privacy import FastNoise, Scale
    >>> wanted = {"noise": Draw("noise", NoiseSpec("laplace", (2,), used_in="speak"), (Scale(1.0), Scale(3.0)))}
    >>> draws(FastNoise(0), "stream/0/", wanted, size=5, start=0, stop=4)["noise"].shape
    (5, 2, 4, 2)
    """
    made = {}
    for name, draw in wanted.items():
        drawn = draw._replace(name=prefix + draw.name).made(source, size * start, size * stop)
        made[name] = drawn.reshape(len(draw.scales), size, stop - start, *draw.spec.shape).swapaxes(0, 1)
    return made
