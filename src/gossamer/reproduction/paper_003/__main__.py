"""The runs of paper 003 without the report, for machines that have an accelerator and no plotly.

    python -m gossamer.reproduction.paper_003 OUT --figure 2 --data DIRECTORY

`gossamer reproduce 003 --out OUT` on any other machine draws what it finds there. Interrupted, it goes on where it was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gossamer.reproduction.paper_003 import findings
from gossamer.reproduction.paper_003.cases import MODELS, RIVALS, USABLE, Mushrooms, Pictures
from gossamer.reproduction.paper_003.experiments import NetworkLab, TrackingLab, UsableLab, at_end
from gossamer.reproduction.paper_003.plan import FULL, QUICK, Plan
from gossamer.reproduction.store import Store


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is asked for, and say what comes out."""
    parser = argparse.ArgumentParser(prog="python -m gossamer.reproduction.paper_003", description=__doc__)
    parser.add_argument("out", type=Path, help="directory of the results")
    parser.add_argument("--figure", type=int, choices=(1, 2, 3), help="only this figure and its tables")
    parser.add_argument("--quick", action="store_true", help="few rounds, few runs")
    parser.add_argument("--data", type=Path, help="directory of the data; by default GOSSAMER_DATA")
    parser.add_argument("--stand-in", action="store_true", help="small data of scikit-learn")
    given = parser.parse_args(arguments)
    begun = time.perf_counter()

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - begun:6.1f} s] {text}", flush=True)

    plan, store = QUICK if given.quick else FULL, Store(given.out / "cells", say)
    numbers = (given.figure,) if given.figure else (1, 2, 3)
    if 1 in numbers:
        _mushrooms(plan, store, Mushrooms(given.data, given.stand_in), say)
    for number, which in ((2, "mnist"), (3, "cifar10")):
        if number in numbers:
            pictures = Pictures(which, given.data, given.stand_in, plan.network.tested)  # type: ignore[arg-type]
            _network(NetworkLab(store, plan.network, pictures), say)
    say(f"{store.computed} of {len(store.used)} cells were run")


def _mushrooms(plan: Plan, store: Store, mushrooms: Mushrooms, say: Callable[[str], None]) -> None:
    lab, usable = TrackingLab(store, plan.mushrooms, mushrooms), UsableLab(store, plan.usable, mushrooms)
    for l2 in plan.mushrooms.l2:
        ends = {model: at_end(lab.endless(l2), model) for model in MODELS}
        say(f"l2 {l2:g}: tracking errors at the end {ends}, steps { {name: lab.chosen(name, l2) for name in RIVALS} }")
    for kind in USABLE:
        say(f"{kind}: accuracy {findings.own(usable.found(kind), 'averaged', 'accuracy')}")
    for l2 in plan.mushrooms.table_l2:
        for level in plan.mushrooms.levels:
            say(f"Table I, l2 {l2:g}, x{level:g}: {lab.iterations(l2, level)}")


def _network(lab: NetworkLab, say: Callable[[str], None]) -> None:
    found = {f"Algorithm 1, {model}": lab.endless(model) for model in MODELS}
    found |= {title: lab.rival(name) for name, title in RIVALS.items()}
    if lab.pictures.which == "mnist":
        for level in lab.plan.levels:
            found |= {f"x{level:g}, {model}": lab.table(level, model) for model in MODELS}
        for level in (0.0, *lab.plan.levels):
            attacked = lab.attack(level)
            say(f"DLG, x{level:g}: {attacked and attacked['error']}")
    for title, each in found.items():
        if each is not None:
            say(f"{lab.pictures.name}, {title}: test accuracy {findings.tested(each)}, {each['seconds']:.0f} s")


if __name__ == "__main__":
    main()
