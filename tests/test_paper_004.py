"""Paper 004 as a study: its losses, what its rows are worth, powers and the claims about them, and its pages."""

from __future__ import annotations

import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from bench import experts as bench_experts
from gossamer.experiments import Engine, Study
from gossamer.experiments.papers import paper_004
from gossamer.experiments.papers.paper_004 import cases, plan, scaled
from gossamer.experiments.papers.paper_004.cases import (
    LOCAL_SPARSE,
    PUBLISHED,
    SINGLE,
    SPARSE,
    STOCHASTIC,
    At,
    Repeats,
    gains,
    numbers_sent,
    smooth,
)
from gossamer.problems import Block
from gossamer.simulation import simulate

pytestmark = pytest.mark.unoptimized
FEW = Repeats(3, 2)


def test_fair_coins():
    """Against a simulation of the least of d binomial numbers."""
    least = np.random.default_rng(0).binomial(400, 0.5, (20_000, 20)).min(axis=1)
    assert paper_004.coin_regret(400, 20) == pytest.approx(200 - least.mean(), abs=0.1)


@pytest.mark.parametrize("beta", [1.0, 0.05])
def test_gains_are_least_squares(beta):
    """Up to a constant -<u, w> + beta <u, w>^2 / 2, with gradients in [-1, 0]."""
    block, problem = gains(3, 20, 16, beta, 0).read(0, 16), smooth(At(3, 20, 16), beta, "vertex").problem
    mixture, c = np.random.default_rng(0).dirichlet(np.ones(20)), math.sqrt(beta / 2)
    rows = Block(jnp.asarray(block.x.reshape(-1, 20)), jnp.asarray(block.y.reshape(-1)))
    gradients = np.asarray(problem.row_gradients(jnp.asarray(mixture, jnp.float32), rows))
    assert gradients.min() >= -1.0001
    assert gradients.max() <= 1e-4
    u = np.asarray(block.x, np.float64).reshape(-1, 20) / c
    assert set(np.unique(u.round(4))) == {0.0, 1.0}
    plain = np.square(c * u @ mixture - np.asarray(rows.y)) - 1 / (2 * beta)
    np.testing.assert_allclose(plain, -(u @ mixture) + beta / 2 * (u @ mixture) ** 2, atol=1e-4)


def test_guarantees_of_the_rows():
    """What is published costs more, or less, than it says."""
    made = {title: case.make(At(4, 20, 2**14)) for title, case in {**STOCHASTIC, **PUBLISHED}.items()}
    made |= {title: case.make(At(4, 100, 1000)) for title, case in {**SPARSE, **SINGLE}.items()}
    made |= {f"{title} sums": case.make(At(4, 100, 1000)) for title, case in LOCAL_SPARSE.items()}
    epsilons = {title: each.guarantee.epsilon for title, each in made.items()}
    off = {title: round(epsilon, 2) for title, epsilon in epsilons.items() if abs(epsilon - 1) > 0.01}
    assert off == {"local, published": 10.0, "pure, published": 0.75, "approximate, published": 0.8}
    assert {title for title, each in made.items() if each.guarantee.basis != "proven"} == {*PUBLISHED, *off}


def test_what_is_sent_grows_as_predicted():
    sent = {m: numbers_sent(At(m, 20, 2**14), 1.0) for m in (1, 16, 256)}
    assert np.polyfit(np.log(list(sent)), np.log(list(sent.values())), 1)[0] == pytest.approx(1.25, abs=0.1)
    assert numbers_sent(At(16, 20, 2**14), 0.0) == 14 * 16 * 20


def test_regret_in_hindsight_and_in_expectation_at_the_worst_gap():
    """Uniform play, before anything is learnt, costs (1 - 1/d) gap a step."""
    tiny = replace(
        plan.QUICK, worst={"epsilon": (0.01, 100.0)}, gaps=(0.2, 0.01), repeats={"worst": FEW, "stochastic": FEW}
    )
    (worst,) = plan.stochastic(tiny)[1:]
    base = replace(worst.base, experts=4, horizon=2**8)
    worst = replace(worst, base=base, cases={"central, pure": STOCHASTIC["central, pure"]})
    worst = replace(worst, powers={"central, pure": worst.powers["central, pure"]})
    engine = Engine()
    found = engine.find(worst.cells())
    near, gap = worst.result(found, "central, pure", 100.0)
    far, _ = worst.result(found, "central, pure", 0.01)
    assert near["expected regret"].min() >= (1 - 1 / 4) * gap - 1e-6
    assert far.estimate("expected regret").mean > 2 * near.estimate("expected regret").mean
    assert far["expected regret"].max() <= 0.2 * 2**8
    (claim,) = worst.claims(found)
    assert "grows at most like 1/epsilon" in claim.statement
    assert claim.findings["found"].verdict == "holds"
    assert worst.fit(found, "central, pure").sizes == (0.01, 100.0)
    steep = replace(worst, powers={"central, pure": [plan.Power(-0.9, "made up")]})
    assert steep.claims(found)[0].findings["found"].verdict == "does not hold"
    page = Study("tiny", [scaled("worst", "Worst", 1, [worst])]).run(engine)
    assert engine.computed == len(found) == 4
    for words in ("epsilon = 0.01", "broadcasts", "(0.2)", "power of 1/epsilon"):
        assert words in page.html()


def test_the_regret_of_one_client_does_not_depend_on_how_losses_are_supplied():
    """Hedge: the server hears the same sums; the streams are not the same, their law is."""
    at, many = At(4, 5, 200, phase=10), Repeats(12, 1)
    pooled = cases.cell("pooled", cases.REFERENCES["hedge"], "realizable", at, many)
    plain = cases.cell("plain", cases.GENERAL["hedge (not private)"], "realizable", at, many)
    found = Engine().find({"pooled": pooled, "plain": plain})
    difference = found["pooled"].estimate("regret").mean - found["plain"].estimate("regret").mean
    assert abs(difference) < 0.1 * found["plain"].estimate("regret").mean


def test_general_oblivious_adversaries():
    tiny = replace(plan.QUICK, general=((1, 2), 30), repeats={"general": FEW})
    page = Study("tiny", [paper_004.general(tiny)]).run(Engine())
    assert {row[0] for row in page.verdicts.rows} == {"Theorem 2.4", "ours"}
    assert f"{paper_004.coin_regret(30, 20):.1f}" in page.html()


def test_the_loop_of_the_benchmark_does_the_same():
    """Mean losses of the played expert, over seeds."""
    algorithm, stream = bench_experts.setting(2000)
    run = simulate(algorithm, stream, 200, seeds=list(range(12)), measure="local", progress=False)
    ours = np.asarray(run.losses)[:, -200:, 0].mean(axis=1)
    theirs = [bench_experts.loop(200, algorithm, np.random.default_rng(seed))[0].mean() for seed in range(12)]
    error = math.sqrt((np.var(ours, ddof=1) + np.var(theirs, ddof=1)) / 12)
    assert abs(ours.mean() - np.mean(theirs)) < 4 * error
