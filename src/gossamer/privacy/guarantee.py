"""The promise that an algorithm makes about what it releases, as one frozen value."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Literal, get_args

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.privacy.budget import Budget
from gossamer.privacy.loss import Loss

Basis = Literal["proven", "published", "heuristic", "none"]
"""Why a guarantee is believed: a proof whose every assumption code enforces; a paper's noise as printed; a proof with
an assumption that nothing enforces; nothing."""

Observer = Literal["decisions", "wiretap", "peers", "broadcasts"]
OBSERVERS: dict[Observer, str] = {
    "decisions": "the public, who sees every decision but no message",
    "wiretap": "an outsider who reads every message but sees no decision",
    "peers": "all other participants together, who see every message and every decision",
    "broadcasts": "whoever sees all that the trusted server sends out",
}


class Unit(StrEnum):
    """What may change between neighbouring inputs."""

    SAMPLE = "one sample of one learner"
    BATCH = "one common batch"
    BATCH_SAMPLE = "one sample of a common batch"
    SAMPLE_OF_EACH = "one sample of every learner"


@dataclass(frozen=True)
class Assumption:
    """Something the proof rests on, and the code that makes it true; empty where nothing does.

    >>> Assumption("gradients are clipped", "Problem.clipped_gradient_sum").enforced
    True
    """

    claim: str
    enforced_by: str = ""

    @property
    def enforced(self) -> bool:
        """Whether code makes it true."""
        return bool(self.enforced_by)


@dataclass(frozen=True)
class Guarantee:
    """What an observer can learn at most, and why we believe it.

    Attributes:
        basis: "proven", "published", "heuristic" or "none".
        reason: why there is none, or what a guarantee that is not proven really gives.
        losses: the privacy loss over the whole horizon: one for all learners, or one for each.
        deltas: the delta at which each loss is stated.
        unit: what changes between neighbours.
        observer: whom it is against.
        horizon: the steps it covers; None: it never ends.
        occurrences: how often one record occurs in the stream at most; None where that is not known.
        sampler_delta: the error of the noise sampler, added to every delta.
        assumptions: what the proof rests on, each with the code that enforces it.
        proof: where to read it.
    """

    basis: Basis
    reason: str = ""
    losses: tuple[Loss, ...] = ()
    deltas: tuple[float, ...] = ()
    unit: Unit = Unit.SAMPLE
    observer: Observer = "peers"
    horizon: int | None = None
    occurrences: int | None = None
    sampler_delta: float = 0.0
    assumptions: tuple[Assumption, ...] = ()
    proof: str = ""

    def __post_init__(self) -> None:
        if self.basis not in get_args(Basis):
            raise ConfigurationError("basis", self.basis, ", ".join(map(repr, get_args(Basis))))
        if self.observer not in OBSERVERS:
            raise ConfigurationError("observer", self.observer, ", ".join(map(repr, OBSERVERS)))
        if (self.basis == "none") == bool(self.losses) or len(self.losses) != len(self.deltas):
            raise ConfigurationError("losses", self.losses, "a loss with its delta, exactly where there is a guarantee")
        loose = [assumption.claim for assumption in self.assumptions if not assumption.enforced]
        if self.basis == "proven" and loose:
            raise PrivacyError.of(
                "basis", self.basis, "'heuristic' where nothing enforces an assumption", f"not enforced: {loose[0]}"
            )

    @property
    def epsilons(self) -> tuple[float, ...]:
        """Epsilon of every learner (or the one for all), each at its delta."""
        return tuple(loss.epsilon(delta) for loss, delta in zip(self.losses, self.deltas, strict=True))

    @property
    def epsilon(self) -> float:
        """The largest epsilon of any learner; infinite without a guarantee."""
        return max(self.epsilons, default=math.inf)

    @property
    def delta(self) -> float:
        """The largest delta of any learner, with the sampler's error; 1 without a guarantee."""
        return max(self.deltas, default=1.0) + (self.sampler_delta if self.deltas else 0.0)

    def covers(self, budget: Budget) -> bool:
        """Whether every learner's loss stays within this budget.

        >>> from gossamer.privacy import Budget, Pure
        >>> promise = Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,))
        >>> promise.covers(Budget(1.0)), promise.covers(Budget(0.5))
        (True, False)
        """
        left = budget.delta - self.sampler_delta
        return bool(self.losses) and left >= 0 and all(loss.epsilon(left) <= budget.epsilon for loss in self.losses)

    def for_stream(self, occurrences: int | None) -> Guarantee:
        """The same for a stream in which one record occurs so often at most."""
        if occurrences is not None:
            check_count("occurrences", occurrences)
        return replace(self, occurrences=occurrences)

    def per_record(self) -> Guarantee | None:
        """The guarantee of a whole record, all its occurrences together; None where nobody knows how many there are.

        By group privacy, which holds wherever the occurrences lie.

        >>> from gossamer.privacy import Pure
        >>> Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,), occurrences=10).per_record().epsilon
        10.0
        """
        if self.occurrences is None:
            return None
        losses = tuple(loss.group(self.occurrences) for loss in self.losses)
        return replace(self, losses=losses, occurrences=1)

    def with_sampler_error(self, delta: float) -> Guarantee:
        """The same with the error of a noise sampler carried as a further delta."""
        return replace(self, sampler_delta=self.sampler_delta + delta)

    def sentence(self) -> str:
        """The whole guarantee as one readable sentence.

        >>> no_guarantee("decisions are functions of raw gradients").sentence()
        'No privacy guarantee: decisions are functions of raw gradients.'
        >>> from gossamer.privacy import Pure
        >>> print(Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,), horizon=1000).sentence())
        Proven: over 1,000 steps, all other participants together, who see every message and every decision, learn about
        one sample of one learner at most epsilon 1.
        """
        if self.basis == "none":
            return f"No privacy guarantee: {self.reason.rstrip('.')}."
        span = "over an endless horizon" if self.horizon is None else f"over {self.horizon:,} steps"
        learn = "learn" if self.observer == "peers" else "learns"
        cost = _cost(self.epsilons, self.deltas, self.sampler_delta)
        parts = [
            f"{self.basis.capitalize()}: {span}, {OBSERVERS[self.observer]}, {learn} about {self.unit} at most {cost}"
        ]
        record = self.per_record()
        if record is not None and self.occurrences != 1:
            cost = _cost(record.epsilons, record.deltas, record.sampler_delta)
            parts.append(f"per record, which occurs up to {self.occurrences:,} times, {cost}")
        if self.reason:
            parts.append(self.reason.rstrip("."))
        return "; ".join(parts) + "."

    def to_json(self) -> str:
        """As JSON text; `from_json` reads it back."""
        facts = asdict(self) | {"losses": [loss.to_json() for loss in self.losses]}
        return json.dumps(facts)

    @classmethod
    def from_json(cls, text: str) -> Guarantee:
        """The guarantee that `to_json` wrote.

        >>> promise = no_guarantee("messages are raw")
        >>> Guarantee.from_json(promise.to_json()) == promise
        True
        """
        facts: dict[str, Any] = json.loads(text)
        return cls(
            **facts
            | {
                "losses": tuple(Loss.from_json(loss) for loss in facts["losses"]),
                "deltas": tuple(facts["deltas"]),
                "unit": Unit(facts["unit"]),
                "assumptions": tuple(Assumption(**one) for one in facts["assumptions"]),
            }
        )


def no_guarantee(reason: str) -> Guarantee:
    """The guarantee of an algorithm that protects nothing, with the reason.

    >>> no_guarantee("messages are raw").basis
    'none'
    """
    return Guarantee(basis="none", reason=reason)


def _cost(epsilons: Sequence[float], deltas: Sequence[float], sampler: float) -> str:
    """Epsilon and delta in words: one number, or the range over learners."""
    epsilon, delta = _range(epsilons), _range([one + sampler for one in deltas])
    each = " (by learner)" if len(set(epsilons)) > 1 or len(set(deltas)) > 1 else ""
    return f"epsilon {epsilon}" + ("" if delta == "0" else f", delta {delta}") + each


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.4g}", f"{max(values):.4g}"
    return low if low == high else f"{low} to {high}"
