"""`gossamer reproduce`: the experiments of a paper again, with its claims checked."""

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from gossamer.cli.study import Data, Figure, Full, Processes, Quick, StandIn, asked_for, carry_out, options_of
from gossamer.errors import ConfigurationError
from gossamer.experiments import papers

PAPERS = ("000", "001", "002", "003", "004")


def reproduce(
    paper: Annotated[str, typer.Argument(help="The number of a paper: 000, 001, 002, 003 or 004.")],
    figure: Figure = None,
    quick: Quick = False,
    full: Full = False,
    data: Data = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the results; by default gossamer-PAPER.")] = None,
    stand_in: StandIn = False,
    processes: Processes = 1,
) -> None:
    """Run the experiments of a paper.

    Started again with the same --out, it goes on where it was interrupted.
    """
    if paper not in PAPERS:
        raise ConfigurationError("paper", paper, " or ".join(map(repr, PAPERS)), "others are not reproduced yet")
    asked = asked_for(quick, full, data, stand_in)
    study = import_module(f"{papers.__name__}.paper_{paper}").study(asked)
    command = ["gossamer", "reproduce", paper, *options_of(figure, quick, stand_in)]
    carry_out(study, out or Path(f"gossamer-{paper}"), figure, command, data, processes)
