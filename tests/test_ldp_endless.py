"""ldp_endless: what a sample costs, Algorithm 1 against a NumPy reference, histories, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from gossamer import Budget, Clip, ConfigurationError, PrivacyError, problems, sets, simulate, topology
from gossamer.algorithms import ldp_endless
from gossamer.algorithms.endless.fading import Fading, Rounding, Trace
from gossamer.algorithms.endless.history import COUNTED, Exact
from gossamer.algorithms.endless.sums import Statistics, least_squares_sums, slope_error
from gossamer.algorithms.endless.theorems import Theorems
from gossamer.core import Rate
from gossamer.mechanisms.independent import Views
from gossamer.privacy import Gaussian, Sensitivity
from gossamer.problems import Block
from gossamer.streams import common
from tests.instances import QUIET, Given

pytestmark = pytest.mark.unoptimized

CYCLE = np.eye(5) * 0.4 + 0.3 * (np.roll(np.eye(5), 1, 0) + np.roll(np.eye(5), -1, 0))
RING = topology.ring(5, weights=CYCLE)
DIM = 3

# -- the table of SOUNDNESS 4 ------------------------------------------------------------------------------------------


def mushrooms(smoothness=0.25, **options):
    """Paper 003, section V: w = 0.6, C = 2."""
    return Fading(Rate(1.0, 0.77), Rate(1.0, 0.65), weight=0.6, change=2.0, smoothness=smoothness, **options)


def epsilon(fading, count):
    return math.sqrt(112) * fading.total(1, 0.11, count)


@pytest.mark.parametrize(
    ("smoothness", "theorem", "smooth", "convex", "smooth_for_ever", "convex_for_ever"),
    [
        (0.25, (20580, 5), (412.9, 0.05), (241.7, 0.05), (445.3, 0.05), (270.0, 0.05)),
        (1.0, (1.4e5, 5e3), (3.1e4, 5e2), (241.7, 0.05), (3.2e4, 5e2), (270.0, 0.05)),
        (5.75, (1.5e39, 5e37), (1.4e39, 5e37), (1213, 0.5), None, (1242, 0.5)),
    ],
)
def test_the_mushrooms_table(smoothness, theorem, smooth, convex, smooth_for_ever, convex_for_ever):
    """As printed there, to half a unit of its last digit."""
    tight, loose = mushrooms(smoothness), mushrooms(smoothness, convex=False)
    for fading, count, (value, off) in (
        (tight.published(), 2000, theorem),
        (loose, 2000, smooth),
        (tight, 2000, convex),
        (tight, None, convex_for_ever),
    ):
        assert abs(epsilon(fading, count) - value) <= off
    if smooth_for_ever is None:
        with pytest.raises(PrivacyError, match=r"horizon: got None.*contraction wins over smoothness"):
            epsilon(loose, None)
    else:
        assert abs(epsilon(loose, None) - smooth_for_ever[0]) <= smooth_for_ever[1]


def test_totals_agree_within_the_tail():
    """N = 2e3 .. 2e6: 272.7, 270.6, 270.2, 270.04, each with its tail; none is below a longer sum."""
    fading, counts = mushrooms(), [2_000, 20_000, 200_000, 2_000_000]
    sums = [epsilon(fading, count) for count in counts]
    tails = [math.sqrt(112) * fading.tail(1, 0.11, count) for count in counts]
    assert_allclose(np.add(sums, tails), [272.7, 270.6, 270.2, 270.04], atol=0.05)
    assert all(total + tail >= sums[-1] for total, tail in zip(sums, tails, strict=True))
    assert all(np.diff(np.add(sums, tails)) < 0)
    assert tails[-1] < 0.2 * tails[0]


def budget_of_sample(k, count, fading, growth):
    """Brute force: the recursion where sample k differs, term by term."""
    moved, total = 0.0, 0.0
    step, kept = fading.step.scale, fading.weight * fading.coupling.scale
    for t in range(count):
        rate, pull = step / (t + 1) ** fading.step.power, 1 - kept / (t + 1) ** fading.coupling.power
        if fading.convex:
            q = max(abs(pull - rate * fading.strong_convexity), abs(pull - rate * fading.smoothness))
        else:
            q = abs(pull - rate * fading.strong_convexity) + rate * (fading.smoothness - fading.strong_convexity)
        moved = q * moved + (rate * fading.change / (t + 1) if t >= k else 0.0)
        total += moved / (t + 2) ** growth
    return total


def test_a_sum_as_published_and_one_that_grows_have_no_end():
    """Theorem 5(i) counts every gradient in full, and its sum diverges; nothing may call it finite."""
    with pytest.raises(PrivacyError, match="A longer one needs"):
        mushrooms().published().total(1, 0.11, None)
    wild = Fading(Rate(100.0, 0.1), Rate(1.0, 0.65), 0.6, 2.0, 50.0, 0.0, convex=False)
    assert math.isinf(wild.total(1, 0.1, 4096))
    with pytest.raises(PrivacyError, match="A sample's trace grows faster than it fades"):
        Trace.of_views(wild, 0.1, 4, 1, 4096)


def test_the_first_sample_costs_most():
    """SOUNDNESS: 260.6, 180.3, 151.5 and 47.7 up to 2e5 for k = 0, 1, 2 and 100."""
    costs = [math.sqrt(112) * budget_of_sample(k, 200_000, mushrooms(), 0.11) for k in (0, 1, 2, 100)]
    assert_allclose(costs, [260.6, 180.3, 151.5, 47.7], atol=0.05)
    assert_allclose(costs[0], epsilon(mushrooms(), 200_000), rtol=1e-12)


RATES = st.tuples(st.floats(0.05, 8.0), st.floats(0.0, 1.2))


@settings(max_examples=40, deadline=None)
@given(RATES, RATES, st.floats(0.0, 1.0), st.floats(0.0, 3.0), st.floats(0.0, 1.0), st.booleans(), st.integers(1, 60))
def test_no_other_sample_costs_more(step, coupling, weight, smoothness, share, convex, k):
    fading = Fading(Rate(*step), Rate(*coupling), weight, 2.0, smoothness, share * smoothness, convex)
    assert budget_of_sample(k, 64, fading, 0.1) <= fading.total(1, 0.1, 64) * (1 + 1e-9)
    assert_allclose(budget_of_sample(0, 64, fading, 0.1), fading.total(1, 0.1, 64), rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.floats(0.05, 4.0), st.floats(0.5, 1.0)),
    st.tuples(st.floats(0.5, 1.5), st.floats(0.4, 0.9)),
    st.floats(0.0, 1.0),
    st.booleans(),
    st.sampled_from([1, 2]),
    st.sampled_from([64, 300, 1000]),
)
def test_a_tail_is_never_below_what_it_stands_for(step, coupling, smoothness, convex, order, count):
    """The next 2^16 terms; also where v < u, in which case losses that are not convex have no tail."""
    fading = Fading(Rate(*step), Rate(*coupling), 0.6, 2.0, smoothness, 0.0, convex)
    whole, tail = fading.total(order, 0.2, 2**16), fading.tail(order, 0.2, count)
    assert tail >= (whole - fading.total(order, 0.2, count)) * (1 - 1e-9) if math.isfinite(whole) else math.isinf(tail)


def test_gaussian_noise_of_the_same_deviation():
    """SOUNDNESS: mu 2.67, epsilon 14.4 at delta 1e-5, endless; it need not grow."""
    mu = math.sqrt(mushrooms().total(2, 0.11, None)) / math.sqrt(2)
    assert abs(mu - 2.67) <= 0.005
    assert abs(Gaussian(mu).epsilon(1e-5) - 14.4) <= 0.05
    assert math.isfinite(mushrooms().total(2, 0.0, None))
    with pytest.raises(PrivacyError, match=r"u < 1, 1 \(1 \+ v - u \+ growth\) > 1"):
        replace(mushrooms(), step=Rate(1.0, 0.6)).total(1, 0.0, None)


def test_a_delay_is_silent_and_then_cheaper():
    late = mushrooms(delay=50)
    assert_allclose(late.distances(50), 0)
    assert_allclose(late.distances(51)[-1], 2.0 / 51**1.77)
    assert epsilon(late, 2000) < 0.4 * epsilon(mushrooms(), 2000)
    assert epsilon(late, 2000) < epsilon(late, None)
    assert late.tail(1, 0.11, 50) == math.inf  # nothing is known before it is over


def test_spending_is_a_curve_that_ends_at_the_guarantee():
    growths = (0.1, 0.2, 0.1, 0.1, 0.3)
    made = ldp_endless(problem(), RING, budget=Budget(3.0), history="polynomial", growth=growths)
    (release,) = made.releases
    for learner in (0, 1, 4):
        curve = [release.spent(t, learner).epsilon(0.0) for t in (0, 1, 10, 1000, 100_000, 2**21, 2**21 + 1, COUNTED)]
        assert curve[0] == 0
        assert all(np.diff(curve) > 0)
        assert_allclose(curve[-1], 3.0, rtol=1e-9)
    assert len({scale.value for scale in made.scales["parameters"]}) == 3


# -- states of neighbours ----------------------------------------------------------------------------------------------


def clipped(rows, bound):
    return rows * np.minimum(1, bound / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))


def logistic_gradients(theta, x, y, bound=1.0):
    slopes = (1 + np.tanh(x @ theta / 2)) / 2 - y
    return clipped(slopes[:, None] * x, bound)


def softmax_gradients(theta, x, y, bound=0.3):
    scores = x @ theta.reshape(3, -1).T
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y.astype(int)] -= 1
    return clipped((p[:, :, None] * x[:, None]).reshape(len(x), -1), bound)


def linear_gradients(theta, x, y, bound=1.0):
    return clipped(x, bound)


def in_ball(radius):
    return lambda point: point * min(1.0, radius / max(np.linalg.norm(point), 1e-300))


def hidden(fading, gradients, x, y, heard, l2=0.0, project=lambda point: point):
    """theta(1), ..., theta(T) of one learner to whom `heard`, the sum of w_ij y_j over others, was said."""
    theta, path = np.zeros(heard.shape[1]), []
    for t, said in enumerate(heard):
        step, pull = float(fading.step(np.array([t + 1]))[0]), float(fading.coupling(np.array([t + 1]))[0])
        if t < fading.delay:
            step = pull = 0.0
        mean = gradients(theta, x[: t + 1], y[: t + 1]).mean(axis=0) + l2 * theta
        theta = project(theta + pull * (said - fading.weight * theta) - step * mean)
        path.append(theta)
    return np.array(path)


CASES = {
    "logistic": (logistic_gradients, 4, 0.0, {"smoothness": 0.25, "change": 2.0}),
    "strongly convex": (logistic_gradients, 4, 0.3, {"smoothness": 0.55, "strong_convexity": 0.3, "change": 2.0}),
    "smooth": (softmax_gradients, 9, 0.0, {"smoothness": 0.5, "change": 0.6, "convex": False}),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=100, deadline=None)
@given(RATES, RATES, st.floats(0.0, 1.0), st.sampled_from([0, 3]), st.sampled_from([0.5, 1e6]), st.integers(0, 2**31))
def test_states_of_neighbours_stay_within_the_recursion(name, step, coupling, weight, delay, radius, seed):
    """Double precision, the same messages, another sample anywhere: features, label or both."""
    gradients, size, l2, constants = CASES[name]
    fading = Fading(Rate(*step), Rate(*coupling), weight, delay=delay, **constants)
    rng, steps = np.random.default_rng(seed), 40
    features = size // 3 if name == "smooth" else size
    x = clipped(3 * rng.normal(size=(steps, features)), 1.0)
    y = rng.integers(0, 3 if name == "smooth" else 2, steps)
    heard = weight * rng.normal(size=(steps, size)) * rng.choice([0.1, 3.0])
    k = rng.choice([0, 0, 1, 7])
    other, label = x.copy(), y.copy()
    other[k], label[k] = -x[k], rng.integers(0, 2)
    paths = [hidden(fading, gradients, *data, heard, l2, in_ball(radius)) for data in ((x, y), (other, label))]
    moved = np.linalg.norm(paths[0] - paths[1], axis=1)
    assert np.all(moved <= fading.distances(steps) * (1 + 1e-9) + 1e-12 * np.abs(paths[0]).max())


@settings(max_examples=25, deadline=None)
@given(RATES, st.floats(0.05, 1.0), st.floats(0.0, 1.2), st.floats(0.0, 1.0), st.sampled_from([0, 3]))
def test_linear_losses_attain_it(step, scale, power, weight, delay):
    """Where no projection is active; coupling of at most 1, beyond which the recursion counts turns as distances."""
    fading = Fading(Rate(*step), Rate(scale, power), weight, change=2.0, smoothness=0.0, delay=delay)
    x = np.zeros((40, 2))
    x[0] = [0.6, 0.8]
    heard = np.random.default_rng(0).normal(size=(40, 2))
    one, other = (hidden(fading, linear_gradients, data, np.zeros(40), heard) for data in (x, -x))
    assert_allclose(np.linalg.norm(one - other, axis=1), fading.distances(40), rtol=1e-9, atol=1e-12)


# -- Algorithm 1 -------------------------------------------------------------------------------------------------------


def problem(dim=DIM, **options):
    return problems.Logistic(dim, **({"feature_bound": 1.0, "domain": sets.L2Ball(2.0)} | options))


class Draws:
    """Noise of unit scale that a test knows too, times the scale; uniform draws as they are."""

    def __init__(self, steps, learners=5, dim=DIM, picks=7, seed=0):
        rng = np.random.default_rng(seed)
        self.normal = rng.normal(size=(learners, steps, dim))
        self.uniform = rng.random(size=(learners, steps, picks)).astype(np.float32)

    def draw(self, name, spec, scales, start, stop):
        if name == "picks":
            return self.uniform[:, start:stop]
        sizes = np.array([one.value for one in scales])[:, None, None]
        return (sizes * self.normal[:, start:stop]).astype(np.float32)


def sums_gradients(slope, pull):
    def gradients(theta, x, y):
        return (slope * (x @ theta) - pull * y)[:, None] * x

    return gradients


def reference(
    made, stream, draws, gradients, *, step, coupling, growth, count=1, delay=0, l2=0.0, radius=2.0, start="public"
):
    """Algorithm 1 in double precision: theta(1), ... and y(1), ..., axes (exchange, learner, coordinate).

    From y(0) on where the start is noised.
    """
    n, steps, dim = stream.x.shape[1], len(stream.x) // count, stream.x.shape[2]
    base = getattr(made.topology, "base", made.topology).matrix()
    scales = [one.value for one in made.scales_of("parameters")]
    theta, y, up = np.zeros((n, dim)), np.zeros((n, dim)), np.ones((n, n))
    thetas, ys, early = [], [], start == "noised"
    if early:
        y = theta + np.array(scales)[:, None] * draws.normal[:, 0]
        up = made.topology.matrix(0) > 0
        thetas.append(theta)
        ys.append(y)
    for t in range(steps):
        rate, pull = step[0] / (t + 1) ** step[1], coupling[0] / (t + 1) ** coupling[1]
        if t < delay:
            rate = pull = 0.0
        moved = np.empty_like(theta)
        for i in range(n):
            x, labels = stream.x[: (t + 1) * count, i], stream.y[: (t + 1) * count, i]
            if "picks" in made.scales:
                rows = np.floor(draws.uniform[i, t + early] * np.float32(len(x))).astype(int)
                x, labels = x[rows], labels[rows]
            mean = gradients(theta[i], x.astype(float), labels.astype(float)).mean(axis=0) + l2 * theta[i]
            heard = sum(base[i, j] * ((y[j] if up[i, j] else y[i]) - theta[i]) for j in range(n) if j != i)
            moved[i] = in_ball(radius)(theta[i] + pull * heard - rate * mean)
        theta = moved
        sizes = np.array([scale * (t + 2) ** one for scale, one in zip(scales, growth, strict=True)])
        y = theta + sizes[:, None] * draws.normal[:, t + early]
        up = made.topology.matrix(t + early) > 0
        thetas.append(theta)
        ys.append(y)
    return np.array(thetas), np.array(ys)


def averages(ys, power, delay):
    """Weights like (s)(s+1)...(s+power-1) of the s-th y after the delay; until then the last y."""
    out = []
    for t in range(1, len(ys) + 1):
        count = t - delay
        weights = np.array([math.comb(s + power - 1, power) for s in range(1, count + 1)], float)
        out.append(ys[t - 1] if count < 1 else np.tensordot(weights / weights.sum(), ys[delay:t], 1))
    return np.array(out)


def data(steps, dim=DIM, learners=5, seed=5, targets=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(steps, learners, dim))
    x *= rng.uniform(0.3, 1.0, size=(steps, learners, 1)) / np.linalg.norm(x, axis=2, keepdims=True)
    scores = x @ np.linspace(-1, 1, dim) + 0.1 * np.arange(learners)
    y = np.clip(scores, -1, 1).astype(np.float32) if targets else (scores > 0).astype(np.int32)
    return Given(x.astype(np.float32), y)


LEAST_SQUARES = problems.LeastSquares(DIM, feature_bound=1.0, domain=sets.L2Ball(2.0))
GROWTHS = (0.1, 0.0, 0.2, 0.3, 0.15)
VARIANTS = {
    "exact": {"problem": problem(l2=0.2), "clip": 0.2},
    "three steps, delay": {"steps_per_exchange": 3, "delay": 4, "averaging": 1},
    "own budgets": {"budget": [Budget(float(e)) for e in (20, 40, 60, 80, 100)], "sigma": None, "growth": GROWTHS},
    "failing links": {"topology": topology.with_link_failures(RING, 0.4, seed=3)},
    "statistics": {"problem": LEAST_SQUARES, "history": "statistics", "label_bound": 1.0, "clip": None},
    "polynomial": {"history": "polynomial", "clip": None},
    "sampled": {"history": "sampled", "picks": 7},
}


NOISED_STARTS = ("exact", "three steps, delay", "failing links", "statistics", "sampled")


@pytest.mark.parametrize(
    ("name", "start"), [(name, "public") for name in VARIANTS] + [(name, "noised") for name in NOISED_STARTS]
)
def test_it_is_algorithm_1(name, start):
    options = {"problem": problem(), "topology": RING, "sigma": 0.2, "clip": 1.0, "growth": 0.1} | VARIANTS[name]
    loss, network, rows = options.pop("problem"), options.pop("topology"), options.get("steps_per_exchange", 1)
    steps, step, coupling, early = 24 * rows, (0.8, 0.77), (0.9, 0.65), int(start == "noised")
    stream, draws = data(steps, targets=name == "statistics"), Draws(24 + early)
    rates = {"step": Rate(*step), "coupling": Rate(*coupling), "horizon": steps, "start": start}
    gradients = {
        "statistics": sums_gradients(2.0, 2.0),
        "polynomial": lambda theta, x, y: sums_gradients(slope_error(2.0)[0], 0.5)(theta, x, 2 * y - 1),
        "exact": lambda theta, x, y: logistic_gradients(theta, x, y, bound=0.2),
    }.get(name, logistic_gradients)
    growth = np.broadcast_to(options["growth"], 5)
    publish = {"own budgets": "last", "failing links": "raw"}.get(name, "averaged")
    made = ldp_endless(loss, network, publish=publish, **rates, **options)
    run = simulate(made, stream, steps, record=["messages", "decisions"], noise=lambda seed: draws, **QUIET)
    delay = options.get("delay", 0)
    given_rates = {"step": step, "coupling": coupling, "growth": growth, "count": rows, "delay": delay, "start": start}
    thetas, ys = reference(made, stream, draws, gradients, l2=loss.l2, **given_rates)
    mean = averages(ys[early:], options.get("averaging", 3), delay)
    mean = np.concatenate([np.zeros((early, 5, DIM)), mean])  # y(0) is no part of it
    played = {"raw": thetas, "last": ys, "averaged": mean}[publish]
    assert_allclose(run.transcript["messages"], ys, atol=1e-4)
    assert_allclose(run.transcript["decisions"][1:], np.apply_along_axis(in_ball(2.0), -1, played[:-1]), atol=1e-4)
    assert np.abs(thetas[-1]).max() > 0.05


def test_noise_has_the_size_that_is_said_and_grows():
    """Two-sided: 25,000 draws early and late, of kurtosis 6; 5 standard errors, a false alarm of 6e-7 each."""
    steps, dim, late = 400, 50, 299
    loss = problems.Linear(dim)
    stream = Given(np.zeros((steps, 5, dim), np.float32), np.zeros((steps, 5), np.float32))
    made = ldp_endless(loss, RING, sigma=0.3, growth=0.25, clip=1.0, horizon=steps, publish="raw", coupling=Rate(0.3))
    run = simulate(made, stream, steps, record=["messages", "decisions"], **QUIET)
    draws = run.transcript["messages"][:-1] - run.transcript["decisions"][1:]
    draws /= 0.3 * np.arange(2, steps + 1)[:, None, None] ** 0.25
    for part in (draws[:100], draws[late:]):
        assert part.size == 25_000
        assert abs(np.mean(np.square(part, dtype=np.float64)) - 1) < 5 * math.sqrt(5 / part.size)
        assert abs(part.mean(dtype=np.float64)) < 5 / math.sqrt(part.size)


def test_a_noised_start_has_the_noise_of_its_time():
    """Two-sided: the first message is Laplace noise of deviation 0.3, 25,000 draws; a false alarm of 6e-7 each."""
    dim = 5000
    made = ldp_endless(
        problems.Linear(dim), RING, sigma=0.3, growth=0.25, clip=1.0, horizon=1, start="noised", publish="raw"
    )
    stream = Given(np.ones((1, 5, dim), np.float32), np.zeros((1, 5), np.float32))
    run = simulate(made, stream, 1, record=["messages", "decisions"], **QUIET)
    assert run.transcript["messages"].shape == (2, 5, dim)
    assert not run.transcript["decisions"].any()  # theta has not moved before the first sample
    draws = run.transcript["messages"][0].astype(np.float64) / 0.3
    assert abs(np.mean(draws**2) - 1) < 5 * math.sqrt(5 / draws.size)
    assert abs(draws.mean()) < 5 / math.sqrt(draws.size)
    assert abs(np.abs(draws).mean() - math.sqrt(0.5)) < 5 * math.sqrt(0.5 / draws.size)  # a Gaussian has 0.8


def test_a_noised_start_is_the_same_for_both_engines():
    made = ldp_endless(problem(), topology.complete(2), sigma=0.2, history="polynomial", start="noised")
    stream = data(2, learners=2)
    runs = [simulate(made, stream, 2, record=["messages"], debug=debug, **QUIET) for debug in (False, True)]
    assert runs[0].transcript["messages"].shape == (3, 2, DIM)
    assert_allclose(runs[0].transcript["messages"], runs[1].transcript["messages"], atol=1e-5)
    assert_allclose(runs[0].decisions, runs[1].decisions, atol=1e-5)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("horizon", [60, None])
def test_a_noised_start_costs_nothing_and_is_counted_as_one_more_message(noise, horizon):
    """Message e holds theta(e-1): what is stated after e messages is at least the sum of e - 1 terms, and at most e."""
    options = {"clip": 1.0, "horizon": horizon, "buffer": 60, "noise": noise, "growth": 0.1}
    budget = Budget(2.0, 1e-5 if noise == "gaussian" else 0.0)
    early, plain = (ldp_endless(problem(), RING, budget=budget, start=s, **options) for s in ("noised", "public"))
    assert early.guarantee.basis == "proven"
    assert early.guarantee.horizon == (horizon or 60)
    assert early.guarantee.epsilon <= 2.0
    scales = [each.scales["parameters"][0].value for each in (early, plain)]
    assert scales[1] <= scales[0] <= 1.02 * scales[1]
    same = ldp_endless(problem(), RING, sigma=[scales[0] * (math.sqrt(2) if noise == "laplace" else 1)] * 5, **options)
    for messages in (1, 2, 5, 60):
        stated, true, more = (
            each.releases[0].spent(count).epsilon(budget.delta)
            for each, count in ((early, messages), (same, messages - 1), (same, messages))
        )
        assert true <= stated <= more * (1 + 1e-9)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"horizon": 9}, "steps: got 10; allowed: at most the horizon of 9"),
        ({"buffer": 9}, "steps: got 10; allowed: at most the horizon of 9"),
        ({"horizon": 99, "buffer": 9}, "steps: got '11 exchanges'; allowed: at most 10 exchanges"),
        ({"horizon": 9, "buffer": 10, "publish": "raw"}, "horizon"),
    ],
)
def test_a_noised_start_takes_no_sample_and_no_more_of_them_are_let_in(options, says):
    made = ldp_endless(problem(), RING, sigma=0.1, clip=1.0, start="noised", **options)
    run = simulate(made, data(9), 9, **QUIET)
    assert np.isfinite(run.decisions).all()
    assert run.messages == 10 * 10
    with pytest.raises((PrivacyError, ConfigurationError), match=says):
        simulate(made, data(10), 10, **QUIET)


def test_a_noised_start_is_described_and_a_public_one_is_not():
    options = {"sigma": 1.0, "clip": 1.0, "horizon": 9}
    plain, early = (ldp_endless(problem(), RING, start=s, **options).describe() for s in ("public", "noised"))
    assert "  start: noised\n" in early
    assert "start:" not in plain


def test_a_noised_start_has_the_published_noise_of_as_many_samples():
    options = {"budget": Budget(1.0), "clip": 1.0, "horizon": 9, "calibration": "published"}
    early, plain = (ldp_endless(problem(), RING, start=s, **options) for s in ("noised", "public"))
    assert early.scales == plain.scales


# -- histories ---------------------------------------------------------------------------------------------------------


def test_statistics_are_exact_to_rounding():
    """Nothing is clipped here: features and labels are within bounds."""
    steps, stream, draws = 24, data(24, targets=True), Draws(24)
    options = {"sigma": 0.1, "horizon": steps, "step": Rate(0.5, 0.77), "growth": 0.1}
    said = [
        simulate(
            ldp_endless(LEAST_SQUARES, RING, **options, **each),
            stream,
            steps,
            record=["messages", "decisions"],
            noise=lambda seed: draws,
            **QUIET,
        ).transcript["messages"]
        for each in ({"clip": 100.0}, {"history": "statistics", "label_bound": 1.0})
    ]
    assert_allclose(said[0], said[1], atol=2e-6)


def test_statistics_clip_on_arrival():
    history = least_squares_sums(LEAST_SQUARES, 1.0)
    far = Block(jnp.array([[3.0, 4.0, 0.0]]), jnp.array([9.0]))
    near = Block(jnp.array([[0.6, 0.8, 0.0]]), jnp.array([1.0]))
    theta = jnp.array([0.5, -0.5, 1.0])
    one, other = (history.gradient(history.add(history.init(), block), theta, {}) for block in (far, near))
    assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("largest", [0.1, 1.0, 2.0, 6.0, 40.0])
def test_the_slope_error_is_the_least_one(largest):
    slope, error = slope_error(largest)
    scores = np.linspace(-largest, largest, 20_001)
    off = lambda b: np.abs(1 / (1 + np.exp(-scores)) - 0.5 - b * scores).max()  # noqa: E731
    assert_allclose(off(slope), error, rtol=1e-4, atol=1e-9)
    assert all(off(slope * (1 + change)) > error for change in (-0.02, 0.02))


def test_polynomial_gradients_are_as_near_as_said():
    loss, rng = problem(), np.random.default_rng(0)
    sums = ldp_endless(loss, RING, sigma=1.0, history="polynomial", horizon=30).learner.history
    x, y = clipped(rng.normal(size=(30, DIM)) * 9, 1.0), rng.integers(0, 2, 30)
    kept = sums.add(sums.init(), Block(jnp.asarray(x, jnp.float32), jnp.asarray(y)))
    largest = 0.0
    for theta in clipped(rng.normal(size=(50, DIM)) * 9, 2.0):
        exact = logistic_gradients(theta, x, y).mean(axis=0)
        off = np.linalg.norm(sums.gradient(kept, jnp.asarray(theta, jnp.float32), {}) - exact)
        assert off <= slope_error(2.0)[1] + 1e-6
        largest = max(largest, off)
    assert largest > 1e-4


def test_a_full_buffer_is_refused_before_and_silent_after():
    def never(seed):
        raise AssertionError("noise was drawn")

    made = ldp_endless(problem(), RING, budget=Budget(5.0), clip=1.0, horizon=90, buffer=7, steps_per_exchange=2)
    with pytest.raises(ConfigurationError, match=r"steps: got '4 exchanges'; allowed: at most 3 exchanges.*buffer"):
        simulate(made, data(8), 8, noise=never, **QUIET)
    for rows, full in ((2, False), (4, True)):
        history = Exact(problem(), Clip(l2=1.0), size=3)
        kept = history.add(history.init(), Block(jnp.ones((2, DIM)), jnp.ones(2)))
        for _ in range(rows - 2):
            kept = history.add(kept, Block(jnp.ones((1, DIM)), jnp.ones(1)))
        assert np.isnan(history.gradient(kept, jnp.zeros(DIM), {})).all() == full


# -- budgets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [500, None])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_budgets_and_sigmas_follow_from_each_other(noise, horizon):
    """None: as many as the buffer holds."""
    delta = 1e-5 if noise == "gaussian" else 0.0
    budgets = [Budget(e, delta) for e in (1.0, 2.0, 4.0, 8.0, 16.0)]
    options = {"clip": 1.0, "horizon": horizon, "buffer": 500, "noise": noise, "growth": GROWTHS, "delay": 2}
    made = ldp_endless(problem(), RING, budget=budgets, **options)
    deviation = math.sqrt(2) if noise == "laplace" else 1.0
    sigmas = [deviation * scale.value for scale in made.scales["parameters"]]
    back = ldp_endless(problem(), RING, sigma=sigmas, delta=1e-5, **options)
    stated = zip(back.guarantee.losses, back.guarantee.deltas, budgets, strict=True)
    for loss, at, budget in stated:
        assert at == budget.delta
        assert_allclose(loss.epsilon(at), budget.epsilon, rtol=1e-9)
        assert loss.epsilon(at) <= budget.epsilon
    half = ldp_endless(problem(), RING, sigma=[2 * one for one in sigmas], delta=1e-5, **options).guarantee.losses[0]
    assert half.epsilon(delta) <= 0.5 * (1 + 1e-9)
    # 2^-15 is kept back for schedules in float32, and what roundings of theta add is 3e-4 or less here.
    exact = Fading(Rate(1.0, 0.77), Rate(1.0, 0.65), 0.6, 2.0, 0.25, delay=2)
    rounded = replace(exact, rounding=made.releases[0].sensitivities[0].fading.rounding)
    order, scale = 1 if noise == "laplace" else 2, made.scales["parameters"][0].value

    def truth(fading):
        moved = (fading.total(order, 0.1, 500) * (math.sqrt(3) if order == 1 else 1)) ** (1 / order)
        return moved / scale if order == 1 else Gaussian(moved / scale).epsilon(1e-5)

    assert 1 - 4e-4 < truth(exact) < truth(rounded) <= 1.0
    assert_allclose(truth(rounded), 1.0, rtol=1e-4)


def test_the_guarantee_says_what_holds():
    made = ldp_endless(problem(), RING, budget=Budget(1.0), clip=1.0, buffer=10)
    assert (made.guarantee.basis, made.guarantee.observer, made.guarantee.horizon) == ("proven", "peers", 10)
    assert not made.guarantee.reason
    assert "every rounding of float32 is counted" in made.guarantee.explain()
    sums = ldp_endless(problem(), RING, budget=Budget(1.0, 1e-5), history="polynomial", noise="gaussian", growth=0.0)
    assert "Proven: over 2,147,483,647 steps" in sums.guarantee.sentence()
    assert (
        ldp_endless(problem(), RING, budget=Budget(1.0), clip=1.0, horizon=9, publish="raw").guarantee.basis == "none"
    )
    sampled = ldp_endless(problem(), RING, budget=Budget(1.0), clip=1.0, horizon=9, history="sampled")
    assert sampled.guarantee.basis == "heuristic"
    assert "mean over all samples" in sampled.guarantee.reason
    unbounded = problems.Logistic(DIM, domain=sets.L2Ball(2.0))
    trusted = ldp_endless(unbounded, RING, budget=Budget(1.0), clip=1.0, horizon=9, smoothness=0.25)
    assert trusted.guarantee.basis == "heuristic"
    assert "smooth" in trusted.guarantee.reason


@pytest.mark.parametrize("domain", [sets.Everywhere(), sets.Simplex(), sets.L1Ball(1.0), sets.L2Ball(1e30)])
def test_sets_in_which_roundings_are_not_counted_have_no_proof(domain):
    made = ldp_endless(problem(domain=domain), RING, budget=Budget(1.0), clip=1.0, horizon=9)
    assert made.guarantee.basis == "heuristic"
    assert "computed without rounding (an L2Ball or a Box would count it)" in made.guarantee.sentence()
    assert made.releases[0].sensitivities[0].fading.rounding == Rounding()


def test_convexity_that_clipping_keeps_is_used_and_no_other():
    """Softmax whose gradients may be clipped is merely smooth; where they never are, it is convex."""
    loss = problems.Softmax(2, classes=3, feature_bound=1.0, domain=sets.L2Ball(2.0))
    for clip, convex in ((1.0, False), (1.5, True)):
        made = ldp_endless(loss, RING, sigma=1.0, clip=clip, horizon=9)
        assert made.releases[0].sensitivities[0].fading.convex == convex
    made = ldp_endless(problem(l2=0.1), RING, sigma=1.0, clip=0.1, horizon=9, steps_per_exchange=3)
    fading = made.releases[0].sensitivities[0].fading
    assert (fading.convex, fading.strong_convexity) == (True, 0.1)
    assert_allclose((fading.change, fading.smoothness), (0.2 / 3, 0.35), rtol=4e-5)
    assert fading.smoothness > 0.35
    assert fading.change > 0.2 / 3


def test_the_published_noise_is_that_of_theorem_5():
    options = {"clip": 1.0, "horizon": 50, "growth": 0.1}
    printed, tight = (
        ldp_endless(problem(), RING, budget=Budget(1.0), calibration=each, **options) for each in ("published", "tight")
    )
    sigma = math.sqrt(2) * printed.scales["parameters"][0].value
    tau, claimed = 0.0, 0.0
    for t in range(50):
        tau = (1 - 0.6 * (t + 1) ** -0.65 + 0.25 * (t + 1) ** -0.77) * tau + (t + 1) ** -0.77
        claimed += math.sqrt(2 * DIM) * 2 * tau / (sigma * (t + 2) ** 0.1)
    assert_allclose(claimed, 1.0, rtol=1e-4)
    assert printed.guarantee.epsilon < 0.2
    assert_allclose(printed.guarantee.epsilon * sigma, math.sqrt(2) * tight.scales["parameters"][0].value, rtol=1e-6)


def test_secure_noise_counts_the_rounding_of_every_view():
    options = {"clip": 1.0, "noise": "gaussian", "growth": 0.0, "budget": Budget(1.0, 1e-5)}
    made = ldp_endless(problem(), RING, horizon=400, **options)
    secured = made.secured()
    (release,) = secured.releases
    plain, scale = made.scales["parameters"][0].value, release.scales["parameters"][0]
    assert 0 < scale.grid < 1e-4 * plain
    moved = made.releases[0].sensitivities[0].l2
    rounded = moved + scale.grid * math.sqrt(400 * DIM)
    assert scale.value >= plain * rounded / moved * (1 - 1e-12)
    assert secured.guarantee.epsilon <= 1.0
    assert_allclose(secured.guarantee.epsilon, 1.0, rtol=1e-3)
    assert secured.guarantee.delta <= 1e-5
    sums = ldp_endless(problem(), RING, history="polynomial", **(options | {"clip": None}))
    with pytest.raises(PrivacyError, match="a larger delta for secure noise"):
        sums.secured()
    with pytest.raises(PrivacyError, match="an endless stream rounds without end"):
        Views((2,), law="gaussian").rounded(Sensitivity(l1=1.0, l2=1.0), 0.5)
    plainly = Views((2,), horizon=3, law="gaussian").rounded(Sensitivity(l1=1.0, l2=1.0), 0.5)
    assert_allclose((plainly.l1, plainly.l2), (4.0, 1 + 0.5 * math.sqrt(6)))


def test_a_trace_has_one_norm():
    trace = Trace.of_views(mushrooms(), 0.11, 4, 1, 100)
    assert trace.l2 == math.inf
    assert trace.until(1, 10).l1 < trace.l1
    assert_allclose(trace.l1, 2 * mushrooms().total(1, 0.11, 100), rtol=2e-5)


# -- theorems ----------------------------------------------------------------------------------------------------------


def setting(**changes):
    constants = {
        "growths": [0.05],
        "step": Rate(0.001, 0.9),
        "coupling": Rate(0.2, 0.6),
        "smoothness": 1.0,
        "strong_convexity": 0.5,
        "gradient": 1.0,
    }
    return Theorems.of(RING, **(constants | changes))


@pytest.mark.parametrize(
    ("changes", "theorems", "says"),
    [
        ({"growths": [0.05, 0.3]}, {1, 2, 3, 4, 5}, "(4) max varsigma + 1/2 < u < v < 1 fails for 0.3, 0.6, 0.9"),
        ({"step": Rate(0.001, 1.0)}, {1, 2, 3, 4, 5}, "(4) max varsigma"),
        ({"strong_convexity": 0.0}, {1, 3, 5}, "losses are not known to be strongly convex"),
        ({"strong_convexity": None}, {1, 2, 3, 4, 5}, "losses are not known to be"),
        ({"step": Rate(0.001, 0.7)}, {2, 4}, "2/3 < (1 + 2 u) / 3 < v < 1 fails for 0.6, 0.7"),
        ({"coupling": Rate(0.4, 0.6)}, {1, 2, 5}, "gamma_0 = 0.4 is above 1 / (-3 delta_m) = 0.3071"),
        ({"step": Rate(0.1, 0.9)}, {1, 2, 5}, "lambda_0 = 0.1 is above"),
        ({"bounded": False}, {1, 2, 3, 4, 5}, "the decision set is not bounded"),
        ({"others": ("links fail",)}, {1, 2, 3, 4, 5}, "links fail"),
        ({"growths": [0.0]}, {5}, "varsigma > 0, which Gaussian noise does not need"),
        ({}, set(), None),
    ],
)
def test_conditions_that_fail_are_named(changes, theorems, says):
    found = setting(**changes).violations()
    assert {number for number, broken in found.items() if broken} == theorems
    assert all(any(reason.startswith(says) for reason in found[number]) for number in theorems)


def test_rates_and_starts_are_those_of_the_theorems():
    given_ = setting()
    assert_allclose([given_.rate(number) for number in (1, 2, 3, 4)], [0.1, 0.05, 0.1, 0.05])
    assert setting(step=Rate(0.001, 0.61)).rate(1) == pytest.approx(2 * 0.6 - 0.1 - 1)
    delta_2, delta_m = 0.6 * (np.cos(2 * np.pi / 5) - 1), 0.6 * (np.cos(4 * np.pi / 5) - 1)
    assert_allclose((given_.delta_2, given_.delta_m), (delta_2, delta_m))
    large = setting(step=Rate(1.0, 0.9))
    most = -0.2 * delta_2 * 0.5 / (0.25 + 8)
    assert large.start(3) == math.ceil((1 / most) ** (1 / 0.3) - 1)
    most = -0.2 * delta_2 / (2 * 3)
    assert large.start(4) == math.ceil((1 / most) ** (2 / (2.7 - 1.2 - 1)) - 1)
    assert "theorems: conditions of" in ldp_endless(problem(), RING, sigma=1.0, clip=1.0, horizon=9).describe()


# -- refused -----------------------------------------------------------------------------------------------------------

BALL = {"domain": sets.L2Ball(2.0)}
SUMS = {"history": "statistics", "clip": None}
POLYNOMIAL = {"history": "polynomial", "clip": None, "horizon": None}


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"noise": "uniform"}, ConfigurationError, "noise: got 'uniform'"),
        ({"history": "none"}, ConfigurationError, "history: got 'none'"),
        ({"publish": "theta"}, ConfigurationError, "publish: got 'theta'"),
        ({"calibration": "loose"}, ConfigurationError, "calibration: got 'loose'"),
        ({"step": 0.5}, ConfigurationError, "step: got 0.5; allowed: a Rate without a delay"),
        ({"coupling": Rate(1.0, 0.5, delay=1)}, ConfigurationError, "coupling: got .*; allowed: a Rate without"),
        ({"horizon": 0}, ConfigurationError, "horizon: got 0"),
        ({"publish": "noised"}, ConfigurationError, "publish: got 'noised'; allowed: 'averaged' or 'last' or 'raw'"),
        ({"steps_per_exchange": 0}, ConfigurationError, "steps_per_exchange: got 0"),
        (
            {"steps_per_exchange": 2, "calibration": "published"},
            ConfigurationError,
            "steps_per_exchange: got 2; allowed: 1 with calibration='published'",
        ),
        ({"steps_per_exchange": 20}, ConfigurationError, "horizon: got 10; allowed: a whole number from 20 to"),
        ({"delay": -1}, ConfigurationError, "delay: got -1"),
        ({"averaging": -1}, ConfigurationError, "averaging: got -1"),
        ({"start": "random"}, ConfigurationError, "start: got 'random'"),
        ({"picks": 8}, ConfigurationError, "picks: got 8; allowed: 32 unless history='sampled'. It has no effect"),
        ({"averaging": 1, "publish": "last"}, ConfigurationError, "averaging: got 1; allowed: 3 unless publish="),
        ({"delta": 1e-6}, ConfigurationError, "delta: got 1e-06; allowed: 1e-05 unless sigma is given and noise="),
        ({"delta": 1e-6, "budget": None, "sigma": 1.0}, ConfigurationError, "delta: got 1e-06; allowed: 1e-05 unless"),
        (
            {"delta": 1e-6, "budget": Budget(1.0, 1e-6), "noise": "gaussian"},
            ConfigurationError,
            "delta: got 1e-06; allowed: 1e-05 unless",
        ),
        ({"growth": -0.1}, ConfigurationError, "growth: got -0.1"),
        ({"growth": (0.1, 0.2)}, ConfigurationError, "growth: got .*one for each of 5 learners"),
        ({"sigma": 1.0}, PrivacyError, "budget: got .*allowed: either budget or sigma"),
        ({"budget": None}, PrivacyError, "budget: got None; allowed: either budget or sigma"),
        ({"budget": None, "sigma": -1.0}, ConfigurationError, "sigma: got -1"),
        ({"budget": None, "sigma": (1.0, 2.0)}, ConfigurationError, "sigma: got .*one for each of 5"),
        ({"budget": None, "sigma": 1.0, "calibration": "published"}, ConfigurationError, "'tight' with sigma"),
        ({"calibration": "published", "noise": "gaussian"}, ConfigurationError, "Theorem 5"),
        ({"calibration": "published", **POLYNOMIAL}, PrivacyError, "horizon: got 2147483647; allowed: at most"),
        ({**POLYNOMIAL, "horizon": 2**31}, ConfigurationError, "horizon: got 2147483648"),
        ({"noise": "gaussian"}, PrivacyError, "delta: got 0"),
        ({"horizon": None}, ConfigurationError, "buffer: got None; allowed: a number of samples"),
        ({"clip": None}, PrivacyError, "clip: got None"),
        ({"clip": Clip(l1=1.0)}, ConfigurationError, "clip: got .*one bound of the Euclidean norm"),
        ({"picks": 0, "history": "sampled"}, ConfigurationError, "picks: got 0"),
        ({"smoothness": 1.0}, ConfigurationError, "smoothness: got 1.0; allowed: None: the problem knows it, 0.25"),
        ({"problem": problems.Logistic(DIM)}, PrivacyError, "smoothness: got None; .*give the problem a feature_bound"),
        ({"problem": problems.Hinge(DIM, feature_bound=1.0)}, PrivacyError, "smoothness: got None"),
        ({"topology": topology.directed_ring(5)}, ConfigurationError, "topology"),
        ({"topology": topology.random_matching(6, seed=0)}, ConfigurationError, "topology: got .*symmetric weights"),
        ({"topology": topology.isolated(5), **POLYNOMIAL}, PrivacyError, "horizon: got 2147483647"),
        ({"history": "statistics"}, ConfigurationError, "clip: got 1.0; allowed: None with history='statistics'"),
        (SUMS, ConfigurationError, "history: got 'statistics'; allowed: least squares"),
        ({**SUMS, "problem": LEAST_SQUARES}, ConfigurationError, "label_bound: got None"),
        ({**SUMS, "problem": problems.LeastSquares(DIM, **BALL), "label_bound": 1.0}, ConfigurationError, "problem"),
        ({**SUMS, "history": "polynomial", "problem": LEAST_SQUARES}, ConfigurationError, "allowed: logistic"),
        ({**SUMS, "history": "polynomial", "problem": problems.Logistic(DIM, **BALL)}, ConfigurationError, "problem"),
    ],
)
def test_what_has_no_guarantee_is_refused(changes, error, says):
    given_ = {"problem": problem(), "topology": RING, "budget": Budget(1.0), "clip": 1.0, "horizon": 10} | changes
    with pytest.raises(error, match=says):
        ldp_endless(given_.pop("problem"), given_.pop("topology"), **given_)


def test_models_need_sampling_and_a_smoothness():
    model = problems.small_cnn((10, 10, 1), classes=2, channels=1, hidden=2, seed=0)
    options = {"budget": Budget(1.0), "clip": 1.0, "horizon": 10}
    with pytest.raises(ConfigurationError, match="history: got 'exact'; allowed: 'sampled'"):
        ldp_endless(model, RING, **options)
    with pytest.raises(PrivacyError, match="smoothness: got None"):
        ldp_endless(model, RING, history="sampled", **options)
    assert ldp_endless(model, RING, history="sampled", smoothness=1.0, **options).guarantee.basis == "heuristic"


def test_other_refusals():
    with pytest.raises(ConfigurationError, match="bounded scores"):
        slope_error(math.inf)
    made = ldp_endless(problem(), RING, budget=Budget(1.0), clip=1.0, horizon=10)
    stream = common(np.zeros((10, DIM)), np.zeros(10, np.int32))
    with pytest.raises(PrivacyError, match="one batch common"):
        simulate(made, stream, 10, **QUIET)
    assert isinstance(least_squares_sums(LEAST_SQUARES, 1.0), Statistics)
