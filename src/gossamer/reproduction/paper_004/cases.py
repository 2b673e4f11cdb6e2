"""What is compared in paper 004: its two algorithms, pure and approximate, central and local, and references."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gossamer import problems, sets, streams
from gossamer.algorithms import fed_ope_stoch, fed_svt, follow_the_leader, hedge, shrinking_dartboard
from gossamer.core import Algorithm
from gossamer.privacy import Budget
from gossamer.streams import Stream

EPSILON, DELTA = 1.0, 1e-5
PURE, APPROXIMATE = Budget(EPSILON), Budget(EPSILON, DELTA)

GAP, EXPERTS = 0.1, 20
"""Of stochastic experts."""
MANY, PHASE, FAILURE = 100, 10, 0.05
"""Experts, N and rho of Fed-SVT."""

Supply = Literal["pooled", "sums", "samples"]
"""How a run gets its losses: summed over a block and all clients, over a block, or not at all."""


@dataclass(frozen=True)
class Case:
    """An algorithm for any number of clients.

    Attributes:
        make: it, from m and T.
        supply: how it gets its losses.
        predicted: the exponent of m by which the paper says that regret falls; None for none.
        source: where it says so.
    """

    make: Callable[[int, int], Algorithm]
    supply: Supply
    predicted: float | None = None
    source: str = ""


def _ope(clients: int, horizon: int, **options: Any) -> Algorithm:
    """With published constants T_1 is below 1 and is made 1, which is reported: no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return fed_ope_stoch(EXPERTS, clients, horizon=horizon, **options)


def _svt(clients: int, horizon: int, **options: Any) -> Algorithm:
    return fed_svt(MANY, clients, horizon=horizon, steps_per_exchange=PHASE, failure=FAILURE, **options)


def _central(budget: Budget, **options: Any) -> Callable[[int, int], Algorithm]:
    return partial(_ope, budget=budget, trust="central", **options)


def _local(budget: Budget, **options: Any) -> Callable[[int, int], Algorithm]:
    return partial(_ope, budget=budget, trust="local", **options)


def _hedge(clients: int, horizon: int, experts: int, steps: int) -> Algorithm:
    return hedge(experts, clients, horizon=horizon, steps_per_exchange=steps)


def _leader(clients: int, horizon: int, experts: int, steps: int) -> Algorithm:
    return follow_the_leader(experts, clients, horizon=horizon, steps_per_exchange=steps)


STOCHASTIC: Mapping[str, Case] = {
    "central, pure (permute-and-flip)": Case(_central(PURE), "pooled", 0.5, "Theorem 2.2, remark"),
    "central, approximate (exponential)": Case(_central(APPROXIMATE), "pooled", 0.5, "Theorem 2.2, remark"),
    "local, pure (Laplace)": Case(_local(PURE), "sums", 0.25, "Theorem 2.2"),
    "local, approximate (Gaussian)": Case(_local(APPROXIMATE), "sums", 0.25, "Theorem 2.2"),
}
"""Fed-DP-OPE-Stoch on linear losses."""
PUBLISHED: Mapping[str, Case] = {
    "central, published": Case(_central(PURE, calibration="published"), "samples", 0.5, "Theorem 2.2, remark"),
    "local, published": Case(_local(PURE, calibration="published"), "samples", 0.25, "Theorem 2.2"),
}
"""With the paper's batches and noise: what that costs, its guarantee says."""
REFERENCES: Mapping[str, Case] = {
    "hedge": Case(partial(_hedge, experts=EXPERTS, steps=8), "pooled"),
    "follow the leader": Case(partial(_leader, experts=EXPERTS, steps=8), "pooled"),
}
"""Not private, an exchange every 8 steps."""

SPARSE: Mapping[str, Case] = {
    "pure, published": Case(partial(_svt, budget=PURE, calibration="published"), "pooled", 1.0, "Theorem 2.6"),
    "pure, remainder": Case(partial(_svt, budget=PURE, calibration="remainder"), "pooled", 1.0, "Theorem 2.6"),
    "pure, halves": Case(partial(_svt, budget=PURE, calibration="halves"), "pooled", 1.0, "Theorem 2.6"),
    "pure, tight": Case(partial(_svt, budget=PURE), "pooled", 1.0, "Theorem 2.6"),
    "pure, tight, permute-and-flip": Case(
        partial(_svt, budget=PURE, draws="permute-and-flip"), "pooled", 1.0, "Theorem 2.6"
    ),
    "approximate, published": Case(
        partial(_svt, budget=APPROXIMATE, calibration="published"), "pooled", 1.0, "Theorem 2.6"
    ),
    "approximate, remainder": Case(
        partial(_svt, budget=APPROXIMATE, calibration="remainder"), "pooled", 1.0, "Theorem 2.6"
    ),
    "approximate, tight": Case(partial(_svt, budget=APPROXIMATE), "pooled", 1.0, "Theorem 2.6"),
}
"""Fed-SVT with a trusted server."""
LOCAL_SPARSE: Mapping[str, Case] = {
    "local, pure": Case(partial(_svt, budget=PURE, trust="local"), "sums"),
    "local, approximate": Case(partial(_svt, budget=APPROXIMATE, trust="local"), "sums"),
}
"""Where nobody trusts the server; the paper has none."""
SPARSE_REFERENCES: Mapping[str, Case] = {
    "hedge": Case(partial(_hedge, experts=MANY, steps=PHASE), "pooled"),
    "follow the leader": Case(partial(_leader, experts=MANY, steps=PHASE), "pooled"),
}
"""Not private."""


def _hidden(clients: int, horizon: int, budget: Budget, **options: Any) -> Algorithm:
    return fed_svt(MANY, clients, horizon=horizon, steps_per_exchange=1, failure=FAILURE, budget=budget, **options)


HIDDEN: Mapping[str, Case] = {
    "pure, published": Case(partial(_hidden, budget=PURE, calibration="published"), "pooled", 1.0, "Theorem 2.7"),
    "pure, tight": Case(partial(_hidden, budget=PURE), "pooled", 1.0, "Theorem 2.7"),
    "approximate, tight": Case(partial(_hidden, budget=APPROXIMATE), "pooled", 1.0, "Theorem 2.7"),
}
"""Fed-SVT with N = 1 on one expert without losses among others that always lose."""


def _dartboard(clients: int, horizon: int) -> Algorithm:
    return shrinking_dartboard(EXPERTS, clients, horizon=horizon, budget=APPROXIMATE)


GENERAL: Mapping[str, Case] = {
    "hedge (not private)": Case(partial(_hedge, experts=EXPERTS, steps=1), "samples", 0.0, "Theorem 2.4"),
    "shrinking dartboard": Case(_dartboard, "samples", 0.0, "Theorem 2.4"),
}
"""Against any oblivious adversary."""

ADVERSARIES: Mapping[str, Callable[[int, int], Stream]] = {
    "fair coins": lambda clients, seed: streams.hard_experts(clients, EXPERTS, seed=seed),
    "drifting": lambda clients, seed: streams.drifting_experts(clients, EXPERTS, period=100, seed=seed),
}
"""General oblivious ones, the same losses for all clients."""


def stochastic(clients: int, seed: int, gap: float = GAP) -> streams.Experts:
    """Bernoulli losses of mean 1/2, of one expert `gap` less.

    >>> stochastic(2, 0).learners
    2
    """
    return streams.stochastic_experts(clients, EXPERTS, gap=gap, seed=seed)


def realizable(clients: int, seed: int) -> streams.Experts:
    """Bernoulli losses of mean 1/2, one expert without any.

    >>> realizable(2, 0).features
    (100,)
    """
    return streams.realizable_experts(clients, MANY, seed=seed)


def hidden(clients: int, seed: int) -> streams.Experts:
    """One expert without losses, all others with loss 1.

    >>> float(hidden(1, 0).read(0, 1).x.sum())
    99.0
    """
    return streams.hidden_expert(clients, MANY, seed=seed)


@dataclass(frozen=True, eq=False)
class Gains:
    """Losses on the simplex that are smooth and not linear: -<u, w> + beta <u, w>^2 / 2 with gains u of 0 or 1.

    With features c u, c = sqrt(beta / 2), and the label 1 / (2 c) that is least squares, less a constant. A gradient's
    coordinates lie in [-1, 0] for beta up to 1, and change by beta |w - w'|_1 at most. Gains are 1 - the losses of
    stochastic experts; with beta 0 those are played.

    Attributes:
        gains: axes (step, client, expert).
        beta: smoothness.

    >>> gains = Gains.of(2, 8, 0.5, seed=0)
    >>> gains.gains.shape, float(gains.losses(np.eye(20)[:1]).min()) >= -1
    ((8, 2, 20), True)
    """

    gains: NDArray[np.float32]
    beta: float

    @classmethod
    def of(cls, clients: int, steps: int, beta: float, seed: int) -> Gains:
        """Drawn like the losses of stochastic experts."""
        return cls(1 - stochastic(clients, seed).read(0, steps).x, beta)

    def algorithm(self, release: str) -> Algorithm:
        """Fed-DP-OPE-Stoch, local and pure; `release` is "vertex" or "leaf"."""
        steps, clients, _ = self.gains.shape
        options: dict[str, Any] = {"horizon": steps, "budget": PURE, "trust": "local", "release": release}
        if self.beta == 0:
            return fed_ope_stoch(EXPERTS, clients, **options)
        problem = problems.LeastSquares(EXPERTS, domain=sets.Simplex())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # T_1 below 1 is made 1
            return fed_ope_stoch(problem, clients, lipschitz=1.0, smoothness=self.beta, **options)

    def stream(self) -> Stream:
        """For `algorithm`."""
        clients = self.gains.shape[1]
        rows = self.gains.reshape(-1, EXPERTS)  # dealt step by step
        if self.beta == 0:
            return streams.from_arrays(1 - rows, np.zeros(len(rows)), clients, seed=0, shuffle=False)
        c = math.sqrt(self.beta / 2)
        labels = np.full(len(rows), 1 / (2 * c), np.float32)
        return streams.from_arrays(np.float32(c) * rows, labels, clients, seed=0, shuffle=False)

    def losses(self, mixtures: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of mixtures (step or 1, expert), mean over the clients, by step."""
        scores = np.einsum("tme,te->tm", self.gains.astype(np.float64), np.broadcast_to(mixtures, self._shape))
        return np.asarray((-scores + self.beta / 2 * scores**2).mean(axis=1))

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.gains), EXPERTS

    def least(self, steps: int = 2000) -> float:
        """The least mean loss of one mixture, by Frank-Wolfe with exact line search, until the gap is below 1e-7."""
        rows = self.gains.reshape(-1, EXPERTS).astype(np.float64)
        mean, second = rows.mean(axis=0), rows.T @ rows / len(rows)
        w = np.eye(EXPERTS)[np.argmax(mean)]
        for _ in range(steps):
            gradient = -mean + self.beta * second @ w
            towards = np.eye(EXPERTS)[np.argmin(gradient)] - w
            slope, bend = float(gradient @ towards), self.beta * float(towards @ second @ towards)
            if slope > -1e-7:
                break
            w = w + (min(1.0, -slope / bend) if bend > 0 else 1.0) * towards
        return float(-mean @ w + self.beta / 2 * w @ second @ w)
