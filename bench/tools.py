"""What every benchmark does: time a call, and print a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table


def seconds(run: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    begun = clock()
    run()
    return clock() - begun


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """The first column is left-aligned, all others are right-aligned."""
    table = Table(title=title)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    Console(width=120).print(table)
