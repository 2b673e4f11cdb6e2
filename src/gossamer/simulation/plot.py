"""Curves of one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gossamer.errors import ConfigurationError
from gossamer.metrics import average_loss

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from gossamer.simulation.run import Run

COLOURS = ("#3b6fb6", "#d1495b", "#2a9d8f", "#e9a23b", "#7a5195", "#6c757d")


def figure(runs: Sequence[Run], names: Sequence[str] | None = None) -> go.Figure:
    """Average loss, and accuracy where all runs have it, against steps: mean over learners and seeds, and range."""
    try:
        from plotly.subplots import make_subplots
    except ImportError as missing:
        raise ConfigurationError(
            "plot", "no plotly", "an installed plotly", "pip install 'gossamer[report]'"
        ) from missing
    panels = {"average loss": [average_loss(run) for run in runs]}
    if all(run.accuracy is not None for run in runs):
        panels["accuracy since the last point"] = [run.accuracy for run in runs]  # type: ignore[misc]
    drawn = make_subplots(rows=1, cols=len(panels), subplot_titles=list(panels), horizontal_spacing=0.09)
    for column, curves in enumerate(panels.values(), start=1):
        for index, (run, values) in enumerate(zip(runs, curves, strict=True)):
            label = names[index] if names else run.name
            for trace in _band(run, values, label, COLOURS[index % len(COLOURS)], legend=column == 1):
                drawn.add_trace(trace, row=1, col=column)
        drawn.update_xaxes(title_text="steps (samples per learner)", row=1, col=column)
    drawn.update_layout(template="plotly_white", height=420, margin={"t": 50, "l": 50, "r": 20, "b": 50})
    return drawn


def _band(run: Run, values: Any, label: str, colour: str, *, legend: bool) -> list[Any]:
    """The mean over learners and seeds, above the range from the best to the worst."""
    import plotly.graph_objects as go

    flat = np.moveaxis(values, -2, 0).reshape(len(run.steps), -1)
    edge = {"x": run.steps, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return [
        go.Scatter(y=flat.max(axis=1), legendgroup=label, **edge),
        go.Scatter(
            y=flat.min(axis=1),
            legendgroup=label,
            fill="tonexty",
            fillcolor=f"rgba({red},{green},{blue},0.15)",
            **edge,
        ),
        go.Scatter(
            x=run.steps,
            y=flat.mean(axis=1),
            name=label,
            mode="lines",
            line={"color": colour, "width": 2},
            legendgroup=label,
            showlegend=legend,
        ),
    ]
