"""Paper 004: its Table 1 made empirical: so far figure 3, general oblivious adversaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from scipy import stats

from gossamer import streams
from gossamer.algorithms import hedge, shrinking_dartboard
from gossamer.core import Algorithm
from gossamer.experiments import Asked, Cell, Claim, Found, Metric, Played, Section, Study, alike, measures, single
from gossamer.privacy import Budget
from gossamer.streams import Stream

EXPERTS, DATA_SEED = 20, 40
BUDGET = Budget(1.0, 1e-5)
ALIKE = 0.1  # regrets that differ by less than this share of their mean are the same
RULES = "A regret is a mean over noise seeds and streams, with its 95 % interval over the streams by Student's t."


@dataclass(frozen=True)
class Sizes:
    """T, all m, streams of losses, and noise seeds on each."""

    horizon: int
    clients: tuple[int, ...]
    streams: int
    seeds: int


FULL, QUICK = Sizes(2**12, (1, 4, 16, 64), 12, 2), Sizes(2**10, (1, 16), 8, 1)


@cache
def coins(clients: int, seed: int) -> Stream:
    """Fair coins, the same losses for all clients."""
    return streams.hard_experts(clients, EXPERTS, seed=seed)


@cache
def drifting(clients: int, seed: int) -> Stream:
    """Which half of the experts is good changes every 100 steps."""
    return streams.drifting_experts(clients, EXPERTS, period=100, seed=seed)


ADVERSARIES = {"fair coins": coins, "drifting": drifting}


def make(title: str, clients: int, horizon: int) -> Algorithm:
    """The algorithm of a row."""
    if title == "hedge":
        return hedge(EXPERTS, clients, horizon=horizon, steps_per_exchange=1)
    return shrinking_dartboard(EXPERTS, clients, horizon=horizon, budget=BUDGET)


def regret(steps: int) -> Metric:
    """In all steps, per client."""

    def of(played: Played) -> np.ndarray:
        return steps * np.asarray(measures.expert_regret().of(played))

    return Metric("regret", of)


def general(sizes: Sizes) -> Mapping[tuple[str, str, int], Cell]:
    """Every algorithm against every adversary, for every m."""
    return {
        (adversary, title, m): Cell(
            f"{adversary}, {title}, m = {m}",
            partial(make, title, m, sizes.horizon),
            partial(draw, m),
            sizes.horizon,
            [regret(sizes.horizon)],
            seeds=range(sizes.seeds),
            data=range(DATA_SEED, DATA_SEED + sizes.streams),
            measure="local",
        )
        for adversary, draw in ADVERSARIES.items()
        for title in ("hedge", "shrinking dartboard")
        for m in sizes.clients
    }


def alike_for_all(sizes: Sizes, found: Found) -> Sequence[Claim]:
    """Theorem 2.4: more clients bring nothing."""
    return [
        single(
            f"{adversary}, {title}: regret is the same for all m",
            "Theorem 2.4" if adversary == "fair coins" else "ours",
            alike({f"m = {m}": found[adversary, title, m].estimate("regret") for m in sizes.clients}, ALIKE),
        )
        for adversary in ADVERSARIES
        for title in ("hedge", "shrinking dartboard")
    ]


def study(asked: Asked) -> Study:
    """What is run."""
    sizes = QUICK if asked.quick else FULL
    least = sizes.horizon / 2 - float(np.sum(stats.binom.sf(np.arange(sizes.horizon), sizes.horizon, 0.5) ** EXPERTS))
    text = f"On fair coins every algorithm has expected regret T/2 less the least of d binomial numbers: {least:.1f}."
    section = Section(
        "general",
        f"General oblivious adversaries (Theorem 2.4): d = {EXPERTS}, T = {sizes.horizon:,}",
        partial(general, sizes),
        figure=3,
        text=(text,),
        claims=partial(alike_for_all, sizes),
    )
    return Study("Paper 004 again: Table 1 made empirical", [section], rules=(RULES,))
