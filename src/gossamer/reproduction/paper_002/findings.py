"""The claims of section 6, and ours about the same runs, each with what was measured."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from gossamer.reproduction.claims import Claim, Estimate, Finding, about, across, below, every, increasing, reaches
from gossamer.reproduction.paper_002.cases import LEVELS, SCALES, TABLES, Case, Name
from gossamer.reproduction.paper_002.experiments import BOTH, COMPARED, MODELS, PROTOCOLS, ClassLab, CompareLab, PairLab
from gossamer.reproduction.paper_002.regression import CORRELATED, DECISIONS, RegressionLab
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


in_scales = partial(across, SCALES)
"""A claim with both readings of the paper's levels."""


def at_levels(find: Callable[[float], Finding]) -> Finding:
    """At every level of the paper."""
    return every({level_name(level): find(level) for level in LEVELS})


def at(found: Result, quantity: str, rounds: int) -> Estimate:
    """A quantity at a round, over all runs."""
    place = found["rounds"].index(rounds)
    return Estimate.of([curve[place] for curve in found[quantity]])


def last(found: Result, quantity: str) -> Estimate:
    """A quantity after the last round, over all runs."""
    return Estimate.of([curve[-1] for curve in found[quantity]])


def of_regression(lab: RegressionLab) -> list[Claim]:
    """Figure 3."""
    rounds, longer = lab.plan.rounds, lab.points[-1]
    factor = math.sqrt(rounds / longer)

    def falls(name: Name, quantity: str, unit: float) -> Finding:
        def fall(level: float) -> Finding:
            late, early = (at(lab.level(name, unit, level), quantity, horizon) for horizon in (longer, rounds))
            return below(late, factor * early, (f"T = {longer}", f"{factor:.2g} of T = {rounds}"))

        return at_levels(fall)

    def ordered(name: Name, quantity: str, unit: float) -> Finding:
        return increasing({level_name(e): at(lab.level(name, unit, e), quantity, rounds) for e in LEVELS})

    def pays(name: Name, quantity: str, unit: float) -> Finding:
        zero = Estimate.of(lab.zero(rounds))
        return at_levels(
            lambda level: below(at(lab.level(name, unit, level), quantity, rounds), zero, ("it", "playing 0"))
        )

    tests = (
        (f"regret per round of {{}} goes to 0 (like 1/sqrt(T), from T = {rounds} to {longer})", "figure 3", falls),
        (f"regret of {{}} grows as epsilon falls (T = {rounds})", "figure 3", ordered),
        (f"regret of {{}} is below that of playing 0 (T = {rounds})", "ours", pays),
    )
    return [
        in_scales(f"regression, {name}: {statement.format(WORDS[quantity])}", source, partial(test, name, quantity))
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
            "half of independent noise": below(blt, 0.5 * independent, ("blt", "half of independent")),
            f"{share:g} of playing 0": below(blt, share * zero, ("blt", f"{share:g} of playing 0")),
        }
        for name, finding in findings.items():
            statement = f"blt, own exact, ({budget.epsilon:g}, {budget.delta:g}): regret below {name}"
            claims.append(Claim(statement, "ours", {"measured": finding}))
    return claims


def of_task(lab: ClassLab) -> list[Claim]:
    """Figure 5 and one of the tables 2 to 4."""
    key, title = lab.task.key, lab.task.title
    source = f"table {TABLES[key]}"

    def accuracy(name: Name, model: str, part: str, unit: float, level: float) -> Estimate:
        return Estimate.of(lab.level(name, unit, level)[model][part])

    def ordered(name: Name, model: str, unit: float) -> Finding:
        return increasing({level_name(e): accuracy(name, model, "test", unit, e) for e in reversed(LEVELS)})

    def near(name: Name, model: str, unit: float) -> Finding:
        numbers = {
            f"{part}, {level_name(e)} (paper {paper:.4g})": about(accuracy(name, model, part, unit, e), paper, NEAR)
            for part in ("train", "test")
            for e, paper in zip(LEVELS, PAPER[key][name][part], strict=True)
        }
        return every(numbers)

    def falls(name: Name, unit: float) -> Finding:
        def fall(level: float) -> Finding:
            row = lab.level(name, unit, level)
            ends = (row["rounds"][-1], row["rounds"][-1] // 2)
            late, early = (at(row, "fitness", end) for end in ends)
            return below(late, early, (f"T = {ends[0]}", f"T = {ends[1]}"))

        return at_levels(fall)

    def pays(name: Name, unit: float) -> Finding:
        zero = Estimate.of([lab.zero()] * lab.plan.runs)
        return at_levels(lambda level: below(last(lab.level(name, unit, level), "fitness"), zero, ("it", "playing 0")))

    claims = []
    for name in BOTH:
        where = f"{title}, {name}: average fitness"
        claims.append(in_scales(f"{where} falls", "figure 5", partial(falls, name)))
        claims.append(in_scales(f"{where} is below that of playing 0", "ours", partial(pays, name)))
        for model in MODELS:
            kind = f"{title}, {name}, {'last decision' if model == 'last' else 'running average'}"
            paper = f"{kind}: training and test accuracy are the paper's (each within {NEAR:g})"
            claims.append(
                in_scales(f"{kind}: test accuracy falls as epsilon falls", source, partial(ordered, name, model))
            )
            claims.append(in_scales(paper, source, partial(near, name, model)))
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
                partial(differs, name),
            ),
            in_scales(
                f"{name}: the smaller epsilon, the smaller the difference (largest entry of x({t + 1}), same noise)",
                "table 5",
                partial(ordered, name),
            ),
        )
    ]


def of_compared(lab: CompareLab) -> list[Claim]:
    """Figure 7."""

    def ahead(mine: Name, theirs: Name, protocol: str, sigma: float) -> Finding:
        one, other = (last(lab.found(name, sigma, protocol), "fitness") for name in (mine, theirs))
        return below(one, other, (mine, theirs))

    return [
        in_scales(
            f"{names[0]} has less average fitness than {other} at equal sigma (eps 1), {protocol}",
            "figure 7",
            partial(ahead, names[0], other, protocol),
        )
        for names in COMPARED.values()
        for other in names[1:]
        for protocol in PROTOCOLS
    ]
