"""The pictures of a report: learning curves with bands over learners, and networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gossamer.core import Federation
from gossamer.metrics import average_loss
from gossamer.reports.summary import last_tenth
from gossamer.simulation import Run
from gossamer.simulation.plot import figure
from gossamer.topology import Topology

if TYPE_CHECKING:
    import plotly.graph_objects as go

Doubles = NDArray[np.float64]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
PALE = [[0.0, "#f08a7b"], [0.5, "#fbe9a9"], [1.0, "#7fc8e8"]]  # black digits stay readable on all of it
LOSS_TICKS = [digit * 10.0**power for power in range(-4, 4) for digit in (1, 2, 5)]
MOST_NODES = 100  # above this a picture is a hairball, and its layout takes seconds


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


def network_of(run: Run, topology: Topology | Federation) -> Network | None:
    """The network of a run, learners coloured by late accuracy or average loss; None where a picture says nothing.

    >>> from gossamer import algorithms, problems, simulate, streams, topology
    >>> algorithm = algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1)
    >>> run = simulate(algorithm, streams.random_signs(4, 3, seed=1), 50, seed=0)
    >>> network_of(run, algorithm.topology).meaning
    'average loss'
    """
    learners = topology.learners
    if isinstance(topology, Federation) or learners > MOST_NODES or run.losses.shape[-1] != learners:
        return None
    if run.accuracy is None:
        values, meaning = average_loss(run)[..., -1:, :], "average loss"
    else:
        values, meaning = last_tenth(run, run.accuracy), "accuracy"
    links = topology.name if topology.fixed else f"{topology.name}, links of the first exchange"
    by_learner = tuple(values.reshape(-1, learners).mean(axis=0).tolist())
    return Network(links, topology, by_learner, tuple(map(str, range(learners))), meaning)


def curves(runs: Mapping[str, Run]) -> go.Figure:
    """Average loss and accuracy against steps, one colour per run, with the range over learners.

    >>> from gossamer import algorithms, problems, simulate, streams, topology
    >>> algorithm = algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1)
    >>> run = simulate(algorithm, streams.random_signs(4, 3, seed=1), 50, seed=0)
    >>> [trace.name for trace in curves({"mine": run}).data if trace.name]
    ['mine']
    """
    drawn = figure(list(runs.values()), list(runs))
    drawn.update_layout(
        height=460,
        font={"family": FONT, "size": 14},
        margin={"t": 40, "l": 60, "r": 10, "b": 40},
        legend={"orientation": "h", "y": -0.2, "x": 0.5, "xanchor": "center", "yanchor": "top"},
        showlegend=len(runs) > 1,
    )
    if all((run.losses > 0).all() for run in runs.values()):
        drawn.update_yaxes(type="log", tickvals=LOSS_TICKS, row=1, col=1)
    return drawn


def networks(pictures: Sequence[Network]) -> go.Figure:
    """Networks side by side on one colour scale.

    >>> from gossamer import topology
    >>> pair = Network("pair", topology.complete(2), (0.5, 0.9), ("0", "1"), "accuracy")
    >>> [trace.mode for trace in networks([pair]).data]
    ['lines', 'markers+text']
    """
    from plotly.subplots import make_subplots

    drawn = make_subplots(rows=1, cols=len(pictures), subplot_titles=[picture.title for picture in pictures])
    for column, picture in enumerate(pictures, start=1):
        for trace in _nodes_and_links(picture):
            drawn.add_trace(trace, row=1, col=column)
        shown = {"visible": False, "range": [-1.15, 1.15]}
        drawn.update_xaxes(**shown, row=1, col=column)
        drawn.update_yaxes(
            **shown, row=1, col=column, scaleanchor=f"x{column if column > 1 else ''}", constrain="domain"
        )
    accuracy = pictures[0].meaning == "accuracy"
    scale = {"cmin": 0, "cmax": 1} if accuracy else {}
    bar = {"title": {"text": pictures[0].meaning}, "thickness": 14} | ({"tickformat": ".0%"} if accuracy else {})
    drawn.update_layout(
        template="plotly_white",
        height=360,
        showlegend=False,
        font={"family": FONT, "size": 14},
        margin={"t": 40, "l": 10, "r": 10, "b": 10},
        coloraxis={"colorscale": PALE, "colorbar": bar} | scale,
    )
    return drawn


def _nodes_and_links(picture: Network) -> list[Any]:
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
            "coloraxis": "coloraxis",
            "size": 21,
            "line": {"color": "#4a5563", "width": 1},
        },
        hovertext=[f"learner {i}: {picture.meaning} {value:.3f}" for i, value in enumerate(picture.values)],
        hoverinfo="text",
        cliponaxis=False,
    )
    return [links, nodes]
