"""One HTML file: text, table, curves, networks, guarantees, and how to get it again. Needs nothing from outside."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import gossamer
from gossamer.errors import ConfigurationError
from gossamer.files import private_file
from gossamer.reports.figures import Network, curves, networks
from gossamer.reports.style import STYLE
from gossamer.reports.summary import Table
from gossamer.simulation import Run

if TYPE_CHECKING:
    import plotly.graph_objects as go

LIBRARIES = ("jax", "numpy", "scipy", "networkx", "plotly")
BANDS = "Lines are means over the learners, bands reach from the worst to the best learner."


@dataclass(frozen=True)
class Report:
    """What was run, for people.

    Attributes:
        title: the first line.
        introduction: what the reader is looking at, paragraph by paragraph.
        table: the numbers.
        runs: the runs behind the table, by the name they have in it.
        networks: pictures to draw; may be empty.
        caption: what the pictures show.
        notes: what must be known to judge the numbers.
        command: what reproduces the report.
    """

    title: str
    introduction: tuple[str, ...]
    table: Table
    runs: Mapping[str, Run]
    networks: tuple[Network, ...]
    caption: str
    notes: tuple[str, ...]
    command: str

    def html(self) -> str:
        """The page."""
        require_plotly()
        parts = [f"<h1>{escape(self.title)}</h1>", *map(paragraph, self.introduction)]
        parts += ["<h2>Results</h2>", _table(self.table), *map(caption, self.notes)]
        parts += ["<h2>Over time</h2>", figure_block(curves(self.runs), first=True), caption(BANDS)]
        if self.networks:
            parts += ["<h2>The network</h2>", figure_block(networks(self.networks)), caption(self.caption)]
        parts += ["<h2>Guarantees</h2>", _guarantees(self.runs)]
        parts += ["<h2>What ran</h2>", *(f"<pre>{escape(run.algorithm)}</pre>" for run in self.runs.values())]
        parts += ["<h2>Again</h2>", f"<pre>{escape(self.command)}</pre>", f"<footer>{escape(versions())}</footer>"]
        return html_page(self.title, "\n".join(parts))

    def write(self, path: Path) -> Path:
        """Write the page, readable by its owner only, and say where it is."""
        with private_file(path) as file:
            file.write(self.html().encode())
        return path.resolve()


def require_plotly() -> None:
    """Refuse early, before anything runs, where a report cannot be drawn.

    >>> require_plotly()
    """
    if find_spec("plotly") is None:
        raise ConfigurationError("report", "no plotly", "an installed plotly", "run: pip install 'gossamer[report]'")


def versions() -> str:
    """Python and the libraries behind the numbers.

    >>> versions()
    'Gossamer ..., Python 3..., jax ..., plotly ...'
    """
    own = [f"Gossamer {gossamer.__version__}", f"Python {platform.python_version()}"]
    return ", ".join([*own, *(f"{name} {version(name)}" for name in LIBRARIES)])


def html_page(title: str, body: str) -> str:
    """A whole page in the style of all reports.

    >>> html_page("A title", "<p>text</p>").startswith("<!doctype html>")
    True
    """
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    style = f"<title>{escape(title)}</title><style>{STYLE}</style>"
    return f'<!doctype html>\n<html lang="en"><head>{head}{style}</head>\n<body>\n{body}\n</body></html>\n'


def paragraph(text: str) -> str:
    """Text as a paragraph.

    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    return f"<p>{escape(text)}</p>"


def caption(text: str) -> str:
    """Text below a figure or a table.

    >>> caption("who is good")
    '<p class="caption">who is good</p>'
    """
    return f'<p class="caption">{escape(text)}</p>'


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in table.rows)
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table>"


def _guarantees(runs: Mapping[str, Run]) -> str:
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="words">{escape(run.guarantee.sentence())}</td></tr>\n'
        for name, run in runs.items()
    )
    return f"<table><tbody>{rows}</tbody></table>"


def figure_block(drawn: go.Figure, *, first: bool = False) -> str:
    """The figure as a block of the page; the first one brings the library with it."""
    config = {"displayModeBar": False, "responsive": True}
    block = drawn.to_html(full_html=False, include_plotlyjs=first, config=config)
    return f'<div class="figure">{block}</div>'
