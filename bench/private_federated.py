"""What privacy costs `online_federated`: `python -m bench.private_federated [PICTURE.html]`, as its page quotes it.

The setting of Fig. 3 of paper 001, with features of norm at most 1. Average loss of the model in play against epsilon,
each variant with the best of the same steps at each epsilon, chosen on other seeds of the noise.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.private import draw, standard_error
from gossamer import Budget, algorithms, problems, simulate, streams

LEARNERS, DIM, LOCAL_STEPS, ROUNDS = 20, 100, 4, 1000
HORIZON = ROUNDS * LOCAL_STEPS
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-3
STEPS = tuple(0.01 * 2.0**k for k in range(10))
TUNING, FINAL = (100, 101), tuple(range(10))
PROBLEM = problems.Logistic(DIM, feature_bound=1.0)
STREAM = streams.heterogeneous_logistic(LEARNERS, DIM, 0.1, 0.1, seed=1)

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "independent": {"aggregation": "independent"},
    "tree": {"aggregation": "tree"},
    "blt, published": {"aggregation": "blt", "calibration": "published"},
    "blt": {"aggregation": "blt"},
    "blt, averaged": {"aggregation": "blt", "publish": "averaged"},
    "blt, rows for rounds": {"aggregation": "blt", "release": "rounds"},
    "blt, rows for rounds, averaged": {"aggregation": "blt", "release": "rounds", "publish": "averaged"},
}


def losses(step: float, seeds: tuple[int, ...], **options: Any) -> np.ndarray:
    """Average loss of the models in play, by seed."""
    algorithm = algorithms.online_federated(
        PROBLEM, LEARNERS, horizon=HORIZON, steps_per_exchange=LOCAL_STEPS, clip=1.0, step=step, **options
    )
    run = simulate(algorithm, STREAM, HORIZON, seeds=seeds, every=ROUNDS, measure="local", progress=False)
    return run.losses.mean(axis=(1, 2))


def best(**options: Any) -> tuple[float, np.ndarray]:
    """The best step on the tuning seeds, and the losses with it on the others."""
    step = min(STEPS, key=lambda each: float(losses(each, TUNING, **options).mean()))
    return step, losses(step, FINAL, **options)


def without_noise() -> tuple[float, float]:
    """The best step without noise, and its loss."""
    found = {step: float(losses(step, (0,), budget=None).mean()) for step in STEPS}
    step = min(found, key=lambda each: found[each])
    return step, found[step]


def table_of(title: str, epsilons: Sequence[float], found: Mapping[str, Sequence[tuple[object, np.ndarray]]]) -> Table:
    """Means over seeds with standard errors by variant and epsilon, and what was chosen there."""
    table = Table(title=title)
    table.add_column("variant")
    for epsilon in epsilons:
        table.add_column(f"epsilon {epsilon:g}", justify="right")
    for name, rows in found.items():
        spread = standard_error(np.array([values for _, values in rows]))
        cells = zip(rows, spread, strict=True)
        table.add_row(name, *(f"{values.mean():.3f} ± {s:.3f} ({chosen})" for (chosen, values), s in cells))
    return table


def main() -> None:
    found = {
        name: [best(budget=Budget(epsilon, DELTA), **options) for epsilon in EPSILONS]
        for name, options in VARIANTS.items()
    }
    title = f"Average loss, n={LEARNERS}, d={DIM}, tau={LOCAL_STEPS}, R={ROUNDS:,}, {len(FINAL)} seeds (step)"
    console = Console(width=160)
    console.print(table_of(title, EPSILONS, found))
    step, loss = without_noise()
    console.print(f"Without noise: {loss:.3f} (step {step:g}). Playing zero: {np.log(2):.3f}.")
    if len(sys.argv) > 1:
        draw(
            {epsilon: {name: rows[i][1] for name, rows in found.items()} for i, epsilon in enumerate(EPSILONS)},
            {"playing zero": (np.log(2), "dot"), "no noise": (loss, "dash")},
            Path(sys.argv[1]),
            x=f"epsilon for the whole horizon, delta {DELTA:g}",
            y={"title": "average loss of the model in play", "rangemode": "tozero"},
        )


if __name__ == "__main__":
    main()
