"""Table I of paper 003: how many iterations, and which budget, each level of noise takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from gossamer import metrics
from gossamer.experiments import (
    Asked,
    Cell,
    Claim,
    Entry,
    Finding,
    Found,
    Metric,
    Part,
    Played,
    Result,
    across,
    decided,
    judged,
    measures,
)
from gossamer.experiments.papers.paper_003.mushrooms import (
    BASE,
    GROWTHS,
    TABLE_1,
    Sizes,
    endless,
    fadings,
    problem,
    short,
    spent,
    stream,
)
from gossamer.reports import Table


def within(at: Sequence[int]) -> Metric:
    """Table I: the first round with |mean_i theta_i(t) - theta_t*| <= 1, and that from which on it is so; or none."""

    def of(played: Played) -> Any:
        means = measures.decisions(played)[:, list(at)].mean(axis=2).swapaxes(0, 1)
        near = (metrics.tracking_error(means, played.algorithm.problem, played.stream, at) <= 1).T
        stays = np.flip(np.logical_and.accumulate(np.flip(near, axis=1), axis=1), axis=1)
        return np.array([[_first(at, row) for row in rows] for rows in zip(near, stays, strict=True)])

    return Metric(
        f"first round within 1, and from when on, of {len(at)} rounds up to {at[-1]}", of, None, ("decisions",)
    )


def _first(at: Sequence[int], row: Any) -> float:
    return float(at[int(np.argmax(row))]) if row.any() else math.nan


def cells(asked: Asked, sizes: Sizes) -> Mapping[Any, Entry]:
    """By l2 and noise level."""
    return {
        (l2, level): Cell(
            f"Table I, l2 {l2:g}, noise x{level:g}",
            partial(endless, problem(asked, l2), sizes.table, level * BASE),
            partial(stream, asked, sizes.table),
            sizes.table,
            [within(sizes.looked_at)],
            seeds=range(sizes.table_seeds),
            measure="local",
        )
        for l2 in sizes.table_l2
        for level in sizes.levels
    }


def _rounds(sizes: Sizes, result: Result) -> tuple[list[float], list[float]]:
    """First and stays, by seed."""
    found = result.repeated(within(sizes.looked_at).word)
    return found[:, 0].tolist(), found[:, 1].tolist()


def claims(asked: Asked, sizes: Sizes, found: Found) -> Sequence[Claim]:
    """More noise takes longer; what the paper says that it costs."""

    def slower(l2: float) -> Finding:
        """Runs that never stay count as longer than any."""
        stays = {level: _rounds(sizes, found[l2, level])[1] for level in sizes.levels}
        means = {level: math.inf if np.isnan(each).any() else float(np.mean(each)) for level, each in stays.items()}
        measured = ", ".join(
            f"x{level:g}: " + (f"{mean:.0f}" if math.isfinite(mean) else f"more than {sizes.table:,}")
            for level, mean in means.items()
        )
        values = list(means.values())
        return decided(all(low <= high for low, high in pairwise(values)) and values[0] < values[-1], measured)

    def costs(l2: float) -> Finding:
        loss, stays = problem(asked, l2), _rounds(sizes, found[l2, 1.0])[1]
        if np.isnan(stays).any():
            return judged(f"not within 1 for good by round {sizes.table:,}", holds=False, fails=False)
        rounds, paper = max(1, round(float(np.mean(stays)))), TABLE_1[1.0][0]
        budgets = {name: spent(each, loss.dim, GROWTHS[0], rounds, BASE) for name, each in fadings(loss).items()}
        measured = f"{rounds} iterations: " + ", ".join(f"{name} {cost:.4g}" for name, cost in budgets.items())
        return decided(any(abs(cost - paper) < 0.05 * paper for cost in budgets.values()), measured)

    by_l2 = partial(across, {f"l2 {l2:g}": l2 for l2 in sizes.table_l2})
    return [
        by_l2("more noise takes more iterations to stay within 1", "Table I", slower),
        by_l2("noise x1 costs 23.34 up to where it stays within 1", "Table I", costs),
    ]


def parts(asked: Asked, sizes: Sizes, found: Found) -> Sequence[Part]:
    """Iterations and budgets by noise level."""
    rows = []
    for level in sizes.levels:
        cells = [f"x{level:g}", *(f"{each:,}" for each in TABLE_1[level])]
        for l2 in sizes.table_l2:
            first, stays = _rounds(sizes, found[l2, level])
            ends = None if np.isnan(stays).any() else max(1, round(float(np.mean(stays))))
            loss = problem(asked, l2)
            cost = spent(fadings(loss)["tight"], loss.dim, GROWTHS[0], ends, level * BASE)
            cells += [
                _counts(first, sizes),
                _counts(stays, sizes),
                short(cost) + (" for ever" if ends is None else ""),
            ]
        rows.append(tuple(cells))
    ours = (f"l2 {l2:g}: {word}" for l2 in sizes.table_l2 for word in ("first", "stays", "tight budget"))
    columns = ("noise", "paper: budget", "paper: iterations", *ours)
    note = (
        "First: the first round with a distance of at most 1. Stays: the round from which on it is, to the end of the "
        f"run ({sizes.table:,} rounds, looked at in {len(sizes.looked_at)} of them). Mean over {sizes.table_seeds} "
        "seeds. Budget: tight, learner 1, up to the round of 'stays'. The paper's budgets would need sqrt(n) C of "
        "about 0.18, where n = 112 and C is at least the largest difference of two gradients."
    )
    heading = "Table I: iterations until |mean_i theta_i(t) - theta_t*| <= 1, base Lap(0.1 (t+1)^(0.1 + 0.01 i))"
    return [Part("table-1", heading, table=Table(columns, tuple(rows)), notes=(note,))]


def _counts(found: Sequence[float], sizes: Sizes) -> str:
    missing = int(np.isnan(found).sum())
    if missing:
        return f"> {sizes.table:,}" if missing == len(found) else f"{len(found) - missing} of {len(found)} runs"
    return f"{float(np.mean(found)):,.0f}"
