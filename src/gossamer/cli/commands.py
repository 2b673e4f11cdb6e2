"""The table of all commands; each is imported when it is run, so that `--version` and `--help` need not wait."""

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

import gossamer
from gossamer.cli.stopping import stopped
from gossamer.errors import GossamerError


class Place(NamedTuple):
    """Where a command is, and the line about it in `gossamer --help`: the first line of its help."""

    module: str
    name: str
    line: str


COMMANDS: Mapping[str, Place] = {
    "demo": Place(
        "demo_command", "show_demo", "Show what this is about: five settings, and what privacy costs in each."
    ),
    "run": Place("run", "run_file", "Run the simulation that a TOML file describes."),
    "algorithms": Place("lists", "list_algorithms", "List the algorithms."),
    "datasets": Place("lists", "list_datasets", "List the data sets and where each would come from now."),
    "calibrate": Place("calibrate", "calibrate", "Show the noise that an algorithm needs for a budget."),
    "audit": Place("audit", "audit_command", "Attack the guarantee of an algorithm."),
    "reproduce": Place("reproduce", "reproduce", "Run the experiments of a paper."),
    "sweep": Place("sweep", "sweep_file", "Run a TOML file with lists in place of numbers: every combination."),
    "study": Place("study", "study_file", "Run the study that a Python file declares."),
    "network": Place("network", "network", "Make a network of nodes, or try one out on this machine."),
    "node": Place(
        "network",
        "node",
        "Run one learner: `gossamer node DIR`. Before that: join, accept; later: follow, backup, move.",
    ),
    "model": Place("model", "model", "What was learnt: export it, show it, predict with it."),
    "ledger": Place("ledger", "ledger", "What nodes have spent: show, verify, total, export, report."),
}


class Commands(TyperGroup):
    """All commands; what Gossamer refuses becomes one line on standard error and exit status 2, Ctrl-C status 130."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was given."""
        try:
            return super().invoke(ctx)
        except GossamerError as error:
            _complain(str(error))
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            stopped()


class LaterCommands(Commands):
    """Those of the table: the list of them is there at once, and one is imported when it is run."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {name: TyperCommand(name, help=place.line) for name, place in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that was given, with its options; what the rest of the line says is left to it."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and imported(str(name)), rest


def imported(name: str) -> Any:
    """A command of the table, with all it needs."""
    place = COMMANDS[name]
    found = getattr(import_module(f"gossamer.cli.{place.module}"), place.name)
    if isinstance(found, typer.Typer):
        command: Any = get_group(found)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        command = get_command(alone)
    command.name = name
    _take_literally(command)
    return command


def _take_literally(command: Any) -> None:
    """Brackets in help texts are brackets: [problem] is a section of a file, not the name of a colour."""
    from rich.markup import escape

    for described in (command, *command.params):
        if getattr(described, "help", None):
            described.help = escape(described.help)
    for inner in getattr(command, "commands", {}).values():
        _take_literally(inner)


def _complain(text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    line = Text.assemble(("error: ", "bold red"), text)
    Console(stderr=True).print(line, soft_wrap=True, highlight=False)


# Local variables hold private data: never in a traceback.
app = typer.Typer(cls=LaterCommands, no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)


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


def main() -> None:
    """The console script `gossamer`."""
    app()
