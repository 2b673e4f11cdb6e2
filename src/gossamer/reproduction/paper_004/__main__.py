"""The runs of paper 004 without the report, for machines that have no plotly.

    python -m gossamer.reproduction.paper_004 OUT

`gossamer reproduce 004 --out OUT` on any other machine draws what it finds there. Interrupted, it goes on where it was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from gossamer.reproduction.paper_004.plan import FULL, QUICK
from gossamer.reproduction.paper_004.report import FIGURES, reproduce
from gossamer.reproduction.store import Store


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is asked for, and say what comes out."""
    parser = argparse.ArgumentParser(prog="python -m gossamer.reproduction.paper_004", description=__doc__)
    parser.add_argument("out", type=Path, help="directory of the results")
    parser.add_argument("--figure", type=int, choices=FIGURES, help="only this part")
    parser.add_argument("--quick", action="store_true", help="few clients, few streams")
    given = parser.parse_args(arguments)
    begun = time.perf_counter()

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - begun:6.1f} s] {text}", flush=True)

    store = Store(given.out / "cells", say)
    plan = QUICK if given.quick else FULL
    page = reproduce(store, plan=plan, figure=given.figure, directory=None, stand_in=False, command="")
    for row in page.verdicts.rows:
        say(": ".join(row))
    say(f"{store.computed} of {len(store.used)} cells were run")


if __name__ == "__main__":
    main()
