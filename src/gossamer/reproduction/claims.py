"""What a paper says about its experiments, what we measured, and whether it holds, by stated rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from gossamer.errors import ConfigurationError
from gossamer.reports import Table

Verdict = Literal["holds", "does not hold", "not resolved", "not run"]

CONFIDENCE = 0.95
RULES = (
    "A number is a mean over noise seeds (of a time: over repetitions) with its 95 % interval by Student's t. A is "
    "below B where the 95 % interval of the difference, paired by seed, is all below 0; where it is all above 0 the "
    "claim does not hold; otherwise, and where there is one run only, it is not resolved. An order holds where every "
    "neighbouring pair does, and does "
    "not hold where one pair does not. Intervals are not corrected for the number of claims, and a difference may be "
    "resolved and still be too small to matter."
)
ONE_STREAM = "Intervals are about the noise: the data are one stream."


@dataclass(frozen=True)
class Estimate:
    """A mean over repetitions: the same seeds in the same order everywhere, so that differences are paired.

    Equal seeds give equal noise to algorithms that draw it alike, which cancels in a difference.

    >>> loss = Estimate((3.0, 3.2, 3.1))
    >>> print(loss)
    3.100 ± 0.248
    >>> (loss - Estimate((2.0, 2.2, 2.0))).difference
    '+1 ± 0.1'
    >>> print(Estimate((3.0,)))
    3.000 (one run)
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigurationError("values", self.values, "at least one repetition", "two have an interval")

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """From repetitions."""
        return cls(tuple(values))

    def __sub__(self, other: Estimate) -> Estimate:
        """The difference, repetition by repetition."""
        return Estimate(tuple(mine - theirs for mine, theirs in zip(self.values, other.values, strict=True)))

    def __neg__(self) -> Estimate:
        return Estimate(tuple(-value for value in self.values))

    @property
    def mean(self) -> float:
        """Over the repetitions."""
        return float(np.mean(self.values))

    @property
    def margin(self) -> float:
        """Half the width of the 95 % interval; of one repetition infinite, so that it decides nothing."""
        count = len(self.values)
        if count == 1:
            return math.inf
        error = float(np.std(self.values, ddof=1)) / math.sqrt(count)
        return float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)) * error

    @property
    def difference(self) -> str:
        """As text, with the sign, and as many digits as it is known to."""
        return f"{self.mean:+.2g}" + (f" ± {self.margin:.1g}" if len(self.values) > 1 else "")

    def __str__(self) -> str:
        digits = 3 if abs(self.mean) < 100 else 1
        return f"{self.mean:.{digits}f} " + (f"± {self.margin:.{digits}f}" if len(self.values) > 1 else "(one run)")


class Finding(NamedTuple):
    """What was measured for a claim, in words, and the verdict."""

    measured: str
    verdict: Verdict


NOT_RUN = Finding("-", "not run")


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, with what we found in every column of the table.

    >>> Claim("A is below B", "Figure 1", {"published": NOT_RUN}).findings["published"].verdict
    'not run'
    """

    statement: str
    source: str
    findings: Mapping[str, Finding]


def below(low: Estimate, high: Estimate, names: tuple[str, str] = ("A", "B")) -> Finding:
    """Whether one number is below another.

    >>> below(Estimate.of([1.0, 1.1]), Estimate.of([2.0, 2.1]), ("ours", "theirs"))
    Finding(measured='ours 1.050 ± 0.635, theirs 2.050 ± 0.635 (-1 ± 0)', verdict='holds')
    """
    gap = low - high
    return Finding(f"{names[0]} {low}, {names[1]} {high} ({gap.difference})", _sign(gap))


def increasing(estimates: Mapping[str, Estimate]) -> Finding:
    """Whether numbers grow from each to the next.

    >>> increasing({"n=9": Estimate.of([1.0, 1.1]), "n=16": Estimate.of([1.0, 1.2])}).verdict
    'not resolved'
    """
    gaps = [low - high for low, high in pairwise(estimates.values())]
    measured = ", ".join(f"{name}: {value}" for name, value in estimates.items())
    measured += f" (from each to the next {', '.join((-gap).difference for gap in gaps)})"
    verdicts = [_sign(gap) for gap in gaps]
    if "does not hold" in verdicts:
        return Finding(measured, "does not hold")
    return Finding(measured, "holds" if set(verdicts) == {"holds"} else "not resolved")


def alike(estimates: Mapping[str, Estimate], share: float) -> Finding:
    """Whether no two numbers are farther apart than a share of their mean: the 95 % interval of every difference tells.

    >>> alike({"ring": Estimate.of([1.0, 1.001]), "complete": Estimate.of([1.002, 1.003])}, share=0.02).verdict
    'holds'
    """
    values = list(estimates.values())
    limit = share * sum(value.mean for value in values) / len(values)
    gaps = [one - other for k, one in enumerate(values) for other in values[:k]]
    measured = ", ".join(f"{name}: {value}" for name, value in estimates.items())
    measured += f" (largest difference {max(abs(gap.mean) for gap in gaps):.2g}, limit {limit:.2g})"
    if any(abs(gap.mean) - gap.margin > limit for gap in gaps):
        return Finding(measured, "does not hold")
    return Finding(measured, "holds" if all(abs(gap.mean) + gap.margin <= limit for gap in gaps) else "not resolved")


def about(estimate: Estimate, value: float, off: float) -> Finding:
    """Whether a number is what a paper says, give or take `off`: the 95 % interval tells.

    >>> about(Estimate.of([0.88, 0.89]), 0.9, 0.1)
    Finding(measured='0.885 ± 0.064', verdict='holds')
    """
    away = abs(estimate.mean - value)
    if away - estimate.margin > off:
        return Finding(str(estimate), "does not hold")
    return Finding(str(estimate), "holds" if away + estimate.margin <= off else "not resolved")


def reaches(values: Sequence[float], level: float) -> Finding:
    """Whether a number reaches a level: in every single run, or in none of them.

    >>> reaches([0.84, 0.81], 0.82)
    Finding(measured='0.840, 0.810 (at least 0.82)', verdict='not resolved')
    """
    measured = ", ".join(f"{value:.3f}" for value in values) + f" (at least {level:g})"
    if not any(value >= level for value in values):
        return Finding(measured, "does not hold")
    return Finding(measured, "holds" if all(value >= level for value in values) else "not resolved")


def _sign(difference: Estimate) -> Verdict:
    """Whether a difference is negative."""
    if difference.mean + difference.margin < 0:
        return "holds"
    return "does not hold" if difference.mean - difference.margin > 0 else "not resolved"


def verdicts_table(claims: Sequence[Claim]) -> Table:
    """One short line per claim, for a terminal: without the numbers.

    >>> verdicts_table([Claim("A is below B", "Figure 1", {"tight": NOT_RUN})]).rows
    (('Figure 1', 'A is below B', 'not run'),)
    """
    kinds = list(dict.fromkeys(kind for claim in claims for kind in claim.findings))
    rows = tuple(
        (claim.source, claim.statement, *(claim.findings.get(kind, NOT_RUN).verdict for kind in kinds))
        for claim in claims
    )
    return Table(("in the paper", "claim", *kinds), rows)


def claims_table(claims: Sequence[Claim]) -> Table:
    """One line per claim; two columns for every kind of finding.

    >>> claims_table([Claim("A is below B", "Figure 1", {"tight": NOT_RUN})]).columns
    ('claim', 'in the paper', 'tight', 'verdict (tight)')
    """
    kinds = list(dict.fromkeys(kind for claim in claims for kind in claim.findings))
    rows = tuple(
        (claim.statement, claim.source, *(cell for kind in kinds for cell in claim.findings.get(kind, NOT_RUN)))
        for claim in claims
    )
    return Table(
        ("claim", "in the paper", *(heading for kind in kinds for heading in (kind, f"verdict ({kind})"))), rows
    )
