"""The runs of paper 001 without the report, for machines that have an accelerator and no plotly.

    python -m gossamer.reproduction.paper_001 OUT --figure 4 --data DIRECTORY [--tuning-only]

`gossamer reproduce 001 --out OUT` on any other machine draws what it finds there. Interrupted, it goes on where it was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gossamer.reproduction.paper_001.cases import Digits
from gossamer.reproduction.paper_001.experiments import MODELS, ImageLab, Lab, LogisticLab, remembers_all
from gossamer.reproduction.paper_001.plan import FULL, QUICK
from gossamer.reproduction.store import Store


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is asked for, and say what comes out."""
    parser = argparse.ArgumentParser(prog="python -m gossamer.reproduction.paper_001", description=__doc__)
    parser.add_argument("out", type=Path, help="directory of the results")
    parser.add_argument("--figure", type=int, choices=(3, 4), help="only this figure")
    parser.add_argument("--quick", action="store_true", help="few rounds, few runs")
    parser.add_argument("--tuning-only", action="store_true", help="search the step sizes, and no more")
    parser.add_argument("--data", type=Path, help="directory of the data; by default GOSSAMER_DATA")
    parser.add_argument("--stand-in", action="store_true", help="small data of scikit-learn in place of MNIST")
    given = parser.parse_args(arguments)
    begun = time.perf_counter()

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - begun:6.1f} s] {text}", flush=True)

    plan, store = QUICK if given.quick else FULL, Store(given.out / "cells", say)
    labs: dict[int, Lab] = {
        3: LogisticLab(store, plan=plan.logistic),
        4: ImageLab(store, plan=plan.images, images=Digits(given.data, given.stand_in)),
    }
    for lab in [labs[given.figure]] if given.figure else labs.values():
        cases = sorted(lab.cases(), key=remembers_all)  # what takes most memory, and time, comes last
        for case in cases:
            steps = {publish: lab.tuned(case, publish) for publish in MODELS}
            say(f"{case}: best steps {steps}, shared step {lab.shared(case):g}")
        for case in [] if given.tuning_only else cases:
            for step in lab.steps(case):
                found = lab.final(case, step)
                means = {publish: float(np.mean(found["accuracy"][publish], axis=0)[-1]) for publish in MODELS}
                say(f"{case}, step {step:g}: accuracy at the end {means}, {found['seconds']:.0f} s")
    say(f"{store.computed} of {len(store.used)} cells were run")


if __name__ == "__main__":
    main()
