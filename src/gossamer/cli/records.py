"""`gossamer node check` and `gossamer node data`: what a site's own data are like, and other data in their place."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gossamer.cli.show import say
from gossamer.errors import ConfigurationError

if TYPE_CHECKING:
    from gossamer.net.data.survey import Survey

DATA = "a file, a folder, sqlite:FILE or postgresql://USER@HOST/NAME"
"""What `--data` takes."""

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A node's directory.")]
Rows = Annotated[str | None, typer.Option("--query", help="Of a database: a SELECT of its rows.")]
Cursor = Annotated[str | None, typer.Option(help="Of a database: a column that only grows, such as an id.")]


def check(
    directory: Directory,
    data: Annotated[str | None, typer.Option(help=f"Other data than those of node.toml: {DATA}.")] = None,
) -> None:
    """Show what a node's data are like, and whether anything stands in the way of a start; nothing is sent or spent."""
    from gossamer.cli.registered import about_others
    from gossamer.net.checkup import check_data, mark_of, require_sound
    from gossamer.net.directory import NodeDirectory
    from gossamer.net.node.agreement import prepared
    from gossamer.net.node.spending import Spending
    from gossamer.net.store.ledger import Ledger
    from gossamer.privacy import Budget
    from gossamer.topology import Topology

    found, console = NodeDirectory(directory), Console()
    settings, agreement = found.settings(), found.agreement()
    ready = prepared(agreement.algorithm(), allow_no_guarantee=settings.no_guarantee)
    found.require_keys()
    assert isinstance(ready.topology, Topology)
    accepted = (found.path / "accepted.json").exists()
    if accepted:
        found.link(settings, ready.topology)
    with Ledger.open(found.ledger, read_only=True) as ledger:
        if ledger.last.exchange < 0 and settings.budget is not None:
            budget = Budget(**settings.budget)
            Spending(ready, agreement.number(settings.member), budget).require_one_release()
        mark = mark_of(found.path, settings, ledger) if data is None else {}
        if data is not None:
            settings = replace(settings, data=seen_from_anywhere(data))
        result = check_data(found, settings, ready.problem, agreement.schema, mark)
    if result is None:
        say(console, "Standard input cannot be checked before it is read.")
    require_sound(found, settings, result, tell)
    for line in about_others(found):
        say(console, line)
    end = "Nothing stands in the way of a start."
    say(console, end if accepted else "Nothing else is wrong. The keys of the other members are still to be accepted.")


def change(
    directory: Directory,
    data: Annotated[str, typer.Option(help=f"What the node reads from now on: {DATA}.")],
    query: Rows = None,
    cursor: Cursor = None,
    source: Annotated[
        str | None,
        typer.Option(help="No record of the data before is among the new ones; what the ledger calls the new ones."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Records of the data before may be among the new ones, and cost again.")
    ] = False,
    state_key: Annotated[Path | None, typer.Option(help="As for starting the node, where its state is sealed.")] = None,
) -> None:
    """Have a node read other data from now on; what was used is booked, and other members need do nothing."""
    from gossamer.cli.registered import about_others
    from gossamer.net.checkup import change_data, check_data, require_sound
    from gossamer.net.directory import NodeDirectory
    from gossamer.net.node.agreement import prepared
    from gossamer.net.node.spending import added_up, costs_of
    from gossamer.net.store.ledger import Ledger
    from gossamer.net.store.vault import Sealer
    from gossamer.net.store.witness import witness_of

    found, console = NodeDirectory(directory), Console()
    settings, agreement = found.settings(), found.agreement()
    ready = prepared(agreement.algorithm(), allow_no_guarantee=settings.no_guarantee)
    new = replace(settings, data=seen_from_anywhere(data), query=query_of(query, cursor))
    require_sound(found, new, check_data(found, new, ready.problem, agreement.schema, {}), tell)
    with Ledger.open(found.ledger, read_only=True) as known:
        witness = witness_of(found.path, settings.witness, known.identity.key)
    sealer = None if state_key is None else Sealer(state_key.read_bytes())
    with Ledger.open(found.ledger, sealer=sealer, witness=witness) as ledger:
        used = change_data(found, settings, ledger, new.data, query=new.query, source=source, again=again)
        for line in about_others(found):
            say(console, line)
        if not used:
            say(console, "No sample was used before: nothing was spent on the data before.")
            return
        say(console, "The ledger has it. What the data of this run have cost, each record at most:")
        for cost in costs_of(ledger):
            epsilon, delta = added_up([cost])
            say(console, f"  {cost.source}: epsilon {epsilon:.4g}, delta {delta:.4g}")


def tell(found: "Survey") -> None:
    """Show an owner what the data are like."""
    typer.echo("\n".join(found.lines()))  # as it is: paths are not broken


def seen_from_anywhere(data: str) -> str:
    """The name of data as seen from any directory.

    >>> seen_from_anywhere("postgresql://ward@db/clinic"), seen_from_anywhere("-")
    ('postgresql://ward@db/clinic', '-')
    """
    from gossamer.net.data.query import file_of

    kind, file = file_of(data)
    return data if file in ("", "-") else f"{kind}{Path(file).absolute()}"


def query_of(rows: str | None, cursor: str | None) -> dict[str, str] | None:
    """A query; refused where half of it is missing.

    >>> query_of("SELECT * FROM visits", "id")
    {'rows': 'SELECT * FROM visits', 'cursor': 'id'}
    """
    if rows is None and cursor is None:
        return None
    if rows is None or cursor is None:
        raise ConfigurationError("--query and --cursor", "one of them", "both, for a database")
    return {"rows": rows, "cursor": cursor}
