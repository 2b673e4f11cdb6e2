"""What nodes on this machine say of themselves on their pages, as a live table."""

import http.client
import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

_COLUMNS = {
    "exchanges": "exchanges",
    "messages_sent": "sent",
    "missing": "missing",
    "resent": "sent again",
    "epsilon_spent": "epsilon spent",
}


def watch(names: list[Path], pages: list[str], started: list[subprocess.Popen[bytes]]) -> None:
    """A live table, until all nodes have come to their end."""
    console = Console()
    with Live(console=console, refresh_per_second=4) as live:
        while True:
            shown = [ask(page) for page in pages]
            live.update(_table(names, shown))
            over = [one["state"] in ("finished", "exhausted") for one in shown]
            if all(over) or any(process.poll() is not None for process in started):
                return
            time.sleep(0.25)


def _table(names: list[Path], shown: list[dict[str, Any]]) -> Table:
    table = Table("node", "state", *_COLUMNS.values())
    for name, one in zip(names, shown, strict=True):
        table.add_row(name.name, one["state"], *(f"{one.get(key, 0):.6g}" for key in _COLUMNS))
    return table


def ask(page: str) -> dict[str, Any]:
    """State and counts of a node, as its page says; a node that does not answer is starting, or has ended."""
    try:
        facts: dict[str, Any] = json.loads(_fetch(f"http://{page}/healthz"))
        lines = [line for line in _fetch(f"http://{page}/metrics").splitlines() if "reason=" not in line]
    except (OSError, http.client.HTTPException, ValueError):
        return {"state": "no answer"}
    found = {line.partition("{")[0].removeprefix("gossamer_").removesuffix("_total"): line for line in lines}
    numbers = {name: line.rpartition(" ")[2] for name, line in found.items() if not name.startswith("#")}
    return {name: float(number) for name, number in numbers.items()} | facts


def _fetch(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=1.0) as answer:
            text: bytes = answer.read()
    except urllib.error.HTTPError as error:  # a node that is starting says so with status 503
        text = error.read()
    return text.decode()
