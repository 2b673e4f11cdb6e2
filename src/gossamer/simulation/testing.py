"""Samples held out: how good the decisions along a run are on data that no learner learns from."""

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError
from gossamer.problems import Block, Problem
from gossamer.simulation.program import Program
from gossamer.streams.base import as_records

Doubles = NDArray[np.float64]

_BATCH = 100  # rows evaluated at a time: what a network computes for them stays in the cache, and memory small


@dataclass(frozen=True)
class HeldOut:
    """Samples that decisions are tested on, kept on the device."""

    problem: Problem
    coordinates: tuple[int, ...] | None
    samples: Block

    @classmethod
    def of(cls, program: Program, test: Block) -> Self:
        """The samples of `test`, checked as those of a stream are."""
        if not isinstance(test, tuple) or len(test) != 2:
            raise ConfigurationError("test", type(test).__name__, "samples held out", "try test=Block(x, y)")
        x, y = as_records(*test)
        program.problem.check(Block(x, y))
        return cls(program.problem, program.coordinates, Block(jnp.array(x), jnp.array(y)))

    def fingerprint(self) -> str:
        """Tells samples apart: how many there are, and a hash of them all."""
        hashed = hashlib.sha256()
        for leaf in self.samples:
            hashed.update(f"{leaf.shape} {leaf.dtype}".encode() + np.asarray(leaf).tobytes())
        return f"{len(self.samples.y)} samples, sha256 {hashed.hexdigest()}"

    def evaluate(self, decisions: NDArray[np.float32]) -> dict[str, Doubles]:
        """Mean "loss" and, where there are classes, "accuracy" of decisions (seed, learner, coordinate).

        Equal decisions, such as those of a federation, are evaluated once.
        """
        if self.coordinates is not None:  # the one decision that the learners play together
            decisions = decisions[:, self.coordinates, np.arange(decisions.shape[2])][:, None]
        known: dict[bytes, dict[str, float]] = {}
        means = []
        for decision in decisions.reshape(-1, decisions.shape[2]):
            key = decision.tobytes()
            if key not in known:
                known[key] = self._means(decision)
            means.append(known[key])
        return {name: np.array([each[name] for each in means]).reshape(decisions.shape[:2]) for name in means[0]}

    def _means(self, decision: NDArray[np.float32]) -> dict[str, float]:
        rows = _by_row(self.problem, decision, self.samples, _BATCH)
        return {name: float(np.asarray(values).mean(dtype=np.float64)) for name, values in rows.items()}


@partial(jax.jit, static_argnames=("problem", "batch"))
def _by_row(problem: Problem, decision: jax.Array, samples: Block, batch: int) -> dict[str, jax.Array]:
    """The loss of every row and, where there are classes, whether it is classified correctly."""

    def one(row: Block) -> dict[str, jax.Array]:
        correct = problem.correct(decision, Block(row.x[None], row.y[None]))
        loss = {"loss": problem.loss(decision, row.x, row.y)}
        return loss if correct is None else loss | {"accuracy": correct[0]}

    rows: dict[str, jax.Array] = jax.lax.map(one, samples, batch_size=batch)
    return rows
