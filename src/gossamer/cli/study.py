"""`gossamer study`: the experiments that a Python file declares; and what `gossamer reproduce` does with its own."""

import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gossamer.cli.out import report_directory
from gossamer.cli.show import say, show
from gossamer.cli.stopping import stopped
from gossamer.errors import ConfigurationError, DataError
from gossamer.experiments import Asked, Engine, Store, Study

Figure = Annotated[int | None, typer.Option(help="Only what this figure needs.")]
Quick = Annotated[bool, typer.Option("--quick", help="Few rounds and small grids: minutes, not hours.")]
Full = Annotated[bool, typer.Option("--full", help="Everything at its own size; so it is without --quick.")]
Data = Annotated[Path | None, typer.Option(help="Directory of the data; by default GOSSAMER_DATA.")]
StandIn = Annotated[bool, typer.Option("--stand-in", help="Small data of scikit-learn: needs no files.")]
Processes = Annotated[int, typer.Option(min=1, help="So many processes share the cells; each compiles for itself.")]


def study_file(
    file: Annotated[Path, typer.Argument(help="A Python file that defines `study`.")],
    figure: Figure = None,
    quick: Quick = False,
    full: Full = False,
    data: Data = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the results; by default the file's name.")] = None,
    stand_in: StandIn = False,
    processes: Processes = 1,
) -> None:
    """Run the study that a Python file declares.

    `study` is a gossamer.experiments.Study, or a function that makes one from an Asked. Started again with the same
    --out, it goes on where it was interrupted.
    """
    options = options_of(figure, quick, stand_in)
    study = declared(file, asked_for(quick, full, data, stand_in))
    carry_out(study, out or Path(file.stem), figure, ["gossamer", "study", str(file), *options], data, processes)


def asked_for(quick: bool, full: bool, data: Path | None, stand_in: bool) -> Asked:
    """What a command asks of a study.

    >>> asked_for(True, False, None, True)
    Asked(quick=True, data=None, stand_in=True)
    """
    if quick and full:
        raise ConfigurationError("--full", "and --quick", "one of the two", "leave --quick out")
    return Asked(quick, data, stand_in)


def declared(file: Path, asked: Asked) -> Study:
    """The study of a file."""
    if not file.is_file():
        raise ConfigurationError("FILE", str(file), "a Python file that defines `study`", "there is no such file")
    found: Any = runpy.run_path(str(file)).get("study")
    study = found(asked) if callable(found) and not isinstance(found, Study) else found
    if not isinstance(study, Study):
        hint = "write study = Study(...), or def study(asked): ... that returns one"
        raise ConfigurationError("FILE", str(file), "a Python file that defines `study`", hint)
    return study


def carry_out(
    study: Study, out: Path, figure: int | None, command: list[str], data: Path | None = None, processes: int = 1
) -> None:
    """Run a study, alone or with other processes on the same store in `out`, and say what came out.

    `command` does it again; where the data are is left to the reader.
    """
    study.asked(figure)
    cells, log = report_directory(out, "cells"), Console(stderr=True)
    engine = Engine(Store(cells), lambda line: say(log, line))
    places = ["--out", str(out), *(["--data", str(data)] if data else [])]
    others = [
        subprocess.Popen(
            [sys.executable, "-m", *command, *places], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(processes - 1)
    ]
    try:
        page = study.run(engine, figure, shlex.join(command))
    except KeyboardInterrupt:
        there = len(list(cells.glob("*.json")))
        stopped(f"{there:,} cell{'s' * (there != 1)} kept in {cells}: the same command goes on from there.")
    finally:
        for other in others:
            other.terminate()
            other.wait()
    console = Console()
    shown = page.verdicts if page.verdicts.rows else page.parts[0].table
    if shown is not None:
        show(console, shown, words=True)
    reused = len(engine.used) - engine.computed
    try:
        with engine.store.turn("page"):
            report = page.write(out)
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error}. All cells are kept: start again") from None
    say(console, f"{engine.computed} cells were run, {reused} were there already. Report: {report}")


def options_of(figure: int | None, quick: bool, stand_in: bool) -> list[str]:
    """What a command was given besides places.

    >>> options_of(3, True, False)
    ['--figure', '3', '--quick']
    """
    return ["--figure", str(figure)] * (figure is not None) + ["--quick"] * quick + ["--stand-in"] * stand_in
