"""Selection and thresholds: exact laws, exact privacy, and what happens when they are used up.

Probabilities are computed in closed form or by quadrature in float64, so privacy is checked, not estimated. Draws are
tested by chi-square at a false-alarm probability of 1e-4 a test, with a fixed seed.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from gossamer.errors import ConfigurationError, DataError, PrivacyError
from gossamer.mechanisms import AboveThreshold, ExponentialMechanism, NoisyMax, PermuteAndFlip
from gossamer.mechanisms.selection import largest_sum, two_sum
from gossamer.privacy import Budget, FastNoise, Pure, Scale, Sensitivity
from gossamer.privacy.loss import BoundedRange

FALSE_ALARM = 1e-4
SELECTIONS = (ExponentialMechanism, PermuteAndFlip, NoisyMax)
every_selection = pytest.mark.parametrize("kind", SELECTIONS)
either_way = pytest.mark.parametrize("monotone", [False, True])
numbers = st.floats(-8, 8, allow_nan=False, width=32)


def unit(size=1.0):
    return Sensitivity(l1=size, l2=size)


# Exact laws


def panels(breaks, reach, width=1.0, order=16):
    """Gauss-Legendre nodes and weights from `reach` below the breaks to above them, cut at every break."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    edges = np.unique(np.concatenate([[min(breaks) - reach], breaks, [max(breaks) + reach]]))
    cuts = np.concatenate(
        [np.linspace(a, b, 1 + math.ceil((b - a) / width))[:-1] for a, b in itertools.pairwise(edges)]
    )
    low, high = cuts, np.append(cuts[1:], edges[-1])
    half = (high - low)[:, None] / 2
    return ((low + high)[:, None] / 2 + half * nodes).ravel(), (half * weights).ravel()


def laplace_pdf(x):
    return np.exp(-np.abs(x)) / 2


def laplace_cdf(x):
    tail = np.exp(-np.abs(x)) / 2
    return np.where(x < 0, tail, 1 - tail)


def softmax(scores, scale):
    weights = np.exp((scores - scores.max()) / scale)
    return weights / weights.sum()


def flipped(scores, scale):
    """Permute-and-flip by its own closed form: inclusion and exclusion over the coins of the others."""
    heads = np.exp((scores - scores.max()) / scale)
    chances = []
    for i in range(len(heads)):
        others = np.delete(heads, i)
        subsets = (s for size in range(len(others) + 1) for s in itertools.combinations(others, size))
        chances.append(heads[i] * sum((-1) ** len(s) / (len(s) + 1) * math.prod(s) for s in subsets))
    return np.array(chances)


def visited(scores, scale):
    """Permute-and-flip as its authors describe it: over all orders of visiting."""
    heads, chances = np.exp((scores - scores.max()) / scale), np.zeros(len(scores))
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        tails = 1.0
        for i in order:
            chances[i] += tails * heads[i] / len(orders)
            tails *= 1 - heads[i]
    return chances


def laplace_max(scores, scale):
    """The largest of Laplace-noisy scores, by quadrature over the winner's noisy score."""
    x, weight = panels(scores, 40 * scale, scale)
    apart = (x[:, None] - scores) / scale
    below, density = laplace_cdf(apart), laplace_pdf(apart) / scale
    return np.array([weight @ (density[:, i] * np.delete(below, i, 1).prod(1)) for i in range(len(scores))])


LAWS = {ExponentialMechanism: softmax, PermuteAndFlip: flipped, NoisyMax: laplace_max}


def log_ratios(kind, before, after, scale):
    return np.log(LAWS[kind](before, scale)) - np.log(LAWS[kind](after, scale))


@st.composite
def neighbours(draw, monotone, most=5):
    """Scores, and the same after one unit moved each by at most 1; all the same way where monotone."""
    count = draw(st.integers(2, most))
    scores = draw(st.lists(numbers, min_size=count, max_size=count))
    shift = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1, width=32))
    moves = np.array(draw(st.lists(shift, min_size=count, max_size=count)))
    signs = [1] * count if monotone else draw(st.lists(st.sampled_from([-1, 1]), min_size=count, max_size=count))
    return np.array(scores), np.array(scores) + moves * np.array(signs)


def test_three_ways_to_permute_and_flip_agree():
    """The closed form, the authors' procedure, and the largest of scores plus exponential noise (by quadrature)."""
    scores, scale = np.array([0.0, 0.7, 1.3, -0.4]), 0.9
    x, weight = panels(scores, 40 * scale, scale)
    below, density = stats.expon.cdf(x[:, None], scores, scale), stats.expon.pdf(x[:, None], scores, scale)
    noisy_max = [weight @ (density[:, i] * np.delete(below, i, 1).prod(1)) for i in range(4)]
    np.testing.assert_allclose(flipped(scores, scale), visited(scores, scale), atol=1e-14)
    np.testing.assert_allclose(flipped(scores, scale), noisy_max, atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.lists(numbers, min_size=2, max_size=5), st.floats(0.1, 10))
def test_permute_and_flip_is_never_worse_than_the_exponential_mechanism(scores, scale):
    scores = np.array(scores)
    assert flipped(scores, scale) @ scores >= softmax(scores, scale) @ scores - 1e-9


# Draws


def selected(kind, scores, scale, count, seed=5):
    """Indices that so many independent compiled releases with fast noise select."""
    mechanism = kind(len(scores), touches=1)
    draws = FastNoise(seed).draw("noise", mechanism.noise("speak")["noise"], [Scale(scale)], 0, count)[0]

    def one(draw):
        return mechanism.release(mechanism.init(), jnp.float32(scores), {"noise": draw}, {})[0]

    return np.bincount(jax.jit(jax.vmap(one))(draws), minlength=len(scores))


@every_selection
def test_selections_follow_the_law_at_the_right_scale_and_no_other(kind):
    """Chi-square, 20,000 selections. False alarm 1e-4 each; two thirds and three halves of the scale are caught."""
    scores, scale = np.array([0.0, 1.5, 1.0, -1.0, 1.5]), 1.2
    counts = selected(kind, scores, scale, 20_000)
    expected = {factor: LAWS[kind](scores, factor * scale) * counts.sum() for factor in (2 / 3, 1, 3 / 2)}
    accepted = {factor: stats.chisquare(counts, law).pvalue > FALSE_ALARM for factor, law in expected.items()}
    assert accepted == {2 / 3: False, 1: True, 3 / 2: False}


@every_selection
def test_the_lowest_is_the_highest_of_the_negative(kind):
    scores, draw = jnp.array([3.0, 1.0, 2.0]), {"noise": jnp.array([0.1, 0.2, 0.9])}
    low, high = kind(3, horizon=1, best="lowest"), kind(3, horizon=1)
    assert low.release(low.init(), scores, draw, {})[0] == high.release(high.init(), -scores, draw, {})[0] == 1


# Privacy of selections


@every_selection
@either_way
def test_no_neighbours_are_told_apart_better_than_promised(kind, monotone):
    epsilon = 0.8
    (scale,) = kind(2, horizon=1, monotone=monotone).calibrate(unit(), Budget(epsilon)).scales["noise"]

    @settings(max_examples=100, deadline=None)
    @given(neighbours(monotone))
    def check(pair):
        assert np.abs(log_ratios(kind, *pair, scale.value)).max() <= epsilon * (1 + 1e-7)

    check()


@every_selection
@either_way
def test_the_promise_is_attained(kind, monotone):
    """A candidate far behind, towards which the others fall: within 2 % of epsilon, so no factor can be smaller."""
    epsilon = 1.0
    (scale,) = kind(3, horizon=1, monotone=monotone).calibrate(unit(), Budget(epsilon)).scales["noise"]
    before = np.array([-150 * scale.value, 0.0, -5 * scale.value])
    after = before + np.array([0.0 if monotone else 1.0, -1.0, -1.0])
    assert 0.98 * epsilon <= np.abs(log_ratios(kind, before, after, scale.value)).max() <= epsilon * (1 + 1e-7)


@every_selection
def test_monotone_factor_on_scores_that_move_both_ways_costs_twice_as_much(kind):
    """Paper 004's mistake, two candidates: the smaller scale loses 2 epsilon, the right one keeps its promise."""
    before, after = np.array([-300.0, 0.0]), np.array([-299.0, -1.0])
    wrong, right = (kind(2, horizon=1, monotone=m).calibrate(unit(), Budget(1.0)) for m in (True, False))
    assert np.abs(log_ratios(kind, before, after, wrong.scales["noise"][0].value)).max() > 1.95
    assert np.abs(log_ratios(kind, before, after, right.scales["noise"][0].value)).max() <= 1 + 1e-9


@either_way
def test_exponential_mechanism_has_bounded_range(monotone):
    """Log ratios lie within an interval of length epsilon, and Renyi divergences are at most order * epsilon^2 / 8."""
    epsilon = 1.5
    (scale,) = ExponentialMechanism(2, horizon=1, monotone=monotone).calibrate(unit(), Budget(epsilon)).scales["noise"]

    @settings(max_examples=100, deadline=None)
    @given(neighbours(monotone))
    def check(pair):
        before, after = (softmax(scores, scale.value) for scores in pair)
        ratios = np.log(before) - np.log(after)
        assert np.ptp(ratios) <= epsilon * (1 + 1e-9)
        for order in (1.01, 2.0, 5.0, 30.0):
            divergence = math.log(after @ np.exp(order * ratios)) / (order - 1)
            assert divergence <= order * epsilon**2 / 8 + 1e-12

    check()


def hockey_stick(chances, others, count, epsilon):
    """Delta at epsilon of `count` independent coins, exactly: the number of heads decides."""
    heads = np.arange(count + 1)
    p, q = (stats.binom.pmf(heads, count, chance) for chance in (chances, others))
    return np.maximum(p - math.exp(epsilon) * q, 0).sum()


@pytest.mark.parametrize("delta", [1e-3, 1e-6])
@pytest.mark.parametrize(("count", "epsilon"), [(1, 1.0), (10, 1.0), (60, 3.0)])
def test_composed_selections_stay_within_delta(count, epsilon, delta):
    """Two candidates, the same pair of scores every time, all gaps: the exact delta is below the promised one."""
    mechanism = ExponentialMechanism(2, horizon=count)
    (scale,) = mechanism.calibrate(unit(), Budget(epsilon, delta)).scales["noise"]
    gaps = np.linspace(-6, 6, 241)
    deltas = [
        hockey_stick(
            softmax(np.array([gap, 0]), 1)[0], softmax(np.array([gap - 2 / scale.value, 0]), 1)[0], count, epsilon
        )
        for gap in gaps
    ]
    assert max(deltas) <= delta
    assert count == 1 or scale.value < 2 * count / epsilon  # less noise than the sum of pure losses asks for


def test_ten_exponential_mechanisms():
    (loss,) = ExponentialMechanism(5, horizon=10).at_scale(unit(), noise=20.0).losses
    assert loss == BoundedRange((0.1,) * 10)
    assert loss.epsilon(1e-6) <= 0.701
    assert loss.epsilon(0.0) == pytest.approx(1.0)


@every_selection
@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.01, 20),
    st.one_of(st.just(0.0), st.floats(1e-12, 1e-2)),
    st.floats(1e-3, 1e3),
    st.integers(1, 200),
    st.booleans(),
)
def test_calibration_spends_the_budget_and_no_more(kind, epsilon, delta, size, touches, monotone):
    mechanism = kind(4, horizon=touches + 7, touches=touches, monotone=monotone)
    (loss,) = mechanism.calibrate(unit(size), Budget(epsilon, delta)).losses
    assert 0.999999 * epsilon <= loss.epsilon(delta) <= epsilon


@every_selection
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_scales_are_monotone(kind, delta):
    def scale(epsilon=1.0, delta=delta, size=1.0, touches=20):
        return kind(4, touches=touches).scales(unit(size), Budget(epsilon, delta))["noise"]

    assert scale(epsilon=2.0) < scale() < scale(size=2.0)
    assert scale(touches=10) < scale() < scale(touches=40)
    assert scale(delta=1e-3) <= scale() <= scale(delta=0.0)


def test_loss_grows_until_the_unit_can_touch_no_more():
    flip = PermuteAndFlip(4, horizon=10, touches=3).at_scale(unit(), noise=4.0)
    assert [flip.spent(position).epsilon(0.0) for position in (0, 1, 2, 3, 10)] == [0, 0.5, 1.0, 1.5, 1.5]
    endless = PermuteAndFlip(4, touches=3).at_scale(unit(), noise=4.0)
    assert endless.spent(None) == Pure(1.5)
    bare = NoisyMax(4, horizon=1).at_scale(unit(), noise=0.0)
    assert (bare.spent(0), bare.spent(1)) == (Pure(0.0), Pure(math.inf))


# On a lattice

CDFS = {
    ExponentialMechanism: lambda x: np.exp(-np.exp(-np.maximum(x, -600))),
    PermuteAndFlip: lambda x: -np.expm1(-np.maximum(x, 0)),
    NoisyMax: laplace_cdf,
}


def on_lattice(kind, scores, scale):
    """Probabilities where scores and draws are rounded to whole numbers and ties go to the lower index."""
    points = np.arange(-150, 151)
    rounded = np.round(scores).astype(int)
    below = CDFS[kind]((points[:, None] - rounded - 0.5) / scale)  # score + rounded draw < point
    reach = CDFS[kind]((points[:, None] - rounded + 0.5) / scale)
    chances = []
    for i in range(len(scores)):
        rivals = np.concatenate([below[:, :i], reach[:, i + 1 :]], axis=1).prod(axis=1)
        chances.append(((reach - below)[:, i] * rivals).sum())
    return np.array(chances)


@every_selection
@either_way
def test_coarse_lattice_costs_what_is_counted(kind, monotone):
    """Scale 3 spacings, sensitivity 1.7: the loss of the rounded sensitivity holds, the exact one would not."""
    mechanism, scale, exact = kind(2, horizon=1, monotone=monotone), 3.0, unit(1.7)
    counted, uncounted = (
        mechanism.loss(sensitivity, {"noise": scale}, 1).epsilon(0.0)
        for sensitivity in (mechanism.rounded(exact, 1.0), exact)
    )
    worst = 0.0
    for start, gap in itertools.product(np.arange(0, 1, 0.1), [*np.arange(-9, 9, 0.3), 60]):
        before = np.array([start, start + gap])
        after = before + (np.array([0, 1.7]) if monotone else np.array([-1.7, 1.7]))
        ratios = np.log(on_lattice(kind, before, scale)) - np.log(on_lattice(kind, after, scale))
        worst = max(worst, np.ptp(ratios) if kind is ExponentialMechanism else np.abs(ratios).max())
    assert uncounted < worst <= counted


def test_rounding_gumbel_draws_is_counted():
    """Scores on the lattice already: rounding the draws alone widens the range beyond 2 D / scale, but not further."""
    before, moves, scale = np.array([4.0, -3.0, 3.0, -4.0]), np.array([-1, 1, 1, -1]), 0.5
    width = np.ptp(
        np.log(
            on_lattice(ExponentialMechanism, before, scale) / on_lattice(ExponentialMechanism, before + moves, scale)
        )
    )
    assert 2 / scale < width <= 2 / scale + 4 / scale
    rounded = ExponentialMechanism(4, horizon=1).rounded(unit(), 1.0)
    assert 2 * rounded.l2 / scale == 2 / scale + 2 / scale + 4 / scale


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(*[st.floats(-(2.0**40), 2.0**40, width=32)] * 2), min_size=4, max_size=4))
def test_noisy_scores_are_compared_exactly(pairs):
    """Compiled float32 against rational numbers."""
    assume(all(x == 0 or abs(x) > 2.0**-60 for pair in pairs for x in pair))  # no underflow
    a, b = jnp.array(pairs, jnp.float32).T
    high, low = jax.jit(two_sum)(a, b)
    exact = [Fraction(x) + Fraction(y) for x, y in pairs]
    assert [Fraction(float(h)) + Fraction(float(e)) for h, e in zip(high, low, strict=True)] == exact
    assert int(jax.jit(largest_sum)(a, b)) == exact.index(max(exact))


# Thresholds


def over_thresholds(queries, threshold_scale, query_scale):
    """Quadrature over the noisy threshold: weights, and the chances of each query to be below it and above."""
    width, reach = min(threshold_scale, query_scale), 45 * max(threshold_scale, query_scale)
    z, weight = panels(np.append(queries, 0.0), reach, width)
    apart = (z[:, None] - np.asarray(queries)) / query_scale
    return weight * laplace_pdf(z / threshold_scale) / threshold_scale, laplace_cdf(apart), laplace_cdf(-apart)


def first_above(queries, threshold_scale, query_scale):
    """P(the r-th query is the first above 0), for every r, and P(none is)."""
    weight, below, above = over_thresholds(queries, threshold_scale, query_scale)
    one = np.ones((len(weight), 1))
    so_far = np.cumprod(np.hstack([one, below]), axis=1)
    return weight @ (so_far * np.hstack([above, one]))


def answers(queries, count, threshold_scale, query_scale):
    """P(every sequence of answers until `count` are above or queries end), one noisy threshold for all."""
    weight, below, above = over_thresholds(queries, threshold_scale, query_scale)
    chances = []
    for length in range(1, len(queries) + 1):
        for said in itertools.product([False, True], repeat=length):
            halted = sum(said) == count and said[-1]
            if halted or (length == len(queries) and sum(said) < count):
                factors = [(above if yes else below)[:, i] for i, yes in enumerate(said)]
                chances.append(weight @ np.prod(factors, axis=0))
    return np.array(chances)


def claim(mechanism, threshold_scale, query_scale):
    (loss,) = mechanism.at_scale(unit(), threshold=threshold_scale, query=query_scale).losses
    return loss.epsilon(0.0)


def test_probabilities_of_answers_add_up():
    queries = [-1.0, 0.5, 2.0, -3.0]
    assert first_above(queries, 2.0, 3.0).sum() == pytest.approx(1, abs=1e-12)
    for count in (1, 2, 3):
        assert answers(queries, count, 2.0, 3.0).sum() == pytest.approx(1, abs=1e-12)


def test_constant_shift_costs_the_larger_share_only():
    """200 random streams: all queries from i0 on move by the same amount. Never above the claim, and it is attained."""
    random, excess, attained = np.random.default_rng(0), [], []
    for _ in range(200):
        scales = random.choice([1.0, 2.0, 3.0], 2)
        queries = np.cumsum(random.normal(0, 3, random.integers(1, 9))) - random.choice([0, 3, 8])
        shift = random.choice([-1, 1, random.uniform(-1, 1)])
        moved = queries + shift * (np.arange(len(queries)) >= random.integers(len(queries)))
        ratio = np.abs(np.log(first_above(queries, *scales)) - np.log(first_above(moved, *scales))).max()
        bound = claim(AboveThreshold(shift="constant"), *scales)
        excess.append(ratio - bound)
        attained.append(ratio / bound)
    assert max(excess) <= 1e-9
    assert max(attained) > 0.97


def test_other_shifts_break_the_constant_shift_claim():
    """200 queries below that rise, one above that falls, scales 2 and 2: 1.5, where a constant shift costs 0.5."""
    queries = np.append(np.zeros(200), -100.0)
    moved = queries + np.append(np.ones(200), -1.0)
    ratio = np.abs(np.log(first_above(queries, 2.0, 2.0)) - np.log(first_above(moved, 2.0, 2.0))).max()
    constant, anyhow = (claim(AboveThreshold(shift=shift), 2.0, 2.0) for shift in ("constant", "any"))
    assert (constant, anyhow) == (0.5, 1.5)
    assert 1.49 <= ratio <= anyhow + 1e-9


@pytest.mark.parametrize("shift", ["any", "monotone"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_generic_thresholds_cost_no_more_than_claimed(shift, count):
    """60 random streams of five queries, all sequences of answers."""
    random = np.random.default_rng(count)
    for _ in range(60):
        scales = random.choice([1.0, 2.0, 3.0], 2)
        queries = random.normal(-2, 3, 5)
        moves = random.choice([0.0, 1.0, random.uniform()], 5)
        moved = queries + moves * (random.choice([-1, 1], 5) if shift == "any" else random.choice([-1, 1]))
        ratio = np.abs(np.log(answers(queries, count, *scales)) - np.log(answers(moved, count, *scales))).max()
        assert ratio <= claim(AboveThreshold(count=count, shift=shift), *scales) + 1e-9


@pytest.mark.parametrize("shift", ["any", "monotone"])
@pytest.mark.parametrize("count", [1, 3])
def test_generic_claim_is_attained(shift, count):
    """Many queries below that rise, then `count` far below that fall (any) or stay (monotone) and yet are above."""
    queries = np.append(np.zeros(3000), np.full(count, -150.0))
    moved = queries + np.append(np.ones(3000), np.full(count, -1.0 if shift == "any" else 0.0))

    def log_chance(values):
        weight, below, above = over_thresholds(values[[0, -1]], 1.5, 2.0)
        return np.log(weight @ (below[:, 0] ** 3000 * above[:, 1] ** count))

    bound = claim(AboveThreshold(count=count, shift=shift), 1.5, 2.0)
    assert 0.97 * bound <= log_chance(queries) - log_chance(moved) <= bound + 1e-9


@pytest.mark.parametrize(("phases", "literal"), [(10, 0.50), (50, 2.5), (200, 10), (1000, 50)])
def test_comparing_with_the_bare_threshold_costs_more_with_every_phase(phases, literal):
    """Paper 004's pseudo-code as printed, Lap(8) at epsilon 1, against ours with the same noise: at most 1/4."""
    queries = np.full(phases, -5.0)
    bare = phases * (stats.laplace.logcdf(5, scale=8) - stats.laplace.logcdf(4, scale=8))
    assert bare == pytest.approx(literal, rel=0.02)
    ours = np.log(first_above(queries, 4.0, 8.0)) - np.log(first_above(queries + 1, 4.0, 8.0))
    bound = claim(AboveThreshold(shift="constant"), 4.0, 8.0)
    assert bound == 0.25
    assert np.abs(ours).max() <= bound + 1e-9


NO_LATTICE = {}


@partial(jax.jit, static_argnums=0)
def scanned(mechanism, given, level, grid):
    spacing = {} if grid is None else dict.fromkeys(mechanism.laws(), grid)

    def step(state, given):
        value, *draws = given
        above, state = mechanism.release(state, value, dict(zip(mechanism.laws(), draws, strict=True)), spacing)
        return state, (above, state)

    return jax.lax.scan(step, mechanism.init(level), given)[1]


def watched(mechanism, values, query, threshold, level=0.0, grid=None):
    """Answers and states of a whole stream in one compiled program."""
    given = tuple(jnp.asarray(each, jnp.float32) for each in (values, query, threshold))
    return scanned(mechanism, given, jnp.float32(level), None if grid is None else jnp.float32(grid))


def by_hand(values, query, threshold, level, count, constant):
    """The algorithm in float64, as a reader would write it."""
    said, noisy, total = [], None, 0.0
    for value, query_noise, threshold_noise in zip(values, query, threshold, strict=True):
        noisy = level + threshold_noise if noisy is None else noisy
        total = total + value if constant else value
        above = sum(said) < count and total + query_noise >= noisy
        if above and constant:
            noisy, total = None, 0.0
        said.append(bool(above))
    return said


@pytest.mark.parametrize("shift", ["any", "monotone", "constant"])
@pytest.mark.parametrize("level", [0.0, 50.0, 1e6])
def test_answers_are_those_of_the_algorithm(shift, level):
    """On a lattice of 2^-14 and far beyond what float32 holds of it, every comparison is exact."""
    random, grid = np.random.default_rng(3), 2.0**-14
    query, threshold = (np.round(random.laplace(0, 4, 500) / grid) * grid for _ in range(2))
    spread = random.uniform(0, 1 + level / 20, 500) if shift == "constant" else level + random.normal(-8, 4, 500)
    values = np.round(np.float32(spread).astype(float) / grid) * grid
    said, _ = watched(AboveThreshold(count=7, shift=shift), values, query, threshold, level, grid)
    assert said.tolist() == by_hand(values, query, threshold, level, 7, shift == "constant")
    assert 1 <= said.sum() <= 7


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 299), st.integers(-(2**14), 2**14))
def test_constant_shift_holds_by_construction(seed, place, steps):
    """Change one increment: until the answers differ, queries of its segment move by exactly that, no others at all."""
    random, grid = np.random.default_rng(seed), 2.0**-14
    values = np.round(random.uniform(-50, 1000, 300) / grid) * grid
    noise = random.laplace(0, 3, (2, 300))
    mechanism, changed = AboveThreshold(count=50, shift="constant"), values.copy()
    changed[place] += steps * grid
    (said, before), (also, after) = (
        watched(mechanism, v, *noise, level=20_000.0, grid=grid) for v in (values, changed)
    )
    margins = [np.float64(s.noisy[0]) + np.float64(s.noisy[1]) for s in (before, after)]
    differ = np.flatnonzero(said != also)
    end = differ[0] if differ.size else 300
    later = np.flatnonzero(said[place:end])
    close = place + later[0] + 1 if later.size else end  # where the segment of the changed increment ends
    expected = np.zeros(end)
    expected[place:close] = steps * grid
    np.testing.assert_array_equal((margins[0] - margins[1])[:end], expected)


@pytest.mark.parametrize("shift", ["any", "constant"])
def test_first_answers_follow_the_law_at_the_right_scale_and_no_other(shift):
    """Chi-square, 20,000 compiled streams of four queries. False alarm 1e-4; 2/3 and 3/2 of either scale are caught."""
    queries, scales, streams = np.array([-2.0, -0.5, 0.5, -1.0]), (1.5, 2.5), 20_000
    mechanism = AboveThreshold(shift=shift)
    values = jnp.asarray(np.diff(queries, prepend=0.0) if shift == "constant" else queries, jnp.float32)
    draws = {
        name: jnp.asarray(FastNoise(9).draw(name, spec, [Scale(scale)], 0, streams * 4).reshape(streams, 4))
        for (name, spec), scale in zip(mechanism.noise("speak").items(), reversed(scales), strict=True)
    }
    said = jax.jit(jax.vmap(lambda q, t: watched(mechanism, values, q, t)[0]))(draws["query"], draws["threshold"])
    counts = np.bincount(np.where(said.any(1), said.argmax(1), 4), minlength=5)
    factors = [(1, 1), (2 / 3, 1), (3 / 2, 1), (1, 2 / 3), (1, 3 / 2)]
    laws = [first_above(queries, f * scales[0], g * scales[1]) * streams for f, g in factors]
    accepted = [stats.chisquare(counts, law).pvalue > FALSE_ALARM for law in laws]
    assert accepted == [True, False, False, False, False]


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["any", "monotone", "constant"]), st.floats(0.01, 20), st.floats(1e-3, 1e3), st.integers(1, 10**6)
)
def test_threshold_calibration_spends_the_budget_and_no_more(shift, epsilon, size, count):
    watch = AboveThreshold(count=count, shift=shift).calibrate(unit(size), Budget(epsilon))
    assert 0.999999 * epsilon <= watch.losses[0].epsilon(0.0) <= epsilon
    assert watch.spent(0) == Pure(0.0)
    more = AboveThreshold(count=count, shift=shift).calibrate(unit(size), Budget(2 * epsilon))
    assert all(more.scales[name][0].value < watch.scales[name][0].value for name in watch.scales)


def test_the_split_has_the_smallest_variance():
    scales = AboveThreshold(count=5).scales(unit(), Budget(1.0))
    a, b = scales["threshold"], scales["query"]
    for other in (0.9 * a, 1.1 * a):
        assert other**2 + (10 / (1 - 1 / other)) ** 2 > a**2 + b**2


def test_loss_counts_the_answers_there_can_have_been():
    watch = AboveThreshold(count=3).at_scale(unit(), query=4.0, threshold=2.0)
    assert [watch.spent(position).epsilon(0.0) for position in (0, 1, 2, 3, 1000)] == [0, 1.0, 1.5, 2.0, 2.0]
    constant = AboveThreshold(count=None, shift="constant").at_scale(unit(), query=4.0, threshold=2.0)
    assert constant.spent(None) == constant.spent(1) == Pure(0.5)


# Used up


def test_halted_threshold_raises_and_compiled_says_no_more():
    watch, high = AboveThreshold(count=2), jnp.float32(100)
    state, noise = watch.init(1.0), {"query": jnp.float32(0), "threshold": jnp.float32(0)}
    for _ in range(2):
        above, state = watch.release(state, high, noise, NO_LATTICE)
        assert above
    with pytest.raises(PrivacyError, match="all 2 answers 'above' were given"):
        watch.release(state, high, noise, NO_LATTICE)
    zeros = np.zeros(6)
    said, _ = watched(watch, np.full(6, 100.0), zeros, zeros, level=1.0)
    assert said.tolist() == [True, True, False, False, False, False]
    endless, _ = watched(AboveThreshold(count=None, shift="constant"), np.full(6, 100.0), zeros, zeros, level=1.0)
    assert endless.all()


def test_a_query_at_the_threshold_is_above():
    said, _ = watched(
        AboveThreshold(count=3), [1.0, np.nextafter(np.float32(1), np.float32(0))], [0, 0], [0, 0], level=1.0
    )
    assert said.tolist() == [True, False]


def test_horizon_of_a_threshold():
    watch, noise = AboveThreshold(count=5, horizon=2), {"query": jnp.float32(0), "threshold": jnp.float32(0)}
    state = watch.init(1.0)
    for _ in range(2):
        _, state = watch.release(state, jnp.float32(0), noise, NO_LATTICE)
    with pytest.raises(PrivacyError, match="horizon: 3 releases"):
        watch.release(state, jnp.float32(0), noise, NO_LATTICE)
    said, _ = watched(watch, np.full(4, 100.0), np.zeros(4), np.zeros(4), level=1.0)
    assert said.tolist() == [True, True, False, False]


@every_selection
def test_horizon_of_a_selection(kind):
    pick = kind(3, horizon=2)
    scores, noise = jnp.array([0.0, 2.0, 1.0]), {"noise": jnp.zeros(3)}
    state = pick.init()
    for _ in range(2):
        index, state = pick.release(state, scores, noise, {})
        assert (int(index), index.dtype) == (1, jnp.int32)
    with pytest.raises(PrivacyError, match="horizon: 3 releases"):
        pick.release(state, scores, noise, {})

    def step(state, _):
        return pick.release(state, scores, noise, {})[::-1]

    _, indices = jax.jit(lambda: jax.lax.scan(step, pick.init(), length=4))()
    assert indices.tolist() == [1, 1, -1, -1]


# Bad input


@every_selection
def test_bad_scores(kind):
    pick, noise = kind(3, touches=1), {"noise": jnp.zeros(3)}

    def release(scores):
        return pick.release(pick.init(), scores, noise, {})[0]

    assert release(jnp.array([-jnp.inf, 0.0, -jnp.inf])) == 1
    for bad in ([jnp.nan, 0.0, 0.0], [jnp.inf, 0.0, 0.0], [-jnp.inf] * 3):
        with pytest.raises(DataError, match="scores"):
            release(jnp.array(bad))
        assert jax.jit(release)(jnp.array(bad)) == -1
    with pytest.raises(ConfigurationError, match="shape"):
        release(jnp.zeros(4))


def test_a_query_that_is_not_a_number_is_never_above():
    values = [100.0, np.nan, 100.0]
    generic, _ = watched(AboveThreshold(count=5), values, np.zeros(3), np.zeros(3), level=1.0)
    assert generic.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: ExponentialMechanism(0, horizon=1), ConfigurationError, "candidates"),
        (lambda: ExponentialMechanism(3), PrivacyError, "horizon"),
        (lambda: NoisyMax(3, horizon=0), ConfigurationError, "horizon"),
        (lambda: NoisyMax(3, touches=0), ConfigurationError, "touches"),
        (lambda: PermuteAndFlip(3, horizon=1, best="first"), ConfigurationError, "best"),
        (lambda: AboveThreshold(count=0), ConfigurationError, "count"),
        (lambda: AboveThreshold(count=None), PrivacyError, "count"),
        (lambda: AboveThreshold(shift="both"), ConfigurationError, "shift"),
        (lambda: NoisyMax(3, horizon=1).calibrate(1.0, Budget(1.0)), PrivacyError, "sensitivity"),
        (lambda: NoisyMax(3, horizon=1).calibrate(unit(), Budget(0.0)), PrivacyError, "epsilon"),
        (lambda: NoisyMax(3, horizon=1).calibrate(unit(math.inf), Budget(1.0)), PrivacyError, "l1 sensitivity"),
        (lambda: AboveThreshold().at_scale(unit(), query=1.0), ConfigurationError, "scales"),
        (lambda: NoisyMax(3, horizon=2).at_scale(unit(), noise=1.0).spent(3), PrivacyError, "horizon"),
    ],
)
def test_bad_settings(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_mechanisms_are_static_and_draws_have_names():
    assert hash(ExponentialMechanism(3, horizon=2)) == hash(ExponentialMechanism(3, horizon=2))
    assert AboveThreshold(count=3, name="loss").laws().keys() == {"loss_query", "loss_threshold"}
    with pytest.raises(ConfigurationError, match="query"):
        AboveThreshold().release(AboveThreshold().init(), jnp.zeros(2), {}, {})
