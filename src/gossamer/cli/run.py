"""`gossamer run`: the simulation that a file describes."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gossamer.cli import doubts
from gossamer.cli.config import Experiment, load
from gossamer.cli.out import report_directory
from gossamer.cli.show import say, show, warn
from gossamer.cli.stopping import stopped
from gossamer.reports import Report, network_of, summary_table
from gossamer.simulation import Run


def run_file(
    file: Annotated[Path, typer.Argument(help="A TOML file: see examples/.")],
    out: Annotated[Path | None, typer.Option(help="Save the run and an HTML report in this directory.")] = None,
    steps: Annotated[int | None, typer.Option(help="Samples per learner, instead of those in the file.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the noise, instead of that in the file.")] = None,
) -> None:
    """Run the simulation that a TOML file describes."""
    experiment = load(file, steps=steps, seed=seed)
    if out is not None:
        report_directory(out)
    console = Console()
    warn(*doubts.about_privacy(experiment.algorithm.guarantee), *doubts.about_labels(experiment.only_label))
    say(console, experiment.algorithm.describe())
    say(console, f"  data: {experiment.stream.description}")
    run = _run(experiment)
    show(console, summary_table(run), words=True)
    warn(*doubts.about_learning(run, experiment.algorithm.problem, experiment.stream))
    if out is not None:
        run.save(out)
        report = _report(file, experiment, run, steps).write(out / "report.html")
        say(console, f"Saved in {out}. Report: {report}")


def _run(experiment: Experiment) -> Run:
    """The run; where it is stopped, whoever stopped it hears what was kept."""
    try:
        return experiment.run()
    except KeyboardInterrupt:
        kept = experiment.settings.table.get("checkpoint")
        there = kept is not None and Path(kept).exists()
        stopped(f"{kept} is kept: the same command goes on from there." if there else "Nothing was saved.")


def _report(file: Path, experiment: Experiment, run: Run, steps: int | None) -> Report:
    picture = network_of(run, experiment.algorithm.graph)
    override = "" if steps is None else f" --steps {steps}"
    return Report(
        title=f"{run.name} on {experiment.algorithm.topology.name}",
        introduction=(f"Gossamer simulated {run.name} as {file.name} describes it: {experiment.stream.description}.",),
        table=summary_table(run),
        runs={run.name: run},
        networks=() if picture is None else (picture,),
        caption="One node per learner, with its number, coloured by how well it did.",
        notes=("The seed is not part of this page: seed and messages together are the raw data.",),
        command=f"gossamer run {shlex.quote(str(file))}{override}",
    )
