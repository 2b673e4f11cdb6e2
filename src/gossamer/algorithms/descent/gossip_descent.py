"""Descent on noised messages, played without noise: what `dsgd` and `pdop` share.

    x_i(t+1) = Proj_K( sum_j P_ij x~_j(t) - lambda_t clip( grad f_{t,i}(x_i(t)) ) )       played, not noised
    x~_i(t+1) = x_i(t+1) + noise of scale rho_{t+1}                                       sent

What one sample costs. Given all messages, x_i(t+1) depends on the past through the newest gradient only. So the sample
of step k moves x(k+1) by a = lambda_k C, and later points by

    a_t = lambda_t ( min( (L - l2) a_{t-1}, C ) + l2 a_{t-1} ),

because clipping keeps any two gradients within C of each other, and l2 is not clipped. It costs sum_t a_t / rho_t, and
the guarantee is that of the sample that costs most. No sum over samples: the unit is one of them.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer.algorithms.authoring import raw_decisions, require_averaging, require_one_bound
from gossamer.algorithms.descent.pd_ogd import PublishedOGD
from gossamer.checks import check_count, check_positive
from gossamer.core import Algorithm, Public
from gossamer.mechanisms.independent import Views
from gossamer.privacy import Clip, Sensitivity, Unit
from gossamer.problems import Problem
from gossamer.topology import Topology

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Descent(PublishedOGD):
    """Sends x with noise, and plays it without."""

    released = frozenset({"x"})  # played as it is, which is why the guarantee is against those who see no decision


def worst_sample(step: Public, unit: Public, smoothness: float, rounds: int, l2: float = 0.0) -> float:
    """The largest cost of any sample, for C = 1 and noise of `unit`: see the top of this file.

    >>> from gossamer.algorithms.authoring import Growth
    >>> from gossamer.core import Rate
    >>> round(worst_sample(Rate(1.0, 1.0), Growth(0.0), 0.0, 10), 3), worst_sample(Rate(1.0), Growth(0.0), 1.0, 2)
    (1.0, 1.707...)
    >>> round(worst_sample(Rate(1.0), Growth(0.0), math.inf, 2), 3)  # every message moves
    1.707
    """
    exchanges = np.arange(1, rounds + 1)
    steps, units = step(exchanges), unit(exchanges)
    if math.isinf(smoothness):  # every gradient may differ by C, so the first sample costs most
        return _costs(steps, units, smoothness, l2, samples=1)[0]
    bends = np.flatnonzero(smoothness * steps > 1)
    early = int(bends[-1]) + 1 if len(bends) else 0
    grown = _costs(steps, units, smoothness, l2, samples=early)
    return max([*grown, _unclipped(steps[early:], units[early:], smoothness)])


def _costs(steps: Doubles, units: Doubles, smoothness: float, l2: float, samples: int) -> list[float]:
    """What the first samples cost, whose trace may grow until the clip stops it."""
    moved, cost = np.zeros(samples), np.zeros(samples)
    for now, (size, scale) in enumerate(zip(steps.tolist(), units.tolist(), strict=True)):
        bent = np.minimum((smoothness - l2) * moved, 1.0) if math.isfinite(smoothness) else 1.0
        moved = np.where(np.arange(samples) < now, size * (bent + l2 * moved), 0.0)
        moved[now : now + 1] = size
        cost += moved / scale
    return [float(one) for one in cost]


def _unclipped(steps: Doubles, units: Doubles, smoothness: float) -> float:
    """The largest cost of samples whose trace only shrinks: backwards, from what a distance of 1 costs later on."""
    ahead, most = 0.0, 0.0
    for size, scale in zip(steps[::-1].tolist(), units[::-1].tolist(), strict=True):
        here = 1 / scale + ahead
        most = max(most, size * here)
        ahead = size * smoothness * here
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
            release, bounded, proof=f"docs/algorithms/{name}.md", claims="points are as if computed in exact arithmetic"
        ),
        public={"step": step, "unit": unit},
        releases=(release,),
        parameters={"step": str(step), "clip": bounded, "noise": f"laplace, {scale:.4g} times {unit}"},
    )
