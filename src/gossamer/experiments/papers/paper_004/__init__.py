"""Paper 004: its Table 1, upper and lower bounds on the regret of m clients, made empirical."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from scipy import stats

from gossamer.experiments import (
    Asked,
    Cell,
    Claim,
    Entry,
    Found,
    Measured,
    Part,
    Section,
    Study,
    alike,
    at_most_like,
    decided,
    exponent,
    judged,
    share_of,
    single,
)
from gossamer.experiments.papers.paper_004 import plan as plans
from gossamer.experiments.papers.paper_004.cases import (
    GENERAL,
    PUBLISHED,
    At,
    cell,
    numbers_sent,
    smooth_cell,
    uniform,
)
from gossamer.experiments.papers.paper_004.plan import FEW, FULL, QUICK, Plan
from gossamer.experiments.papers.paper_004.scaling import NEAR, Scaling, number
from gossamer.experiments.showing import promise
from gossamer.reports import Table

ALIKE = 0.1  # regrets that differ by less than this share of their mean are the same
INTRODUCTION = (
    "Many clients choose among d experts together, through a server. The paper promises less regret per client the "
    "more clients there are. It has no experiments. Here its Table 1 is measured: by the number of clients m, and by "
    "epsilon, d, T, N and L*.",
)
RULES = (
    "A regret is that of one client in all steps: a mean over noise seeds and streams, with its 95 % interval over the "
    "streams by Student's t. 'Expected' is against the best expert in expectation.",
    "A power is the slope of the logarithm of the mean regret, with a 95 % interval by bootstrap over the streams. The "
    f"paper's bounds are from above: 'at most like' holds where all of the interval is at most {NEAR:g} above the "
    "paper's power, and does not hold where all of it is higher. Factors of ln T beside a power of T are left out.",
    f"Regrets are the same where no two differ by more than {ALIKE:.0%} of their mean, by the intervals of paired "
    "differences. Intervals are not corrected for the number of claims.",
)
GUARANTEES = "Guarantee: 'broadcasts' sees what the trusted server sends out; 'peers' also sees every message."


def coin_regret(horizon: int, experts: int) -> float:
    """The expected regret of every algorithm on fair coins: T/2 less the expected least of d binomial numbers.

    >>> round(coin_regret(4096, 20), 1), round(float(np.sqrt(2048 * np.log(20))), 1)
    (59.8, 78.3)
    """
    survive = stats.binom.sf(np.arange(horizon), horizon, 0.5)
    return horizon / 2 - float(np.sum(survive**experts))


def scaled(
    name: str,
    heading: str,
    figure: int,
    scalings: Sequence[Scaling],
    more: Callable[[Found], Sequence[Claim]] = lambda found: (),
) -> Section:
    """A section of regrets along axes, with other claims about them."""

    def cells() -> Mapping[object, Entry]:
        return {key: each for scaling in scalings for key, each in scaling.cells().items()}

    def claims(found: Found) -> list[Claim]:
        return [*(claim for scaling in scalings for claim in scaling.claims(found)), *more(found)]

    def parts(found: Found) -> list[Part]:
        return [replace(scaling.part(found), notes=(GUARANTEES,)) for scaling in scalings]

    return Section(name, heading, cells, figure, claims=claims, parts=parts)


def published_privacy(found: Found) -> list[Claim]:
    """Laplace noise reaches the bound of our proof: one above epsilon, by more than a rounding, refutes the claim."""
    claims = []
    for title, case in PUBLISHED.items():
        promised = case.make(At(1, FEW, 2**14)).guarantee.epsilon
        measured = f"one sample costs up to {promised:.4g}: linear losses, gradients in [-1, 1], d = {FEW}"
        claims.append(single(f"{title}: epsilon 1", "Theorem 2.2 (i)", decided(promised <= 1.001, measured)))
    return claims


def cheaper(scaling: Scaling, found: Found) -> list[Claim]:
    """Ours: less regret for the same epsilon."""
    m = 16
    pairs = {
        ("pure, remainder", "pure, published"): 0.8,
        ("pure, tight", "pure, published"): 0.8,
        ("approximate, remainder", "approximate, published"): 0.85,
        ("approximate, tight", "approximate, published"): 0.85,
    }
    regrets = {title: scaling.results(found, title)[m].estimate("regret") for pair in pairs for title in pair}
    return [
        single(f"Fed-SVT: {a}, m = {m}: at most {share:g} of {b}", "ours", share_of(regrets[a], regrets[b], share))
        for (a, b), share in pairs.items()
    ]


def above_bound(scalings: Sequence[Scaling], found: Found) -> list[Claim]:
    """The constant of a lower bound is not stated: with 1 it is looked at."""
    ratios = {}
    for scaling in scalings:
        for title in scaling.cases:
            for value, result in scaling.results(found, title).items():
                at = scaling.at(value)
                bound = math.log(at.experts) / (at.clients * at.epsilon)
                ratios[f"{title}, {scaling.field} {value:g}"] = result.estimate("regret").mean / bound
    least = min(ratios, key=lambda each: ratios[each])
    measured = f"between {ratios[least]:.1f} ({least}) and {max(ratios.values()):.1f} times it"
    said = "hidden expert: regret is at least ln(d) / (m epsilon)"
    return [single(said, "Theorem 2.7", decided(ratios[least] >= 1, measured))]


def general(plan: Plan) -> Section:
    """Theorem 2.4: all clients have the same losses."""
    clients, horizon = plan.general
    bound, repeats = coin_regret(horizon, FEW), plan.repeats["general"]
    adversaries = {"fair coins": "coins", "drifting": "drifting"}

    def cells() -> Mapping[object, Cell]:
        return {
            (name, title, m): cell(f"{name}, {title}, m = {m}", case, law, At(m, FEW, horizon, phase=1), repeats)
            for name, law in adversaries.items()
            for title, case in GENERAL.items()
            for m in clients
        }

    def claims(found: Found) -> list[Claim]:
        made = []
        for name in adversaries:
            for title in GENERAL:
                regrets = {f"m = {m}": found[name, title, m].estimate("regret") for m in clients}
                source = "Theorem 2.4" if name == "fair coins" else "ours"
                made.append(single(f"{name}, {title}: regret is the same for all m", source, alike(regrets, ALIKE)))
                if name == "fair coins":
                    inside = all(abs(value.mean - bound) <= value.margin for value in regrets.values())
                    told = ", ".join(f"{m}: {value}" for m, value in regrets.items())
                    finding = judged(f"{told}; expected {bound:.1f}", holds=inside, fails=False)
                    said = f"fair coins, {title}: T/2 less the least of d binomial numbers, whatever m"
                    made.append(single(said, source, finding))
        return made

    def parts(found: Found) -> list[Part]:
        rows = [
            (
                name,
                title,
                *(found[name, title, m].estimate("regret").cell for m in clients),
                promise(found[name, title, 1]),
            )
            for name in adversaries
            for title in GENERAL
        ]
        table = Table(("adversary", "algorithm", *(f"m = {m}" for m in clients), "guarantee"), tuple(rows))
        return [Part("general", section.heading, section.text, table=table)]

    section = Section(
        "general",
        f"General oblivious adversaries (Theorem 2.4): d = {FEW}, T = {horizon:,}",
        cells,
        3,
        (
            "Every client has the same losses, so more clients bring nothing. On fair coins every algorithm whatsoever "
            f"has expected regret T/2 less the least of d binomial numbers: {bound:.1f}, where sqrt(T ln(d) / 2) = "
            f"{math.sqrt(horizon * math.log(FEW) / 2):.1f}. Drifting: which half of the experts is good changes every "
            "100 steps.",
        ),
        claims,
        parts,
    )
    return section


def smooth(plan: Plan) -> Section:
    """Corollary 2.3: a release for every vertex against one for every leaf."""
    betas, horizon, clients = plan.betas
    at, repeats = At(clients, FEW, horizon), plan.repeats["smooth"]

    def cells() -> Mapping[object, Entry]:
        runs: dict[object, Entry] = {
            (beta, release): smooth_cell(at, beta, release, repeats) for beta in betas for release in ("vertex", "leaf")
        }
        for beta in betas:
            setting = {"beta": beta, "horizon": horizon, "clients": clients, "streams": repeats.streams}
            name, play = f"beta {beta:.2g}, uniform play", partial(uniform, at, beta, repeats.streams)
            runs[beta, "uniform"] = Measured(name, {"uniform play": setting}, play)
        return runs

    def claims(found: Found) -> list[Claim]:
        return [
            single(f"beta {beta:.2g}: less regret with a release for every vertex", "ours", share_of(vertex, leaf, 1.0))
            for beta in betas
            for vertex, leaf in [[found[beta, kind].estimate("regret") for kind in ("vertex", "leaf")]]
        ]

    def parts(found: Found) -> list[Part]:
        rows = tuple(
            (
                f"{beta:.2g}",
                kind,
                found[beta, kind].estimate("regret").cell,
                number(float(np.mean(found[beta, "uniform"]["regret"]))),
                f"{numbers_sent(at, beta):,}",
                promise(found[beta, kind]),
            )
            for beta in betas
            for kind in ("vertex", "leaf")
        )
        columns = ("beta", "release", "regret", "uniform play", "numbers sent", "guarantee")
        return [Part("smooth", section.heading, section.text, table=Table(columns, rows))]

    section = Section(
        "smooth",
        f"Smooth losses (Corollary 2.3): local, pure, m = {clients}, d = {FEW}, T = {horizon:,}",
        cells,
        1,
        (
            "Losses -<u, w> + beta <u, w>^2 / 2 of a mixture w, gains u of 0 or 1 with mean 0.5, of one expert 0.6. "
            "Regret against the best mixture. Corollary 2.3 is about beta of at most 1 / (T epsilon).",
            "The algorithm cannot know that gradients lie in [-1, 0]: it clamps them to [-1, 1] and pays for that.",
        ),
        claims,
        parts,
    )
    return section


SENT = {"clients": 1.25, "horizon": 0.5, "epsilon": 0.5, "beta": 0.5}
"""Theorem 2.2 (iii): numbers that are sent grow like these powers."""


def sent(plan: Plan) -> Section:
    """What clients send; nothing is run for it."""

    def count(field: str, value: float) -> dict[str, int]:
        at = At(16, FEW, 2**14)
        found = numbers_sent(at, value) if field == "beta" else numbers_sent(at.but(**{field: value}), 1.0)
        return {"numbers": found}

    def cells() -> Mapping[object, Measured]:
        places = [(field, value) for field, values in plan.sent.items() for value in values]
        return {
            (field, value): Measured(
                f"numbers sent, {field} {value:g}",
                {"numbers sent": field, "at": value},
                partial(count, field, value),
            )
            for field, value in places
        }

    def curve(found: Found, field: str) -> dict[float, float]:
        return {value: float(found[field, value]["numbers"]) for value in plan.sent[field]}

    def claims(found: Found) -> list[Claim]:
        made = []
        for field in plan.sent:
            numbers, power = curve(found, field), SENT[field]
            fit = exponent(list(numbers), [[each] for each in numbers.values()])
            said = f"smooth losses: numbers sent grow at most like {field}^{power:g}"
            made.append(single(said, "Theorem 2.2 (iii)", at_most_like(fit, power + NEAR)))
        linear = {steps: numbers_sent(At(16, FEW, steps), 0.0) / (16 * FEW) for steps in (2**10, 2**14, 2**20)}
        told = ", ".join(f"T = {steps:,}: {count:g}" for steps, count in linear.items())
        few = all(count <= math.log2(steps) + 1 for steps, count in linear.items())
        return [*made, single("linear losses: at most log2(T) + 1 exchanges", "Table 1", decided(few, told))]

    def parts(found: Found) -> list[Part]:
        rows = tuple(
            (field, f"{value:g}", f"{each:,.0f}") for field in plan.sent for value, each in curve(found, field).items()
        )
        return [Part("sent", section.heading, section.text, table=Table(("axis", "value", "numbers sent"), rows))]

    section = Section(
        "sent",
        "Communication",
        cells,
        1,
        (
            f"Numbers that clients of Fed-DP-OPE-Stoch send, local: m = 16, d = {FEW}, T = 16,384, epsilon 1, beta 1, "
            "one of them changed. Trees have whole levels, so the count jumps by factors of 2.",
            "Fed-SVT sends m d (T/N + 1) numbers, the 1 for naming the first expert. Table 1 prints m^2 d T epsilon, "
            "which is m d T / N with N = 1 / (m epsilon): less than one step.",
        ),
        claims,
        parts,
    )
    return section


def study_of(plan: Plan) -> Study:
    """All sections. Figures: 1 stochastic experts, 2 realizable experts, 3 general oblivious adversaries.

    >>> study_of(QUICK).figures
    (1, 2, 3)
    """
    one, two, hard, alone = (make(plan) for make in (plans.stochastic, plans.sparse, plans.hidden, plans.single))
    sections = [
        scaled("stochastic", "Stochastic experts", 1, one, published_privacy),
        smooth(plan),
        sent(plan),
        scaled("realizable", "Realizable experts", 2, two, partial(cheaper, two[0])),
        scaled("hidden", "One hidden expert", 2, hard, partial(above_bound, hard)),
        scaled("single", "One client, oblivious adversary", 3, alone),
        general(plan),
    ]
    return Study("Paper 004 again: Table 1 made empirical", sections, INTRODUCTION, RULES)


def study(asked: Asked) -> Study:
    """What `gossamer reproduce 004` runs; no data are needed.

    >>> study(Asked(quick=True)).title
    'Paper 004 again: Table 1 made empirical'
    """
    return study_of(QUICK if asked.quick else FULL)
