"""`gossamer sweep`: a run file with lists in place of numbers, every combination of them."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer.cli.config import Experiment, Varied, load_varied
from gossamer.cli.study import Processes, carry_out
from gossamer.errors import ConfigurationError
from gossamer.experiments import Cell, Metric, Section, Study, measures
from gossamer.experiments.cells import told
from gossamer.streams import Stream

TAKEN = ("steps", "seed", "seeds", "measure", "every")
CHOSEN = "Whoever chooses the best of these on private data spends privacy that no epsilon here counts."


def sweep_file(
    file: Annotated[Path, typer.Argument(help="A file as for `gossamer run`, with lists in place of numbers.")],
    out: Annotated[Path | None, typer.Option(help="Directory of the results; by default the file's name.")] = None,
    processes: Processes = 1,
) -> None:
    """Run a TOML file with lists in place of numbers: every combination.

    Lists may stand in [problem], [topology] and [algorithm]. Started again, it goes on where it was interrupted.
    """
    varied = load_varied(file)
    names = ", ".join(varied[0].setting)
    section = Section("sweep", f"{file.name}: every {names}", partial(cells_of, varied), notes=(CHOSEN,))
    command = ["gossamer", "sweep", str(file)]
    carry_out(Study(f"A sweep of {names}", [section]), out or Path(file.stem), None, command, processes=processes)


def cells_of(varied: list[Varied]) -> dict[str, Cell]:
    """A cell for every setting."""
    return {told(setting): _cell(told(setting), experiment) for setting, experiment in varied}


def _cell(name: str, experiment: Experiment) -> Cell:
    table, stream = dict(experiment.settings.table), experiment.stream
    for key, given in table.items():
        if key not in TAKEN:
            hint = "gossamer run takes it, for one setting"
            raise ConfigurationError(f"[simulate] {key}", given, f"the keys {', '.join(TAKEN)}", hint)
    seeds = table.pop("seeds", None) or [table.pop("seed")]

    def same(seed: int) -> Stream:
        return stream

    options: dict[str, Any] = {key: table[key] for key in ("measure", "every") if key in table}
    classifies = experiment.algorithm.problem.classifies
    metrics: list[Metric] = [measures.average_loss(), *([measures.late_accuracy()] if classifies else [])]
    return Cell(name, lambda: experiment.algorithm, same, table["steps"], metrics, seeds=tuple(seeds), **options)
