"""What a study leaves: one HTML page, every table as CSV, every number as JSON."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from gossamer.experiments.claims import RULES, Claim, claims_table
from gossamer.experiments.drawing import Panel, draw, looks_of
from gossamer.files import private_file
from gossamer.reports import Table
from gossamer.reports.blocks import caption, gallery, heading, html_page, legend, paragraph, table_block
from gossamer.reports.figures import Picture
from gossamer.reports.html import again, readers, versions

CLASSES = {"holds": "good", "does not hold": "bad", "not resolved": "open", "not run": "quiet"}
"""Of verdicts, in the style of the page."""
CONFIDENTIAL = (
    "This page, raw.json and the tables beside it contain exact functions of the data: treat them like the data. Only "
    "you can read these files (mode 600)."
)


@dataclass(frozen=True)
class Part:
    """A section of the page.

    Attributes:
        name: of its table as a file.
        heading: above it.
        text: paragraphs before the figure and the table.
        panels: its pictures; drawn when the page is written, so that whatever leads to it needs no plotly.
        table: numbers; None for none.
        notes: below both.

    >>> Part("claims", "What we measured", table=Table(("claim", "verdict"), ())).pictures
    []
    """

    name: str
    heading: str
    text: tuple[str, ...] = ()
    panels: tuple[Panel, ...] = ()
    table: Table | None = None
    notes: tuple[str, ...] = ()

    @property
    def pictures(self) -> list[Picture]:
        """The panels, drawn."""
        return draw(self.panels)

    def html(self) -> str:
        """The section."""
        blocks = [heading(2, self.heading), *map(paragraph, self.text)]
        if self.panels:
            blocks += [gallery(self.pictures), legend(looks_of(self.panels))]
        if self.table is not None:
            blocks.append(table_block(self.table, CLASSES))
        return "\n".join([*blocks, *map(caption, self.notes)])


def claims_part(
    claims: Sequence[Claim],
    rules: Sequence[str] = (RULES,),
    title: str = "What the paper says, and what we measured",
    name: str = "claims",
) -> Part:
    """The section of claims, after the rules by which they hold.

    >>> claims_part([Claim("A is below B", "Figure 1", {})]).table.columns
    ('claim', 'in the paper')
    """
    return Part(name, title, tuple(rules), table=claims_table(claims))


@dataclass(frozen=True)
class Page:
    """What came out of a study, for people and for programs.

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
        blocks = [heading(1, self.title), *map(paragraph, self.introduction), readers(CONFIDENTIAL)]
        blocks += [part.html() for part in self.parts]
        return html_page(self.title, "\n".join([*blocks, *again(self.command)]))

    def markdown(self) -> str:
        """The claims with what was measured, when and with what, for pages of documentation."""
        said = f"Computed on {date.today():%Y-%m-%d} by `{self.command}` with {versions()}."
        tables = [part.table for part in self.parts if part.name == "claims" and part.table is not None]
        return "\n\n".join([f"# {self.title}", said, *map(markdown_of, tables)]) + "\n"

    def write(self, out: Path) -> Path:
        """Write `report.html`, `claims.md`, `tables/*.csv` and `raw.json` into a directory; gives the path of the page.

        All of them are as confidential as the data, and readable by their owner only.
        """
        (out / "tables").mkdir(parents=True, exist_ok=True)
        texts = {f"tables/{part.name}.csv": csv_of(part.table) for part in self.parts if part.table is not None}
        texts |= {"claims.md": self.markdown()}
        texts |= {"raw.json": json.dumps(self.raw, indent=1, allow_nan=False), "report.html": self.html()}
        for name, text in texts.items():
            with private_file(out / name) as file:
                file.write(text.encode())
        return (out / "report.html").resolve()


def markdown_of(table: Table) -> str:
    """A table for pages of documentation.

    >>> print(markdown_of(Table(("run", "loss"), (("mine", "0.31"),))))
    | run | loss |
    | --- | --- |
    | mine | 0.31 |
    """
    rows = (table.columns, ("---",) * len(table.columns), *table.rows)
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


def csv_of(table: Table) -> str:
    r"""A table as a file that spreadsheets read.

    >>> csv_of(Table(("run", "loss"), (("mine", "0.31"),)))
    'run,loss\r\nmine,0.31\r\n'
    """
    text = io.StringIO(newline="")
    csv.writer(text).writerows([table.columns, *table.rows])
    return text.getvalue()
