"""What nodes on this machine say of themselves on their pages, as a live table."""

import http.client
import subprocess
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from gossamer.cli import page

if TYPE_CHECKING:
    from gossamer.net.directory import NodeDirectory

_COLUMNS = {
    "exchanges": "exchanges",
    "messages_sent": "sent",
    "missing": "missing",
    "resent": "sent again",
    "epsilon_spent": "epsilon spent",
}


def watch(nodes: list["NodeDirectory"], started: list[subprocess.Popen[bytes]]) -> None:
    """A live table, until all nodes have come to their end."""
    console = Console()
    with Live(console=console, refresh_per_second=4) as live:
        while True:
            shown = [ask(one) for one in nodes]
            live.update(_table([one.path.name for one in nodes], shown))
            over = [one["state"] in ("finished", "exhausted") for one in shown]
            if all(over) or any(process.poll() is not None for process in started):
                return
            time.sleep(0.25)


def _table(names: list[str], shown: list[dict[str, Any]]) -> Table:
    table = Table("node", "state", *_COLUMNS.values())
    for name, one in zip(names, shown, strict=True):
        table.add_row(name, one["state"], *(f"{one.get(key) or 0:.6g}" for key in _COLUMNS))
    return table


def ask(node: "NodeDirectory") -> dict[str, Any]:
    """State and counts of a node, as its page says; a node that does not answer is starting, or has ended."""
    try:
        facts = page.ask(node)
        return {**facts["counts"], "state": facts["state"]}
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return {"state": "no answer"}
