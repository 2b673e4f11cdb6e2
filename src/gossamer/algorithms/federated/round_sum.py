"""How far one sample can move the sum of a round's gradients, where the local steps of the round are never shown.

A round starts at a public point x and takes tau local steps z_(k+1) = z_k - eta (g_k(z_k) + l2 z_k), with g_k the
clipped gradient of the k-th sample, of norm at most B. Its sum is (x - z_tau) / eta. Let the samples of neighbours
differ at one step, and s_k = |z_k - z'_k| / eta. Up to that step s = 0; there it grows to 2 B at most; and after it,
with c = max(1, |1 - eta l2|) and L the smoothness of a sample's loss, l2 included,

    scalar-link   s_(k+1) <= s_k                                          convex, L-smooth losses and eta <= 2 / L
    smooth        s_(k+1) <= c s_k + min( eta (L - l2) s_k, 2 B )         gradients that change L |z - z'| at most
    any           s_(k+1) <= c s_k + 2 B                                  clipped gradients, and nothing else known

*Scalar-link.* For a loss h(<a, z>), clipping scales the slope h' down to B / |a| and so keeps it monotone: the clipped
gradient is that of a convex loss with a Huberised link, no less smooth. Steps of at most 2 / L along gradients of
convex L-smooth functions do not move two points apart. Not in this class: several outputs (softmax), where a clipped
gradient is no gradient field, and steps do expand. *Smooth.* Clipping in the Euclidean norm projects on a ball, which
moves no two gradients apart: the clipped gradient changes by L |z - z'| at most too. L holds because features are
clipped.

*Float32.* The proof is about exact numbers. A computed gradient is off by at most E = B s (its norm, s = `norm_slack`),
+ B tau 2^-24 (the sum), + L (features + tau + 16) 2^-24 |z| (the score, z itself, and l2 z in the sum; of a gradient
that is only known to be clipped, l2 for L), so every step adds 2 E more. |z| is bounded by the decision set, and
whoever starts a round enforces it; where the set has no end, local steps start inside a ball: so large that scores of
50 are possible in it, or that all of this is 2^-11 of the sensitivity, whichever is larger. A gradient that
overflows, or is longer than 2^125 B, counts as zero. Whether one does can depend on z only where |score| is more than
2^-26 of a slope beyond 2^88 B / R: R^2 |z| is above 2^62 B then, and the last term of E covers it.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from gossamer.checks import check_positive
from gossamer.errors import ConfigurationError
from gossamer.privacy import Clip, Sensitivity
from gossamer.privacy.clip import norm_slack
from gossamer.problems import Problem

LossClass = Literal["scalar-link", "smooth", "any"]

_UNIT, _SHARE, _SCORE = 2.0**-24, 2.0**-11, 50.0


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
    ('scalar-link', 2.0, 273)
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
        return _bound(loss_class, problem, clip, step, local_steps, known or 0.0, enforced)
    classes = {one: _enforced_by(one, problem, clip, step) for one in get_args(LossClass)}
    bounds = [
        _bound(one, problem, clip, step, local_steps, known or 0.0, code) for one, code in classes.items() if code
    ]
    return min(bounds, key=lambda bound: bound.sensitivity.l2)


def _enforced_by(loss_class: LossClass, problem: Problem, clip: Clip, step: float) -> str:
    """The code that puts these losses into the class; empty where there is none."""
    smooth = problem.smoothness
    if loss_class == "any":
        return "gossamer.problems.Problem.clipped_data_gradient_sum"
    if smooth is None:
        return ""
    with_bound = "" if problem.feature_bound is None else ", with feature_bound"
    if loss_class == "smooth":
        return f"{type(problem).__name__}.smoothness{with_bound}" if clip.order == 2 else ""
    convex = problem.scalar_link and clip.blocks is None and problem.strong_convexity is not None
    return f"{type(problem).__name__}.scalar_link{with_bound}" if convex and step * smooth <= 2 else ""


def _bound(
    loss_class: LossClass, problem: Problem, clip: Clip, step: float, local_steps: int, smooth: float, enforced: str
) -> RoundSum:
    """The recursion with the float32 errors in it; `smooth` is L."""
    b, tau, l2 = clip.norm, local_steps, problem.l2
    kept = 1.0 if loss_class == "scalar-link" else max(1.0, abs(1 - step * l2))
    drift = {"scalar-link": 0.0, "smooth": step * max(0.0, smooth - l2)}.get(loss_class, math.inf)
    per_norm = (l2 if loss_class == "any" else smooth) * (math.prod(problem.feature_shape) + tau + 16) * _UNIT

    def moved(radius: float) -> float:
        longest = kept**tau * (radius + step * tau * b) if per_norm else 0.0
        off = b * (norm_slack(problem.dim, clip.order) + tau * _UNIT) + per_norm * longest
        s = 2 * b + 2 * off
        for _ in range(tau - 1):
            s = kept * s + min(drift * s, 2 * b) + 2 * off
        return s

    radius = problem.domain.radius if per_norm else math.inf
    if per_norm and not math.isfinite(radius):
        radius = max(_SCORE / (problem.feature_bound or 1.0), _SHARE * moved(0.0) / (moved(1.0) - moved(0.0)))
    most = moved(radius)
    return RoundSum(loss_class, Sensitivity(l1=most * math.sqrt(problem.dim), l2=most), radius, enforced)
