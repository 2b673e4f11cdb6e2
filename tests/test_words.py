"""Random words by their place, permutations, and orders of play: law, independence, and NumPy against JAX."""

import math
from collections import Counter
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import stats

from gossamer.privacy.words import Key, Time, below, permuted, places, words
from gossamer.streams.order import Batches, Shares

FALSE_ALARM = 1e-7  # of every test below, which looks at fewer than 100 statistics
KEY = Key.of(3, "test")


def uniform_bytes(drawn):
    """The smallest p-value of chi-squared tests of the four bytes of every word."""
    counts = [np.bincount((drawn >> shift & 255).ravel(), minlength=256) for shift in (0, 8, 16, 24)]
    return min(stats.chisquare(count).pvalue for count in counts)


@pytest.mark.parametrize(("rows", "times", "count"), [(1000, 20, 50), (4, 5000, 50), (100_000, 2, 5), (1, 1, 10**6)])
def test_words_are_uniform_and_do_not_know_each_other(rows, times, count):
    drawn = words(places(KEY, np.arange(rows, dtype=np.uint32)[:, None], Time.of(np.arange(times))), count)
    assert uniform_bytes(drawn) > FALSE_ALARM / 100
    for axis in range(3):
        first, second = np.delete(drawn, -1, axis), np.delete(drawn, 0, axis)
        if first.size:
            assert uniform_bytes(first ^ second) > FALSE_ALARM / 100
            centred = [(part >> 8).astype(np.float64) * 2.0**-24 - 0.5 for part in (first, second)]
            z = 12 * (centred[0] * centred[1]).sum() / math.sqrt(first.size)
            assert 2 * stats.norm.sf(abs(z)) > FALSE_ALARM / 100


def test_weak_words_would_be_found():
    """Words without the second half of the hash, and words of one place for two rows."""
    rows = np.arange(1000, dtype=np.uint32)
    weak = rows[:, None] + np.arange(100, dtype=np.uint32) * np.uint32(0x9E3779B9)
    assert uniform_bytes(weak ^ (weak >> 16)) < FALSE_ALARM / 100
    drawn = words(places(KEY, rows // 2, Time.of(0)), 100)
    assert uniform_bytes(drawn[1:] ^ drawn[:-1]) < FALSE_ALARM / 100


def test_words_of_jax_are_those_of_numpy():
    time = Time.of(2**32 - 3)
    rows = np.arange(50, dtype=np.uint32)
    there = jax.jit(lambda later: words(places(KEY, jnp.asarray(rows), Time(*map(jnp.asarray, time)).plus(later)), 9))
    for later in (0, 2, 3, 100):
        here = words(places(KEY, rows, Time.of(2**32 - 3 + later)), 9)
        assert_array_equal(there(jnp.uint32(later)), here)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(1, 2**31 - 1))
def test_below_is_the_upper_half_of_a_product(word, size):
    assert int(below(np.array([word], np.uint32), np.uint32(size))[0]) == word * size >> 32


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_all_permutations_are_equally_likely(size):
    count = 20_000 * size
    at = places(KEY, np.arange(count, dtype=np.uint32)[:, None], Time.of(0))
    found = permuted(np.tile(np.arange(size, dtype=np.uint32), (count, 1)), np.uint32(size), at)
    assert_array_equal(np.sort(found), np.tile(np.arange(size), (count, 1)))
    seen = Counter(map(tuple, found.tolist()))
    counts = [*seen.values(), *[0] * (math.factorial(size) - len(seen))]
    assert stats.chisquare(counts).pvalue > FALSE_ALARM / 4


@pytest.mark.parametrize(("first", "second"), [(0, 1), (5, 50), (0, 99)])
def test_two_numbers_of_a_long_permutation_are_unrelated(first, second):
    size, count = 100, 200_000
    at = places(KEY, np.arange(count, dtype=np.uint32), Time.of(1))
    one, other = (
        permuted(np.full(count, each, np.uint32), np.uint32(size), at).astype(int) for each in (first, second)
    )
    assert stats.chisquare(np.bincount(one, minlength=size)).pvalue > FALSE_ALARM / 6
    assert stats.chisquare(np.bincount((one - other) % size, minlength=size)[1:]).pvalue > FALSE_ALARM / 6


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**40))
def test_every_pass_of_a_share_plays_every_record_once(records, learners, turn):
    learners = min(learners, records)
    order = Shares.evenly(np.arange(records, dtype=np.uint32), learners, KEY, shuffle=True)
    for learner, size in enumerate(order.size.tolist()):
        played = order.records(turn * size + np.arange(size))[:, learner]
        assert sorted(played.tolist()) == list(range(learner, records, learners))


def test_orders_of_jax_are_those_of_numpy():
    shares = [np.array(one, np.uint32) for one in ([3, 1, 4], [0, 2, 5, 6, 7], [8])]
    for order in (
        Shares.of(shares, KEY, shuffle=True),
        Shares.of(shares, KEY, shuffle=False),
        Batches(KEY, 11, 3, shuffle=True),
    ):
        steps = np.array([0, 1, 7, 2**31, 2**32 - 1])
        compiled = jax.jit(lambda order, steps: order.records(steps))
        assert_array_equal(compiled(order, jnp.asarray(steps, jnp.uint32)), order.records(steps))


def test_passes_have_orders_of_their_own():
    order = Shares.evenly(np.arange(40, dtype=np.uint32), 2, KEY, shuffle=True)
    passes = [order.records(turn * 20 + np.arange(20)) for turn in range(20)]
    for one, other in pairwise(passes):
        assert (one != other).any(axis=0).all()
    assert (passes[0][:, 0] // 2 != passes[0][:, 1] // 2).any()
