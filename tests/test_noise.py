"""Noise: a function of (seed, name, learner, exchange); the right law at the right scale, two-sided."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import stats

from gossamer import ConfigurationError, FastNoise
from gossamer.privacy.noise import LAWS, NoiseSpec

LAW = {"laplace": stats.laplace, "gaussian": stats.norm}
# A Kolmogorov-Smirnov test at this level accepts the right law except once in a million seeds; the seed is fixed.
FALSE_ALARM = 1e-6


def draws(law, *, seed=5, name="x", start=0, stop=20_000, learners=3, shape=(4,)):
    return FastNoise(seed).draw(name, NoiseSpec(law, shape, used_in="speak"), learners, start, stop)


@pytest.mark.parametrize("law", LAWS)
def test_right_law_accepted_and_wrong_scales_rejected(law):
    values = draws(law).ravel().astype(np.float64)
    assert stats.kstest(values, LAW[law].cdf).pvalue > FALSE_ALARM
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(values * wrong, LAW[law].cdf).pvalue < FALSE_ALARM


@pytest.mark.parametrize("law", LAWS)
def test_every_learner_exchange_and_coordinate_has_its_own_draws(law):
    values = draws(law, stop=5000)
    for axis in range(values.ndim):
        rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)[:6].astype(np.float64)
        correlation = np.corrcoef(rows) - np.eye(len(rows))
        # Correlations of independent samples of this size stay below 6 / sqrt(size) except once in 10^8.
        assert np.abs(correlation).max() < 6 / np.sqrt(rows.shape[1])
    assert len(np.unique(values)) > 0.99 * values.size


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    start=st.integers(0, 3000),
    length=st.integers(1, 400),
    origin=st.sampled_from([0, 2**24, 2**40, 2**61]),
    law=st.sampled_from(LAWS),
)
def test_values_do_not_depend_on_the_chunking(start, length, origin, law):
    whole = draws(law, start=origin, stop=origin + 3500, shape=(1000,), learners=1)
    part = draws(law, start=origin + start, stop=min(origin + 3500, origin + start + length), shape=(1000,), learners=1)
    assert_array_equal(whole[:, start : start + part.shape[1]], part)


def test_seed_name_and_far_exchanges_give_other_draws():
    base = draws("laplace", stop=8)
    others = [
        draws("laplace", stop=8, seed=6),
        draws("laplace", stop=8, name="y"),
        draws("laplace", start=2**32, stop=2**32 + 8),
        draws("laplace", start=2**24, stop=2**24 + 8),
    ]
    for other in others:
        assert not np.isin(base, other).any()


def test_a_learner_alone_draws_what_it_draws_among_others():
    for law in LAWS:
        assert_array_equal(draws(law, learners=1, stop=700)[0], draws(law, learners=40, stop=700)[0])


def test_laws_of_one_name_do_not_share_their_words():
    laplace, gaussian = draws("laplace", stop=4000).ravel(), draws("gaussian", stop=4000).ravel()
    assert abs(stats.spearmanr(np.abs(laplace), np.abs(gaussian)).statistic) < 6 / np.sqrt(laplace.size)


def test_every_call_gives_fresh_memory():
    assert not np.shares_memory(draws("laplace", stop=8), draws("laplace", stop=8))


def test_tails_are_where_they_should_be():
    """Counts beyond a level, two-sided, at a false-alarm rate of one in a million for each law."""
    for law in LAWS:
        values = draws(law, stop=200_000, learners=4, shape=(3,)).ravel()
        level = {"laplace": 10.0, "gaussian": 4.2}[law]
        expected = values.size * 2 * LAW[law].sf(level)
        beyond = int((np.abs(values) > level).sum())
        assert stats.poisson.cdf(beyond, expected) > 5e-7
        assert stats.poisson.sf(beyond - 1, expected) > 5e-7


def test_shapes():
    assert draws("gaussian", stop=3, shape=(2, 5), learners=7).shape == (7, 3, 2, 5)
    assert draws("gaussian", stop=3, shape=(), learners=2).shape == (2, 3)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_bad_seed_is_refused(seed):
    with pytest.raises(ConfigurationError, match="seed: got"):
        FastNoise(seed)


def test_unknown_law_is_refused():
    with pytest.raises(ConfigurationError, match="law: got 'cauchy'; allowed: 'laplace' or 'gaussian'"):
        NoiseSpec("cauchy", (1,), used_in="speak")
