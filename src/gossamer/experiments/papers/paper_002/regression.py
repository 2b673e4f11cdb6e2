"""Figure 3 of paper 002: online linear regression, every run on data of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from gossamer import metrics, streams
from gossamer.experiments import (
    Asked,
    Cell,
    Claim,
    Entry,
    Estimate,
    Finding,
    Found,
    Measured,
    Metric,
    Panel,
    Part,
    Played,
    Section,
    Tuned,
    across,
    below,
    every,
    increasing,
    measures,
    tuning_seeds,
)
from gossamer.experiments.papers.paper_002.cases import BOTH, DELTA, DOMAIN, LEVELS, Case, Name, grid_of
from gossamer.experiments.showing import promise
from gossamer.privacy import Budget
from gossamer.problems import LeastSquares
from gossamer.reports import Table
from gossamer.streams import Stream

DIM, ROUNDS = 21, 500
PROBLEM = LeastSquares(DIM, domain=DOMAIN)
BOUND = 50.0  # far above what gradients are
SCALES = {"sigma = 1/eps": 1.0, "sigma = 14/eps": 14.0}
"""The sigma of figure 7, and 2 n L / epsilon of Theorem 2 with L = 1."""
REAL = {Budget(1.0): (0.1, 0.03), Budget(1.0, DELTA): (0.1, 0.3)}
"""Budgets, and the clip and step where the search begins."""
WORDS = {False: "regret of x(t)", True: "regret of the running average"}


@cache
def stream(seed: int) -> Stream:
    """Section 6.1."""
    return streams.linear_regression(DIM, seed=seed)


def regret(averaged: bool, at: tuple[int, ...]) -> Metric:
    """Pseudo-regret per round (3), or of the running average (19), after so many rounds."""

    def of(played: Played) -> np.ndarray:
        plays = measures.joint_decisions(played)
        plays = metrics.running_average(plays) if averaged else plays
        found = [metrics.pseudo_regret(plays[:, :t], played.algorithm.problem, played.stream) for t in at]
        return np.array([found] * len(plays))

    return Metric(f"{WORDS[averaged]} at {', '.join(map(str, at))}", of, lambda _: list(at), ("decisions",))


def points(longer: int) -> tuple[int, ...]:
    """Horizons."""
    return (*range(100, ROUNDS + 1, 100), *(ROUNDS * 4**k for k in range(1, 5) if ROUNDS * 4**k <= longer))


def cell(case: Case, seeds: range, at: tuple[int, ...]) -> Cell:
    """Runs on data of their own."""
    kept = [regret(averaged, at) for averaged in WORDS]
    make = partial(case.build, PROBLEM, at[-1], bound=BOUND)
    return Cell(f"regression, {case}", make, stream, at[-1], kept, seeds, None, "joint", every=1)


def real(name: Name, budget: Budget, seeds: range, quick: bool) -> Tuned:
    """A real guarantee over the paper's horizon, with clip and step of least regret on other data and noise."""

    def tried(seeds: range, clip: float, step: float) -> Cell:
        return cell(Case(name, budget=budget, clip=clip, step=step), seeds, (ROUNDS,))

    clip, step = REAL[budget]
    start = {"clip": clip, "step": step}
    trial, final = partial(tried, tuning_seeds(2)), partial(tried, seeds)
    return Tuned(
        f"regression, {name}, {budget}", grid_of(start, quick), trial, final, f"{WORDS[False]} at {ROUNDS}", start
    )


def zero(seeds: range, at: tuple[int, ...]) -> Measured:
    """What playing 0 costs."""

    def compute() -> Mapping[str, Any]:
        nothing = np.zeros((1, at[-1], DIM))
        return {str(t): [metrics.pseudo_regret(nothing[:, :t], PROBLEM, stream(seed)) for seed in seeds] for t in at}

    return Measured("regression, playing 0", {"seeds": list(seeds), "at": list(at), "what": "playing 0"}, compute)


def cells(seeds: range, at: tuple[int, ...], quick: bool) -> Mapping[Any, Entry]:
    """The paper's levels with both scales, real guarantees, and playing 0."""
    found: dict[Any, Entry] = {"playing 0": zero(seeds, at)}
    for name in BOTH:
        for label, unit in SCALES.items():
            for level in LEVELS:
                found[name, label, level] = cell(Case(name, sigma=unit / level), seeds, at)
        found |= {(name, "real", budget): real(name, budget, seeds, quick) for budget in REAL}
    return found


def claims(at: tuple[int, ...], found: Found) -> list[Claim]:
    """What the paper says of figure 3, and ours."""
    end, longer, factor = at.index(ROUNDS), at[-1], math.sqrt(ROUNDS / at[-1])
    none = Estimate.of(found["playing 0"][str(ROUNDS)].tolist())

    def measured(name: Name, averaged: bool, label: str, level: float, place: int) -> Estimate:
        return found[name, label, level].estimate(f"{WORDS[averaged]} at {', '.join(map(str, at))}", place)

    def at_levels(find: Any) -> Finding:
        return every({level_name(level): find(level) for level in LEVELS})

    def falls(name: Name, averaged: bool, label: str) -> Finding:
        many = partial(measured, name, averaged, label)
        names = (f"T = {longer}", f"{factor:.2g} of T = {ROUNDS}")
        return at_levels(lambda level: below(many(level, -1), factor * many(level, end), names))

    def ordered(name: Name, averaged: bool, label: str) -> Finding:
        return increasing({level_name(e): measured(name, averaged, label, e, end) for e in LEVELS})

    def pays(name: Name, averaged: bool, label: str) -> Finding:
        return at_levels(lambda e: below(measured(name, averaged, label, e, end), none, ("it", "playing 0")))

    tests = {
        f"goes to 0, like 1/sqrt(T) at least, from T = {ROUNDS} to {longer}": ("figure 3", falls),
        f"grows as epsilon falls, T = {ROUNDS}": ("figure 3", ordered),
        f"is below that of playing 0, T = {ROUNDS}": ("ours", pays),
    }
    return [
        across({label: label for label in SCALES}, f"{name}, {words}: it {text}", source, partial(test, name, averaged))
        for text, (source, test) in tests.items()
        for name in BOTH
        for averaged, words in WORDS.items()
    ]


def level_name(level: float) -> str:
    """As in the paper's tables.

    >>> level_name(math.inf), level_name(0.5)
    ('non-private', 'eps 0.5')
    """
    return "non-private" if math.isinf(level) else f"eps {level:g}"


def section(asked: Asked) -> Section:
    """Figure 3."""
    seeds, at = (range(20, 23), points(2000)) if asked.quick else (range(20, 30), points(8000))
    text = ("Regrets are per round. Every run has data and noise of its own; alpha(t) = 1/sqrt(t), errors xi.",)
    heading = f"Figure 3: online linear regression, d = {DIM}"
    return Section(
        "figure-3", heading, partial(cells, seeds, at, asked.quick), 3, text, partial(claims, at), partial(shown, at)
    )


def shown(at: tuple[int, ...], found: Found) -> list[Part]:
    """The figure with sigma = 1/epsilon, and all rows."""
    runs = {key: result for key, result in found.items() if key != "playing 0"}
    height = float(np.mean(found["playing 0"][str(ROUNDS)]))
    words = {averaged: f"{text} at {', '.join(map(str, at))}" for averaged, text in WORDS.items()}
    panels = tuple(
        Panel(
            f"{name}: {WORDS[averaged]}",
            "regret per round",
            tuple(runs[name, "sigma = 1/eps", e].curve(level_name(e), word, 0.05) for e in LEVELS),
            level=height,
            log=True,
        )
        for averaged, word in words.items()
        for name in BOTH
    )
    rows = []
    for (_, label, level), result in runs.items():
        if label == "real":
            numbers = [result.estimate(f"{text} at {ROUNDS}").cell for text in WORDS.values()] + ["-"]
        else:
            numbers = [result.estimate(word, at.index(ROUNDS)).cell for word in words.values()]
            numbers.append(result.estimate(words[False]).cell)
        mapping = label if label != "real" and math.isfinite(level) else ""
        rows.append((str(result.cell.name).removeprefix("regression, "), mapping, *numbers, promise(result)))
    nothing = [Estimate.of(found["playing 0"][str(t)].tolist()).cell for t in (ROUNDS, at[-1])]
    rows.append(("playing 0", "", nothing[0], nothing[0], nothing[1], "it uses no data"))
    columns = ("row", "mapping", *WORDS.values(), f"x(t), T = {at[-1]}", "guarantee")
    note = "The figure has sigma = 1/epsilon; dotted: playing 0. Bands are one standard deviation."
    return [
        Part(
            "figure-3",
            f"Figure 3: online linear regression, d = {DIM}, T = {ROUNDS}",
            (note,),
            panels,
            Table(columns, tuple(rows)),
        )
    ]
