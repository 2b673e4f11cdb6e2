"""Fast noise: a function of (seed, name, learner, exchange); the right law at the right scale, on host and device."""

from __future__ import annotations

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats

from gossamer import Budget, ConfigurationError, FastNoise, algorithms, problems, streams, topology
from gossamer.privacy import compiled, fast
from gossamer.privacy.compiled import draws_from, places_at
from gossamer.privacy.mixture import INTERVALS, SPAN, sizes
from gossamer.privacy.noise import LAWS, NoiseSpec, Scale
from gossamer.privacy.words import Time, places, words
from gossamer.simulation import plan
from gossamer.simulation.plan import program_draws, program_reads

LAW = {
    "laplace": stats.laplace,
    "gaussian": stats.norm,
    "gumbel": stats.gumbel_r,
    "exponential": stats.expon,
    "uniform": stats.uniform,
}
# A Kolmogorov-Smirnov test at this level accepts the right law except once in a million seeds; the seed is fixed.
FALSE_ALARM = 1e-6
ERA = 2**32
every_law = pytest.mark.parametrize("law", LAWS)


def draws(law, *, seed=5, name="x", start=0, stop=20_000, learners=3, shape=(4,), scale=1.0):
    spec = NoiseSpec(law, shape, used_in="speak")
    return FastNoise(seed).draw(name, spec, [Scale(scale)] * learners, start, stop)


def numbers(law, **options):
    """Independent numbers, and their law: the draws themselves, or the lengths of l2-Laplace vectors."""
    values = draws(law, **options).astype(np.float64)
    if law == "l2-laplace":
        return np.linalg.norm(values, axis=-1).ravel(), stats.gamma(values.shape[-1])
    return values.ravel(), LAW[law]


@every_law
def test_right_law_accepted_and_wrong_scales_rejected(law):
    values, exact = numbers(law)
    assert stats.kstest(values, exact.cdf).pvalue > FALSE_ALARM
    for wrong in (2 / 3, 3 / 2):
        wrong_values, _ = numbers(law, scale=wrong)
        assert stats.kstest(wrong_values, exact.cdf).pvalue < FALSE_ALARM


@every_law
def test_tails_are_where_they_should_be(law):
    """Counts below and above levels of probability 2e-5: four bounds, each with a false-alarm rate of 5e-7."""
    values, exact = numbers(law, stop=200_000, learners=4, shape=(3,))
    expected = 2e-5 * values.size
    for count in (np.sum(values < exact.ppf(2e-5)), np.sum(values > exact.isf(2e-5))):
        assert stats.poisson.cdf(count, expected) > 5e-7
        assert stats.poisson.sf(count - 1, expected) > 5e-7


@every_law
def test_every_learner_exchange_and_coordinate_has_its_own_draws(law):
    """Also in size, apart from the coordinates of an l2-Laplace vector, which share one."""
    values = draws(law, stop=40, learners=40, shape=(40,)).astype(np.float64)
    for axis in range(values.ndim):
        rows = np.moveaxis(values, axis, 0).reshape(40, -1)
        sized = [] if law == "l2-laplace" and axis == 2 else [np.abs(rows)]
        for each in (rows, *sized):
            # Correlations of independent samples of this size stay below 7 / sqrt(size) except once in 10^11 pairs.
            assert np.abs(np.corrcoef(each) - np.eye(40)).max() < 7 / np.sqrt(rows.shape[1])
    assert len(np.unique(values)) > 0.99 * values.size


@pytest.mark.parametrize("dim", [1, 2, 5, 1000])
def test_l2_laplace_vectors_have_the_right_length_and_any_direction(dim):
    """Length Gamma(d), cosine to any fixed direction symmetric Beta, the two independent: false alarm 1e-6 each."""
    values = draws("l2-laplace", shape=(dim,), stop=2000 if dim > 100 else 20_000, learners=1)[0]
    length = np.linalg.norm(values.astype(np.float64), axis=1)
    assert stats.kstest(length, stats.gamma(dim).cdf).pvalue > FALSE_ALARM
    if dim == 1:
        assert stats.kstest(values[:, 0], stats.laplace.cdf).pvalue > FALSE_ALARM
        return
    axis = np.random.default_rng(0).standard_normal(dim)
    for direction in (axis / np.linalg.norm(axis), np.eye(dim)[0], np.eye(dim)[-1]):
        cosine = values @ direction / length
        arc = stats.beta((dim - 1) / 2, (dim - 1) / 2, loc=-1, scale=2)
        assert stats.kstest(cosine, arc.cdf).pvalue > FALSE_ALARM
        assert stats.spearmanr(np.abs(cosine), length).pvalue > FALSE_ALARM
        assert stats.spearmanr(cosine, length).pvalue > FALSE_ALARM


@pytest.mark.parametrize("dim", [1, 4, 37])
def test_l2_laplace_coordinates_have_variance_d_plus_one(dim):
    """Mean square of every coordinate: a normal test at 5 sigma (6e-7); Var x^2 = (d+1)(2d+8); wrong scales fail it."""

    def deviation(scale):
        squares = draws("l2-laplace", shape=(dim,), stop=50_000, learners=1, scale=scale)[0].astype(np.float64) ** 2
        return np.abs(squares.mean(0) - (dim + 1)).max() / np.sqrt((dim + 1) * (2 * dim + 8) / len(squares))

    assert deviation(1.0) < 5 < min(deviation(2 / 3), deviation(3 / 2))


@pytest.mark.parametrize(("dim", "share"), [(1, 5e-6), (2, 2e-6), (10, 2e-7), (1000, 2e-7), (10**6, 2e-7)])
def test_sizes_between_the_entries_of_the_table(dim, share):
    z = np.random.default_rng(0).uniform(-6.77, 6.77, 5000)
    exact = np.sqrt(2 * special.gammaincinv((dim + 1) / 2, special.ndtr(z)))
    line = np.interp(z, np.linspace(-SPAN, SPAN, INTERVALS + 1), sizes(dim).astype(np.float64))
    assert_allclose(line[z < 5], exact[z < 5], rtol=share)
    exact = np.sqrt(2 * special.gammainccinv((dim + 1) / 2, special.ndtr(-z)))
    assert_allclose(line[z > -5], exact[z > -5], rtol=share)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    start=st.integers(0, 1000),
    length=st.integers(1, 400),
    origin=st.sampled_from([0, 2**24, ERA - 500, 2**40, 2**61]),
    law=st.sampled_from(LAWS),
    size=st.sampled_from([1, 333, 1000]),
)
def test_values_do_not_depend_on_the_chunking(start, length, origin, law, size):
    whole = draws(law, start=origin, stop=origin + 1500, shape=(size,), learners=2)
    part = draws(law, start=origin + start, stop=origin + start + length, shape=(size,), learners=2)
    assert_array_equal(whole[:, start : start + length], part)


@every_law
def test_seed_name_and_far_exchanges_give_other_draws(law):
    base = draws(law, stop=8)
    others = [
        draws(law, stop=8, seed=6),
        draws(law, stop=8, name="y"),
        draws(law, start=8, stop=16),
        draws(law, start=2**24, stop=2**24 + 8),
        draws(law, start=ERA, stop=ERA + 8),
        draws(law, start=2 * ERA, stop=2 * ERA + 8),
    ]
    for other in others:
        assert not np.isin(base, other).any()


@every_law
def test_a_learner_alone_draws_what_it_draws_among_others(law):
    assert_array_equal(draws(law, learners=1, stop=700)[0], draws(law, learners=40, stop=700)[0])


@pytest.mark.parametrize(("one", "other"), list(combinations(LAWS, 2)))
def test_laws_of_one_name_do_not_share_their_words(one, other):
    """Rank correlations of values and of sizes: false alarm 2e-9 each (6 sigma)."""
    first, second = (draws(law, stop=4000).ravel() for law in (one, other))
    for pair in ((first, second), (np.abs(first), np.abs(second))):
        assert abs(stats.spearmanr(*pair).statistic) < 6 / np.sqrt(first.size)


@every_law
def test_every_learner_has_its_own_scale(law):
    scales = [0.5, 3.0, 0.0, 1e-3, 7e5]
    spec = NoiseSpec(law, (3,), used_in="speak")
    mixed = FastNoise(5).draw("x", spec, [Scale(scale, grid=2.0**-20) for scale in scales], 10, 50)
    unit = draws(law, start=10, stop=50, learners=5, shape=(3,))
    assert_array_equal(mixed, unit * np.array(scales, np.float32)[:, None, None])


@every_law
def test_the_rarest_words_give_finite_numbers_inside_the_law(law):
    rare = [0, 1, 2, 2**31 - 1, 2**31, 2**32 - 129, 2**32 - 128, 2**32 - 2, 2**32 - 1]
    words = np.repeat(np.array(rare, np.uint32)[:, None], 8, axis=1)
    out = np.empty((len(rare), 6 if law == "l2-laplace" else 8), np.float32)
    fast._TRANSFORMS[law](words, out)
    assert np.isfinite(out).all()
    assert law != "uniform" or (out.min() > 0 and out.max() < 1)
    assert law != "exponential" or out.min() > 0
    picked = compiled._TRANSFORMS[law](lambda numbers: jnp.asarray(words)[:, numbers], out.shape[1])
    assert_close(np.asarray(picked), out)


def test_draws_are_those_of_version_0_3():
    """A seed gives the same run in later versions, also where the lower word of the time begins again."""
    known = {
        "laplace": [[0.110938452, 2.30994081, -0.400212824], [-2.10133314, -0.327887982, -0.156407878]],
        "gaussian": [[-0.293373585, 1.32781565, 0.067701474], [0.275445253, -0.804377139, -1.62745488]],
    }
    for law, values in known.items():
        found = draws(law, seed=7, name="message", start=ERA - 1, stop=ERA + 1, shape=(3,), learners=1)
        assert_close(found[0], np.array(values, np.float32))


def test_every_call_gives_fresh_memory():
    assert not np.shares_memory(draws("laplace", stop=8), draws("laplace", stop=8))


@every_law
def test_shapes(law):
    assert draws(law, stop=3, shape=(2, 5), learners=7).shape == (7, 3, 2, 5)
    assert draws(law, stop=3, shape=(), learners=2).shape == (2, 3)
    assert draws(law, stop=0, learners=2).shape == (2, 0, 4)
    assert draws(law, stop=1).dtype == np.float32


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_bad_seed_is_refused(seed):
    with pytest.raises(ConfigurationError, match="seed: got"):
        FastNoise(seed)


def test_unknown_law_is_refused():
    with pytest.raises(ConfigurationError, match="law: got 'cauchy'; allowed: 'laplace' or 'gaussian' or 'l2-laplace'"):
        NoiseSpec("cauchy", (1,), used_in="speak")


# Draws in compiled programs.


@jax.jit
def rows_of(recipe, start, rows):
    """Draws of so many exchanges from `start` on, a pair of words: axes (row, learner, ...)."""
    at = lambda t: draws_from(recipe, places_at(recipe, Time(*start).plus(t)))  # noqa: E731
    return jax.vmap(at)(rows)


STARTS = [0, 2**31 - 3, ERA + 12_345, 3 * ERA - 4, 2**61 + 2**33 - 4]


def assert_close(found, expected):
    """Equal to float32 rounding: 16 units in the last place of a number of at least 1."""
    assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


def recipe(law, shape, start, *, seed=5, scales=(1.0, 0.25), name="x"):
    spec = NoiseSpec(law, shape, used_in="speak")
    each = [Scale(scale) for scale in scales]
    made = FastNoise(seed).recipe(name, spec, each)
    return made, FastNoise(seed).draw(name, spec, each, start, start + 9)


@every_law
@pytest.mark.parametrize("shape", [(), (7,), (2, 56)])
def test_compiled_draws_are_the_hosts_to_float32_rounding(law, shape):
    """Also where a chunk goes over a multiple of 2^32, at which the lower word of the time begins again."""
    for start in STARTS:
        made, host = recipe(law, shape, start)
        rows = rows_of(made, Time.of(start), jnp.arange(9, dtype=jnp.uint32)[:, None])
        assert rows.dtype == jnp.float32
        found, unit = np.moveaxis(np.asarray(rows), 0, 1), 1.0
        if law == "l2-laplace":  # a random size times Gaussian values, which are what is rounded
            unit = np.maximum(1.0, np.linalg.norm(host.reshape(2, 9, -1), axis=2) / np.sqrt(made.size))
            unit = unit.reshape(2, 9, *(1,) * len(shape))
        assert_close(found / unit, host / unit)


def test_compiled_gaussian_draws_are_exact_to_float32_rounding():
    """Against double precision, from the same words, an odd number of values included."""
    for size in (1, 7, 1000):
        made, _ = recipe("gaussian", (size,), 3, scales=(1.0, 1.0))
        at = places(made.key, np.arange(2, dtype=np.uint32), Time.of(3))
        radius, angle = np.split(words(at, size + size % 2).astype(np.float64), 2, axis=1)
        radius, angle = np.sqrt(-2 * np.log((radius + 0.5) / 2**32)), 2 * np.pi * angle / 2**32
        exact = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[:, :size]
        assert_allclose(draws_from(made, places_at(made, Time.of(3))), exact, rtol=1e-6, atol=1e-7)


@every_law
def test_recipes_of_seeds_stack_and_run_in_a_loop_without_compiling_again(law):
    traces = []

    @jax.jit
    def total(stacked, start, stop):
        traces.append(law)

        def add(t, acc):
            time = Time(*start).plus(t.astype(jnp.uint32))
            return acc + jax.vmap(lambda one: draws_from(one, places_at(one, time)))(stacked)

        return jax.lax.fori_loop(0, stop, add, jnp.zeros((2, 3, 2, 2), jnp.float32))

    for seeds, start, scale in (((1, 2), 0, 1.0), ((3, 2**63), ERA + 77, 0.5)):
        each = [recipe(law, (2, 2), start, seed=seed, scales=(scale, 1.0, 2.0)) for seed in seeds]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(made for made, _ in each))
        host = np.stack([draw for _, draw in each])
        assert_allclose(total(stacked, Time.of(start), 5), host[:, :, :5].sum(2), rtol=2e-6, atol=2e-5)
    assert len(traces) == 1


def test_programs_draw_where_it_pays(monkeypatch):
    def drawn(learners, **options):
        options = {"budget": Budget(1.0), "clip": 1.0, "step": 0.1} | options
        source = FastNoise(0, compiled=options.pop("compiled", None))
        return program_draws(algorithms.pd_ogd(problems.Linear(10), topology.ring(learners), **options), [source])

    assert not drawn(100)
    assert drawn(300)
    assert drawn(16, compiled=True)
    assert drawn(10_000)
    assert not drawn(10_000, compiled=False)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert drawn(16)
    assert not drawn(16, compiled=False)


def test_programs_of_small_runs_read_records_and_leave_drawn_samples_to_the_host(monkeypatch):
    records = streams.common(np.ones((10, 3), np.float32)).feed()
    drawn = streams.random_signs(2, 3, seed=0).feed()
    assert program_reads(records, draws=False)
    assert not program_reads(drawn, draws=False)
    assert program_reads(drawn, draws=True)
    monkeypatch.setattr(plan, "_COPIED", 100)
    assert not program_reads(records, draws=False)
    assert program_reads(records, draws=True)


def test_programs_do_not_draw_for_a_source_with_draws_of_its_own():
    """Else half the noise would be whole again wherever a program draws: an audit would not see it."""

    class Halved(FastNoise):
        def draw(self, *args):
            return super().draw(*args) / 2

    algorithm = algorithms.pd_ogd(problems.Linear(1000), topology.ring(50), budget=Budget(1.0), clip=1.0, step=0.1)
    assert program_draws(algorithm, [FastNoise(0)])
    assert not program_draws(algorithm, [Halved(0)])
    assert not program_draws(algorithm, [Halved(0, compiled=True)])
