"""The guarantees of learners that noise every gradient once, or send noised points and decide without noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import AdditiveLaw, Calibrated
from gossamer.privacy import Assumption, Clip, Guarantee, Unit
from gossamer.problems import Problem

Calibration = Literal["tight", "published"]


def noised_once(release: Calibrated[Any], clip: Clip, *, proof: str) -> Guarantee:
    """The guarantee of a learner whose messages and decisions are functions of gradients that were noised once.

    Args:
        release: what the gradients go through.
        clip: of every sample's gradient.
        proof: where to read it.

    >>> from gossamer.mechanisms import Independent
    >>> from gossamer.privacy import Budget, Sensitivity
    >>> release = Independent((1,)).calibrate(Sensitivity(2.0, 2.0), Budget(1.0))
    >>> noised_once(release, Clip(l2=1.0), proof="docs/algorithms/pd_ogd.md").basis
    'proven'
    """
    promise = raw_decisions(release, clip, proof=proof)
    return replace(
        promise,
        basis="proven",
        reason="",
        observer="peers",
        repeats="compose",  # each occurrence of a record is a gradient of its own
        assumptions=(
            *promise.assumptions,
            Assumption("a sample enters one gradient", "gossamer.core.Every(1): each exchange reads new samples"),
        ),
    )


def raw_decisions(release: Calibrated[Any], clip: Clip, *, proof: str, claims: str = "") -> Guarantee:
    """The guarantee of published noise on messages, where what is played is not noised; `claims`: what its paper says.

    >>> from gossamer.mechanisms import Independent
    >>> from gossamer.privacy import Budget, Sensitivity
    >>> release = Independent((1,), horizon=9).calibrate(Sensitivity(2.0, 2.0), Budget(1.0))
    >>> raw_decisions(release, Clip(l2=1.0), proof="docs/algorithms/pd_ogd.md").observer
    'wiretap'
    """
    clipped = "gossamer.problems.Problem.clipped_data_gradient_sum"
    raw = "decisions are functions of raw gradients: whoever sees one besides the messages learns everything"
    return Guarantee(
        basis="published",
        reason="; ".join(filter(None, (claims, raw))),
        losses=release.losses,
        deltas=release.deltas,
        unit=Unit.SAMPLE,
        observer="wiretap",
        horizon=release.mechanism.horizon,
        assumptions=(Assumption(f"every sample's gradient is clipped: {clip}", clipped),),
        proof=proof,
    )


def published_horizon(problem: Problem, horizon: int | None, noise: AdditiveLaw) -> int:
    """The horizon, where noise with a share of the budget for every message, and raw decisions, can be had.

    >>> from gossamer import problems
    >>> published_horizon(problems.Logistic(2), None, "laplace")
    Traceback (most recent call last):
        ...
    gossamer.errors.PrivacyError: horizon: got None; allowed: a number of steps. The published noise shares ...
    """
    if horizon is None:
        raise PrivacyError.of("horizon", None, "a number of steps", "the published noise shares a budget among them")
    if problem.l2:
        hint = "decisions are raw here, and l2 times a raw decision would move messages beyond the clip"
        raise PrivacyError.of("l2", problem.l2, "0 with calibration='published'", hint)
    if noise != "laplace":
        raise ConfigurationError("noise", noise, "'laplace' with calibration='published'", "the paper has no other")
    return horizon


def require_one_bound(clip: Clip) -> None:
    """Refuse clips that are no projection on one Euclidean ball: others may move gradients apart.

    >>> require_one_bound(Clip(l1=1.0))
    Traceback (most recent call last):
        ...
    gossamer.errors.ConfigurationError: clip: got Clip(l1=1.0); allowed: one bound of the Euclidean norm. How far ...
    """
    if clip.order == 1 or clip.blocks is not None:
        hint = "how far points that are not noised carry a sample is known for such a clip only"
        raise ConfigurationError("clip", clip, "one bound of the Euclidean norm", hint)
