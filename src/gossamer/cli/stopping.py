"""Ctrl-C: one line on standard error that says what was kept, and the exit status of shells for it."""

from typing import NoReturn

import typer

INTERRUPTED = 130
"""128 and the number of SIGINT."""


def stopped(kept: str = "") -> NoReturn:
    """End a command that somebody stopped.

    Args:
        kept: a sentence about what was kept; empty: nothing is said.
    """
    typer.echo(f"Stopped. {kept}".rstrip(), err=True)
    raise typer.Exit(INTERRUPTED) from None
