"""What a run adds up on the host, in double precision, a row for every `every` exchanges; and the `Run` of it."""

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import NDArray

from gossamer.core import Algorithm
from gossamer.privacy import Assumption, Guarantee, SecureNoise
from gossamer.simulation import engine
from gossamer.simulation.engine import Outputs
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.measuring import sample_of
from gossamer.simulation.observing import Figures
from gossamer.simulation.plan import Chunk
from gossamer.simulation.program import Program
from gossamer.simulation.run import Run

Doubles = NDArray[np.float64]


class Tally:
    """Sums of losses, correct predictions and disagreement over windows of exchanges, the transcript and the tests."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.rows = 0
        self.expected = 0  # rows that there will be: room for them is made once
        self._sums: dict[str, Doubles] = {}  # with room for more rows than there are
        self.transcript: dict[str, list[NDArray[Any]]] = {}
        self.tests: dict[str, list[Doubles]] = {}  # axes (row, seed, learner)

    def put(
        self, chunk: Chunk, figures: Figures, transcript: Any, *, samples: int, messages: NDArray[np.int64]
    ) -> None:
        """Put down what the exchanges of a chunk show.

        Args:
            chunk: which exchanges.
            figures: of all rows that the chunk is part of, the first from its beginning on: axes (row, seed, ...).
            transcript: axes (exchange, seed, ...).
            samples: that each decision is measured on in an exchange.
            messages: sent in each exchange.
        """
        window = chunk.exchanges // self.every
        first, edges = int(window[0]), np.flatnonzero(np.diff(window, prepend=-1))
        self.rows = max(self.rows, int(window[-1]) + 1)
        for name, values in figures._asdict().items():
            if values is not None:
                self._room(name, values)[first : self.rows] = values
        ones = np.ones(len(window))
        for name, counted in (("samples", samples), ("steps", chunk.block), ("messages", messages)):
            added = np.add.reduceat(counted * ones, edges)
            self._room(name, added)[first : self.rows] += added
        for path, leaf in jax.tree_util.tree_leaves_with_path(transcript):
            name = path[0].key + jax.tree_util.keystr(path[1:])  # "messages", or "messages.value", "messages.mass"
            self.transcript.setdefault(name, []).append(np.asarray(leaf))

    def _room(self, name: str, values: Doubles) -> Doubles:
        """The sums of this name, with room for all rows."""
        sums = self._sums.get(name, np.zeros((0, *values.shape[1:])))
        if len(sums) < self.rows:
            room = np.zeros((max(self.rows, 2 * len(sums), self.expected), *values.shape[1:]))
            room[: len(sums)] = sums
            sums = self._sums[name] = room
        return sums

    def add_test(self, scores: Mapping[str, Doubles]) -> None:
        """Add what the decisions at the end of the next row achieve on samples held out: axes (seed, learner)."""
        for name, values in scores.items():
            self.tests.setdefault(name, []).append(values[None])

    @property
    def tested(self) -> int:
        """How many rows have ended with a test."""
        return sum(len(part) for part in self.tests.get("loss", []))

    @property
    def sums(self) -> dict[str, Doubles]:
        """The sums of every row, by name."""
        return {name: values[: self.rows] for name, values in self._sums.items()}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything as named arrays, for a checkpoint."""
        kept = {f"transcript/{name}": np.concatenate(parts) for name, parts in self.transcript.items()}
        kept |= {f"tests/{name}": np.concatenate(parts) for name, parts in self.tests.items()}
        return {f"sums/{name}": values for name, values in self.sums.items()} | kept

    @classmethod
    def restore(cls, every: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """The tally that gave these arrays."""
        tally = cls(every)
        for name, values in arrays.items():
            kind, _, key = name.partition("/")
            if kind == "sums":
                tally._sums[key], tally.rows = values, len(values)
            elif kind == "transcript":
                tally.transcript[key] = [values]
            elif kind == "tests":
                tally.tests[key] = [values]
        return tally


def put_down(
    feeder: Feeder, program: Program, tally: Tally, chunk: Chunk, outputs: Outputs, messages: NDArray[np.int64]
) -> None:
    """Wait for the outputs of a chunk, and put them down."""
    transcript = jax.tree.map(lambda leaf: _part(feeder.spread.fetch(leaf), chunk), outputs.transcript)
    rows = feeder.spread.fetch(outputs.row)[: chunk.rows(tally.every)]
    samples = program.measured(chunk.block, feeder.width)
    tally.put(chunk, Figures.of(program, rows), transcript, samples=samples, messages=messages)


def _part(whole: NDArray[Any], chunk: Chunk) -> NDArray[Any]:
    """The exchanges of a chunk; a copy where there are fewer than rows, which would all be kept for them."""
    part = whole[chunk.first : chunk.stop]
    return part if len(part) == len(whole) else part.copy()


def report(
    feeder: Feeder,
    program: Program,
    tally: Tally,
    decisions: NDArray[np.float32],
    *,
    seed: int | list[int],
    debug: bool,
    begun: float,
) -> Run:
    """The run: with a list of seeds, a seed axis comes first in every array but `steps` and `test_steps`.

    `decisions`: axes (seed, learner, coordinate). `begun`: when it began, by `time.perf_counter`.
    """
    algorithm, sums = feeder.algorithm, tally.sums

    def shown(values: NDArray[Any]) -> NDArray[Any]:
        """Axes (row, seed, ...) as the run has them."""
        return values[:, 0] if isinstance(seed, int) else np.moveaxis(values, 0, 1)

    steps = np.cumsum(sums["steps"]).astype(np.int64)
    tests = {name: shown(np.concatenate(parts)) for name, parts in tally.tests.items()}
    rows = np.where(sums["samples"] > 0, sums["samples"], np.nan)[:, None, None]  # a row without samples has no loss
    messages = int(sums["messages"].sum())
    return Run(
        algorithm=algorithm.describe(),
        name=algorithm.name,
        guarantee=_promise(feeder, debug),
        measure=program.measure,
        steps=steps,
        losses=shown(sums["loss"] / rows),
        accuracy=shown(sums["correct"] / rows) if "correct" in sums else None,
        consensus=shown(sums["disagreement"]),
        decisions=decisions[0] if isinstance(seed, int) else decisions,
        messages=messages,
        bytes=round(messages * _message_bytes(algorithm, program)),
        seed=seed,
        transcript={name: shown(np.concatenate(parts)) for name, parts in tally.transcript.items()},
        test_steps=steps if tests else None,
        test_losses=tests.get("loss"),
        test_accuracy=tests.get("accuracy"),
        wall_time=time.perf_counter() - begun,
        measured=sample_of(program.learners, program.sampled).astype(np.int64) if program.sampled else None,
    )


def _promise(feeder: Feeder, debug: bool) -> Guarantee:
    """The guarantee of this run: of this stream, of this noise, of one seed, and of the program that ran."""
    stream = feeder.stream
    promise = feeder.algorithm.guarantee.for_stream(
        stream.occurrences, promises=stream.unenforced, public_labels=stream.public_labels
    )
    if promise.basis == "none":
        return promise
    if debug and promise.basis == "proven":
        promise = promise.after_check([], [Assumption("what ran, functions as written, is what was checked")], "")
    if not all(isinstance(source, SecureNoise) for source in feeder.sources):
        promise = promise.because("as if run with secure noise")
    return promise.because("each seed for itself") if len(feeder.sources) > 1 else promise


def _message_bytes(algorithm: Algorithm, program: Program) -> float:
    """The size of a message; in a federation the mean of one up and one down."""
    up, down = _message_sizes(program, tuple(algorithm.public))
    return (up + down) / 2 if algorithm.graph is None else up


@lru_cache(maxsize=1024)
def _message_sizes(program: Program, public: tuple[str, ...]) -> tuple[float, float]:
    """Bytes of a learner's message and of the server's; kept, since finding out means tracing the learner."""
    said, broadcast = jax.eval_shape(lambda: engine.first_messages(program, public))
    return _bytes(said) / program.learners, _bytes(broadcast)


def _bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
