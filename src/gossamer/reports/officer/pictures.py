"""Pictures of what epsilon and delta mean: SVG in the colours of the page, without scripts, nothing from outside."""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.privacy.guarantee import rounded_up
from gossamer.privacy.meaning import in_hundred, most_belief, most_hits
from gossamer.reports.blocks import inline
from gossamer.reports.officer.facts import Point

PRIORS = (0.01, 0.1, 0.5)
_WIDE, _HIGH, _LEFT, _RIGHT, _BELOW = 260, 190, 44, 14, 34
_STEPS = 60

STYLE = """
.drawn { margin: 0; min-width: 0; max-width: 24rem; }
.drawn svg { width: 100%; height: auto; display: block; font: 11px system-ui, -apple-system, "Segoe UI", sans-serif; }
.drawn figcaption { text-align: left; min-height: 2.6em; }
.drawn text { fill: var(--ink); } .drawn .quiet { fill: var(--quiet); }
.drawn .axis { stroke: var(--quiet); fill: none; } .drawn .grid { stroke: var(--grid); fill: none; }
.drawn .line { stroke: var(--line); stroke-width: 2.2; fill: none; } .drawn .dot { fill: var(--line); }
.drawn .chance { stroke: var(--quiet); stroke-dasharray: 4 4; fill: none; }
.drawn .before { fill: var(--quiet); } .drawn .after { fill: var(--line); } .drawn .ruled { fill: var(--box); }
:root { --line: #2f6fc0; }
@media screen and (prefers-color-scheme: dark) { :root { --line: #7fb2f0; } }
.drawn svg * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
"""


def belief(epsilon: float, delta: float) -> str:
    """What somebody believes before and after, as pairs of bars.

    >>> "from 50 to at most 75" in belief(1.0986122886681098, 0.0)
    True
    """
    rows, said, top = [], [], 16
    for prior in PRIORS:
        after = most_belief(epsilon, delta, prior)
        said.append(f"from {in_hundred(prior)} to at most {in_hundred(after)}")
        rows += [
            f'<text x="0" y="{top - 4}" class="quiet">before: {in_hundred(prior)} in 100</text>',
            f'<rect x="0" y="{top}" width="{200 * prior:.1f}" height="9" class="before"/>',
            f'<rect x="0" y="{top + 12}" width="{200 * after:.1f}" height="9" class="after"/>',
            f'<text x="{200 * after + 5:.1f}" y="{top + 20}">{in_hundred(after)}</text>',
        ]
        top += 56
    return _figure(
        "How sure somebody can become that a record was there (grey: before, blue: after, at most)",
        f"Belief in 100: {'; '.join(said)}.",
        "".join(rows),
    )


def trade_off(epsilon: float, delta: float) -> str:
    """The most hits for every rate of false alarms.

    >>> trade_off(1.0, 0.0).count("<polyline")
    2
    """
    curve = [(x / _STEPS, most_hits(epsilon, delta, x / _STEPS)) for x in range(_STEPS + 1)]
    area = [(0.0, 1.0), *curve, (1.0, 1.0)]
    drawn = [
        f'<polygon points="{_points(area)}" class="ruled"/>',
        _axes("false alarms in 100", "hits in 100", [(0.0, "0"), (0.5, "50"), (1.0, "100")]),
        f'<polyline points="{_points([(0, 0), (1, 1)])}" class="chance"/>',
        f'<polyline points="{_points(curve)}" class="line"/>',
        f'<text x="{_LEFT + 8}" y="22" class="quiet">impossible</text>',
        f'<text x="{_x(0.52):.0f}" y="{_y(0.3):.0f}" class="quiet">dashed: coin tosses</text>',
    ]
    middle = most_hits(epsilon, delta, 0.05)
    said = f"At 5 false alarms in 100, at most {in_hundred(middle)} hits in 100."
    return _figure("Every attack lies below the line: hits, and false alarms", said, "".join(drawn))


def growth(points: Sequence[Point], last: int, at_most: float) -> str:
    """Epsilon spent, by exchange.

    >>> "epsilon 0.5" in growth([Point(0, 0.5)], 9, 1.0)
    True
    """
    top = max(at_most, points[-1].epsilon)
    corners: list[tuple[float, float]] = [(0.0, 0.0)]
    for point in points:
        x = point.exchange / max(1, last)
        corners += [(x, corners[-1][1]), (x, point.epsilon / top)]
    corners.append((1.0, corners[-1][1]))
    drawn = [
        _axes(f"exchanges, 1 to {last + 1:,}", "epsilon", [(0.0, "0"), (1.0, rounded_up(top))], below=[]),
        f'<polyline points="{_points([(0, at_most / top), (1, at_most / top)])}" class="chance"/>',
        f'<polyline points="{_points(corners)}" class="line"/>',
    ]
    said = f"Now: epsilon {rounded_up(points[-1].epsilon)}."
    return _figure("What was spent, exchange by exchange (dashed: what was promised at most)", said, "".join(drawn))


def _axes(x: str, y: str, marks: Sequence[tuple[float, str]], below: Sequence[tuple[float, str]] | None = None) -> str:
    """A frame with marks on the left, and on the bottom where `below` does not say otherwise."""
    lines = [f'<path d="M{_LEFT} 8V{_y(0)}H{_WIDE - _RIGHT}" class="axis"/>']
    for place, text in marks:
        lines.append(f'<text x="{_LEFT - 5}" y="{_y(place) + 4:.0f}" text-anchor="end">{inline(text)}</text>')
        lines.append(f'<path d="M{_LEFT} {_y(place):.0f}H{_WIDE - _RIGHT}" class="grid"/>')
    for place, text in marks if below is None else below:
        lines.append(f'<text x="{_x(place):.0f}" y="{_y(0) + 14:.0f}" text-anchor="middle">{inline(text)}</text>')
    lines.append(f'<text x="{_x(0.5):.0f}" y="{_HIGH - 4}" text-anchor="middle" class="quiet">{inline(x)}</text>')
    turned = f'transform="rotate(-90 9 {_y(0.5):.0f})"'
    lines.append(f'<text x="9" y="{_y(0.5):.0f}" text-anchor="middle" class="quiet" {turned}>{inline(y)}</text>')
    return "".join(lines)


def _x(share: float) -> float:
    return _LEFT + share * (_WIDE - _RIGHT - _LEFT)


def _y(share: float) -> float:
    return _HIGH - _BELOW - share * (_HIGH - _BELOW - 8)


def _points(corners: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_x(x):.1f},{_y(y):.1f}" for x, y in corners)


def _figure(title: str, said: str, drawn: str) -> str:
    """A picture with its title above it, and in words for those who do not see it."""
    picture = f'<svg viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="{inline(said)}">{drawn}</svg>'
    return f'<figure class="drawn"><figcaption>{inline(title)}. {inline(said)}</figcaption>{picture}</figure>'
