"""One HTML file: text, tables, curves, networks, guarantees, and how to get it again. Needs nothing from outside."""

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import gossamer
from gossamer.errors import ConfigurationError
from gossamer.files import private_file
from gossamer.reports.blocks import caption, colours, gallery, heading, html_page, legend, paragraph, table_block
from gossamer.reports.figures import Network, curves, networks, scale_of, strokes
from gossamer.reports.summary import Table
from gossamer.simulation import Run
from gossamer.simulation.plot import bands

LIBRARIES = ("jax", "numpy", "scipy", "networkx", "plotly")
CONFIDENTIAL = (
    "This page contains exact functions of the data: treat it like the data. Only you can read the file (mode 600)."
)
PUBLIC = "The data behind this page are public, and so is the page: everybody may read the file (mode 644)."


@dataclass(frozen=True)
class Part:
    """One setting of a report, with its own numbers, curves, networks and guarantees; all but the title may be empty.

    Attributes:
        title: its heading.
        introduction: what the setting is, paragraph by paragraph.
        table: the numbers.
        runs: the runs behind the table, by the name they have in it.
        networks: pictures to draw.
        caption: what the pictures show.
        notes: what must be known to judge the numbers.

    >>> Part("Sixteen learners on a ring", ("Each sees one digit.",)).table is None
    True
    """

    title: str
    introduction: tuple[str, ...] = ()
    table: Table | None = None
    runs: Mapping[str, Run] = field(default_factory=dict)
    networks: tuple[Network, ...] = ()
    caption: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report(Part):
    """What was run, for people: one setting, whose title is the first line of the page, and perhaps further ones.

    Attributes:
        command: what reproduces the report.
        parts: further settings, each below a heading of its own.
        public: whether the data are public; otherwise the page is as confidential as they are.
    """

    table: Table
    command: str
    parts: tuple[Part, ...] = ()
    public: bool = False

    def html(self) -> str:
        """The page."""
        require_plotly()
        blocks = [heading(1, self.title), *map(paragraph, self.introduction), readers(public=self.public)]
        blocks += _sections(self, level=2)
        for part in self.parts:
            blocks += [heading(2, part.title), *map(paragraph, part.introduction), *_sections(part, level=3)]
        blocks += again(self.command)
        return html_page(self.title, "\n".join(blocks))

    def write(self, path: Path) -> Path:
        """Write the page, readable by its owner only unless the data are public, and say where it is."""
        with private_file(path) as file:
            file.write(self.html().encode())
        if self.public:
            path.chmod(0o644)
        return path.resolve()


def require_plotly() -> None:
    """Refuse early, before anything runs, where a report cannot be drawn.

    >>> require_plotly()
    """
    if find_spec("plotly") is None:
        raise ConfigurationError("report", "no plotly", "an installed plotly", "run: pip install 'gossamer[report]'")


def readers(text: str = CONFIDENTIAL, *, public: bool = False) -> str:
    """Who may read the page.

    >>> readers(public=True)
    '<p class="readers">The data behind this page are public, ... (mode 644).</p>'
    """
    return f'<p class="readers">{escape(PUBLIC if public else text)}</p>'


def again(command: str) -> list[str]:
    """The end of a page: the command behind it, and versions.

    >>> again("gossamer run a.toml")[1]
    '<pre>gossamer run a.toml</pre>'
    """
    return [heading(2, "Run it again"), f"<pre>{escape(command)}</pre>", f"<footer>{escape(versions())}</footer>"]


def versions() -> str:
    """Python and the libraries behind the numbers.

    >>> versions()
    'Gossamer ..., Python 3..., jax ..., plotly ...'
    """
    own = [f"Gossamer {gossamer.__version__}", f"Python {platform.python_version()}"]
    return ", ".join([*own, *(f"{name} {version(name)}" for name in LIBRARIES)])


def _sections(part: Part, level: int) -> list[str]:
    blocks = []
    if part.table is not None:
        blocks += [heading(level, "Results"), table_block(_without_guarantees(part.table, part.runs))]
    blocks += map(caption, part.notes)
    if part.runs:
        sentences = {name: run.guarantee.sentence() for name, run in part.runs.items()}
        blocks += [heading(level, "Guarantee"), *_each_once(paragraph, sentences)]
        blocks += [heading(level, "Over time"), gallery(curves(part.runs))]
        if len(part.runs) > 1:
            blocks.append(legend(strokes(list(part.runs))))
        blocks += _each_once(caption, {name: bands(run) for name, run in part.runs.items()})
    if part.networks:
        blocks += [heading(level, "The network"), gallery(networks(part.networks), small=True)]
        blocks += [colours(scale_of(part.networks)), caption(part.caption)]
    if part.runs:
        blocks += [heading(level, "What ran"), *(f"<pre>{escape(_settings(run))}</pre>" for run in part.runs.values())]
    return blocks


def _without_guarantees(table: Table, runs: Mapping[str, Run]) -> Table:
    """The table without the rows that repeat a guarantee: it has a section of its own."""
    sentences = {run.guarantee.sentence() for run in runs.values()}
    return Table(table.columns, tuple(row for row in table.rows if sentences.isdisjoint(row)))


def _each_once(block: Callable[[str, str], str], texts: Mapping[str, str]) -> list[str]:
    """Every text once, as a block; where texts differ, with the names that each is about."""
    names: dict[str, list[str]] = {}
    for name, text in texts.items():
        names.setdefault(text, []).append(name)
    return [block(text, ", ".join(who) if len(names) > 1 else "") for text, who in names.items()]


def _settings(run: Run) -> str:
    """What ran, without the guarantee that the page tells elsewhere."""
    return "\n".join(line for line in run.algorithm.splitlines() if not line.startswith("  guarantee: "))
