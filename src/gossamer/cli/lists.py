"""`gossamer algorithms` and `gossamer datasets`: what there is."""

from rich.console import Console

from gossamer import data
from gossamer.algorithms import REGISTRY
from gossamer.cli.audit import guarantee_of
from gossamer.cli.show import show
from gossamer.reports import Table


def list_algorithms() -> None:
    """List the algorithms."""
    rows = tuple((name, entry.network, entry.summary, guarantee_of(entry).basis) for name, entry in REGISTRY.items())
    show(Console(), Table(("name", "network", "what it is", "guarantee"), rows), words=True)


def list_datasets() -> None:
    """List the data sets and where each would come from now."""
    show(Console(), Table(("name", "what it is", "from"), tuple(map(tuple, data.available()))), words=True)
