"""Losses of many learners, estimated on a sample: right within the error bar, the same however a run is cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2, norm

from gossamer import Run, algorithms, problems, simulate, streams, topology
from gossamer.core import Every
from gossamer.metrics import average_loss, static_regret, summarize
from gossamer.reports import summary_table
from gossamer.simulation import measuring
from gossamer.simulation.plot import bands
from tests.instances import QUIET

MANY, DIM = 2000, 3
REPEATS, ALARM = 40, 1e-4


@pytest.fixture
def few(monkeypatch):
    """Estimates begin at 21 learners, so that debug runs of them are short."""
    monkeypatch.setattr(measuring, "EXACT", 20)
    monkeypatch.setattr(measuring, "LEARNERS", 8)


def blocks(learners, steps):
    """Learners with an exchange after so many steps."""
    algorithm = algorithms.d_ogd(problems.Logistic(DIM), topology.ring(learners), step=1.0)
    return algorithm if steps == 1 else replace(algorithm, schedule=Every(steps))


def many(stream_seed=1, learners=MANY, steps=4, block=1, **options):
    stream = streams.heterogeneous_logistic(learners, DIM, 1.0, 1.0, seed=stream_seed)
    return simulate(blocks(learners, block), stream, steps, **(QUIET | options))


def deviations(monkeypatch):
    """By how many of its error bars each of several estimates is off."""
    found = [many(seed) for seed in range(REPEATS)]
    monkeypatch.setattr(measuring, "EXACT", 10**6)
    exact = [many(seed) for seed in range(REPEATS)]
    assert {run.measured is None for run in exact} == {True}
    true = np.array([summarize(run).average_loss for run in exact])
    return (np.array([summarize(run).average_loss for run in found]) - true) / [run.loss_error for run in found]


def test_an_estimate_is_off_by_what_its_error_bar_says(monkeypatch):
    """Two-sided, with false alarms in 4 of 10,000; bars of half or twice the size are found out, and so is a bias."""
    off = deviations(monkeypatch)

    def believed(scale):
        low, high = chi2.ppf([ALARM, 1 - ALARM], REPEATS)
        centred = abs(np.sum(off / scale)) <= norm.isf(ALARM) * np.sqrt(REPEATS)
        return bool(low <= np.sum((off / scale) ** 2) <= high) and centred

    assert believed(1.0)
    assert not believed(0.5)
    assert not believed(2.0)


def test_few_learners_are_measured_exactly():
    assert many(learners=measuring.EXACT).measured is None
    assert many(learners=MANY, measure="local").losses.shape == (4, MANY)


def test_a_run_says_that_it_is_an_estimate(tmp_path):
    run = many()
    assert run.losses.shape == run.accuracy.shape == (4, measuring.LEARNERS)
    assert_array_equal(run.measured, measuring.sample_of(MANY, measuring.LEARNERS))
    assert run.loss_errors.shape == (4,)
    assert_allclose(run.loss_error, average_loss(run)[-1].std(ddof=1) / np.sqrt(measuring.LEARNERS))
    said = "(estimated on 128 of 2,000 learners, ± standard error)"
    assert said in str(run)
    assert f"± {run.loss_error:.4f}" in str(run)
    assert said.strip("()") in dict(summary_table(run).rows)["±"]
    assert "128 of 2,000 learners" in bands(run)
    assert set(run.to_dataframe()["learner"]) == set(run.measured.tolist())
    run.save(tmp_path)
    loaded = Run.load(tmp_path)
    assert_array_equal(loaded.measured, run.measured)
    assert loaded.loss_error == run.loss_error


def test_several_seeds_have_one_error():
    run = many(seed=None, seeds=[0, 1])
    assert run.losses.shape == (2, 4, measuring.LEARNERS)
    assert run.loss_errors.shape == (2, 4)
    assert "standard error of the average loss 0." in str(run)
    assert_allclose(run.loss_error, many().loss_error)  # without noise seeds are alike: they add no knowledge
    assert "seed" in bands(run)


def test_regrets_are_those_of_the_learners_measured():
    run = many()
    stream = streams.heterogeneous_logistic(MANY, DIM, 1.0, 1.0, seed=1)
    regret = static_regret(run, problems.Logistic(DIM, l2=0.1), stream)
    assert regret.shape == (1, measuring.LEARNERS)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("block", [1, 3, 40])
def test_estimates_do_not_depend_on_engine_and_chunks(block):
    """40 steps of an exchange have one sample each."""
    options = {"learners": 30, "block": block, "steps": 5 * block + 1, "every": 2}
    whole = many(**options)
    assert whole.losses.shape == (3, 8)
    for other in (many(**options, chunk=2), many(**options, debug=True)):
        assert_allclose(other.losses, whole.losses, rtol=2e-5)


@pytest.mark.usefixtures("few")
def test_estimates_go_on_from_a_checkpoint(tmp_path):
    options = {"learners": 30, "every": 2, "checkpoint": tmp_path / "run"}
    many(steps=3, **options)
    assert_array_equal(many(steps=6, **options).losses, many(steps=6, learners=30, every=2).losses)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("block", [1, 3, 40])
def test_losses_are_means_over_samples_of_the_block(block):
    """Where all samples are alike, an estimate is exact, also in a row of blocks of different lengths."""
    x = np.ones((30 * (2 * block + 1), DIM), np.float32)
    stream = streams.from_arrays(x, np.ones(len(x), int), learners=30, seed=0)
    algorithm = blocks(30, block)
    estimate = simulate(algorithm, stream, 2 * block + 1, **QUIET, every=3)
    assert estimate.measured is not None
    exact = simulate(algorithm, stream, 2 * block + 1, **QUIET, every=3, measure="local")
    assert_allclose(estimate.losses, exact.losses[:, estimate.measured], rtol=1e-5)


def test_a_common_batch_is_measured_exactly():
    stream = streams.linear_regression(DIM, seed=0)
    algorithm = algorithms.d_ogd(problems.LeastSquares(DIM), topology.ring(MANY), step=0.1)
    run = simulate(algorithm, stream, 3, **QUIET)
    assert run.measured is None
    assert run.losses.shape == (3, MANY)
