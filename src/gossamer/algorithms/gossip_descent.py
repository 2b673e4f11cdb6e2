"""Descent on noised messages, played without noise: what `dsgd` and `pdop` share.

    x_i(t+1) = Proj_K( sum_j P_ij x~_j(t) - lambda_t clip( grad f_{t,i}(x_i(t)) ) )       played, not noised
    x~_i(t+1) = x_i(t+1) + noise of scale rho_{t+1}                                       sent

What one sample costs. Given all messages, x_i(t+1) depends on the past through the newest gradient only. So the sample
of step k moves x(k+1) by a = lambda_k C, and later points by

    a_t = lambda_t ( min( (L - l2) a_{t-1}, C ) + l2 a_{t-1} ),

because clipping keeps any two gradients within C of each other, and l2 is not clipped. It costs sum_t a_t / rho_t, and
the guarantee is that of the sample that costs most. No sum over samples: the unit is one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer.algorithms.fading import Views
from gossamer.algorithms.pd_ogd import PublishedOGD
from gossamer.algorithms.promises import raw_decisions, require_one_bound
from gossamer.algorithms.steps import require_averaging
from gossamer.checks import check_count, check_positive
from gossamer.core import Algorithm, Public
from gossamer.privacy import Clip, Sensitivity, Unit
from gossamer.problems import Problem
from gossamer.topology import Topology


@dataclass(frozen=True)
class Descent(PublishedOGD):
    """Sends x with noise, and plays it without."""

    released = frozenset({"x"})  # played as it is, which is why the guarantee is against those who see no decision


@dataclass(frozen=True)
class Geometric:
    """scale * ratio^t at exchange t = 1, 2, ...

    >>> Geometric(2.0, 0.5)(np.array([1, 2]))
    array([1. , 0.5])
    """

    scale: float
    ratio: float

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """The value at each exchange."""
        return np.asarray(self.scale * self.ratio ** t.astype(np.float64))

    def __str__(self) -> str:
        return f"{self.scale:.4g} * {self.ratio:g}^t at exchange t"


@dataclass(frozen=True)
class Growth:
    """(t + 1)^power at exchange t = 1, 2, ...

    >>> Growth(0.5)(np.array([3, 8]))
    array([2., 3.])
    """

    power: float

    def __call__(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """The value at each exchange."""
        return np.asarray((t + 1).astype(np.float64) ** self.power)

    def __str__(self) -> str:
        return f"(t + 1)^{self.power:g} at exchange t"


def worst_sample(step: Public, unit: Public, smoothness: float, rounds: int, l2: float = 0.0) -> float:
    """The largest cost of any sample, for C = 1 and noise of `unit`: see the top of this file.

    >>> from gossamer.core import Rate
    >>> round(worst_sample(Rate(1.0, 1.0), Growth(0.0), 0.0, 10), 3), worst_sample(Rate(1.0), Growth(0.0), 1.0, 2)
    (1.0, 1.707...)
    >>> round(worst_sample(Rate(1.0), Growth(0.0), math.inf, 2), 3)  # every message moves
    1.707
    """
    exchanges = np.arange(1, rounds + 1)
    steps, units = step(exchanges), unit(exchanges)
    moved, cost = np.zeros(rounds), np.zeros(rounds)  # of the sample of every step so far
    for now in range(rounds):
        before = moved[:now]
        bent = np.minimum((smoothness - l2) * before, 1.0) if math.isfinite(smoothness) else np.ones(now)
        moved[:now], moved[now] = steps[now] * (bent + l2 * before), steps[now]
        cost[: now + 1] += moved[: now + 1] / units[now]
    return float(cost.max())


def gossip_descent(
    name: str,
    problem: Problem,
    topology: Topology,
    *,
    clip: float | Clip,
    horizon: int,
    step: Public,
    unit: Public,
    scale: float,
) -> Algorithm:
    """The algorithm, with Laplace noise of scale `scale` times `unit`, and what that really costs."""
    require_averaging(topology)
    bounded, rounds = Clip.of(clip), check_count("horizon", horizon)
    require_one_bound(bounded)
    known = problem.smoothness
    smooth = math.inf if known is None else known
    moved = worst_sample(step, unit, smooth, rounds, problem.l2) * bounded.sensitivity(Unit.SAMPLE, problem.dim).l2
    mechanism = Views((problem.dim,), horizon=rounds, law="laplace", name="gradient")
    stacked = Sensitivity(l1=math.sqrt(problem.dim) * moved, l2=moved)
    release = mechanism.at_scale(stacked, gradient=check_positive("scale", scale))
    return Algorithm(
        name=name,
        problem=problem,
        topology=topology,
        learner=Descent(problem, bounded, mechanism),
        guarantee=raw_decisions(
            release,
            bounded,
            proof=f"docs/algorithms/{name}.md",
            claims="points are as if computed in exact arithmetic",
        ),
        public={"step": step, "unit": unit},
        releases=(release,),
        parameters={"step": str(step), "clip": bounded, "noise": f"laplace, {scale:.4g} times {unit}"},
    )
