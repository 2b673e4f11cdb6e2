"""The numbers of a run that people compare, and tables of them for terminals and pages alike."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias, TypeVar

from gossamer.metrics.summary import Summary, last_tenth, numbers_in_words, percent, spread_in_words, summarize
from gossamer.simulation import Run

Row = TypeVar("Row")
Columns: TypeAlias = Mapping[str, Callable[[Row], object]]
"""Of a table: what each says about a row."""

__all__ = ["Columns", "Summary", "Table", "last_tenth", "percent", "summarize", "summary_table"]


@dataclass(frozen=True)
class Table:
    """A table of finished texts, so that a terminal and a page show the same digits.

    >>> Table(("algorithm", "loss"), (("d_ogd", "0.31"),)).rows[0]
    ('d_ogd', '0.31')
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, columns: Columns[Row], rows: Iterable[Row]) -> Self:
        """From what each column says about a row.

        >>> Table.of({"number": lambda number: number, "square": lambda number: number**2}, (2, 3)).rows
        (('2', '4'), ('3', '9'))
        """
        return cls(tuple(columns), tuple(tuple(str(cell(row)) for cell in columns.values()) for row in rows))


def summary_table(run: Run) -> Table:
    """One line per number, the guarantee last.

    >>> from gossamer import algorithms, problems, simulate, streams, topology
    >>> algorithm = algorithms.d_ogd(problems.Linear(3), topology.ring(4), step=0.1)
    >>> run = simulate(algorithm, streams.random_signs(4, 3, seed=1), 50, seed=0)
    >>> summary_table(run).rows[-1]
    ('guarantee', 'No privacy guarantee: messages and decisions are functions of raw gradients.')
    """
    rows = [("steps (samples per learner)", f"{run.steps[-1]:,}")]
    rows += numbers_in_words(run).items()
    rows += [("±", spread)] if (spread := spread_in_words(run)) else []
    rows += [
        ("messages sent", f"{run.messages:,}"),
        ("bytes sent", f"{run.bytes:,}"),
        ("seconds", f"{run.wall_time:.1f}"),
        ("guarantee", run.guarantee.sentence()),
    ]
    return Table((run.name, f"{run.measure} measure"), tuple(rows))
