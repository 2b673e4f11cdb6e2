"""What benchmarks share: time a call, print a table, play a few samples again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.problems import Block
from gossamer.streams import Stream


def seconds(run: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    begun = clock()
    run()
    return clock() - begun


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """The first column is left-aligned, all others are right-aligned."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    Console(width=120).print(table)


class Repeated(Stream):
    """The same samples again and again, without end: data that do not grow. Axes: x (step, learner, feature), y."""

    def __init__(self, x: NDArray[np.float32], y: NDArray[Any]) -> None:
        self._x, self._y = x, y
        self.learners, self.length, self.shared = x.shape[1], None, False
        self.features, self.occurrences, self.description = x.shape[2:], None, f"{len(x)} steps again and again"

    def _read(self, start: int, stop: int) -> Block:
        steps = np.arange(start, stop) % len(self._x)
        return Block(self._x[steps], self._y[steps])
