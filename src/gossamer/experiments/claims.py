"""What a paper says about its experiments, what we measured, and whether it holds, by stated rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from scipy import stats

from gossamer.errors import ConfigurationError
from gossamer.reports import Table

Verdict = Literal["holds", "does not hold", "not resolved", "not run"]
Column = TypeVar("Column")

CONFIDENCE = 0.95
FOUND = "found"
"""The column of claims that have one finding only."""
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
    >>> (loss - Estimate((2.0, 2.2, 2.0))).difference, (0.5 * loss).mean
    ('+1 ± 0.1', 1.55)
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

    def __rmul__(self, factor: float) -> Estimate:
        """Every repetition times a factor."""
        return Estimate(tuple(factor * value for value in self.values))

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

    @property
    def cell(self) -> str:
        """As text in a narrow column of a table: it does not wrap, and of one repetition it is the number alone."""
        return f"{self.values[0]:.3f}" if len(self.values) == 1 else str(self).replace(" ± ", "\u00a0±\u00a0")

    def __str__(self) -> str:
        digits = 3 if abs(self.mean) < 100 else 1
        return f"{self.mean:.{digits}f} " + (f"± {self.margin:.{digits}f}" if len(self.values) > 1 else "(one run)")


class Finding(NamedTuple):
    """What was measured for a claim, in words, and the verdict."""

    measured: str
    verdict: Verdict


NOT_RUN = Finding("-", "not run")


def judged(measured: str, *, holds: bool, fails: bool) -> Finding:
    """It does not hold, it holds, or, where neither is certain, it is not resolved.

    >>> judged("3 of 4 runs", holds=False, fails=False).verdict
    'not resolved'
    """
    return Finding(measured, "does not hold" if fails else "holds" if holds else "not resolved")


def decided(true: bool, measured: str) -> Finding:
    """What needs no interval.

    >>> decided(3 < 4, "3 of 4").verdict
    'holds'
    """
    return judged(measured, holds=true, fails=not true)


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, with what we found in every column of the table.

    >>> Claim("A is below B", "Figure 1", {"published": NOT_RUN}).findings["published"].verdict
    'not run'
    """

    statement: str
    source: str
    findings: Mapping[str, Finding]


def across(columns: Mapping[str, Column], statement: str, source: str, find: Callable[[Column], Finding], /) -> Claim:
    """A claim, looked at in every column of the table, by its name.

    >>> across({"l2 0.1": 0.1, "l2 1": 1.0}, "A is below B", "Figure 1", lambda l2: Finding(f"{l2}", "holds")).findings
    {'l2 0.1': Finding(measured='0.1', verdict='holds'), 'l2 1': Finding(measured='1.0', verdict='holds')}
    """
    return Claim(statement, source, {name: find(column) for name, column in columns.items()})


def single(statement: str, source: str, finding: Finding) -> Claim:
    """A claim with one finding only.

    >>> single("A is below B", "Figure 1", NOT_RUN).findings
    {'found': Finding(measured='-', verdict='not run')}
    """
    return Claim(statement, source, {FOUND: finding})


def one_column(claims: Sequence[Claim]) -> list[Claim]:
    """One column for a terminal: a claim for every column that it has.

    >>> [each.statement for each in one_column([Claim("A is below B", "Figure 1", {"l2 1": NOT_RUN})])]
    ['A is below B [l2 1]']
    """
    return [
        Claim(claim.statement if kind == FOUND else f"{claim.statement} [{kind}]", claim.source, {"verdict": finding})
        for claim in claims
        for kind, finding in claim.findings.items()
    ]


def below(low: Estimate, high: Estimate, names: tuple[str, str] = ("A", "B")) -> Finding:
    """Whether one number is below another.

    >>> below(Estimate.of([1.0, 1.1]), Estimate.of([2.0, 2.1]), ("ours", "theirs"))
    Finding(measured='ours 1.050 ± 0.635, theirs 2.050 ± 0.635 (-1 ± 0)', verdict='holds')
    """
    gap = low - high
    return Finding(f"{names[0]} {low}, {names[1]} {high} ({gap.difference})", sign(gap))


def increasing(estimates: Mapping[str, Estimate]) -> Finding:
    """Whether numbers grow from each to the next.

    >>> increasing({"n=9": Estimate.of([1.0, 1.1]), "n=16": Estimate.of([1.0, 1.2])}).verdict
    'not resolved'
    """
    gaps = [low - high for low, high in pairwise(estimates.values())]
    steps = ", ".join((-1 * gap).difference for gap in gaps)
    return _all(f"{_listed(estimates)} (from each to the next {steps})", map(sign, gaps))


def every(findings: Mapping[str, Finding]) -> Finding:
    """All of them together: it holds where each does, and does not hold where one does not.

    >>> every({"a": Finding("1", "holds"), "b": Finding("2", "not resolved")})
    Finding(measured='a: 1; b: 2', verdict='not resolved')
    """
    measured = "; ".join(f"{name}: {found.measured}" for name, found in findings.items())
    return _all(measured, (found.verdict for found in findings.values()))


def _all(measured: str, verdicts: Iterable[Verdict]) -> Finding:
    kinds = set(verdicts)
    return judged(measured, holds=kinds == {"holds"}, fails="does not hold" in kinds)


def _listed(estimates: Mapping[str, Estimate]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in estimates.items())


def alike(estimates: Mapping[str, Estimate], share: float) -> Finding:
    """Whether no two numbers are farther apart than a share of their mean: the 95 % interval of every difference tells.

    >>> alike({"ring": Estimate.of([1.0, 1.001]), "complete": Estimate.of([1.002, 1.003])}, share=0.02).verdict
    'holds'
    """
    values = list(estimates.values())
    limit = share * sum(value.mean for value in values) / len(values)
    gaps = [one - other for k, one in enumerate(values) for other in values[:k]]
    return judged(
        f"{_listed(estimates)} (largest difference {max(abs(gap.mean) for gap in gaps):.2g}, limit {limit:.2g})",
        holds=all(abs(gap.mean) + gap.margin <= limit for gap in gaps),
        fails=any(abs(gap.mean) - gap.margin > limit for gap in gaps),
    )


def about(estimate: Estimate, value: float, off: float) -> Finding:
    """Whether a number is what a paper says, give or take `off`: the 95 % interval tells.

    >>> about(Estimate.of([0.88, 0.89]), 0.9, 0.1)
    Finding(measured='0.885 ± 0.064', verdict='holds')
    """
    away, margin = abs(estimate.mean - value), estimate.margin
    return judged(str(estimate), holds=away + margin <= off, fails=away - margin > off)


def reaches(values: Sequence[float], level: float) -> Finding:
    """Whether a number reaches a level: in every single run, or in none of them.

    >>> reaches([0.84, 0.81], 0.82)
    Finding(measured='0.840, 0.810 (at least 0.82)', verdict='not resolved')
    """
    return _in_runs(values, f"at least {level:g}", [value >= level for value in values])


def at_most(values: Sequence[float], level: float) -> Finding:
    """Whether a number stays below a level: in every single run, or in none of them.

    >>> at_most([0.3, 0.5], 0.4)
    Finding(measured='0.300, 0.500 (at most 0.4)', verdict='not resolved')
    """
    return _in_runs(values, f"at most {level:g}", [value <= level for value in values])


def _in_runs(values: Sequence[float], rule: str, kept: Sequence[bool]) -> Finding:
    measured = ", ".join(f"{value:.3f}" for value in values)
    return judged(f"{measured} ({rule})", holds=all(kept), fails=not any(kept))


def sign(difference: Estimate) -> Verdict:
    """Whether a difference is negative.

    >>> sign(Estimate.of([-1.0, -1.1])), sign(Estimate.of([-1.0, 1.0]))
    ('holds', 'not resolved')
    """
    low, high = difference.mean - difference.margin, difference.mean + difference.margin
    return judged("", holds=high < 0, fails=low > 0).verdict


def verdicts_table(claims: Sequence[Claim]) -> Table:
    """One short line per claim, for a terminal: without the numbers.

    >>> verdicts_table([Claim("A is below B", "Figure 1", {"tight": NOT_RUN})]).rows
    (('Figure 1', 'A is below B', 'not run'),)
    """
    kinds = _kinds(claims)
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
    kinds = _kinds(claims)
    rows = tuple(
        (claim.statement, claim.source, *(cell for kind in kinds for cell in claim.findings.get(kind, NOT_RUN)))
        for claim in claims
    )
    return Table(
        ("claim", "in the paper", *(heading for kind in kinds for heading in (kind, f"verdict ({kind})"))), rows
    )


def _kinds(claims: Sequence[Claim]) -> list[str]:
    """The columns of all claims, each once."""
    return list(dict.fromkeys(kind for claim in claims for kind in claim.findings))
