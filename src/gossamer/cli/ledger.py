"""`gossamer ledger`: what nodes have spent, whether their ledgers are intact, and copies for others to read."""

import math
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gossamer.cli.show import say, show
from gossamer.errors import ConfigurationError, GossamerError
from gossamer.net.ledgers import AnyLedger, checked_ledger, distinct, extent, open_ledger
from gossamer.net.node.spending import Cost, added_up, cost_of, own_of, units_of
from gossamer.net.registry import Registry, counted, default_registry
from gossamer.net.store.chain import Spent
from gossamer.net.store.export import Export, export
from gossamer.net.store.vault import Sealer
from gossamer.privacy import compose
from gossamer.privacy.guarantee import rounded_up
from gossamer.reports import Table

ledger = typer.Typer(no_args_is_help=True, help="What nodes have spent: show, verify, total, export, report.")

One = Annotated[Path, typer.Argument(help="A node's directory, its ledger, or an exported ledger.")]
Several = Annotated[list[Path], typer.Argument(help="Nodes' directories, ledgers, or exported ledgers.")]


@ledger.command("show")
def show_ledger(
    place: One, rows: Annotated[int, typer.Option(min=1, help="How many of the last rows to show.")] = 10
) -> None:
    """Show whose ledger it is, what was promised, and the last rows."""
    with ExitStack() as stack:
        opened = open_ledger(place, stack)
        console = Console()
        facts = asdict(opened.identity) | {"run": opened.run or "has not begun", "rows": f"{opened.last.number:,}"}
        rows_of_facts = tuple((name, str(fact)) for name, fact in facts.items())
        show(console, Table(("ledger", str(place)), rows_of_facts), words=True)
        if opened.promise:
            say(console, opened.promise.sentence())
        delta = _shown_delta(opened)
        if delta is not None:
            say(console, f"What was spent up to each row, at delta {rounded_up(delta)}:")
        show(console, _last_rows(opened, rows, delta))


@ledger.command("verify")
def verify_ledgers(
    places: Several,
    key: Annotated[Path | None, typer.Option(help="The file with the key that seals a sealed ledger.")] = None,
) -> None:
    """Check that no row was changed, removed or moved, and that messages and state are those of the rows."""
    sealer = Sealer.of(key) if key else None
    faults = [not _verified(place, sealer) for place in places]
    if any(faults):
        raise typer.Exit(2)


@ledger.command("total")
def total_ledgers(
    places: Annotated[
        list[Path] | None,
        typer.Argument(help="Nodes' directories, ledgers, or exports; none: all runs that the registry knows."),
    ] = None,
    registry: Annotated[Path | None, typer.Option(help="Another registry than the default one.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Delta of every sum, instead of the sum of the runs' deltas.")
    ] = None,
) -> None:
    """Add up what was spent on the same data."""
    if delta is not None and not 0 <= delta < 1:
        raise ConfigurationError("--delta", delta, "a number from 0 to below 1")
    if places and registry:
        raise ConfigurationError("--registry", str(registry), "no ledgers beside it")
    costs = _costs_of(places) if places else _registered(registry or default_registry())
    show(Console(), totals(costs, delta), words=True)
    for source in sorted({cost.source for cost in costs}):
        units = units_of(cost for cost in costs if cost.source == source)
        if len(units) > 1:
            said = f"The runs over {source} do not protect the same: {'; '.join(units)}. Their sum holds for none."
            say(Console(), said)


def _costs_of(places: list[Path]) -> list[Cost]:
    with ExitStack() as stack:
        return [cost_of(opened) for opened in distinct([checked_ledger(place, stack) for place in places])]


def _registered(path: Path) -> list[Cost]:
    """What all runs of a registry cost, those over the same data under one name."""
    if not path.exists():
        raise ConfigurationError("--registry", str(path), "a registry of this machine", "no node has run here")
    with closing(Registry(path, read_only=True)) as registry:
        runs = registry.runs()
    costs = []
    for data in sorted({one.data for one in runs}):
        ours = [one for one in runs if one.data == data]
        name = " = ".join(dict.fromkeys(one.source for one in ours))
        costs += [cost._replace(source=name) for cost in counted(ours)]
    return costs


@ledger.command("export")
def export_ledger(place: One, out: Annotated[Path, typer.Option(help="The file to write.")]) -> None:
    """Write the rows as JSON lines: no state, no messages, and no key of the digests."""
    with ExitStack() as stack:
        opened = open_ledger(place, stack)
        if isinstance(opened, Export):
            raise ConfigurationError("ledger", str(place), "a node's ledger", "this is an exported one already")
        opened.verify()
        export(opened, out)
        typer.echo(f"{opened.last.number:,} rows in {out}, head {opened.last.hash}")


@ledger.command("report")
def report_ledger(
    place: One,
    out: Annotated[Path, typer.Option(help="The file to write, such as report.html.")],
    registry: Annotated[
        Path | None, typer.Option(help="Another registry than node.toml names, or than the default.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The file with the key that seals a sealed ledger.")] = None,
) -> None:
    """Write a page for a data-protection officer: who is protected, how much was spent, what was checked."""
    from gossamer.reports.officer import gathered, write

    facts = gathered(place, registry=registry, sealer=Sealer.of(key) if key else None)
    write(facts, out)
    typer.echo(f"{out}: {facts.last.number:,} rows, head {facts.last.hash}")


def totals(costs: Sequence[Cost], delta: float | None = None) -> Table:
    """One line per run, and one per source for the sum of its runs.

    >>> from gossamer.privacy import Pure
    >>> costs = [Cost("meters", run, 0, Pure(0.5), 0.0, 0.0, "one sample") for run in ("r1", "r2")]
    >>> [row[3] for row in totals(costs).rows]
    ['0.5', '0.5', '1']
    """
    rows: list[tuple[str, ...]] = []
    for source in sorted({cost.source for cost in costs}):
        ours = [cost for cost in costs if cost.source == source]
        rows += [(source, cost.run, str(cost.learner), *_sum([cost], None)) for cost in ours]
        rows.append((source, f"sum of {len(ours)} run{'s' * (len(ours) > 1)}", "", *_sum(ours, delta)))
    return Table(("source", "run", "learner", "epsilon", "delta"), tuple(rows))


def _sum(costs: Sequence[Cost], delta: float | None) -> tuple[str, str]:
    epsilon, at = added_up(costs, delta)
    return rounded_up(epsilon), rounded_up(at)


def _last_rows(opened: AnyLedger, count: int, delta: float | None) -> Table:
    rows = [
        (
            str(row.number),
            f"{datetime.fromtimestamp(row.time, UTC):%Y-%m-%d %H:%M:%S}",
            row.kind,
            *(str(number) if row.exchange >= 0 else "" for number in (row.exchange, row.step)),
            f"{row.bytes:,}",
            rounded_up(_epsilon(row.spent, delta)) if row.exchange >= 0 else "",
        )
        for row in opened.rows(first=max(1, opened.last.number - count + 1))
    ]
    return Table(("row", "time (UTC)", "kind", "exchange", "step", "bytes", "epsilon spent"), tuple(rows))


def _shown_delta(opened: AnyLedger) -> float | None:
    """Where epsilon is shown; None without a guarantee."""
    return own_of(opened.promise.deltas, opened.identity.learner) if opened.promise and opened.promise.losses else None


def _epsilon(spent: Sequence[Spent], delta: float | None) -> float:
    return math.inf if delta is None else compose([one.loss for one in spent]).epsilon(delta)


def _verified(place: Path, sealer: Sealer | None) -> bool:
    """Say what was found; whether nothing was wrong."""
    try:
        with ExitStack() as stack:
            opened = checked_ledger(place, stack, sealer)
            found = f"{place}: {opened.last.number:,} rows, chain intact, head {opened.last.hash}"
            typer.echo(f"{found} ({extent(place, opened)})")
    except GossamerError as error:
        typer.echo(f"error: {place}: {error}", err=True)
        return False
    return True
