"""Draws on an accelerator: `python -m bench.gpu` prints what docs/benchmarks.md quotes about GPUs.

The same run twice on the same device: noise drawn on the host and copied, and noise made in the compiled step.
"""

from __future__ import annotations

import statistics
import time
from functools import partial

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from gossamer import Budget, FastNoise, Rate, algorithms, problems, simulate, streams, topology
from gossamer.core import Algorithm
from gossamer.streams import Stream

REPEATS = 3


def workload(learners: int, side: int, law: str) -> tuple[Algorithm, Stream]:
    """Private gradient descent on a ring with (side, side) matrices: little data, much noise."""
    budget = Budget(1.0, 1e-5 if law == "gaussian" else 0.0)
    problem = problems.Softmax(side, side)
    algorithm = algorithms.pd_ogd(problem, topology.ring(learners), budget=budget, clip=1.0, noise=law, step=Rate(0.1))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4 * learners, side)).astype(np.float32), rng.integers(0, side, 4 * learners)
    return algorithm, streams.from_arrays(x, y, learners, seed=0, passes=10_000)


def seconds(algorithm: Algorithm, stream: Stream, steps: int, compiled: bool) -> float:
    begun = time.perf_counter()
    noise = partial(FastNoise, compiled=compiled)
    run = simulate(algorithm, stream, steps, seed=0, noise=noise, measure="local", progress=False)
    assert np.isfinite(run.losses).all()
    return time.perf_counter() - begun


def main() -> None:
    device = jax.devices()[0].device_kind
    table = Table(title=f"Million noise values a second in a run on {device}, medians of {REPEATS} interleaved")
    for heading in ("learners", "dimensions", "law", "steps", "host draws", "in the compiled step", "ratio"):
        table.add_column(heading, justify="right")
    for learners, side, steps in ((16, 32, 4_000), (64, 100, 800), (1_000, 100, 50)):
        for law in ("laplace", "gaussian", "l2-laplace"):
            algorithm, stream = workload(learners, side, law)
            dim = algorithm.problem.dim
            values = learners * dim * steps / 1e6
            times: dict[bool, list[float]] = {False: [], True: []}
            for repeat in range(REPEATS + 1):
                for compiled, taken in times.items():
                    took = seconds(algorithm, stream, steps, compiled)
                    if repeat:  # the first compiles
                        taken.append(took)
            host, made = (statistics.median(times[compiled]) for compiled in (False, True))
            cells = [f"{learners:,}", f"{dim:,}", law, f"{steps:,}", f"{values / host:,.0f}", f"{values / made:,.0f}"]
            table.add_row(*cells, f"{host / made:.1f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
