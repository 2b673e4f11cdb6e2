"""What runs for paper 004: its two algorithms, pure and approximate, central and local, and references."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gossamer import metrics, problems, sets, streams
from gossamer.algorithms import fed_ope_stoch, fed_svt, follow_the_leader, hedge, shrinking_dartboard, summed
from gossamer.core import Algorithm, Schedule
from gossamer.experiments import Cell, Metric, Played
from gossamer.privacy import Budget
from gossamer.streams import Stream
from gossamer.streams.experts import Experts, Sums

DELTA, FAILURE = 1e-5, 0.05
DATA_SEED = 40  # of the first stream
_FEW = 64  # exchanges of which all decisions are kept

Supply = Literal["pooled", "sums", "samples"]
"""How a run gets its losses: summed over a block and all clients, over a block, or not at all."""


@dataclass(frozen=True)
class At:
    """Where a case runs.

    Attributes:
        clients: m.
        experts: d.
        horizon: T.
        epsilon: of the budget.
        phase: N, the steps between two exchanges.
        optimal: L*, what the best expert loses in all.
        gap: between the best expert and all others.
    """

    clients: int
    experts: int
    horizon: int
    epsilon: float = 1.0
    phase: int = 10
    optimal: int = 0
    gap: float = 0.1

    def but(self, **changed: Any) -> At:
        """With other values."""
        return replace(self, **changed)


@dataclass(frozen=True)
class Case:
    """An algorithm for any setting, and how it gets its losses."""

    make: Callable[[At], Algorithm]
    supply: Supply


@dataclass(frozen=True)
class Repeats:
    """Streams of losses, and noise seeds on each; intervals are over the streams."""

    streams: int
    seeds: int


def _budget(at: At, approximate: bool) -> Budget:
    return Budget(at.epsilon, DELTA if approximate else 0.0)


def _stochastic(supply: Supply, approximate: bool = False, **options: Any) -> Case:
    def make(at: At) -> Algorithm:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # T_1 below 1 is made 1: the page says so
            budget = _budget(at, approximate)
            return fed_ope_stoch(at.experts, at.clients, horizon=at.horizon, budget=budget, **options)

    return Case(make, supply)


def _sparse(supply: Supply = "pooled", approximate: bool = False, **options: Any) -> Case:
    def make(at: At) -> Algorithm:
        known: dict[str, Any] = {
            "horizon": at.horizon,
            "steps_per_exchange": at.phase,
            "budget": _budget(at, approximate),
        }
        central: dict[str, Any] = {"optimal_loss": at.optimal, "failure": FAILURE} if supply == "pooled" else {}
        return fed_svt(at.experts, at.clients, **known, **central, **options)

    return Case(make, supply)


def _dartboard(approximate: bool, supply: Supply) -> Case:
    def make(at: At) -> Algorithm:
        return shrinking_dartboard(
            at.experts, at.clients, horizon=at.horizon, budget=_budget(at, approximate), steps_per_exchange=at.phase
        )

    return Case(make, supply)


def _reference(kind: Callable[..., Algorithm], supply: Supply = "pooled") -> Case:
    """Not private."""
    return Case(lambda at: kind(at.experts, at.clients, horizon=at.horizon, steps_per_exchange=at.phase), supply)


STOCHASTIC: Mapping[str, Case] = {
    "central, pure": _stochastic("pooled", trust="central"),
    "central, approximate": _stochastic("pooled", approximate=True, trust="central"),
    "local, pure": _stochastic("sums", trust="local"),
    "local, approximate": _stochastic("sums", approximate=True, trust="local"),
}
"""Fed-DP-OPE-Stoch on linear losses."""
PUBLISHED: Mapping[str, Case] = {
    "central, published": _stochastic("samples", trust="central", calibration="published"),
    "local, published": _stochastic("samples", trust="local", calibration="published"),
}
"""With the paper's batches and noise: what that costs, its guarantee says."""
SPARSE: Mapping[str, Case] = {
    "pure, published": _sparse(calibration="published"),
    "pure, remainder": _sparse(calibration="remainder"),
    "pure, tight": _sparse(),
    "approximate, published": _sparse(approximate=True, calibration="published"),
    "approximate, remainder": _sparse(approximate=True, calibration="remainder"),
    "approximate, tight": _sparse(approximate=True),
}
"""Fed-SVT with a trusted server."""
LOCAL_SPARSE: Mapping[str, Case] = {
    "local, pure": _sparse("sums", trust="local"),
    "local, approximate": _sparse("sums", approximate=True, trust="local"),
}
"""Where nobody trusts the server; the paper has none."""
REFERENCES: Mapping[str, Case] = {"hedge": _reference(hedge), "follow the leader": _reference(follow_the_leader)}
SINGLE: Mapping[str, Case] = {
    "pure": _dartboard(approximate=False, supply="pooled"),
    "approximate": _dartboard(approximate=True, supply="pooled"),
}
"""The private shrinking dartboard, one client."""
GENERAL: Mapping[str, Case] = {
    "hedge (not private)": _reference(hedge, "samples"),
    "dartboard, pure": _dartboard(approximate=False, supply="samples"),
    "dartboard, approximate": _dartboard(approximate=True, supply="samples"),
}
"""Against any oblivious adversary."""

LAWS: Mapping[str, Callable[[At, int], Experts]] = {
    "stochastic": lambda at, seed: streams.stochastic_experts(at.clients, at.experts, gap=at.gap, seed=seed),
    "realizable": lambda at, seed: streams.realizable_experts(
        at.clients, at.experts, optimal_loss=at.optimal, horizon=at.horizon, seed=seed
    ),
    "hidden": lambda at, seed: streams.hidden_expert(at.clients, at.experts, seed=seed),
    "coins": lambda at, seed: streams.hard_experts(at.clients, at.experts, seed=seed),
    "drifting": lambda at, seed: streams.drifting_experts(at.clients, at.experts, period=100, seed=seed),
}
"""Of losses, from a setting and a seed."""


@lru_cache(maxsize=128)
def losses(law: str, at: At, seed: int) -> Experts:
    """The losses of every client at every step.

    >>> losses("hidden", At(2, 3, 10), 0).read(0, 1).x.shape
    (1, 2, 3)
    """
    return LAWS[law](at, seed)


@lru_cache(maxsize=128)
def sums(law: str, at: At, schedule: Schedule, pooled: bool, seed: int) -> Sums:
    """What they add up to between two exchanges."""
    return losses(law, at, seed).sums(schedule, at.horizon, pooled=pooled)


def cell(name: str, case: Case, law: str, at: At, repeats: Repeats) -> Cell:
    """The runs of a case on a law of losses; regrets are those of one client in all steps.

    >>> cell("one", SINGLE["pure"], "coins", At(1, 3, 10), Repeats(2, 1)).steps
    Traceback (most recent call last):
    gossamer.errors.DataError: hard experts, 1 learners, 3 features: sums have no simple law; only ... have them
    """
    made, pooled = cache(lambda: case.make(at)), case.supply == "pooled"
    whole = at.but(epsilon=1.0)  # losses do not depend on it
    shared: dict[str, Any] = {"seeds": range(repeats.seeds), "measure": "local"}
    shared["data"] = range(DATA_SEED, DATA_SEED + repeats.streams)
    if case.supply == "samples":
        return Cell(name, made, partial(losses, law, whole), at.horizon, [_regret(at.horizon)], **shared)
    draw = partial(sums, law, whole, made().schedule, pooled)
    rows = len(draw(DATA_SEED).counts)
    kept = [_regret(rows / at.clients if pooled else rows), *([EXPECTED] if rows <= _FEW else [])]
    return Cell(name, lambda: summed(made(), pooled=pooled), draw, rows, kept, **shared)


def _regret(rows: float) -> Metric:
    """Of one client in all rows."""
    return Metric("regret", lambda played: rows * metrics.expert_regret(played.run, played.stream).mean(axis=-1))


def _expected(played: Played) -> NDArray[np.float64]:
    """Steps times what the played mixture loses more than the best expert, in expectation."""
    stream, run = played.stream, played.run
    assert isinstance(stream, Sums)
    plays = np.concatenate([run.transcript["decisions"], run.decisions[:, None]], axis=1)[:, : len(stream.counts), 0]
    return np.asarray(plays.astype(np.float64) @ (stream.means - stream.means.min()) @ stream.counts)


EXPECTED = Metric("expected regret", _expected, record=("decisions",))


# -- Losses that are smooth and not linear ---------------------------------------------------------------------------


@lru_cache(maxsize=32)
def gains(clients: int, experts: int, steps: int, beta: float, seed: int) -> Stream:
    """Losses -<u, w> + beta <u, w>^2 / 2 of a mixture w, up to a constant, with gains u of 0 or 1.

    With features c u, c = sqrt(beta / 2), and the label 1 / (2 c) that is least squares. A gradient's coordinates lie
    in [-1, 0] for beta up to 1, and change by beta |w - w'|_1 at most. Gains are 1 - the losses of stochastic experts.

    >>> gains(2, 3, 8, 0.5, 0).read(0, 8).x.max()
    np.float32(0.5)
    """
    x = 1 - streams.stochastic_experts(clients, experts, seed=seed).read(0, steps).x
    c = math.sqrt(beta / 2)
    labels = np.full(steps * clients, 1 / (2 * c), np.float32)
    return streams.from_arrays(np.float32(c) * x.reshape(-1, experts), labels, clients, seed=0, shuffle=False)


def smooth(at: At, beta: float, release: str) -> Algorithm:
    """Fed-DP-OPE-Stoch for them, local and pure: a release for every vertex, or for every leaf as in the paper.

    >>> smooth(At(2, 4, 64), 0.5, "vertex").guarantee.basis
    'proven'
    """
    problem = problems.LeastSquares(at.experts, domain=sets.Simplex())
    options: dict[str, Any] = {"trust": "local", "release": release, "lipschitz": 1.0, "smoothness": beta}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # T_1 below 1 is made 1
        return fed_ope_stoch(problem, at.clients, horizon=at.horizon, budget=Budget(at.epsilon), **options)


def smooth_cell(at: At, beta: float, release: str, repeats: Repeats) -> Cell:
    """Its runs; regret against the best mixture, the mean of all seeds of a stream."""

    def regret(played: Played) -> NDArray[np.float64]:
        run, schedule = played.run, played.algorithm.schedule
        blocks = [part.block for part in schedule.segments(at.horizon) for _ in range(part.exchanges)]
        plays = np.concatenate([run.transcript["decisions"], run.decisions[:, None]], axis=1)[:, :, 0]
        steps = np.repeat(plays, [*blocks, at.horizon - sum(blocks)], axis=1)
        found = metrics.pseudo_regret(steps, played.algorithm.problem, played.stream)
        return np.full(len(plays), at.horizon * found)

    name = f"beta {beta:.2g}, {release}, m = {at.clients}, T = {at.horizon:,}"
    return Cell(
        name,
        partial(smooth, at, beta, release),
        partial(gains, at.clients, at.experts, at.horizon, beta),
        at.horizon,
        [Metric("regret", regret, record=("decisions",))],
        seeds=range(repeats.seeds),
        data=range(DATA_SEED, DATA_SEED + repeats.streams),
        measure="local",
    )


def uniform(at: At, beta: float, count: int) -> dict[str, list[float]]:
    """The regret of playing all experts alike on the same samples, by stream."""
    problem = problems.LeastSquares(at.experts, domain=sets.Simplex())
    alike = np.full((1, at.horizon, at.experts), 1 / at.experts)
    drawn = [gains(at.clients, at.experts, at.horizon, beta, DATA_SEED + number) for number in range(count)]
    return {"regret": [at.horizon * metrics.pseudo_regret(alike, problem, stream) for stream in drawn]}


def numbers_sent(at: At, beta: float) -> int:
    """By all clients: Fed-DP-OPE-Stoch, local; nothing is run.

    >>> numbers_sent(At(16, 20, 2**14), 0.0)
    4480
    """
    made = STOCHASTIC["local, pure"].make(at) if beta == 0 else smooth(at, beta, "vertex")
    return at.clients * at.experts * made.schedule.exchanges(at.horizon)
