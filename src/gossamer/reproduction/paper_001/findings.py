"""The claims of section V, and ours about the same runs, each with what was measured."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from gossamer.reproduction.claims import Claim, Estimate, Finding, about, across, alike, below, reaches
from gossamer.reproduction.paper_001.cases import METHODS, Case
from gossamer.reproduction.paper_001.experiments import (
    EARLY,
    EARLY_ACCURACY,
    MODELS,
    ImageLab,
    LogisticLab,
    Protocol,
    Publish,
)

Column = tuple[Protocol, Publish]

COLUMNS: dict[str, Column] = {
    "paper's protocol": ("paper's", "last"),
    "tuned": ("tuned", "last"),
    "tuned, averaged": ("tuned", "averaged"),
}
"""Of the table: how the step size is chosen, and which model is published."""

CLOSE = 0.05  # "close", "similar": within 5 % of the accuracy
ABOUT = 0.05  # "around 0.9": within 0.05

in_columns = partial(across, COLUMNS)
"""A claim under the paper's protocol, with tuned steps, and for the averaged model."""


def estimates(found: Mapping[str, Sequence[float]]) -> dict[str, Estimate]:
    """Numbers that can be compared: the runs that all of them have.

    >>> [len(each.values) for each in estimates({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0]}).values()]
    [2, 2]
    """
    count = min(map(len, found.values()))
    return {name: Estimate.of(list(each)[:count]) for name, each in found.items()}


def of_logistic(lab: LogisticLab) -> list[Claim]:
    """Figure 3: accuracy on the fresh samples of all rounds."""
    return [claim for epsilon in lab.plan.epsilons for claim in _of_budget(lab, epsilon)]


def _of_budget(lab: LogisticLab, epsilon: float) -> list[Claim]:
    correlated = [name for name in ("tree", "optimal", "toeplitz", "blt") if name in lab.plan.methods]

    def accuracy(methods: Sequence[str], column: Column) -> dict[str, Estimate]:
        found = {name: lab.found(lab.case(name, epsilon), *column) for name in methods}
        return estimates({METHODS[name].title: lab.accuracy(each, column[1]) for name, each in found.items()})

    def follow(column: Column) -> Finding:
        return alike(accuracy(("none", *correlated), column), CLOSE)

    def above(low: str, high: str, column: Column) -> Finding:
        return _below(accuracy((low, high), column))

    where, source = f"epsilon {epsilon:g}", "section V-A, figure 3"
    pairs = [("tree", name) for name in correlated if name != "tree"] + [("independent", "tree")]
    orders = [pair for pair in pairs if {*pair} <= {*lab.plan.methods}]
    return [
        in_columns(f"{where}: correlated noise follows the noiseless curve (all within {CLOSE:.0%})", source, follow),
        *(
            in_columns(
                f"{where}: {METHODS[high].title} is above {METHODS[low].title}", source, partial(above, low, high)
            )
            for low, high in orders
        ),
    ]


def of_extras(lab: LogisticLab) -> list[Claim]:
    """Ours: less noise than the paper's has less regret."""
    pairs = (
        ("tight noise has less dynamic regret than that of Lemma IV.8", "toeplitz", "published"),
        ("noise once a round has less dynamic regret than at every step", "rounds", "bounded"),
    )

    def regret(method: str, epsilon: float) -> list[float]:
        found = lab.found(lab.case(method, epsilon), "tuned")
        return [curve[-1] for curve in found["regret"]["last"]]

    def less(low: str, high: str, epsilon: float) -> Finding:
        return _below(estimates({METHODS[name].title: regret(name, epsilon) for name in (low, high)}))

    known, columns = {*lab.plan.methods, *lab.plan.extras}, {f"epsilon {e:g}": e for e in lab.plan.epsilons}
    return [
        across(columns, statement, "ours", partial(less, low, high))
        for statement, low, high in pairs
        if {low, high} <= known
    ]


def of_images(lab: ImageLab) -> list[Claim]:
    """Figure 4: accuracy on the test images."""
    cases = lab.cases()
    taus = sorted({case.tau for case in cases})
    by_tau = [claim for tau in taus for claim in _of_tau(lab, [case for case in cases if case.tau == tau])]
    return [*by_tau, *_numbers(lab), *_over_taus(lab, cases)]


def _of_tau(lab: ImageLab, cases: Sequence[Case]) -> list[Claim]:
    """The order of the methods at one number of local steps."""
    source, tau = "section V-B, figure 4", cases[0].tau
    plain, independent = (lab.case(method, tau) for method in ("none", "independent"))

    def close(case: Case, column: Column) -> Finding:
        return alike(_ends(lab, (case, plain), column), CLOSE)

    def worse(case: Case, column: Column) -> Finding:
        return _below(_ends(lab, (independent, case), column))

    tests = (
        (f"tau {tau}: {{}} ends close to no noise (within {CLOSE:.0%})", close),
        (f"tau {tau}: independent noise ends below {{}}", worse),
    )
    return [
        in_columns(statement.format(METHODS[case.method].title), source, partial(test, case))
        for case in cases
        if case not in (plain, independent)
        for statement, test in tests
    ]


def _numbers(lab: ImageLab) -> list[Claim]:
    """The numbers that the text gives, all of them for one local step but the final ones, which it does not say."""
    correlated = [case for case in lab.cases() if case.tau == 1 and case.method not in ("none", "independent")]
    plain, independent = lab.case("none", 1), lab.case("independent", 1)
    final = [(case, 0.9) for case in correlated] + [(independent, 0.8)]
    early = [(plain, EARLY_ACCURACY)] + [(case, 0.6) for case in correlated]
    source = "section V-B, text"

    def claim(case: Case, value: float, at: int | None) -> Claim:
        title = METHODS[case.method].title
        when = "at the end" if at is None else f"at round {at}"
        return in_columns(
            f"tau 1: accuracy with {title} {when} is around {value:g} (within {ABOUT:g})",
            source,
            lambda column: about(Estimate.of(values(lab, case, column, at)), value, ABOUT),
        )

    return [
        *(claim(case, value, None) for case, value in final),
        *(claim(case, value, EARLY) for case, value in early),
        *(_behind(lab, case, plain) for case in correlated),
    ]


def _behind(lab: ImageLab, case: Case, plain: Case) -> Claim:
    """What noise costs early on: 0.7 less 0.6."""

    def finding(column: Column) -> Finding:
        both = estimates({str(each): values(lab, each, column, EARLY) for each in (plain, case)})
        without, with_noise = both.values()
        return about(without - with_noise, EARLY_ACCURACY - 0.6, ABOUT)

    title = METHODS[case.method].title
    statement = f"tau 1: {title} at round {EARLY} is around 0.1 below no noise (within {ABOUT:g})"
    return in_columns(statement, "section V-B, text", finding)


def _over_taus(lab: ImageLab, cases: Sequence[Case]) -> list[Claim]:
    """Fewer rounds at a similar accuracy."""

    def similar(same: Sequence[Case], column: Column) -> Finding:
        return alike(estimates({f"tau {case.tau}": values(lab, case, column) for case in same}), CLOSE)

    claims = []
    for method in dict.fromkeys(case.method for case in cases):
        same = [case for case in cases if case.method == method]
        if len(same) > 1:
            taus = ", ".join(str(case.tau) for case in same)
            rounds = ", ".join(f"{lab.rounds(case.tau):,}" for case in same)
            statement = f"{METHODS[method].title}: tau {taus} end alike (within {CLOSE:.0%}) after {rounds} rounds"
            claims.append(in_columns(statement, "section V-B, figure 4", partial(similar, same)))
    return claims


def of_thresholds(lab: ImageLab) -> list[Claim]:
    """Ours: what correlated noise must reach on real images, with the step size that is best for each."""
    kind = "tuned, averaged"
    averaged = values(lab, lab.case("blt", 1), ("tuned", "averaged"))
    independent = [values(lab, lab.case("independent", 1), ("tuned", publish)) for publish in MODELS]
    best = max(independent, key=lambda each: float(np.mean(each)))
    ahead = [mine - theirs for mine, theirs in zip(averaged, best, strict=True)]
    plain = values(lab, lab.case("none", 1), ("tuned", "last"))[:1]
    goals = (
        ("tau 1: the averaged model with BLT noise reaches 0.82", averaged, 0.82),
        ("tau 1: it is 0.3 above independent noise at its best step, last or averaged", ahead, 0.3),
        ("tau 1: no noise reaches 0.90", plain, 0.9),
    )
    return [Claim(statement, "ours", {kind: reaches(found, goal)}) for statement, found, goal in goals]


def _ends(lab: ImageLab, cases: Sequence[Case], column: Column) -> dict[str, Estimate]:
    """The accuracy at the end, of several cases."""
    return estimates({METHODS[case.method].title: values(lab, case, column) for case in cases})


def values(lab: ImageLab, case: Case, column: Column, at: int | None = None) -> list[float]:
    """The accuracy on the test images at a round, or at the end, for every run; without noise all are alike."""
    found = lab.found(case, *column)
    place = -1 if at is None else int(np.argmin(np.abs(np.array(found["rounds"]) - at)))
    each = [float(curve[place]) for curve in found["accuracy"][column[1]]]
    return each * max(2, *lab.plan.seeds.values()) if case.method == "none" else each


def _below(pair: dict[str, Estimate]) -> Finding:
    (low, one), (high, other) = pair.items()
    return below(one, other, (low, high))
