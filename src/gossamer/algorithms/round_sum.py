"""How far one sample can move the sum of a round's gradients, where the local steps of the round are never shown.

A round starts at a public point x and takes tau local steps z_(k+1) = z_k - eta (g_k(z_k) + l2 z_k), with g_k the
clipped gradient of the k-th sample, of norm at most B. Its sum is (x - z_tau) / eta. Let the samples of neighbours
differ at one step, and s_k = |z_k - z'_k| / eta. Up to that step s = 0; there it grows to 2 B at most; and after it

    scalar-link   s_(k+1) <= s_k                                      convex, L-smooth losses and eta <= 2 / L
    smooth        s_(k+1) <= s_k + min( eta L s_k, 2 B + eta l2 s_k )       gradients that change L |z - z'| at most
    any           s_(k+1) <= s_k + 2 B + eta l2 s_k                         clipped gradients, and nothing else known

*Scalar-link.* For a loss h(<a, z>), clipping scales the slope h' down to B / |a| and so keeps it monotone: the clipped
gradient is that of a convex loss with a Huberised link, no less smooth. Steps of at most 2 / L along gradients of
convex L-smooth functions do not move two points apart. Not in this class: several outputs (softmax), where a clipped
gradient is no gradient field, and steps do expand. *Smooth.* Clipping in the Euclidean norm projects on a ball, which
moves no two gradients apart: the clipped gradient changes by L |z - z'| at most too. L holds because features are
clipped.

*Float32.* The proof is about exact numbers. A computed gradient is off by at most E = B 2^-16 (its norm), + B tau 2^-24
(the sum), + L (features + tau + 16) 2^-24 |z| (the score, z itself, and l2 z in the sum), so 2 tau E is added, times
what later steps make of it. |z| is bounded by the decision set, and whoever starts a round enforces it; where the set
has no end, local steps start inside a ball so large that all of this is 2^-11 of the sensitivity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from gossamer.checks import check_positive
from gossamer.errors import ConfigurationError
from gossamer.privacy import Clip, Sensitivity
from gossamer.problems import Problem

LossClass = Literal["scalar-link", "smooth", "any"]

_NORM, _UNIT, _SHARE = 2.0**-16, 2.0**-24, 2.0**-11


@dataclass(frozen=True)
class RoundSum:
    """A bound on how far one sample moves the sum of a round's gradients.

    Attributes:
        loss_class: why it holds.
        sensitivity: the bound.
        radius: local steps start no farther from zero than this.
        enforced_by: the code that makes the class true; empty where somebody says so and nothing makes it true.
    """

    loss_class: LossClass
    sensitivity: Sensitivity
    radius: float
    enforced_by: str


def round_sum(
    problem: Problem,
    clip: Clip,
    step: float,
    local_steps: int,
    loss_class: LossClass | None = None,
    smoothness: float | None = None,
) -> RoundSum:
    """The bound of a class of losses; by default the best of those that the problem belongs to.

    Args:
        problem: the losses.
        clip: of every sample's gradient.
        step: the largest local step size.
        local_steps: how many a round has.
        loss_class: "scalar-link", "smooth" or "any". A class that the code does not establish is taken at its word.
        smoothness: L, where the problem does not know it; taken at its word too.

    >>> from gossamer.problems import Logistic, Softmax
    >>> clip = Clip(l2=1.0)
    >>> found = round_sum(Logistic(10, feature_bound=1.0), clip, 0.5, 4)
    >>> found.loss_class, round(found.sensitivity.l2, 2), round(found.radius)
    ('scalar-link', 2.0, 271)
    >>> found = round_sum(Softmax(10, 3, feature_bound=1.0), clip, 0.1, 4)
    >>> found.loss_class, round(found.sensitivity.l2, 2)
    ('smooth', 2.32)
    >>> found = round_sum(Logistic(10), clip, 0.5, 4)
    >>> found.loss_class, round(found.sensitivity.l2, 2)
    ('any', 8.0)
    """
    if loss_class is not None and loss_class not in get_args(LossClass):
        raise ConfigurationError("loss_class", loss_class, " or ".join(map(repr, get_args(LossClass))) + ", or None")
    if smoothness is not None:
        check_positive("smoothness", smoothness, "the Lipschitz constant of every sample's gradient, l2 included")
        if loss_class not in ("scalar-link", "smooth"):
            raise ConfigurationError("smoothness", smoothness, "None unless loss_class='smooth' or 'scalar-link'")
    known = problem.smoothness if smoothness is None else smoothness
    if loss_class is not None:
        if loss_class != "any" and known is None:
            allowed = "'any' where the smoothness is not known"
            raise ConfigurationError("loss_class", loss_class, allowed, "or give smoothness")
        enforced = "" if smoothness is not None else _enforced_by(loss_class, problem, clip, step)
        return _usable(_bound(loss_class, problem, clip, step, local_steps, known or 0.0, enforced), problem)
    classes = {one: _enforced_by(one, problem, clip, step) for one in get_args(LossClass)}
    bounds = [
        _bound(one, problem, clip, step, local_steps, known or 0.0, code) for one, code in classes.items() if code
    ]
    return _usable(min(bounds, key=lambda bound: bound.sensitivity.l2), problem)


def _usable(bound: RoundSum, problem: Problem) -> RoundSum:
    """Refuse a ball in which models would be too small to be of use: scores up to 32 should be possible."""
    if math.isfinite(problem.domain.radius) or bound.radius * (problem.feature_bound or 1.0) >= 32:
        return bound
    hint = (
        f"float32 errors of a round grow with features and models: without a set, models would have to stay within "
        f"{max(0.0, bound.radius):.3g} of zero. Try domain=sets.L2Ball(20.0), or noise_rows='steps'"
    )
    raise ConfigurationError("domain", problem.domain, "a bounded set with noise_rows='rounds' here", hint)


def _enforced_by(loss_class: LossClass, problem: Problem, clip: Clip, step: float) -> str:
    """The code that puts these losses into the class; empty where there is none."""
    smooth = problem.smoothness
    if loss_class == "any":
        return "gossamer.problems.Problem.clipped_data_gradient_sum"
    if smooth is None:
        return ""
    if loss_class == "smooth":
        return f"{type(problem).__name__}.smoothness, with feature_bound" if clip.order == 2 else ""
    convex = problem.scalar_link and clip.blocks is None and problem.strong_convexity is not None
    return f"{type(problem).__name__}.scalar_link, with feature_bound" if convex and step * smooth <= 2 else ""


def _bound(
    loss_class: LossClass, problem: Problem, clip: Clip, step: float, local_steps: int, smooth: float, enforced: str
) -> RoundSum:
    """The recursion, and the float32 errors beside it; `smooth` is L."""
    b, tau = clip.norm, local_steps
    moved = 2 * b
    for _ in range(tau - 1):
        grown = {"scalar-link": 0.0, "smooth": step * smooth * moved}.get(loss_class, math.inf)
        moved += min(grown, 2 * b + step * problem.l2 * moved)
    smooth = problem.l2 if loss_class == "any" else smooth
    amplified = 1.0 if loss_class == "scalar-link" else (1 + step * smooth) ** (tau - 1)
    off, radius = 2 * tau * amplified * b * (_NORM + tau * _UNIT), math.inf
    grown_norm = (1 + step * problem.l2) ** tau
    per_norm = 2 * tau * amplified * smooth * grown_norm * (math.prod(problem.feature_shape) + tau + 16) * _UNIT
    if per_norm:
        walked = step * tau * b  # how far gradients move a round
        radius = problem.domain.radius
        radius = radius if math.isfinite(radius) else _SHARE * moved / per_norm - walked
        off += per_norm * (radius + walked)
    l2 = moved + off
    return RoundSum(loss_class, Sensitivity(l1=l2 * math.sqrt(problem.dim), l2=l2), radius, enforced)
