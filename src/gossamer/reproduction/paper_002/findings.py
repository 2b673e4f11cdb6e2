"""The claims of section 6, and ours about the same runs, each with what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gossamer.reproduction.claims import Claim, Estimate, Finding, about, below, increasing, reaches
from gossamer.reproduction.paper_002.cases import LEVELS, SCALES, TABLES, Case, Name
from gossamer.reproduction.paper_002.experiments import (
    BOTH,
    COMPARED,
    CORRELATED,
    DECISIONS,
    MODELS,
    PROTOCOLS,
    ClassLab,
    CompareLab,
    PairLab,
    RegressionLab,
)
from gossamer.reproduction.store import Result

NEAR = 0.03  # "near the paper's": every accuracy within 3 points
WORDS = {"played": "x(t)", "averaged": "the running average"}

PAPER: dict[str, dict[Name, dict[str, tuple[float, ...]]]] = {
    "mushrooms": {
        "DPSDA-C": {"train": (0.9795, 0.9477, 0.8825, 0.7938), "test": (0.9950, 0.8505, 0.8205, 0.7650)},
        "DPSDA-PS": {"train": (0.9770, 0.9450, 0.8810, 0.7535), "test": (0.9790, 0.8120, 0.7810, 0.7300)},
    },
    "mnist": {
        "DPSDA-C": {"train": (0.9738, 0.8615, 0.7394, 0.5975), "test": (0.9798, 0.8610, 0.7392, 0.5885)},
        "DPSDA-PS": {"train": (0.9739, 0.8971, 0.7715, 0.6210), "test": (0.9798, 0.8960, 0.7747, 0.6102)},
    },
    "cifar10": {
        "DPSDA-C": {"train": (0.9006, 0.8390, 0.7351, 0.6347), "test": (0.8970, 0.8333, 0.7264, 0.6301)},
        "DPSDA-PS": {"train": (0.9006, 0.8753, 0.8359, 0.7838), "test": (0.8970, 0.8721, 0.8334, 0.7761)},
    },
}
"""Tables 2 to 4: accuracy at the levels infinity, 1, 0.5 and 0.2."""
TABLE_5: dict[Name, tuple[float, ...]] = {
    "DPSDA-C": (0.0374, 0.0074, 0.0035, 0.0013),
    "DPSDA-PS": (0.0357, 0.0082, 0.0042, 0.0016),
}


def level_name(level: float) -> str:
    """As in the paper's tables.

    >>> level_name(math.inf), level_name(0.5)
    ('non-private', 'eps 0.5')
    """
    return "non-private" if math.isinf(level) else f"eps {level:g}"


def in_scales(statement: str, source: str, finding: Callable[[float], Finding]) -> Claim:
    """A claim with both readings of the paper's levels.

    >>> from gossamer.reproduction.claims import NOT_RUN
    >>> list(in_scales("A is below B", "Figure 3", lambda unit: NOT_RUN).findings)
    ['sigma = 1/eps', 'sigma = 14/eps']
    """
    return Claim(statement, source, {name: finding(unit) for name, unit in SCALES.items()})


def every(findings: Mapping[str, Finding]) -> Finding:
    """All of them together: it holds where each does, and does not hold where one does not.

    >>> every({"a": Finding("1", "holds"), "b": Finding("2", "not resolved")})
    Finding(measured='a: 1; b: 2', verdict='not resolved')
    """
    measured = "; ".join(f"{name}: {found.measured}" for name, found in findings.items())
    verdicts = {found.verdict for found in findings.values()}
    if "does not hold" in verdicts:
        return Finding(measured, "does not hold")
    return Finding(measured, "holds" if verdicts == {"holds"} else "not resolved")


def at(found: Result, quantity: str, rounds: int) -> Estimate:
    """A quantity at a round, over all runs."""
    place = found["rounds"].index(rounds)
    return Estimate.of([curve[place] for curve in found[quantity]])


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """Every run times a factor.

    >>> scaled(Estimate.of([1.0, 2.0]), 0.5).values
    (0.5, 1.0)
    """
    return Estimate.of([factor * value for value in estimate.values])


def of_regression(lab: RegressionLab) -> list[Claim]:
    """Figure 3."""
    rounds, longer = lab.plan.rounds, lab.points[-1]
    factor = math.sqrt(rounds / longer)

    def falls(name: Name, quantity: str, unit: float) -> Finding:
        found = {level: lab.level(name, unit, level) for level in LEVELS}
        return every(
            {
                level_name(level): below(
                    at(each, quantity, longer),
                    scaled(at(each, quantity, rounds), factor),
                    (f"T = {longer}", f"{factor:.2g} of T = {rounds}"),
                )
                for level, each in found.items()
            }
        )

    def ordered(name: Name, quantity: str, unit: float) -> Finding:
        found = {level_name(level): at(lab.level(name, unit, level), quantity, rounds) for level in LEVELS}
        return increasing(found)

    def pays(name: Name, quantity: str, unit: float) -> Finding:
        zero = Estimate.of(lab.zero(rounds))
        found = {level: at(lab.level(name, unit, level), quantity, rounds) for level in LEVELS}
        return every({level_name(level): below(each, zero, ("it", "playing 0")) for level, each in found.items()})

    tests = (
        (f"regret per round of {{}} goes to 0 (like 1/sqrt(T), from T = {rounds} to {longer})", "figure 3", falls),
        (f"regret of {{}} grows as epsilon falls (T = {rounds})", "figure 3", ordered),
        (f"regret of {{}} is below that of playing 0 (T = {rounds})", "ours", pays),
    )
    return [
        in_scales(
            f"regression, {name}: {statement.format(WORDS[quantity])}",
            source,
            lambda unit, test=test, name=name, quantity=quantity: test(name, quantity, unit),  # type: ignore[misc]
        )
        for statement, source, test in tests
        for name in BOTH
        for quantity in DECISIONS
    ]


def of_correlated(lab: RegressionLab) -> list[Claim]:
    """Ours: what correlated noise gains, against independent noise and against playing 0."""
    rounds = lab.plan.correlated
    zero = Estimate.of(lab.zero(rounds))

    def regret(case: Case) -> Estimate:
        return at(lab.regret(case, [rounds], lab.seeds), "played", rounds)

    claims = []
    for budget, share in zip(CORRELATED, (0.35, 0.6), strict=True):
        blt = regret(lab.correlated(budget, "blt", "exact"))
        independent = regret(lab.correlated(budget, "independent", "exact"))
        findings = {
            "half of independent noise": below(blt, scaled(independent, 0.5), ("blt", "half of independent")),
            f"{share:g} of playing 0": below(blt, scaled(zero, share), ("blt", f"{share:g} of playing 0")),
        }
        for name, finding in findings.items():
            statement = f"blt, own exact, ({budget.epsilon:g}, {budget.delta:g}): regret below {name}"
            claims.append(Claim(statement, "ours", {"measured": finding}))
    return claims


def of_task(lab: ClassLab) -> list[Claim]:
    """Figure 5 and one of the tables 2 to 4."""
    key, title = lab.task.key, lab.task.title
    source = f"table {TABLES[key]}"

    def rows(name: Name, unit: float) -> dict[float, Result]:
        return {level: lab.level(name, unit, level) for level in LEVELS}

    def ordered(name: Name, model: str, unit: float) -> Finding:
        found = {level_name(level): row[model]["test"] for level, row in reversed(rows(name, unit).items())}
        return increasing({level: Estimate.of(values) for level, values in found.items()})

    def near(name: Name, model: str, unit: float) -> Finding:
        found = rows(name, unit).values()
        numbers = {
            f"{part}, {level_name(level)} (paper {paper:.4g})": about(Estimate.of(row[model][part]), paper, NEAR)
            for part in ("train", "test")
            for row, level, paper in zip(found, LEVELS, PAPER[key][name][part], strict=True)
        }
        return every(numbers)

    def fitness(name: Name, unit: float) -> Finding:
        found = rows(name, unit)
        ends = found[math.inf]["rounds"][-1]
        return every(
            {
                level_name(level): below(
                    at(row, "fitness", ends), at(row, "fitness", ends // 2), (f"T = {ends}", f"T = {ends // 2}")
                )
                for level, row in found.items()
            }
        )

    def pays(name: Name, unit: float) -> Finding:
        found = rows(name, unit)
        ends = found[math.inf]["rounds"][-1]
        zero = Estimate.of([lab.zero()] * lab.plan.runs)
        return every(
            {
                level_name(level): below(at(row, "fitness", ends), zero, ("it", "playing 0"))
                for level, row in found.items()
            }
        )

    claims = []
    for name in BOTH:
        where = f"{title}, {name}"
        claims += [
            in_scales(f"{where}: average fitness falls", "figure 5", lambda unit, name=name: fitness(name, unit)),  # type: ignore[misc]
            in_scales(
                f"{where}: average fitness is below that of playing 0",
                "ours",
                lambda unit, name=name: pays(name, unit),  # type: ignore[misc]
            ),
        ]
        for model in MODELS:
            kind = f"{where}, {'last decision' if model == 'last' else 'running average'}"
            claims += [
                in_scales(
                    f"{kind}: test accuracy falls as epsilon falls",
                    source,
                    lambda unit, name=name, model=model: ordered(name, model, unit),  # type: ignore[misc]
                ),
                in_scales(
                    f"{kind}: training and test accuracy are the paper's (each within {NEAR:g})",
                    source,
                    lambda unit, name=name, model=model: near(name, model, unit),  # type: ignore[misc]
                ),
            ]
    return claims


GOALS = {("mushrooms", 1): 0.975, ("mushrooms", 5): 0.993, ("mnist", 1): 0.975}
"""Test accuracy of the running average without noise, by task and passes."""


def of_goals(labs: Mapping[str, ClassLab]) -> list[Claim]:
    """Ours: what must be reached without noise on real data; a mean over runs."""
    return [
        Claim(
            f"{labs[key].task.title}: test accuracy of the running average after {passes} pass(es) reaches {goal:g}",
            "ours",
            {
                f"{name}{'' if errors else ', without xi'}": mean_reaches(
                    labs[key].plain(name, passes, errors)["averaged"]["test"], goal
                )
                for errors in (False, True)
                for name in BOTH
            },
        )
        for (key, passes), goal in GOALS.items()
        if key in labs
    ]


def mean_reaches(values: Sequence[float], goal: float) -> Finding:
    """Whether the mean over runs reaches a level.

    >>> mean_reaches([0.97, 0.99], 0.975)
    Finding(measured='mean 0.9800 of 2 runs, 0.9700 to 0.9900', verdict='holds')
    """
    mean = float(np.mean(values))
    measured = f"mean {mean:.4f} of {len(values)} runs, {min(values):.4f} to {max(values):.4f}"
    return Finding(measured, reaches([mean], goal).verdict)


def of_pairs(lab: PairLab) -> list[Claim]:
    """Figure 6 and table 5."""

    def gap(name: Name, unit: float, level: float, quantity: str, later: int) -> Estimate:
        cases = {0.0: Case(name)} | {case.sigma: case for case in lab.cases(name).values() if case.sigma}
        found = lab.differences(cases[unit / level])
        return Estimate.of([run[later] for run in found[quantity]])

    def differs(name: Name, unit: float) -> Finding:
        """The paper's own words: x(400) is clearly different without noise, and not with it."""
        none, noised = (gap(name, unit, level, "largest", 0) for level in (math.inf, 1.0))
        if not any((*none.values, *noised.values)):
            return Finding("0 in every run, with noise and without: f_t is seen after x(t) is played", "does not hold")
        return below(noised, none, ("with noise", "without"))

    def ordered(name: Name, unit: float) -> Finding:
        return increasing({level_name(level): gap(name, unit, level, "largest", 1) for level in reversed(LEVELS)})

    t = lab.changed
    return [
        claim
        for name in BOTH
        for claim in (
            in_scales(
                f"{name}: x({t}) tells f_{t} from f'_{t} without noise, and less with it (largest entry)",
                "figure 6, table 5",
                lambda unit, name=name: differs(name, unit),  # type: ignore[misc]
            ),
            in_scales(
                f"{name}: the smaller epsilon, the smaller the difference (largest entry of x({t + 1}), same noise)",
                "table 5",
                lambda unit, name=name: ordered(name, unit),  # type: ignore[misc]
            ),
        )
    ]


def of_compared(lab: CompareLab) -> list[Claim]:
    """Figure 7."""

    def ahead(mine: Name, theirs: Name, protocol: str, sigma: float) -> Finding:
        ends = [lab.found(name, sigma, protocol)["fitness"] for name in (mine, theirs)]
        one, other = (Estimate.of([curve[-1] for curve in each]) for each in ends)
        return below(one, other, (mine, theirs))

    return [
        in_scales(
            f"{names[0]} has less average fitness than {other} at equal sigma (eps 1), {protocol}",
            "figure 7",
            lambda unit, names=names, other=other, protocol=protocol: ahead(names[0], other, protocol, unit),  # type: ignore[misc]
        )
        for names in COMPARED.values()
        for other in names[1:]
        for protocol in PROTOCOLS
    ]
