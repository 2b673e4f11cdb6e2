"""`gossamer model`: take a model home, look at it, and predict with it."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gossamer.cli.show import say
from gossamer.errors import ConfigurationError
from gossamer.model import TrainedModel, load_model

model = typer.Typer(no_args_is_help=True, help="What was learnt: export it, show it, predict with it.")

File = Annotated[Path, typer.Argument(metavar="MODEL", help="A file that `gossamer model export` wrote.")]


@model.command("export")
def export_model(
    place: Annotated[Path, typer.Argument(metavar="DIR", help="A node's directory, or a model's file.")],
    out: Annotated[Path, typer.Option(help="The file to write: .safetensors, or .onnx for other programs.")],
    averaged: Annotated[
        bool, typer.Option("--averaged", help="The mean of all decisions that were released, not the last one.")
    ] = False,
    state_key: Annotated[
        Path | None, typer.Option(help="The file with the key, where the node's state is sealed.")
    ] = None,
) -> None:
    """Write the model of a node, which may run, with its columns and its guarantee."""
    if place.is_file():
        if averaged or state_key:
            raise ConfigurationError("DIR", str(place), "a node's directory, for --averaged and --state-key")
        taken = load_model(place)
    else:
        taken = _taken(place, averaged, state_key)
    taken.save(out)
    say(Console(), f"{out}: {taken}")


def _taken(directory: Path, averaged: bool, state_key: Path | None) -> TrainedModel:
    from gossamer.net.store.vault import Sealer
    from gossamer.net.takehome import take_home

    return take_home(directory, averaged=averaged, sealer=None if state_key is None else Sealer.of(state_key))


@model.command("show")
def show_model(place: File) -> None:
    """Say what a model predicts, from which columns, where it comes from and what was promised."""
    say(Console(), str(load_model(place)))


@model.command("predict")
def predict_rows(
    place: File,
    rows: Annotated[Path, typer.Argument(metavar="ROWS", help="A file of rows: .csv, .jsonl or .parquet.")],
    out: Annotated[
        Path | None, typer.Option(help="The file to write: .csv, .jsonl or .parquet; default: CSV on standard output.")
    ] = None,
    agreement: Annotated[
        Path | None, typer.Option(help="agreement.json of the network that the model must come from.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="A column that is no feature, where the model has no schema.")
    ] = None,
) -> None:
    """Predict every row of a file, in order, and how likely each class is."""
    from gossamer.model.tables import predict_file

    found = load_model(place, network=None if agreement is None else _network(agreement))
    count = predict_file(found, rows, out, without=without or ())
    if out is not None:
        say(Console(), f"{count:,} predictions in {out}")


def _network(agreement: Path) -> str:
    from gossamer.net.membership.agreement import Agreement

    return Agreement.read(agreement).network
