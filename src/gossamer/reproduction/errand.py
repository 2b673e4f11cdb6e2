"""The runs of a paper without the report, for machines that have an accelerator and no plotly."""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gossamer.reproduction.store import Store


class Errand(NamedTuple):
    """What was asked for, where results are kept, and how to say what comes out."""

    given: argparse.Namespace
    store: Store
    say: Callable[[str], None]


@contextmanager
def errand(
    paper: str, about: str | None, figures: Sequence[int], arguments: Sequence[str] | None, **flags: str
) -> Iterator[Errand]:
    """Read the command line of a paper's package, started with `python -m`; at the end, say how many cells were run.

    Args:
        paper: its number.
        about: what the command does.
        figures: that can be asked for.
        arguments: of the command line; None: those of this process.
        flags: further ones, by name, each with its help.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.paper_{paper}", description=about)
    parser.add_argument("out", type=Path, help="directory of the results")
    parser.add_argument("--figure", type=int, choices=figures, help="only what this figure needs")
    parser.add_argument("--quick", action="store_true", help="few rounds, few runs")
    parser.add_argument("--data", type=Path, help="directory of the data; by default GOSSAMER_DATA")
    parser.add_argument("--stand-in", action="store_true", help="small data of scikit-learn")
    for name, text in flags.items():
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)
    given, begun = parser.parse_args(arguments), time.perf_counter()

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - begun:6.1f} s] {text}", flush=True)

    store = Store(given.out / "cells", say)
    yield Errand(given, store, say)
    say(f"{store.computed} of {len(store.used)} cells were run")
