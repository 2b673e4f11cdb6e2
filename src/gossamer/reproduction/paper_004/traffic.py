"""What the algorithms of paper 004 send, against what it predicts; nothing is run for it."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from gossamer.reports import Table
from gossamer.reproduction.claims import Claim, decided, judged, single
from gossamer.reproduction.page import Part
from gossamer.reproduction.paper_004.cases import EPSILON, EXPERTS, MANY, PHASE, SPARSE, Gains
from gossamer.reproduction.paper_004.experiments import ExpertLab
from gossamer.reproduction.paper_004.findings import NEAR

POWERS = tuple(2**power for power in range(9))
"""All m."""


def messages(lab: ExpertLab) -> tuple[list[Claim], Part]:
    """What is sent, against what the paper predicts; nothing is run for it."""
    sizes = lab.plan.stochastic
    rows, powers = [], {}
    for beta in (1.0, 0.01):
        counts = {m: sent(m, sizes.horizon, beta) for m in POWERS}
        numbers = {m: m * EXPERTS * count for m, count in counts.items()}
        powers[f"beta {beta:g}"] = growth(list(numbers), list(numbers.values()))
        for m in POWERS[::2]:
            predicted = predicted_numbers(m, sizes.horizon, beta)
            ratio = f"{numbers[m] / predicted:.2f}"
            rows.append(("Fed-DP-OPE-Stoch, local", f"{beta:g}", f"{m}", f"{counts[m]:,}", f"{numbers[m]:,}", ratio))
    linear = [(horizon, sent(16, horizon, 0.0)) for horizon in (2**10, 2**14, 2**20)]
    for horizon, count in linear:
        label = f"0, T = {horizon:,}"
        ratio = f"{count / math.log2(horizon):.2f} of log2(T)"
        rows.append(("Fed-DP-OPE-Stoch, linear", label, "16", f"{count}", f"{16 * EXPERTS * count:,}", ratio))
    many = lab.plan.realizable
    for m in (1, 16, 256):
        exchanges = SPARSE["pure, tight"].make(m, many.horizon).schedule.exchanges(many.horizon)
        numbers_sent, predicted = m * MANY * exchanges, m * MANY * many.horizon / PHASE
        ratio = f"{numbers_sent / predicted:.3f} of m d T / N"
        rows.append(("Fed-SVT", "-", f"{m}", f"{exchanges:,}", f"{numbers_sent:,}", ratio))
    part = Part(
        "messages",
        "Communication",
        (
            f"Numbers that clients send; d = {EXPERTS} and T = {sizes.horizon:,} for Fed-DP-OPE-Stoch, d = {MANY}, T = "
            f"{many.horizon:,}, N = {PHASE} for Fed-SVT. Last column: as a share of what is predicted, Theorem 2.2 "
            "(iii) without a constant, or as said. Trees have whole levels, so the count jumps by factors of 2. Table "
            "1 prints m^2 d T epsilon for Fed-SVT, which is m d T / N with N = 1 / (m epsilon): an N below 1.",
        ),
        table=Table(("algorithm", "beta", "m", "exchanges", "numbers sent", "of the predicted"), tuple(rows)),
    )
    return of_messages(powers, linear), part


def of_messages(powers: Mapping[str, float], logarithmic: Sequence[tuple[int, int]]) -> list[Claim]:
    """Theorem 2.2 (iii) and Table 1: by which power of m what is sent grows, and exchanges for linear losses."""
    measured = ", ".join(f"{name}: {power:.2f}" for name, power in powers.items())
    inside = [abs(power - 1.25) <= NEAR for power in powers.values()]
    exchanges = ", ".join(f"T = {horizon:,}: {count}" for horizon, count in logarithmic)
    linear = all(count <= math.log2(horizon) + 1 for horizon, count in logarithmic)
    return [
        single(
            "smooth losses: numbers sent grow like m^1.25",
            "Theorem 2.2 (iii)",
            judged(measured, holds=all(inside), fails=not any(inside)),
        ),
        single(
            "linear losses: the number of exchanges is at most log2(T) + 1",
            "Table 1",
            decided(linear, exchanges),
        ),
    ]


def growth(clients: Sequence[int], numbers: Sequence[int]) -> float:
    """The fitted power of m.

    >>> round(growth([1, 4, 16], [10, 80, 640]), 2)
    1.5
    """
    return float(np.polyfit(np.log(clients), np.log(numbers), 1)[0])


def predicted_numbers(clients: int, horizon: int, beta: float, alpha: float = 1.0) -> float:
    """Theorem 2.2 (iii): m^(5/4) d sqrt(T epsilon beta / (alpha ln d)) ln T, without its constant.

    >>> round(predicted_numbers(1, 4096, 1.0))
    6151
    """
    root = math.sqrt(horizon * EPSILON * beta / (alpha * math.log(EXPERTS)))
    return float(clients**1.25 * EXPERTS * root * math.log(horizon))


def sent(clients: int, horizon: int, beta: float) -> int:
    """Exchanges of Fed-DP-OPE-Stoch, local and pure; nothing is run."""
    gains = np.broadcast_to(np.float32(0), (horizon, clients, EXPERTS))
    return Gains(gains, beta).algorithm("vertex").schedule.exchanges(horizon)
