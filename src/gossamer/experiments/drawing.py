"""Pictures with curves and bands around them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from gossamer.reports.figures import LOSS_TICKS, Picture, chart, strokes
from gossamer.simulation.plot import Spread, Stroke, band


@dataclass(frozen=True)
class Curve:
    """A line with a band around it; curves of one name have one colour in all panels of a section.

    >>> Curve("mine", [1, 2], [3.0, 2.0], [2.9, 1.9], [3.1, 2.1]).name
    'mine'
    """

    name: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]

    @classmethod
    def line(cls, name: str, x: Sequence[float], heights: Sequence[float]) -> Self:
        """Without a band.

        >>> Curve.line("mine", [1, 2], [3.0, 2.0]).low
        [3.0, 2.0]
        """
        return cls(name, x, heights, heights, heights)

    @classmethod
    def of_runs(cls, name: str, x: Sequence[float], runs: ArrayLike, least: float | None = None) -> Self:
        """The mean over runs (run, point), and one standard deviation to either side.

        One run alone has no band. `least` is the share of the mean that the band stays above, where heights are drawn
        as logarithms.

        >>> Curve.of_runs("mine", [1], [[1.0], [3.0]], least=0.5).low
        [1.0]
        """
        rows = np.asarray(runs)
        mean, off = rows.mean(axis=0), rows.std(axis=0, ddof=1) if len(rows) > 1 else np.zeros(rows.shape[1])
        low = mean - off if least is None else np.maximum(mean - off, least * mean)
        return cls(name, x, mean.tolist(), low.tolist(), (mean + off).tolist())


@dataclass(frozen=True)
class Panel:
    """One picture of a section.

    Attributes:
        title: above it.
        y: what is drawn.
        curves: the lines.
        level: a height to mark with a dotted line; None for none.
        log: whether heights are drawn as logarithms.
        span: the lowest and the highest height drawn; None: what the curves need.
        x: what the curves are drawn against.
        log_x: whether that is drawn as a logarithm, with a mark at each point of the curves.
    """

    title: str
    y: str
    curves: tuple[Curve, ...]
    level: float | None = None
    log: bool = False
    span: tuple[float, float] | None = None
    x: str = "round"
    log_x: bool = False


def draw(panels: Sequence[Panel]) -> list[Picture]:
    """The panels, each a picture of its own.

    >>> curve = Curve("mine", [1, 2], [3.0, 2.0], [2.9, 1.9], [3.1, 2.1])
    >>> [trace.name for trace in draw([Panel("left", "loss", (curve,))])[0].figure.data if trace.name]
    ['mine']
    """
    looks = looks_of(panels)
    return [_picture(panel, looks) for panel in panels]


def looks_of(panels: Sequence[Panel]) -> dict[str, Stroke]:
    """How the curve of each name is drawn, in all panels.

    >>> looks_of([Panel("left", "loss", (Curve("mine", [1], [3.0], [2.9], [3.1]),))])["mine"].dash
    'solid'
    """
    return strokes([curve.name for panel in panels for curve in panel.curves])


def _picture(panel: Panel, looks: dict[str, Stroke]) -> Picture:
    axis: dict[str, Any] = {"type": "log", "tickvals": LOSS_TICKS} if panel.log else {"range": panel.span}
    traces = [
        trace
        for curve in panel.curves
        for trace in band(
            curve.x, Spread(curve.mean, curve.low, curve.high), curve.name, looks[curve.name], legend=False
        )
    ]
    drawn = chart(traces, panel.x, panel.y, **axis)
    if panel.log_x:
        marks = sorted({place for curve in panel.curves for place in curve.x})
        drawn.update_xaxes(type="log", tickvals=marks, ticktext=[f"{place:,g}" for place in marks])
    if panel.level is not None:
        drawn.add_hline(panel.level, line={"dash": "dot", "color": "#7d8794", "width": 1})
    return Picture(panel.title, drawn)
