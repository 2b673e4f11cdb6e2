"""Claims: when they hold, and what their intervals are; searches on grids; pages."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from gossamer.errors import ConfigurationError
from gossamer.experiments import (
    Claim,
    Curve,
    Estimate,
    Page,
    Panel,
    Part,
    about,
    alike,
    at_most_like,
    below,
    claims_table,
    climb,
    exponent,
    increasing,
    like,
    reaches,
)
from gossamer.experiments.claims import NOT_RUN
from gossamer.reports import Table


def near(mean: float, spread: float = 0.001) -> Estimate:
    """Three values around a mean, with noise of their own for every mean."""
    noise = np.random.default_rng(round(1000 * mean)).normal(size=3)
    return Estimate.of((mean + spread * noise).tolist())


# The rules


def test_differences_have_the_interval_of_a_paired_test() -> None:
    one, other = [3.1, 3.4, 3.3, 3.2], [2.0, 2.9, 2.2, 2.3]
    difference = Estimate.of(one) - Estimate.of(other)
    expected = stats.ttest_rel(one, other).confidence_interval(0.95)
    assert difference.mean - difference.margin == pytest.approx(expected.low)
    assert difference.mean + difference.margin == pytest.approx(expected.high)


def test_noise_that_two_runs_share_cancels() -> None:
    noise = np.array([0.0, 0.5, -0.5])
    assert below(Estimate.of((3.0 + noise).tolist()), Estimate.of((3.001 + noise).tolist())).verdict == "holds"


def test_one_repetition_decides_nothing() -> None:
    one, other = Estimate.of([3.0]), Estimate.of([1.0])
    assert below(other, one).verdict == below(one, other).verdict == alike({"a": one, "b": other}, 0.01).verdict
    assert below(other, one).verdict == "not resolved"
    with pytest.raises(ConfigurationError, match="at least one repetition"):
        Estimate.of([])


def test_equal_repetitions_still_compare() -> None:
    assert below(Estimate.of([1.0, 1.0]), Estimate.of([2.0, 2.0])).verdict == "holds"
    assert below(Estimate.of([2.0, 2.0]), Estimate.of([2.0, 2.0])).verdict == "not resolved"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(1.0, 2.0, "holds"), (2.0, 1.0, "does not hold"), (1.0, 1.001, "not resolved"), (1.001, 1.0, "not resolved")],
)
def test_below(low: float, high: float, verdict: str) -> None:
    assert below(near(low), near(high)).verdict == verdict


@pytest.mark.parametrize(
    ("means", "verdict"),
    [
        ((1.0, 2.0, 3.0), "holds"),
        ((1.0, 3.0, 2.0), "does not hold"),
        ((1.0, 1.0, 2.0), "not resolved"),
        ((1.0, 1.0, 0.5), "does not hold"),  # one pair that is the wrong way round decides
    ],
)
def test_increasing(means: tuple[float, ...], verdict: str) -> None:
    assert increasing({str(k): near(mean) for k, mean in enumerate(means)}).verdict == verdict


@pytest.mark.parametrize(
    ("means", "spread", "verdict"),
    [
        ((1.0, 1.002, 1.004), 0.0001, "holds"),
        ((1.0, 1.002, 1.1), 0.0001, "does not hold"),
        ((1.0, 1.002, 1.004), 0.02, "not resolved"),  # close, but nobody can tell
        ((1.0, 1.002, 1.05), 0.1, "not resolved"),
    ],
)
def test_alike(means: tuple[float, ...], spread: float, verdict: str) -> None:
    assert alike({str(k): near(mean, spread) for k, mean in enumerate(means)}, share=0.01).verdict == verdict


@pytest.mark.parametrize(
    ("mean", "spread", "verdict"),
    [(0.9, 0.001, "holds"), (0.8, 0.001, "does not hold"), (0.86, 0.05, "not resolved"), (0.84, 0.05, "not resolved")],
)
def test_about(mean: float, spread: float, verdict: str) -> None:
    assert about(near(mean, spread), 0.9, 0.05).verdict == verdict


@pytest.mark.parametrize(
    ("values", "verdict"),
    [([0.82, 0.9], "holds"), ([0.8, 0.9], "not resolved"), ([0.8, 0.81], "does not hold"), ([0.9], "holds")],
)
def test_reaches(values: list[float], verdict: str) -> None:
    assert reaches(values, 0.82).verdict == verdict


def test_claims_make_one_table() -> None:
    finding = below(near(1.0), near(2.0), ("A", "B"))
    claims = [Claim("first", "figure 1", {"published": finding, "tight": NOT_RUN}), Claim("second", "figure 2", {})]
    table = claims_table(claims)
    assert table.columns == ("claim", "in the paper", "published", "verdict (published)", "tight", "verdict (tight)")
    assert table.rows[0] == ("first", "figure 1", finding.measured, "holds", "-", "not run")
    assert table.rows[1][2:] == ("-", "not run", "-", "not run")


# Fits and searches


def test_climbing_ends_where_no_neighbour_is_better_and_asks_once() -> None:
    asked: list[tuple[int, ...]] = []

    def loss(point: tuple[int, ...]) -> float:
        asked.append(point)
        return abs(point[0] - 1) + (point[1] - 9) ** 2 + point[0] * point[1] / 10

    best = climb(loss, (4, 12), (2, 3))
    around = [(best[0] + a, best[1] + b) for a, b in ((1, 0), (-1, 0), (0, 1), (0, -1))]
    inside = [point for point in around if 0 <= point[0] < 4 and 0 <= point[1] < 12]
    assert len(asked) == len(set(asked))
    assert all(loss(point) >= loss(best) for point in inside)


def test_a_start_outside_the_grid_is_drawn_in() -> None:
    assert climb(lambda point: float(point[0]), (3,), (7,)) == (0,)


@pytest.mark.parametrize(
    ("power", "verdict", "bound"),
    [(-0.5, "holds", "holds"), (-1.5, "does not hold", "does not hold"), (0.0, "does not hold", "holds")],
)
def test_fitted_exponents(power: float, verdict: str, bound: str) -> None:
    """Values like size^-0.5, with a little noise."""
    sizes, rng = [1, 4, 16, 64], np.random.default_rng(1)
    values = [[size**-0.5 * (1 + 0.02 * rng.normal()) for _ in range(8)] for size in sizes]
    fit = exponent(sizes, values)
    assert fit is not None
    assert fit.low <= fit.exponent <= fit.high
    assert fit.exponent == pytest.approx(-0.5, abs=0.03)
    assert like(fit, power).verdict == verdict
    assert at_most_like(fit, power + 0.1).verdict == bound
    assert exponent(sizes, values, floor=0.6) is None


def test_a_page_is_written_with_tables_and_numbers(tmp_path: Path) -> None:
    panel = Panel("a panel", "loss", (Curve("mine", [1, 2], [1, 2], [0, 1], [2, 3]),), level=1.5)
    table = Table(("claim", "verdict"), (("a < b", "holds"),))
    part = Part("claims", "Claims & more", ("text",), (panel,), table, ("a note",))
    page = Page("<title>", ("hello",), table, [part], {"cell": {"loss": 1.0}}, "gossamer reproduce 000").write(tmp_path)
    text = page.read_text()
    assert "a &lt; b" in text
    assert "Claims &amp; more" in text
    assert "https://" not in text.split("<script")[0]
    assert '<div class="scroll" tabindex="0"><table>' in text
    assert '<td class="good">holds</td>' in text
    assert "treat them like the data. Only you can read these files (mode 600)." in text
    assert text.count("<table>") == text.count('<figure class="panel">') == text.count('<p class="legend">') == 1
    assert '"title":{"text":"round"}' in text
    assert '"title":{"text":"loss"}' in text
    with (tmp_path / "tables" / "claims.csv").open() as file:
        assert list(csv.reader(file)) == [["claim", "verdict"], ["a < b", "holds"]]
    assert json.loads((tmp_path / "raw.json").read_text()) == {"cell": {"loss": 1.0}}
