"""The command `gossamer demo`; `gossamer.cli.demo` is what it plays."""

from __future__ import annotations

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
    """Show what this is about on real data.

    Sixteen learners, each of which sees one digit only, learn to recognise all ten.
    """
    report_directory(out)
    console = Console()
    say(console, INTRODUCTION[0])
    demo = play()
    show(console, demo.report.table)
    say(console, demo.verdict)
    say(console, demo.privacy, style="bold")
    say(console, f"Report: {demo.report.write(out / 'report.html')}")
