"""One run with many canaries: places at which a coin decides between two records, and what an observer sees of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.auditing.bound import choose_guesses, guess, rounded
from gossamer.auditing.neighbours import changed_samples
from gossamer.auditing.views import SEES, Floats, View
from gossamer.core import Algorithm, Schedule
from gossamer.errors import ConfigurationError
from gossamer.privacy import NoiseSource, Observer
from gossamer.problems import Block
from gossamer.simulation import engine
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.plan import chunks
from gossamer.simulation.program import Program
from gossamer.streams import Stream
from gossamer.streams.base import generator

_LEAST = 16  # canaries; half of them choose how many to guess, the others are counted
_FAIR = 0.5
_PART_VALUES = 2**26  # numbers that a part of a run shows: a few hundred megabytes


class Canaries(NamedTuple):
    """Where two streams differ, in the order of the steps.

    Attributes:
        steps: of every canary.
        learners: whose sample it is (or its place in a common batch).
        exchanges: of the whole run.

    >>> from gossamer.auditing import samples
    >>> from gossamer import Every
    >>> one, other = (samples(sign * np.ones((6, 3, 1)), np.zeros((6, 3))) for sign in (1, -1))
    >>> Canaries.between(one, other, Every(1), 6).learners[:5]
    array([0, 1, 2, 0, 1])
    """

    steps: NDArray[np.intp]
    learners: NDArray[np.intp]
    exchanges: int

    @classmethod
    def between(cls, stream: Stream, neighbour: Stream, schedule: Schedule, steps: int) -> Canaries:
        """All samples that are used within so many steps, and in which the streams differ; refused where too few."""
        used = sum(segment.exchanges * segment.block for segment in schedule.segments(steps))
        where, whose = np.nonzero(changed_samples(stream, neighbour, used))
        found = cls(where, whose, schedule.exchanges(steps))
        if len(found.steps) < _LEAST:
            given, hint = f"{len(found.steps):,} changed samples", "every one of them is a canary"
            raise ConfigurationError("neighbour", given, f"at least {_LEAST} for an audit in one run", hint)
        return found

    @property
    def whose(self) -> tuple[int, ...]:
        """The learners that have any."""
        return tuple(np.unique(self.learners).tolist())

    def toss(self, stream: Stream, neighbour: Stream, seed: int) -> tuple[Tossed, NDArray[np.bool_]]:
        """A fair coin for each: the stream that they give, and the coins; heads is the record of `stream`."""
        coins = generator(seed, "coins").random(len(self.steps)) < _FAIR
        return Tossed(stream, neighbour, self, coins), coins


class Part(NamedTuple):
    """Some exchanges of one run, one after the other.

    Attributes:
        exchange: the number of the first, from 0.
        step: its first step.
        block: steps between two exchanges.
        view: what is seen of them; arrays have no axis of runs here: (exchange, learner, ...).
    """

    exchange: int
    step: int
    block: int
    view: View


Scores = Callable[[Canaries, Iterator[Part]], NDArray[Any]]
"""A score for every canary of one run: positive where its record looks like the one of `stream`, far from 0 if sure."""


class Tossed(Stream):
    """A stream some of whose samples are those of another.

    >>> from gossamer.auditing import samples
    >>> one, other = (samples(sign * np.ones((1, 2, 1)), np.zeros((1, 2))) for sign in (1, -1))
    >>> coins = np.array([True, False])
    >>> Tossed(one, other, Canaries(np.array([0, 0]), np.array([0, 1]), 1), coins).read(0, 1).x.ravel()
    array([ 1., -1.], dtype=float32)
    """

    def __init__(self, stream: Stream, neighbour: Stream, canaries: Canaries, coins: NDArray[np.bool_]) -> None:
        self._stream, self._neighbour = stream, neighbour
        self._steps, self._whose = canaries.steps[~coins], canaries.learners[~coins]
        self.learners, self.length, self.shared = stream.learners, stream.length, stream.shared
        self.features, self.occurrences = stream.features, stream.occurrences
        self.description = f"{stream.description}, with {len(coins):,} canaries"

    def _read(self, start: int, stop: int) -> Block:
        ours, theirs = self._stream.read(start, stop), self._neighbour.read(start, stop)
        first, last = np.searchsorted(self._steps, (start, stop))
        places = self._steps[first:last] - start, self._whose[first:last]
        mixed = Block(*(np.array(leaf) for leaf in ours))
        for leaf, other in zip(mixed, theirs, strict=True):
            leaf[places] = other[places]
        return mixed


def transcript(
    algorithm: Algorithm, stream: Stream, steps: int, observer: Observer, source: NoiseSource
) -> Iterator[Part]:
    """Run once, and show what an observer sees, part by part: only one part is in memory."""
    seen = tuple(sorted(SEES[observer] - (set() if algorithm.server else {"broadcasts"})))
    program = Program.of(algorithm, stream.shared, "global" if stream.shared else "local", seen)
    feeder, worlds = Feeder(algorithm, stream, (source,)), engine.start_many(program, 1)
    constant = feeder.constant
    drawn = sum(spec.size for spec in algorithm.learner.noise.values())
    length = max(1, _PART_VALUES // (algorithm.learners * (drawn + len(seen) * algorithm.problem.dim)))
    for chunk in chunks(algorithm.schedule.segments(steps), min(length, algorithm.schedule.exchanges(steps))):
        worlds, outputs = engine.run_chunk(program, constant, worlds, feeder.inputs(chunk), chunk.first, chunk.stop)
        shown = {name: np.asarray(leaf)[chunk.first : chunk.stop, 0] for name, leaf in outputs.transcript.items()}
        yield Part(chunk.start, chunk.step, chunk.block, View(**shown))


class Guesses(NamedTuple):
    """How many canaries were counted, how many of their coins were guessed, and how many of those right."""

    counted: int
    guessed: int
    right: int


def guess_coins(given: NDArray[Any], coins: NDArray[np.bool_], delta: float, confidence: float) -> Guesses:
    """Guess coins from scores: every second canary serves to choose how many to guess, and the others are counted.

    Given the coins that serve to choose, the run is as private in all others.

    >>> coins = np.arange(100) % 3 == 0
    >>> guess_coins(coins - 0.5, coins, delta=0.0, confidence=0.95)
    Guesses(counted=50, guessed=50, right=50)
    """
    if np.shape(given) != coins.shape or np.isnan(given).any():
        raise ConfigurationError("statistic", np.shape(given), f"{coins.shape}: one number, not NaN, for every canary")
    scores: Floats = rounded(np.asarray(given))
    share = choose_guesses(scores[::2], coins[::2], delta, confidence)
    return Guesses(len(coins) // 2, *guess(scores[1::2], coins[1::2], share))
