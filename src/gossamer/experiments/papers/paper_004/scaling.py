"""How a regret scales with one size: cells along an axis, at the worst gap if asked for, a fit, a claim, a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gossamer.experiments import (
    Cell,
    Claim,
    Curve,
    Fit,
    Found,
    Panel,
    Part,
    Result,
    at_most_like,
    exponent,
    single,
)
from gossamer.experiments.papers.paper_004.cases import At, Case, Repeats, cell
from gossamer.privacy import Guarantee
from gossamer.reports import Table

NEAR = 0.1  # how far a fitted power may be above the paper's
SMALLEST = 0.02  # regret that is drawn
Field = Literal["clients", "experts", "horizon", "epsilon", "phase", "optimal"]
SHOWN: Mapping[str, str] = {
    "clients": "m",
    "experts": "d",
    "horizon": "T",
    "epsilon": "epsilon",
    "phase": "N",
    "optimal": "L*",
}


def size_of(word: str, value: float) -> float:
    """What a power is a power of: 1/epsilon, ln d, ln T, or the value itself.

    >>> size_of("1/epsilon", 0.25), size_of("m", 16)
    (4.0, 16)
    """
    return 1 / value if word == "1/epsilon" else math.log(value) if word.startswith("ln") else value


@dataclass(frozen=True)
class Power:
    """Regret grows at most like size^power, says a source."""

    power: float
    source: str


@dataclass(frozen=True)
class Scaling:
    """Cases along one axis.

    Attributes:
        name: of its table as a file.
        title: above it.
        law: of the losses.
        cases: by title.
        base: all that is fixed.
        field: what is swept.
        values: its values.
        powers: what the paper says, by case; cases without have none.
        repeats: streams and seeds.
        of: what a power is of: "1/epsilon", "ln d" or "ln T"; by default the field itself.
        gaps: the gap with the largest expected regret is looked for among these.
        floor: of regrets that are fitted: what is below is not about this size.
        also: other cases at a few of the values.
    """

    name: str
    title: str
    law: str
    cases: Mapping[str, Case]
    base: At
    field: Field
    values: Sequence[float]
    powers: Mapping[str, Sequence[Power]]
    repeats: Repeats
    of: str = ""
    gaps: Sequence[float] = ()
    floor: float = 0.0
    also: Mapping[str, tuple[Case, Sequence[float], Repeats]] | None = None

    @property
    def power_of(self) -> str:
        """What a power is of."""
        return self.of or SHOWN[self.field]

    @property
    def word(self) -> str:
        """The metric."""
        return "expected regret" if self.gaps else "regret"

    def at(self, value: float, gap: float | None = None) -> At:
        """A place on the axis."""
        return self.base.but(**{self.field: value}, gap=self.base.gap if gap is None else gap)

    def cells(self) -> Mapping[Any, Cell]:
        """All of them, by name of the scaling, case, value and gap."""
        every = {title: (case, self.values, self.repeats) for title, case in self.cases.items()} | dict(self.also or {})
        return {
            (self.name, title, value, gap): cell(
                f"{self.title}: {title}, {SHOWN[self.field]} = {value:g}" + (f", gap {gap:g}" if self.gaps else ""),
                case,
                self.law,
                self.at(value, gap),
                repeats,
            )
            for title, (case, values, repeats) in every.items()
            for value in values
            for gap in (self.gaps or (self.base.gap,))
        }

    def result(self, found: Found, title: str, value: float) -> tuple[Result, float] | None:
        """What was found there, at the worst gap, and which that is."""
        kept = {key[3]: each for key, each in found.items() if key[:3] == (self.name, title, value)}
        if not kept:
            return None
        gap = max(kept, key=lambda gap: kept[gap].estimate(self.word).mean)
        return kept[gap], gap

    def results(self, found: Found, title: str) -> dict[float, Result]:
        """Along the axis."""
        every = {value: self.result(found, title, value) for value in self.values}
        return {value: one[0] for value, one in every.items() if one is not None}

    def fit(self, found: Found, title: str) -> Fit | None:
        """The power of the size, where the regret is above the floor."""
        kept = {
            size_of(self.power_of, value): [float(each.mean()) for each in result.repeated(self.word)]
            for value, result in self.results(found, title).items()
        }
        sizes = sorted(kept)
        return exponent(sizes, [kept[size] for size in sizes], self.floor) if len(sizes) > 1 else None

    def claims(self, found: Found) -> list[Claim]:
        """One for each case of which the paper says something."""
        return [
            single(
                f"{self.title}: {title}: regret {_verb(one.power)} like {_power(self.power_of, one.power)}",
                one.source,
                at_most_like(self.fit(found, title), one.power + NEAR),
            )
            for title, powers in self.powers.items()
            for one in powers
        ]

    def part(self, found: Found) -> Part:
        """The picture and the table."""
        titles = [*self.cases, *(self.also or {})]
        rows = []
        for title in titles:
            fit, results = self.fit(found, title), self.results(found, title)
            said = ", ".join(f"{one.power:g}" for one in self.powers.get(title, ())) or "-"
            numbers = [self._shown(found, title, value) for value in self.values]
            rows.append(
                (
                    title,
                    *numbers,
                    "-" if fit is None else str(fit),
                    said,
                    _promise(
                        {**self.cases, **{name: one[0] for name, one in (self.also or {}).items()}}[title]
                        .make(self.at(next(iter(results))))
                        .guarantee
                    ),
                )
            )
        heads = (f"{SHOWN[self.field]} = {value:,g}" for value in self.values)
        table = Table(("case", *heads, f"power of {self.power_of}", "paper", "guarantee"), tuple(rows))
        curves = [
            _curve(title, self.results(found, title), self.word) for title in titles if title not in (self.also or {})
        ]
        panel = Panel(self.title, self.word, tuple(curves), log=True, x=SHOWN[self.field], log_x=True)
        return Part(self.name, f"{self.title} by {SHOWN[self.field]}", self._text(), (panel,), table)

    def _text(self) -> tuple[str, ...]:
        fixed = [f"{SHOWN[name]} = {getattr(self.base, name):,g}" for name in SHOWN if name != self.field]
        floor = f" Fitted where regret is above {self.floor:.3g}." if self.floor else ""
        worst = (
            f" At the worst of the gaps {', '.join(f'{gap:g}' for gap in self.gaps)}, in brackets." if self.gaps else ""
        )
        return (f"{', '.join(fixed)}; {self.repeats.streams} streams, {self.repeats.seeds} noise seeds.{floor}{worst}",)

    def _shown(self, found: Found, title: str, value: float) -> str:
        one = self.result(found, title, value)
        if one is None:
            return "-"
        estimate = one[0].estimate(self.word)
        margin = f"\u00a0±\u00a0{number(estimate.margin)}" if math.isfinite(estimate.margin) else ""
        return f"{number(estimate.mean)}{margin}" + (f" ({one[1]:.2g})" if self.gaps else "")


def _promise(guarantee: Guarantee) -> str:
    """Of the algorithm on samples: nothing clips what is summed up already, so runs on sums promise less."""
    delta = f", delta {guarantee.delta:.3g}" if guarantee.delta else ""
    told = f"epsilon {guarantee.epsilon:.4g}{delta}, {guarantee.basis} ({guarantee.observer})"
    return "none" if guarantee.basis == "none" else told


def number(value: float) -> str:
    """With three digits.

    >>> number(1234.5), number(0.12345)
    ('1,234', '0.123')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _verb(power: float) -> str:
    return "falls at least" if power < 0 else "grows at most"


def _power(word: str, power: float) -> str:
    return word if power == 1 else f"({word})^{power:g}" if " " in word or "/" in word else f"{word}^{power:g}"


def _curve(name: str, results: Mapping[float, Result], word: str) -> Curve:
    """Means with their intervals; what is too small to be drawn is left out."""
    every = {value: result.estimate(word) for value, result in results.items()}
    kept = {value: each for value, each in every.items() if each.mean > SMALLEST and value > 0}
    means = np.array([each.mean for each in kept.values()])
    margins = np.array([each.margin if math.isfinite(each.margin) else 0.0 for each in kept.values()])
    low = np.maximum(means - margins, SMALLEST)
    return Curve(name, list(kept), means.tolist(), low.tolist(), (means + margins).tolist())
