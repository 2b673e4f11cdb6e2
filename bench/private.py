"""What privacy costs `pd_ogd`: `python -m bench.private [PICTURE.html]` prints what its page quotes.

Average regret against epsilon, for every noise and both calibrations, with default steps: nothing is tuned.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.regret import DIM, LEARNERS, ring
from gossamer import Budget, algorithms, problems, sets, simulate, streams
from gossamer.core import Algorithm
from gossamer.metrics import best_decision

STEPS, SEEDS = 10_000, tuple(range(32))
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
DELTA = 1e-5
PROBLEM = problems.Logistic(DIM, feature_bound=1.0, domain=sets.L2Ball(3.0))


def variants(epsilon: float) -> Mapping[str, Algorithm]:
    """The contestants at one epsilon."""
    options = {"clip": 1.0, "budget": Budget(epsilon)}
    return {
        "published, Laplace": algorithms.pd_ogd(PROBLEM, ring(), **options, calibration="published", horizon=STEPS),
        "tight, Laplace": algorithms.pd_ogd(PROBLEM, ring(), **options),
        "tight, l2-Laplace": algorithms.pd_ogd(PROBLEM, ring(), **options, noise="l2-laplace"),
        f"tight, Gaussian, delta {DELTA:g}": algorithms.pd_ogd(
            PROBLEM, ring(), clip=1.0, budget=Budget(epsilon, DELTA), noise="gaussian"
        ),
    }


def measure() -> tuple[dict[str, np.ndarray], float, float]:
    """Average regret by variant, epsilon and seed of the noise; of d_ogd; of playing zero."""
    stream = streams.heterogeneous_logistic(LEARNERS, DIM, 0.1, 0.1, seed=0)
    best = best_decision(PROBLEM, stream, STEPS, tolerance=1e-6).loss

    def regret(algorithm: Algorithm, seeds: tuple[int, ...]) -> np.ndarray:
        run = simulate(algorithm, stream, STEPS, seeds=seeds, every=STEPS, progress=False)
        return run.losses.mean(axis=(1, 2)) - best

    rows = [{name: regret(each, SEEDS) for name, each in variants(epsilon).items()} for epsilon in EPSILONS]
    by_variant = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return by_variant, float(regret(algorithms.d_ogd(PROBLEM, ring()), (0,))[0]), float(np.log(2)) - best


def main() -> None:
    regrets, free, zero = measure()
    table = Table(
        title=f"Average regret, ring of {LEARNERS}, d={DIM}, T={STEPS:,}, {len(SEEDS)} seeds, mean ± standard error"
    )
    table.add_column("variant")
    for epsilon in EPSILONS:
        table.add_column(f"epsilon {epsilon:g}", justify="right")
    for name, values in regrets.items():
        spread = standard_error(values)
        table.add_row(name, *(f"{v:.4f} ± {s:.4f}" for v, s in zip(values.mean(axis=1), spread, strict=True)))
    console = Console(width=120)
    console.print(table)
    console.print(f"Without noise (d_ogd, default step): {free:.4f}. Playing zero: {zero:.4f}.")
    if len(sys.argv) > 1:
        draw(
            {epsilon: {name: regrets[name][i] for name in regrets} for i, epsilon in enumerate(EPSILONS)},
            {"playing zero": (zero, "dot"), "d_ogd, no noise": (free, "dash")},
            Path(sys.argv[1]),
            x="epsilon for the whole horizon",
            y={"type": "log", "title": "average regret", "dtick": 1},
        )


def standard_error(values: np.ndarray) -> np.ndarray:
    return values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])


def draw(
    found: Mapping[float, Mapping[str, np.ndarray]],
    references: Mapping[str, tuple[float, str]],
    path: Path,
    *,
    x: str,
    y: Mapping[str, object],
) -> None:
    """What was found by epsilon and variant, means over seeds with standard errors, and lines for what has no epsilon.

    Titles of the axes are `x`, and part of the options `y`.
    """
    import plotly.graph_objects as go

    figure, epsilons = go.Figure(), list(found)
    for name in found[epsilons[0]]:
        values = np.array([found[epsilon][name] for epsilon in epsilons])
        bars = {"type": "data", "array": standard_error(values)}
        figure.add_scatter(x=epsilons, y=values.mean(axis=1), error_y=bars, name=name, mode="lines+markers")
    for name, (value, dash) in references.items():
        line = {"dash": dash, "color": "grey"}
        figure.add_scatter(x=epsilons, y=[value] * len(epsilons), name=name, mode="lines", line=line)
    figure.update_xaxes(type="log", title=x, tickvals=epsilons)
    figure.update_yaxes(**y)
    figure.update_layout(template="plotly_white", width=860, height=430, margin={"t": 20, "r": 20})
    figure.write_html(path, include_plotlyjs=True, config={"displayModeBar": False})


if __name__ == "__main__":
    main()
