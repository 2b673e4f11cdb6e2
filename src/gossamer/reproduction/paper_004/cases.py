"""What is compared in paper 004: its two algorithms, pure and approximate, central and local, and references."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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

Make = Callable[[int, int], Algorithm]
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

    make: Make
    supply: Supply
    predicted: float | None = None
    source: str = ""


def _ope(clients: int, horizon: int, **options: Any) -> Algorithm:
    """With published constants T_1 is below 1 and is made 1, which is reported: no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return fed_ope_stoch(EXPERTS, clients, horizon=horizon, **options)


def _central(budget: Budget, **options: Any) -> Case:
    return Case(partial(_ope, budget=budget, trust="central", **options), "pooled", 0.5, "Theorem 2.2, remark")


def _local(budget: Budget, **options: Any) -> Case:
    return Case(partial(_ope, budget=budget, trust="local", **options), "sums", 0.25, "Theorem 2.2")


def _with(make: Callable[..., Algorithm], experts: int, **options: Any) -> Make:
    """For that many experts."""
    return lambda clients, horizon: make(experts, clients, horizon=horizon, **options)


def _svt(budget: Budget, phase: int = PHASE, source: str = "Theorem 2.6", **options: Any) -> Case:
    make = _with(fed_svt, MANY, steps_per_exchange=phase, failure=FAILURE, budget=budget, **options)
    return Case(make, "pooled", 1.0, source)


def _references(experts: int, phase: int) -> Mapping[str, Case]:
    """Not private, an exchange every `phase` steps."""
    kinds = {"hedge": hedge, "follow the leader": follow_the_leader}
    return {name: Case(_with(make, experts, steps_per_exchange=phase), "pooled") for name, make in kinds.items()}


STOCHASTIC: Mapping[str, Case] = {
    "central, pure (permute-and-flip)": _central(PURE),
    "central, approximate (exponential)": _central(APPROXIMATE),
    "local, pure (Laplace)": _local(PURE),
    "local, approximate (Gaussian)": _local(APPROXIMATE),
}
"""Fed-DP-OPE-Stoch on linear losses."""
PUBLISHED: Mapping[str, Case] = {
    "central, published": replace(_central(PURE, calibration="published"), supply="samples"),
    "local, published": replace(_local(PURE, calibration="published"), supply="samples"),
}
"""With the paper's batches and noise: what that costs, its guarantee says."""
REFERENCES = _references(EXPERTS, 8)

SPARSE: Mapping[str, Case] = {
    "pure, published": _svt(PURE, calibration="published"),
    "pure, remainder": _svt(PURE, calibration="remainder"),
    "pure, halves": _svt(PURE, calibration="halves"),
    "pure, tight": _svt(PURE),
    "pure, tight, permute-and-flip": _svt(PURE, draws="permute-and-flip"),
    "approximate, published": _svt(APPROXIMATE, calibration="published"),
    "approximate, remainder": _svt(APPROXIMATE, calibration="remainder"),
    "approximate, tight": _svt(APPROXIMATE),
}
"""Fed-SVT with a trusted server."""
LOCAL_SPARSE: Mapping[str, Case] = {
    "local, pure": Case(_svt(PURE, trust="local").make, "sums"),
    "local, approximate": Case(_svt(APPROXIMATE, trust="local").make, "sums"),
}
"""Where nobody trusts the server; the paper has none."""
SPARSE_REFERENCES = _references(MANY, PHASE)

HIDDEN: Mapping[str, Case] = {
    "pure, published": _svt(PURE, 1, "Theorem 2.7", calibration="published"),
    "pure, tight": _svt(PURE, 1, "Theorem 2.7"),
    "approximate, tight": _svt(APPROXIMATE, 1, "Theorem 2.7"),
}
"""Fed-SVT with N = 1 on one expert without losses among others that always lose."""

GENERAL: Mapping[str, Case] = {
    "hedge (not private)": Case(_with(hedge, EXPERTS, steps_per_exchange=1), "samples", 0.0, "Theorem 2.4"),
    "shrinking dartboard": Case(_with(shrinking_dartboard, EXPERTS, budget=APPROXIMATE), "samples", 0.0, "Theorem 2.4"),
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
        deal = partial(streams.from_arrays, learners=self.gains.shape[1], seed=0, shuffle=False)
        rows = self.gains.reshape(-1, EXPERTS)  # dealt step by step
        if self.beta == 0:
            return deal(1 - rows, np.zeros(len(rows)))
        c = math.sqrt(self.beta / 2)
        return deal(np.float32(c) * rows, np.full(len(rows), 1 / (2 * c), np.float32))

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
