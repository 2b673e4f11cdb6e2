"""`gossamer reproduce`: the experiments of a paper again, with its claims checked."""

import shlex
import time
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gossamer.cli.out import report_directory
from gossamer.cli.show import say, show
from gossamer.cli.stopping import stopped
from gossamer.cli.study import carry_out, options_of
from gossamer.errors import ConfigurationError
from gossamer.experiments import Asked as AskedStudy
from gossamer.reproduction import Asked, Store

PAPERS = ("000", "001", "002", "003", "004")


def reproduce(
    paper: Annotated[str, typer.Argument(help="The number of a paper: 000, 001, 002, 003 or 004.")],
    figure: Annotated[int | None, typer.Option(help="Only what this figure of the paper needs.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few rounds and small grids: minutes, not hours.")] = False,
    data: Annotated[Path | None, typer.Option(help="Directory of the data; by default GOSSAMER_DATA.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the results; by default gossamer-PAPER.")] = None,
    stand_in: Annotated[bool, typer.Option("--stand-in", help="Small data of scikit-learn: needs no files.")] = False,
) -> None:
    """Run the experiments of a paper.

    Started again with the same --out, it goes on where it was interrupted.
    """
    if paper not in PAPERS:
        raise ConfigurationError("paper", paper, " or ".join(map(repr, PAPERS)), "others are not reproduced yet")
    if find_spec(f"gossamer.experiments.papers.paper_{paper}"):
        study = import_module(f"gossamer.experiments.papers.paper_{paper}").study(AskedStudy(quick, data, stand_in))
        words = ["gossamer", "reproduce", paper, *options_of(figure, quick, stand_in)]
        carry_out(study, out or Path(f"gossamer-{paper}"), figure, words, data)
        return
    module = import_module(f"gossamer.reproduction.paper_{paper}")
    if figure is not None and figure not in module.FIGURES:
        allowed = f"one of the figures {', '.join(map(str, module.FIGURES))}"
        raise ConfigurationError("--figure", figure, allowed, "leave it out to run everything")
    out = out or Path(f"gossamer-{paper}")
    console, log = Console(), Console(stderr=True)
    store = Store(
        report_directory(out, "cells"), lambda name: say(log, f"{progress.line(len(store.used))}: {name} ...")
    )
    figures = module.FIGURES if figure is None else (figure,)
    progress = Progress(len(figures))
    plan, command = module.QUICK if quick else module.FULL, _command(paper, figure, quick, stand_in)
    asked = Asked(store, plan, figure, data, stand_in, command)
    try:
        for number in figures:  # first what each figure needs, to know how far it is; the page then finds it all
            module.reproduce(replace(asked, figure=number))
            progress.done += 1
        page = module.reproduce(asked)
    except KeyboardInterrupt:
        stopped(f"{_counted(len(store.used))} kept in {store.directory}: the same command goes on from there.")
    show(console, page.verdicts, words=True)
    reused = len(store.used) - store.computed
    say(console, f"{store.computed} cells were run, {reused} were there already. Report: {page.write(out)}")


@dataclass
class Progress:
    """How far a reproduction is: by figures, since which cells a search needs depends on those before.

    >>> progress = Progress(5, done=2, begun=time.monotonic() - 200)
    >>> progress.line(12)
    '2 of 5 figures and 12 cells done in 3:20, about 5 minutes left, now'
    """

    figures: int
    done: int = 0
    begun: float = field(default_factory=time.monotonic)

    def line(self, cells: int) -> str:
        """What is done, and how long the rest takes if all figures take as long."""
        spent = time.monotonic() - self.begun
        minutes, seconds = divmod(round(spent), 60)
        left = spent / self.done * (self.figures - self.done) / 60 if self.done else None
        soon = "" if left is None else f"about {left:.0f} minutes left, " if left >= 1.5 else "about a minute left, "
        return f"{self.done} of {self.figures} figures and {_counted(cells)} done in {minutes}:{seconds:02}, {soon}now"


def _counted(cells: int) -> str:
    return f"{cells:,} cell{'s' * (cells != 1)}"


def _command(paper: str, figure: int | None, quick: bool, stand_in: bool) -> str:
    """What does it again; where the data are is left to the reader."""
    options = [f"--figure {figure}"] if figure is not None else []
    options += ["--quick"] * quick + ["--stand-in"] * stand_in
    return shlex.join(["gossamer", "reproduce", paper]) + "".join(f" {option}" for option in options)
