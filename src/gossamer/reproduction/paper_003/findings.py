"""The claims of section VII, and ours about the same runs, each with what was measured."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from gossamer.algorithms.endless.fading import Fading
from gossamer.algorithms.endless.ldp_endless import Publish
from gossamer.algorithms.endless.theorems import Theorems
from gossamer.errors import PrivacyError
from gossamer.problems import Problem
from gossamer.reproduction.claims import (
    NOT_RUN,
    Claim,
    Estimate,
    Finding,
    about,
    across,
    at_most,
    below,
    decided,
    judged,
    reaches,
    sign,
    single,
)
from gossamer.reproduction.paper_003.cases import (
    BASE,
    COUPLING,
    GROWTHS,
    MODELS,
    NORM,
    RIVALS,
    STEP,
    circle,
    fadings,
    rival_budget,
)
from gossamer.reproduction.paper_003.experiments import EARLY, TrackingLab, UsableLab, at_end
from gossamer.reproduction.paper_003.networks import NetworkLab
from gossamer.reproduction.store import Result

SHARE = 0.4  # of the error at round 10 that may be left at the end
SETTLED = 1.01  # a budget that grows by less than this over ten times as many rounds does not grow
ACCURATE, SMALL_LOSS = 0.88, 0.36  # what a usable model must have
STALLED = 0.2  # accuracy of ten classes at most, where nothing was learnt
CLOSE = 0.02  # "as in Table II": within this

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
    by_l2, rounds = partial(across, _columns(lab.plan.l2)), lab.plan.rounds
    releasable: tuple[Publish, ...] = ("raw", "averaged")
    left = f"tracking error at round {rounds:,} at most {SHARE:g} of that at round {EARLY}"
    falls = f"the tracking error of every learner falls from round {EARLY} to {rounds:,}"
    start = f"theta at round {rounds:,} is nearer to the optimum than the start, 0, is"
    finite = "Algorithm 1: the budget is finite for ever (learner 1)"
    met = "all configurations satisfy the conditions of Theorems 1 to 5"
    return [
        *(by_l2(f"{MODELS[model]}: {left}", "ours", partial(_left, lab, model)) for model in releasable),
        *(by_l2(f"{MODELS[model]}: {falls}", "Theorems 1, 3", partial(_everyone, lab, model)) for model in releasable),
        *(
            by_l2(
                f"{MODELS[model]} ends with less tracking error than {title}",
                "figure 1(a)",
                partial(_against, lab, model, name, "error"),
            )
            for model in releasable
            for name, title in RIVALS.items()
        ),
        *(
            by_l2(
                f"theta ends with less instantaneous regret than {title}",
                "figure 1(b)",
                partial(_against, lab, "raw", name, "regret"),
            )
            for name, title in RIVALS.items()
        ),
        by_l2(start, "ours", partial(_nearer, lab)),
        by_l2(finite, "figure 1(c)", partial(_finite, lab)),
        *(
            by_l2(f"the budget of {title} grows to infinity", "figure 1(c)", partial(_grows, lab, name))
            for name, title in RIVALS.items()
        ),
        by_l2(met, "section VII-A", partial(_met, lab)),
    ]


def of_table_1(lab: TrackingLab) -> list[Claim]:
    """Table I: iterations until the mean stays within 1 of the optimum."""
    by_l2 = partial(across, _columns(lab.plan.table_l2))
    return [
        by_l2("more noise takes more iterations to stay within 1", "Table I", partial(_slower, lab)),
        by_l2("noise x1 costs 23.34 up to where it stays within 1", "Table I", partial(_table_budget, lab)),
    ]


def of_usable(lab: UsableLab) -> list[Claim]:
    """Ours: what a budget that means something leaves of a model."""
    private = lab.found("(2, 1e-5), Gaussian")
    known = "(2, 1e-5) for ever, averaged release, each learner's own"
    accurate, small = f"accuracy of at least {ACCURATE:g}", f"loss of at most {SMALL_LOSS:g}"
    return [
        single(f"{known}: {accurate}", "ours", reaches(own(private, "averaged", "accuracy"), ACCURATE)),
        single(f"{known}: {small}", "ours", at_most(own(private, "averaged", "loss"), SMALL_LOSS)),
        *(
            single(
                f"{kind}, for ever, averaged release: {accurate}",
                "ours",
                reaches(own(lab.found(kind), "averaged", "accuracy"), ACCURATE),
            )
            for kind in ("epsilon 10, Laplace", "epsilon 10, Laplace, v 0.9")
        ),
    ]


def of_network(lab: NetworkLab) -> list[Claim]:
    """Table II, and figure 2 or 3."""
    name, mnist = lab.pictures.name, lab.pictures.which == "mnist"
    claims, where = _table_2(lab) if mnist else [], "figure 2" if mnist else "figure 3"
    ours = lab.endless("raw")
    for rival, title in RIVALS.items():
        theirs = lab.rival(rival)
        learnt = NOT_RUN if ours is None or theirs is None else _pair(tested(theirs), tested(ours), (title, "theta"))
        stalled = NOT_RUN if theirs is None else at_most(tested(theirs), STALLED)
        claims += [
            single(f"{name}: {title} ends below theta of Algorithm 1 (test)", where, learnt),
            single(f"{name}: {title} does not train (test accuracy at most {STALLED:g})", where, stalled),
        ]
    return claims


def _table_2(lab: NetworkLab) -> list[Claim]:
    claims = []
    for model in ("raw", "averaged"):
        rows = {level: lab.table(level, model) for level in lab.plan.levels}
        there = {level: tested(each) for level, each in rows.items() if each is not None}
        for level, values in there.items():
            paper = TABLE_2[level][1]
            statement = f"MNIST, noise x{level:g}, {MODELS[model]}: test accuracy of {paper:g} (within {CLOSE:g})"
            claims.append(single(statement, "Table II", about(Estimate.of(values), paper, CLOSE)))
        claims.append(single(f"MNIST, {MODELS[model]}: more noise, less test accuracy", "Table II", _falling(there)))
    attacked = {level: lab.attack(level) for level in (0.0, *lab.plan.levels)}
    errors = {level: each["error"] for level, each in attacked.items() if each is not None}
    more = NOT_RUN if len(errors) < 2 else _falling({level: [-e for e in each] for level, each in errors.items()}, -1)
    return [*claims, single("MNIST: more noise, more DLG error", "Table II", more)]


def tested(found: Result) -> list[float]:
    """Test accuracy at the end, mean over the learners' own models, for every seed."""
    return [float(np.mean(seed[-1])) for seed in found["test"]]


def own(found: Result, model: Publish, score: str, place: int = -1) -> list[float]:
    """Mean over the learners' own models, for every seed."""
    return [float(np.mean(seed[place])) for seed in found["scores"][model]["own"][score]]


def _columns(every: Sequence[float]) -> dict[str, float]:
    return {f"l2 {l2:g}": l2 for l2 in every}


def _left(lab: TrackingLab, model: Publish, l2: float) -> Finding:
    runs, early = lab.endless(l2), lab.at.index(EARLY)
    pairs = zip(at_end(runs, model), at_end(runs, model, place=early), strict=True)
    return at_most([late / first for late, first in pairs], SHARE)


def _everyone(lab: TrackingLab, model: Publish, l2: float) -> Finding:
    errors = np.mean(lab.endless(l2)["models"][model]["error"], axis=0)
    ratios = errors[-1] / errors[lab.at.index(EARLY)]
    return decided((ratios < 1).all(), "share left, learners 1 to 5: " + ", ".join(f"{ratio:.2f}" for ratio in ratios))


def _against(lab: TrackingLab, model: Publish, name: str, quantity: str, l2: float) -> Finding:
    theirs = at_end(lab.rival(name, l2, lab.chosen(name, l2)), "raw", quantity)
    return _pair(at_end(lab.endless(l2), model, quantity), theirs, ("Algorithm 1", RIVALS[name]))


def _nearer(lab: TrackingLab, l2: float) -> Finding:
    runs = lab.endless(l2)
    return _pair(at_end(runs, "raw"), at_end(runs, "start") * lab.plan.seeds, ("theta", "0"))


def _pair(low: Sequence[float], high: Sequence[float], names: tuple[str, str]) -> Finding:
    return below(Estimate.of(low), Estimate.of(high), names)


def _finite(lab: TrackingLab, l2: float) -> Finding:
    problem = lab.mushrooms.problem(l2)
    total = spent(fadings(problem)["tight"], problem.dim, GROWTHS[0], None)
    return decided(math.isfinite(total), f"{total:.4g}")


def _grows(lab: TrackingLab, name: str, l2: float) -> Finding:
    """By the paper's own adjacency, one sample of one learner; with the smallest step that converges, or 1."""
    step = [1.0, *lab.converging(name, l2)][-1]
    problem, rounds = lab.mushrooms.problem(l2), lab.plan.rounds
    early, late = (rival_budget(name, problem, step, count) for count in (rounds, 10 * rounds))
    measured = f"at most {early:.3g} at round {rounds:,}, {late:.3g} at {10 * rounds:,} (step {step:g})"
    grows = late > SETTLED * early
    return judged(measured, holds=grows and math.isfinite(late), fails=not grows and math.isfinite(late))


def _met(lab: TrackingLab, l2: float) -> Finding:
    broken = theory(lab.mushrooms.problem(l2)).violations()
    reasons = dict.fromkeys(reason for why in broken.values() for reason in why)
    found = {reason: [str(number) for number, why in broken.items() if reason in why] for reason in reasons}
    words = "; ".join(f"Theorems {', '.join(numbers)}: {reason}" for reason, numbers in found.items())
    return decided(not words, words or "all hold")


def _slower(lab: TrackingLab, l2: float) -> Finding:
    """Runs that never stay count as longer than any."""
    levels = lab.plan.levels
    counts = [[math.inf if t is None else t for t in lab.iterations(l2, level)["stays"]] for level in levels]
    means = [float(np.mean(each)) for each in counts]
    measured = ", ".join(
        f"x{level:g}: {mean:.0f}" if math.isfinite(mean) else f"x{level:g}: more than {lab.plan.table_rounds:,}"
        for level, mean in zip(levels, means, strict=True)
    )
    return decided(all(low <= high for low, high in pairwise(means)) and means[0] < means[-1], measured)


def _table_budget(lab: TrackingLab, l2: float) -> Finding:
    problem = lab.mushrooms.problem(l2)
    stays = lab.iterations(l2, 1.0)["stays"]
    if any(t is None for t in stays):
        return Finding(f"not within 1 for good by round {lab.plan.table_rounds:,}", "not resolved")
    rounds = max(1, round(float(np.mean(stays))))
    kinds = fadings(problem)
    costs = {name: spent(each, problem.dim, GROWTHS[0], rounds, BASE["Table I"]) for name, each in kinds.items()}
    measured = f"{rounds} iterations: " + ", ".join(f"{name} {cost:.4g}" for name, cost in costs.items())
    return decided(any(abs(cost - TABLE_1[1.0][0]) < 0.05 * TABLE_1[1.0][0] for cost in costs.values()), measured)


def _falling(runs: Mapping[float, Sequence[float]], shown: int = 1) -> Finding:
    """Whether means fall from level to level; by one run nothing is decided."""
    if len(runs) < 2:
        return NOT_RUN
    measured = ", ".join(f"x{level:g}: {shown * float(np.mean(values)):.3f}" for level, values in runs.items())
    verdicts = {sign(Estimate.of(high) - Estimate.of(low)) for low, high in pairwise(runs.values())}
    return judged(measured, holds=verdicts == {"holds"}, fails="does not hold" in verdicts)
