"""Section VII-A of paper 003, logistic regression on mushrooms: figure 1, Table I, what the remarks say, and a use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from gossamer import algorithms, data, metrics, problems, sets
from gossamer.algorithms.descent.gossip_descent import worst_sample
from gossamer.algorithms.endless.fading import Fading
from gossamer.algorithms.endless.ldp_endless import Publish
from gossamer.algorithms.endless.theorems import Theorems, fastest
from gossamer.core import Algorithm, Rate
from gossamer.errors import PrivacyError
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
    Part,
    Played,
    Result,
    Tuned,
    across,
    below,
    decided,
    judged,
    measures,
    reaches,
    single,
    tuning_seeds,
)
from gossamer.experiments.claims import at_most
from gossamer.experiments.drawing import Curve, Panel
from gossamer.experiments.fits import at_most_like, exponent
from gossamer.experiments.papers.paper_003.circle import LEARNERS, NEEDS, RIVALS, circle, dealt, descent, shapes
from gossamer.experiments.papers.sources import needed
from gossamer.privacy import Budget
from gossamer.problems import Block, Problem
from gossamer.reports import Table
from gossamer.streams import Stream

NORM = math.sqrt(21)  # of a row of mushrooms: 21 attributes, each with one value
STEP, COUPLING = Rate(1.0, 0.77), Rate(1.0, 0.65)
GROWTHS = tuple(0.1 + 0.01 * i for i in range(1, LEARNERS + 1))
LOUD, BASE = 1.0, 0.1  # Laplace scales at t = 0 of figure 1, and of Table I at x1
EARLY = 10  # the round that later ones are compared with
SETTLED = 1.01  # a budget that grows by less than this over ten times as many rounds does not grow
CURVES: tuple[Publish, ...] = ("raw", "averaged")
MODELS: Mapping[Publish, str] = {"raw": "theta (not releasable)", "last": "y", "averaged": "averaged release"}
"""Of Algorithm 1: what is shown, and whether anybody may see it."""
TABLE_1: Mapping[float, tuple[float, int]] = {
    1.0: (23.34, 8),
    1.5: (16.59, 11),
    2.0: (12.65, 12),
    2.5: (11.97, 34),
    3.0: (11.54, 127),
    3.5: (10.50, 269),
    4.0: (9.64, 575),
    4.5: (8.79, 934),
    5.0: (7.98, 1119),
    5.5: (7.47, 2292),
    6.0: (7.03, 4999),
}
"""The paper's: by noise level, budget and number of iterations."""


class Powers(NamedTuple):
    """u of the coupling, v of the steps, varsigma of the noise."""

    u: float
    v: float
    varsigma: float

    def __str__(self) -> str:
        return f"u {self.u:g}, v {self.v:g}, varsigma {self.varsigma:g}"


MIDDLE = Powers(0.72, 0.85, 0.1)
REMARKS: Mapping[str, tuple[Powers, ...]] = {  # from what should be fast to what should be slow
    "v": tuple(MIDDLE._replace(v=v) for v in (0.75, 0.85, 0.95)),
    "u": tuple(MIDDLE._replace(u=u) for u in (0.82, 0.72, 0.62)),
    "varsigma": tuple(MIDDLE._replace(varsigma=s) for s in (0.02, 0.1, 0.2)),
}
"""Remarks 9 and 10: one power at a time, all within (4)."""


@dataclass(frozen=True)
class Sizes:
    """How much is run.

    Attributes:
        rounds: of figure 1 and the remarks.
        seeds: of the noise.
        l2: the paper's r_i, which it does not state: all of these.
        steps: of the rivals.
        levels: of the noise in Table I.
        table: rounds of Table I.
        table_seeds: of the noise in Table I.
        streams: orders of the data for Lemma 1.
    """

    rounds: int
    seeds: int
    levels: tuple[float, ...]
    table: int
    table_seeds: int
    streams: int
    steps: tuple[float, ...] = tuple(4.0**power for power in range(-4, 5))
    l2: tuple[float, ...] = (0.01, 0.1, 1.0)
    table_l2: tuple[float, ...] = (0.1, 1.0)

    @property
    def at(self) -> list[int]:
        """The rounds that curves are measured at."""
        marks = (1, 2, 5, EARLY, 20, 50, 100, 200, 500, 1000, 2000, 5000)
        return [mark for mark in marks if mark < self.rounds] + [self.rounds]

    @property
    def looked_at(self) -> list[int]:
        """The rounds of Table I: each needs an optimum of its own."""
        late = np.geomspace(30, self.table, 90).astype(int).tolist()
        return sorted({*range(1, 31), *(t for t in late if t <= self.table)})


FULL = Sizes(2000, 5, tuple(TABLE_1), 5000, 3, 5)
QUICK = Sizes(500, 2, (1.0, 3.0, 6.0), 300, 2, 2, steps=(1 / 16, 1.0, 16.0), l2=(0.1, 1.0))


@cache
def records(asked: Asked) -> data.Dataset:
    """Rows of norm sqrt(21): mushrooms, or scikit-learn's tumours scaled to it."""
    if not asked.stand_in:
        return needed(NEEDS, data.mushrooms, asked.data, "data of scikit-learn")
    found = data.breast_cancer()
    return replace(found, x_train=_to_norm(found.x_train, NORM), x_test=_to_norm(found.x_test, NORM))


@cache
def stream(asked: Asked, rounds: int, seed: int) -> Stream:
    """All records: learners 1 to 3 have label 0, 4 and 5 label 1; each as often as so many rounds need."""
    found = records(asked)
    x, y = np.concatenate([found.x_train, found.x_test]), np.concatenate([found.y_train, found.y_test])
    return dealt(x, y, rounds, "by-label", seed)


@cache
def problem(asked: Asked, l2: float) -> Problem:
    """l2-regularised logistic regression on rows as they are. The paper's ball, of radius 1e5, is never reached."""
    return problems.Logistic(int(records(asked).x_train.shape[1]), feature_bound=NORM, l2=l2)


def endless(
    loss: Problem,
    rounds: int,
    level: float,
    publish: Publish = "raw",
    *,
    step: Rate = STEP,
    coupling: Rate = COUPLING,
    growths: Sequence[float] = GROWTHS,
) -> Algorithm:
    """Algorithm 1 at Laplace noise level * (t+1)^varsigma_i: for curves; what plays theta is not for release.

    As in the paper, y(0) has noise too. The clip is the largest gradient there is, so that nothing is clipped.

    >>> endless(problems.Logistic(3, feature_bound=NORM, l2=0.1), 50, 1.0).guarantee.basis
    'none'
    """
    return algorithms.ldp_endless(
        loss,
        circle(),
        sigma=math.sqrt(2) * level,
        growth=list(growths),
        clip=NORM,
        horizon=rounds,
        step=step,
        coupling=coupling,
        start="noised",
        publish=publish,
    )


def of_powers(loss: Problem, rounds: int, powers: Powers) -> Algorithm:
    """Algorithm 1 at the noise of figure 1 with other powers, the same for all learners."""
    u, v, varsigma = powers
    rates = {"step": Rate(1.0, v), "coupling": Rate(1.0, u)}
    return endless(loss, rounds, LOUD, growths=[varsigma] * LEARNERS, **rates)  # type: ignore[arg-type]


def rival(name: str, loss: Problem, rounds: int, step: float) -> Algorithm:
    """A rival with a step, whether or not it converges."""
    return descent(name, loss, rounds, NORM, *shapes(step, GROWTHS[0], LOUD)[name])


def rival_budget(name: str, loss: Problem, step: float, rounds: int) -> float:
    """A bound on what the messages of so many rounds cost the sample that they cost most, as `gossip_descent` has it.

    >>> loss = problems.Logistic(3, feature_bound=NORM, l2=0.1)
    >>> [round(rival_budget("dsgd", loss, 0.5, rounds), 3) for rounds in (1, 50, 5000)]
    [3.677, 9.0, 9.0]
    """
    shape, unit, scale = shapes(step, GROWTHS[0], LOUD)[name]
    assert loss.smoothness is not None  # there is a feature_bound
    return math.sqrt(loss.dim) * 2 * NORM * worst_sample(shape, unit, loss.smoothness, rounds, loss.l2) / scale


def fadings(loss: Problem, step: Rate = STEP, coupling: Rate = COUPLING) -> Mapping[str, Fading]:
    """The recursions for what one sample costs on rows as they are, by the name of the bound.

    >>> list(fadings(problems.Logistic(3, feature_bound=NORM, l2=0.1)))
    ['Theorem 5(i)', 'eq. (22)', 'tight']
    """
    assert loss.smoothness is not None
    tight = Fading(step, coupling, 0.6, 2 * NORM, loss.smoothness, strong_convexity=loss.l2)
    loose = replace(tight, convex=False, strong_convexity=0.0)
    return {"Theorem 5(i)": tight.published(), "eq. (22)": loose, "tight": tight}


def spent(fading: Fading, dim: int, growth: float, rounds: int | None, scale: float = LOUD) -> float:
    """The budget of so many rounds; None: of all, infinite where that has no proof.

    >>> round(spent(Fading(STEP, COUPLING, 0.6, 2.0, 0.25), 112, 0.11, None), 1)
    270.0
    """
    try:
        return math.sqrt(dim) * fading.total(1, growth, rounds) / scale
    except PrivacyError:
        return math.inf


def theory(loss: Problem, powers: Powers | None = None, **scales: float) -> Theorems:
    """What the theorems say about figure 1, or about other powers.

    >>> loss = problems.Logistic(112, feature_bound=NORM, l2=0.1)
    >>> round(theory(loss).rate(3), 2), theory(loss, MIDDLE, step=1e-6, coupling=0.3).violations()[1]
    (0.08, [])
    """
    u, v, varsigma = powers or (COUPLING.power, STEP.power, 0.0)
    assert loss.smoothness is not None
    return Theorems.of(
        circle(),
        growths=[varsigma] if powers else GROWTHS,
        step=Rate(scales.get("step", 1.0), v),
        coupling=Rate(scales.get("coupling", 1.0), u),
        smoothness=loss.smoothness,
        strong_convexity=loss.l2,
        gradient=NORM,
    )


# -- figure 1 ----------------------------------------------------------------------------------------------------------


def figure_1(asked: Asked, sizes: Sizes) -> Mapping[Any, Entry]:
    """By l2: Algorithm 1, shown in three ways, and the rivals with the step of the least error at the end."""
    return {
        **{
            (l2, model): _cell(asked, sizes, l2, MODELS[model], _made(asked, sizes, l2, model))
            for l2 in sizes.l2
            for model in CURVES
        },
        **{(l2, name): _tuned(asked, sizes, l2, name) for l2 in sizes.l2 for name in RIVALS},
    }


def _made(asked: Asked, sizes: Sizes, l2: float, model: Publish) -> Any:
    return partial(endless, problem(asked, l2), sizes.rounds, LOUD, model)


def _cell(asked: Asked, sizes: Sizes, l2: float, title: str, make: Any, seeds: Sequence[int] | None = None) -> Cell:
    return Cell(
        f"figure 1, {title}, l2 {l2:g}",
        make,
        partial(stream, asked, sizes.rounds),
        sizes.rounds,
        [measures.tracking_error(sizes.at), measures.instantaneous_regret(sizes.at)],
        seeds=range(sizes.seeds) if seeds is None else seeds,
        measure="local",
    )


def _tuned(asked: Asked, sizes: Sizes, l2: float, name: str) -> Tuned:
    def cell(seeds: Sequence[int], step: float) -> Cell:
        make = partial(rival, name, problem(asked, l2), sizes.rounds, step)
        return _cell(asked, sizes, l2, f"{RIVALS[name]}, step {step:g}", make, seeds)

    grid = {"step": sizes.steps}
    trial, final = partial(cell, tuning_seeds(2)), partial(cell, range(sizes.seeds))
    return Tuned(f"{RIVALS[name]}, l2 {l2:g}", grid, trial=trial, final=final, by=error(sizes))


def error(sizes: Sizes) -> str:
    """The word of the metric."""
    return measures.tracking_error(sizes.at).word


def regret(sizes: Sizes) -> str:
    """The word of the metric."""
    return measures.instantaneous_regret(sizes.at).word


def figure_1_claims(asked: Asked, sizes: Sizes, found: Found) -> Sequence[Claim]:
    """Figure 1, column by column for each l2."""
    by_l2 = partial(across, {f"l2 {l2:g}": l2 for l2 in sizes.l2})
    word, early = error(sizes), sizes.at.index(EARLY)

    def end(l2: float, name: str, quantity: str = word) -> Estimate:
        return found[l2, name].estimate(quantity)

    def everyone(model: Publish, l2: float) -> Finding:
        errors = found[l2, model].repeated(word).mean(axis=0)
        ratios = errors[-1] / errors[early]
        return decided(bool((ratios < 1).all()), "learners 1 to 5: " + ", ".join(f"{each:.2f}" for each in ratios))

    def against(model: Publish, name: str, quantity: str, l2: float) -> Finding:
        return below(end(l2, model, quantity), end(l2, name, quantity), ("Algorithm 1", RIVALS[name]))

    def nearer(l2: float) -> Finding:
        loss, samples = problem(asked, l2), stream(asked, sizes.rounds, 0)
        still = metrics.tracking_error(np.zeros((1, 1, loss.dim)), loss, samples, [sizes.rounds]).item()
        return below(end(l2, "raw"), Estimate.of([still] * sizes.seeds), ("theta", "0"))

    def finite(l2: float) -> Finding:
        loss = problem(asked, l2)
        total = spent(fadings(loss)["tight"], loss.dim, GROWTHS[0], None)
        return decided(math.isfinite(total), f"{total:.4g}")

    def grows(name: str, l2: float) -> Finding:
        loss, step = problem(asked, l2), min(1.0, found[l2, name].setting["step"])
        first, late = (rival_budget(name, loss, step, count) for count in (sizes.rounds, 10 * sizes.rounds))
        measured = f"at most {first:.3g} at round {sizes.rounds:,}, {late:.3g} ten times later (step {step:g})"
        larger, known = late > SETTLED * first, math.isfinite(late)
        return judged(measured, holds=larger and known, fails=not larger and known)

    def met(l2: float) -> Finding:
        broken = theory(problem(asked, l2)).violations()
        reasons = dict.fromkeys(reason for why in broken.values() for reason in why)
        numbers = {reason: [str(number) for number, why in broken.items() if reason in why] for reason in reasons}
        words = "; ".join(f"Theorems {', '.join(each)}: {reason}" for reason, each in numbers.items())
        return decided(not words, words or "all hold")

    def corollary(model: Publish, l2: float) -> Finding:
        times, power = np.array(sizes.at), theory(problem(asked, l2)).dynamic_regret_power
        regrets = found[l2, model].repeated(regret(sizes)).mean(axis=-1)
        parts = np.diff(times) * (regrets[:, 1:] + regrets[:, :-1]) / 2  # by trapezoids between the points
        total = regrets[:, :1] + np.cumsum(parts, axis=1)
        late = times[1:] >= min(100, times[-3])
        return at_most_like(exponent(times[1:][late].tolist(), total[:, late].T), power)

    rounds = sizes.rounds
    claims = []
    for model in CURVES:
        title = MODELS[model]
        falls = f"{title}: the tracking error of every learner falls from round {EARLY} to {rounds:,}"
        claims.append(by_l2(falls, "Theorems 1, 3", partial(everyone, model)))
        for name, theirs in RIVALS.items():
            less = f"{title} ends with less tracking error than {theirs}"
            claims.append(by_l2(less, "figure 1(a)", partial(against, model, name, word)))
        grown = f"{title}: dynamic regret grows at most like T^(1 - beta/2)"
        claims.append(by_l2(grown, "Corollary 1", partial(corollary, model)))
    for name, theirs in RIVALS.items():
        less = f"theta ends with less instantaneous regret than {theirs}"
        claims.append(by_l2(less, "figure 1(b)", partial(against, "raw", name, regret(sizes))))
        claims.append(by_l2(f"the budget of {theirs} grows to infinity", "figure 1(c)", partial(grows, name)))
    return [
        *claims,
        by_l2(f"theta at round {rounds:,} is nearer to the optimum than the start, 0, is", "ours", nearer),
        by_l2("Algorithm 1: the budget is finite for ever (learner 1)", "figure 1(c)", finite),
        by_l2("all configurations satisfy the conditions of Theorems 1 to 5", "section VII-A", met),
    ]


def figure_1_parts(asked: Asked, sizes: Sizes, found: Found) -> Sequence[Part]:
    """Curves; errors, regrets, rates and budgets as tables."""
    titles: dict[str, str] = {**{model: MODELS[model] for model in CURVES}, **RIVALS}
    panels = tuple(
        Panel(
            f"l2 {l2:g}",
            quantity,
            tuple(found[l2, name].curve(title, word, 0.1) for name, title in titles.items()),
            log=True,
        )
        for l2 in sizes.l2
        for quantity, word in (("tracking error", error(sizes)), ("instantaneous regret", regret(sizes)))
    )
    words = (error(sizes), regret(sizes))
    rows = tuple(
        (
            f"{l2:g}",
            title + (f", step {found[l2, name].setting['step']:g}" if found[l2, name].setting else ""),
            *(f"{found[l2, name].estimate(word).mean:.4g}" for word in words),
        )
        for l2 in sizes.l2
        for name, title in titles.items()
    )
    columns = ("l2", "shown", "tracking error at the end", "instantaneous regret at the end")
    text = (
        "theta is what the paper plots. Whoever sees it besides the messages learns everything, so it is never "
        "released. The averaged release is a weighted mean of all that was sent (weights like t^3). "
        "It costs nothing more. The rivals play x, which is raw too, with the step of the least error at the end: the "
        "best that they can hope for. The paper takes the largest step of which the double does not converge; steps "
        "that fall like 1/t, or geometrically, recover from almost any start, so that this rule has no answer.",
    )
    costs = [
        (f"{l2:g}", str(learner + 1), *(_short(spent(each, loss.dim, growth, count)) for each, count in kinds))
        for l2 in sizes.l2
        for loss in [problem(asked, l2)]
        for kinds in [[(each, sizes.rounds) for each in fadings(loss).values()] + [(fadings(loss)["tight"], None)]]
        for learner, growth in ((0, GROWTHS[0]), (4, GROWTHS[4]))
    ]
    names = ("l2", "learner", "Theorem 5(i)", "eq. (22)", "tight", "tight, for ever")
    costly = "C = 2 sqrt(21) and L = 21/4 + l2; nothing is clipped. Theorem 5(i) counts every past gradient anew."
    heading, fees = "Figure 1: Laplace noise (t+1)^(0.1 + 0.01 i)", Table(names, tuple(costs))
    costs_heading = f"Figure 1(c): epsilon of one sample, {sizes.rounds:,} rounds"
    return [
        Part("figure-1", heading, text, panels, Table(columns, rows)),
        Part("budgets", costs_heading, (costly,), table=fees),
    ]


def _fitted(result: Result, word: str, sizes: Sizes) -> float:
    """The exponent with which the mean falls from round 100 on."""
    times = np.array(sizes.at)
    late = times >= min(100, times[-3])
    fit = exponent(times[late].tolist(), result.repeated(word).mean(axis=-1)[:, late].T)
    return -fit.exponent if fit else math.nan


# -- Table I -----------------------------------------------------------------------------------------------------------


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


def table_1(asked: Asked, sizes: Sizes) -> Mapping[Any, Entry]:
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


def table_1_claims(asked: Asked, sizes: Sizes, found: Found) -> Sequence[Claim]:
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


def table_1_parts(asked: Asked, sizes: Sizes, found: Found) -> Sequence[Part]:
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
                _short(cost) + (" for ever" if ends is None else ""),
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


# -- Lemma 1 and Remarks 7, 9 and 10 -----------------------------------------------------------------------------------

TRADED = 1.0  # the l2 of the remarks: tracking errors fall fast enough to be compared


def remarks(asked: Asked, sizes: Sizes) -> Mapping[Any, Entry]:
    """Every power, a setting that meets Theorem 1, and how far optima move."""
    loss = problem(asked, TRADED)
    entries: dict[Any, Entry] = {}
    for powers in dict.fromkeys(each for line in REMARKS.values() for each in line):
        entries[powers] = _cell(asked, sizes, TRADED, str(powers), partial(of_powers, loss, sizes.rounds, powers))
    step, coupling = Rate(_allowed(loss), MIDDLE.v), Rate(0.3, MIDDLE.u)
    rates: dict[str, Any] = {"step": step, "coupling": coupling, "growths": [MIDDLE.varsigma] * LEARNERS}
    meets = partial(endless, loss, sizes.rounds, LOUD, **rates)
    entries["Theorem 1"] = _cell(asked, sizes, TRADED, "conditions of Theorem 1", meets)
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


def remarks_claims(asked: Asked, sizes: Sizes, found: Found) -> Sequence[Claim]:
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


def remarks_parts(asked: Asked, sizes: Sizes, found: Found) -> Sequence[Part]:
    """Errors, rates and budgets by power; Lemma 1."""
    loss, word = problem(asked, TRADED), error(sizes)
    rows = tuple(
        (
            *(f"{value:g}" for value in powers),
            found[powers].estimate(word).cell,
            f"{_fitted(found[powers], word, sizes):.2f}",
            f"{theory(loss, powers).rate(1):.2f}",
            _short(_cost(loss, powers)),
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


# -- a setting that is private and useful ------------------------------------------------------------------------------

USABLE: Mapping[str, Mapping[str, Any]] = {
    "(2, 1e-5), Gaussian": {"budget": Budget(2.0, 1e-5), "noise": "gaussian"},
    "epsilon 10, Laplace": {"budget": Budget(10.0), "noise": "laplace"},
    "epsilon 10, Laplace, v 0.9": {"budget": Budget(10.0), "noise": "laplace", "step": Rate(4.0, 0.9)},
    "no noise": {"sigma": 1e-9, "noise": "gaussian"},
}
"""Two ways to be purely private, and no noise, for comparison."""
ACCURATE, SMALL_LOSS = 0.88, 0.36  # what a usable model must have


def usable(asked: Asked, title: str, rounds: int, publish: Publish) -> Algorithm:
    """Algorithm 1 over an endless horizon with a late start, on rows of norm 1."""
    dim = int(records(asked).x_train.shape[1])
    options: dict[str, Any] = {"step": Rate(4.0, 0.52), "growth": 0.0, **USABLE[title]}
    return algorithms.ldp_endless(
        problems.Logistic(dim, feature_bound=1.0, domain=sets.L2Ball(20.0)),
        circle(),
        clip=1.0,
        buffer=rounds,
        coupling=Rate(1.0, 0.51),
        delay=min(200, rounds // 3),
        publish=publish,
        **options,
    )


@cache
def _unit_stream(asked: Asked, rounds: int, seed: int) -> Stream:
    return dealt(_to_norm(records(asked).x_train, 1.0), records(asked).y_train, rounds, "by-label", seed)


def usable_cells(asked: Asked, sizes: Sizes) -> Mapping[Any, Entry]:
    """By budget and what is shown; the averaged release for all."""
    found = records(asked)
    test = Block(_to_norm(found.x_test, 1.0), found.y_test)
    shown: list[tuple[str, Publish]] = [(title, "averaged") for title in USABLE]
    return {
        f"{title}, {MODELS[model]}": Cell(
            f"usable, {title}, {MODELS[model]}",
            partial(usable, asked, title, sizes.rounds, model),
            partial(_unit_stream, asked, sizes.rounds),
            sizes.rounds,
            [measures.held_out(), measures.held_out("loss")],
            seeds=range(sizes.seeds),
            measure="local",
            every=max(1, sizes.rounds // 10),
            test=test,
        )
        for title, model in [*shown, *((next(iter(USABLE)), model) for model in ("raw", "last"))]
    }


def usable_claims(found: Found) -> Sequence[Claim]:
    """What a budget that means something leaves of a model."""
    claims = []
    for title in USABLE:
        if title != "no noise":
            ends = found[f"{title}, {MODELS['averaged']}"]
            accuracy = reaches(ends.estimate("test accuracy").values, ACCURATE)
            claims.append(single(f"{title}, for ever, averaged: accuracy of at least {ACCURATE:g}", "ours", accuracy))
    private = found[f"{next(iter(USABLE))}, {MODELS['averaged']}"].estimate("test loss").values
    loss = at_most(private, SMALL_LOSS)
    return [*claims, single(f"{next(iter(USABLE))}: loss of at most {SMALL_LOSS:g}", "ours", loss)]


def _short(value: float) -> str:
    return "no bound" if math.isinf(value) else f"{value:.4g}"


def _to_norm(x: Any, norm: float) -> Any:
    return x * (norm / np.linalg.norm(x, axis=1, keepdims=True)).astype(x.dtype)
