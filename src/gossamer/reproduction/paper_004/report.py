"""The page of paper 004: Table 1 made empirical, the claims, and how they were run."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gossamer.reports import Columns, Table
from gossamer.reports.figures import Picture
from gossamer.reproduction.claims import Claim, one_column, verdicts_table
from gossamer.reproduction.drawing import Curve, Panel, draw
from gossamer.reproduction.page import Asked, Page, Part, claims_part
from gossamer.reproduction.paper_004 import findings
from gossamer.reproduction.paper_004.cases import (
    ADVERSARIES,
    DELTA,
    EPSILON,
    EXPERTS,
    FAILURE,
    GAP,
    GENERAL,
    HIDDEN,
    LOCAL_SPARSE,
    MANY,
    PHASE,
    PUBLISHED,
    REFERENCES,
    SPARSE,
    SPARSE_REFERENCES,
    STOCHASTIC,
    Case,
)
from gossamer.reproduction.paper_004.experiments import ExpertLab, Fit, by_stream, coin_regret, estimate
from gossamer.reproduction.paper_004.findings import FIRST, FLOOR, RULES, SPARSE_FLOOR, uniform
from gossamer.reproduction.paper_004.plan import Plan
from gossamer.reproduction.paper_004.traffic import POWERS, messages, predicted_numbers
from gossamer.reproduction.store import Result

TITLE = "Paper 004 again: Table 1 made empirical"
FIGURES = (1, 2, 3)
"""The paper has none. 1: stochastic experts. 2: realizable experts. 3: general oblivious adversaries."""
BANDS = "Lines are means over streams and noise seeds, bands their 95 % intervals. Both axes are logarithmic."
SMALLEST = 0.05  # regret that is drawn


@dataclass(frozen=True)
class Clients(Part):
    """A section whose pictures have m along the axis, as powers of 2.

    >>> Clients("stochastic", "Regret against m").pictures
    []
    """

    @property
    def pictures(self) -> list[Picture]:
        """The panels, drawn."""
        drawn = draw(self.panels, x="clients")
        for picture in drawn:
            picture.figure.update_xaxes(type="log", tickvals=POWERS, ticktext=[str(m) for m in POWERS])
        return drawn


def reproduce(asked: Asked[Plan]) -> Page:
    """Run what is asked for, and write it down; there are no data."""
    lab, numbers = ExpertLab(asked.store, asked.plan), asked.numbers(FIGURES)
    claims: list[Claim] = []
    parts: list[Part] = []
    if 1 in numbers:
        rates, made = messages(lab)
        claims += [*findings.of_stochastic(lab), *findings.of_smooth(lab), *rates]
        parts += [stochastic(lab), gaps(lab), smooth(lab), made]
    if 2 in numbers:
        claims += findings.of_sparse(lab)
        parts += [realizable(lab), hidden(lab)]
    if 3 in numbers:
        claims += findings.of_general(lab)
        parts.append(general(lab))
    table = claims_part(claims, (RULES,), "What is said, and what we measured")
    every = [table, *parts, Part("protocol", "How it was run", protocol(asked.plan))]
    verdicts = verdicts_table(one_column(claims))
    return Page(TITLE, introduction(asked.plan), verdicts, every, asked.store.used, asked.command)


def introduction(plan: Plan) -> tuple[str, ...]:
    """What was run."""
    one, two = plan.stochastic, plan.realizable
    return (
        "Many clients choose among d experts together, through a server. The paper promises less regret per client "
        "the more clients there are, and has no experiments. Here its Table 1 is measured.",
        f"This is the {plan.name} run: stochastic experts with T = {one.horizon:,}, {one.streams} streams of losses "
        f"and {one.seeds} noise seeds on each, realizable experts with T = {two.horizon:,}, {two.streams} streams and "
        f"{two.seeds} seeds, m up to {max(one.clients)}.",
    )


def stochastic(lab: ExpertLab) -> Part:
    """Fed-DP-OPE-Stoch on linear losses against m."""
    sizes = lab.plan.stochastic
    found = _found(lab.stochastic, {**STOCHASTIC, **REFERENCES}, sizes.clients)
    extra = _found(lab.stochastic, PUBLISHED if sizes.published else {}, sizes.published)
    level = uniform(sizes.horizon)
    fits = {title: findings.stochastic_fit(lab, title) for title in STOCHASTIC}
    fits |= {title: findings.stochastic_fit(lab, title, PUBLISHED) for title in extra}
    rows = _rows({**found, **extra}, {**STOCHASTIC, **REFERENCES, **PUBLISHED}, sizes.clients, fits)
    rows.append(("uniform play (expected)", *[f"{level:.0f}"] * len(sizes.clients), "0", "-", "-", "-", "-", "-"))
    drawn = [_curve(title, found[title]) for title in (*STOCHASTIC, "follow the leader")]
    expected = [_curve(title, found[title], "expected") for title in STOCHASTIC]
    panels = (
        Panel("regret of one client", "regret", tuple(drawn), level, log=True),
        Panel("expected regret of one client", "regret", tuple(expected), level, log=True),
    )
    return Clients(
        "stochastic",
        f"Fed-DP-OPE-Stoch: linear losses, gap {GAP:g}, d = {EXPERTS}, T = {sizes.horizon:,}, epsilon {EPSILON:g}",
        (
            "Regret against the best expert in hindsight, per client. The row m = 1 is the single-client counterpart "
            "(limited updates with private Frank-Wolfe). Exponents are fitted where regret is above "
            f"{FLOOR:.2g}, three times what the first step costs.",
            "The paper's exponents are those of an upper bound for any gap. With a fixed gap regret falls faster, as "
            "ln(d) / (m gap) does where the best expert can be told; the next section looks for the worst gap.",
        ),
        panels=panels,
        table=_table("algorithm", sizes.clients, rows, "exponent of 1/m", "paper", *PROMISE),
        notes=(
            f"{BANDS} Dotted: uniform play. Hedge and follow the leader exchange every 8 steps and are not private. "
            "Rows 'published' have the paper's batches and noise and run sample by sample, on fewer streams.",
            "Observer: 'broadcasts' sees what the trusted server sends out; 'peers' also sees every message.",
        ),
    )


def gaps(lab: ExpertLab) -> Part:
    """The worst gap for every m."""
    sizes, case = lab.plan.stochastic, STOCHASTIC[FIRST]
    every = sorted({GAP, *sizes.gaps}, reverse=True)
    rows = []
    for gap in every:
        found = [lab.stochastic(FIRST, case, m, gap) for m in sizes.clients]
        rows.append((f"{gap:.4g}", *(_number(estimate(each, "expected").mean) for each in found)))
    worst = findings.worst_gaps(lab)
    rows.append(("worst", *(f"{_number(estimate(found, 'expected').mean)} ({gap:.2g})" for _, gap, found in worst)))
    scale = {m: math.sqrt(sizes.horizon * math.log(EXPERTS) / m) for m in sizes.clients}
    rows.append(("sqrt(T ln(d) / m)", *(_number(scale[m]) for m in sizes.clients)))
    regrets = {m: found for m, _, found in worst}
    panel = Panel(
        "expected regret at the worst gap",
        "regret",
        (
            _curve("worst gap", regrets, "expected"),
            Curve.line("sqrt(T ln(d) / m)", list(scale), list(scale.values())),
            _curve(f"gap {GAP:g}", {m: lab.stochastic(FIRST, case, m) for m in sizes.clients}, "expected"),
        ),
        log=True,
    )
    return Clients(
        "gaps",
        "The worst gap: central, pure",
        (
            f"Expected regret for every gap, {FIRST}. Fitted exponent at the worst gap: "
            f"{_fit(findings.worst_fit(lab))}; the paper's upper bound has 0.5 and an additive term of the noise.",
        ),
        panels=(panel,),
        table=_table("gap", sizes.clients, rows),
        notes=(BANDS,),
    )


def smooth(lab: ExpertLab) -> Part:
    """Local, a release for every vertex against one for every leaf, with smoothness swept."""
    sizes = lab.plan.smooth
    small, sent = 1 / (sizes.horizon * EPSILON), partial(predicted_numbers, sizes.clients, sizes.horizon)
    columns: Columns[tuple[float, str, Result]] = {
        "beta": lambda row: f"{row[0]:.2g}" + (" = 1 / (T epsilon)" if row[0] == small else ""),
        "release": lambda row: row[1] if row[0] else "both (no tree)",
        "regret": lambda row: estimate(row[2]),
        "uniform play": lambda row: f"{lab.uniform(row[0]):.1f}",
        "exchanges": lambda row: f"{row[2]['exchanges']:,}",
        "numbers sent": lambda row: f"{row[2]['numbers']:,}",
        "m^1.25 d sqrt(T eps beta / ln d) ln T": lambda row: f"{sent(row[0]):,.0f}" if row[0] else "-",
        **{name: _promised(place) for place, name in enumerate(PROMISE)},
    }
    kinds = [(beta, release) for beta in sizes.betas for release in ("vertex", "leaf") if beta or release == "vertex"]
    return Part(
        "smooth",
        f"Smooth losses (Corollary 2.3): local, pure, m = {sizes.clients}, d = {EXPERTS}, T = {sizes.horizon:,}",
        (
            "Losses -<u, w> + beta <u, w>^2 / 2 of a mixture w, gains u of 0 or 1 with mean 0.5, of one expert 0.6: "
            "gradients within [-1, 0] and beta-smooth with respect to the 1-norm. Regret against the best mixture in "
            "hindsight. Corollary 2.3 is about beta of at most 1 / (T epsilon).",
            "Where beta is positive the algorithm cannot know that gradients lie in [-1, 0]: it clamps them to [-1, 1] "
            "and pays for twice the range of an expert's losses. Where T_1 would be below 1 it is 1.",
        ),
        table=Table.of(columns, [(*kind, lab.smooth(*kind)) for kind in kinds]),
    )


def realizable(lab: ExpertLab) -> Part:
    """Fed-SVT against m."""
    sizes, cases = lab.plan.realizable, {**SPARSE, **SPARSE_REFERENCES}
    found = _found(lab.realizable, cases, sizes.clients)
    local = _found(lab.realizable, LOCAL_SPARSE, sizes.local)
    fits = {title: findings.sparse_fit(lab, title) for title in SPARSE}
    rows = _rows({**found, **local}, {**cases, **LOCAL_SPARSE}, sizes.clients, fits)
    shown = {
        "pure": ("published", "remainder", "halves", "tight"),
        "approximate": ("published", "remainder", "tight"),
    }
    panels = tuple(
        Panel(
            kind,
            "regret",
            (*(_curve(name, found[f"{kind}, {name}"]) for name in names), _curve("local", local[f"local, {kind}"])),
            SPARSE_FLOOR,
            log=True,
        )
        for kind, names in shown.items()
    )
    return Clients(
        "realizable",
        f"Fed-SVT: one expert without losses, d = {MANY}, T = {sizes.horizon:,}, N = {PHASE}, rho {FAILURE:g}, epsilon "
        f"{EPSILON:g}",
        (
            "Regret per client; the others have Bernoulli(1/2) losses. The row m = 1 is the single-client sparse "
            f"vector with phases of {PHASE}. Published: the paper's noise, eta and threshold (its true epsilon is in "
            "the table: less than claimed). Remainder, halves: other splits of epsilon. Tight: the best one, kappa by "
            "the exact law.",
            f"Exponents are fitted where regret exceeds 3 N = {SPARSE_FLOOR:g} (dotted): the first phase costs about "
            f"N / 2 whatever m, and every change up to N.",
        ),
        panels=panels,
        table=_table("calibration", sizes.clients, rows, "exponent of 1/m", "paper", *PROMISE),
        notes=(f"{BANDS} Local rows: fewer m and streams; the paper has no local version.",),
    )


def hidden(lab: ExpertLab) -> Part:
    """The construction behind Theorem 2.7."""
    sizes = lab.plan.realizable
    found = _found(lab.hidden, HIDDEN, sizes.clients)
    bound = [math.log(MANY) / (m * EPSILON) for m in sizes.clients]
    rows = [
        (
            title,
            *_regrets(runs, sizes.clients),
            _fit(findings.hidden_fit(lab, title)),
            *_promise(runs[sizes.clients[0]]),
        )
        for title, runs in found.items()
    ]
    rows.append(("ln(d) / (m epsilon)", *(_number(value) for value in bound), "1", *["-"] * len(PROMISE)))
    curves = [_curve(title, runs) for title, runs in found.items()]
    curves.append(Curve.line("ln(d) / (m epsilon)", list(sizes.clients), bound))
    return Clients(
        "hidden",
        f"Theorem 2.7: one expert without losses, all others always lose; N = 1, T = {sizes.hidden:,}",
        (
            "Whoever is private pays for not knowing which expert it is. Fed-SVT pays more than the lower bound, by a "
            "factor of about ln(d) + ln(T) and its constants. Exponents are fitted where regret exceeds 3.",
        ),
        panels=(Panel("regret of one client", "regret", tuple(curves), log=True),),
        table=_table("calibration", sizes.clients, rows, "exponent of 1/m", *PROMISE),
        notes=(BANDS,),
    )


def general(lab: ExpertLab) -> Part:
    """Theorem 2.4."""
    sizes, rows, panels = lab.plan.oblivious, [], []
    bound = coin_regret(sizes.horizon, EXPERTS)
    line = math.sqrt(sizes.horizon * math.log(EXPERTS) / 2)
    for adversary in ADVERSARIES:
        curves = []
        for title, case in GENERAL.items():
            runs = {m: lab.general(adversary, title, case, m) for m in sizes.clients}
            rows.append((adversary, title, *_regrets(runs, sizes.clients), *_promise(runs[sizes.clients[0]])))
            curves.append(_curve(title, runs))
        panels.append(Panel(adversary, "regret", tuple(curves), bound if adversary == "fair coins" else None))
    return Clients(
        "general",
        f"General oblivious adversaries (Theorem 2.4): d = {EXPERTS}, T = {sizes.horizon:,}",
        (
            "Every client has the same losses, so more clients bring nothing. On fair coins every algorithm whatsoever "
            f"has an expected regret of T/2 less the least of d binomial numbers: {bound:.1f} (dotted), where "
            f"sqrt(T ln(d) / 2) = {line:.1f}. Drifting: which half of the experts is good changes every 100 steps.",
        ),
        panels=tuple(panels),
        table=Table(("adversary", "algorithm", *(f"m={m}" for m in sizes.clients), *PROMISE), tuple(rows)),
        notes=("Lines are means over streams and noise seeds, bands their 95 % intervals. m is drawn as a logarithm.",),
    )


def protocol(plan: Plan) -> tuple[str, ...]:
    """What was taken where the paper leaves it open."""
    return (
        "Losses are drawn as sums of whole blocks, exactly in law (streams.Experts.sums). With a trusted server one "
        "client stands for all of them: the server hears the same sums, and a program serves every m, because "
        "thresholds and scales are run-time values. Local clients have noise of their own, and each m is a program.",
        "Fed-DP-OPE-Stoch uses whole phases, and for linear losses one root and no tree (differences of gradients are "
        f"0). 'Approximate' is delta {DELTA:g}. Uniform play is (1 - 1/d) gap T.",
        "Intervals of exponents: 2,000 bootstrap draws of the streams, the same ones for all m.",
        f"Smooth: {plan.smooth.streams} streams, {plan.smooth.seeds} seeds. Oblivious: {plan.oblivious.streams} "
        f"streams, {plan.oblivious.seeds} seed(s). Local Fed-SVT: a sixth of the streams; published "
        "Fed-DP-OPE-Stoch: an eighth.",
    )


PROMISE = ("epsilon", "delta", "basis", "observer")
Runs = Mapping[str, Mapping[int, Result]]


def _found(find: Callable[[str, Case, int], Result], cases: Mapping[str, Case], clients: Sequence[int]) -> Runs:
    """What was found for every case and every m."""
    return {title: {m: find(title, case, m) for m in clients} for title, case in cases.items()}


def _rows(
    found: Runs, cases: Mapping[str, Case], clients: Sequence[int], fits: Mapping[str, Fit | None]
) -> list[tuple[str, ...]]:
    """Regrets, the fitted exponent beside the paper's, and the guarantee."""
    return [
        (
            title,
            *_regrets(runs, clients),
            _fit(fits.get(title)),
            _predicted(cases[title]),
            *_promise(next(iter(runs.values()))),
        )
        for title, runs in found.items()
    ]


def _table(first: str, clients: Sequence[int], rows: Sequence[tuple[str, ...]], *more: str) -> Table:
    """With a column for every m."""
    return Table((first, *(f"m={m}" for m in clients), *more), tuple(rows))


def _promise(found: Result) -> tuple[str, str, str, str]:
    """The true guarantee of a row."""
    if found["basis"] == "none":
        return "-", "-", "none", "-"
    return f"{found['epsilon']:.3g}", f"{found['delta']:g}", found["basis"], found["observer"]


def _promised(place: int) -> Callable[[tuple[float, str, Result]], str]:
    return lambda row: _promise(row[2])[place]


def _regrets(runs: Mapping[int, Result], clients: Sequence[int]) -> list[str]:
    return [_interval(runs[m]) if m in runs else "-" for m in clients]


def _interval(found: Result) -> str:
    value = estimate(found)
    return f"{_number(value.mean)}\u00a0±\u00a0{_number(value.margin)}"


def _number(value: float) -> str:
    """With three digits.

    >>> _number(1234.5), _number(0.12345)
    ('1,234', '0.123')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _fit(fit: Fit | None) -> str:
    return "-" if fit is None else str(fit)


def _predicted(case: Case) -> str:
    return "-" if case.predicted is None else f"{case.predicted:g}"


def _curve(name: str, runs: Mapping[int, Result], kind: str = "regret") -> Curve:
    """Means with their intervals; what is too small to be drawn is left out."""
    values = {m: estimate(found, kind) for m, found in runs.items() if np.mean(by_stream(found, kind)) > SMALLEST}
    means = np.array([value.mean for value in values.values()])
    margins = np.array([value.margin if math.isfinite(value.margin) else 0.0 for value in values.values()])
    low = np.maximum(means - margins, SMALLEST)
    return Curve(name, list(values), means.tolist(), low.tolist(), (means + margins).tolist())
