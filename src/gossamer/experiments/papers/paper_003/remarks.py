"""Lemma 1, Theorem 1 and Remarks 7, 9 and 10 of paper 003, measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import expit

from gossamer import metrics
from gossamer.algorithms.endless.theorems import fastest
from gossamer.core import Algorithm, Rate
from gossamer.experiments import Asked, Claim, Entry, Finding, Found, Measured, Part, Result, below, decided, single
from gossamer.experiments.drawing import Curve, Panel
from gossamer.experiments.fits import at_most_like, exponent
from gossamer.experiments.papers.paper_003.circle import LEARNERS
from gossamer.experiments.papers.paper_003.mushrooms import (
    EARLY,
    LOUD,
    Powers,
    Sizes,
    cell_of,
    endless,
    error,
    fadings,
    problem,
    short,
    spent,
    stream,
    theory,
)
from gossamer.problems import Block, Problem
from gossamer.reports import Table

MIDDLE = Powers(0.72, 0.85, 0.1)
REMARKS: Mapping[str, tuple[Powers, ...]] = {  # from what should be fast to what should be slow
    "v": tuple(MIDDLE._replace(v=v) for v in (0.75, 0.85, 0.95)),
    "u": tuple(MIDDLE._replace(u=u) for u in (0.82, 0.72, 0.62)),
    "varsigma": tuple(MIDDLE._replace(varsigma=s) for s in (0.02, 0.1, 0.2)),
}
"""Remarks 9 and 10: one power at a time, all within (4)."""


TRADED = 1.0  # the l2 of the remarks: tracking errors fall fast enough to be compared


def cells(asked: Asked, sizes: Sizes) -> Mapping[Any, Entry]:
    """Every power, a setting that meets Theorem 1, and how far optima move."""
    loss = problem(asked, TRADED)
    entries: dict[Any, Entry] = {}
    for powers in dict.fromkeys(each for line in REMARKS.values() for each in line):
        entries[powers] = cell_of(asked, sizes, TRADED, str(powers), partial(of_powers, loss, sizes.rounds, powers))
    step, coupling = Rate(_allowed(loss), MIDDLE.v), Rate(0.3, MIDDLE.u)
    rates: dict[str, Any] = {"step": step, "coupling": coupling, "growths": [MIDDLE.varsigma] * LEARNERS}
    meets = partial(endless, loss, sizes.rounds, LOUD, **rates)
    entries["Theorem 1"] = cell_of(asked, sizes, TRADED, "conditions of Theorem 1", meets)
    times = [t for t in sizes.at if t < sizes.rounds]
    setting = {"lemma": 1, "data": stream(asked, sizes.rounds, 0).description, "at": times, "orders": sizes.streams}
    return {**entries, "Lemma 1": Measured("Lemma 1", setting, partial(drifts, asked, sizes, times))}


def _allowed(loss: Problem) -> float:
    """The largest lambda_0 of Theorem 1 with gamma_0 = 0.3, rounded down."""
    of = theory(loss, MIDDLE, coupling=0.3)
    return math.floor(1e6 * -0.3 * of.delta_2 * loss.l2 / (loss.l2**2 + 8 * of.smoothness**2)) / 1e6


def drifts(asked: Asked, sizes: Sizes, times: Sequence[int]) -> Mapping[str, Any]:
    """|theta*_{t+1} - theta*_t|^2 for several orders of the data, axes (t, order): by Newton's method, to rounding."""
    columns = []
    for seed in range(sizes.streams):
        block = stream(asked, sizes.rounds, seed).read(0, sizes.rounds)
        best, moved = np.zeros(block.x.shape[-1]), []
        for t in times:
            before = best = optimum(block, t, TRADED, best)
            best = optimum(block, t + 1, TRADED, best)
            moved.append(float(np.sum((best - before) ** 2)))
        columns.append(moved)
    return {"drift": np.transpose(columns).tolist(), "t": list(times)}


def optimum(block: Block, t: int, l2: float, start: Any) -> Any:
    """What minimises the mean loss of the first t steps.

    >>> optimum(Block(np.ones((1, 2, 1)), np.array([[1, 0]])), 1, 1.0, np.ones(1)).round(12).tolist() == [0]
    True
    """
    x, y = block.x[:t].reshape(-1, block.x.shape[-1]).astype(float), block.y[:t].reshape(-1)
    for _ in range(30):
        share = expit(x @ start)
        curvature = (x.T * (share * (1 - share))) @ x / len(y) + l2 * np.eye(len(start))
        move = np.linalg.solve(curvature, x.T @ (share - y) / len(y) + l2 * start)
        start = start - move
        if np.linalg.norm(move) < 1e-13:
            break
    return start


def claims(asked: Asked, sizes: Sizes, found: Found) -> Sequence[Claim]:
    """Lemma 1, eq. (54), and Remarks 7, 9 and 10."""
    loss, word, of = problem(asked, TRADED), error(sizes), theory(problem(asked, TRADED))
    moved, times = found["Lemma 1"]["drift"], np.array(found["Lemma 1"]["t"])
    worst = max(float(row.max()) / of.drift(int(t)) for t, row in zip(times, moved, strict=True))
    bound = theory(loss, MIDDLE, step=_allowed(loss), coupling=0.3)
    still = (
        LEARNERS * metrics.tracking_error(np.zeros((1, 1, loss.dim)), loss, stream(asked, sizes.rounds, 0), [1]).item()
    )
    most = bound.tracking_bound(sizes.rounds, math.sqrt(2) * LOUD, still, LEARNERS)
    measured = LEARNERS * found["Theorem 1"].estimate(word).mean
    claims = [
        single(
            "|theta*_{t+1} - theta*_t|^2 is at most (2 G / (mu (t+2)))^2",
            "Lemma 1",
            decided(worst <= 1, f"at most {worst:.2g} of it, {sizes.streams} orders of the data"),
        ),
        single(
            "it falls at least like t^-2, give or take 0.2",
            "Lemma 1, eq. (8)",
            at_most_like(exponent(times[times >= EARLY].tolist(), moved[times >= EARLY]), -1.8),
        ),
        single(
            "where Theorem 1's conditions hold, errors stay below eq. (54)",
            "Theorem 1",
            decided(measured <= most, f"{measured:.3g}, bound {most:.3g} (lambda_0 {_allowed(loss):.2g})"),
        ),
        single(
            "a larger varsigma leaves slower rates (Theorem 1)",
            "Remark 9",
            _falls({f"varsigma {s:g}": fastest(1, growth=s) for s in (0.02, 0.1, 0.2, 0.4)}),
        ),
        single(
            "a larger u leaves slower rates (Theorem 2)",
            "Remark 7",
            _falls({f"u {u:g}": fastest(2, growth=0.1, u=u) for u in (0.62, 0.72, 0.82)}),
        ),
    ]
    names = {"v": "a smaller v", "u": "a larger u", "varsigma": "a smaller varsigma"}
    for power, line in REMARKS.items():
        low, high = (found[each].estimate(word) for each in (line[0], line[-1]))
        faster = below(low, high, (str(line[0]), str(line[-1])))
        costs = {str(each): _cost(loss, each) for each in reversed(line)}
        claims += [
            single(f"{names[power]}: less tracking error at round {sizes.rounds:,}", "Remark 10", faster),
            single(f"{names[power]}: less privacy for ever", "Remark 10", _falls(costs, rising=True)),
        ]
    return claims


def _falls(values: Mapping[str, float], rising: bool = False) -> Finding:
    sign = -1 if rising else 1
    measured = ", ".join(f"{name}: {value:.4g}" for name, value in values.items())
    return decided(all(sign * high < sign * low for low, high in pairwise(values.values())), measured)


def _cost(loss: Problem, powers: Powers) -> float:
    tight = fadings(loss, Rate(1.0, powers.v), Rate(1.0, powers.u))["tight"]
    return spent(tight, loss.dim, powers.varsigma, None)


def parts(asked: Asked, sizes: Sizes, found: Found) -> Sequence[Part]:
    """Errors, rates and budgets by power; Lemma 1."""
    loss, word = problem(asked, TRADED), error(sizes)
    rows = tuple(
        (
            *(f"{value:g}" for value in powers),
            found[powers].estimate(word).cell,
            f"{_fitted(found[powers], word, sizes):.2f}",
            f"{theory(loss, powers).rate(1):.2f}",
            short(_cost(loss, powers)),
        )
        for powers in found
        if isinstance(powers, Powers)
    )
    columns = ("u", "v", "varsigma", "tracking error", "falls like t^-", "beta of Theorem 1", "tight epsilon, for ever")
    moved = found["Lemma 1"]
    bound = [theory(loss).drift(int(t)) for t in moved["t"]]
    times = moved["t"].tolist()
    curves = (Curve.of_runs("measured", times, moved["drift"].T, 0.1), Curve.line("bound", times, bound))
    return [
        Part(
            "remarks", f"Remarks 7, 9 and 10: powers, l2 {TRADED:g}, the noise of figure 1", table=Table(columns, rows)
        ),
        Part(
            "lemma-1",
            "Lemma 1: how far optima move",
            panels=(Panel("", "|theta*_{t+1} - theta*_t|^2", curves, log=True),),
        ),
    ]


def of_powers(loss: Problem, rounds: int, powers: Powers) -> Algorithm:
    """Algorithm 1 at the noise of figure 1 with other powers, the same for all learners."""
    u, v, varsigma = powers
    rates = {"step": Rate(1.0, v), "coupling": Rate(1.0, u)}
    return endless(loss, rounds, LOUD, growths=[varsigma] * LEARNERS, **rates)  # type: ignore[arg-type]


def _fitted(result: Result, word: str, sizes: Sizes) -> float:
    """The exponent with which the mean falls from round 100 on."""
    times = np.array(sizes.at)
    late = times >= min(100, times[-3])
    fit = exponent(times[late].tolist(), result.repeated(word).mean(axis=-1)[:, late].T)
    return -fit.exponent if fit else math.nan
