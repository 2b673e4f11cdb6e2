"""From what was added up to the `Run` a user gets."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from gossamer.core import Algorithm
from gossamer.privacy import Assumption, Guarantee, SecureNoise
from gossamer.simulation import engine
from gossamer.simulation.engine import Program
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.run import Run
from gossamer.simulation.tally import Tally


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
    rows = np.where(sums["rows"] > 0, sums["rows"], np.nan)[:, None, None]  # a row without samples has no loss
    messages = int(sums["messages"].sum())
    return Run(
        algorithm=algorithm.describe(),
        name=algorithm.name,
        guarantee=_promise(feeder, debug),
        measure=program.measure,
        steps=steps,
        losses=shown(sums["loss"] / rows),
        accuracy=shown(sums["correct"] / rows) if "correct" in sums else None,
        consensus=shown(sums["disagreement"] / sums["exchanges"][:, None]),
        decisions=decisions[0] if isinstance(seed, int) else decisions,
        messages=messages,
        bytes=round(messages * _message_bytes(algorithm, program)),
        seed=seed,
        transcript={name: shown(np.concatenate(parts)) for name, parts in tally.transcript.items()},
        test_steps=steps if tests else None,
        test_losses=tests.get("loss"),
        test_accuracy=tests.get("accuracy"),
        wall_time=time.perf_counter() - begun,
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
