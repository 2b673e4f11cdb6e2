"""Paper 002 as a study: its networks, what its rows are worth, and whether claims are asked the right way round."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gossamer import Budget, streams
from gossamer.errors import DataError
from gossamer.experiments import Asked, Engine, Estimate
from gossamer.experiments.papers import paper_002
from gossamer.experiments.papers.paper_002 import classification, compared, pairs, regression
from gossamer.experiments.papers.paper_002.cases import BOTH, LEVELS, Case, dealt, directed, task_of, undirected

pytestmark = pytest.mark.unoptimized
HERE = Asked(quick=True, stand_in=True)


def test_the_networks_are_connected_over_four_rounds_and_no_fewer():
    network = directed()
    assert network.is_column_stochastic()
    assert [network.is_strongly_connected(window) for window in (1, 2, 3, 4)] == [False, False, False, True]
    for exchange in range(4):
        weights = undirected().sparse(exchange).toarray()
        np.testing.assert_array_equal(weights, weights.T)  # Lemma 2(a)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("name", ["DPSDA-C", "DPSDA-PS", "DPDOLA", "DPPS", "DPSR"])
def test_published_rows_have_the_sigma_they_say_and_no_proof(name, reduction):
    task = task_of("cifar10", HERE)
    made = Case(name, sigma=2.5, reduction=reduction).build(task.problem, 20, 7, task.bound)
    scales = {scale.value for key, each in made.scales.items() if key != "error" for scale in each}
    assert len(scales) == 1
    assert scales.pop() == pytest.approx(2.5)
    assert made.guarantee.basis == "published"
    assert made.guarantee.epsilon > 100


def test_rows_with_a_real_guarantee_are_proven_for_a_sample():
    task = task_of("mushrooms", HERE)
    made = Case("DPSDA-PS", budget=Budget(1.0, 1e-5), clip=0.3).build(task.problem, 20, task.batch)
    assert (made.guarantee.basis, str(made.guarantee.unit)) == ("proven", "one sample of a common batch")
    assert made.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)


def test_tasks_are_those_of_the_paper(tmp_path):
    y = np.repeat(np.arange(10), 6000).astype(np.uint8)
    x = np.zeros((60_000, 28, 28), np.uint8)
    x[:, 0, 0] = y  # tells the digits apart
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])
    task = task_of("mnist", Asked(data=tmp_path))
    assert (task.train.x.shape, len(task.test.y), task.batch) == ((8000, 784), 4000, 100)
    for part in (task.train, task.test):
        np.testing.assert_array_equal(np.round(255 * part.x[:, 0]), np.where(part.y == 1, 8, 6))
    with pytest.raises(DataError, match=r"Table 2 of paper 002.*--data, or try --stand-in"):
        task_of("mushrooms", Asked(data=tmp_path))


def test_clips_of_published_rows_are_never_reached():
    """The largest possible gradient of a batch, as a sum and as a mean, is kept to the last bit."""
    task = task_of("mushrooms", HERE)
    for reduction, size in (("sum", task.batch), ("mean", 1)):
        made = Case("DPSDA-C", 1.0, errors=False, reduction=reduction).build(
            task.problem, 9, task.batch, size * task.bound
        )
        ones = classification.Block(np.ones((task.batch, task.problem.dim)), np.zeros(task.batch, np.int32))
        state = made.learner.init(0)._replace(y=np.full(task.problem.dim, 5.0, np.float32))
        np.testing.assert_allclose(made.learner.learn(state, ones, None).gradient, 7 * size, rtol=1e-5)


def test_one_changed_round_shows_one_round_later():
    cells = pairs.cells(HERE, range(2))
    key = ("DPSDA-C", "sigma = 1/eps", 1.0)
    found = Engine().find({key: cells[key]})
    assert pairs.gaps(found, key, 0).values == (0, 0)  # x(t) is played before f_t is seen
    assert min(pairs.gaps(found, key, 1).values) > 0
    one, other = (pairs.both(HERE, side).read(0, pairs.changed(HERE) + 1) for side in (0, 1))
    assert np.flatnonzero(one.y[:, 0] != other.y[:, 0]).tolist() == [pairs.changed(HERE) - 1]


def test_baselines_get_the_same_samples():
    common = streams.common(np.arange(14.0)[:, None], np.zeros(14), batch=7, seed=3, shuffle=True)
    np.testing.assert_array_equal(common.read(0, 2).x, dealt(common).read(0, 2).x)


class Imagined:
    """A result as the paper has it, or upside down."""

    def __init__(self, level, printed):
        sign = 1 if printed else -1
        self.level, self.sign, self.setting = level, sign, {}

    def at(self, word):
        return [1, 2]

    def estimate(self, word, place=-1):
        if "regret" in word:
            shrunk = 0.01 if self.sign > 0 and place == -1 else 1.0
            return Estimate.of([shrunk * (self.sign * (2 + self.level) + 5 + 5e-3 * seed) for seed in (1, 2)])
        end, half = (0.1, 0.5) if self.sign > 0 else (1.0, 0.9)
        return Estimate.of([(end if place == -1 else half) + 1e-5 * seed for seed in (1, 2)])


@pytest.mark.parametrize("printed", [True, False])
def test_every_claim_is_asked_the_right_way_round(printed, monkeypatch):
    verdict = {"holds"} if printed else {"does not hold"}
    places = dict(zip(LEVELS, range(4), strict=True))
    at = regression.points(2000)
    found = {(n, s, e): Imagined(places[e], printed) for n in BOTH for s in regression.SCALES for e in LEVELS}
    zeros = {str(t): np.array([20.0 if printed else 0.1] * 2) for t in at}
    judged = regression.claims(at, found | {"playing 0": zeros})

    monkeypatch.setattr(
        classification.Scores,
        "accuracy",
        lambda scores, key, model, part: Estimate.of(
            [
                (classification.PAPER["mnist"][key[0]][part][places[key[2]]] if printed else 0.2 + 0.1 * places[key[2]])
                + 1e-5 * s
                for s in (1, 2)
            ]
        ),
    )
    found = {(n, r, e): Imagined(places[e], printed) for n in BOTH for r in classification.JUDGED for e in LEVELS}
    judged += classification.claims("mnist", HERE, found)

    gap = lambda key: pairs.TABLE_5[key[0]][places[key[2]]] if printed else 0.1 * (1 + places[key[2]])  # noqa: E731
    monkeypatch.setattr(pairs, "gaps", lambda found, key, later: Estimate.of([gap(key) + 1e-5 * s for s in (1, 2)]))
    judged += pairs.claims({})

    loss = lambda name: 0.2 if name.startswith("DPSDA") == printed else 0.5  # noqa: E731
    result = lambda name: SimpleNamespace(estimate=lambda word: Estimate.of([loss(name), loss(name) + 1e-5]))  # noqa: E731
    judged += compared.claims({(n, p): result(n) for n in compared.KNOWN for p in compared.PROTOCOLS})
    assert len(judged) == 12 + 10 + 4 + 3
    for claim in judged:
        assert {finding.verdict for finding in claim.findings.values()} == verdict, claim


def test_a_tiny_figure_runs_and_shows_all_rows(monkeypatch):
    monkeypatch.setattr(compared, "COMPARED", {"DPSDA-PS": ("DPPS",)})
    section = replace(compared.section(HERE), cells=lambda: compared.cells(HERE, 12, range(2)))
    page = replace(paper_002.study(HERE), sections=[section]).run(figure=7)
    rows = {part.name: part.table for part in page.parts}["figure-7"].rows
    assert [row[0] for row in rows] == ["DPSDA-C"] * 3 + ["DPSDA-PS"] * 3 + ["DPPS"] * 3 + [
        "playing 0",
        "constant classifier",
    ]
    assert math.isfinite(float(rows[0][3].split("\u00a0")[0]))
    assert "<h1>Paper 002" in page.html()
