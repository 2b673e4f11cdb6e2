"""Figure 1 of paper 003: Algorithm 1 against its rivals, errors, regrets and budgets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from gossamer import metrics
from gossamer.algorithms.descent.gossip_descent import worst_sample
from gossamer.algorithms.endless.ldp_endless import Publish
from gossamer.core import Algorithm
from gossamer.experiments import (
    Asked,
    Cell,
    Claim,
    Entry,
    Estimate,
    Finding,
    Found,
    Part,
    Tuned,
    across,
    below,
    decided,
    judged,
    tuning_seeds,
)
from gossamer.experiments.drawing import Panel
from gossamer.experiments.fits import at_most_like, exponent
from gossamer.experiments.papers.paper_003.circle import RIVALS, descent, shapes
from gossamer.experiments.papers.paper_003.mushrooms import (
    EARLY,
    GROWTHS,
    LOUD,
    MODELS,
    NORM,
    Sizes,
    cell_of,
    endless,
    error,
    fadings,
    problem,
    regret,
    short,
    spent,
    stream,
    theory,
)
from gossamer.problems import Problem
from gossamer.reports import Table

SETTLED = 1.01  # a budget that grows by less than this over ten times as many rounds does not grow
CURVES: tuple[Publish, ...] = ("raw", "averaged")


def rival(name: str, loss: Problem, rounds: int, step: float) -> Algorithm:
    """A rival with a step, whether or not it converges."""
    return descent(name, loss, rounds, NORM, *shapes(step, GROWTHS[0], LOUD)[name])


def rival_budget(name: str, loss: Problem, step: float, rounds: int) -> float:
    """A bound on what the messages of so many rounds cost the sample that they cost most, as `gossip_descent` has it.

    >>> from gossamer.problems import Logistic
    >>> loss = Logistic(3, feature_bound=NORM, l2=0.1)
    >>> [round(rival_budget("dsgd", loss, 0.5, rounds), 3) for rounds in (1, 50, 5000)]
    [3.677, 9.0, 9.0]
    """
    shape, unit, scale = shapes(step, GROWTHS[0], LOUD)[name]
    assert loss.smoothness is not None  # there is a feature_bound
    return math.sqrt(loss.dim) * 2 * NORM * worst_sample(shape, unit, loss.smoothness, rounds, loss.l2) / scale


def cells(asked: Asked, sizes: Sizes) -> Mapping[Any, Entry]:
    """By l2: Algorithm 1, shown in three ways, and the rivals with the step of the least error at the end."""
    return {
        **{
            (l2, model): cell_of(asked, sizes, l2, MODELS[model], _made(asked, sizes, l2, model))
            for l2 in sizes.l2
            for model in CURVES
        },
        **{(l2, name): _tuned(asked, sizes, l2, name) for l2 in sizes.l2 for name in RIVALS},
    }


def _made(asked: Asked, sizes: Sizes, l2: float, model: Publish) -> Any:
    return partial(endless, problem(asked, l2), sizes.rounds, LOUD, model)


def _tuned(asked: Asked, sizes: Sizes, l2: float, name: str) -> Tuned:
    def cell(seeds: Sequence[int], step: float) -> Cell:
        make = partial(rival, name, problem(asked, l2), sizes.rounds, step)
        return cell_of(asked, sizes, l2, f"{RIVALS[name]}, step {step:g}", make, seeds)

    grid = {"step": sizes.steps}
    trial, final = partial(cell, tuning_seeds(2)), partial(cell, range(sizes.seeds))
    return Tuned(f"{RIVALS[name]}, l2 {l2:g}", grid, trial=trial, final=final, by=error(sizes))


def claims(asked: Asked, sizes: Sizes, found: Found) -> Sequence[Claim]:
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


def parts(asked: Asked, sizes: Sizes, found: Found) -> Sequence[Part]:
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
        (f"{l2:g}", str(learner + 1), *(short(spent(each, loss.dim, growth, count)) for each, count in kinds))
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
