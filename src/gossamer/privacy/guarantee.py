"""The promise that an algorithm makes about what it releases, as one frozen value."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import ROUND_CEILING, Context
from typing import Any, Literal, get_args

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.privacy import accounting
from gossamer.privacy.budget import Budget, as_float, budgets_of
from gossamer.privacy.loss import Loss, worst
from gossamer.privacy.marks import called_by_us
from gossamer.privacy.units import OBSERVERS, Observer, Unit, content_of

Basis = Literal["proven", "published", "heuristic", "none"]
"""Why a guarantee is believed: a proof whose every assumption code enforces; a paper's noise as printed; a proof with
an assumption that nothing enforces; nothing."""


@dataclass(frozen=True)
class Assumption:
    """Something the proof rests on, and the code that makes it true; empty where nothing does.

    >>> print(Assumption("gradients are clipped", "Problem.clipped_gradient_sum"))
    gradients are clipped (enforced by Problem.clipped_gradient_sum)
    """

    claim: str
    enforced_by: str = ""

    @property
    def enforced(self) -> bool:
        """Whether code makes it true."""
        return bool(self.enforced_by)

    def __str__(self) -> str:
        return f"{self.claim} ({f'enforced by {self.enforced_by}' if self.enforced else 'not enforced'})"


@dataclass(frozen=True)
class Guarantee:
    """What an observer can learn at most, and why we believe it.

    Attributes:
        basis: "proven", "published", "heuristic" or "none".
        reason: why there is none, or what a guarantee that is not proven really gives.
        losses: the privacy loss over the whole horizon, with exact noise: one for all learners, or one for each.
        deltas: the delta at which each loss is stated.
        unit: what changes between neighbours.
        public_arrivals: whether it is public that a unit comes, and when: then only its content changes.
        observer: whom it is against.
        horizon: the steps it covers; None: it never ends.
        occurrences: how many samples of the stream change at most where one record changes; None where that is not
            known, or may be all of them.
        promises: what `occurrences` rests on and nothing enforces; a claim per record rests on it too.
        public_labels: whether a claim per record holds only where the record keeps its label.
        per: whether one occurrence changes between neighbours, or a whole record: all its occurrences.
        repeats: "compose" where each occurrence of a record enters releases of its own, so that their losses compose;
            "group" where nothing says so: group privacy holds wherever the occurrences lie.
        sampler_error: how far the noise that the unit touches is from the exact law at most, in total variation.
        assumptions: what the proof rests on, each with the code that enforces it.
        proof: where to read it.
        checked: the digest of the programs whose flow of data was checked (`gossamer.core.flow`); empty: nothing was,
            and "proven" is a claim; "recorded": a file says that something was.
    """

    basis: Basis
    reason: str = ""
    losses: tuple[Loss, ...] = ()
    deltas: tuple[float, ...] = ()
    unit: Unit = Unit.SAMPLE
    public_arrivals: bool = False
    observer: Observer = "peers"
    horizon: int | None = None
    occurrences: int | None = None
    promises: tuple[Assumption, ...] = ()
    public_labels: bool = False
    per: Literal["occurrence", "record"] = "occurrence"
    repeats: Literal["group", "compose"] = "group"
    sampler_error: float = 0.0
    assumptions: tuple[Assumption, ...] = ()
    proof: str = ""
    checked: str = field(default="", init=False, compare=False)

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigurationError(name, getattr(self, name), ", ".join(map(repr, choices)))
        object.__setattr__(self, "unit", Unit(self.unit))
        if (self.basis == "none") == bool(self.losses) or len(self.losses) != len(self.deltas):
            raise ConfigurationError("losses", self.losses, "a loss with its delta, exactly where there is a guarantee")
        if not all(isinstance(loss, Loss) for loss in self.losses):
            raise ConfigurationError("losses", self.losses, "privacy losses", "try Pure(1.0)")
        for name in ("horizon", "occurrences"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_count(name, getattr(self, name)))
        object.__setattr__(self, "losses", tuple(self.losses))
        object.__setattr__(self, "deltas", tuple(map(_checked_delta, self.deltas)))
        object.__setattr__(self, "sampler_error", _checked_delta(self.sampler_error))
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
        return max((delta for _, delta in self._costs()), default=1.0)

    def _costs(self) -> list[tuple[float, float]]:
        """Epsilon and delta of every learner, with the sampler's error."""
        pairs = zip(self.epsilons, self.deltas, strict=True)
        return [(epsilon, min(1.0, delta + self.sampler_share(epsilon))) for epsilon, delta in pairs]

    def sampler_share(self, epsilon: float) -> float:
        """What inexact noise adds to delta where epsilon is stated: (1 + e^epsilon) times its distance.

        >>> no_guarantee("an example").with_sampler_error(1e-9).sampler_share(0.0)
        2e-09
        """
        return accounting.sampler_share(self.sampler_error, epsilon)

    def covers(self, budget: Budget | Sequence[Budget]) -> bool:
        """Whether every learner's loss stays within this budget, or within its own where there is one for each.

        >>> from gossamer.privacy import Budget, Pure
        >>> promise = Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,))
        >>> promise.covers(Budget(1.0)), promise.covers(Budget(0.5))
        (True, False)
        >>> inexact = promise.with_sampler_error(1e-9)
        >>> inexact.covers(Budget(1.0)), inexact.covers(Budget(1.0, 1e-8))
        (False, True)
        """
        if not self.losses:
            return False
        budgets = budgets_of(budget)
        if 1 in (len(self.losses), len(budgets)):
            return all(self._within(loss, one) for loss in self.losses for one in budgets)
        return all(map(self._within, self.losses, budgets_of(budgets, len(self.losses))))

    def _within(self, loss: Loss, budget: Budget) -> bool:
        left = budget.delta - self.sampler_share(budget.epsilon)
        return left >= 0 and loss.epsilon(left) <= budget.epsilon

    @property
    def protected(self) -> str:
        """What changes between neighbours, in words."""
        return content_of(str(self.unit)) if self.public_arrivals else str(self.unit)

    def with_public_arrivals(self) -> Guarantee:
        """The same where everybody knows when units come: only their content changes."""
        return self._but(public_arrivals=True)

    def _but(self, **changed: Any) -> Guarantee:
        """The same with other fields; what was checked stays checked."""
        made = replace(self, **changed)
        object.__setattr__(made, "checked", self.checked)
        return made

    def because(self, reason: str) -> Guarantee:
        """The same with one more thing to say about it.

        >>> no_guarantee("messages are raw").because("as if").reason
        'messages are raw; as if'
        """
        return self._but(reason="; ".join(filter(None, (self.reason, reason))))

    def after_check(self, seen: Sequence[Assumption], loose: Sequence[Assumption], digest: str) -> Guarantee:
        """The same after its programs were checked: heuristic where that leaves something that nothing enforces.

        >>> from gossamer.privacy import Pure
        >>> Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,)).after_check([], [], "3f2a")
        Traceback (most recent call last):
        gossamer.errors.PrivacyError: checked: got '3f2a'; allowed: what an algorithm found. Make one with it.
        """
        if not called_by_us():
            raise PrivacyError.of("checked", digest, "what an algorithm found", "make one with it")
        known = [one for one in self.assumptions if one not in (*seen, *loose)]
        made = self._but(basis="heuristic" if loose else self.basis, assumptions=(*known, *seen, *loose))
        object.__setattr__(made, "checked", digest)
        for one in loose:
            made = made.because(f"nothing makes it true that {one.claim}")
        return made

    def for_stream(
        self, occurrences: int | None, *, promises: Sequence[Assumption] = (), public_labels: bool = False
    ) -> Guarantee:
        """The same for a stream in which one record occurs so often at most; the arguments are attributes of `Stream`.

        >>> from gossamer.privacy import Pure
        >>> promise = Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,))
        >>> promise.for_stream(3, public_labels=True).sentence().partition("; ")[2]
        'per record, which occurs up to 3 times and whose label is public, epsilon 3.'
        >>> promise.for_stream(None).reason
        'nothing is claimed per record: one may change any number of samples'
        """
        known = self._but(occurrences=occurrences, promises=tuple(promises), public_labels=public_labels)
        if occurrences is None and self.losses:
            return known.because("nothing is claimed per record: one may change any number of samples")
        return known

    def per_record(self) -> Guarantee | None:
        """The guarantee of a whole record, all its occurrences together; None where nobody knows how many there are.

        From the largest loss of any learner, by group privacy, or by composition where the occurrences enter different
        releases. That also holds where they lie at several learners, against all who do not hold the record. As many
        times more draws may be inexact. Where it rests on a promise that nothing enforces, it is heuristic.

        >>> from gossamer.privacy import Pure
        >>> Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,), occurrences=10).per_record().epsilon
        10.0
        """
        times = self.occurrences
        if times is None:
            return None
        if not self.losses or self.per == "record":
            return self
        one = worst(self.losses)
        every = one.repeated(times) if self.repeats == "compose" else one.group(times)
        spare = max(0.0, *(delta - loss.least_delta for loss, delta in zip(self.losses, self.deltas, strict=True)))
        record = self._but(
            basis="heuristic" if self.basis == "proven" and self.promises else self.basis,
            losses=(every,),
            deltas=(min(1.0, every.least_delta + spare),),
            sampler_error=min(1.0, times * self.sampler_error),
            per="record",
            promises=(),
            assumptions=(*self.assumptions, *self.promises),
        )
        return record.because(self._ifs) if self.promises else record

    @property
    def _ifs(self) -> str:
        """The promises that a claim per record rests on, in words."""
        return f"if {' and '.join(promise.claim for promise in self.promises)}, which nothing checks"

    def with_sampler_error(self, distance: float) -> Guarantee:
        """The same with noise that is so far from the exact law, over all draws that one unit touches."""
        return self._but(sampler_error=self.sampler_error + distance)

    def sentence(self) -> str:
        """The whole guarantee as one readable sentence; numbers are rounded up.

        >>> no_guarantee("decisions are functions of raw gradients").sentence()
        'No privacy guarantee: decisions are functions of raw gradients.'
        >>> from gossamer.privacy import Pure
        >>> print(Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,), horizon=1000).sentence())
        Claimed, not checked: over 1,000 steps, all other participants together, who see every message and every
        decision, learn about one sample of one learner at most epsilon 1.
        """
        if self.basis == "none":
            return f"No privacy guarantee: {self.reason.rstrip('.')}."
        span = "an endless horizon" if self.horizon is None else f"{self.horizon:,} step{'s' * (self.horizon > 1)}"
        learn = "learn" if self.observer in ("outsiders", "peers") else "learns"
        what = self.protected
        if self.per == "record":
            what += f", all its occurrences (up to {self.occurrences:,}) together,"
            what += " its label being public," * self.public_labels
        who = f"{OBSERVERS[self.observer]}, {learn}"
        basis = self.basis if self.basis != "proven" else _SAID.get(self.checked, "proven")
        parts = [f"{basis.capitalize()}: over {span}, {who} about {what} at most {self._cost()}"]
        if self.per == "occurrence":
            parts += self._per_record()
        if self.reason:
            parts.append(self.reason.rstrip("."))
        return "; ".join(parts) + "."

    def _per_record(self) -> list[str]:
        """The claim per record in words, where it is not that of one occurrence."""
        record = self.per_record()
        if record is None or (self.occurrences == 1 and not self.promises and not self.public_labels):
            return []
        which = [f"which occurs up to {self.occurrences:,} times"] * (self.occurrences != 1)
        which += ["whose label is public"] * self.public_labels
        told = ["per record", *([" and ".join(which)] if which else []), record._cost()]
        return [", ".join(told + ([self._ifs] if self.promises else []))]

    def _cost(self) -> str:
        """Epsilon and delta in words: one number, or the range over learners."""
        epsilon, delta = (_range(numbers) for numbers in zip(*self._costs(), strict=True))
        each = " (by learner)" if " to " in epsilon + delta else ""
        return f"epsilon {epsilon}" + ("" if delta == "0" else f" and delta {delta}") + each

    def explain(self) -> str:
        """The sentence, what it rests on, the code that enforces each assumption, and where the proof is.

        >>> from gossamer.privacy import Pure
        >>> clip = Assumption("every gradient has norm at most 1", "Clip")
        >>> promise = Guarantee("proven", "", (Pure(1.0),), (0.0,), assumptions=(clip,), proof="docs/noise.md")
        >>> print(promise.explain())
        Claimed, not checked: over an endless horizon, ... at most epsilon 1.
          assumes: every gradient has norm at most 1 (enforced by Clip)
          proof: docs/noise.md
        """
        inexact = f"noise is within {rounded_up(self.sampler_error)} of its law in total variation (counted in delta)"
        assumed = [*map(str, self.assumptions), *([inexact] if self.sampler_error else [])]
        told = [f"  assumes, per record: {one}" for one in self.promises]
        proof = [f"  proof: {self.proof}"] if self.proof else []
        return "\n".join([self.sentence(), *(f"  assumes: {one}" for one in assumed), *told, *proof])

    def to_json(self) -> str:
        """As JSON text; `from_json` reads it back."""
        return json.dumps(asdict(self) | {"losses": [loss.to_json() for loss in self.losses]}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Guarantee:
        """The guarantee that `to_json` wrote.

        >>> promise = no_guarantee("messages are raw")
        >>> Guarantee.from_json(promise.to_json()) == promise
        True
        """
        facts: dict[str, Any] = json.loads(text)
        checked = facts.pop("checked", "") and RECORDED
        facts["losses"] = tuple(Loss.from_json(loss) for loss in facts["losses"])
        for name in ("promises", "assumptions"):
            facts[name] = tuple(Assumption(**one) for one in facts.get(name, ()))
        made = cls(**facts)
        object.__setattr__(made, "checked", checked)
        return made


def no_guarantee(reason: str) -> Guarantee:
    """The guarantee of an algorithm that protects nothing, with the reason.

    >>> no_guarantee("messages are raw").basis
    'none'
    """
    return Guarantee(basis="none", reason=reason)


RECORDED = "recorded"
_SAID = {"": "claimed, not checked", RECORDED: "recorded as proven"}
_CHOICES: dict[str, tuple[str, ...]] = {
    "basis": get_args(Basis),
    "observer": tuple(OBSERVERS),
    "unit": tuple(str(unit) for unit in Unit),
    "per": ("occurrence", "record"),
    "repeats": ("group", "compose"),
}


def _checked_delta(given: float) -> float:
    delta = as_float(given)
    if not 0 <= delta <= 1:
        raise PrivacyError.of("delta", given, "a number from 0 to 1")
    return delta


def _range(values: Sequence[float]) -> str:
    low, high = rounded_up(min(values)), rounded_up(max(values))
    return low if low == high else f"{low} to {high}"


def rounded_up(value: float) -> str:
    """Four digits, rounded up, but not for the last bits of a calibration.

    >>> rounded_up(1.00049), rounded_up(1 + 1e-12)
    ('1.001', '1')
    """
    if value in (0, math.inf):
        return "infinity" if value else "0"
    four = Context(prec=4, rounding=ROUND_CEILING).create_decimal_from_float(value * (1 - 1e-9))
    return f"{float(four):.4g}"
