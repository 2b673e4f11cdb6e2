"""Figure 6 and table 5 of paper 002: two runs with the same noise, whose data differ in one round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from gossamer import streams
from gossamer.experiments import (
    Asked,
    Cell,
    Claim,
    Estimate,
    Finding,
    Found,
    Metric,
    Part,
    Played,
    Section,
    across,
    below,
    increasing,
    measures,
)
from gossamer.experiments.papers.paper_002.cases import BOTH, DELTA, LEVELS, Case, Name, task_of
from gossamer.experiments.papers.paper_002.regression import SCALES, level_name
from gossamer.experiments.showing import promise
from gossamer.privacy import Budget
from gossamer.reports import Table
from gossamer.streams import Stream

ROUNDS, CHANGED = 500, 400
TABLE_5: dict[Name, tuple[float, ...]] = {
    "DPSDA-C": (0.0374, 0.0074, 0.0035, 0.0013),
    "DPSDA-PS": (0.0357, 0.0082, 0.0042, 0.0016),
}
WORD = f"x({CHANGED}) and x({CHANGED + 1})"
TEXT = (
    f"500 images of 6 and 8, one in each round; at t = {CHANGED} it is another image, of the other digit. x({CHANGED}) "
    f"is played before f_{CHANGED} is seen, so x({CHANGED + 1}) is the first that can differ. Entry 1 is a corner of "
    "the image, black in every 6 and 8: its derivative is 0, and it never differs.",
    "This shows how far one round moves a decision while the noise is held fixed, and nothing about privacy: an "
    "observer does not hold the noise fixed, and as published any difference, however small, tells F from F' for sure.",
)


@cache
def both(asked: Asked, side: int) -> Stream:
    """F and F'."""
    x, y = task_of("mnist", asked).train
    count = min(ROUNDS, len(y) - 1)
    mine, labels, place = x[:count].copy(), y[:count].copy(), changed(asked) - 1
    if side:
        other = int(np.flatnonzero(y[count:] != labels[place])[0]) + count
        mine[place], labels[place] = x[other], y[other]
    return streams.common(mine, labels)


def changed(asked: Asked) -> int:
    """The round t whose f_t differs: earlier in stand-in data, which are few."""
    return min(CHANGED, (len(task_of("mnist", asked).train.y) - 1) * 4 // 5)


def decisions(at: int) -> Metric:
    """The joint decision when the data differ, and the next: axes (seed, 2, coordinate)."""
    return Metric(WORD, lambda played: near(played, at), record=("decisions",))


def near(played: Played, at: int) -> Any:
    """Decisions at and after a round."""
    return measures.joint_decisions(played)[:, at - 1 : at + 1]


def cells(asked: Asked, seeds: range) -> Mapping[Any, Cell]:
    """The paper's levels with both scales, and a real guarantee."""
    task, at = task_of("mnist", asked), changed(asked)

    def cell(case: Case) -> Cell:
        rounds = at + 1
        make = partial(case.build, task.problem, ROUNDS, 1, task.bound)
        data = partial(both, asked)
        return Cell(f"{at}, {case}", make, data, rounds, [decisions(at)], seeds, (0, 1), "joint", every=1)

    found = {
        (name, label, level): cell(Case(name, sigma=unit / level))
        for name in BOTH
        for label, unit in SCALES.items()
        for level in LEVELS
    }
    budget = Budget(1.0, DELTA)
    return found | {(name, "real", 1.0): cell(Case(name, budget=budget, clip=1.0, step=0.1)) for name in BOTH}


def gaps(found: Found, key: Any, later: int) -> Estimate:
    """The largest entry of |x(t) - x'(t)| at t = 400 or 401, over runs."""
    one, other = found[key][WORD]
    return Estimate.of(np.abs(one - other)[:, later].max(axis=-1).tolist())


def claims(found: Found) -> list[Claim]:
    """Of figure 6 and table 5."""

    def differs(name: Name, label: str) -> Finding:
        none, noised = (gaps(found, (name, label, level), 0) for level in (math.inf, 1.0))
        if not any((*none.values, *noised.values)):
            return Finding("0 in every run, with noise and without: f_t is seen after x(t) is played", "does not hold")
        return below(noised, none, ("with noise", "without"))

    def ordered(name: Name, label: str) -> Finding:
        return increasing({level_name(e): gaps(found, (name, label, e), 1) for e in reversed(LEVELS)})

    texts = {
        f"x({CHANGED}) tells F from F' without noise, and less with it": differs,
        f"the smaller epsilon, the smaller the difference (largest entry of x({CHANGED + 1}), same noise)": ordered,
    }
    columns = {label: label for label in SCALES}
    return [
        across(columns, f"{name}: {text}", "figure 6, table 5", partial(test, name))
        for name in BOTH
        for text, test in texts.items()
    ]


def shown(found: Found) -> list[Part]:
    """Table 5, and where differences are."""
    rows = []
    for key, result in found.items():
        name, label, level = key
        one, other = result[WORD]
        paper = "-" if label == "real" else f"{TABLE_5[name][LEVELS.index(level)]:.4f}"
        first = float(np.mean(np.abs(one - other)[:, 1, 0]))
        numbers = (gaps(found, key, 0).mean, first, gaps(found, key, 1).mean)
        row = f"{name}, {label}, {level_name(level)}"
        rows.append((row, paper, *(f"{number:.4f}" for number in numbers), promise(result)))
    columns: tuple[str, ...] = ("row", f"paper: entry 1 of x({CHANGED})", f"x({CHANGED}), largest entry")
    columns += (f"x({CHANGED + 1}), entry 1", f"x({CHANGED + 1}), largest entry", "guarantee")
    heading = f"Figure 6 and table 5: data that differ at t = {CHANGED}"
    return [Part("figure-6", heading, TEXT, table=Table(columns, tuple(rows)))]


def section(asked: Asked) -> Section:
    """Figure 6."""
    seeds = range(20, 23 if asked.quick else 30)
    return Section("figure-6", "Figure 6", partial(cells, asked, seeds), 6, claims=claims, parts=shown)
