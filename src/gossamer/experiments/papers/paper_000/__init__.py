"""Paper 000: the experiments of section 4 and appendix B, and its bounds against T, rho, n and epsilon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gossamer.experiments import (
    Asked,
    Claim,
    Curve,
    Entry,
    Estimate,
    Finding,
    Found,
    Panel,
    Part,
    Section,
    Study,
    alike,
    below,
    increasing,
)
from gossamer.experiments.claims import ONE_STREAM, RULES, across
from gossamer.experiments.papers.paper_000.cases import (
    BOTH,
    CURVE,
    FORMS,
    FULL,
    GRAPHS,
    HANDS,
    LOSS,
    LOUD,
    NAMES,
    OURS,
    QUICK,
    QUIET,
    STREAM_SEED,
    Case,
    Data,
    Lab,
    Sizes,
    in_both,
)
from gossamer.experiments.papers.paper_000.regret import dependence_cells, dependence_claims
from gossamer.experiments.papers.paper_000.words import BANDS, PROTOCOL, RUNTIME, TUNED, table_of_cases

ALIKE = 0.01  # "almost unaffected": within 1 % of the loss


def compared(lab: Lab, name: str) -> dict[Any, Entry]:
    """Figures 1 and 2: losses and times of the three algorithms on one data set."""
    cases = [Case(name, algorithm, form) for form in BOTH for algorithm in NAMES]
    losses: dict[Any, Entry] = {case: lab.tuned(case) for case in cases}
    return losses | {("time", case): lab.timed(case) for case in cases}


def losses_of(found: Found, cases: Mapping[str, Case]) -> dict[str, Estimate]:
    """The average losses at the end."""
    return {name: found[case].estimate(LOSS) for name, case in cases.items()}


def seconds(found: Found, case: Case) -> Estimate:
    """Per 10,000 rounds."""
    values = found["time", case].values
    return Estimate.of([10_000 * spent / values["rounds"][-1] for spent in values["times"][-1]])


def comparison_claims(number: int, name: str, found: Found) -> list[Claim]:
    """Section 4.2."""

    def finding(low: str, high: str, measure: Callable[[Case], Estimate], form: str) -> Finding:
        one, other = (measure(Case(name, algorithm, form)) for algorithm in (low, high))
        return below(one, other, (NAMES[low], NAMES[high]))

    loss, spent = (lambda case: found[case].estimate(LOSS)), partial(seconds, found)
    losses = [("pd_ftgl", "pd_ogd"), ("pd_ocg", "pd_ogd"), ("pd_ftgl", "pd_ocg")]
    times = [("pd_ftgl", "pd_ogd"), ("pd_ocg", "pd_ftgl")]
    tests = [("the loss of {} is below that of {}", loss, pair) for pair in losses]
    tests += [("{} runs faster than {} (seconds per 10,000 rounds)", spent, pair) for pair in times]
    return [
        in_both(
            f"{name}: {words.format(NAMES[low], NAMES[high])}",
            f"section 4.2, figure {number}",
            partial(finding, low, high, measure),
        )
        for words, measure, (low, high) in tests
    ]


def comparison_parts(lab: Lab, number: int, name: str, found: Found) -> list[Part]:
    """Losses, and times."""
    drawn, times = {}, []
    for form in BOTH:
        drawn[f"{form}: average loss"] = {NAMES[each]: Case(name, each, form) for each in NAMES}
        curves = [
            Curve.of_runs(words, found["time", case].values["rounds"], np.array(found["time", case].values["times"]).T)
            for words, case in drawn[f"{form}: average loss"].items()
        ]
        times.append(Panel(f"{form}: runtime", "seconds", tuple(curves), log=True))
    part = figure_parts(lab, number, f"{name}, epsilon {LOUD:g}, complete graph of 9", drawn, found)[0]
    return [replace(part, name=f"{part.name}-{name}".replace(" ", "-"), panels=(*part.panels, *times), notes=RUNTIME)]


Panels = Mapping[str, Mapping[str, Case]]


def figure_parts(lab: Lab, number: int, what: str, panels: Panels, found: Found) -> list[Part]:
    """Average losses by panel and name of the curve, and a table of all cases."""

    def curve(name: str, case: Case) -> Curve:
        values = found[case][CURVE][0]  # (seed, point, learner)
        mean, low, high = values.mean(axis=(0, 2)), values.min(axis=(0, 2)), values.max(axis=(0, 2))
        return Curve(name, found[case].at(CURVE), mean.tolist(), low.tolist(), high.tolist())

    drawn = [
        Panel(
            title, CURVE, tuple(curve(*each) for each in cases.items()), level=chance(lab, next(iter(cases.values())))
        )
        for title, cases in panels.items()
    ]
    results = {case: found[case] for cases in panels.values() for case in cases.values()}
    heading = f"Figure {number}: {what}"
    table = table_of_cases(results, lambda case: lab.data.stream(case.data, case.learners, STREAM_SEED))
    return [Part(f"figure-{number}", heading, panels=tuple(drawn), table=table, notes=(BANDS, TUNED))]


def chance(lab: Lab, case: Case) -> float:
    """The loss of playing 0: ln of the number of classes."""
    return float(np.log(lab.data.problem(case.data).classes))


def panels_of(number: int, sizes: Sizes, letter: str) -> dict[str, dict[str, Case]]:
    """The cases of figures 3 to 5."""
    pairs = [(form, name) for form in BOTH for name in OURS]
    if number == 3:
        return {
            f"{NAMES[name]}, {form}": {f"epsilon {e:g}": Case(letter, name, form, e) for e in sizes.epsilons}
            for form, name in pairs
        }
    if number == 4:
        return {
            f"{NAMES[name]}, {form}": {f"n = {n}": Case(letter, name, form, learners=n) for n in sizes.learners}
            for form, name in pairs
        }
    return {
        f"{NAMES[name]}, {form}, epsilon {e:g}": {graph: Case(letter, name, form, e, graph=graph) for graph in GRAPHS}
        for form, name in pairs
        for e in (LOUD, QUIET)
    }


def epsilon_claims(panels: Panels, found: Found) -> list[Claim]:
    """Figure 3."""

    def losses(name: str, form: str) -> list[Estimate]:
        return list(losses_of(found, panels[f"{NAMES[name]}, {form}"]).values())

    def grown(form: str) -> Finding:
        ocg, ftgl = (values[-1] - values[0] for values in (losses("pd_ocg", form), losses("pd_ftgl", form)))
        return below(ocg, ftgl, ("PD-OCG", "PD-FTGL"))

    source = "appendix B, figure 3"
    better = [
        in_both(f"{NAMES[name]} is better with larger epsilon", source, partial(_grows, panels, found, name))
        for name in OURS
    ]
    words = "PD-OCG is less sensitive to epsilon than PD-FTGL: from the largest to the smallest its loss grows less"
    return [*better, in_both(words, source, grown)]


def _grows(panels: Panels, found: Found, name: str, form: str) -> Finding:
    return increasing(losses_of(found, panels[f"{NAMES[name]}, {form}"]))


def size_claims(panels: Panels, found: Found) -> list[Claim]:
    """Figure 4."""
    source = "appendix B, figure 4"
    return [
        in_both(f"{NAMES[name]} gets (slightly) worse with n", source, partial(_grows, panels, found, name))
        for name in OURS
    ]


def graph_claims(panels: Panels, found: Found) -> list[Claim]:
    """Figure 5."""

    def losses(name: str, epsilon: float, form: str) -> dict[str, Estimate]:
        return losses_of(found, panels[f"{NAMES[name]}, {form}, epsilon {epsilon:g}"])

    def turned(form: str) -> Finding:
        return increasing(dict(reversed(losses("pd_ftgl", QUIET, form).items())))

    def unaffected(epsilon: float, form: str) -> Finding:
        return alike(losses("pd_ocg", epsilon, form), ALIKE)

    order = "(cycle, then Watts-Strogatz, then complete)"
    return [
        in_both(
            f"PD-FTGL at epsilon {LOUD:g}: a larger spectral gap is worse {order}",
            "appendix B, figure 5(a)",
            lambda form: increasing(losses("pd_ftgl", LOUD, form)),
        ),
        in_both(f"PD-FTGL at epsilon {QUIET:g}: a larger spectral gap is better", "appendix B, figure 5(b)", turned),
        *(
            in_both(
                f"PD-OCG at epsilon {epsilon:g} is almost unaffected by the graph (within {ALIKE:.0%})",
                f"appendix B, figure 5({letter})",
                partial(unaffected, epsilon),
            )
            for epsilon, letter in ((LOUD, "c"), (QUIET, "d"))
        ),
    ]


def ladder_panels(letter: str) -> dict[str, dict[str, Case]]:
    """Ours: from the published noise to the smallest one, in steps."""
    return {f"epsilon {e:g}": {form: Case(letter, "pd_ftgl", form, e) for form in FORMS} for e in (LOUD, 1.0)}


def ladder_claims(panels: Panels, found: Found) -> list[Claim]:
    """Every step lowers the loss."""
    printed, rule = "block of eq. (7)", "block by the rule"
    pairs = {
        "tight noise is below published": (f"tight after gossip, {printed}", "published"),
        "noise before gossip is below after": (f"tight before gossip, {printed}", f"tight after gossip, {printed}"),
        "Gaussian is below Laplace": (f"Gaussian before gossip, {printed}", f"tight before gossip, {printed}"),
        f"{rule}, after gossip: tight is below published": (f"tight after gossip, {rule}", "published"),
        f"{rule}: noise before gossip is below after": ("tight", f"tight after gossip, {rule}"),
        f"{rule}: Gaussian is below Laplace": (f"Gaussian before gossip, {rule}", "tight"),
    }

    def finding(low: str, high: str, title: str) -> Finding:
        losses = losses_of(found, panels[title])
        return below(losses[low], losses[high], ("low", "high"))

    return [
        across({title: title for title in panels}, f"PD-FTGL: {words}", "ours", partial(finding, *pair))
        for words, pair in pairs.items()
    ]


def study_of(sizes: Sizes, asked: Asked) -> Study:
    """All sections, at these sizes."""
    lab = Lab(sizes, Data(sizes, asked.data, asked.stand_in))
    letter = lab.data.letter

    def cases(panels: Panels) -> dict[Any, Entry]:
        return {case: lab.tuned(case) for group in panels.values() for case in group.values()}

    comparisons = [
        Section(
            f"figure-{number}-{name}",
            name,
            partial(compared, lab, name),
            figure=number,
            claims=partial(comparison_claims, number, name),
            parts=partial(comparison_parts, lab, number, name),
        )
        for number, names in ((1, (letter,)), (2, lab.data.poker))
        for name in names
    ]
    several = {3: ("epsilon", epsilon_claims), 4: ("learners", size_claims), 5: ("graphs", graph_claims)}
    figures = [
        Section(
            f"figure-{number}",
            what,
            partial(cases, panels),
            figure=number,
            claims=partial(claims, panels),
            parts=partial(figure_parts, lab, number, f"{what}, {letter}", panels),
        )
        for number, (what, claims) in several.items()
        for panels in [panels_of(number, sizes, letter)]
    ]
    steps = ladder_panels(letter)
    heading = "From published to tight"
    ladder = Section("ladder", heading, partial(cases, steps), claims=partial(ladder_claims, steps))
    dependence = Section(
        "dependence",
        "Regret against T, rho, n and epsilon",
        partial(dependence_cells, sizes),
        claims=partial(dependence_claims, sizes),
        text=("PD-FTGL with the h of the theory, on linear losses that are held for 128 steps and then taken back.",),
    )
    kind = "full" if sizes == FULL else "quick"
    introduction = (
        "Private decentralised online classification in the ball of the trace norm of radius 10: PD-FTGL and PD-OCG "
        "against PD-OGD (Li et al. 2018), published against published and tight against tight.",
        f"This is the {kind} run: T = {sizes.letter:,} on {letter}, {sizes.hands:,} on {HANDS}, {sizes.seeds} seeds.",
    )
    closing = (Part("protocol", "How it was run", PROTOCOL),)
    sections = [*comparisons, *figures, ladder, dependence]
    return Study("Paper 000 again", sections, introduction, (RULES, ONE_STREAM), closing)


def study(asked: Asked) -> Study:
    """What is run."""
    return study_of(QUICK if asked.quick else FULL, asked)
