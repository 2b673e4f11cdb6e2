"""fed_svt: its constants, Algorithms 4 and 5 line by line, exact sums, runs on sums, regrets, refusals.

Seeds are fixed: what passes once passes always. False-alarm rates are those of fresh seeds.
"""

from __future__ import annotations

import math
from functools import cache, partial
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from gossamer import Budget, ConfigurationError, DataError, PrivacyError, problems, simulate, streams
from gossamer.algorithms import fed_svt, follow_the_leader, summed
from gossamer.algorithms.experts.clients import loss_bits
from gossamer.algorithms.experts.fed_svt import most_changes
from gossamer.core import Federation
from gossamer.metrics import expert_regret
from gossamer.privacy import FastNoise
from gossamer.problems import Block
from tests.instances import Given

PURE, APPROXIMATE = Budget(1.0), Budget(1.0, 1e-5)
KAPPA = 93  # the paper's for 100 experts and a failure of 0.05: 3 * 7 + 24 ln 20, rounded up


def make(problem=100, learners=16, **options):
    return fed_svt(problem, learners, **{"horizon": 10_000, "budget": PURE} | options)


def scale(made, name):
    return made.scales[name][0].value


def eta(made):
    """What a draw costs, from its noise."""
    return 2 * made.releases[1].sensitivities[0].l2 / scale(made, "choice")


def limit(made):
    return float(made.public["threshold"](np.array([1]))[0])


# -- constants ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calibration", "epsilon", "share", "noise", "costs"),
    [
        ("published", 1.0, 1 / 2, (4, 8), 0.75),
        ("published", 0.2, 1 / 2, (4, 8), 0.75),
        ("remainder", 1.0, 3 / 4, (4, 8), 1.0),
        ("remainder", 3.0, 3 / 4, (4, 8), 1.0),
        ("halves", 1.0, 1 / 2, (2, 2), 1.0),
    ],
)
def test_constants_of_pure_options_are_those_of_soundness(calibration, epsilon, share, noise, costs):
    made = make(calibration=calibration, budget=Budget(epsilon))
    assert made.server.comparing.count == made.server.drawing.touches == KAPPA
    assert_allclose(eta(made), share * epsilon / KAPPA)
    assert_allclose((scale(made, "threshold"), scale(made, "query")), np.array(noise) / epsilon)
    assert_allclose(made.guarantee.epsilon, costs * epsilon, rtol=1e-9)
    assert made.guarantee.basis == ("published" if calibration == "published" else "proven")
    phases = 1000
    assert_allclose(limit(made), noise[1] / epsilon * math.log(2 * phases**2 / 0.05) + 4 / eta(made))


@pytest.mark.parametrize(
    ("epsilon", "delta", "ratio", "published"),
    [
        (0.1, 1e-5, 1.62, 0.692),
        (1.0, 1e-5, 1.33, 0.799),
        (5.0, 1e-5, 1.12, 0.910),
        (10.0, 1e-5, 1.01, 0.990),
        (10.0, 1e-3, 0.97, 1.035),
        (20.0, 1e-5, 0.89, 1.120),
    ],
)
def test_the_remainder_with_a_delta_has_the_etas_of_soundness(epsilon, delta, ratio, published):
    """The table of SOUNDNESS 5.2; it depends on kappa only through kappa eta^2."""
    budget = Budget(epsilon, delta)
    paper, ours = (make(calibration=each, budget=budget) for each in ("published", "remainder"))
    assert_allclose(eta(paper), epsilon / math.sqrt(KAPPA * math.log(1 / delta)))
    assert_allclose(eta(ours) / eta(paper), ratio, atol=0.006)
    assert_allclose(paper.guarantee.epsilon / epsilon, published, atol=0.002)
    assert 0.999 * epsilon < ours.guarantee.epsilon <= epsilon
    assert paper.guarantee.basis == "published"
    assert ours.guarantee.basis == "proven"


@pytest.mark.parametrize("calibration", ["remainder", "halves"])
@pytest.mark.parametrize("budget", [PURE, APPROXIMATE])
def test_other_splits_spend_any_budget(calibration, budget):
    promise = make(calibration=calibration, budget=budget).guarantee
    assert promise.basis == "proven"
    assert 0.999 * budget.epsilon < promise.epsilon <= budget.epsilon
    assert promise.delta <= budget.delta


@pytest.mark.parametrize("budget", [PURE, APPROXIMATE, Budget(0.05), Budget(8.0, 1e-3)])
@pytest.mark.parametrize("experts", [2, 100])
def test_tight_constants_spend_the_budget_and_lower_the_threshold(budget, experts):
    made = make(experts, budget=budget)
    assert made.server.comparing.count == made.server.drawing.touches == most_changes(experts, 0.05)
    assert 0.999 * budget.epsilon < made.guarantee.epsilon <= budget.epsilon
    assert limit(made) < limit(make(experts, budget=budget, calibration="remainder"))
    # What the proof needs: a change means a loss of 2 ln 4 / eta, whatever the noise is, but for the failure.
    query, threshold = scale(made, "query"), scale(made, "threshold")
    slack = query * math.log(1000 / 0.05) + threshold * math.log((made.server.comparing.count + 1) / 0.05)
    assert_allclose(limit(made), slack + 2 * math.log(4) / eta(made))


def test_the_threshold_as_printed_has_no_noise_and_no_guarantee():
    made = make(calibration="literal")
    assert scale(made, "threshold") == 0
    assert made.guarantee.basis == "none"


@pytest.mark.parametrize(("experts", "failure"), [(2, 0.05), (20, 0.2), (100, 0.05), (100, 0.001)])
def test_most_changes_is_the_quantile_of_the_number_of_trials(experts, failure):
    """Against trials that succeed one time in three. Five standard deviations: a false alarm of 6e-7 each."""
    halvings, runs = math.ceil(math.log2(experts)), 200_000
    rng = np.random.default_rng(0)
    trials = rng.geometric(1 / 3, (runs, halvings)).sum(axis=1)
    most = most_changes(experts, failure)
    spread = 5 * math.sqrt(failure / runs)
    assert np.mean(trials > most) <= failure + spread
    assert np.mean(trials > most - 1) >= failure - spread


# -- the algorithm -----------------------------------------------------------------------------------------------------


class Draws:
    """Noise of unit scale that a test knows too, times the scale."""

    def __init__(self, exchanges, dim, seed=0):
        rng = np.random.default_rng(seed)
        self.unit = {
            "query": rng.laplace(size=exchanges),
            "threshold": rng.laplace(size=exchanges),
            "choice": rng.gumbel(size=(exchanges, dim)),
        }

    def draw(self, name, spec, scales, start, stop):
        unit = self.unit[name.rsplit("/", 1)[-1]]
        return (scales[0].value * unit[None, start:stop]).astype(np.float32)


def reference(made, losses, draws):
    """The server in double precision; losses have axes (phase, client, step, expert). The experts it names."""
    scales = {name: scale(made, name) for name in ("query", "threshold", "choice")}
    draw = {name: scales[name] * unit for name, unit in draws.unit.items()}
    floor = float(made.public["floor"](np.array([1]))[0])
    totals, since, left = np.zeros(losses.shape[-1]), 0.0, made.server.comparing.count
    expert = int(np.argmax(draw["choice"][0]))
    named, noisy = [expert], None
    for t, phase in enumerate(losses.sum(axis=(1, 2)), start=1):
        totals += phase
        if left:
            noisy = limit(made) + draw["threshold"][t] if noisy is None else noisy
            since += phase[expert]
            if since + draw["query"][t] > noisy:
                expert = int(np.argmax(draw["choice"][t] - np.maximum(totals, floor)))
                left, since, noisy = left - 1, 0.0, None
        named.append(expert)
    return np.array(named), left


@pytest.mark.parametrize(
    ("options", "exhausted"),
    [
        ({"budget": Budget(1.0)}, False),
        ({"budget": Budget(30.0)}, True),
        ({"budget": Budget(30.0), "optimal_loss": 3.0}, True),
        ({"budget": Budget(10.0), "calibration": "remainder"}, False),
        ({"budget": Budget(20.0), "calibration": "published"}, False),
        ({"budget": Budget(20.0), "calibration": "literal"}, False),
        ({"budget": Budget(10.0, 1e-5), "calibration": "remainder"}, False),
    ],
)
def test_the_server_is_the_papers(options, exhausted):
    dim, clients, phase, rounds = 6, 3, 4, 300
    made = fed_svt(dim, clients, horizon=rounds * phase, steps_per_exchange=phase, **options)
    x = np.random.default_rng(1).integers(0, 65, (rounds * phase, clients, dim)) / np.float32(64)
    draws, stream = Draws(rounds + 1, dim), Given(x, np.zeros(x.shape[:2], np.float32))
    run = simulate(
        made, stream, len(x), seed=0, noise=lambda seed: draws, record=["broadcasts", "decisions"], progress=False
    )
    losses = x.reshape(rounds, phase, clients, dim).swapaxes(1, 2).astype(np.float64)
    named, left = reference(made, losses, draws)
    assert_array_equal(run.transcript["broadcasts"], named)
    assert (left == 0) == exhausted
    assert 2 < np.count_nonzero(np.diff(named)) <= made.server.comparing.count
    # What is played in a phase is what was named before it; before the first exchange there is no step.
    assert_array_equal(run.transcript["decisions"][1:].argmax(axis=-1), np.repeat(named[:-1, None], clients, axis=1))


def test_changes_never_exceed_kappa_and_then_the_expert_stays():
    """All lose so much that each phase is above the threshold: kappa draws, one after the other, and no more."""
    dim, phase, rounds = 50, 200, 400
    made = fed_svt(dim, 1, horizon=rounds * phase, steps_per_exchange=phase, budget=Budget(10.0), failure=0.2)
    kappa = made.server.comparing.count
    assert kappa == most_changes(dim, 0.2) < rounds / 10
    one = made.releases[0].losses[0].epsilon(0.0) + kappa * eta(made)
    assert_allclose(made.guarantee.epsilon, one)
    ones = Given(np.ones((rounds * phase, 1, dim), np.float32), np.zeros((rounds * phase, 1), np.float32))
    run = simulate(made, ones, rounds * phase, seed=3, record=["broadcasts"], progress=False)
    named = run.transcript["broadcasts"]
    assert limit(made) + 20 * scale(made, "query") < phase
    assert len(set(named[: kappa + 1].tolist())) > kappa / 3
    assert named[kappa - 1] != named[kappa]
    assert len(set(named[kappa:].tolist())) == 1


def test_the_first_expert_is_uniform():
    """Chi-square of 600 runs at a false alarm of 1e-4."""
    made = fed_svt(5, 2, horizon=2, steps_per_exchange=2, budget=PURE)
    stream = streams.realizable_experts(2, 5, seed=0)
    run = simulate(made, stream, 2, seeds=range(600), record=["broadcasts"], progress=False)
    counts = np.bincount(run.transcript["broadcasts"][:, 0], minlength=5)
    assert stats.chisquare(counts).pvalue > 1e-4


# -- exact sums --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clients", "phase"), [(1, 1), (16, 10), (64, 256), (1024, 1024)])
def test_sums_over_all_clients_of_a_phase_are_exact(clients, phase):
    bits = loss_bits(clients, phase)
    assert 4 <= bits <= 12
    assert clients * phase * 2**bits <= 2**24
    x = np.random.default_rng(0).random((clients, phase, 2), np.float32)
    problem = problems.Experts(2)
    messages = jnp.stack([problem.loss_sums(Block(each, np.zeros(phase)), bits) for each in jnp.asarray(x)[:8]])
    whole = np.round(x.astype(np.float64) * 2**bits) / 2**bits
    assert_array_equal(np.asarray(messages, np.float64), whole[:8].sum(axis=1))
    total = np.asarray(jnp.sum(jnp.asarray(whole.sum(axis=1), jnp.float32), axis=0), np.float64)
    assert_array_equal(total, whole.sum(axis=(0, 1)))


losses = st.floats(-2, 3, width=32)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(losses, losses), min_size=2, max_size=2),
    other=st.tuples(losses, losses),
    rest=st.integers(0, 2**24 - 2**6),
    bits=st.integers(4, 12),
)
def test_a_replaced_sample_moves_what_is_compared_by_one_at_most(rows, other, rest, bits):
    """Exactly, not up to a rounding: whatever the sample, and whatever all others add up to."""
    problem = problems.Experts(2)
    others = jnp.full(2, np.float32(max(0, rest - 2 * 2**bits) / 2**bits))

    def increment(sample):
        block = Block(jnp.array([rows[0], sample], jnp.float32), jnp.zeros(2))
        return np.asarray(jnp.sum(jnp.stack([others, problem.loss_sums(block, bits)]), axis=0), np.float64)

    assert np.abs(increment(rows[1]) - increment(other)).max() <= 1


# -- runs on sums ------------------------------------------------------------------------------------------------------


def regrets(made, make_stream, *, seeds=1, number=4, pooled=True, steps=None):
    """Every client's regret over all steps, runs on sums."""
    found = []
    for s in range(number):
        stream = make_stream(s).sums(made.schedule, steps or made.guarantee.horizon, pooled=pooled)
        run = simulate(
            summed(made, pooled=pooled),
            stream,
            stream.length,
            seeds=range(100 * s, 100 * s + seeds),
            measure="local",
            progress=False,
        )
        found.append(expert_regret(run, stream).mean(axis=-1) * stream.length / (made.learners if pooled else 1))
    return np.concatenate(found)


@cache
def literal_regrets(dim, clients, horizon, number):
    """Of runs on the samples themselves."""
    made = fed_svt(dim, clients, horizon=horizon, budget=Budget(10.0))

    def literal(s):
        stream = streams.realizable_experts(clients, dim, seed=s)
        run = simulate(made, stream, horizon, seed=s, measure="local", progress=False)
        return expert_regret(run, stream).mean() * horizon

    return np.array([literal(s) for s in range(number)])


@pytest.mark.parametrize("pooled", [False, True])
def test_runs_on_sums_have_the_law_of_runs_on_samples(pooled):
    """Two-sample Kolmogorov-Smirnov test of 100 regrets each, at a false alarm of 1e-4."""
    dim, clients, horizon, number = 8, 4, 200, 100
    made = fed_svt(dim, clients, horizon=horizon, budget=Budget(10.0))
    plain = literal_regrets(dim, clients, horizon, number)
    of_sums = regrets(
        made,
        lambda s: streams.realizable_experts(clients, dim, seed=1000 + s),
        seeds=1,
        number=number,
        pooled=pooled,
    )
    assert stats.ks_2samp(plain, of_sums).pvalue > 1e-4
    assert np.std(plain) > 1
    # The test can fail: with half the budget regret is larger.
    other = fed_svt(dim, clients, horizon=horizon, budget=Budget(5.0))
    worse = regrets(
        other, lambda s: streams.realizable_experts(clients, dim, seed=1000 + s), seeds=1, number=number, pooled=pooled
    )
    assert stats.ks_2samp(plain, worse).pvalue < 1e-4


def test_pooled_sums_are_those_of_all_clients():
    """The same losses, once for every client and once added up, and the same noise: the same experts."""
    dim, clients, phase, rounds = 4, 3, 5, 40
    made = fed_svt(dim, clients, horizon=rounds * phase, steps_per_exchange=phase, budget=Budget(60.0))
    x = np.random.default_rng(0).integers(0, 2, (rounds * phase, clients, dim)).astype(np.float32)
    sums = x.reshape(rounds, phase, clients, dim).sum(axis=1)
    inputs = [(made, x), (summed(made), sums), (summed(made, pooled=True), sums.sum(axis=1, keepdims=True))]
    runs = [
        simulate(
            each, Given(y, np.zeros(y.shape[:2], np.float32)), len(y), seed=1, record=["broadcasts"], progress=False
        )
        for each, y in inputs
    ]
    for run in runs[1:]:
        assert_array_equal(run.transcript["broadcasts"], runs[0].transcript["broadcasts"])
    assert len(set(runs[0].transcript["broadcasts"].tolist())) > 1


# -- regret ------------------------------------------------------------------------------------------------------------


def mean_regret(number, steps=2000, **options):
    """Of so many streams, with 32 seeds each; noise is for 10^4 steps, of which those matter that are simulated."""
    made = make(**options)
    of = partial(streams.realizable_experts, made.learners, made.problem.dim)
    return regrets(made, lambda s: of(seed=s), seeds=32, number=number, steps=steps).mean()


@pytest.mark.parametrize(("budget", "most"), [(PURE, 0.8), (APPROXIMATE, 0.85)], ids=["pure", "approximate"])
def test_the_remainder_has_less_regret_than_the_published_constants(budget, most):
    """d = 100, T = 10^4, N = 10, m = 16, as in the issue; means of 512 runs.

    One run varies by 0.36 of its mean, so the ratio of two means by 0.016. It is about 0.70 and 0.77: a false alarm of
    1e-6.
    """
    published, ours = (mean_regret(16, budget=budget, calibration=each) for each in ("published", "remainder"))
    assert 0.6 < ours / published <= most
    assert mean_regret(4, budget=budget) < 0.85 * ours  # tight


def test_four_times_the_clients_have_a_quarter_of_the_regret():
    """As long as it exceeds 3 N = 30: the ratio of two means of 256 runs varies by 0.13, a false alarm of 1e-6."""
    sizes = {1: 10_000, 4: 5000, 16: 2000, 64: 1000}
    found = [mean_regret(8, steps, learners=clients, calibration="remainder") for clients, steps in sizes.items()]
    assert found[2] > 30
    for few, many in pairwise(found):
        assert 3.3 <= few / many <= 4.7


def test_near_realizable_streams_end_with_the_best_expert():
    """L* = 20 for every client: the floor is m L*, and the regret does not grow with the horizon."""
    clients, horizon, best_loss = 16, 10_000, 20
    made = make(learners=clients, optimal_loss=best_loss)
    assert float(made.public["floor"](np.array([1]))[0]) == clients * best_loss
    assert_allclose(limit(made) - clients * best_loss, limit(make()))
    stream = streams.realizable_experts(clients, 100, optimal_loss=best_loss, horizon=horizon, seed=1)
    sums = stream.sums(made.schedule, horizon, pooled=True)
    run = simulate(
        summed(made, pooled=True),
        sums,
        sums.length,
        seeds=range(8),
        measure="local",
        record=["broadcasts"],
        progress=False,
    )
    assert (run.transcript["broadcasts"][:, -1] == stream.best).all()
    # One change after m L* + L at the latest, and of kappa changes few are needed.
    assert (expert_regret(run, sums)[:, 0] * sums.length / clients < 0.05 * horizon).all()


def test_permute_and_flip_is_about_as_good():
    """The ratio varies by 0.05: a false alarm of 1e-6."""
    flipped, plain = mean_regret(4, draws="permute-and-flip"), mean_regret(4)
    assert 0.75 < flipped / plain < 1.4


# -- local noise -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "aggregation", "law"),
    [
        (PURE, "tree", "laplace"),
        (PURE, "independent", "laplace"),
        (APPROXIMATE, "blt", "norm"),
        (APPROXIMATE, "toeplitz", "norm"),
    ],
)
def test_local_noise_is_two_sided_and_of_the_stated_scale(budget, aggregation, law):
    """Of all first messages, at a false alarm of 1e-4 (Kolmogorov-Smirnov)."""
    dim, clients = 5, 40
    made = fed_svt(dim, clients, horizon=80, budget=budget, trust="local", aggregation=aggregation)
    stream = streams.realizable_experts(clients, dim, seed=0)
    run = simulate(made, stream, 10, seeds=range(10), record=["messages"], progress=False)
    noise = (run.transcript["messages"][:, 0] - stream.read(0, 10).x.sum(axis=0)).ravel()
    of = getattr(stats, law)(scale=scale(made, "sums"))
    assert stats.kstest(noise, of.cdf).pvalue > 1e-4
    assert made.guarantee.observer == "peers"
    assert_allclose(made.guarantee.epsilon, budget.epsilon)


def test_local_clients_hear_the_leader_of_what_they_said():
    dim, clients, rounds = 4, 3, 16
    made = fed_svt(dim, clients, horizon=10 * rounds, budget=Budget(20.0), trust="local")
    stream = streams.realizable_experts(clients, dim, seed=0)
    run = simulate(made, stream, 10 * rounds, seed=0, record=["messages", "broadcasts"], progress=False)
    totals = np.cumsum(run.transcript["messages"].sum(axis=1), axis=0)
    assert_array_equal(run.transcript["broadcasts"], totals.argmin(axis=-1))
    assert_allclose(made.guarantee.epsilon, 20.0)


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"problem": 1}, ConfigurationError, "problem: got 1; allowed: a number of experts, at least 2"),
        ({"problem": True}, ConfigurationError, "problem: got True"),
        ({"problem": problems.Linear(3)}, ConfigurationError, "problem: got Linear"),
        ({"steps_per_exchange": 10_001}, ConfigurationError, "steps_per_exchange: got 10001"),
        ({"steps_per_exchange": 0}, ConfigurationError, "steps_per_exchange"),
        ({"optimal_loss": 10_001}, ConfigurationError, "optimal_loss: got 10001"),
        ({"optimal_loss": -1.0}, ConfigurationError, "optimal_loss"),
        ({"failure": 0.5}, ConfigurationError, "failure"),
        ({"learners": Federation(16, participation=0.5, seed=0)}, ConfigurationError, "always complete"),
        (
            {"learners": 2**12, "steps_per_exchange": 2**10, "horizon": 2**12},
            ConfigurationError,
            "steps_per_exchange: got 1024",
        ),
        ({"budget": 1.0}, PrivacyError, "budget"),
        (
            {"calibration": "A"},
            ConfigurationError,
            "calibration: got 'A'; allowed: 'tight' or 'published' or 'remainder'",
        ),
        ({"trust": "nobody"}, ConfigurationError, "trust"),
        ({"draws": "gumbel"}, ConfigurationError, "draws"),
        ({"draws": "permute-and-flip", "budget": APPROXIMATE}, ConfigurationError, "draws"),
        ({"aggregation": "tree"}, ConfigurationError, "aggregation"),
        ({"trust": "local", "calibration": "remainder"}, ConfigurationError, "calibration"),
        ({"trust": "local", "aggregation": "blt"}, PrivacyError, "'tree' or 'independent' with laplace noise"),
        ({"trust": "local", "aggregation": "forest"}, ConfigurationError, "aggregation: got 'forest'"),
        ({"budget": Budget(1e-6)}, PrivacyError, "a larger epsilon"),
    ],
)
def test_bad_settings_are_refused(options, error, says):
    with pytest.raises(error, match=says):
        make(**options)


class Refusing(FastNoise):
    def draw(self, *args):
        raise AssertionError("noise was drawn")


@pytest.mark.parametrize("bad", [-0.01, 1.01, np.nan])
def test_losses_outside_0_and_1_are_refused(bad):
    made = fed_svt(3, 2, horizon=20, budget=PURE)
    x = np.full((20, 2, 3), 0.5, np.float32)
    x[7, 1, 2] = bad
    with pytest.raises(DataError, match=r"\(7, 1, 2\)"):
        simulate(made, Given(x, np.zeros((20, 2), np.float32)), 20, seed=0, progress=False)


def test_more_steps_than_the_horizon_are_refused():
    made = fed_svt(3, 2, horizon=20, budget=PURE)
    with pytest.raises(PrivacyError, match="horizon of 20"):
        simulate(made, streams.realizable_experts(2, 3, seed=0), 30, seed=0, noise=Refusing, progress=False)


def test_local_noise_cannot_be_pooled():
    with pytest.raises(ConfigurationError, match="pooled"):
        summed(make(trust="local"), pooled=True)
    assert summed(make(trust="local")).learners == 16
    with pytest.raises(ConfigurationError, match="problem"):
        make(problem=summed(follow_the_leader(3, 2, horizon=9)).problem)
