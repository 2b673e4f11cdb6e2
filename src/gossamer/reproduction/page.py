"""What a reproduction leaves: one HTML page, every table as CSV, every number as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.files import private_file
from gossamer.reports import Table
from gossamer.reports.html import caption, figure_block, html_page, paragraph, versions
from gossamer.reproduction.drawing import Panel, draw

if TYPE_CHECKING:
    import plotly.graph_objects as go

COLOURS = {"holds": "#1b7f5c", "does not hold": "#b3263a", "not resolved": "#8a6100", "not run": "#66717e"}
"""Of verdicts."""


@dataclass(frozen=True)
class Part:
    """A section of the page.

    Attributes:
        name: of its table as a file.
        heading: above it.
        text: paragraphs before the figure and the table.
        panels: of its figure; drawn when the page is written, so that what leads to it needs no plotly.
        table: numbers; None for none.
        notes: below both.

    >>> Part("claims", "What we measured", table=Table(("claim", "verdict"), ())).figure is None
    True
    """

    name: str
    heading: str
    text: tuple[str, ...] = ()
    panels: tuple[Panel, ...] = ()
    table: Table | None = None
    notes: tuple[str, ...] = ()

    @property
    def figure(self) -> go.Figure | None:
        """The picture; None where there are no panels."""
        return draw(self.panels) if self.panels else None


@dataclass(frozen=True)
class Page:
    """A reproduction, for people and for programs.

    Attributes:
        title: the first line.
        introduction: what the reader is looking at.
        verdicts: what came out, in short, for a terminal.
        parts: the sections.
        raw: every setting with its numbers.
        command: what does it again.

    >>> nothing = Table(("in the paper", "claim"), ())
    >>> "<h1>Paper 000" in Page("Paper 000", (), nothing, [], {}, "gossamer reproduce 000").html()
    True
    """

    title: str
    introduction: tuple[str, ...]
    verdicts: Table
    parts: Sequence[Part]
    raw: Mapping[str, Any]
    command: str

    def html(self) -> str:
        """The page."""
        blocks = [f"<h1>{escape(self.title)}</h1>", *map(paragraph, self.introduction)]
        first = True
        for part in self.parts:
            blocks += [f"<h2>{escape(part.heading)}</h2>", *map(paragraph, part.text)]
            if (figure := part.figure) is not None:
                blocks.append(figure_block(figure, first=first))
                first = False
            if part.table is not None:
                blocks.append(_words(part.table))
            blocks += map(caption, part.notes)
        blocks += ["<h2>Again</h2>", f"<pre>{escape(self.command)}</pre>", f"<footer>{escape(versions())}</footer>"]
        return html_page(self.title, "\n".join(blocks))

    def write(self, out: Path) -> Path:
        """Write `report.html`, `tables/*.csv` and `raw.json` into a directory; gives the path of the page.

        All of them are as confidential as the data, and readable by their owner only.
        """
        (out / "tables").mkdir(parents=True, exist_ok=True)
        texts = {f"tables/{part.name}.csv": _csv(part.table) for part in self.parts if part.table is not None}
        texts |= {"raw.json": json.dumps(self.raw, indent=1, allow_nan=False), "report.html": self.html()}
        for name, text in texts.items():
            with private_file(out / name) as file:
                file.write(text.encode())
        return (out / "report.html").resolve()


def _csv(table: Table) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([table.columns, *table.rows])
    return text.getvalue()


def _words(table: Table) -> str:
    """A table of words: left-aligned, and every cell wraps."""
    head = "".join(f'<th style="text-align:left">{escape(column)}</th>' for column in table.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in table.rows)
    return f'<table style="font-size:.88rem"><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table>'


def _cell(text: str) -> str:
    colour = f";color:{COLOURS[text]};font-weight:600" if text in COLOURS else ""
    return f'<td class="words" style="white-space:normal;vertical-align:top{colour}">{escape(text)}</td>'
