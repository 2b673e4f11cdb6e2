"""The claims of section 4.2 and appendix B, and ours about the same data, each with what was measured."""

from collections.abc import Callable, Iterable
from functools import partial

from gossamer.reproduction.claims import Claim, Estimate, Finding, across, alike, below, increasing
from gossamer.reproduction.paper_000.cases import GRAPHS, Case
from gossamer.reproduction.paper_000.experiments import Experiments

BOTH = ("published", "tight")
NAMES = {"pd_ftgl": "PD-FTGL", "pd_ocg": "PD-OCG", "pd_ogd": "PD-OGD"}
OURS = ("pd_ftgl", "pd_ocg")
ALIKE = 0.01  # "almost unaffected": within 1 % of the loss

in_both = partial(across, {form: form for form in BOTH})
"""A claim, published against published and tight against tight."""


def of_comparison(lab: Experiments, number: int, data: str) -> list[Claim]:
    """Figures 1 and 2: losses and times of the three algorithms."""

    def compared(low: str, high: str, measure: Callable[[Case], Estimate], form: str) -> Finding:
        one, other = (measure(lab.default(data, name, form)) for name in (low, high))
        return below(one, other, (NAMES[low], NAMES[high]))

    losses = (("pd_ftgl", "pd_ogd"), ("pd_ocg", "pd_ogd"), ("pd_ftgl", "pd_ocg"))
    times = (("pd_ftgl", "pd_ogd"), ("pd_ocg", "pd_ftgl"))
    tests = (
        ("the loss of {} is below that of {}", lab.loss, losses),
        ("{} runs faster than {} (seconds per 10,000 rounds)", lab.seconds, times),
    )
    return [
        in_both(
            f"{data}: {words.format(NAMES[low], NAMES[high])}",
            f"section 4.2, figure {number}",
            partial(compared, low, high, measure),
        )
        for words, measure, pairs in tests
        for low, high in pairs
    ]


def of_epsilon(lab: Experiments) -> list[Claim]:
    """Figure 3."""
    data, epsilons, source = lab.sources.letter, sorted(lab.plan.epsilons, reverse=True), "appendix B, figure 3"

    def losses(algorithm: str, form: str) -> dict[str, Estimate]:
        return {f"{epsilon:g}": lab.loss(lab.default(data, algorithm, form, epsilon)) for epsilon in epsilons}

    def spread(algorithm: str, form: str) -> Estimate:
        found = list(losses(algorithm, form).values())
        return found[-1] - found[0]

    def grows(algorithm: str, form: str) -> Finding:
        return increasing(losses(algorithm, form))

    span = f"from epsilon {epsilons[0]:g} to {epsilons[-1]:g}"
    return [
        *(in_both(f"{NAMES[name]} is better with larger epsilon", source, partial(grows, name)) for name in OURS),
        in_both(
            f"PD-OCG is less sensitive to epsilon than PD-FTGL: its loss grows less {span}",
            source,
            lambda form: below(spread("pd_ocg", form), spread("pd_ftgl", form), ("PD-OCG", "PD-FTGL")),
        ),
    ]


def of_size(lab: Experiments) -> list[Claim]:
    """Figure 4."""

    def grows(algorithm: str, form: str) -> Finding:
        return increasing({f"n={case.learners}": lab.loss(case) for case in sizes(lab, algorithm, form)})

    return [
        in_both(f"{NAMES[name]} gets (slightly) worse with n", "appendix B, figure 4", partial(grows, name))
        for name in OURS
    ]


def of_graph(lab: Experiments) -> list[Claim]:
    """Figure 5."""
    loud, quiet = lab.plan.loud, lab.plan.quiet

    def losses(algorithm: str, form: str, epsilon: float, order: Iterable[str]) -> dict[str, Estimate]:
        found = {case.graph: lab.loss(case) for case in networks(lab, algorithm, form, epsilon)}
        return {graph: found[graph] for graph in order}

    def unaffected(epsilon: float, form: str) -> Finding:
        return alike(losses("pd_ocg", form, epsilon, GRAPHS), ALIKE)

    return [
        in_both(
            f"PD-FTGL at epsilon {loud:g}: a larger spectral gap is worse (cycle, then Watts-Strogatz, then complete)",
            "appendix B, figure 5(a)",
            lambda form: increasing(losses("pd_ftgl", form, loud, GRAPHS)),
        ),
        in_both(
            f"PD-FTGL at epsilon {quiet:g}: a larger spectral gap is better",
            "appendix B, figure 5(b)",
            lambda form: increasing(losses("pd_ftgl", form, quiet, reversed(GRAPHS))),
        ),
        *(
            in_both(
                f"PD-OCG at epsilon {epsilon:g} is almost unaffected by the graph (within {ALIKE:.0%})",
                f"appendix B, figure 5({letter})",
                partial(unaffected, epsilon),
            )
            for epsilon, letter in ((loud, "c"), (quiet, "d"))
        ),
    ]


def of_ladder(lab: Experiments) -> list[Claim]:
    """Ours: every step from the published noise to the smallest one lowers the loss."""
    printed, rule = "block of eq. (7)", "block by the rule"
    pairs = (
        ("tight noise is below published", f"tight after gossip, {printed}", "published"),
        ("noise before gossip is below after", f"tight before gossip, {printed}", f"tight after gossip, {printed}"),
        ("Gaussian is below Laplace", f"Gaussian before gossip, {printed}", f"tight before gossip, {printed}"),
        (f"{rule}, after gossip: tight is below published", f"tight after gossip, {rule}", "published"),
        (f"{rule}: noise before gossip is below after", "tight", f"tight after gossip, {rule}"),
        (f"{rule}: Gaussian is below Laplace", f"Gaussian before gossip, {rule}", "tight"),
    )

    def finding(low: str, high: str, epsilon: float) -> Finding:
        one, other = (lab.loss(lab.default(lab.sources.letter, "pd_ftgl", form, epsilon)) for form in (low, high))
        return below(one, other, ("low", "high"))

    columns = {f"epsilon {epsilon:g}": epsilon for epsilon in lab.plan.ladder}
    return [
        across(columns, f"{lab.sources.letter}, PD-FTGL: {statement}", "ours", partial(finding, low, high))
        for statement, low, high in pairs
    ]


def sizes(lab: Experiments, algorithm: str, form: str) -> list[Case]:
    """The cases of figure 4."""
    return [Case(lab.sources.letter, algorithm, form, lab.plan.loud, n) for n in lab.plan.learners]


def networks(lab: Experiments, algorithm: str, form: str, epsilon: float) -> list[Case]:
    """The cases of one panel of figure 5."""
    return [Case(lab.sources.letter, algorithm, form, epsilon, lab.plan.learners[0], graph) for graph in GRAPHS]
