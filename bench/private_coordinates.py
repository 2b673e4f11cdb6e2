"""What privacy costs `dpsda_c`: `python -m bench.private_coordinates [PICTURE.html]`, as its page quotes it.

The online regression of paper 002 over 5,000 rounds. Average regret of the joint decision against epsilon, each variant
with the best clip and step of the same grid at each epsilon, chosen on other seeds of the noise.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from bench.private import draw
from bench.private_federated import table_of
from gossamer import Budget, algorithms, problems, sets, simulate, streams, topology
from gossamer.core import Rate
from gossamer.metrics import best_decision

NODES, DIM, ROUNDS = 7, 21, 5000
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
CLIPS, STEPS = (0.03, 0.1, 0.3, 1.0), (0.03, 0.1, 0.3, 1.0, 3.0)
TUNING, FINAL = (100, 101), tuple(range(10))
PROBLEM = problems.LeastSquares(DIM, domain=sets.Box(-5.0, 5.0))

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "independent, gossip": {"aggregation": "independent", "own": "gossip"},
    "independent, own exact": {"aggregation": "independent"},
    "tree, own exact": {"aggregation": "tree"},
    "blt, gossip": {"aggregation": "blt", "own": "gossip"},
    "blt, own exact": {"aggregation": "blt"},
}


def regression() -> streams.Stream:
    """Features from U[-0.5, 0.5], weights from N(0, 1), errors of variance 0.2: section 6.1 of the paper."""
    draws = np.random.default_rng(0)
    weights, x = draws.normal(size=DIM), draws.uniform(-0.5, 0.5, size=(ROUNDS, DIM))
    return streams.common(x, x @ weights + draws.normal(0, np.sqrt(0.2), ROUNDS))


STREAM = regression()


def losses(clip: float | None, step: float, seeds: tuple[int, ...], **options: Any) -> np.ndarray:
    """Average loss of the joint decision, by seed."""
    algorithm = algorithms.dpsda_c(
        PROBLEM, topology.ring(NODES), horizon=ROUNDS, clip=clip, step=Rate(step), **{"noise": "gaussian"} | options
    )
    run = simulate(algorithm, STREAM, ROUNDS, seeds=seeds, every=ROUNDS, measure="joint", progress=False)
    return run.losses.mean(axis=(1, 2))


def best(**options: Any) -> tuple[tuple[float, float], np.ndarray]:
    """The best clip and step on the tuning seeds, and the losses with them on the others."""
    chosen = min(product(CLIPS, STEPS), key=lambda each: float(losses(*each, TUNING, **options).mean()))
    return chosen, losses(*chosen, FINAL, **options)


def main() -> None:
    least = best_decision(PROBLEM, STREAM, ROUNDS).loss
    zero = float(np.mean(STREAM.read(0, ROUNDS).y ** 2)) - least
    found: dict[str, list[tuple[Any, np.ndarray]]] = {}
    for name, options in VARIANTS.items():
        rows = [best(budget=Budget(epsilon, DELTA), **options) for epsilon in EPSILONS]
        found[name] = [("{:g}, {:g}".format(*chosen), values - least) for chosen, values in rows]
    console = Console(width=160)
    title = f"Average regret, n={NODES}, d={DIM}, T={ROUNDS:,}, delta {DELTA:g}, {len(FINAL)} seeds (clip, step)"
    console.print(table_of(title, EPSILONS, found))
    free = min(float(losses(None, step, (0,), noise="none").mean()) for step in STEPS) - least
    console.print(f"Without noise: {free:.3f}. Playing zero: {zero:.3f}.")
    if len(sys.argv) > 1:
        draw(
            {epsilon: {name: rows[i][1] for name, rows in found.items()} for i, epsilon in enumerate(EPSILONS)},
            {"playing zero": (zero, "dot"), "no noise": (free, "dash")},
            Path(sys.argv[1]),
            x=f"epsilon for the whole horizon, delta {DELTA:g}",
            y={"title": "average regret of the joint decision", "rangemode": "tozero"},
        )


if __name__ == "__main__":
    main()
