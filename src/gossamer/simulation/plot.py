"""Curves of one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError
from gossamer.metrics import average_loss

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from gossamer.simulation.run import Run

Doubles = NDArray[np.float64]

COLOURS = ("#3f7fd0", "#d9534f", "#1d9a80", "#c98500", "#9467bd", "#7d8794")  # 3 : 1 at least on white and on black
DASHES = ("solid", "dash", "dot")
MOST_LOSSES, MOST_ACCURACIES = 100, 50  # points of a curve: more accuracies, each of fewer predictions, are a smear
STEP = "step"
LOSS = "average loss"
ACCURACY = "accuracy of predictions"


class Stroke(NamedTuple):
    """How a line is drawn, on a figure and in its legend."""

    colour: str
    dash: str

    @property
    def faint(self) -> str:
        """The colour of the band around the line."""
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},0.18)"


class Points(NamedTuple):
    """Values of runs at steps; rows are the axis before the last, learners the last, seeds the first of three."""

    steps: NDArray[np.int64]
    values: Doubles


class Spread(NamedTuple):
    """A line and the edges of its band."""

    mean: Sequence[float] | Doubles
    low: Sequence[float] | Doubles
    high: Sequence[float] | Doubles


def stroke(index: int) -> Stroke:
    """The look of line `index`: colours first, then dashes, so that eighteen lines differ.

    >>> stroke(0), stroke(6)
    (Stroke(colour='#3f7fd0', dash='solid'), Stroke(colour='#3f7fd0', dash='dash'))
    """
    return Stroke(COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)])


def figure(runs: Sequence[Run], names: Sequence[str] | None = None) -> go.Figure:
    """Average loss, and accuracy where all runs have it, against steps; the title says what the bands are."""
    try:
        from plotly.subplots import make_subplots
    except ImportError as missing:
        raise ConfigurationError(
            "plot", "no plotly", "an installed plotly", "pip install 'gossamer[report]'"
        ) from missing
    panels = measured(runs)
    drawn = make_subplots(rows=1, cols=len(panels), horizontal_spacing=0.12)
    for column, (quantity, curves) in enumerate(panels.items(), start=1):
        for index, (run, points) in enumerate(zip(runs, curves, strict=True)):
            label = names[index] if names else run.name
            for trace in band(points.steps, spread(points.values), label, stroke(index), legend=column == 1):
                drawn.add_trace(trace, row=1, col=column)
        drawn.update_xaxes(title_text=STEP, row=1, col=column)
        drawn.update_yaxes(title_text=quantity, row=1, col=column)
    drawn.update_layout(
        template="plotly_white",
        height=440,
        margin={"t": 50, "l": 60, "r": 20, "b": 60},
        title={"text": "<br>".join(dict.fromkeys(map(bands, runs))), "font": {"size": 14}},
        legend={"orientation": "h", "y": -0.2, "yanchor": "top"},
    )
    return drawn


def measured(runs: Sequence[Run]) -> dict[str, list[Points]]:
    """What is drawn of runs, by the name of its axis."""
    panels = {LOSS: [_losses(run) for run in runs]}
    accuracies = [_accuracies(run, run.accuracy) for run in runs if run.accuracy is not None]
    return panels | ({ACCURACY: accuracies} if len(accuracies) == len(runs) else {})


def _losses(run: Run) -> Points:
    ends = _ends(len(run.steps), MOST_LOSSES)
    return Points(run.steps[ends], average_loss(run)[..., ends, :])


def _accuracies(run: Run, accuracy: Doubles) -> Points:
    """Of all predictions between one point and the next, however many rows they are."""
    ends = _ends(len(run.steps), MOST_ACCURACIES)
    starts = np.concatenate([[0], ends[:-1] + 1])
    weights = np.diff(run.steps, prepend=0)[:, None]
    share = np.add.reduceat(accuracy * weights, starts, axis=-2) / np.add.reduceat(weights, starts, axis=-2)
    return Points(run.steps[ends], share)


def _ends(rows: int, most: int) -> NDArray[np.int64]:
    """The last row of each of so many points that a picture can show them."""
    points = min(rows, most)
    return np.arange(1, points + 1) * rows // points - 1


def spread(values: Doubles) -> Spread:
    """The mean of every row with the lowest and the highest: learner, or mean over learners of a seed.

    >>> spread(np.array([[1.0, 3.0]]))
    Spread(mean=array([2.]), low=array([1.]), high=array([3.]))
    >>> spread(np.array([[[1.0, 3.0]], [[5.0, 7.0]]])).high
    array([6.])
    """
    several = values.ndim > 2 and len(values) > 1
    each = values.mean(axis=-1).T if several else values.reshape(values.shape[-2:])
    return Spread(each.mean(axis=1), each.min(axis=1), each.max(axis=1))


def bands(run: Run) -> str:
    """What the line and the band of a run are, in words.

    >>> from gossamer import algorithms, problems, simulate, streams, topology
    >>> algorithm = algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1)
    >>> print(bands(simulate(algorithm, streams.random_signs(4, 3, seed=1), 50, seed=0)))
    The line is the mean over 4 learners; the band reaches from the lowest to the highest learner.
    """
    *seeds, _, learners = run.losses.shape
    if run.measured is not None:
        return _sampled_bands(run, seeds[0] if seeds else 1)
    if seeds and seeds[0] > 1:
        over = f"{seeds[0]} seeds, each the mean over its learners" if learners > 1 else f"{seeds[0]} seeds"
        return f"The line is the mean over {over}; the band reaches from the lowest to the highest seed."
    if learners == 1:
        return "The line is one number per point, of all learners together: there is no band."
    return f"The line is the mean over {learners} learners; the band reaches from the lowest to the highest learner."


def _sampled_bands(run: Run, seeds: int) -> str:
    """The same where losses are estimated."""
    sample = f"{run.losses.shape[-1]} of {run.decisions.shape[-2]:,} learners, drawn at random"
    line = f"The line is estimated on {sample}"
    if seeds > 1:
        return f"{line}: the mean over {seeds} seeds; the band reaches from the lowest to the highest seed."
    return f"{line}; the band reaches from the lowest to the highest of these estimates."


def band(x: Any, values: Spread, label: str, look: Stroke, *, legend: bool) -> list[Any]:
    """The traces of a curve: the edges of its band, and the line above them."""
    import plotly.graph_objects as go

    edge: dict[str, Any] = {"x": x, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    edge |= {"showlegend": False, "legendgroup": label}
    line = {"color": look.colour, "dash": look.dash, "width": 2}
    return [
        go.Scatter(y=values.high, **edge),
        go.Scatter(y=values.low, fill="tonexty", fillcolor=look.faint, **edge),
        go.Scatter(x=x, y=values.mean, name=label, mode="lines", line=line, legendgroup=label, showlegend=legend),
    ]
