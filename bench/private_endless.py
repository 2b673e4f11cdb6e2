"""How a budget stays finite for ever: `python -m bench.private_endless [PICTURE.html]`, as ldp_endless.md has it.

The mushrooms setting of paper 003 (d = 112, w = 0.6, lambda = (t+1)^-0.77, gamma = (t+1)^-0.65, Laplace noise of scale
(t+1)^0.11) with gradients clipped to 1 and L = 0.25: epsilon after t messages, by the printed bound, by eq. (22), by
the recursion for convex losses, and with Gaussian noise of the same standard deviation.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from gossamer.algorithms.endless.fading import Fading
from gossamer.core import Rate
from gossamer.privacy import Gaussian

DIM, GROWTH, DELTA = 112, 0.11, 1e-5
CONVEX = Fading(Rate(1.0, 0.77), Rate(1.0, 0.65), weight=0.6, change=2.0, smoothness=0.25)
SMOOTH = replace(CONVEX, convex=False)
TIMES = (1, 10, 100, 2_000, 10_000, 100_000)


def curves(count: int) -> Mapping[str, np.ndarray]:
    """Epsilon after 1, ..., count messages."""
    pure = {
        "Theorem 5(i), as printed": CONVEX.published(),
        "eq. (22)": SMOOTH,
        "convex losses": CONVEX,
        "convex losses, delay 200": replace(CONVEX, delay=200),
    }
    found = {name: math.sqrt(DIM) * np.cumsum(each.terms(1, GROWTH, count)) for name, each in pure.items()}
    # Laplace noise of scale b has the standard deviation sqrt(2) b.
    mu = np.sqrt(np.cumsum(CONVEX.terms(2, GROWTH, count)) / 2)
    some = np.unique(np.geomspace(1, count, 200).astype(int)) - 1
    epsilons = np.interp(np.arange(count), some, [Gaussian(float(mu[t])).epsilon(DELTA) for t in some])
    return found | {f"Gaussian, delta {DELTA:g}": epsilons}


def limits() -> Mapping[str, float]:
    """For ever, with the proven tail."""
    root = math.sqrt(DIM)
    return {
        "eq. (22)": root * SMOOTH.total(1, GROWTH, None),
        "convex losses": root * CONVEX.total(1, GROWTH, None),
        "convex losses, delay 200": root * replace(CONVEX, delay=200).total(1, GROWTH, None),
        f"Gaussian, delta {DELTA:g}": Gaussian(math.sqrt(CONVEX.total(2, GROWTH, None) / 2)).epsilon(DELTA),
    }


def main() -> None:
    found, ends = curves(TIMES[-1]), limits()
    table = Table(title="Epsilon of one sample after t messages")
    table.add_column("bound")
    for t in (*TIMES, "for ever"):
        table.add_column(f"{t:,}" if isinstance(t, int) else t, justify="right")
    for name, values in found.items():
        last = f"{ends[name]:.4g}" if name in ends else "not bounded"
        table.add_row(name, *(f"{values[t - 1]:.4g}" for t in TIMES), last)
    Console(width=140).print(table)
    if len(sys.argv) > 1:
        draw(found, ends, Path(sys.argv[1]))


def draw(found: Mapping[str, np.ndarray], ends: Mapping[str, float], path: Path) -> None:
    """The curves on logarithmic axes, with dotted lines at their limits."""
    import plotly.graph_objects as go

    figure, colours = go.Figure(), ("#636efa", "#ef553b", "#00cc96", "#ab63fa", "#ffa15a")
    some = np.unique(np.geomspace(1, TIMES[-1], 300).astype(int))
    for (name, values), colour in zip(found.items(), colours, strict=True):
        figure.add_scatter(x=some, y=values[some - 1], name=name, mode="lines", line={"color": colour})
        if name in ends:
            line = {"color": colour, "dash": "dot", "width": 1}
            figure.add_scatter(x=[1, TIMES[-1]], y=[ends[name]] * 2, mode="lines", line=line, showlegend=False)
    figure.update_xaxes(type="log", title="messages sent, t", dtick=1)
    figure.update_yaxes(type="log", title="epsilon of one sample", range=[0, 5], dtick=1)
    figure.update_layout(template="plotly_white", width=860, height=430, margin={"t": 20, "r": 20})
    figure.write_html(path, include_plotlyjs=True, config={"displayModeBar": False})


if __name__ == "__main__":
    main()
