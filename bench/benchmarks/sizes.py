"""Private gossip at any size: `pd_ogd` on a ring by `simulate`, as a NumPy loop and as the prototype.

Logistic losses, Laplace noise for every coordinate, a sample of its own for each learner and round, losses measured
locally. Needs JAX, NumPy, SciPy and NetworkX only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench import loops
from bench.benchmarks import prototype
from bench.tools import seconds
from gossamer import Budget, Rate, algorithms, problems, simulate, streams, topology
from gossamer.core import Algorithm
from gossamer.streams import Stream

STEP, CLIP = 0.1, 1.0
RECORDS = 400_000
"""So many in all where learners are few; with many learners at least two for each."""

Play = Callable[[int], object]
"""Play so many rounds."""


@dataclass(frozen=True)
class Ring:
    """So many learners in so many dimensions, and their records."""

    learners: int
    dim: int

    @property
    def rows(self) -> int:
        """Records of a learner."""
        return max(2, min(64, RECORDS // self.learners))

    def records(self) -> tuple[np.ndarray, np.ndarray]:
        """Features of norm about 1, and labels."""
        rng = np.random.default_rng(1)
        x = rng.standard_normal((self.learners * self.rows, self.dim), dtype=np.float32)
        x *= np.float32(1 / np.sqrt(self.dim))
        return x, (x[:, 0] > 0).astype(np.int32)

    def gossamer(self) -> Play:
        """`simulate`."""
        problem, ring = problems.Logistic(self.dim), topology.ring(self.learners)
        algorithm = algorithms.pd_ogd(problem, ring, budget=Budget(1.0), clip=CLIP, step=Rate(STEP))
        return simulated(algorithm, self)

    def numpy(self) -> Play:
        """The loop."""
        x, y = self.records()
        x, y = x.reshape(self.learners, self.rows, self.dim), y.reshape(self.learners, self.rows).astype(np.float32)
        return lambda rounds: loops.pd_ogd(x, y, rounds, STEP, CLIP, self.scale, np.random.default_rng(0))

    def prototype(self) -> Play:
        """Plain JAX."""
        x, y = self.records()
        on_device = jnp.asarray(x), jnp.asarray(y, jnp.float32)
        return lambda rounds: jax.block_until_ready(
            prototype.gossip(*on_device, rounds, self.rows, STEP, CLIP, self.scale)
        )

    @property
    def scale(self) -> float:
        """Of the Laplace noise: 2 G sqrt(d) / epsilon."""
        return 2 * CLIP * math.sqrt(self.dim)


def simulated(algorithm: Algorithm, ring: Ring, steps: int = 1) -> Play:
    """`simulate` on the records of a ring; a round has so many steps. The stream is made once for each length."""
    x, y = ring.records()
    dealt: dict[int, Stream] = {}

    def play(rounds: int) -> object:
        passes = math.ceil(rounds * steps / ring.rows)
        if passes not in dealt:
            dealt.clear()
            dealt[passes] = streams.from_arrays(x, y, ring.learners, seed=0, passes=passes)
        return simulate(algorithm, dealt[passes], rounds * steps, seed=0, measure="local", progress=False)

    return play


def timed(play: Play, *, target: float, repeats: int, least: int = 2, most: int = 2**24) -> dict[str, Any]:
    """Rounds that take about `target` seconds beyond what a call costs anyway, and the seconds of every repeat.

    Two lengths are timed first, each after a call that compiles; compiling is not counted.
    """

    def warm(rounds: int) -> float:
        play(rounds)
        return seconds(lambda: play(rounds))

    short, taken = least, warm(least)
    longer = least * (8 if taken < target / 2 else 2)
    while (more := warm(longer) - taken) < target / 8 and longer < most:
        longer = min(most, 16 * longer)
    rate = (longer - short) / max(more, 1e-6)
    rounds = int(min(most, max(least, 2 ** round(math.log2(max(1.0, rate * target))))))
    if rounds not in (short, longer):
        play(rounds)
    return {"rounds": rounds, "seconds": [seconds(lambda: play(rounds)) for _ in range(repeats)]}
