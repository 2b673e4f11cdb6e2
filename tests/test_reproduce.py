"""Reproductions: verdicts by their rules, cells that are run once, and papers 000 to 002 on tiny instances."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner, Result

from gossamer import metrics, streams
from gossamer.cli import app
from gossamer.errors import ConfigurationError, DataError
from gossamer.privacy import Budget
from gossamer.reports import Table
from gossamer.reproduction import (
    Asked,
    Claim,
    Curve,
    Estimate,
    Finding,
    Page,
    Panel,
    Part,
    Store,
    about,
    alike,
    below,
    claims_table,
    climb,
    every,
    increasing,
    paper_002,
    reaches,
)
from gossamer.reproduction.claims import NOT_RUN
from gossamer.reproduction.paper_002 import cases as cases_002
from gossamer.reproduction.paper_002 import findings as findings_002
from gossamer.reproduction.paper_002.cases import Case as Case002
from gossamer.reproduction.paper_002.experiments import COMPARED, ClassLab, CompareLab, DualLab, PairLab, play
from gossamer.reproduction.paper_002.plan import Plan as Plan002
from gossamer.reproduction.paper_002.regression import RegressionLab

pytestmark = pytest.mark.unoptimized


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


# Tuning and storing


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


def test_cells_are_run_once(tmp_path: Path) -> None:
    said: list[str] = []

    def never() -> dict[str, float]:
        raise AssertionError("a finished cell was run again")

    first = Store(tmp_path, said.append)
    assert first.cell("A cell (1)", {"seed": 1}, lambda: {"loss": 0.1}) == {"loss": 0.1}
    again = Store(tmp_path, said.append)
    assert again.cell("A cell (1)", {"seed": 1}, never) == {"loss": 0.1}
    assert again.cell("A cell (1)", {"seed": 2}, lambda: {"loss": 0.2}) == {"loss": 0.2}
    assert (first.computed, again.computed, len(again.used), said) == (1, 1, 2, ["A cell (1)"] * 2)


def test_an_interrupted_cell_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path).cell("cell", {}, broken)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_cell_says_what_to_do(tmp_path: Path) -> None:
    Store(tmp_path).cell("cell", {}, lambda: {"loss": 1})
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text()[:-3])
    with pytest.raises(DataError, match="remove it"):
        Store(tmp_path).cell("cell", {}, lambda: {"loss": 1})


def names_of(part: Part) -> list[str]:
    """Of all lines in all pictures."""
    return [trace.name for picture in part.pictures for trace in picture.figure.data if trace.name]


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


# Paper 000


def gossamer_(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "120"})


# Paper 002

TINY_002 = replace(
    paper_002.QUICK,
    name="tiny",
    runs=2,
    trials=1,
    rounds=30,
    longer=60,
    correlated=20,
    compared=12,
    compared_runs=2,
    clips=(0.1,),
    steps=(0.01, 0.1),
    known={},
    points=3,
)


def reproduced_002(store: Store, figure: int | None = None, plan: Plan002 = TINY_002, **where: Any) -> Page:
    return paper_002.reproduce(Asked(store, plan, figure, **({"stand_in": True} | where), command="again"))


def test_the_networks_are_connected_over_four_rounds_and_no_fewer() -> None:
    network = cases_002.directed()
    assert network.is_column_stochastic()
    assert [network.is_strongly_connected(window) for window in (1, 2, 3, 4)] == [False, False, False, True]
    assert cases_002.undirected().is_doubly_stochastic()
    for exchange in range(4):
        weights = cases_002.undirected().sparse(exchange).toarray()
        np.testing.assert_array_equal(weights, weights.T)  # Lemma 2(a)


@pytest.mark.parametrize("name", ["DPSDA-C", "DPSDA-PS", "DPDOLA", "DPPS", "DPSR"])
def test_published_rows_have_the_sigma_they_say_and_no_proof(name: cases_002.Name) -> None:
    task = cases_002.Tasks(stand_in=True).of("cifar10")
    made = Case002(name, sigma=2.5).build(task.problem, 20, 7, task.bound)
    scales = {scale.value for key, each in made.scales.items() if key != "error" for scale in each}
    assert len(scales) == 1
    assert scales.pop() == pytest.approx(2.5)
    assert made.guarantee.basis == "published"
    assert made.guarantee.epsilon > 1000


def test_rows_with_a_real_guarantee_are_proven_for_a_sample() -> None:
    task = cases_002.Tasks(stand_in=True).of("mushrooms")
    made = Case002("DPSDA-PS", budget=Budget(1.0, 1e-5), own="exact", clip=0.3).build(task.problem, 20, task.batch)
    assert (made.guarantee.basis, str(made.guarantee.unit)) == ("proven", "one sample of a common batch")
    assert made.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)


def test_tasks_are_those_of_the_paper(tmp_path: Path) -> None:
    y = np.repeat(np.arange(10), 6000).astype(np.uint8)
    x = np.zeros((60_000, 28, 28), np.uint8)
    x[:, 0, 0] = y  # tells the digits apart
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])
    task = cases_002.Tasks(tmp_path).of("mnist")
    assert (task.train.x.shape, len(task.test.y), task.batch) == ((8000, 784), 4000, 100)
    for part in (task.train, task.test):
        np.testing.assert_array_equal(np.round(255 * part.x[:, 0]), np.where(part.y == 1, 8, 6))


def test_the_stored_regret_is_the_pseudo_regret(tmp_path: Path) -> None:
    lab, case = RegressionLab(Store(tmp_path), TINY_002), Case002("DPSDA-C", sigma=1.0)
    found = lab.regret(case, [30], range(2))
    stream = streams.linear_regression(seed=1)
    joint = play(case.build(lab.problem, 30, bound=50.0), stream, 30, 1).joint
    for name, plays in (("played", joint), ("averaged", metrics.running_average(joint))):
        assert found[name][1][0] == pytest.approx(metrics.pseudo_regret(plays, lab.problem, stream), abs=1e-5)


def test_one_changed_round_shows_one_round_later(tmp_path: Path) -> None:
    lab = PairLab(Store(tmp_path), TINY_002, cases_002.Tasks(stand_in=True).of("mnist"))
    found = lab.differences(Case002("DPSDA-C", sigma=1.0))
    before, after = np.array(found["largest"]).T
    assert (before == 0).all()  # x(t) is played before f_t is seen
    assert (after > 0).all()
    one, other = (stream.read(0, lab.rounds) for stream in lab.both)
    assert np.flatnonzero(one.y[:, 0] != other.y[:, 0]).tolist() == [lab.changed - 1]


def test_a_tiny_comparison_runs_and_baselines_get_the_same_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(COMPARED, "undirected")
    monkeypatch.setitem(COMPARED, "directed", ("DPSDA-PS", "DPPS"))
    page = reproduced_002(Store(tmp_path / "cells"), figure=7)
    rows = {part.name: part.table for part in page.parts}["figure-7"].rows  # type: ignore[union-attr]
    assert len(rows) == 2 * 2 * 2 + 2
    page.write(tmp_path)
    common = streams.common(np.arange(14.0)[:, None], np.zeros(14), batch=7, seed=3, shuffle=True)
    np.testing.assert_array_equal(common.read(0, 2).x, cases_002.dealt(common).read(0, 2).x)


LEVELS_002 = {0.0: 0, 1.0: 1, 2.0: 2, 5.0: 3, 14.0: 1, 28.0: 2, 70.0: 3}  # sigma: place of the level in a table


def imagine(monkeypatch: pytest.MonkeyPatch, printed: bool) -> None:
    """Results as the paper has them, or upside down."""
    sign = 1.0 if printed else -1.0

    def runs(values: Sequence[float], count: int) -> list[list[float]]:
        return [[value + 1e-5 * seed for value in values] for seed in range(count)]

    def regret(lab: DualLab, case: Case002, points: Sequence[int], seeds: Sequence[int]) -> object:
        level = {"independent": 1.0, "tree": 0.5, "blt": 0.1}[case.aggregation] if case.budget else 0.1
        level += 0.1 * LEVELS_002.get(case.sigma, 0) * sign
        curve = runs(
            [(level if printed else 3 + level) * (500 / point) ** (0.6 * sign) for point in points], len(seeds)
        )
        return {"rounds": list(points), "played": curve, "averaged": curve}

    def scores(lab: ClassLab, case: Case002, seeds: Sequence[int], passes: int = 1) -> object:
        place = LEVELS_002[case.sigma]
        paper = findings_002.PAPER[lab.task.key][case.name]
        goal = 0.02 if passes == 5 else 0.0
        found = {
            part: [(value[place] + goal if printed else 0.2 + 0.1 * place) + 1e-5 * seed for seed in seeds]
            for part, value in paper.items()
        }
        models = dict.fromkeys(("last", "averaged"), found | {"balanced test": found["test"]})
        fitness = runs([1.0, 0.5] if printed else [500.0, 900.0], len(seeds))
        return models | {"rounds": [1, 2], "fitness": fitness, "online": found["train"]}

    def differences(lab: PairLab, case: Case002) -> object:
        gap = findings_002.TABLE_5[case.name][LEVELS_002[case.sigma]] if printed else 0.1 * (1 + LEVELS_002[case.sigma])
        both = runs([gap, gap], lab.plan.runs)
        return dict.fromkeys(("first", "most", "largest"), both) | {"rounds": [1, 2], "F": both, "F'": both}

    def fitness(lab: CompareLab, case: Case002, seeds: Sequence[int]) -> object:
        level = 2.0 - sign * case.name.startswith("DPSDA")
        tests = [0.9] * len(seeds)
        return {"rounds": [1, 2], "fitness": runs([level, level], len(seeds)), "test": tests, "balanced test": tests}

    monkeypatch.setattr(RegressionLab, "regret", regret)
    monkeypatch.setattr(RegressionLab, "zero", lambda lab, rounds: [1.8] * lab.plan.runs)
    monkeypatch.setattr(ClassLab, "scores", scores)
    monkeypatch.setattr(PairLab, "differences", differences)
    monkeypatch.setattr(CompareLab, "fitness", fitness)
    monkeypatch.setattr(DualLab, "search", lambda lab, key, loss, start: (1.0, 0.1))


@pytest.mark.parametrize("printed", [True, False])
def test_every_claim_of_002_is_asked_the_right_way_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: bool
) -> None:
    imagine(monkeypatch, printed)
    page = reproduced_002(Store(tmp_path), plan=replace(paper_002.FULL, correlated=50, compared=50, rounds=500))
    tables = {part.name: part.table for part in page.parts if part.table is not None}
    assert [len(part.panels) for part in page.parts if part.panels] == [4, 6, 6, 4]
    # Regression 3 x 2 x 2, three tasks with 6 for each algorithm, 2 for each in figure 6, 3 baselines x 2 in figure 7.
    assert len(tables["claims"].rows) == 12 + 36 + 4 + 6
    verdict = "holds" if printed else "does not hold"
    for row in (*tables["claims"].rows, *tables["goals"].rows):
        assert set(row[3::2]) == {verdict}, row
    if printed:
        assert {row[3] for row in tables["correlated-claims"].rows} == {"holds"}
    assert [row[0] for row in tables["table-4"].rows[-2:]] == ["constant classifier", "playing 0"]


def test_without_data_the_regression_is_run_and_the_rest_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imagine(monkeypatch, True)
    nowhere = {"directory": tmp_path / "nowhere", "stand_in": False}
    page = reproduced_002(Store(tmp_path), **nowhere)
    texts = {part.name: part.text for part in page.parts}
    assert len(page.verdicts.rows) == 12 + 3
    assert {row[2:] for row in page.verdicts.rows[-3:]} == {("not run", "not run")}
    for figure, file in ((5, "mushrooms.npz"), (6, "mnist.npz"), (7, "cifar10_10k2k.npz")):
        assert file in texts[f"figure-{figure}"][0]
        assert "--data, or try --stand-in" in texts[f"figure-{figure}"][0]
    with pytest.raises(DataError, match="Table 4 of paper 002"):
        reproduced_002(Store(tmp_path), figure=7, **nowhere)


def test_the_quick_plan_knows_all_that_it_would_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imagine(monkeypatch, True)
    asked: set[str] = set()
    monkeypatch.setattr(DualLab, "search", lambda lab, key, loss, start: asked.add(key) or (1.0, 0.1))
    reproduced_002(Store(tmp_path), plan=paper_002.QUICK)
    assert asked == {*paper_002.QUICK.known}
    points = [*paper_002.QUICK.known.values()]
    assert all(clip in paper_002.FULL.clips and step in paper_002.FULL.steps for clip, step in points)


def test_every_is_no_better_than_its_parts() -> None:
    holds, open_, fails = Finding("1", "holds"), Finding("2", "not resolved"), Finding("3", "does not hold")
    assert every({"a": holds, "b": holds}).verdict == "holds"
    assert every({"a": holds, "b": open_}).verdict == "not resolved"
    assert every({"a": open_, "b": fails, "c": holds}).verdict == "does not hold"
