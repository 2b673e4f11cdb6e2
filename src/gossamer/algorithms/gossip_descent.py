"""Descent on noised messages, played without noise: what `dsgd` and `pdop` share.

    x_i(t+1) = Proj_K( sum_j P_ij x~_j(t) - lambda_t clip( grad f_{t,i}(x_i(t)) ) )       played, not noised
    x~_i(t+1) = x_i(t+1) + noise of scale rho_{t+1}                                       sent

What one sample costs. Given all messages, x_i(t+1) depends on the past through the newest gradient only, so the sample
of step k moves x(k+1) by lambda_k C and later ones by lambda_t L times the distance before (eq. (17) of paper 003
without a hidden state). Let S_e be what a distance of 1 at message e costs from there on: S_e = 1 / rho_e + lambda_e L
S_{e+1}. Then the sample of step k costs lambda_k C S_{k+1}, and the worst sample what is largest. No sum over k: the
unit is one sample.
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
from gossamer.errors import PrivacyError
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


def worst_sample(step: Public, unit: Public, smoothness: float, rounds: int) -> float:
    """Max over k of lambda_k S_{k+1}, for C = 1 and noise of `unit`: see the top of this file.

    >>> from gossamer.core import Rate
    >>> round(worst_sample(Rate(1.0, 1.0), Growth(0.0), 0.0, 10), 3), worst_sample(Rate(1.0), Growth(0.0), 1.0, 2)
    (1.0, 1.707...)
    """
    exchanges = np.arange(1, rounds + 1)
    steps, units = step(exchanges), unit(exchanges)
    ahead, most = 0.0, 0.0
    for size, scale in zip(steps[::-1].tolist(), units[::-1].tolist(), strict=True):
        here = 1 / scale + ahead
        most = max(most, size * here)
        ahead = size * smoothness * here  # what a distance of 1 one message earlier costs from this one on
    return most


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
    if problem.l2 and problem.smoothness is None:
        raise PrivacyError.of("l2", problem.l2, "0 where the problem has no feature_bound")
    smooth = math.inf if problem.smoothness is None else problem.smoothness
    if math.isinf(smooth):
        hint = "decisions carry a sample on without bound: give the problem a feature_bound"
        raise PrivacyError.of("smoothness", None, "a smooth loss", hint)
    moved = worst_sample(step, unit, smooth, rounds) * bounded.sensitivity(Unit.SAMPLE, problem.dim).l2
    mechanism = Views((problem.dim,), horizon=rounds, law="laplace", name="gradient")
    stacked = Sensitivity(l1=math.sqrt(problem.dim) * moved, l2=moved)
    release = mechanism.at_scale(stacked, gradient=check_positive("scale", scale))
    return Algorithm(
        name=name,
        problem=problem,
        topology=topology,
        learner=Descent(problem, bounded, mechanism),
        guarantee=raw_decisions(release, bounded, proof=f"docs/algorithms/{name}.md"),
        public={"step": step, "unit": unit},
        releases=(release,),
        parameters={"step": str(step), "clip": bounded, "noise": f"laplace, {scale:.4g} times {unit}"},
    )
