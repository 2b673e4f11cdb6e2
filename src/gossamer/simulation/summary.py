"""From what was added up to the `Run` a user gets."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from gossamer.core import Algorithm, Federation
from gossamer.privacy import Guarantee
from gossamer.simulation import engine
from gossamer.simulation.engine import Program
from gossamer.simulation.run import Run
from gossamer.simulation.tally import Tally


def report(
    algorithm: Algorithm, guarantee: Guarantee, program: Program, tally: Tally, decisions: NDArray[np.float32]
) -> Run:
    """The run, with a seed axis first in every array but `steps` and `test_steps`."""
    sums = tally.sums
    steps = np.cumsum(sums["steps"]).astype(np.int64)
    tests = {name: np.moveaxis(np.concatenate(parts), 0, 1) for name, parts in tally.tests.items()}
    rows = np.where(sums["rows"] > 0, sums["rows"], np.nan)[:, None, None]  # a row without samples has no loss
    messages = int(sums["messages"].sum())
    return Run(
        algorithm=algorithm.describe(),
        name=algorithm.name,
        guarantee=guarantee,
        measure=program.measure,
        steps=steps,
        losses=np.moveaxis(sums["loss"] / rows, 0, 1),
        accuracy=np.moveaxis(sums["correct"] / rows, 0, 1) if "correct" in sums else None,
        consensus=np.moveaxis(sums["disagreement"] / sums["exchanges"][:, None], 0, 1),
        decisions=decisions,
        messages=messages,
        bytes=round(messages * _message_bytes(algorithm, program)),
        wall_time=0.0,
        transcript={name: np.moveaxis(np.concatenate(p), 0, 1) for name, p in tally.transcript.items()},
        test_steps=steps if tests else None,
        test_losses=tests.get("loss"),
        test_accuracy=tests.get("accuracy"),
    )


def _message_bytes(algorithm: Algorithm, program: Program) -> float:
    """The size of a message; in a federation the mean of one up and one down."""
    up, down = _message_sizes(program, tuple(algorithm.public))
    return (up + down) / 2 if isinstance(algorithm.topology, Federation) else up


@lru_cache(maxsize=1024)
def _message_sizes(program: Program, public: tuple[str, ...]) -> tuple[float, float]:
    """Bytes of a learner's message and of the server's; kept, since finding out means tracing the learner."""
    said, broadcast = jax.eval_shape(lambda: engine.first_messages(program, public))
    return _bytes(said) / program.learners, _bytes(broadcast)


def _bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def without_seed_axis(run: Run) -> Run:
    """The same run with the only seed's axis taken away."""
    seeded = ("losses", "accuracy", "consensus", "decisions", "test_losses", "test_accuracy")
    first = {name: values[0] for name in seeded if (values := getattr(run, name)) is not None}
    transcript = jax.tree.map(lambda leaf: leaf[0], run.transcript)
    return replace(run, **first, transcript=transcript)
