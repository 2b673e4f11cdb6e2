"""Prediction from experts: the problem, its adversaries, hedge, follow the leader, the shrinking dartboard.

Seeds are fixed: what passes once passes always. False-alarm rates are those of fresh seeds.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from gossamer import Budget, ConfigurationError, DataError, PrivacyError, problems, sets, simulate, streams
from gossamer.algorithms import follow_the_leader, hedge, shrinking_dartboard, summed
from gossamer.algorithms.experts.clients import loss_bits
from gossamer.algorithms.experts.totals import least, relative
from gossamer.core import Every, Federation, Phases, Segment
from gossamer.mechanisms import Keeping
from gossamer.metrics import expert_regret
from gossamer.privacy import Sensitivity
from gossamer.problems import Block
from gossamer.streams import experts
from tests.instances import Given

QUIET = {"progress": False}
FIVE = 5.0  # standard deviations: a false alarm of 6e-7 each


def given(x):
    return Given(np.asarray(x, np.float32), np.zeros(np.shape(x)[:2], np.float32))


# -- the problem -------------------------------------------------------------------------------------------------------


def test_a_mixture_loses_the_mean_of_its_experts():
    problem = problems.Experts(3)
    losses, mixture = np.array([0.2, 0.9, 0.4], np.float32), np.array([0.5, 0.3, 0.2], np.float32)
    assert_allclose(problem.loss(mixture, losses, np.float32(0)), losses @ mixture, rtol=1e-6)
    assert_allclose(problem.initial_decision(), 1 / 3)
    block = Block(losses[None], np.zeros(1, np.float32))
    assert_allclose(problem.row_gradients(mixture, block), losses[None])
    assert problem.smoothness == 0


@pytest.mark.parametrize(
    "options",
    [{"dim": 1}, {"dim": 3, "l2": 0.1}, {"dim": 3, "feature_bound": 1.0}, {"dim": 3, "domain": sets.L2Ball(1.0)}],
)
def test_odd_problems_are_refused(options):
    with pytest.raises(ConfigurationError, match="experts"):
        problems.Experts(**options)


@pytest.mark.parametrize("bad", [-1e-3, 1.001])
def test_losses_outside_0_and_1_are_refused_but_sums_may_be_large(bad):
    x = np.full((2, 3), 0.5, np.float32)
    x[1, 2] = bad
    with pytest.raises(DataError, match=r"loss out of range at position \(8, 2\)"):
        problems.Experts(3).check(Block(x, np.zeros(2)), start=7)
    summable = problems.Experts(3, summed=True)
    if bad < 0:
        with pytest.raises(DataError, match="at least 0"):
            summable.check(Block(x, np.zeros(2)))
    else:
        summable.check(Block(1000 * x, np.zeros(2)))


def test_losses_are_rounded_and_clipped_before_they_are_added_up():
    x = np.random.default_rng(0).uniform(-0.5, 1.5, (50, 4)).astype(np.float32)
    sums = problems.Experts(4).loss_sums(Block(jnp.asarray(x), jnp.zeros(50)), bits=3)
    assert_array_equal(sums, (np.round(np.clip(x, 0, 1) * 8) / 8).sum(axis=0))


@pytest.mark.parametrize(("clients", "phase", "bits"), [(1, 1, 12), (16, 10, 12), (2**10, 2**10, 4), (3, 5000, 10)])
def test_bits_leave_room_for_all_clients(clients, phase, bits):
    assert loss_bits(clients, phase) == bits
    assert clients * phase * 2**bits <= 2**24
    if clients * phase == 2**20:
        with pytest.raises(ConfigurationError, match="steps_per_exchange"):
            loss_bits(clients, phase + 1)


def test_scores_are_excesses_whatever_the_totals():
    """Totals far beyond what float32 holds; the floor makes those below it equal."""
    rng = np.random.default_rng(0)
    exact = 2.0**33 + rng.integers(0, 2**12, 20) / 16
    high = exact.astype(np.float32)
    totals = jnp.asarray(high), jnp.asarray((exact - high).astype(np.float32))
    assert int(least(totals)) == int(exact.argmin())
    assert_array_equal(relative(totals, jnp.float32(100.0)), np.minimum(exact - exact.min(), 100))
    for floor in np.float32([2.0**32, 2.0**33 + 64, 2.0**34]):
        over = relative(totals, jnp.float32(1e6), jnp.asarray(floor))
        assert_array_equal(over, np.maximum(exact, floor) - np.maximum(exact.min(), floor))


# -- streams -----------------------------------------------------------------------------------------------------------

ALL = {
    "bernoulli": lambda m=3, seed=1: streams.stochastic_experts(m, 4, seed=seed),
    "correlated": lambda m=3, seed=1: streams.stochastic_experts(m, 4, law="correlated", seed=seed),
    "heavy": lambda m=3, seed=1: streams.stochastic_experts(m, 4, law="heavy", seed=seed),
    "realizable": lambda m=3, seed=1: streams.realizable_experts(m, 4, seed=seed),
    "near": lambda m=3, seed=1: streams.realizable_experts(m, 4, optimal_loss=70, horizon=9000, seed=seed),
    "drifting": lambda m=3, seed=1: streams.drifting_experts(m, 4, period=700, seed=seed),
    "hard": lambda m=3, seed=1: streams.hard_experts(m, 4, seed=seed),
    "hidden": lambda m=3, seed=1: streams.hidden_expert(m, 4, seed=seed),
}
ALIKE = {"drifting", "hard"}


@pytest.mark.parametrize("name", ALL)
def test_streams_are_the_same_however_they_are_read(name):
    """Over the borders of pages and periods, too."""
    whole, steps = ALL[name]().read(0, 50_000).x, (0, 1, 690, 1410, 21_840, 21_850, 43_700, 50_000)
    parts = [ALL[name]().read(a, b).x for a, b in pairwise(steps)]
    assert_array_equal(whole, np.concatenate(parts))
    assert whole.shape == (50_000, 3, 4)
    assert whole.min() >= 0
    assert whole.max() <= 1
    assert name == "hidden" or (whole != ALL[name](seed=2).read(0, 50_000).x).any()
    assert (whole == whole[:, :1]).all() == (name in ALIKE | {"hidden"})
    if name in ALIKE:  # an adversary does not depend on how many clients there are
        assert_array_equal(whole[:, :1], ALL[name](m=1).read(0, 50_000).x)


@pytest.mark.parametrize("law", ["bernoulli", "correlated", "heavy"])
def test_stochastic_experts_have_their_means(law):
    steps, gap = 20_000, 0.2
    stream = streams.stochastic_experts(5, 4, gap=gap, law=law, seed=3)
    x = stream.read(0, steps).x.reshape(-1, 4).astype(np.float64)
    means = np.full(4, 0.5)
    means[stream.best] -= gap
    assert (np.abs(x.mean(axis=0) - means) < FIVE * x.std(axis=0) / math.sqrt(len(x))).all()
    others = np.delete(x, stream.best, axis=1)
    correlation = np.corrcoef(others.T)[np.triu_indices(3, 1)]
    # Half of all steps look at one common number: the covariance of 0-or-1 losses of mean 1/2 is half the variance.
    assert_allclose(correlation, 0.5 if law == "correlated" else 0.0, atol=FIVE / math.sqrt(len(x)))
    if law == "heavy":
        # min(1, Pareto of index 1.5): the tail falls as z^-1.5 below 1, and there is an atom at 1.
        low = x[:, stream.best]
        smallest = low.min()
        for z in (2.0, 3.0):
            share = np.mean(low > z * smallest)
            assert abs(share - z**-1.5) < FIVE * math.sqrt(z**-1.5 / len(x)) + 0.002
        assert np.mean(low == 1) > 0.02
    else:
        assert set(np.unique(x)) == {0.0, 1.0}


@pytest.mark.parametrize(("total", "horizon"), [(0, 1000), (7, 1000), (1000, 1000), (333, 1000)])
def test_the_best_expert_loses_exactly_its_total(total, horizon):
    stream = streams.realizable_experts(3, 5, optimal_loss=total, horizon=horizon, seed=4)
    x = stream.read(0, 2 * horizon).x
    assert_array_equal(x[:horizon, :, stream.best].sum(axis=0), total)
    assert_array_equal(x[horizon:, :, stream.best].sum(axis=0), 0)
    others = np.delete(x, stream.best, axis=2)
    assert abs(others.mean() - 0.5) < FIVE * 0.5 / math.sqrt(others.size)
    half = x[: horizon // 2, 0, stream.best].sum()
    assert abs(half - total / 2) <= 1  # evenly spread
    for pooled in (False, True):
        sums = stream.sums(Every(10), horizon, pooled=pooled).read(0, horizon // 10).x
        assert_array_equal(sums[:, :, stream.best].sum(axis=0), total * (3 if pooled else 1))


@pytest.mark.parametrize("pooled", [False, True])
def test_sums_have_the_law_of_sums(pooled):
    """Binomial counts in cells, chi-square at a false alarm of 1e-4; and blocks of any schedule."""
    clients, block, blocks = 4, 6, 4000
    stream = streams.stochastic_experts(clients, 3, gap=0.3, seed=5)
    made = stream.sums(Every(block), block * blocks, pooled=pooled).read(0, blocks).x
    assert made.shape == (blocks, 1 if pooled else clients, 3)
    trials = block * (clients if pooled else 1)
    for expert, mean in enumerate(stream.means):
        counts = np.bincount(made[:, :, expert].astype(int).ravel(), minlength=trials + 1)
        expected = made[:, :, expert].size * stats.binom(trials, mean).pmf(np.arange(trials + 1))
        common = expected > 5
        counts, expected = (
            np.append(counts[common], counts[~common].sum()),
            np.append(expected[common], expected[~common].sum()),
        )
        keep = expected > 1e-9
        assert stats.chisquare(counts[keep], expected[keep] * counts.sum() / expected[keep].sum()).pvalue > 1e-4
    phases = Phases((Segment(1, 0), Segment(2, 5), Segment(1, 100)))
    rows = stream.sums(phases, 120, pooled=pooled)
    assert rows.length == 4
    assert rows.read(2, 3).x.mean() > rows.read(0, 2).x.mean()
    again = stream.sums(Every(block), block * blocks, pooled=pooled)
    assert_array_equal(np.concatenate([again.read(a, a + 1000).x for a in range(0, 4000, 1000)]), made)


def test_sums_do_not_depend_on_what_was_drawn_ahead(monkeypatch):
    """Pages of two rows, read backwards, again, and up to the end: what is drawn meanwhile is never read as another."""
    monkeypatch.setattr(experts, "_PAGE_SUMS", 20)
    stream = streams.stochastic_experts(1, 10, seed=3)
    whole = stream.sums(Every(5), 45).read(0, 9).x
    some = stream.sums(Every(5), 45)
    for start, stop in ((7, 9), (0, 3), (3, 8), (1, 2), (8, 9)):
        assert_array_equal(some.read(start, stop).x, whole[start:stop])
    assert len(np.unique(whole, axis=0)) == 9


def test_sums_need_a_simple_law():
    for name in ("correlated", "heavy", "hard", "drifting"):
        with pytest.raises(DataError, match="sums have no simple law"):
            ALL[name]().sums(Every(10), 100)


def test_drifting_experts_change_places():
    """In a period half of the experts lose 3/4, the others 1/4; over many, all about the same."""
    period, periods, dim = 1000, 60, 6
    x = streams.drifting_experts(2, dim, period=period, seed=0).read(0, period * periods).x[:, 0]
    means = x.reshape(periods, period, dim).mean(axis=1)
    good = means < 0.5
    assert_array_equal(good.sum(axis=1), dim // 2)
    assert_allclose(means, np.where(good, 0.25, 0.75), atol=FIVE * math.sqrt(3 / 16 / period))
    assert len({tuple(row) for row in good.tolist()}) > 10
    assert_allclose(means.mean(axis=0), 0.5, atol=FIVE * 0.25 / math.sqrt(periods))


def test_hard_experts_are_fair_coins_of_which_the_best_is_lucky():
    """The best of d loses about sqrt(T ln(d) / 2) less than half. 40 streams, five standard errors."""
    steps, dim = 2000, 20
    x = np.stack([streams.hard_experts(1, dim, seed=s).read(0, steps).x[:, 0] for s in range(40)])
    assert abs(x.mean() - 0.5) < FIVE * 0.5 / math.sqrt(x.size)
    lucky = steps / 2 - x.sum(axis=1).min(axis=1)
    assert 0.6 * math.sqrt(steps * math.log(dim) / 2) < lucky.mean() < 1.05 * math.sqrt(steps * math.log(dim) / 2)


def test_one_expert_is_hidden():
    best = [streams.hidden_expert(1, 4, seed=s).best for s in range(400)]
    assert stats.chisquare(np.bincount(best, minlength=4)).pvalue > 1e-4
    stream = streams.hidden_expert(2, 4, seed=0)
    assert_array_equal(stream.read(0, 50).x, np.broadcast_to(1 - np.eye(4)[stream.best], (50, 2, 4)))
    sums = stream.sums(Every(10), 50, pooled=True).read(0, 5).x
    assert_array_equal(sums, np.broadcast_to(20 * (1 - np.eye(4)[stream.best]), (5, 1, 4)))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: streams.stochastic_experts(2, 1, seed=0), "experts"),
        (lambda: streams.stochastic_experts(2, 3, gap=0.6, seed=0), "gap"),
        (lambda: streams.stochastic_experts(2, 3, law="normal", seed=0), "law"),
        (lambda: streams.realizable_experts(2, 3, mean=1.1, seed=0), "mean"),
        (lambda: streams.realizable_experts(2, 3, optimal_loss=5, seed=0), "horizon"),
        (lambda: streams.realizable_experts(2, 3, optimal_loss=5, horizon=4, seed=0), "horizon"),
        (lambda: streams.drifting_experts(2, 3, period=0, seed=0), "period"),
        (lambda: streams.hard_experts(2, 1, seed=0), "experts"),
        (lambda: streams.hidden_expert(2, 1, seed=0), "experts"),
        (lambda: streams.hidden_expert(0, 3, seed=0), "learners"),
    ],
)
def test_bad_streams_are_refused(make, says):
    with pytest.raises(ConfigurationError, match=says):
        make()


# -- hedge, and follow the leader --------------------------------------------------------------------------------------


def test_hedge_against_numpy():
    dim, clients, phase, rounds = 5, 3, 2, 40
    made = hedge(dim, clients, horizon=rounds * phase, steps_per_exchange=phase)
    x = np.random.default_rng(0).integers(0, 17, (rounds * phase, clients, dim)) / 16
    run = simulate(made, given(x), rounds * phase, seed=0, record=["decisions"], measure="local", every=1, **QUIET)
    eta, totals, mixtures = math.sqrt(8 * math.log(dim) / (rounds * phase * phase)), np.zeros(dim), []
    for t in range(rounds):
        weights = np.exp(-eta * totals / clients)
        mixtures.append(weights / weights.sum())
        totals += x[t * phase : (t + 1) * phase].sum(axis=(0, 1))
    assert_allclose(run.transcript["decisions"], np.repeat(np.array(mixtures)[:, None], clients, axis=1), atol=1e-6)
    blocks = x.reshape(rounds, phase, clients, dim)
    lost = np.einsum("rpcd,rd->rc", blocks, np.array(mixtures)) / phase
    assert_allclose(run.losses, lost, atol=1e-6)
    # The regret of the theory: T/8 eta + ln(d) / eta with phases of N as steps.
    assert expert_regret(run, given(x)).mean() * rounds * phase <= phase * math.sqrt(rounds * math.log(dim) / 2)


def test_hedge_needs_a_positive_step():
    assert float(hedge(3, 2, horizon=10, step=0.5).public["step"](np.array([1]))[0]) == 0.25
    with pytest.raises(ConfigurationError, match="step"):
        hedge(3, 2, horizon=10, step=0.0)


def test_the_leader_is_the_lowest_of_the_best():
    x = np.array(
        [
            [[0.0, 0.0, 0.0, 0.0]],
            [[1.0, 0.5, 0.5, 1.0]],
            [[0.0, 0.5, 0.25, 0.0]],
            [[0.0, 0.0, 0.25, 0.0]],
            [[1.0, 1.0, 1.0, 0.0]],
        ]
    )
    made = follow_the_leader(4, 1, horizon=5)
    run = simulate(made, given(x), 5, seed=0, record=["broadcasts", "decisions"], **QUIET)
    # Totals: all 0; 1, .5, .5, 1; 1, 1, .75, 1; 1, 1, 1, 1; 2, 2, 2, 1.
    assert_array_equal(run.transcript["broadcasts"], [0, 1, 2, 0, 3])
    assert_array_equal(run.transcript["decisions"][:, 0].argmax(axis=-1), [0, 0, 1, 2, 0])


@pytest.mark.parametrize("make", [hedge, follow_the_leader])
def test_baselines_are_not_private_and_run_on_sums(make):
    made = make(4, 3, horizon=60, steps_per_exchange=5)
    assert made.guarantee.basis == "none"
    x = streams.stochastic_experts(3, 4, seed=0).read(0, 60).x
    sums = x.reshape(12, 5, 3, 4).sum(axis=1)
    inputs = [(made, x), (summed(made), sums)]
    runs = [simulate(each, given(y), len(y), seed=0, record=["broadcasts"], **QUIET) for each, y in inputs]
    assert_allclose(runs[0].transcript["broadcasts"], runs[1].transcript["broadcasts"], rtol=1e-6)
    for options in ({"steps_per_exchange": 61}, {"steps_per_exchange": 0}):
        with pytest.raises(ConfigurationError, match="steps_per_exchange"):
            make(4, 3, **{"horizon": 60} | options)
    with pytest.raises(ConfigurationError, match="problem: got 1"):
        make(1, 3, horizon=60)
    with pytest.raises(ConfigurationError, match="complete"):
        make(4, Federation(3, participation=0.5, seed=0), horizon=60)


# -- the shrinking dartboard -------------------------------------------------------------------------------------------


def chances(made, x):
    """Without a limit of draws: the law of the expert of every phase, by the rule of the module."""
    eta = 1 / made.scales["keep"][0].value
    keeps = math.exp(-eta * float(made.public["restless"](np.array([1]))[0]))
    law, totals = np.full(x.shape[-1], 1 / x.shape[-1]), np.zeros(x.shape[-1])
    found = [law]
    for losses in x:
        totals += losses
        stays = law * keeps * np.exp(-eta * losses)
        drawn = np.exp(-totals / made.scales["choice"][0].value)
        law = stays + (1 - stays.sum()) * drawn / drawn.sum()
        found.append(law)
    return np.array(found), eta


def test_without_a_limit_the_expert_has_the_law_of_hedge():
    """Exactly, by computation; and of 400 runs at the end, at a false alarm of 1e-4 (chi-square)."""
    dim, rounds = 4, 12
    made = shrinking_dartboard(dim, 1, horizon=rounds, budget=Budget(20.0))
    assert made.server.draws == rounds  # so many are allowed that there is no limit
    x = (np.random.default_rng(1).random((rounds, dim)) < [0.3, 0.4, 0.5, 0.7]).astype(float)
    laws, eta = chances(made, x)
    hedged = np.exp(-eta * np.vstack([np.zeros(dim), np.cumsum(x, axis=0)]))
    assert_allclose(laws, hedged / hedged.sum(axis=1, keepdims=True), rtol=1e-4)
    assert 0.3 < laws[-1].max() < 0.999
    run = simulate(made, given(x[:, None]), rounds, seeds=range(400), record=["broadcasts"], **QUIET)
    named = run.transcript["broadcasts"]
    for t in (0, 3, rounds):
        expected = 400 * laws[t]
        common = expected > 4
        counts = np.bincount(named[:, t], minlength=dim)
        counts = np.append(counts[common], counts[~common].sum())
        expected = np.append(expected[common], expected[~common].sum())
        if len(expected) > 1 and expected[-1] < 1e-9:
            counts, expected = counts[:-1], expected[:-1]
        assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-4


def test_draws_never_exceed_their_number():
    """Losses so large that nothing is kept: draws until they run out, then the expert stays."""
    dim, rounds = 30, 200
    made = shrinking_dartboard(
        dim, 1, horizon=rounds * 40, steps_per_exchange=40, budget=Budget(3.0, 1e-5), failure=0.3
    )
    ones = given(np.ones((rounds * 40, 1, dim)))
    few = made.server.draws
    assert few <= rounds
    limited = replace(made, server=replace(made.server, draws=7))
    named = [
        simulate(each, ones, rounds * 40, seed=0, record=["broadcasts"], **QUIET).transcript["broadcasts"]
        for each in (made, limited)
    ]
    assert np.count_nonzero(np.diff(named[0])) <= few
    assert np.count_nonzero(np.diff(named[1])) <= 7
    first = np.flatnonzero(named[0] != named[1])
    assert len(set(named[1][first[0] - 1 :].tolist())) == 1


@pytest.mark.parametrize("budget", [Budget(1.0), Budget(1.0, 1e-5), Budget(0.1, 1e-3), Budget(10.0)])
@pytest.mark.parametrize(("horizon", "phase", "clients"), [(1, 1, 1), (1000, 1, 1), (10_000, 10, 8)])
def test_the_dartboard_keeps_its_budget(budget, horizon, phase, clients):
    made = shrinking_dartboard(10, clients, horizon=horizon, steps_per_exchange=phase, budget=budget)
    assert 0.5 * budget.epsilon < made.guarantee.epsilon <= budget.epsilon
    assert made.guarantee.deltas[0] <= budget.delta
    assert made.server.drawing.touches == made.server.draws <= horizon // phase
    keeping, drawing = (release.losses[0].epsilon(0.0) for release in made.releases)
    if not budget.delta:
        assert_allclose(keeping + drawing, made.guarantee.epsilon, rtol=1e-9)


def test_keeping_costs_the_largest_change_of_either_answer():
    for restless in (0.05, 0.3, 0.9):
        for scale in (0.5, 3.0, 40.0):
            release = Keeping((), restless=restless).at_scale(Sensitivity(1.0, 1.0), noise=scale)
            loss = np.linspace(0, 60, 6001)
            keep = (1 - restless) * np.exp(-loss / scale)
            moved = (1 - restless) * np.exp(-(loss + 1) / scale)
            worst = max(np.log(keep / moved).max(), np.log((1 - moved) / (1 - keep)).max())
            assert_allclose(release.losses[0].epsilon(0.0), worst, rtol=1e-9)
    again = Keeping((), restless=0.1).calibrate(Sensitivity(1.0, 1.0), Budget(0.7))
    assert_allclose(again.losses[0].epsilon(0.0), 0.7)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"budget": 1.0}, PrivacyError, "budget"),
        ({"failure": 0.0}, ConfigurationError, "failure"),
        ({"failure": 1.0}, ConfigurationError, "failure"),
        ({"steps_per_exchange": 101}, ConfigurationError, "steps_per_exchange"),
        ({"problem": 1}, ConfigurationError, "problem: got 1"),
        ({"learners": Federation(2, participation=0.5, seed=0)}, ConfigurationError, "complete"),
    ],
)
def test_bad_dartboards_are_refused(options, error, says):
    given = {"problem": 3, "learners": 2, "horizon": 100, "budget": Budget(1.0)} | options
    with pytest.raises(error, match=says):
        shrinking_dartboard(**given)
