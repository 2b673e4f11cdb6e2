"""online_federated: its noise, Algorithm 1 line by line, what one sample does to a round, missed rounds, refusals.

Seeds are fixed: what passes once passes always. False-alarm rates are those of fresh seeds.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2

from gossamer import Budget, Clip, ConfigurationError, PrivacyError, algorithms, problems, sets, simulate
from gossamer.algorithms import assumption_iv_4
from gossamer.algorithms.federated.online_federated import LocalSteps
from gossamer.algorithms.federated.round_sum import round_sum
from gossamer.auditing.attacks.online_federated import Repelling
from gossamer.auditing.attacks.pd_ftgl import strategy
from gossamer.cli.config import make_algorithm
from gossamer.core import Federation, Now, Rate
from gossamer.experiments.papers.paper_001.virtual import virtual_iterates
from gossamer.mechanisms.factors import Dense
from gossamer.privacy import FastNoise, Gaussian
from gossamer.privacy.secure import SecureNoise
from gossamer.problems import Block
from gossamer.simulation import engine
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.plan import Chunk
from gossamer.simulation.program import Program
from tests import instances

pytestmark = pytest.mark.unoptimized

DIM, LEARNERS, TAU, ROUNDS = 4, 3, 3, 4
BUDGET = Budget(2.0, 1e-3)
RECORD = ("broadcasts", "decisions", "messages")
STEP, SERVER_STEP, RADIUS, CLIP = 0.3, 0.7, 1.5, 0.5
SOME = Federation(LEARNERS, participation=0.6, seed=17)  # every learner misses a round, and takes part in two or three


def logistic(**options):
    return problems.Logistic(DIM, **{"feature_bound": RADIUS, "l2": 0.1} | options)


def make(problem=None, learners=LEARNERS, **options):
    defaults = {
        "horizon": ROUNDS * TAU,
        "steps_per_exchange": TAU,
        "budget": BUDGET,
        "clip": CLIP,
        "step": Rate(STEP),
        "server_step": SERVER_STEP,
    }
    return algorithms.online_federated(problem or logistic(), learners, **defaults | options)


def samples(steps=15):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(steps, LEARNERS, DIM)).astype(np.float32)
    return instances.Given(x, rng.integers(0, 2, (steps, LEARNERS)).astype(np.int32))


DATA = samples()


def run(algorithm, steps=ROUNDS * TAU, **options):
    defaults = {"seed": 5, "every": 1, "record": RECORD, "progress": False, "chunk": ROUNDS}
    return simulate(algorithm, DATA, steps, **defaults | options)


# -- noise -------------------------------------------------------------------------------------------------------------

# Budget; V of Lemma IV.8 and tight V, in units of 2 B max|c|; what the published noise really costs; the noise of the
# last prefix: published, tight, and tight with a row for every round. The table of SOUNDNESS 2.
TABLE = [
    (Budget(2.0, 1e-3), (1.984, 1.445), 1.365, (14.71, 10.71, 9.44), (0.728, 0.642)),
    (Budget(0.5, 1e-3), (7.566, 4.610), 0.277, (56.08, 34.17, 30.10), (0.609, 0.537)),
]


@pytest.mark.parametrize(("budget", "factors", "spent", "prefixes", "ratios"), TABLE)
def test_noise_is_that_of_the_table(budget, factors, spent, prefixes, ratios):
    rows = 4000
    options = {"horizon": rows, "steps_per_exchange": 4, "budget": budget, "clip": 1.0, "step": 0.1}
    logit = problems.Logistic(100, feature_bound=1.0)
    published, tight, by_round = (
        algorithms.online_federated(logit, 20, aggregation="toeplitz", **options, **more)
        for more in ({"calibration": "published"}, {}, {"release": "rounds"})
    )
    column = math.sqrt(1 + np.sum(np.cumprod(1 - 1 / (2 * np.arange(1, rows))) ** 2))
    scales = [made.scales["gradient"][0].value for made in (published, tight)]
    assert_allclose(scales, [2 * column * factor for factor in factors], rtol=3e-4)
    made = [one.releases[0] for one in (published, tight, by_round)]
    noise = [
        one.scales["gradient"][0].value * math.sqrt(one.mechanism.max_error(one.mechanism.horizon)) for one in made
    ]
    assert_allclose(noise, prefixes, rtol=8e-4)
    assert_allclose([noise[1] / noise[0], noise[2] / noise[0]], ratios, atol=6e-4)
    assert published.guarantee.basis == tight.guarantee.basis == by_round.guarantee.basis == "proven"
    assert_allclose(published.guarantee.epsilon, spent, atol=5e-4)
    for one in (tight, by_round):
        assert_allclose(one.guarantee.epsilon, budget.epsilon, rtol=1e-6)
        assert one.guarantee.covers(budget)


@pytest.mark.parametrize("aggregation", ["blt", "toeplitz", "tree", "independent"])
def test_published_noise_is_lemma_iv_8(aggregation):
    """sqrt(2) B max|c| / (sqrt(epsilon + ln 1/delta) - sqrt(ln 1/delta)), for every learner's budget."""
    budgets = [Budget(2.0, 1e-3), Budget(0.5, 1e-6), Budget(8.0, 0.1)]
    made = make(budget=budgets, aggregation=aggregation, calibration="published")
    matrix = strategy(made.releases[0].mechanism, ROUNDS * TAU)
    log = np.log([1 / budget.delta for budget in budgets])
    rho = np.square(np.sqrt([budget.epsilon for budget in budgets] + log) - np.sqrt(log))
    expected = math.sqrt(2) * CLIP * np.linalg.norm(matrix, axis=0).max() / np.sqrt(rho)
    assert_allclose([scale.value for scale in made.scales["gradient"]], expected, rtol=1e-6)
    assert made.guarantee.covers(budgets)
    assert made.guarantee.basis == "proven"


def test_every_learner_has_the_noise_of_its_budget():
    budgets = [Budget(0.5, 1e-3), Budget(2.0, 1e-6), Budget(8.0, 1e-3)]
    made = make(budget=budgets)
    assert made.guarantee.basis == "proven"
    assert all(assumption.enforced for assumption in made.guarantee.assumptions)
    assert_allclose(made.guarantee.epsilons, [budget.epsilon for budget in budgets], rtol=1e-6)
    assert made.guarantee.deltas == (1e-3, 1e-6, 1e-3)
    for learner, budget in enumerate(budgets):
        alone = make(budget=budget)
        assert made.scales["gradient"][learner] == alone.scales["gradient"][0]
    assert len({scale.value for scale in made.scales["gradient"]}) == 3


@pytest.mark.parametrize(
    ("aggregation", "release", "repeats"),
    [
        ("blt", "steps", "group"),
        ("independent", "steps", "compose"),  # fresh noise on every gradient
        ("independent", "rounds", "group"),  # a record may occur twice in one round
    ],
)
def test_what_a_record_that_repeats_costs(aggregation, release, repeats):
    """Where both samples of a round are one record, its sum moves twice as far: what is stated per record covers it."""
    options = {"horizon": 2, "steps_per_exchange": 2, "clip": 1.0, "aggregation": aggregation, "release": release}
    made = make(problems.Linear(1), 1, **options)
    assert made.guarantee.repeats == repeats
    scale = made.scales["gradient"][0].value
    matrix = strategy(made.releases[0].mechanism, 2 if release == "steps" else 1)
    both = matrix @ np.full(2, 2.0) if release == "steps" else matrix @ np.full(1, 4.0)
    promise = made.guarantee.for_stream(2).per_record()
    assert Gaussian(float(np.linalg.norm(both)) / scale).epsilon(promise.deltas[0]) <= promise.epsilon * (1 + 1e-9)


# -- Algorithm 1 -------------------------------------------------------------------------------------------------------


def clipped(gradient, clip):
    parts = [(gradient[part], bound) for part, bound in clip.parts(len(gradient))]
    return np.concatenate([g * min(1, bound / max(np.linalg.norm(g, clip.order), 1e-300)) for g, bound in parts])


def inside(vector, radius):
    return vector * min(1, radius / max(np.linalg.norm(vector), 1e-300))


def logistic_gradient(z, x, y):
    a = inside(x.astype(np.float64), RADIUS)
    return clipped((1 / (1 + np.exp(-a @ z)) - y) * a, Clip(l2=CLIP))


def correlated(made, rounds, present, seed):
    """B xi of every learner, for the rows that it uses: from the definition of C, and from the draws of the run."""
    if not made.releases:
        return np.zeros((LEARNERS, rounds * TAU, DIM))
    mechanism, spec = made.releases[0].mechanism, made.learner.noise["gradient"]
    drawn = FastNoise(seed).draw("gradient", spec, made.scales_of("gradient"), 0, rounds).astype(np.float64)
    noise = []
    for i in range(LEARNERS):
        xi = drawn[i, present[:, i]].reshape(-1, DIM)
        dense = isinstance(getattr(mechanism, "factor", None), Dense)
        if made.parameters["noise"].startswith("toeplitz"):  # example (iii): B = C, of h(0), h(1), ...
            h = np.cumprod([1.0, *(1 - 1 / (2 * j) for j in range(1, len(xi)))])
            noise.append(np.tril(h[np.abs(np.subtract.outer(np.arange(len(xi)), np.arange(len(xi))))]) @ xi)
            continue
        c = mechanism.factor.matrix.astype(np.float64) if dense else strategy(mechanism, len(xi))
        noise.append(np.tril(np.ones(c.shape)) @ np.linalg.inv(c) @ xi)
    return noise


def algorithm_1(made, rounds, rate, seed):
    """Messages and sums of the server in double precision: lines 3 to 17, and eq. (2) beside them."""
    tau, l2, by_round = made.learner.steps_per_exchange, made.problem.l2, made.parameters["noise"].count("round") > 0
    present = made.topology.present(np.arange(rounds))
    noise, steps = correlated(made, rounds, present, seed), [rate(r + 1) for r in range(rounds)]
    exact, before = np.zeros((LEARNERS, DIM)), np.zeros((LEARNERS, DIM))
    row = np.zeros(LEARNERS, int)
    total, equation_2, said, models, equations = np.zeros(DIM), np.zeros(DIM), [], [], []
    for r, eta in enumerate(steps):
        x, messages, moved = inside(total, made.problem.domain.radius), np.zeros((LEARNERS, DIM)), np.zeros(DIM)
        for i in np.flatnonzero(present[r]):
            z, start = x, noise[i][row[i] - 1] if row[i] else np.zeros(DIM)
            for t in range(tau):
                g = logistic_gradient(z, DATA.x[r * tau + t, i], DATA.y[r * tau + t, i])
                moved += (g + l2 * z) / (LEARNERS * tau)
                exact[i] += g
                if by_round and t < tau - 1:
                    change = g
                else:  # line 9 and line 10
                    now = exact[i] + noise[i][row[i]]
                    change = g if by_round else now - before[i]
                    before[i], row[i] = now, row[i] + 1
                z = z - eta * (change + l2 * z)  # line 11
            messages[i] = (x - z) / (eta * tau)  # line 13
            fresh = (noise[i][row[i] - 1] - start) / tau
            messages[i] += fresh if by_round else 0
            moved += fresh / LEARNERS
        total = total - eta * SERVER_STEP * tau * messages.mean(axis=0)  # line 16
        equation_2 = equation_2 - eta * SERVER_STEP * tau * moved
        said.append(messages)
        models.append(total)
        equations.append(equation_2)
    return np.array(said), np.array(models), np.array(equations), noise


CASES = {
    "blt, endless, one step": {"horizon": None, "steps_per_exchange": 1},
    "blt, missed rounds": {"learners": SOME},
    "optimal, one step": {"aggregation": "optimal", "steps_per_exchange": 1},
    "toeplitz, published": {"aggregation": "toeplitz", "calibration": "published"},
    "tree, bounded": {"aggregation": "tree", "problem": logistic(domain=sets.L2Ball(0.5))},
    "independent, one step, own budgets": {
        "aggregation": "independent",
        "steps_per_exchange": 1,
        "budget": [Budget(0.5, 1e-3), Budget(2.0, 1e-6), Budget(8.0, 1e-3)],
    },
    "none": {"budget": None},
    "rounds": {"release": "rounds"},
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_and_answered_is_algorithm_1_and_equation_2(case):
    """With explicit matrices B and xi. The server projects what it broadcasts, and not the sum that it keeps."""
    made, steps = make(**CASES[case]), ROUNDS * TAU
    rounds = made.schedule.exchanges(steps)
    said, models, equation_2, _ = algorithm_1(made, rounds, lambda t: STEP / math.sqrt(t), seed=5)
    assert_allclose(models, equation_2, rtol=1e-12, atol=1e-12)
    shown = run(made, steps).transcript
    assert_allclose(shown["messages"], said, rtol=1e-5, atol=3e-5)
    answered = np.array([inside(model, made.problem.domain.radius) for model in models])
    assert_allclose(shown["broadcasts"], answered, rtol=1e-5, atol=3e-5)
    played = np.repeat(shown["broadcasts"][:-1, None], LEARNERS, axis=1)
    assert_array_equal(shown["decisions"][1:], played)
    if case == "tree, bounded":  # the test sees projections
        assert np.linalg.norm(models, axis=1).max() > 0.6
    if case == "blt, missed rounds":
        absent = ~made.topology.present(np.arange(rounds))
        assert absent.any()
        assert_array_equal(shown["messages"][absent], 0)


# -- what is proven about regret ---------------------------------------------------------------------------------------

SLOW = {"problem": problems.LeastSquares(DIM), "clip": 2.0, "horizon": 3000, "step": 0.001, "server_step": 1.0}


@pytest.mark.parametrize("aggregation", ["toeplitz", "tree", "blt"])
def test_the_dynamic_bound_is_lemma_iv_9(aggregation):
    """Eq. (30) as printed, with |B_R|^2 at most R max|b|^2."""
    made = make(**SLOW, aggregation=aggregation)
    d, n, tau, R, eta, B_g = DIM, LEARNERS, TAU, 1000, 0.001, 2.0
    L, alpha, mu, sigma, C_R, start = 2.0, 0.5, 0.3, 0.7, 20.0, 1.5
    pace, V_i = eta * tau, made.scales["gradient"][0].value
    V2, b2 = V_i**2 / n, made.releases[0].mechanism.max_error(R * tau)
    S = 24 * L * (1 + sigma) * pace**2 / (alpha**2 * R) * (R * b2) * d * V2 / tau**2
    S += (12 * L + alpha * mu) * C_R / (alpha**2 * R)
    inside = 2 * tau**2 * B_g**2 + 8 * b2 * d * n * V2
    S += (pace + alpha / (12 * L) + 1 / mu) * 2 * L**2 * eta**2 * inside / alpha
    literal = R * tau * (start / (alpha * R * pace) + S)
    stated = made.theoretical_bound(
        alpha=alpha, mu=mu, sigma=sigma, smoothness=L, variation=C_R, start=start, regret="dynamic"
    )
    assert_allclose(stated, literal, rtol=1e-12)


def test_learners_with_more_noise_count_in_the_mean_and_the_worst_in_local_steps():
    quiet, loud = Budget(4.0, 1e-3), Budget(0.4, 1e-3)
    losses = {"mu": 0.3, "smoothness": 2.0, "start": 1.0}

    def bounds(budget):
        return make(**SLOW, budget=budget).theoretical_bound(**losses)

    assert bounds(quiet) < bounds([quiet, quiet, loud]) < bounds(loud)


@pytest.mark.parametrize(
    "options",
    [
        {"publish": "averaged"},
        {"release": "rounds"},
        {"horizon": None},
        {"step": Rate(0.001)},
        {"learners": SOME},
        {"problem": problems.LeastSquares(DIM, l2=0.1)},
        {"problem": problems.LeastSquares(DIM, domain=sets.L2Ball(1.0))},
        {"clip": Clip(l1=1.0)},
        {"budget": None, "clip": None},
    ],
)
def test_no_regret_is_stated_for_what_the_paper_does_not_analyse(options):
    with pytest.raises(ConfigurationError, match="an algorithm and settings with a proof"):
        make(**SLOW | options).theoretical_bound(mu=0.3, smoothness=2.0, start=1.0)


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        ({"smoothness": 200.0}, "eta eta_g tau at most alpha"),
        ({"smoothness": 200.0, "regret": "static"}, "1 / .10 L ln"),
        ({"start": -1.0}, "start: got -1.0"),
        ({"mu": 0.0}, "mu: got 0.0"),
        ({"regret": "adaptive"}, "'dynamic' or 'static'"),
    ],
)
def test_constants_that_the_proof_does_not_cover_are_refused(losses, says):
    with pytest.raises(ConfigurationError, match=says):
        make(**SLOW).theoretical_bound(**{"mu": 0.3, "smoothness": 2.0, "start": 1.0} | losses)


@pytest.mark.parametrize(
    ("growth", "of"),
    [
        ("polyak-lojasiewicz", lambda f, df, s: np.min(df**2 / (2 * f))),
        ("error-bound", lambda f, df, s: np.min(np.abs(df / s))),
        ("quadratic-growth", lambda f, df, s: np.min(2 * f / s**2)),
    ],
)
def test_classes_of_losses_have_the_constants_of_assumption_iv_4(growth, of):
    """On a grid of s^2/2 + 0.52 sin(s)^2, which is not convex; its only minimiser is 0."""
    s, depth = np.linspace(1e-3, 30, 300_001), 0.52
    f, df = s**2 / 2 + depth * np.sin(s) ** 2, s + depth * np.sin(2 * s)
    found = assumption_iv_4(growth, float(of(f, df, s)), smoothness=1 + 2 * depth, weak_convexity=2 * depth - 1)
    assert np.max(found.alpha * f - df * s + found.mu / 2 * s**2) <= 0
    with pytest.raises(ConfigurationError, match="weak_convexity"):
        assumption_iv_4(growth, 0.01, smoothness=1.0, weak_convexity=0.5)
    with pytest.raises(ConfigurationError, match="alpha"):
        assumption_iv_4(growth, 0.5, smoothness=1.0, alpha=2.0)


def test_averages_are_of_the_models_and_cost_nothing():
    """Means of three models, which then forget. Beside them the virtual iterates: models without (eta~/tau) b xi."""
    options = {"problem": logistic(l2=0.0), "aggregation": "toeplitz", "step": STEP}
    made, last = make(publish="averaged", averaging=3, **options), make(**options)
    assert made.guarantee.explain() == last.guarantee.explain()
    assert made.scales == last.scales
    found = run(made)
    said, models, _, noise = algorithm_1(made, ROUNDS, lambda t: STEP, seed=5)  # which knows no averages
    assert_allclose(found.transcript["messages"], said, rtol=1e-5, atol=3e-5)
    assert_allclose(found.transcript["broadcasts"], models, rtol=1e-5, atol=3e-5)
    x0, (x1, x2, x3, x4) = np.zeros(DIM), models
    mean = (x0 + x1 + x2) / 3
    expected = [x0, (x0 + x1) / 2, mean, (2 * mean + x3) / 3]
    assert_allclose(found.transcript["decisions"][:, 0], expected, rtol=1e-5, atol=3e-5)
    assert_allclose(found.decisions[2], (2 * (2 * mean + x3) / 3 + x4) / 3, rtol=1e-5, atol=3e-5)
    ends = np.mean([one[TAU - 1 :: TAU] for one in noise], axis=0)
    assert_allclose(virtual_iterates(made, found), models + STEP * SERVER_STEP * ends, rtol=1e-5, atol=3e-5)


def test_the_averaging_length_is_how_many_gradients_the_noise_is():
    """V sqrt(mean |b|^2) sqrt(d / n) / (tau B), rounded up; half of all rounds at most; 1 for the last model."""
    options = {"publish": "averaged", "aggregation": "independent", "horizon": 3000}
    made = make(**options)
    v, mean_square = made.scales["gradient"][0].value, (3000 + 1) / 2
    expected = math.ceil(v * math.sqrt(mean_square * DIM / LEARNERS) / (TAU * CLIP))
    assert made.learner.averaging == expected < 500
    assert "average, over" in made.parameters["publish"]
    assert make(**options | {"horizon": 12}).learner.averaging == 2
    assert make(horizon=12, averaging=7, publish="averaged").learner.averaging == 7
    assert make().learner.averaging == 1


# -- missed rounds -----------------------------------------------------------------------------------------------------


def test_a_missed_round_uses_up_nothing():
    """Only rounds that a learner takes part in are counted, and a missed one leaves its mechanism as it was."""
    made = make(learners=SOME)
    program = Program.of(made, False, "global", RECORD)
    inputs = Feeder(made, DATA, (FastNoise(5),)).inputs(Chunk(0, ROUNDS, 0, ROUNDS, TAU, 0))
    present = SOME.present(np.arange(ROUNDS))
    assert 0 < present[-1].sum() < LEARNERS
    start, states = engine.start_many(program, 1), []
    for stop in (ROUNDS - 1, ROUNDS):
        states.append(jax.tree.map(lambda leaf: np.asarray(leaf)[0], _run(program, start, inputs, stop)))
        assert_array_equal(states[-1].private[0], TAU * present[:stop].sum(axis=0))
    before, after = states
    for kept in ("said", "private"):
        pairs = list(zip(*map(jax.tree.leaves, (getattr(before, kept), getattr(after, kept))), strict=True))
        for old, new in pairs:
            assert_array_equal(new[~present[-1]], old[~present[-1]])
        assert not all(np.array_equal(new[present[-1]], old[present[-1]]) for old, new in pairs)
    assert (before.x != after.x).any(axis=1).all()  # all of them hear
    (release,) = made.releases
    losses = [release.spent(TAU * count).epsilon(BUDGET.delta) for count in range(ROUNDS + 1)]
    assert losses == sorted(losses)
    assert losses[-1] <= BUDGET.epsilon * (1 + 1e-9)
    assert losses[-2] < 0.99 * BUDGET.epsilon


def _run(program, start, inputs, stop):
    return engine.run_chunk(program, (), start, inputs, 0, stop)[0].learners


def test_what_a_learner_said_sums_up_to_its_own_prefix_noise():
    """After k of its rounds: variance V^2 |b_k|^2. A two-sided chi-squared test, false alarm 1e-6 for each learner.

    The same test rejects noise that goes on in rounds that are missed, and so is never taken back.
    """
    dim, rounds = 1000, 24
    network = Federation(LEARNERS, participation=0.5, seed=2)
    made = make(
        problems.Linear(dim), network, horizon=rounds, steps_per_exchange=1, step=0.1, publish="averaged", averaging=8
    )
    nothing = instances.Given(np.zeros((rounds, LEARNERS, dim), np.float32), np.zeros((rounds, LEARNERS), np.int32))
    found = simulate(made, nothing, rounds, seed=7, record=RECORD, progress=False, chunk=rounds)
    sums = found.transcript["messages"].astype(np.float64).sum(axis=0)
    measured = np.square(sums).sum(axis=1) / made.scales["gradient"][0].value ** 2
    low, high = chi2.ppf([5e-7, 1 - 5e-7], dim)
    inverse, present = np.linalg.inv(strategy(made.releases[0].mechanism, rounds)), network.present(np.arange(rounds))
    assert len(set(present.sum(axis=0))) > 1
    for learner, there in enumerate(present.T):
        count = there.sum()
        assert low < measured[learner] / np.square(inverse[:count, :count].sum(axis=0)).sum() < high
        assert not low < measured[learner] / np.square(inverse[there].sum(axis=0)).sum() < high
    # An average has less noise: here of the last eight models, more or less.
    assert np.linalg.norm(found.decisions[0]) < 0.9 * np.linalg.norm(found.transcript["broadcasts"][-1])


def test_a_resumed_run_with_missed_rounds_is_the_same(tmp_path):
    made, path = make(learners=SOME), tmp_path / "checkpoint"
    straight = run(made)
    assert straight.messages == ROUNDS * LEARNERS + SOME.present(np.arange(ROUNDS)).sum()
    run(made, 2 * TAU, checkpoint=path)
    resumed = run(made, checkpoint=path)
    for name in RECORD:
        assert_array_equal(resumed.transcript[name], straight.transcript[name])


def test_the_debugger_misses_the_same_rounds():
    made = make(problems.Linear(DIM), SOME, steps_per_exchange=1, aggregation="independent")
    compiled, stepped = (run(made, 2, debug=debug) for debug in (False, True))
    for name in RECORD:
        assert_allclose(stepped.transcript[name], compiled.transcript[name], rtol=2e-5, atol=2e-5)
    assert_array_equal((stepped.transcript["messages"] != 0).all(axis=2), SOME.present(np.arange(2)))


# -- the sum of a round ------------------------------------------------------------------------------------------------

SLOPES = {
    problems.Logistic: lambda score, y: 1 / (1 + np.exp(-score)) - y,
    problems.LeastSquares: lambda score, y: 2 * (score - y),
    problems.Linear: lambda score, y: 1.0,
    Repelling: lambda score, y: -np.tanh(score - y),
}


def softmax_gradient(z, a, y, classes):
    scores = z.reshape(classes, -1) @ a
    p = np.exp(scores - scores.max())
    return np.outer(p / p.sum() - np.eye(classes)[y], a).ravel()


def gradient(problem, clip, z, x, y):
    """One sample's clipped gradient in double precision, l2 added."""
    a = x if problem.feature_bound is None else inside(x, problem.feature_bound)
    if isinstance(problem, problems.Softmax):
        raw = softmax_gradient(z, a, y, problem.classes)
    else:
        raw = SLOPES[type(problem)](a @ z, y) * a
    return clipped(raw, clip) + problem.l2 * z


def sum_of_a_round(problem, clip, step, start, x, y):
    total = np.zeros(problem.dim)
    for one, label in zip(x, y, strict=True):
        total = total + gradient(problem, clip, start - step * total, one, label)
    return total


def neighbours(problem, rng, tau):
    """A start, the samples of a round, and the same with another sample at a random step; most samples are repeated."""
    shape, size = problem.feature_shape, 10.0 ** rng.uniform(-2, 2)
    few = rng.normal(size=(3, *shape)) * size
    x = few[rng.integers(0, 3, tau)] * rng.choice([-1, 1], (tau, 1))
    if isinstance(problem, problems.Softmax):
        y = rng.integers(0, problem.classes, tau)
    elif isinstance(problem, problems.Logistic):
        y = rng.integers(0, 2, tau)
    else:
        y = rng.normal(size=tau) * size
    others, labels, place = x.copy(), y.copy(), rng.integers(0, tau)
    others[place] = rng.choice([-1, 0.1, 10]) * x[place]
    labels[place] = y[rng.integers(0, tau)]
    return rng.normal(size=problem.dim) * 10.0 ** rng.uniform(-2, 1), (x, y), (others, labels)


def moved(problem, clip, step, seed, tau=5):
    start, ours, theirs = neighbours(problem, np.random.default_rng(seed), tau)
    sums = [sum_of_a_round(problem, clip, step, start, *each) for each in (ours, theirs)]
    return float(np.linalg.norm(sums[0] - sums[1]))


def smooth_bound(problem, clip, step, tau=5):
    """The recursion of SOUNDNESS 2, with l2 beside the clip."""
    s, kept = 2 * clip.norm, max(1, abs(1 - step * problem.l2))
    for _ in range(tau - 1):
        s = kept * s + min(step * (problem.smoothness - problem.l2) * s, 2 * clip.norm)
    return s


sizes = st.floats(0.05, 20)
clips = st.builds(lambda name, bound: Clip(**{name: bound}), st.sampled_from(["l1", "l2"]), sizes)
seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from([problems.Logistic, problems.LeastSquares, problems.Linear]),
    bound=sizes,
    l2=st.sampled_from([0.0, 0.3]),
    clip=clips,
    share=st.floats(0.1, 1.0),
    seed=seeds,
)
def test_a_sample_moves_the_round_of_a_scalar_link_by_twice_the_clip(kind, bound, l2, clip, share, seed):
    problem = kind(3, feature_bound=bound, l2=l2, domain=sets.L2Ball(100.0))
    step = share * (2 / problem.smoothness if problem.smoothness else 10.0)
    found = round_sum(problem, clip, step, 5, "scalar-link")
    assert found.enforced_by
    assert moved(problem, clip, step, seed) <= 2 * clip.norm * (1 + 1e-9) <= found.sensitivity.l2


@settings(max_examples=100, deadline=None)
@given(
    bound=sizes,
    l2=st.sampled_from([0.0, 0.3]),
    clip=sizes,
    share=st.floats(0.01, 1.5),
    blocks=st.booleans(),
    seed=seeds,
)
def test_a_sample_moves_the_round_of_a_smooth_loss_by_the_recursion(bound, l2, clip, share, blocks, seed):
    problem = problems.Softmax(2, 3, feature_bound=bound, l2=l2, domain=sets.L2Ball(100.0))
    each = Clip(l2=(clip, clip / 2), blocks=(4, 2)) if blocks else Clip(l2=clip)
    step = share / problem.smoothness
    found = round_sum(problem, each, step, 5, "smooth")
    assert found.enforced_by
    assert moved(problem, each, step, seed) <= smooth_bound(problem, each, step) * (1 + 1e-9) <= found.sensitivity.l2


@settings(max_examples=100, deadline=None)
@given(bound=sizes, l2=st.sampled_from([0.0, 0.3]), clip=clips, step=st.floats(0.01, 5), seed=seeds)
def test_a_sample_moves_any_round_by_twice_the_clip_for_every_step(bound, l2, clip, step, seed):
    problem = Repelling(3, feature_bound=bound, l2=l2, domain=sets.L2Ball(100.0))
    found = round_sum(problem, clip, step, 5, "any")
    s = 2 * clip.norm * sum(max(1, abs(1 - step * l2)) ** k for k in range(5))
    assert moved(problem, clip, step, seed) <= s * (1 + 1e-9) <= found.sensitivity.l2


def test_the_bounds_are_reached():
    """Twice the clip for losses that are linear; so much for every step where the first one steers all others."""
    clip, x, zero, first = Clip(l2=0.25), np.ones((8, 1)), np.zeros(1), np.eye(8)[0]
    linear, repelling = problems.Linear(1), Repelling(1, feature_bound=1.0)
    signs = [sum_of_a_round(linear, clip, 2.0, zero, x - 2 * s * first[:, None], first) for s in (0, 1)]
    assert_allclose(signs[0] - signs[1], 2 * 0.25)
    steered = [sum_of_a_round(repelling, clip, 2.0, zero, x, 9 * s * first) for s in (1, -1)]
    assert_allclose(steered[0] - steered[1], 2 * 0.25 * 8)


def test_clipped_softmax_is_no_scalar_link():
    """Steps of 2 / L along clipped softmax gradients do move two points apart: by 1.8 % in four of them.

    Found by search. All labels are 0; only the first sample differs.
    """
    problem = problems.Softmax(2, 3, feature_bound=1.0, domain=sets.L2Ball(110.0))
    clip, step, tau = Clip(l2=0.2), 4.0, 5
    assert step * problem.smoothness == 2
    start = np.array([40.5, -1.9, 67.6, -9.1, -65.8, 17.9])
    rest = [[-0.211, -0.978]] * (tau - 1)
    sums = [
        sum_of_a_round(problem, clip, step, start, np.array([first, *rest]), np.zeros(tau, int))
        for first in ([0.193, 0.981], [-0.203, -0.979])
    ]
    change = np.linalg.norm(sums[0] - sums[1])
    assert_allclose(change / (2 * 0.2), 1.0183, atol=1e-4)
    assert change > 1.015 * round_sum(problem, clip, step, tau, "scalar-link").sensitivity.l2
    assert change < round_sum(problem, clip, step, tau).sensitivity.l2


@partial(jax.jit, static_argnames=("problem", "clip", "tau"))
def computed_sum(problem, clip, tau, step, start, x, y):
    return LocalSteps(problem, clip, tau, 1)._gradients(start, Block(x, y), Now({"step": step}, {}, {}))


FAR = {"feature_bound": 1.0, "domain": sets.L2Ball(3000.0)}


@pytest.mark.parametrize(
    ("problem", "share"),
    [
        (problems.Logistic(30, l2=1e-3, **FAR), 1.0),
        (problems.LeastSquares(30, **FAR), 1.0),
        (problems.Softmax(30, 3, **FAR), 0.2),
    ],
)
def test_float32_errors_of_a_round_are_counted(problem, share):
    """Also far from zero, where the score of small gradients is a small difference of large numbers.

    Each of two neighbours may be off by half of what is counted. Without the share of the radius that is too little.
    """
    clip, tau, step = Clip(l2=0.5), 5, share * 2 / problem.smoothness
    found = round_sum(problem, clip, step, tau)
    exact = smooth_bound(problem, clip, step) if found.loss_class == "smooth" else 2 * clip.norm
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(20):
        start, (x, y), _ = neighbours(problem, rng, tau)
        start = inside(start * 1e9, found.radius).astype(np.float32)
        along = start.reshape(-1, 30).astype(np.float64)
        x = (x - x @ np.linalg.pinv(along) @ along).astype(np.float32)  # scores near 0
        y = y.astype(np.float32 if isinstance(problem, problems.LeastSquares) else np.int32)
        ours = computed_sum(problem, clip, tau, jnp.float32(step), start, x, y)
        in_double = (each.astype(np.float64) for each in (start, x))
        truth = sum_of_a_round(problem, clip, float(np.float32(step)), *in_double, y)
        worst = max(worst, float(np.linalg.norm(ours - truth)))
    assert worst <= (found.sensitivity.l2 - exact) / 2
    if isinstance(problem, problems.LeastSquares):  # the steepest
        near = round_sum(replace(problem, domain=sets.L2Ball(1e-3)), clip, step, tau)
        assert worst > (near.sensitivity.l2 - exact) / 2


def test_steps_per_exchange_start_within_the_radius():
    made = make(logistic(feature_bound=1.0), release="rounds", clip=1.0, step=0.1)
    radius, learner = made.learner.radius, made.learner
    assert 10 < radius < 1000
    assert f"local steps start within {radius:.4g} of zero" in made.parameters["noise"]
    quiet = Now({"step": jnp.float32(0.1)}, {"gradient": jnp.zeros(DIM)}, {})
    block = Block(DATA.x[:TAU, 0], DATA.y[:TAU, 0])
    learn = jax.jit(lambda x: learner.learn(learner.init(jnp.int32(0))._replace(x=x), block, quiet).said)
    e = jnp.eye(DIM)[0]
    far, edge, near = (learn(jnp.float32(size * radius) * e) for size in (50, 1, 0.5))
    assert_allclose(far, edge, rtol=1e-5)
    assert np.linalg.norm(edge - near) > 0.1


def model_score(params, x):
    return jnp.tanh(params["w"] @ x)


MODEL = problems.Model(model_score, {"w": np.zeros(3)}, "squared", features=(3,))
ONE, L1, BLOCKS = Clip(l2=1.0), Clip(l1=1.0), Clip(l2=(1.0, 1.0), blocks=(2, 1))
LOGIT = problems.Logistic(3, feature_bound=1.0)  # L = 1/4


@pytest.mark.parametrize(
    ("problem", "clip", "step", "best"),
    [
        (LOGIT, ONE, 8.0, "scalar-link"),
        (LOGIT, ONE, 8.1, "smooth"),
        (LOGIT, L1, 8.0, "scalar-link"),
        (LOGIT, L1, 8.1, "any"),
        (LOGIT, BLOCKS, 0.1, "smooth"),
        (LOGIT, Clip(l1=(1.0, 1.0), blocks=(2, 1)), 0.1, "any"),
        (problems.Logistic(3, feature_bound=1.0, l2=0.25), ONE, 4.0, "scalar-link"),
        (problems.Logistic(3, feature_bound=1.0, l2=0.25), ONE, 4.1, "smooth"),
        (problems.Logistic(3), ONE, 0.1, "any"),
        (problems.LeastSquares(3, feature_bound=1.0), ONE, 1.0, "scalar-link"),
        (problems.LeastSquares(3, feature_bound=1.0), ONE, 1.1, "smooth"),
        (problems.Hinge(3, feature_bound=1.0), ONE, 0.1, "any"),
        (problems.Linear(3), ONE, 100.0, "scalar-link"),
        (problems.Linear(3, l2=0.1), ONE, 20.1, "smooth"),
        (problems.Softmax(1, 3, feature_bound=1.0), ONE, 0.1, "smooth"),
        (problems.Softmax(1, 3), ONE, 0.1, "any"),
        (Repelling(3, feature_bound=1.0), ONE, 0.1, "smooth"),
        (MODEL, ONE, 0.1, "any"),
    ],
)
def test_the_best_class_that_code_establishes_is_proven(problem, clip, step, best):
    if problem.scalar_link:  # some of their steps are too large for an unbounded set
        problem = replace(problem, domain=sets.L2Ball(1.0))
    options = {"release": "rounds", "clip": clip, "step": step}
    made = make(problem, **options, loss_class=best)
    assert made.guarantee.basis == "proven"
    claims = [assumption.claim for assumption in made.guarantee.assumptions]
    assert f"losses are of the class '{best}'" in claims
    chosen = make(problem, **options)
    assert chosen.guarantee.basis == "proven"
    assert chosen.scales["gradient"] <= made.scales["gradient"]  # where steps are large, "any" is no worse
    order = ["scalar-link", "smooth", "any"]
    for better in order[: order.index(best)]:
        if problem.smoothness is not None:
            declared = make(problem, **options, loss_class=better)
            assert declared.guarantee.basis == "heuristic"
            assert f"nothing makes it true that losses are of the class '{better}'" in declared.guarantee.sentence()


@pytest.mark.parametrize(("loss_class", "growth"), [("smooth", 1.2), ("scalar-link", 1.0)])
def test_a_smoothness_that_is_declared_is_heuristic(loss_class, growth):
    made = make(MODEL, release="rounds", loss_class=loss_class, smoothness=2.0, step=0.1, clip=1.0)
    assert made.guarantee.basis == "heuristic"
    assert_allclose(made.releases[0].sensitivities[0].l2, 2 * growth ** (TAU - 1), rtol=2e-3)


def test_models_may_be_large_on_an_unbounded_set_and_float32_errors_are_counted():
    wide = problems.Logistic(100, feature_bound=10.0)
    found = round_sum(wide, ONE, 0.05, 4)
    assert (found.loss_class, found.radius) == ("scalar-link", 5.0)  # scores up to 50
    assert 2.005 < found.sensitivity.l2 < 2.02
    assert round_sum(replace(wide, domain=sets.L2Ball(1.0)), ONE, 0.05, 4).sensitivity.l2 < 2.003
    # Steps far above 2 / L, many of them: "any" is no worse than "smooth", and nothing overflows.
    assert_allclose(round_sum(wide, ONE, 10.0, 400).sensitivity.l2, 800, rtol=1e-3)


def test_l2_does_not_move_points_apart():
    """While step * l2 <= 2: beyond, it does."""
    for l2, expected in ((0.1, 16.0), (1.0, 16.0), (2.0, 16.0), (3.0, 2 * (2**8 - 1))):
        found = round_sum(problems.Logistic(3, l2=l2, domain=sets.L2Ball(1.0)), ONE, 1.0, 8)
        assert expected < found.sensitivity.l2 < (1.001 if l2 < 3 else 1.02) * expected


@pytest.mark.parametrize("problem", [LOGIT, problems.Softmax(3, 2, feature_bound=1.0)])
def test_scores_have_all_digits_of_float32_on_a_gpu(problem):
    """Where the default of XLA would round products to 11 bits."""
    traced = jax.jit(problem._scores).trace(jnp.ones(problem.dim), jnp.ones((2, 3)))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "dot_general" in text
    assert "DEFAULT" not in text


# -- horizons ----------------------------------------------------------------------------------------------------------


class Refusing(FastNoise):
    """Nothing may be drawn."""

    def draw(self, *args):
        raise AssertionError("noise was drawn")


@pytest.mark.parametrize("release", ["steps", "rounds"])
def test_one_sample_more_is_refused_before_anything_is_drawn(release):
    made = make(release=release)
    with pytest.raises(PrivacyError, match="steps: got 13; allowed: at most the horizon of 12"):
        run(made, 13, noise=Refusing)
    endless = replace(made, guarantee=replace(made.guarantee, horizon=None))
    rows = 5 * TAU if release == "steps" else 5
    with pytest.raises(PrivacyError, match=f"horizon: {rows} releases were asked for, and Factorized is calibrated"):
        run(endless, 5 * TAU, noise=Refusing)


@pytest.mark.parametrize("aggregation", ["blt", "tree", "independent"])
@pytest.mark.parametrize("release", ["steps", "rounds"])
def test_endless_streams_are_covered_for_ever(aggregation, release):
    made = make(horizon=None, aggregation=aggregation, release=release)
    assert made.guarantee.horizon is None
    assert made.guarantee.covers(BUDGET)
    made.require(10**8)
    assert made.releases[0].spent(10**8).epsilon(BUDGET.delta) <= BUDGET.epsilon * (1 + 1e-9)


# -- secure noise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregation", ["blt", "toeplitz", "tree", "independent"])
@pytest.mark.parametrize("release", ["steps", "rounds"])
def test_a_secured_algorithm_keeps_every_budget(aggregation, release):
    """The error of the sampler is inside delta, and scales grow by the rounding to a lattice, which is little."""
    budgets = [Budget(2.0, 1e-3), Budget(0.5, 1e-6), Budget(8.0, 0.1)]
    made = make(budget=budgets, aggregation=aggregation, release=release)
    secured = made.secured()
    assert secured.guarantee.covers(budgets)
    assert 0 < secured.guarantee.sampler_error < 1e-10
    assert secured.guarantee.delta <= 0.1
    assert_allclose(secured.guarantee.epsilons, made.guarantee.epsilons, rtol=2**-17)  # scales are whole spacings
    for exact, on_lattice in zip(made.scales["gradient"], secured.scales["gradient"], strict=True):
        assert exact.value <= on_lattice.value <= 1.001 * exact.value


def test_everything_that_is_released_lies_on_the_lattice():
    made = make(logistic(l2=0.0), steps_per_exchange=4, horizon=8, step=STEP).secured()
    shown = run(made, 8, noise=lambda seed: SecureNoise(bytes(32), f"run {seed}", "test"), record=("messages",))
    grid = made.scales["gradient"][0].grid
    rounds = 4 * shown.transcript["messages"].astype(np.float64) / grid  # of four noisy gradients each
    assert np.abs(rounds).max() > 2**19
    assert_array_equal(rounds, np.round(rounds))


def test_an_optimised_matrix_has_no_lattice():
    with pytest.raises(PrivacyError, match="optimised matrix"):
        make(aggregation="optimal").secured()


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"horizon": 2}, ConfigurationError, "horizon: got 2; allowed: a whole number of at least 3"),
        (
            {"horizon": None, "aggregation": "toeplitz"},
            PrivacyError,
            "horizon: got None; allowed: a number of samples",
        ),
        ({"horizon": None, "aggregation": "optimal"}, PrivacyError, "'blt' needs constant memory"),
        ({"steps_per_exchange": 0}, ConfigurationError, "steps_per_exchange: got 0"),
        ({"budget": 1.0}, PrivacyError, "budget: got 1.0"),
        ({"budget": Budget(1.0)}, PrivacyError, "delta: got 0.0; allowed: a positive delta"),
        ({"budget": [BUDGET] * 2}, PrivacyError, "budget: got 2 budgets"),
        ({"budget": None, "aggregation": "tree"}, ConfigurationError, "aggregation: got 'tree'; .* with budget=None"),
        ({"budget": None, "release": "rounds"}, ConfigurationError, "release: got 'rounds'; .* which has no noise"),
        (
            {"budget": None, "calibration": "published"},
            ConfigurationError,
            "calibration: got 'published'; .*'tight' with",
        ),
        ({"aggregation": "root"}, ConfigurationError, "aggregation: got 'root'; allowed: 'independent' or 'tree'"),
        ({"clip": None}, PrivacyError, "clip: got None"),
        ({"clip": 0.0}, ConfigurationError, "clip: got 0.0"),
        ({"clip": Clip(l2=(1.0, 1.0), blocks=(2, 1))}, ConfigurationError, "clip blocks: .*add up to 4"),
        ({"step": 0.0}, ConfigurationError, "step: got 0.0"),
        ({"server_step": -1.0}, ConfigurationError, "server_step: got -1.0"),
        ({"release": "days"}, ConfigurationError, "release: got 'days'; allowed: 'steps' or 'rounds'"),
        ({"calibration": "loose"}, ConfigurationError, "calibration: got 'loose'; allowed: 'tight' or 'published'"),
        (
            {"calibration": "published", "release": "rounds"},
            ConfigurationError,
            "calibration: got 'published'; allowed: 'tight' with release='rounds'",
        ),
        ({"publish": "first"}, ConfigurationError, "publish: got 'first'; allowed: 'last' or 'averaged'"),
        ({"averaging": 3}, ConfigurationError, "averaging: got 3; allowed: None unless publish='averaged'"),
        ({"averaging": 0, "publish": "averaged"}, ConfigurationError, "averaging: got 0"),
        ({"loss_class": "any"}, ConfigurationError, "loss_class: got 'any'; allowed: None unless release='rounds'"),
        ({"smoothness": 1.0}, ConfigurationError, "smoothness: got 1.0; allowed: None unless release='rounds'"),
        (
            {"loss_class": "convex", "release": "rounds"},
            ConfigurationError,
            "loss_class: got 'convex'; allowed: 'scalar-link' or 'smooth' or 'any', or None",
        ),
        (
            {"smoothness": 1.0, "release": "rounds", "loss_class": "any"},
            ConfigurationError,
            "smoothness: got 1.0; allowed: None unless loss_class='smooth'",
        ),
        (
            {"smoothness": -1.0, "release": "rounds", "loss_class": "smooth"},
            ConfigurationError,
            "smoothness: got -1.0",
        ),
        (
            {"problem": problems.Hinge(4), "release": "rounds", "loss_class": "smooth"},
            ConfigurationError,
            "loss_class: got 'smooth'; allowed: 'any' where the smoothness is not known",
        ),
        ({"learners": 0}, ConfigurationError, "learners: got 0"),
    ],
)
def test_bad_options_are_refused(options, error, says):
    with pytest.raises(error, match=says):
        make(**options)


def test_no_noise_must_be_asked_for():
    """A budget that is forgotten is not one that is not wanted."""
    options = {"horizon": 8, "steps_per_exchange": 2, "step": 0.1}
    with pytest.raises(TypeError, match="budget"):
        algorithms.online_federated(logistic(), LEARNERS, **options)
    tables = {"problem": {"kind": "linear", "dim": 3}, "topology": {"learners": 4}}
    with pytest.raises(ConfigurationError, match=r"\[algorithm\] budget: got nothing; .*Add budget to \[algorithm\]"):
        make_algorithm({**tables, "algorithm": {"name": "online_federated", **options}})
    made = algorithms.online_federated(logistic(), LEARNERS, budget=None, **options)
    assert (made.guarantee.basis, made.releases, dict(made.learner.noise)) == ("none", (), {})


@pytest.mark.parametrize("participation", [0.0, 1.5, -0.1])
def test_participation_is_a_probability(participation):
    with pytest.raises(ConfigurationError, match="participation: got"):
        Federation(3, participation=participation)
