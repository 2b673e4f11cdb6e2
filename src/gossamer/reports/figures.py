"""The pictures of a report: learning curves with their bands, and networks. Every picture is a figure of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gossamer.metrics import average_loss
from gossamer.reports.summary import last_tenth, percent
from gossamer.simulation import Run
from gossamer.simulation.plot import ACCURACY, LOSS, STEP, Stroke, band, measured, spread, stroke
from gossamer.topology import Topology

if TYPE_CHECKING:
    import plotly.graph_objects as go

Doubles = NDArray[np.float64]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
PALE = ("#f08a7b", "#fbe9a9", "#7fc8e8")  # from bad to good; black digits stay readable on all of it
CLEAR = "rgba(0,0,0,0)"  # the page is the background, dark or light
LOSS_TICKS = [digit * 10.0**power for power in range(-4, 4) for digit in (1, 2, 5)]
LOG_FROM = 5.0  # times the smallest loss that the largest must be: below it, a logarithmic axis has no ticks
MOST_NODES = 100  # above this a picture is a hairball, and its layout takes seconds
TITLES = {LOSS: "Average loss since the first step", ACCURACY: "Accuracy since the previous point"}


class Picture(NamedTuple):
    """A figure of one panel; the page writes its title above it, where it wraps."""

    title: str
    figure: go.Figure


@dataclass(frozen=True)
class Network:
    """A network to draw: one node per learner, coloured by a value, with a text inside.

    >>> from gossamer import topology
    >>> Network("who is good", topology.ring(3), (0.1, 0.2, 0.3), ("a", "b", "c"), "accuracy").labels
    ('a', 'b', 'c')
    """

    title: str
    topology: Topology
    values: tuple[float, ...]
    labels: tuple[str, ...]
    meaning: str


class Scale(NamedTuple):
    """What the colours of networks mean: one scale for all of them, with its ends as texts."""

    meaning: str
    low: float
    high: float
    colours: tuple[str, ...]
    ends: tuple[str, str]


def network_of(run: Run, topology: Topology | None) -> Network | None:
    """The network of a run, learners coloured by late accuracy or average loss; None where a picture says nothing.

    `topology`: `Algorithm.graph`, which is None where learners talk to a server.

    >>> from gossamer import algorithms, problems, simulate, streams, topology
    >>> algorithm = algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1)
    >>> run = simulate(algorithm, streams.random_signs(4, 3, seed=1), 50, seed=0)
    >>> network_of(run, algorithm.graph).meaning
    'average loss'
    """
    learners = run.losses.shape[-1]
    if topology is None or topology.learners > MOST_NODES or topology.learners != learners:
        return None
    if run.accuracy is None:
        values, meaning = average_loss(run)[..., -1:, :], "average loss"
    else:
        values, meaning = last_tenth(run, run.accuracy), "accuracy"
    links = topology.name if topology.fixed else f"{topology.name}, links of the first exchange"
    by_learner = tuple(values.reshape(-1, learners).mean(axis=0).tolist())
    return Network(links, topology, by_learner, tuple(map(str, range(learners))), meaning)


def chart(traces: Sequence[Any], x: str, y: str, **axis: Any) -> go.Figure:
    """A figure of one panel with named axes; it takes the width that it gets, and the page is its background.

    `axis`: options of the axis on the left.

    >>> chart([], "step", "average loss").layout.yaxis.title.text
    'average loss'
    """
    import plotly.graph_objects as go

    drawn = go.Figure(list(traces))
    drawn.update_xaxes(title_text=x, automargin=True)
    drawn.update_yaxes(title_text=y, automargin=True, **axis)
    drawn.update_layout(margin={"t": 10, "l": 10, "r": 20, "b": 10}, **_look(320))
    return drawn


def curves(runs: Mapping[str, Run]) -> list[Picture]:
    """Average loss and accuracy against steps, one picture each, one colour per run.

    >>> from gossamer import algorithms, problems, simulate, streams, topology
    >>> algorithm = algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1)
    >>> run = simulate(algorithm, streams.random_signs(4, 3, seed=1), 50, seed=0)
    >>> [picture.title for picture in curves({"mine": run})]
    ['Average loss since the first step']
    """
    looks = strokes(list(runs))
    pictures = []
    for quantity, drawn in measured(list(runs.values())).items():
        traces = [
            trace
            for name, points in zip(runs, drawn, strict=True)
            for trace in band(points.steps, spread(points.values), name, looks[name], legend=False)
        ]
        axis = _loss_axis([points.values for points in drawn]) if quantity == LOSS else {"tickformat": ".0%"}
        pictures.append(Picture(TITLES[quantity], chart(traces, STEP, quantity, **axis)))
    return pictures


def strokes(names: Sequence[str]) -> dict[str, Stroke]:
    """How the curve of each name is drawn.

    >>> list(strokes(["mine", "yours", "mine"]))
    ['mine', 'yours']
    """
    return {name: stroke(index) for index, name in enumerate(dict.fromkeys(names))}


def scale_of(pictures: Sequence[Network]) -> Scale:
    """One colour scale for all networks: accuracies from 0 to 1, losses from the highest to the lowest.

    >>> from gossamer import topology
    >>> scale_of([Network("pair", topology.complete(2), (0.5, 0.9), ("0", "1"), "accuracy")]).ends
    ('0%', '100%')
    """
    meaning = pictures[0].meaning
    if meaning == "accuracy":
        return Scale(meaning, 0.0, 1.0, PALE, ("0%", "100%"))
    values = [value for picture in pictures for value in picture.values]
    low, high = min(values), max(values)
    return Scale(meaning, low, high, PALE[::-1], (f"{low:.3g}", f"{high:.3g}"))


def networks(pictures: Sequence[Network]) -> list[Picture]:
    """Networks, one picture each, on one colour scale.

    >>> from gossamer import topology
    >>> pair = Network("pair", topology.complete(2), (0.5, 0.9), ("0", "1"), "accuracy")
    >>> [trace.mode for trace in networks([pair])[0].figure.data]
    ['lines', 'markers+text']
    """
    return [Picture(picture.title, _network(picture, scale_of(pictures))) for picture in pictures]


def _loss_axis(values: Sequence[Doubles]) -> dict[str, Any]:
    """Logarithmic where losses are positive and far enough apart."""
    low, high = min(each.min() for each in values), max(each.max() for each in values)
    return {"type": "log", "tickvals": LOSS_TICKS} if low > 0 and high >= LOG_FROM * low else {}


def _look(height: int) -> dict[str, Any]:
    return {
        "template": "plotly_white",
        "autosize": True,
        "height": height,
        "showlegend": False,
        "font": {"family": FONT, "size": 13},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
    }


def _network(picture: Network, scale: Scale) -> go.Figure:
    import plotly.graph_objects as go

    drawn = go.Figure(_nodes_and_links(picture, scale))
    hidden = {"visible": False, "range": [-1.15, 1.15], "fixedrange": True}
    drawn.update_xaxes(**hidden)
    drawn.update_yaxes(**hidden, scaleanchor="x", constrain="domain")
    drawn.update_layout(margin={"t": 5, "l": 5, "r": 5, "b": 5}, dragmode=False, **_look(300))
    return drawn


def _nodes_and_links(picture: Network, scale: Scale) -> list[Any]:
    import plotly.graph_objects as go

    graph = nx.from_scipy_sparse_array(picture.topology.sparse(0))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    place = nx.kamada_kawai_layout(graph) if nx.is_connected(graph) else nx.circular_layout(graph)
    ends = [(*place[i], *place[j]) for i, j in graph.edges]
    links = go.Scatter(
        x=[x for x1, _, x2, _ in ends for x in (x1, x2, None)],
        y=[y for _, y1, _, y2 in ends for y in (y1, y2, None)],
        mode="lines",
        line={"color": "#7b8794", "width": 2},
        hoverinfo="skip",
    )
    nodes = go.Scatter(
        x=[place[i][0] for i in graph],
        y=[place[i][1] for i in graph],
        mode="markers+text",
        text=picture.labels,
        textfont={"size": 12, "color": "#111"},
        marker={
            "color": picture.values,
            "cmin": scale.low,
            "cmax": scale.high,
            "colorscale": list(zip((0.0, 0.5, 1.0), scale.colours, strict=True)),
            "size": 21,
            "line": {"color": "#4a5563", "width": 1},
        },
        hovertext=[_hover(i, picture.meaning, value) for i, value in enumerate(picture.values)],
        hoverinfo="text",
        cliponaxis=False,
    )
    return [links, nodes]


def _hover(learner: int, meaning: str, value: float) -> str:
    return f"learner {learner}: {meaning} {percent(value) if meaning == 'accuracy' else f'{value:.3f}'}"
