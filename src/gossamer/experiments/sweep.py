"""`sweep`: an algorithm with every setting of a grid, as a table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError
from gossamer.experiments.cells import Cell, Metric, Result, told
from gossamer.experiments.claims import Estimate
from gossamer.experiments.drawing import Curve, Panel, draw
from gossamer.experiments.engine import Engine
from gossamer.experiments.measures import final_loss
from gossamer.experiments.page import csv_of
from gossamer.experiments.showing import curves, promise
from gossamer.experiments.store import Store
from gossamer.files import private_file
from gossamer.reports import Table
from gossamer.streams import Stream

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, repr=False)
class Sweep:
    """What came out: one result for each setting.

    Attributes:
        settings: in the order of the grid.
        results: of each.
    """

    settings: tuple[Mapping[str, Any], ...]
    results: tuple[Result, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """What was measured."""
        cell = self.results[0].cell
        return tuple(metric.word for metric in cell.metrics) if isinstance(cell, Cell) else ()

    def estimates(self, metric: str | None = None) -> list[Estimate]:
        """Of every setting; by default of the first metric."""
        return [result.estimate(metric or self.metrics[0]) for result in self.results]

    def best(self, metric: str | None = None, *, most: bool = False) -> Mapping[str, Any]:
        """The setting with the least mean, or with the most. Choosing it on private data is not covered by epsilon."""
        means = [found.mean * (-1 if most else 1) for found in self.estimates(metric)]
        return self.settings[means.index(min(means))]

    @property
    def table(self) -> Table:
        """One row for each setting: its options, all metrics at their ends, and the guarantee."""
        columns = (*self.settings[0], *self.metrics, "guarantee")
        rows = [
            (*map(_short, setting.values()), *(result.estimate(word).cell for word in self.metrics), promise(result))
            for setting, result in zip(self.settings, self.results, strict=True)
        ]
        return Table(columns, tuple(rows))

    def __str__(self) -> str:
        lines = [self.table.columns, *self.table.rows]
        widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

    def __repr__(self) -> str:
        return f"<Sweep: {len(self.settings)} settings, {', '.join(self.metrics)}>"

    def to_csv(self, path: str | Path) -> None:
        """Write one line for each setting and repetition: options, repetition, and all metrics at their ends.

        The file is as confidential as the data, and readable by its owner only.
        """
        rows = tuple(
            tuple(map(str, (*setting.values(), place, *values)))
            for setting, result in zip(self.settings, self.results, strict=True)
            for place, values in enumerate(zip(*(result.estimate(word).values for word in self.metrics), strict=True))
        )
        with private_file(Path(path)) as file:
            file.write(csv_of(Table((*self.settings[0], "repetition", *self.metrics), rows)).encode())

    def plot(self, metric: str | None = None) -> go.Figure:
        """A metric against the first option, a line for each setting of the others; or its curves, where it is one."""
        word = metric or self.metrics[0]
        names = {told(setting): result for setting, result in zip(self.settings, self.results, strict=True)}
        curved = [panel for panel in curves(names) if panel.title == word]
        if curved:
            return draw(curved)[0].figure
        first, *others = self.settings[0]
        lines: dict[str, list[tuple[float, Estimate]]] = {}
        for setting, found in zip(self.settings, self.estimates(word), strict=True):
            lines.setdefault(told({name: setting[name] for name in others}) or word, []).append((setting[first], found))
        drawn = tuple(_line_of(name, points) for name, points in lines.items())
        return draw([Panel(word, word, drawn, x=first)])[0].figure


def sweep(
    make: Callable[..., Algorithm],
    grid: Mapping[str, Sequence[Any]],
    stream: Stream,
    steps: int,
    *,
    seeds: Sequence[int],
    metrics: Sequence[Metric] | None = None,
    out: str | Path | None = None,
    say: Callable[[str], None] | None = None,
    **options: Any,
) -> Sweep:
    """Run an algorithm with every setting of a grid; those that differ in numbers only run in one program.

    Args:
        make: the algorithm, called with one value of every option of the grid by name.
        grid: the values of each option.
        stream: what all of them see.
        steps: samples per learner.
        seeds: of the noise: every setting runs with each of them.
        metrics: of `gossamer.experiments.measures`; by default the final loss.
        out: a directory that finished settings are kept in: started again, it goes on from there.
        say: told how far it is.
        options: `measure`, `every`, `test` and `points`, as for `Cell`.

    >>> from gossamer import Budget, algorithms, problems, streams, topology
    >>> def make(epsilon, step):
    ...     budget = Budget(epsilon)
    ...     return algorithms.pd_ogd(problems.Linear(3), topology.ring(4), budget=budget, clip=1.0, step=step)
    >>> data = streams.random_signs(4, 3, seed=1)
    >>> found = sweep(make, {"epsilon": (0.5, 4.0), "step": (0.01, 0.1)}, data, 100, seeds=range(3))
    >>> found
    <Sweep: 4 settings, final loss>
    >>> found.table.columns, found.best()["epsilon"]
    (('epsilon', 'step', 'final loss', 'guarantee'), 4.0)
    """
    if not grid or not all(len(list(values)) for values in grid.values()):
        hint = "try {'step': [0.1, 1.0]}"
        raise ConfigurationError("grid", dict(grid), "at least one option, each with at least one value", hint)
    settings = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    kept = tuple(metrics or (final_loss(),))
    cells = {
        place: Cell(told(setting), partial(make, **setting), lambda _: stream, steps, kept, tuple(seeds), **options)
        for place, setting in enumerate(settings)
    }
    found = Engine(Store(None if out is None else Path(out)), say).find(cells)
    return Sweep(tuple(settings), tuple(found[place] for place in range(len(settings))))


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _line_of(name: str, points: Sequence[tuple[float, Estimate]]) -> Curve:
    """Means with their intervals, in the order of the option."""
    ordered = sorted(points, key=lambda point: point[0])
    places, found = [float(place) for place, _ in ordered], [value for _, value in ordered]
    margins = [value.margin if len(value.values) > 1 else 0.0 for value in found]
    means = [value.mean for value in found]
    low, high = ([mean + side * off for mean, off in zip(means, margins, strict=True)] for side in (-1, 1))
    return Curve(name, places, means, low, high)
