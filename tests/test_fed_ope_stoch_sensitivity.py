"""What one sample moves in all releases of fed_ope_stoch together: never more than is declared, roundings included.

The programs are those that run: compiled with all optimisations.
"""

from __future__ import annotations

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from gossamer import ConfigurationError, problems, sets
from gossamer.algorithms import fed_ope_stoch
from gossamer.core import Now
from gossamer.problems import Block
from tests.test_fed_ope_stoch import APPROXIMATE, PURE, algorithm, tree_noise


@cache
def client(trust, release, noise, problem_name, trees):
    """A client's releases without noise, as a function of its samples and of what the server named."""
    problem = problems.Experts(3) if problem_name == "experts" else problems.LeastSquares(3, domain=sets.Simplex())
    budget = PURE if noise == "laplace" else APPROXIMATE
    chosen = tree_noise(
        problem,
        horizon=2**5,
        trust=trust,
        release=release,
        noise="laplace" if trust == "central" else noise,
        trees=trees,
        smoothness=0.0 if problem_name == "experts" else 1.7,
        budget=budget,
    )
    made = algorithm(chosen)
    learner, leaves = made.learner, chosen.leaves
    k = np.arange(1, len(leaves) + 1)
    public = {name: jnp.asarray(table(k), jnp.float32) for name, table in made.public.items()}
    quiet = {name: jnp.zeros(spec.shape) for name, spec in learner.noise.items()}

    @jax.jit
    def releases(x, y, named):
        state, at, shown = learner.init(jnp.int32(0)), 0, []
        for turn, leaf in enumerate(leaves):
            now = Now({name: table[turn] for name, table in public.items()}, quiet, {})
            state = learner.learn(state, Block(x[at : at + leaf.rows], y[at : at + leaf.rows]), now)
            sums = state.sums
            message, state = learner.speak(state, now)
            state = learner.listen(state, named[turn])
            shown.append(sums if trust == "local" and release == "vertex" else message / public["unit"][turn])
            at += leaf.rows
        return jnp.stack(shown)

    return chosen, made, releases


CASES = [
    (trust, release, noise, problem, trees)
    for trust, release in (("local", "vertex"), ("local", "leaf"), ("central", "vertex"))
    for noise in ("laplace", "gaussian")
    for problem, trees in (("experts", 0), ("squares", 2))
]


@pytest.mark.parametrize("case", CASES, ids=["-".join(map(str, case)) for case in CASES])
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    place=st.integers(0, 30),
    size=st.sampled_from([0.3, 1.0, 30.0]),
    extreme=st.booleans(),
)
def test_a_replaced_sample_moves_all_releases_together_as_far_as_is_declared(case, seed, place, size, extreme):
    """In units of what the noise is for: stacked over all exchanges, whatever the server named."""
    chosen, made, releases = client(*case)
    rng = np.random.default_rng(seed)
    used = sum(leaf.rows for leaf in chosen.leaves)
    x, y = rng.uniform(-size, size, (used, 3)), rng.uniform(-size, size, used)
    other, label = rng.uniform(-size, size, 3), rng.uniform(-size, size)
    if extreme:
        x[place], other = np.sign(x[place]) * size, -np.sign(x[place]) * size
    if isinstance(chosen.problem, problems.Experts):
        x, other = np.clip(0.5 + x, 0, 1), np.clip(0.5 + other, 0, 1)
    z, w = x.copy(), y.copy()
    z[place], w[place] = other, label
    named = jnp.asarray(rng.integers(0, 3, len(chosen.leaves)), jnp.int32)
    inputs = [(jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32), named) for a, b in ((x, y), (z, w))]
    one, two = (np.asarray(releases(*each), np.float64) for each in inputs)
    move = np.abs(one - two)
    (sensitivity,) = made.releases[0].sensitivities
    assert np.count_nonzero(move.any(axis=1)) <= 2**chosen.deepest
    if case[0] == "central":
        each = move.max(axis=1)
        together = each.sum() if chosen.pure else math.sqrt(np.square(each).sum())
        assert together <= sensitivity.l1
        return
    assert move.sum() <= sensitivity.l1 or case[2] == "gaussian"
    assert math.sqrt(np.square(move).sum()) <= sensitivity.l2
    if case[1] == "vertex":
        # Integers: no rounding at all, and one release only.
        assert_array_equal(one * 2**12, np.round(one * 2**12))
        assert move.max() <= 1
        assert np.count_nonzero(move.any(axis=1)) <= 1


@pytest.mark.parametrize("case", [case for case in CASES if case[-1] == 0], ids=str)
def test_the_declared_move_is_reached(case):
    """By a sample of a root whose losses go from one end of the range to the other, up to float slack."""
    chosen, made, releases = client(*case)
    used = sum(leaf.rows for leaf in chosen.leaves)
    zeros, named = np.zeros((used, 3), np.float32), jnp.zeros(len(chosen.leaves), jnp.int32)
    ones = zeros.copy()
    ones[0] = 1
    one, two = (np.asarray(releases(x, jnp.zeros(used), named), np.float64) for x in (zeros, ones))
    assert_allclose(np.abs(one - two).sum(), 3, rtol=1e-6)
    assert 1 <= made.releases[0].sensitivities[0].l1 / (1 if case[0] == "central" else 3) < 1.01


def test_sums_of_many_samples_are_integers_and_too_many_are_refused():
    """2^20 samples of one root would overflow what an int32 holds."""
    made = fed_ope_stoch(2, 1, horizon=2**21 - 1, budget=PURE)
    assert 1 < made.releases[0].sensitivities[0].l1 < 2
    with pytest.raises(ConfigurationError, match="horizon"):
        fed_ope_stoch(2, 1, horizon=2**21, budget=PURE)
