"""Many settings at once: each is what it is alone, numbers are not mixed up, and what differs otherwise runs apart."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpy.testing import assert_allclose, assert_array_equal

from gossamer import (
    Block,
    Budget,
    Clip,
    ConfigurationError,
    DataError,
    PrivacyError,
    algorithms,
    problems,
    sets,
    simulate,
    simulate_many,
    streams,
    topology,
)
from gossamer.core import Algorithm, Learner, Phases, Segment
from gossamer.core.checked import Guarded
from gossamer.privacy import FastNoise, no_guarantee
from gossamer.simulation import many as simulator
from gossamer.simulation import settings, together
from gossamer.simulation.settings import Shared, Traced
from tests import instances

pytestmark = pytest.mark.unoptimized

DIM = 5
COMMON = {"seeds": [3, 4], "progress": False}
FIELDS = ("losses", "accuracy", "consensus", "decisions", "test_losses", "test_accuracy")


def descent(l2=0.01, clip=1.0, epsilon=1.0, step=0.1, net=None, **options):
    problem = problems.Logistic(DIM, l2=l2, feature_bound=2.0, domain=sets.L2Ball(3.0))
    budget = Budget(epsilon, 1e-6 if options.get("noise") == "gaussian" else 0.0)
    return algorithms.pd_ogd(problem, net or topology.ring(5), budget=budget, clip=clip, step=step, **options)


@pytest.fixture
def groups(monkeypatch):
    """The sizes of the groups that ran together, and 1 for every setting that ran alone."""
    found = []

    def watched(cls, name, size):
        function = getattr(cls, name)

        def watching(self, *args):
            found.append(size(self))
            return function(self, *args)

        monkeypatch.setattr(cls, name, watching)

    watched(together.Together, "run", lambda self: len(self.settings))
    watched(simulator._Wanted, "alone", lambda self: 1)
    return found


def assert_same(many, alone, rtol=1e-6):
    """All that `simulate` reports, apart from the time."""
    assert (many.name, many.algorithm, many.guarantee) == (alone.name, alone.algorithm, alone.guarantee)
    assert (many.measure, many.messages, many.bytes, many.seed) == (
        alone.measure,
        alone.messages,
        alone.bytes,
        alone.seed,
    )
    assert_array_equal(many.steps, alone.steps)
    for name in FIELDS:
        one, two = getattr(many, name), getattr(alone, name)
        if two is None:
            assert one is None
        else:
            assert_allclose(one, two, rtol=rtol, atol=1e-6 * np.nanmax(np.abs(two)), equal_nan=True)
    assert many.transcript.keys() == alone.transcript.keys()
    for name, values in alone.transcript.items():
        assert_allclose(many.transcript[name], values, rtol=rtol, atol=1e-6 * np.abs(values).max())


def compare(settings_, stream=None, steps=60, **options):
    """Run together and alone; all runs must be the same, and those of different settings different."""
    stream = stream or instances.stream()
    runs = simulate_many(settings_, stream, steps, **COMMON | options)
    for run, one in zip(runs, settings_, strict=True):
        assert_same(run, simulate(one, stream, steps, **COMMON | options))
    return runs


# -- every setting gets its own numbers ------------------------------------------------------------------------------


def test_numbers_that_differ_run_in_one_program(groups):
    numbers = [(0.01, 1.0, 1.0, 0.1), (0.5, 1.0, 1.0, 0.1), (0.01, 0.25, 1.0, 0.1), (0.01, 1.0, 3.0, 0.1)]
    runs = compare([descent(*each) for each in [*numbers, (0.01, 1.0, 1.0, 0.3), (0.3, 0.7, 0.5, 0.2)]])
    assert groups == [6]
    assert len({run.losses.tobytes() for run in runs}) == 6
    assert [run.guarantee.epsilon for run in runs] == pytest.approx([1, 1, 1, 3, 1, 0.5])


def test_numbers_are_not_mixed_up():
    """Equal numbers in different places: where one setting took the number of another, runs would change."""
    swapped = [descent(l2=a, clip=b, step=c) for a, b, c in product([0.25, 0.5], repeat=3)]
    runs = compare(swapped, steps=20)
    assert len({run.losses.tobytes() for run in runs}) == 8
    backwards = simulate_many(swapped[::-1], instances.stream(), 20, **COMMON)
    for one, two in zip(runs, backwards[::-1], strict=True):
        assert_array_equal(one.losses, two.losses)


@pytest.mark.parametrize("name", ["pd_ftgl", "online_federated", "dpsda_c", "ldp_endless", "fed_svt"])
def test_other_algorithms(name, groups):
    example = algorithms.REGISTRY[name].example
    budgets = [Budget(epsilon, example["budget"].delta) for epsilon in (0.5, 2.0)]
    compare([instances.algorithm(name, budget=one) for one in budgets], instances.stream(name=name), steps=37)
    assert groups == [2]


def test_a_second_call_compiles_nothing():
    made = [descent(l2=one) for one in (0.1, 0.2, 0.3)]
    simulate_many(made, instances.stream(), 30, **COMMON)
    before = settings.run._cache_size()
    others = [descent(l2=one, step=0.7) for one in (0.4, 0.5, 0.6)]
    simulate_many(others, instances.stream(), 30, **COMMON)
    assert settings.run._cache_size() == before


def test_what_runs_is_what_was_checked(monkeypatch):
    seen = []
    trace = together.Setting.traced
    monkeypatch.setattr(
        together.Setting, "traced", lambda self, *args: (seen.append(self.program.learner), trace(self, *args))[1]
    )
    runs = simulate_many([descent(l2=0.1), descent(l2=0.2)], instances.stream(), 10, **COMMON)
    assert {type(one) for one in seen} == {Guarded}
    assert len(set(seen)) == 2  # each with the check of its own algorithm
    assert {run.guarantee.basis for run in runs} == {"proven"}


# -- what differs in more than numbers runs apart --------------------------------------------------------------------


def federated(**options):
    return instances.algorithm("online_federated", **options)


OTHERS = {
    "law": [descent(noise="laplace"), descent(noise="gaussian")],
    "topology": [descent(net=topology.ring(5)), descent(net=topology.complete(5))],
    "changing topology": [
        descent(net=topology.with_link_failures(topology.ring(5), 0.3, seed=seed)) for seed in (1, 2)
    ],
    "a number that Python looks at": [descent(l2=0.0), descent(l2=0.1)],
    "calibration": [descent(l2=0.0, horizon=60), descent(l2=0.0, horizon=60, calibration="published")],
    "norm of the clip": [descent(), descent(clip=Clip(l1=1.0))],
    "block length": [instances.algorithm("ad_ftgl", steps_per_exchange=block) for block in (2, 3)],
    "algorithm": [descent(), instances.algorithm("d_ogd")],
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_structures_run_apart(what, groups):
    compare(OTHERS[what], steps=24)
    assert groups == [1, 1]


def test_some_run_together_and_some_apart(groups):
    compare([descent(), descent(noise="gaussian"), descent(l2=0.3), descent(l2=0.0), descent(noise="gaussian", l2=1.0)])
    assert sorted(groups) == [1, 2, 2]


class Sum(NamedTuple):
    total: jax.Array


@dataclass(frozen=True)
class Adding(Learner):
    """Learns twice in a block of more than two samples, where it is told to."""

    weight: float
    twice: bool

    def init(self, identity):
        return Sum(jnp.full(1, self.weight))

    def decide(self, state, now):
        return state.total

    def learn(self, state, block, now):
        total = state.total + self.weight * jnp.sum(block.y)
        return Sum(total * 2 if self.twice and len(block.y) > 2 else total)

    def speak(self, state, now):
        return state.total, state

    def listen(self, state, heard):
        return Sum(heard)


def test_structures_that_differ_only_later_run_apart(groups):
    plain = {"problem": problems.Linear(1), "topology": topology.ring(3), "guarantee": no_guarantee("a test")}
    phases = Phases((Segment(5, 2), Segment(5, 3)))
    made = [
        Algorithm("adding", learner=Adding(weight, twice), schedule=phases, **plain)
        for weight, twice in [(0.5, False), (0.25, False), (0.5, True)]
    ]
    rng = np.random.default_rng(0)
    compare(made, instances.Given(rng.normal(size=(30, 3, 1)).astype(np.float32), rng.normal(size=(30, 3))), steps=25)
    assert groups == [3, 2, 1]


# -- options of simulate ---------------------------------------------------------------------------------------------


class Ramp:
    """Noise of another kind, of which only its source knows what scales do."""

    def draw(self, name, spec, scales, start, stop):
        values = np.arange(start, stop, dtype=np.float32)[:, None] % 3 - 1
        made = [np.broadcast_to(values, (stop - start, spec.size)) * scale.value**2 for scale in scales]
        return np.array(made, np.float32).reshape(len(scales), stop - start, *spec.shape)


@pytest.mark.parametrize(
    "options",
    [
        {"measure": "local", "every": 7, "record": ("messages", "decisions")},
        {"noise": lambda seed: FastNoise(seed, compiled=True)},
        {"noise": lambda seed: Ramp()},
        {"test": Block(np.eye(DIM), np.arange(DIM) % 2), "every": 9},
    ],
    ids=["rows and records", "noise in the program", "a source of noise", "samples held out"],
)
def test_options(options, groups):
    compare([descent(epsilon=0.5), descent(l2=0.2, epsilon=2.0)], **options)
    assert groups == [2]


def test_budgets_by_learner_and_in_the_program(groups):
    own = [Budget(one) for one in (0.5, 1.0, 2.0, 3.0, 4.0)]
    problem = problems.Logistic(DIM, domain=sets.L2Ball(3.0))
    made = [
        algorithms.pd_ogd(problem, topology.ring(5), budget=budget, clip=1.0, step=0.1) for budget in (own, Budget(1.0))
    ]
    compare(made, noise=lambda seed: FastNoise(seed, compiled=True))
    assert groups == [2]


def test_samples_that_programs_read(groups):
    rng = np.random.default_rng(0)
    stream = streams.from_arrays(rng.normal(size=(40, DIM)), rng.integers(0, 2, 40), learners=5, seed=0, passes=9)
    compare([descent(), descent(l2=0.2)], stream, noise=lambda seed: FastNoise(seed, compiled=True))
    assert groups == [2]


def test_on_a_lattice(groups):
    compare([descent(epsilon=one, horizon=60).secured() for one in (0.5, 2.0)])
    assert groups == [2]


def test_whole_chunks_as_accelerators_run_them(monkeypatch, groups):
    """Their bounds are known, and their loops are of another kind."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    compare([descent(epsilon=0.5), descent(l2=0.2, epsilon=2.0)], steps=64)
    assert groups == [2]


def test_batches_that_fit_the_memory(monkeypatch, groups):
    made = [descent(l2=one) for one in (0.1, 0.2, 0.3, 0.4, 0.5)]
    whole = simulate_many(made, instances.stream(), 30, **COMMON)
    wanted = simulator._Wanted(instances.stream(), 30, [3, 4], FastNoise, "global", None, (), False, None)
    size = together.batch_size(wanted.setting(made[0], {}), 2, 30)
    each = together._BATCH_BYTES[1] // size
    monkeypatch.setattr(together, "_BATCH_BYTES", (2 * each, 2 * each + 100))
    parts = simulate_many(made, instances.stream(), 30, **COMMON)
    assert groups == [5, 2, 2, 1]
    for one, two in zip(whole, parts, strict=True):
        assert_same(one, two)


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"algorithms": []}, ConfigurationError, "at least one algorithm"),
        ({"algorithms": descent()}, ConfigurationError, "a list"),
        ({"algorithms": [descent(), "pd_ogd"]}, ConfigurationError, "str"),
        ({"algorithms": [descent(), descent(net=topology.ring(6))]}, ConfigurationError, "6"),
        ({"algorithms": [descent(), descent(horizon=10)]}, PrivacyError, "horizon"),
        ({"seeds": []}, ConfigurationError, "seeds"),
        ({"steps": 201}, DataError, "200"),
        ({"measure": "joint"}, ConfigurationError, "measure"),
        ({"record": ("broadcasts",)}, ConfigurationError, "record"),
        ({"every": 0}, ConfigurationError, "every"),
        ({"test": Block(np.eye(3), np.arange(3) % 2)}, DataError, "shape"),
        ({"stream": streams.from_iterators([iter(())] * 5)}, ConfigurationError, "live"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(changed, error, words, groups):
    given = {"algorithms": [descent()], "stream": instances.stream(), "steps": 20} | COMMON | changed
    with pytest.raises(error, match=words):
        simulate_many(**given)
    assert groups == []


@dataclass(frozen=True)
class Picky(problems.Linear):
    """Refuses labels above a bound."""

    most: float = 1.0

    def _check_labels(self, y, start):
        if (y > self.most).any():
            raise DataError("a label above the bound")


def test_samples_are_checked_for_every_problem(groups):
    made = [algorithms.d_ogd(Picky(DIM, most=most), topology.ring(5), step=0.1) for most in (3.0, 1.0)]
    stream = instances.stream(steps=3000)
    stream.y[2500] = 2
    simulate_many(made[:1] * 2, stream, 3000, **COMMON)
    assert groups == [2]
    with pytest.raises(DataError, match="above the bound"):
        simulate_many(made, stream, 3000, **COMMON)


# -- programs taken apart --------------------------------------------------------------------------------------------


def everything(a, b):
    """All kinds of programs in programs, with numbers at many places."""

    def function(x):
        y = jax.nn.softplus(x) * a + b
        y = lax.fori_loop(0, 3, lambda i, z: jnp.sin(z) * b + lax.cond(jnp.sum(z) > a, lambda q: q * a, jnp.cos, z), y)
        y = lax.while_loop(lambda z: jnp.sum(z) < 10 * a, lambda z: z + b, y)
        y = jax.checkpoint(lambda z: jnp.tanh(z * b))(y) + jax.jit(lambda z: z - a)(y)
        _, rows = lax.scan(lambda carry, row: (carry * a + row, carry * b), jnp.float32(b), y, reverse=True)
        return {"rows": rows + jnp.array([a, b, a * b], jnp.float32), "sum": jnp.sum(y, keepdims=True)}

    return function


def test_every_kind_of_program_gets_other_numbers():
    pairs = [(0.5, 0.25), (0.25, 0.5), (0.75, 0.125)]
    x = np.array([0.1, -0.3, 2.0], np.float32)
    shared, values = Shared.of([Traced.of(everything(*pair), [x]) for pair in pairs], axes=(None,))
    found = settings.run(shared, 3, values, [x])
    for i, pair in enumerate(pairs):
        expected = everything(*pair)(x)
        for name in expected:
            assert_allclose(found[name][i], expected[name], rtol=1e-6)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (lambda x: x**2, lambda x: x**3),  # a parameter of an operation
        (lambda x: x + 1, lambda x: x - 1),
        (lambda x: x + jnp.float32(1), lambda x: x + jnp.arange(3.0)),
        (lambda x: x[:2], lambda x: x[1:]),
        (lambda x: lax.fori_loop(0, 2, lambda i, y: y * x, x), lambda x: lax.fori_loop(0, 3, lambda i, y: y * x, x)),
        (jax.jit(lambda x: x * 2), jax.jit(lambda x: 2 + x)),
        (lambda x: (x, 2 * x), lambda x: [x, 2 * x]),
        (lambda x: (x, 2 * x), lambda x: (2 * x, x)),
        (lambda x: x * x - x, lambda x: x - x * x),
        (lambda x: jnp.where(x > 1, x, 0), lambda x: jnp.where(x >= 1, x, 0)),
    ],
)
def test_forms_differ(one, two):
    x = np.ones(3, np.float32)
    assert Traced.of(one, [x]).form == Traced.of(one, [x]).form
    assert Traced.of(one, [x]).form != Traced.of(two, [x]).form


def test_numbers_differ_by_their_bits():
    """A zero is not its negative, and a NaN is itself: what is common stays a constant of the program."""
    x = np.ones(2, np.float32)

    def places(*numbers):
        return sum(Shared.of([Traced.of(lambda x, n=n: x * n, [x]) for n in numbers], axes=(0,))[0].open)

    assert places(0.0, -0.0) == 1
    assert places(np.nan, np.nan) == 0
    assert places(0.1, 0.1) == 0
    assert places(0.1, np.nextafter(np.float32(0.1), np.float32(1))) == 1


def test_equal_programs_are_known_by_their_constants():
    x = np.ones(2, np.float32)

    def shared(common, *numbers):
        return Shared.of([Traced.of(lambda x, n=n: x * n + common, [x]) for n in numbers], axes=(None,))[0]

    assert shared(5.0, 1.0, 2.0) == shared(5.0, 3.0, 4.0)
    assert shared(5.0, 1.0, 2.0) != shared(6.0, 1.0, 2.0)
    assert shared(5.0, 1.0, 2.0) != shared(5.0, 1.0, 1.0)
