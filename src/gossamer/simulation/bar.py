"""The progress bar of a run, on standard error, where that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(show: bool, name: str, total: int, done: int) -> Iterator[Callable[[int], None]]:
    """A function to tell how many exchanges are completed."""
    if not (show and sys.stderr.isatty()):
        yield lambda completed: None
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(name, total=total, completed=done)
        yield lambda completed: bar.update(task, completed=completed)
