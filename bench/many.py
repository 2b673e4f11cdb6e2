"""Many settings in one program: `python -m bench.many [steps]`.

Four algorithms with five budgets and five seeds each, 16 learners, d = 100: `simulate_many`, then `simulate` for one
setting after the other. Both begin without any compiled program, in this order, and making the algorithms is counted
by itself. Another budget does not make `simulate` compile again. Another l2 does: the last row, not in the sum.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from bench.tools import print_table
from gossamer import Algorithm, Budget, algorithms, problems, sets, simulate, simulate_many, streams, topology
from gossamer.streams import Stream

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SEEDS = (0, 1, 2, 3, 4)
LEARNERS, DIM = 16, 100
ALGORITHMS = ("pd_ogd", "pd_ftgl", "pd_ocg", "noisy_ogd")


def main(steps: int = 10_000) -> None:
    stream, rows, total = records(steps), [], np.zeros(3)
    for name in ALGORITHMS:
        times, off = compare(partial(settings, name, steps), stream, steps)
        total += times
        rows.append([name, *_row(*times), f"{off:.0e}"])
    rows.append(["all", *_row(*total), ""])
    times, off = compare(partial(five_l2, steps), stream, steps)
    rows.append(["pd_ogd, 5 l2", *_row(*times), f"{off:.0e}"])
    title = f"{len(EPSILONS)} budgets x {len(SEEDS)} seeds, {steps:,} steps, {LEARNERS} learners, d = {DIM}"
    headings = ["seconds", "making", "simulate_many", "simulate", "ratio", "losses differ by"]
    print_table(f"{title}, {jax.devices()[0].device_kind}", headings, rows)


def records(steps: int) -> Stream:
    """1,000 of each learner, as often as so many steps need."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(LEARNERS * 1000, DIM)) / np.sqrt(DIM)
    y = (x @ rng.normal(size=DIM) > 0).astype(int)
    return streams.from_arrays(x, y, learners=LEARNERS, seed=0, passes=-(-steps // 1000))


def together(name: str, stream: Stream, steps: int) -> float:
    """Seconds of all settings of an algorithm at once; making and compiling are counted."""
    begun = time.perf_counter()
    simulate_many(settings(name, steps), stream, steps, seeds=SEEDS, measure="local", progress=False)
    return time.perf_counter() - begun


def measure(steps: int) -> dict[str, Any]:
    """Seconds of every algorithm with all its settings, and how many these are; compiling is counted."""
    stream = records(steps)
    taken = {name: together(name, stream, steps) for name in ALGORITHMS}
    sizes = {"budgets": len(EPSILONS), "seeds": len(SEEDS), "learners": LEARNERS, "dim": DIM}
    return {"steps": steps, "runs": sizes["budgets"] * sizes["seeds"], "seconds": taken} | sizes


def compare(make: Callable[[], list[Algorithm]], stream: Stream, steps: int) -> tuple[tuple[float, ...], float]:
    """Seconds for making the algorithms, running all at once, and one by one; and how far losses differ."""
    options: dict = {"seeds": SEEDS, "measure": "local", "progress": False}
    begun = time.perf_counter()
    many = make()
    jax.clear_caches()
    made = time.perf_counter()
    together = simulate_many(many, stream, steps, **options)
    jax.clear_caches()
    half = time.perf_counter()
    apart = [simulate(one, stream, steps, **options) for one in many]
    ended = time.perf_counter()
    off = max(_off(one.losses, two.losses) for one, two in zip(together, apart, strict=True))
    return (made - begun, half - made, ended - half), off


def settings(name: str, steps: int) -> list[Algorithm]:
    problem, ring = logistic(), topology.ring(LEARNERS)
    if name == "noisy_ogd":
        return [algorithms.noisy_ogd(problem, ring, step=0.1, scale=1 / epsilon) for epsilon in EPSILONS]
    options: dict = {"clip": 1.0, "horizon": steps, "noise": "gaussian"}
    if name != "pd_ogd":
        options |= {"aggregation": "blt"}
    return [getattr(algorithms, name)(problem, ring, budget=Budget(one, 1e-6), **options) for one in EPSILONS]


def five_l2(steps: int) -> list[Algorithm]:
    options: dict = {"budget": Budget(1.0, 1e-6), "clip": 1.0, "horizon": steps, "noise": "gaussian"}
    some = (0.001, 0.003, 0.01, 0.03, 0.1)
    return [algorithms.pd_ogd(logistic(l2), topology.ring(LEARNERS), **options) for l2 in some]


def logistic(l2: float = 0.0) -> problems.Logistic:
    return problems.Logistic(DIM, l2=l2, feature_bound=1.0, domain=sets.L2Ball(5.0))


def _row(made: float, together: float, apart: float) -> list[str]:
    return [f"{made:.1f}", f"{together:.1f}", f"{apart:.1f}", f"{apart / together:.1f}"]


def _off(one: np.ndarray, two: np.ndarray) -> float:
    return float(np.max(np.abs(one - two)) / np.max(np.abs(two)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
