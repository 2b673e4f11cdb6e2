"""Paper 004 again, on tiny instances: exponents, smooth losses, stored cells, and the page."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from typer.testing import CliRunner

from bench import experts as bench_experts
from gossamer.cli import app
from gossamer.problems import Block
from gossamer.reproduction import Store, paper_004
from gossamer.reproduction.claims import Estimate
from gossamer.reproduction.paper_004 import __main__ as runs
from gossamer.reproduction.paper_004 import experiments, findings, traffic
from gossamer.reproduction.paper_004.cases import (
    EXPERTS,
    GAP,
    LOCAL_SPARSE,
    PUBLISHED,
    SPARSE,
    STOCHASTIC,
    Gains,
)
from gossamer.reproduction.paper_004.experiments import ExpertLab, exponent
from gossamer.reproduction.paper_004.findings import FIRST
from gossamer.reproduction.paper_004.plan import QUICK
from gossamer.reproduction.store import Result
from gossamer.simulation import simulate

pytestmark = pytest.mark.unoptimized

TINY = replace(
    QUICK,
    name="tiny",
    stochastic=replace(QUICK.stochastic, horizon=2**7, clients=(1, 4), streams=2, gaps=()),
    realizable=replace(QUICK.realizable, horizon=100, clients=(1, 4), streams=2, local=(1,), hidden=20),
    smooth=replace(QUICK.smooth, horizon=8, clients=2, streams=1, seeds=1),
    oblivious=replace(QUICK.oblivious, horizon=20, clients=(1, 2), streams=2),
)


def made_up(power: float, noise: float, streams: int = 200) -> np.ndarray:
    """Regrets that fall like a power of m."""
    rng = np.random.default_rng(1)
    return np.array([100 * m**-power * rng.lognormal(0, noise, streams) for m in (1, 4, 16, 64)])


@pytest.mark.parametrize("power", [0.25, 0.5, 1.0])
def test_exponents_are_found_again(power: float) -> None:
    fit = exponent((1, 4, 16, 64), made_up(power, 0.3), floor=0.01)
    assert fit is not None
    assert fit.low < power < fit.high
    assert fit.high - fit.low < 0.1
    assert fit.clients == (1, 4, 16, 64)


def test_intervals_cover() -> None:
    """Of 200 samples of 30 streams, about 95 % have the true exponent in their interval."""
    rng = np.random.default_rng(3)
    inside = 0
    for _ in range(200):
        regrets = np.array([m**-0.5 * rng.exponential(1.0, 30) for m in (1, 4, 16)])
        fit = exponent((1, 4, 16), regrets, floor=1e-3)
        assert fit is not None
        inside += fit.low <= 0.5 <= fit.high
    assert 0.88 <= inside / 200 <= 0.99


def test_what_is_below_the_floor_is_not_fitted() -> None:
    regrets = made_up(1.0, 0.1)
    fit = exponent((1, 4, 16, 64), regrets, floor=10.0)
    assert fit is not None
    assert fit.clients == (1, 4)
    assert exponent((1, 4, 16, 64), regrets, floor=50.0) is None
    assert findings.at_least(None, 0.5).verdict == findings.like(None, 1.0).verdict == "not run"
    assert findings.at_least(fit, 1.5).verdict == "does not hold"


def test_a_share_of_another_regret() -> None:
    low, high = Estimate.of([1.0, 1.1, 0.9]), Estimate.of([2.0, 2.2, 1.8])
    assert [findings.no_more(low, high, share).verdict for share in (0.8, 0.4)] == ["holds", "does not hold"]
    assert findings.no_more(low, high, 0.5).verdict == "not resolved"


def test_fair_coins() -> None:
    """Against a simulation of the least of d binomial numbers."""
    least = np.random.default_rng(0).binomial(400, 0.5, (20_000, 20)).min(axis=1)
    assert experiments.coin_regret(400, 20) == pytest.approx(200 - least.mean(), abs=0.1)


@pytest.mark.parametrize("beta", [1.0, 0.05])
def test_gains_are_least_squares(beta: float) -> None:
    gains = Gains.of(3, 16, beta, seed=0)
    problem = gains.algorithm("vertex").problem
    block = gains.stream().read(0, 16)
    mixture = np.random.default_rng(0).dirichlet(np.ones(EXPERTS))
    rows = Block(jnp.asarray(block.x.reshape(-1, EXPERTS)), jnp.asarray(block.y.reshape(-1)))
    gradients = np.asarray(problem.row_gradients(jnp.asarray(mixture, jnp.float32), rows))
    assert gradients.min() >= -1.0001
    assert gradients.max() <= 1e-4
    plain = np.square(np.asarray(block.x, np.float64) @ mixture - np.asarray(block.y, np.float64)) - 1 / (2 * beta)
    assert gains.losses(mixture[None]) == pytest.approx(plain.mean(axis=1), abs=1e-3)


def test_the_best_mixture() -> None:
    gains = Gains.of(2, 50, 1.0, seed=0)

    def loss(logits: np.ndarray) -> float:
        weights = np.exp(logits - logits.max())
        return float(gains.losses((weights / weights.sum())[None]).mean())

    found = optimize.minimize(loss, np.zeros(EXPERTS)).fun
    assert gains.least() <= found + 1e-4
    assert gains.least() >= found - 5e-3


def test_smooth_losses_are_played(tmp_path: Path) -> None:
    lab = ExpertLab(Store(tmp_path), TINY)
    found = lab.smooth(1.0, "vertex")
    assert np.shape(found["regret"]) == (1, 1)
    assert (found["basis"], found["observer"]) == ("proven", "peers")


def test_regret_in_hindsight_and_in_expectation(tmp_path: Path) -> None:
    """Uniform play, before anything is learnt, costs (1 - 1/d) gap a step."""
    lab, case = ExpertLab(Store(tmp_path), TINY), STOCHASTIC[FIRST]
    algorithm = case.make(2, 1024)
    counts = experiments._counts(algorithm, 1024)
    assert counts.sum() == 1024
    found = lab.stochastic(FIRST, case, 4)
    assert min(np.ravel(found["expected"])) >= (1 - 1 / EXPERTS) * GAP - 1e-6
    assert max(np.ravel(found["expected"])) <= GAP * TINY.stochastic.horizon
    assert found["numbers"] == 4 * EXPERTS * found["exchanges"]


def test_guarantees_of_the_rows() -> None:
    """What is published costs more, or less, than it says."""
    epsilons = {title: case.make(4, 2**14).guarantee.epsilon for title, case in {**STOCHASTIC, **PUBLISHED}.items()} | {
        title: case.make(4, 1000).guarantee.epsilon for title, case in {**SPARSE, **LOCAL_SPARSE}.items()
    }
    off = {title: round(epsilon, 2) for title, epsilon in epsilons.items() if abs(epsilon - 1) > 0.01}
    assert off == {"local, published": 10.0, "pure, published": 0.75, "approximate, published": 0.8}


def test_what_is_sent_grows_as_predicted() -> None:
    counts = {m: m * traffic.sent(m, 2**14, 1.0) for m in (1, 16, 256)}
    assert traffic.growth(list(counts), list(counts.values())) == pytest.approx(1.25, abs=0.1)
    assert traffic.sent(16, 2**14, 0.0) == 14


def test_a_part_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells are stored, and another run reads them."""
    monkeypatch.setattr(paper_004, "QUICK", TINY)
    command = ["reproduce", "004", "--quick", "--figure", "3", "--out", str(tmp_path)]
    first, second = (CliRunner().invoke(app, command) for _ in range(2))
    assert first.exit_code == 0, first.output
    assert "8 cells were run, 0 were there already" in first.output
    assert "0 cells were run, 8 were there already" in second.output
    assert "Theorem 2.4" in (tmp_path / "report.html").read_text()


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is played: every algorithm would be a program, and on smooth losses every block size."""

    def nothing(self: ExpertLab, beta: float, release: str) -> Result:
        facts = {"basis": "proven", "epsilon": 1.0, "delta": 0.0, "observer": "peers", "exchanges": 2, "numbers": 80}
        return {"regret": [[1.0], [2.0]], **facts}

    def regrets(*given: Any) -> dict[str, list[float]]:
        clients, seeds = given[3], given[5]
        return {kind: [100.0 / clients + seed for seed in seeds] for kind in ("regret", "expected")}

    monkeypatch.setattr(traffic, "POWERS", (1, 16, 256))  # each is an algorithm to be made
    monkeypatch.setattr(ExpertLab, "smooth", nothing)
    monkeypatch.setattr(experiments, "_regrets", regrets)
    monkeypatch.setattr(paper_004, "QUICK", TINY)
    monkeypatch.setattr(runs, "QUICK", TINY)


@pytest.mark.usefixtures("quickly")
def test_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "004", "--quick", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    page = (tmp_path / "report.html").read_text()
    parts = (
        "Fed-DP-OPE-Stoch",
        "Fed-SVT",
        "worst gap",
        "Corollary 2.3",
        "Communication",
        "Theorem 2.7",
        "uniform play",
    )
    for words in (*parts, "Theorem 2.4", "broadcasts", "ln(d) / (m epsilon)", "1.00 (1.00 to 1.00), m = 1 to 4"):
        assert words in page
    tables = {file.stem for file in (tmp_path / "tables").iterdir()}
    assert tables == {"claims", "stochastic", "gaps", "smooth", "messages", "realizable", "hidden", "general"}
    assert json.loads((tmp_path / "raw.json").read_text())
    runs.main([str(tmp_path), "--quick", "--figure", "3"])
    assert "0 of 8 cells were run" in capsys.readouterr().out


def test_the_loop_of_the_benchmark_does_the_same() -> None:
    """Mean losses of the played expert, over seeds."""
    algorithm, stream = bench_experts.setting(2000)
    run = simulate(algorithm, stream, 200, seeds=list(range(12)), measure="local", progress=False)
    ours = np.asarray(run.losses)[:, -200:, 0].mean(axis=1)
    theirs = [bench_experts.loop(200, algorithm, np.random.default_rng(seed))[0].mean() for seed in range(12)]
    error = math.sqrt((np.var(ours, ddof=1) + np.var(theirs, ddof=1)) / 12)
    assert abs(ours.mean() - np.mean(theirs)) < 4 * error
