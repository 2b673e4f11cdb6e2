"""The claims of section V, and ours about the same runs, each with what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gossamer.reproduction.claims import Claim, Estimate, Finding, about, alike, below, reaches
from gossamer.reproduction.paper_001.cases import METHODS, Case
from gossamer.reproduction.paper_001.experiments import (
    EARLY,
    EARLY_ACCURACY,
    ImageLab,
    LogisticLab,
    Protocol,
    Publish,
)

COLUMNS: dict[str, tuple[Protocol, Publish]] = {
    "paper's protocol": ("paper's", "last"),
    "tuned": ("tuned", "last"),
    "tuned, averaged": ("tuned", "averaged"),
}
"""Of the table: how the step size is chosen, and which model is published."""

CLOSE = 0.05  # "close", "similar": within 5 % of the accuracy
ABOUT = 0.05  # "around 0.9": within 0.05

Finder = Callable[[Protocol, Publish], Finding]


def in_columns(statement: str, source: str, finding: Finder) -> Claim:
    """A claim under the paper's protocol, with tuned steps, and for the averaged model.

    >>> from gossamer.reproduction.claims import NOT_RUN
    >>> list(in_columns("A is below B", "Figure 3", lambda protocol, publish: NOT_RUN).findings)
    ["paper's protocol", 'tuned', 'tuned, averaged']
    """
    return Claim(statement, source, {name: finding(*column) for name, column in COLUMNS.items()})


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

    def accuracy(methods: Sequence[str], protocol: Protocol, publish: Publish) -> dict[str, Estimate]:
        found = {name: lab.found(lab.case(name, epsilon), protocol, publish) for name in methods}
        return estimates({METHODS[name].title: lab.accuracy(each, publish) for name, each in found.items()})

    def follow(protocol: Protocol, publish: Publish) -> Finding:
        return alike(accuracy(("none", *correlated), protocol, publish), CLOSE)

    def above(low: str, high: str) -> Finder:
        return lambda protocol, publish: _below(accuracy((low, high), protocol, publish))

    where, source = f"epsilon {epsilon:g}", "section V-A, figure 3"
    pairs = [("tree", name) for name in correlated if name != "tree"] + [("independent", "tree")]
    orders = [pair for pair in pairs if {*pair} <= {*lab.plan.methods}]
    return [
        in_columns(f"{where}: correlated noise follows the noiseless curve (all within {CLOSE:.0%})", source, follow),
        *(
            in_columns(f"{where}: {METHODS[high].title} is above {METHODS[low].title}", source, above(low, high))
            for low, high in orders
        ),
    ]


def of_extras(lab: LogisticLab) -> list[Claim]:
    """Ours: less noise than the paper's has less regret."""
    pairs = (
        ("tight noise has less dynamic regret than that of Lemma IV.8", "toeplitz", "published"),
        ("noise once a round has less dynamic regret than at every step", "rounds", "bounded"),
    )

    def regret(method: str, epsilon: float, publish: Publish) -> list[float]:
        found = lab.found(lab.case(method, epsilon), "tuned", publish)
        return [curve[-1] for curve in found["regret"][publish]]

    def finding(low: str, high: str, epsilon: float) -> Finding:
        titles = {METHODS[name].title: regret(name, epsilon, "last") for name in (low, high)}
        return _below(estimates(titles))

    known = {*lab.plan.methods, *lab.plan.extras}
    return [
        Claim(statement, "ours", {f"epsilon {e:g}": finding(low, high, e) for e in lab.plan.epsilons})
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
    claims = []
    for case in (case for case in cases if case not in (plain, independent)):
        title = METHODS[case.method].title
        claims += [
            in_columns(
                f"tau {tau}: {title} ends close to no noise (within {CLOSE:.0%})",
                source,
                lambda protocol, publish, case=case: alike(  # type: ignore[misc]
                    _ends(lab, (case, plain), protocol, publish), CLOSE
                ),
            ),
            in_columns(
                f"tau {tau}: independent noise ends below {title}",
                source,
                lambda protocol, publish, case=case: _below(  # type: ignore[misc]
                    _ends(lab, (independent, case), protocol, publish)
                ),
            ),
        ]
    return claims


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
            lambda protocol, publish: about(Estimate.of(values(lab, case, protocol, publish, at)), value, ABOUT),
        )

    return [
        *(claim(case, value, None) for case, value in final),
        *(claim(case, value, EARLY) for case, value in early),
        *(_behind(lab, case, plain) for case in correlated),
    ]


def _behind(lab: ImageLab, case: Case, plain: Case) -> Claim:
    """What noise costs early on: 0.7 less 0.6."""

    def finding(protocol: Protocol, publish: Publish) -> Finding:
        both = estimates({str(each): values(lab, each, protocol, publish, EARLY) for each in (plain, case)})
        without, with_noise = both.values()
        return about(without - with_noise, EARLY_ACCURACY - 0.6, ABOUT)

    title = METHODS[case.method].title
    statement = f"tau 1: {title} at round {EARLY} is around 0.1 below no noise (within {ABOUT:g})"
    return in_columns(statement, "section V-B, text", finding)


def _over_taus(lab: ImageLab, cases: Sequence[Case]) -> list[Claim]:
    """Fewer rounds at a similar accuracy."""
    claims = []
    for method in dict.fromkeys(case.method for case in cases):
        same = [case for case in cases if case.method == method]
        if len(same) > 1:
            rounds = ", ".join(f"{lab.rounds(case.tau):,}" for case in same)
            names = {case: f"tau {case.tau}" for case in same}
            claims.append(
                in_columns(
                    f"{METHODS[method].title}: tau {', '.join(str(case.tau) for case in same)} end alike (within "
                    f"{CLOSE:.0%}) after {rounds} rounds",
                    "section V-B, figure 4",
                    lambda protocol, publish, names=names: alike(  # type: ignore[misc]
                        _ends(lab, tuple(names), protocol, publish, names), CLOSE
                    ),
                )
            )
    return claims


def of_thresholds(lab: ImageLab) -> list[Claim]:
    """Ours: what correlated noise must reach on real images, with the step size that is best for each."""
    kind = "tuned, averaged"
    averaged = values(lab, lab.case("blt", 1), "tuned", "averaged")
    publish: tuple[Publish, ...] = ("last", "averaged")
    independent = [values(lab, lab.case("independent", 1), "tuned", each) for each in publish]
    best = max(independent, key=lambda each: float(np.mean(each)))
    ahead = [mine - theirs for mine, theirs in zip(averaged, best, strict=True)]
    plain = values(lab, lab.case("none", 1), "tuned", "last")[:1]
    return [
        Claim("tau 1: the averaged model with BLT noise reaches 0.82", "ours", {kind: reaches(averaged, 0.82)}),
        Claim(
            "tau 1: it is 0.3 above independent noise at its best step, last or averaged",
            "ours",
            {kind: reaches(ahead, 0.3)},
        ),
        Claim("tau 1: no noise reaches 0.90", "ours", {kind: reaches(plain, 0.9)}),
    ]


def _ends(
    lab: ImageLab, cases: Sequence[Case], protocol: Protocol, publish: Publish, names: dict[Case, str] | None = None
) -> dict[str, Estimate]:
    """The accuracy at the end, of several cases."""
    titles = names or {case: METHODS[case.method].title for case in cases}
    return estimates({titles[case]: values(lab, case, protocol, publish) for case in cases})


def values(lab: ImageLab, case: Case, protocol: Protocol, publish: Publish, at: int | None = None) -> list[float]:
    """The accuracy on the test images at a round, or at the end, for every run; without noise all are alike."""
    found = lab.found(case, protocol, publish)
    place = -1 if at is None else int(np.argmin(np.abs(np.array(found["rounds"]) - at)))
    each = [float(curve[place]) for curve in found["accuracy"][publish]]
    return each * max(2, *lab.plan.seeds.values()) if case.method == "none" else each


def _below(pair: dict[str, Estimate]) -> Finding:
    (low, one), (high, other) = pair.items()
    return below(one, other, (low, high))
