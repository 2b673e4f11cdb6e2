"""The claims of section VII, and ours about the same runs, each with what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from gossamer.algorithms.endless.fading import Fading
from gossamer.algorithms.endless.ldp_endless import Publish
from gossamer.algorithms.endless.theorems import Theorems
from gossamer.errors import PrivacyError
from gossamer.problems import Problem
from gossamer.reproduction.claims import NOT_RUN, Claim, Estimate, Finding, about, below, reaches
from gossamer.reproduction.paper_003.cases import (
    BASE,
    COUPLING,
    GROWTHS,
    LEARNERS,
    MODELS,
    NORM,
    RIVALS,
    STEP,
    circle,
    fadings,
    rival_budget,
)
from gossamer.reproduction.paper_003.experiments import (
    EARLY,
    NetworkLab,
    TrackingLab,
    UsableLab,
    at_end,
    mean_error,
)
from gossamer.reproduction.store import Result

SHARE = 0.4  # of the error at round 10 that may be left at the end
SETTLED = 1.01  # a budget that grows by less than this over ten times as many rounds does not grow
ACCURATE, SMALL_LOSS = 0.88, 0.36  # what a usable model must have
STALLED = 0.2  # accuracy of ten classes at most, where nothing was learnt
CLOSE = 0.02  # "as in Table II": within this
KIND = "found"

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
TABLE_2: Mapping[float, tuple[float, float, float]] = {
    0.5: (0.9402, 0.9449, 0.2696),
    1.0: (0.9350, 0.9380, 0.2786),
    1.5: (0.8862, 0.8964, 0.2898),
    2.0: (0.8180, 0.8259, 0.3110),
}
"""The paper's: by noise level, training accuracy, test accuracy and DLG error."""


def at_most(values: Sequence[float], level: float) -> Finding:
    """Whether a number stays below a level: in every single run, or in none of them.

    >>> at_most([0.3, 0.5], 0.4)
    Finding(measured='0.300, 0.500 (at most 0.4)', verdict='not resolved')
    """
    measured = ", ".join(f"{value:.3f}" for value in values) + f" (at most {level:g})"
    if not any(value <= level for value in values):
        return Finding(measured, "does not hold")
    return Finding(measured, "holds" if all(value <= level for value in values) else "not resolved")


def spent(fading: Fading, dim: int, growth: float, rounds: int | None, scale: float = 1.0) -> float:
    """The budget of so many rounds; None: of all, infinite where that has no proof.

    >>> from gossamer.core import Rate
    >>> round(spent(Fading(STEP, COUPLING, 0.6, 2.0, 0.25), 112, 0.11, None), 1)
    270.0
    """
    try:
        return math.sqrt(dim) * fading.total(1, growth, rounds) / scale
    except PrivacyError:
        return math.inf


def theory(problem: Problem) -> Theorems:
    """What the theorems say about figure 1.

    >>> from gossamer.problems import Logistic
    >>> round(theory(Logistic(112, feature_bound=NORM, l2=0.1)).rate(3), 2)
    0.08
    """
    assert problem.smoothness is not None
    return Theorems.of(
        circle(),
        growths=GROWTHS,
        step=STEP,
        coupling=COUPLING,
        smoothness=problem.smoothness,
        strong_convexity=problem.l2,
        gradient=NORM,
    )


def of_mushrooms(lab: TrackingLab) -> list[Claim]:
    """Figure 1, column by column for each l2."""
    rounds = lab.plan.rounds
    rivals = [(RIVALS[name], name) for name in RIVALS]
    releasable: tuple[Publish, ...] = ("raw", "averaged")
    return [
        *(
            _by_l2(
                lab,
                f"{MODELS[model]}: tracking error at round {rounds:,} at most {SHARE:g} of that at round {EARLY}",
                "ours",
                lambda l2, model=model: at_most(_ratios(lab, l2, model), SHARE),  # type: ignore[misc]
            )
            for model in releasable
        ),
        *(
            _by_l2(
                lab,
                f"{MODELS[model]}: the tracking error of every learner falls from round {EARLY} to {rounds:,}",
                "Theorems 1, 3",
                lambda l2, model=model: _everyone(lab, l2, model),  # type: ignore[misc]
            )
            for model in releasable
        ),
        *(
            _by_l2(
                lab,
                f"{MODELS[model]} ends with less tracking error than {title}",
                "figure 1(a)",
                lambda l2, model=model, name=name, title=title: _against(  # type: ignore[misc]
                    lab, l2, model, name, title, "error"
                ),
            )
            for model in releasable
            for title, name in rivals
        ),
        *(
            _by_l2(
                lab,
                f"theta ends with less instantaneous regret than {title}",
                "figure 1(b)",
                lambda l2, name=name, title=title: _against(lab, l2, "raw", name, title, "regret"),  # type: ignore[misc]
            )
            for title, name in rivals
        ),
        _by_l2(
            lab,
            f"theta at round {rounds:,} is nearer to the optimum than the start, 0, is",
            "ours",
            lambda l2: below(
                Estimate.of(at_end(lab.endless(l2), "raw")),
                Estimate.of(at_end(lab.endless(l2), "start") * lab.plan.seeds),
                ("theta", "0"),
            ),
        ),
        _by_l2(
            lab, "Algorithm 1: the budget is finite for ever (learner 1)", "figure 1(c)", lambda l2: _finite(lab, l2)
        ),
        *(
            _by_l2(
                lab,
                f"the budget of {title} grows to infinity",
                "figure 1(c)",
                lambda l2, name=name: _grows(lab, l2, name),  # type: ignore[misc]
            )
            for title, name in rivals
        ),
        _by_l2(
            lab,
            "all configurations satisfy the conditions of Theorems 1 to 5",
            "section VII-A",
            lambda l2: _met(lab, l2),
        ),
    ]


def of_table_1(lab: TrackingLab) -> list[Claim]:
    """Table I: iterations until the mean stays within 1 of the optimum."""
    columns = lab.plan.table_l2

    def finding(find: Callable[[float], Finding]) -> dict[str, Finding]:
        return {f"l2 {l2:g}": find(l2) for l2 in columns}

    return [
        Claim("more noise takes more iterations to stay within 1", "Table I", finding(lambda l2: _slower(lab, l2))),
        Claim(
            "noise x1 costs 23.34 up to where it stays within 1", "Table I", finding(lambda l2: _table_budget(lab, l2))
        ),
    ]


def of_usable(lab: UsableLab) -> list[Claim]:
    """Ours: what a budget that means something leaves of a model."""
    private = lab.found("(2, 1e-5), Gaussian")
    pure = ("epsilon 10, Laplace", "epsilon 10, Laplace, v 0.9")

    def claim(statement: str, finding: Finding) -> Claim:
        return Claim(statement, "ours", {KIND: finding})

    return [
        claim(
            f"(2, 1e-5) for ever, averaged release, each learner's own: accuracy of at least {ACCURATE:g}",
            reaches(own(private, "averaged", "accuracy"), ACCURATE),
        ),
        claim(
            f"(2, 1e-5) for ever, averaged release, each learner's own: loss of at most {SMALL_LOSS:g}",
            at_most(own(private, "averaged", "loss"), SMALL_LOSS),
        ),
        *(
            claim(
                f"{kind}, for ever, averaged release: accuracy of at least {ACCURATE:g}",
                reaches(own(lab.found(kind), "averaged", "accuracy"), ACCURATE),
            )
            for kind in pure
        ),
    ]


def of_network(lab: NetworkLab) -> list[Claim]:
    """Table II, and figure 2 or 3."""
    name = lab.pictures.name
    claims = []
    if lab.pictures.which == "mnist":
        claims += _table_2(lab)
    ours = lab.endless("raw")
    for rival, title in RIVALS.items():
        found = lab.rival(rival)
        learnt = NOT_RUN if ours is None or found is None else _pair(tested(found), tested(ours), (title, "theta"))
        stalled = NOT_RUN if found is None else at_most(tested(found), STALLED)
        where = "figure 2" if lab.pictures.which == "mnist" else "figure 3"
        claims += [
            Claim(f"{name}: {title} ends below theta of Algorithm 1 (test)", where, {KIND: learnt}),
            Claim(f"{name}: {title} does not train (test accuracy at most {STALLED:g})", where, {KIND: stalled}),
        ]
    return claims


def _table_2(lab: NetworkLab) -> list[Claim]:
    claims = []
    for model in ("raw", "averaged"):
        found = {level: lab.table(level, model) for level in lab.plan.levels}
        there = {level: tested(each) for level, each in found.items() if each is not None}
        for level, values in there.items():
            paper = TABLE_2[level][1]
            statement = f"MNIST, noise x{level:g}, {MODELS[model]}: test accuracy of {paper:g} (within {CLOSE:g})"
            claims.append(Claim(statement, "Table II", {KIND: about(Estimate.of(values), paper, CLOSE)}))
        statement = f"MNIST, {MODELS[model]}: more noise, less test accuracy"
        claims.append(Claim(statement, "Table II", {KIND: _falling(there)}))
    attacked = {level: lab.attack(level) for level in (0.0, *lab.plan.levels)}
    errors = {level: each["error"] for level, each in attacked.items() if each is not None}
    more = NOT_RUN if len(errors) < 2 else _falling({level: [-e for e in each] for level, each in errors.items()}, -1)
    return [*claims, Claim("MNIST: more noise, more DLG error", "Table II", {KIND: more})]


def tested(found: Result) -> list[float]:
    """Test accuracy at the end, mean over the learners' own models, for every seed."""
    return [float(np.mean(seed[-1])) for seed in found["test"]]


def own(found: Result, model: Publish, score: str, place: int = -1) -> list[float]:
    """Mean over the learners' own models, for every seed."""
    return [float(np.mean(seed[place])) for seed in found["scores"][model]["own"][score]]


def flat(claims: Sequence[Claim]) -> list[Claim]:
    """One column for a terminal: a claim for every column that it has."""
    return [
        Claim(claim.statement if kind == KIND else f"{claim.statement} [{kind}]", claim.source, {"verdict": finding})
        for claim in claims
        for kind, finding in claim.findings.items()
    ]


def _by_l2(lab: TrackingLab, statement: str, source: str, find: Callable[[float], Finding]) -> Claim:
    return Claim(statement, source, {f"l2 {l2:g}": find(l2) for l2 in lab.plan.l2})


def _ratios(lab: TrackingLab, l2: float, model: Publish) -> list[float]:
    found, early = lab.endless(l2), lab.at.index(EARLY)
    pairs = zip(at_end(found, model), at_end(found, model, place=early), strict=True)
    return [late / first for late, first in pairs]


def _everyone(lab: TrackingLab, l2: float, model: Publish) -> Finding:
    errors = np.mean(lab.endless(l2)["models"][model]["error"], axis=0)
    ratios = errors[-1] / errors[lab.at.index(EARLY)]
    measured = "share left, learners 1 to 5: " + ", ".join(f"{ratio:.2f}" for ratio in ratios)
    if (ratios < 1).all():
        return Finding(measured, "holds")
    return Finding(measured, "does not hold")


def _against(lab: TrackingLab, l2: float, model: Publish, name: str, title: str, quantity: str) -> Finding:
    theirs = at_end(lab.rival(name, l2, lab.chosen(name, l2)), "raw", quantity)
    return _pair(at_end(lab.endless(l2), model, quantity), theirs, ("Algorithm 1", title))


def _pair(low: Sequence[float], high: Sequence[float], names: tuple[str, str]) -> Finding:
    return below(Estimate.of(list(low)), Estimate.of(list(high)), names)


def _finite(lab: TrackingLab, l2: float) -> Finding:
    problem = lab.mushrooms.problem(l2)
    total = spent(fadings(problem)["tight"], problem.dim, GROWTHS[0], None)
    return Finding(f"{total:.4g}", "holds" if math.isfinite(total) else "does not hold")


def _grows(lab: TrackingLab, l2: float, name: str) -> Finding:
    """By the paper's own adjacency, one sample of one learner; with the smallest step that converges, or 1."""
    cheapest = least_cost(lab, name, l2)
    step = 1.0 if cheapest is None else cheapest[0]
    problem, rounds = lab.mushrooms.problem(l2), lab.plan.rounds
    early, late = (rival_budget(name, problem, step, count) for count in (rounds, 10 * rounds))
    measured = f"at most {early:.3g} at round {rounds:,}, {late:.3g} at {10 * rounds:,} (step {step:g})"
    if math.isinf(late):
        return Finding(measured, "not resolved")
    return Finding(measured, "does not hold" if late <= SETTLED * early else "holds")


def _met(lab: TrackingLab, l2: float) -> Finding:
    broken = theory(lab.mushrooms.problem(l2)).violations()
    reasons = dict.fromkeys(reason for why in broken.values() for reason in why)
    found = {reason: [str(number) for number, why in broken.items() if reason in why] for reason in reasons}
    words = "; ".join(f"Theorems {', '.join(numbers)}: {reason}" for reason, numbers in found.items())
    return Finding(words or "all hold", "does not hold" if words else "holds")


def _slower(lab: TrackingLab, l2: float) -> Finding:
    """Runs that never stay count as longer than any."""
    levels = lab.plan.levels
    counts = [[math.inf if t is None else t for t in lab.iterations(l2, level)["stays"]] for level in levels]
    means = [float(np.mean(each)) for each in counts]
    measured = ", ".join(
        f"x{level:g}: {mean:.0f}" if math.isfinite(mean) else f"x{level:g}: more than {lab.plan.table_rounds:,}"
        for level, mean in zip(levels, means, strict=True)
    )
    steps = [low <= high for low, high in pairwise(means)]
    grows = all(steps) and means[0] < means[-1]
    return Finding(measured, "holds" if grows else "does not hold")


def _table_budget(lab: TrackingLab, l2: float) -> Finding:
    problem = lab.mushrooms.problem(l2)
    stays = lab.iterations(l2, 1.0)["stays"]
    if any(t is None for t in stays):
        return Finding(f"not within 1 for good by round {lab.plan.table_rounds:,}", "not resolved")
    rounds = max(1, round(float(np.mean(stays))))
    kinds = fadings(problem)
    costs = {name: spent(each, problem.dim, GROWTHS[0], rounds, BASE["Table I"]) for name, each in kinds.items()}
    measured = f"{rounds} iterations: " + ", ".join(f"{name} {cost:.4g}" for name, cost in costs.items())
    hit = any(abs(cost - TABLE_1[1.0][0]) < 0.05 * TABLE_1[1.0][0] for cost in costs.values())
    return Finding(measured, "holds" if hit else "does not hold")


def _falling(found: Mapping[float, Sequence[float]], sign: int = 1) -> Finding:
    """Whether means fall from level to level; by one run nothing is decided."""
    if len(found) < 2:
        return NOT_RUN
    means = {level: float(np.mean(values)) for level, values in found.items()}
    measured = ", ".join(f"x{level:g}: {sign * mean:.3f}" for level, mean in means.items())
    gaps = [Estimate.of(list(high)) - Estimate.of(list(low)) for low, high in pairwise(found.values())]
    if any(gap.mean - gap.margin > 0 for gap in gaps):
        return Finding(measured, "does not hold")
    return Finding(measured, "holds" if all(gap.mean + gap.margin < 0 for gap in gaps) else "not resolved")


def learners_left(lab: TrackingLab, l2: float, model: Publish) -> list[float]:
    """The tracking error of every learner at the end, mean over seeds."""
    errors = np.mean(lab.endless(l2)["models"][model]["error"], axis=0)[-1]
    return [float(errors[place]) for place in range(LEARNERS)]


def least_cost(lab: TrackingLab, name: str, l2: float) -> tuple[float, float, float] | None:
    """Of the steps that converge the smallest: step, tracking error at the end, budget at the end."""
    steps = lab.converging(name, l2)
    if not steps:
        return None
    step = steps[-1]
    error = mean_error(lab.rival(name, l2, step), "raw")[-1]
    return step, error, rival_budget(name, lab.mushrooms.problem(l2), step, lab.plan.rounds)
