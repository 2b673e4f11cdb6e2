"""How much of paper 004 is run: everything, or a quick look; and every axis along which a regret is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gossamer.experiments.papers.paper_004.cases import (
    LOCAL_SPARSE,
    PUBLISHED,
    REFERENCES,
    SINGLE,
    SPARSE,
    STOCHASTIC,
    At,
    Case,
    Repeats,
)
from gossamer.experiments.papers.paper_004.scaling import Field, Power, Scaling

GAP, FEW, MANY, PHASE = 0.1, 20, 100, 10
"""The usual gap, d of stochastic and of realizable experts, and N of Fed-SVT."""
FLOOR = 3 * (1 - 1 / FEW) * GAP
"""Three times what the first step costs, which nothing can be learnt for."""

Values = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Plan:
    """Values along every axis, and how often everything is repeated.

    Attributes:
        stochastic: Fed-DP-OPE-Stoch at the usual gap, by m.
        published: m with the paper's constants, which run sample by sample.
        worst: Fed-DP-OPE-Stoch at the worst gap.
        gaps: that are tried.
        sparse: Fed-SVT.
        local: m where clients noise their sums.
        hidden: Fed-SVT on the construction behind Theorem 2.7.
        single: the shrinking dartboard.
        general: m against general oblivious adversaries, and T there.
        betas: of smooth losses, with T and m there.
        sent: along which numbers that are sent are counted.
    """

    stochastic: tuple[float, ...]
    published: tuple[float, ...]
    worst: Values
    gaps: tuple[float, ...]
    sparse: Values
    local: tuple[float, ...]
    hidden: Values
    single: Values
    general: tuple[tuple[int, ...], int]
    betas: tuple[tuple[float, ...], int, int]
    sent: Values
    repeats: Mapping[str, Repeats]


DOUBLING = tuple(2**power for power in range(9))
FULL = Plan(
    stochastic=(1, 4, 16, 64, 256),
    published=(1, 16),
    worst={
        "clients": (1, 4, 16, 64, 256),
        "horizon": (2**10, 2**12, 2**14, 2**16),
        "epsilon": (2**-8, 2**-6, 2**-4, 0.25),
        "experts": (4, 16, 64, 256),
    },
    gaps=tuple(0.4 * 2.0**-power for power in range(9)),
    sparse={
        "clients": DOUBLING,
        "epsilon": (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0),
        "experts": (4, 16, 64, 256, 1024),
        "horizon": (2000, 8000, 32_000, 128_000),
        "phase": (30, 100, 300, 1000),
        "optimal": (30, 100, 300, 1000),
    },
    local=(1, 4, 16, 64),
    hidden={"clients": (1, 4, 16, 64, 256), "experts": (4, 16, 64, 256, 1024)},
    single={
        "horizon": (2**12, 2**14, 2**16, 2**18),
        "epsilon": (0.25, 0.5, 1.0, 2.0, 4.0),
        "experts": (16, 32, 64, 128, 256),
    },
    general=((1, 4, 16, 64), 2**12),
    betas=((2.0**-12, 0.1, 1.0), 2**12, 16),
    sent={
        "clients": DOUBLING,
        "horizon": (2**10, 2**12, 2**14, 2**16, 2**18),
        "epsilon": (1.0, 2.0, 4.0, 8.0, 16.0),
        "beta": (2**-8, 2**-6, 2**-4, 2**-2, 1.0),
    },
    repeats={
        "stochastic": Repeats(16, 4),
        "published": Repeats(4, 4),
        "worst": Repeats(6, 8),
        "sparse": Repeats(24, 4),
        "axes": Repeats(8, 4),
        "local": Repeats(4, 2),
        "single": Repeats(8, 2),
        "general": Repeats(12, 2),
        "smooth": Repeats(6, 4),
    },
)
_FEW_REPEATS = Repeats(6, 2)
QUICK = Plan(
    stochastic=(1, 4, 16, 64),
    published=(),
    worst={"epsilon": (2**-8, 2**-4)},
    gaps=(0.1, 0.0125),
    sparse={"clients": (1, 4, 16, 64), "epsilon": (1 / 8, 1.0), "optimal": (100, 1000)},
    local=(1, 16),
    hidden={"clients": (1, 16)},
    single={"epsilon": (0.5, 4.0)},
    general=((1, 16), 2**10),
    betas=((1.0,), 2**4, 4),
    sent={"clients": (1, 16, 256)},
    repeats={**dict.fromkeys(FULL.repeats, _FEW_REPEATS), "local": Repeats(2, 2), "smooth": Repeats(2, 2)},
)


def _axes(
    name: str,
    title: str,
    law: str,
    cases: Mapping[str, Case],
    base: At,
    values: Values,
    powers: Mapping[str, Mapping[str, Sequence[Power]]],
    repeats: Repeats,
    of: Mapping[str, str],
    gaps: Sequence[float] = (),
) -> list[Scaling]:
    """One for each axis that has values."""
    fields: list[Field] = ["clients", "horizon", "epsilon", "experts", "phase", "optimal"]
    return [
        Scaling(
            f"{name}-{field}",
            title,
            law,
            cases,
            base,
            field,
            values[field],
            powers.get(field, {}),
            repeats,
            of=of.get(field, ""),
            gaps=gaps,
        )
        for field in fields
        if field in values
    ]


def stochastic(plan: Plan) -> list[Scaling]:
    """Theorem 2.2, its remark, Corollary 2.3 and Table 1: linear losses.

    >>> [each.name for each in stochastic(QUICK)]
    ['stochastic', 'worst-epsilon']
    """
    remark, theorem, table = Power(-0.5, "Theorem 2.2, remark"), Power(-0.25, "Theorem 2.2"), Power(-0.5, "Table 1")
    by_clients = {title: [remark] if title.startswith("central") else [theorem, table] for title in STOCHASTIC}
    usual = Scaling(
        "stochastic",
        f"Fed-DP-OPE-Stoch, gap {GAP:g}",
        "stochastic",
        {**STOCHASTIC, **REFERENCES},
        At(1, FEW, 2**14, phase=8, gap=GAP),
        "clients",
        plan.stochastic,
        by_clients,
        plan.repeats["stochastic"],
        floor=FLOOR,
        also={title: (case, plan.published, plan.repeats["published"]) for title, case in PUBLISHED.items()}
        if plan.published
        else None,
    )
    cases = {title: STOCHASTIC[title] for title in ("central, pure", "local, pure", "local, approximate")}
    powers = {
        "clients": {title: by_clients[title] for title in cases},
        "horizon": {title: [Power(0.5, "Theorem 2.2")] for title in cases},
        "epsilon": {title: [Power(1, "Corollary 2.3")] for title in cases},
        "experts": {title: [Power(1, "Corollary 2.3")] for title in cases},
    }
    of = {"epsilon": "1/epsilon", "experts": "ln d"}
    base, repeats = At(16, FEW, 2**14), plan.repeats["worst"]
    title = "Fed-DP-OPE-Stoch, worst gap"
    return [usual, *_axes("worst", title, "stochastic", cases, base, plan.worst, powers, repeats, of, plan.gaps)]


def sparse(plan: Plan) -> list[Scaling]:
    """Theorem 2.6.

    >>> [each.power_of for each in sparse(QUICK)]
    ['m', '1/epsilon', 'L*']
    """
    source, repeats = "Theorem 2.6", plan.repeats["axes"]
    by_clients = Scaling(
        "sparse-clients",
        "Fed-SVT",
        "realizable",
        {**SPARSE, **REFERENCES},
        At(1, MANY, 10_000, phase=PHASE),
        "clients",
        plan.sparse["clients"],
        {title: [Power(-1, source)] for title in SPARSE},
        plan.repeats["sparse"],
        floor=3.0 * PHASE,
        also={title: (case, plan.local, plan.repeats["local"]) for title, case in LOCAL_SPARSE.items()},
    )
    titles = ("pure, published", "pure, tight", "approximate, published", "approximate, tight")
    cases = {title: SPARSE[title] for title in titles}
    one = {title: [Power(1, source)] for title in titles}
    experts = {title: [Power(2 if title.startswith("pure") else 1.5, source)] for title in titles}
    powers = {"epsilon": one, "experts": experts, "horizon": one, "phase": one, "optimal": one}
    of = {"epsilon": "1/epsilon", "experts": "ln d", "horizon": "ln T"}
    noisy = {field: values for field, values in plan.sparse.items() if field in ("epsilon", "experts", "horizon")}
    rest = {field: values for field, values in plan.sparse.items() if field in ("phase", "optimal")}
    tight = {title: case for title, case in cases.items() if title.endswith("tight")}
    long = {field: {title: each[title] for title in tight} for field, each in powers.items()}
    base, many = At(16, MANY, 10_000, epsilon=0.25), At(64, MANY, 10_000)
    return [
        by_clients,
        *_axes("sparse", "Fed-SVT", "realizable", cases, base, noisy, powers, repeats, of),
        *_axes("sparse", "Fed-SVT", "realizable", tight, many, rest, long, repeats, of),
    ]


def hidden(plan: Plan) -> list[Scaling]:
    """Theorem 2.7: one expert without losses, all others always lose.

    >>> [each.name for each in hidden(FULL)]
    ['hidden-clients', 'hidden-experts']
    """
    cases = {title: SPARSE[title] for title in ("pure, published", "pure, tight", "approximate, tight")}
    powers = {"clients": {title: [Power(-1, "Theorem 2.6")] for title in cases}}
    base, repeats, of = At(16, MANY, 4096, phase=1), plan.repeats["axes"], {"experts": "ln d"}
    return _axes("hidden", "Fed-SVT, one hidden expert", "hidden", cases, base, plan.hidden, powers, repeats, of)


def single(plan: Plan) -> list[Scaling]:
    """Table 1, private shrinking dartboard: one client, and an expert without losses.

    >>> [each.power_of for each in single(FULL)]
    ['T', '1/epsilon', 'ln d']
    """
    half, one = ({title: [Power(power, "Table 1")] for title in SINGLE} for power in (0.5, 1))
    powers = {"horizon": half, "epsilon": one, "experts": one}
    of, base = {"epsilon": "1/epsilon", "experts": "ln d"}, At(1, FEW, 2**16, phase=1)
    title, repeats = "Private shrinking dartboard", plan.repeats["single"]
    return _axes("single", title, "realizable", SINGLE, base, plan.single, powers, repeats, of)
