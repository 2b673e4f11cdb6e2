"""`simulate_many`: run many settings at once."""

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError
from gossamer.privacy import FastNoise, NoiseSource
from gossamer.problems import Block
from gossamer.simulation.bar import progress_bar
from gossamer.simulation.checks import check_run, check_seeds
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.program import Measure, Program
from gossamer.simulation.run import Run
from gossamer.simulation.settings import Traced
from gossamer.simulation.simulate import simulate
from gossamer.simulation.sizes import usual_every
from gossamer.simulation.testing import HeldOut
from gossamer.simulation.together import ApartError, Setting, Together, batch_size, parted
from gossamer.streams import LiveStream, Stream


def simulate_many(
    algorithms: Sequence[Algorithm],
    stream: Stream,
    steps: int,
    *,
    seeds: Sequence[int],
    noise: Callable[[int], NoiseSource] = FastNoise,
    measure: Measure = "global",
    every: int | None = None,
    record: Sequence[str] = (),
    progress: bool = True,
    test: Block | None = None,
) -> list[Run]:
    """Run many algorithms over the same stream: those that differ in numbers only run in one compiled program.

    Such numbers are budgets, step sizes, clips and regularisation. Algorithms that differ otherwise (in their laws,
    blocks, networks or shapes) run one after the other. Nothing needs to be said about which do.

    Args:
        algorithms: made by functions of `gossamer.algorithms`.
        stream: the learners' samples, which every algorithm sees; a live stream is refused, as it is read only once.
        steps: samples per learner.
        seeds: of the noise: every algorithm runs with each of them.
        noise: makes the noise source from a seed, for each algorithm.
        measure: as for `simulate`; so are the options below.
        every: exchanges per row of a result.
        record: any of "decisions", "messages" and "broadcasts".
        progress: show a progress bar where the output is a terminal.
        test: samples held out.

    Returns:
        One run for each algorithm: that of `simulate` with the same seeds, up to the rounding of float32. Its
        `wall_time` is that of all that ran together.

    >>> from gossamer import Budget, algorithms, problems, simulate_many, streams, topology
    >>> ring, stream = topology.ring(4), streams.random_signs(4, 3, seed=1)
    >>> budgets = [Budget(0.5), Budget(1.0), Budget(2.0)]
    >>> many = [algorithms.pd_ogd(problems.Linear(3), ring, budget=each, clip=1.0, step=0.1) for each in budgets]
    >>> runs = simulate_many(many, stream, 200, seeds=[0, 1])
    >>> [round(run.guarantee.epsilon, 3) for run in runs], runs[0].losses.shape
    ([0.5, 1.0, 2.0], (2, 200, 4))
    """
    chosen = check_seeds(None, seeds)
    _check_many(algorithms, stream)
    for algorithm in algorithms:
        check_run(algorithm, stream, steps, measure, every, None, record)
    wanted = _Wanted(stream, steps, chosen, noise, measure, every, tuple(record), progress, test)
    known: dict[Hashable, Traced] = {}
    settings = [wanted.setting(algorithm, known) for algorithm in algorithms]
    runs: dict[Setting, Run] = {}
    for alike in parted(settings, lambda one: one.likeness(steps)):
        for part, found in _play(alike, wanted):
            runs |= zip(part, found, strict=True)
    return [runs[setting] for setting in settings]


class _Wanted(NamedTuple):
    """What was asked for, for every algorithm."""

    stream: Stream
    steps: int
    seeds: list[int]
    noise: Callable[[int], NoiseSource]
    measure: Measure
    every: int | None
    record: tuple[str, ...]
    progress: bool
    test: Block | None

    def setting(self, algorithm: Algorithm, known: dict[Hashable, Traced]) -> Setting:
        """An algorithm with sources of noise of its own; `known`: what was traced of all of them."""
        feeder = Feeder(algorithm, self.stream, tuple(self.noise(seed) for seed in self.seeds))
        program = Program.of(algorithm, self.stream.shared, self.measure, self.record)
        return Setting(feeder, program, None if self.test is None else HeldOut.of(program, self.test), known)

    def alone(self, setting: Setting) -> Run:
        """The run of one setting by itself."""
        return simulate(setting.algorithm, **self._asdict())

    def width(self, setting: Setting) -> int:
        """Exchanges per row."""
        exchanges = setting.algorithm.schedule.exchanges(self.steps)
        tested = self.test is not None
        return self.every or usual_every(setting.program, len(self.seeds), exchanges, tested=tested)


def _check_many(algorithms: Sequence[Algorithm], stream: Stream) -> None:
    """Refuse what are no algorithms, and streams that cannot be read again."""
    if not isinstance(algorithms, Sequence) or not algorithms:
        given = type(algorithms).__name__ if algorithms else "none"
        raise ConfigurationError("algorithms", given, "a list of at least one algorithm", "try [algorithm]")
    for algorithm in algorithms:
        if not isinstance(algorithm, Algorithm):
            hint = "functions of gossamer.algorithms make them"
            raise ConfigurationError("algorithms", type(algorithm).__name__, "algorithms only", hint)
    if isinstance(stream, LiveStream):
        hint = "simulate runs one algorithm on a live stream"
        raise ConfigurationError("stream", "a live stream", "one that can be read again", hint)


def _play(
    alike: list[Setting], wanted: _Wanted, length: int | None = None
) -> Iterator[tuple[list[Setting], list[Run]]]:
    """Settings and their runs: those of one form together, in batches that fit the memory."""
    size = min(len(alike), batch_size(alike[0], len(wanted.seeds), wanted.steps))
    if size == 1:
        for one in alike:
            yield [one], [wanted.alone(one)]
        return
    together = Together(alike, wanted.steps, wanted.width(alike[0]), length, size)
    try:
        together.compare()
        yield from _play_batches(together, size, wanted)
    except ApartError as apart:
        for part in apart.parts:
            yield from _play(part, wanted, together.length)


def _play_batches(together: Together, size: int, wanted: _Wanted) -> Iterator[tuple[list[Setting], list[Run]]]:
    settings, begun = together.settings, time.perf_counter()
    count = -(-len(settings) // size)
    for batch in (settings[i::count] for i in range(count)):  # of about equal sizes: fewer programs are compiled
        group = together if count == 1 else Together(batch, wanted.steps, together.every, together.length, size)
        name = f"{batch[0].algorithm.name}, {len(batch)} settings"
        exchanges = batch[0].algorithm.schedule.exchanges(wanted.steps)
        with progress_bar(wanted.progress, name, exchanges, 0) as advance:
            yield batch, group.run(wanted.seeds, begun, advance)
