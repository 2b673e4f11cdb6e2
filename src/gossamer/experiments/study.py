"""A study: sections of cells with their claims, figures and tables; run, it becomes a page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.errors import ConfigurationError
from gossamer.experiments.cells import Entry
from gossamer.experiments.claims import RULES, Claim, one_column, verdicts_table
from gossamer.experiments.engine import Engine, Found
from gossamer.experiments.page import Page, Part, claims_part
from gossamer.experiments.showing import curves, evidence, raw, table_of

Cells = Mapping[Any, Entry]


@dataclass(frozen=True)
class Asked:
    """What somebody who runs a study may choose.

    Attributes:
        quick: few rounds and small grids.
        data: directory of the data; None: as `gossamer.data` finds them.
        stand_in: run on data that need no files.
    """

    quick: bool = False
    data: Path | None = None
    stand_in: bool = False


@dataclass(frozen=True)
class Section:
    """Cells, and what they are for.

    Attributes:
        name: of its table as a file.
        heading: on the page.
        cells: makes them, by keys of your choice; called only where the section is asked for.
        figure: of the paper that it belongs to; None: it is part of the whole only.
        text: paragraphs before what is shown, or makes them of the results.
        claims: what is claimed about the results.
        parts: what is shown; None: a table of all metrics, and their curves.
        notes: below what is shown.
    """

    name: str
    heading: str
    cells: Callable[[], Cells]
    figure: int | None = None
    text: tuple[str, ...] = ()
    claims: Callable[[Found], Sequence[Claim]] | None = None
    parts: Callable[[Found], Sequence[Part]] | None = None
    notes: tuple[str, ...] = ()

    def shown(self, found: Found) -> Sequence[Part]:
        """Its parts of the page."""
        if self.parts is not None:
            return self.parts(found)
        results = {str(key): result for key, result in found.items()}
        return [Part(self.name, self.heading, self.text, curves(results), table_of(results), self.notes)]


@dataclass(frozen=True)
class Study:
    """Experiments that answer questions: sections, and the rules by which claims hold.

    Attributes:
        title: the first line of the page.
        sections: all of them.
        introduction: what the reader is looking at.
        rules: by which claims hold.
        closing: parts at the end that need no cells, such as how it was run.
    """

    title: str
    sections: Sequence[Section]
    introduction: tuple[str, ...] = ()
    rules: tuple[str, ...] = (RULES,)
    closing: Sequence[Part] = ()

    @property
    def figures(self) -> tuple[int, ...]:
        """Those that can be asked for."""
        return tuple(sorted({section.figure for section in self.sections if section.figure is not None}))

    def asked(self, figure: int | None = None) -> Sequence[Section]:
        """The sections of a figure, or all."""
        if figure is None:
            return self.sections
        if figure not in self.figures:
            allowed = f"one of the figures {', '.join(map(str, self.figures))}" if self.figures else "no figure"
            raise ConfigurationError("--figure", figure, allowed, "leave it out to run everything")
        return [section for section in self.sections if section.figure == figure]

    def run(self, engine: Engine | None = None, figure: int | None = None, command: str = "") -> Page:
        """Compute all cells, or read them, and write down what comes out.

        Args:
            engine: computes cells; by default one that keeps them in memory.
            figure: only what belongs to this figure of a paper.
            command: what does it again.
        """
        engine = engine or Engine()
        sections = self.asked(figure)
        cells = {(place, key): entry for place, one in enumerate(sections) for key, entry in one.cells().items()}
        everything = engine.find(cells)
        claims: list[Claim] = []
        parts: list[Part] = []
        for place, section in enumerate(sections):
            found = {key[1]: result for key, result in everything.items() if key[0] == place}
            claims += section.claims(found) if section.claims else []
            parts += section.shown(found)
        table = [claims_part(claims, self.rules)] if claims else []
        shown = [*table, *parts, *self.closing, evidence(engine)]
        return Page(self.title, self.introduction, verdicts_table(one_column(claims)), shown, raw(engine), command)
