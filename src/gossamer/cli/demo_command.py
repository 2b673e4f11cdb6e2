"""The command `gossamer demo`; `gossamer.cli.demo` is what it plays."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gossamer.cli.demo import INTRODUCTION, play
from gossamer.cli.out import report_directory
from gossamer.cli.show import say, show


def show_demo(
    out: Annotated[Path, typer.Option(help="Directory of the HTML report.")] = Path("gossamer-report"),
) -> None:
    """Show what this is about: five settings, and what privacy costs in each.

    Takes about a minute, and needs no files. The report has curves, guarantees and all settings.
    """
    report_directory(out)
    console = Console()
    for paragraph in INTRODUCTION:
        say(console, paragraph)
    demo = play()
    show(console, demo.report.table)
    say(console, demo.verdict, style="bold")
    say(console, demo.privacy)
    say(console, f"Report: {demo.report.write(out / 'report.html')}")
