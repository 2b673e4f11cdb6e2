"""The commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

import gossamer
from gossamer import data
from gossamer.algorithms import REGISTRY
from gossamer.cli.audit import audit_command, guarantee_of
from gossamer.cli.calibrate import calibrate
from gossamer.cli.config import Experiment, load
from gossamer.cli.demo import INTRODUCTION, play
from gossamer.cli.ledger import ledger
from gossamer.cli.network import network, run_node
from gossamer.cli.reproduce import reproduce
from gossamer.cli.show import say, show
from gossamer.errors import ConfigurationError, GossamerError
from gossamer.reports import Report, Table, network_of, require_plotly, summary_table
from gossamer.simulation import Run


class Commands(TyperGroup):
    """All commands; what Gossamer refuses becomes one line on standard error and exit status 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was given."""
        try:
            return super().invoke(ctx)
        except GossamerError as error:
            line = Text.assemble(("error: ", "bold red"), str(error))
            Console(stderr=True).print(line, soft_wrap=True, highlight=False)
            raise typer.Exit(2) from None


# Local variables hold private data: never in a traceback.
app = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gossamer {gossamer.__version__}")
        raise typer.Exit


@app.callback(help=gossamer.__doc__)
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before a command."""


@app.command("algorithms")
def list_algorithms() -> None:
    """List the algorithms."""
    rows = tuple((name, entry.network, entry.summary, guarantee_of(entry).basis) for name, entry in REGISTRY.items())
    show(Console(), Table(("name", "network", "what it is", "guarantee"), rows), words=True)


@app.command("datasets")
def list_datasets() -> None:
    """List the data sets and where each would come from now."""
    show(Console(), Table(("name", "what it is", "from"), tuple(map(tuple, data.available()))), words=True)


@app.command("run")
def run_file(
    file: Annotated[Path, typer.Argument(help="A TOML file: see examples/.")],
    out: Annotated[Path | None, typer.Option(help="Save the run and an HTML report in this directory.")] = None,
    steps: Annotated[int | None, typer.Option(help="Samples per learner, instead of those in the file.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the noise, instead of that in the file.")] = None,
) -> None:
    """Run the simulation that a TOML file describes."""
    experiment = load(file, steps=steps, seed=seed)
    if out is not None:
        _prepare(out)
    console = Console()
    say(console, experiment.algorithm.describe())
    say(console, f"  data: {experiment.stream.description}")
    run = experiment.run()
    show(console, summary_table(run), words=True)
    if out is not None:
        run.save(out)
        report = _report(file, experiment, run, steps).write(out / "report.html")
        say(console, f"Saved in {out}. Report: {report}")


def _report(file: Path, experiment: Experiment, run: Run, steps: int | None) -> Report:
    picture = network_of(run, experiment.algorithm.topology)
    override = "" if steps is None else f" --steps {steps}"
    return Report(
        title=f"{run.name} on {experiment.algorithm.topology.name}",
        introduction=(f"Gossamer simulated {run.name} as {file.name} describes it: {experiment.stream.description}.",),
        table=summary_table(run),
        runs={run.name: run},
        networks=() if picture is None else (picture,),
        caption="One node per learner, with its number, coloured by how well it did.",
        notes=(
            "Losses and accuracies are exact functions of the data: this page is as confidential as they are.",
            "The seed is not part of this page: seed and messages together are the raw data.",
        ),
        command=f"gossamer run {shlex.quote(str(file))}{override}",
    )


app.command("calibrate")(calibrate)
app.command("audit")(audit_command)
app.command("reproduce")(reproduce)
app.command("node")(run_node)
app.add_typer(network, name="network")
app.add_typer(ledger, name="ledger")


@app.command("demo")
def show_demo(
    out: Annotated[Path, typer.Option(help="Directory of the HTML report.")] = Path("gossamer-report"),
) -> None:
    """Show what this is about on real data: sixteen learners, each of which sees one digit only."""
    _prepare(out)
    console = Console()
    say(console, INTRODUCTION[0])
    demo = play()
    show(console, demo.report.table)
    say(console, demo.verdict)
    say(console, demo.privacy, style="bold")
    say(console, f"Report: {demo.report.write(out / 'report.html')}")


def _prepare(out: Path) -> None:
    """Refuse, before anything runs, where a report could not be drawn or written."""
    require_plotly()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or "refused").lower()
        raise ConfigurationError(
            "--out", str(out), "a directory that can be made", f"the system says: {reason}"
        ) from None


def main() -> None:
    """The console script `gossamer`."""
    app()
