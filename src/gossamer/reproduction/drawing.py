"""Figures in several panels: curves with bands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gossamer.reports.figures import FONT, LOSS_TICKS
from gossamer.simulation.plot import COLOURS

if TYPE_CHECKING:
    import plotly.graph_objects as go

Doubles = NDArray[np.float64]

HEIGHT = 330  # of a row of panels


@dataclass(frozen=True)
class Curve:
    """A line with a band around it; curves of one name have one colour in all panels of a figure.

    >>> Curve("mine", [1, 2], [3.0, 2.0], [2.9, 1.9], [3.1, 2.1]).name
    'mine'
    """

    name: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """One picture of a figure.

    Attributes:
        title: above it.
        y: what is drawn.
        curves: the lines.
        level: a height to mark with a dotted line; None for none.
        log: whether heights are drawn as logarithms.
        span: the lowest and the highest height drawn; None: what the curves need.
    """

    title: str
    y: str
    curves: tuple[Curve, ...]
    level: float | None = None
    log: bool = False
    span: tuple[float, float] | None = None


def draw(panels: Sequence[Panel], columns: int = 2, x: str = "rounds") -> go.Figure:
    """The panels, row by row, with one legend.

    >>> curve = Curve("mine", [1, 2], [3.0, 2.0], [2.9, 1.9], [3.1, 2.1])
    >>> [trace.name for trace in draw([Panel("left", "loss", (curve,))]).data if trace.name]
    ['mine']
    """
    from plotly.subplots import make_subplots

    rows = -(-len(panels) // columns)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[panel.title for panel in panels],
        horizontal_spacing=0.1,
        vertical_spacing=0.34 / rows,
    )
    names = list(dict.fromkeys(curve.name for panel in panels for curve in panel.curves))
    seen: set[str] = set()
    for place, panel in enumerate(panels):
        at = {"row": place // columns + 1, "col": place % columns + 1}
        for curve in panel.curves:
            for trace in _traces(curve, COLOURS[names.index(curve.name) % len(COLOURS)], curve.name not in seen):
                figure.add_trace(trace, **at)
            seen.add(curve.name)
        if panel.level is not None:
            figure.add_hline(panel.level, line={"dash": "dot", "color": "#66717e", "width": 1}, **at)
        axis = {"type": "log", "tickvals": LOSS_TICKS} if panel.log else {"range": panel.span}
        figure.update_yaxes(title_text=panel.y, **axis, **at)
        figure.update_xaxes(title_text=x, **at)
    height = HEIGHT * rows + 90
    figure.update_layout(
        template="plotly_white",
        height=height,
        font={"family": FONT, "size": 13},
        margin={"t": 40, "l": 60, "r": 10, "b": 90},
        legend={"orientation": "h", "y": -55 / height * 1.4, "x": 0.5, "xanchor": "center", "yanchor": "top"},
        showlegend=True,
    )
    return figure


def _traces(curve: Curve, colour: str, legend: bool) -> list[Any]:
    import plotly.graph_objects as go

    edge: dict[str, Any] = {"x": curve.x, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    edge |= {"showlegend": False, "legendgroup": curve.name}
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    line = {"color": colour, "width": 2}
    return [
        go.Scatter(y=curve.high, **edge),
        go.Scatter(y=curve.low, fill="tonexty", fillcolor=f"rgba({red},{green},{blue},0.15)", **edge),
        go.Scatter(
            x=curve.x,
            y=curve.mean,
            name=curve.name,
            mode="lines",
            line=line,
            legendgroup=curve.name,
            showlegend=legend,
        ),
    ]
