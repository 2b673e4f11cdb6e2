"""What keeps a network going: commands of `gossamer node` and `gossamer network` for what comes after the beginning."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gossamer.cli.show import say

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A node's directory.")]


def renew(
    directory: Directory,
    host: Annotated[
        list[str] | None, typer.Option(help="Where others dial this node from now on; default: where they did.")
    ] = None,
) -> None:
    """Make a new certificate for the same key; a node that runs takes it within seconds and goes on."""
    from gossamer.net.directory import NodeDirectory
    from gossamer.net.wire.renewal import renew as renewed

    until = renewed(NodeDirectory(directory).files(), host)
    console = Console()
    say(console, f"Good until {until:%Y-%m-%d}. The key is the same: nobody has to be told.")
    if host:
        say(console, "The other members write the new address into [addresses] of their node.toml, and restart.")
