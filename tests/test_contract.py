"""One table of contract tests that every algorithm in the registry goes through."""

from __future__ import annotations

import inspect
import pkgutil
import re
from dataclasses import replace
from functools import cache, partial
from typing import get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gossamer import ConfigurationError, problems, sets, simulate, topology
from gossamer.algorithms import REGISTRY
from gossamer.privacy import FastNoise
from gossamer.simulation import engine
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.inputs import at
from gossamer.simulation.plan import Chunk
from gossamer.simulation.program import Program
from tests import instances, test_sets

pytestmark = pytest.mark.unoptimized

every_algorithm = pytest.mark.parametrize("name", REGISTRY)
STEPS = 14  # not a multiple of any block, so that steps are left over
RECORD = ("decisions", "messages")
SEEDS = (11, 12)
CHUNK = 16
PROGRAMS = (engine.run_chunk, engine.run_small_chunk, engine.play)


# Most of the time goes into compiling. Tests share runs where they can, and compiled programs where they cannot: the
# same record, measure, seeds and chunk, and as many steps left over, unless that is what the test is about.


def fresh_run(name, *, steps=STEPS, learners=5, order=None, **options):
    algorithm = instances.algorithm(name, learners, order)
    arguments = {"seed": 11, "every": 1, "record": RECORD, "chunk": CHUNK, "progress": False} | options
    return simulate(algorithm, instances.stream(learners, order=order, name=name), steps, **arguments)


run = cache(fresh_run)


def assert_same_run(left, right, **tolerance):
    compare = (lambda a, b: assert_allclose(a, b, **tolerance)) if tolerance else assert_array_equal
    fields = ("losses", "consensus", "decisions")
    for field in fields if left.accuracy is None else (*fields, "accuracy"):
        compare(getattr(left, field), getattr(right, field))
    assert left.transcript.keys() == right.transcript.keys()
    for key in left.transcript:
        compare(left.transcript[key], right.transcript[key])


@cache
def one_exchange(name):
    """Program, constant, world and inputs of a small instance in the middle of a run."""
    algorithm, stream = instances.algorithm(name), instances.stream(name=name)
    feeder = Feeder(algorithm, stream, (FastNoise(1),))
    program = Program.of(algorithm, shared=stream.shared, measure="global", record=RECORD)
    block = max(run.block for run in algorithm.schedule.segments(STEPS))
    inputs, constant = feeder.inputs(Chunk(0, CHUNK, 0, 4, block, 0)), feeder.constant
    worlds, _ = engine.run_chunk(program, constant, engine.start_many(program, 1), inputs, 0, 3)
    return program, constant, jax.tree.map(lambda leaf: leaf[0], worlds), for_one_seed(at(inputs, 3))


def for_one_seed(inputs):
    first = lambda draws: {key: draw[0] for key, draw in draws.items()}  # noqa: E731
    return inputs._replace(noise=first(inputs.noise), server_noise=first(inputs.server_noise))


@every_algorithm
def test_state_keeps_its_shapes_and_dtypes(name):
    program, constant, world, inputs = one_exchange(name)
    after, _ = jax.eval_shape(partial(engine.exchange, program), constant, world, inputs)
    before = engine.start(program)
    shapes = lambda tree: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)  # noqa: E731
    assert shapes(after) == shapes(world) == shapes(before)
    assert any(not np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (world, before)), strict=True))


def disturbed(states, fields):
    """The same states with other values in these fields."""
    return states._replace(
        **{
            field: jax.tree.map(lambda leaf: leaf + np.array(1.7).astype(leaf.dtype), getattr(states, field))
            for field in fields
        }
    )


@every_algorithm
def test_decide_reads_only_what_is_released(name):
    program, _, world, inputs = one_exchange(name)
    states, released = world.learners, program.learner.released
    assert released <= set(states._fields)
    before = engine.decisions(program, world, inputs)
    raw = disturbed(states, set(states._fields) - released)
    assert_array_equal(engine.decisions(program, world._replace(learners=raw), inputs), before)
    # The test can fail: what is released does move decisions.
    other = disturbed(states, released)
    assert not np.array_equal(engine.decisions(program, world._replace(learners=other), inputs), before)


@every_algorithm
def test_decide_is_pure(name):
    program, _, world, inputs = one_exchange(name)
    copies = [np.array(leaf) for leaf in jax.tree.leaves(world)]
    first, second = (engine.decisions(program, world, inputs) for _ in range(2))
    assert_array_equal(first, second)
    for copy, leaf in zip(copies, jax.tree.leaves(world), strict=True):
        assert_array_equal(copy, leaf)


@every_algorithm
def test_debug_equals_compiled(name):
    assert_same_run(run(name), run(name, debug=True, chunk=None), rtol=2e-5, atol=2e-6)


def of_seed(run, index):
    """One run of several seeds, as if it had been made alone."""
    fields = ("losses", "consensus", "decisions", "accuracy")
    one = {field: getattr(run, field)[index] for field in fields if getattr(run, field) is not None}
    return replace(run, **one, transcript=jax.tree.map(lambda leaf: leaf[index], run.transcript))


@every_algorithm
def test_chunks_and_other_seeds_change_nothing(name):
    """Another chunk length and more seeds are another compiled program, which may round the last bit differently."""
    together = run(name, seed=None, seeds=SEEDS, chunk=2)
    for index, seed in enumerate(SEEDS):
        assert_same_run(of_seed(together, index), run(name, seed=seed), rtol=1e-5, atol=1e-6)


@every_algorithm
@pytest.mark.parametrize("options", [{"seed": 11}, {"seed": None, "seeds": SEEDS, "chunk": 2}], ids=["one", "chunks"])
def test_resumed_equals_uninterrupted(name, options, tmp_path):
    """To the last bit, also when the run was cut in the middle of a chunk and of a row, and with several seeds."""
    path = tmp_path / "checkpoint"
    straight = fresh_run(name, steps=98, every=7, **options)
    fresh_run(name, steps=45, every=7, checkpoint=path, **options)
    resumed = fresh_run(name, steps=98, every=None, checkpoint=path, **options)
    assert path.stat().st_mode & 0o777 == 0o600
    assert_same_run(resumed, straight)
    assert_array_equal(resumed.steps, straight.steps)


@every_algorithm
def test_second_call_does_not_compile_again(name):
    fresh_run(name)
    compiled = [program._cache_size() for program in PROGRAMS]
    fresh_run(name, seed=12)
    assert [program._cache_size() for program in PROGRAMS] == compiled


class RenamedNoise(FastNoise):
    """Learner order[i] gets the draws of learner i."""

    order = (3, 0, 4, 1, 2)

    def draw(self, name, spec, scales, start, stop):
        if len(scales) == 1:
            return super().draw(name, spec, scales, start, stop)
        own = tuple(scales[renamed] for renamed in self.order)
        return super().draw(name, spec, own, start, stop)[np.argsort(self.order)]


@every_algorithm
def test_renamed_learners_give_renamed_results(name):
    order = list(RenamedNoise.order)
    straight = run(name, measure="local")
    renamed = fresh_run(name, order=order, measure="local", noise=RenamedNoise)
    assert_allclose(renamed.losses[:, order], straight.losses, rtol=2e-5, atol=2e-6)
    assert_allclose(renamed.decisions[order], straight.decisions, rtol=2e-5, atol=2e-6)


@every_algorithm
def test_one_learner_alone_works(name):
    alone = run(name, learners=1)
    played = np.diff(alone.steps, prepend=0) > 0  # an exchange before the first sample has no loss
    assert np.isfinite(alone.losses[played]).all()
    assert alone.losses.shape[1] == 1
    assert_array_equal(alone.consensus, 0)


@every_algorithm
def test_learning_beats_not_learning(name):
    """On an easy stream the last rows lose less than playing the first decision for ever."""
    learned = run(name, steps=194, seed=1)
    assert learned.losses[-40:].mean() < 0.9 * np.log(2)


@every_algorithm
def test_decisions_stay_in_the_decision_set(name):
    domain = instances.problem().domain
    assert jax.vmap(domain.contains)(jnp.asarray(run(name).transcript["decisions"].reshape(-1, instances.DIM))).all()


@every_algorithm
def test_assumptions_name_code_that_exists(name):
    """An auditor looks there: `module.Class.function`, perhaps with arguments or words after it."""
    for assumption in instances.algorithm(name).guarantee.assumptions:
        assert pkgutil.resolve_name(re.split("[:(]", assumption.enforced_by)[0]) is not None


@every_algorithm
def test_description_names_the_algorithm_and_its_guarantee(name):
    algorithm = instances.algorithm(name)
    assert algorithm.name == name
    assert algorithm.describe().startswith(name)
    assert algorithm.guarantee.sentence() in algorithm.describe()


# -- every decision set and every topology -----------------------------------------------------------------------------

every_topology = pytest.mark.parametrize("name", instances.TOPOLOGIES)


def concrete(cls):
    below = [leaf for sub in cls.__subclasses__() for leaf in concrete(sub)]
    return below if cls.__abstractmethods__ else [cls, *below]


def test_every_decision_set_is_put_through_the_tests_of_sets():
    assert {type(domain) for domain in test_sets.SETS} == set(concrete(sets.DecisionSet))


def test_every_topology_constructor_has_an_instance():
    constructors = {
        name
        for name, function in inspect.getmembers(topology, inspect.isfunction)
        if hasattr(get_type_hints(function).get("return"), "spectral_gap")
    }
    assert constructors == set(instances.TOPOLOGIES)


@every_topology
def test_mixing_preserves_the_average_or_the_mass(name):
    """Columns of every weight matrix sum to 1, at every exchange, whether the rows do or not."""
    net = instances.TOPOLOGIES[name]
    exchanges = np.array([0, 1, 2, 2**40 + 1])
    constant, varying = topology.Gossip().prepare(net, exchanges)
    messages = jnp.asarray(np.random.default_rng(0).normal(size=(net.learners, 3)), jnp.float32)
    for t in range(len(exchanges)):
        heard = topology.Gossip().mix(constant, jax.tree.map(lambda leaf, t=t: leaf[t], varying), messages)
        assert_allclose(heard.sum(axis=0), messages.sum(axis=0), rtol=2e-5, atol=2e-6)
        assert_allclose(net.matrix(int(exchanges[t])).sum(axis=0), 1, rtol=1e-12)


@every_topology
def test_what_a_learner_hears_is_its_row_of_the_matrix(name):
    net = instances.TOPOLOGIES[name]
    for exchange in (0, 1, 2**33):
        matrix = np.diag([net.own_weight(i, exchange) for i in range(net.learners)])
        for i in range(net.learners):
            for j, weight in net.hears(i, exchange):
                matrix[i, j] = weight
        assert_allclose(matrix, net.matrix(exchange), rtol=1e-12)


@every_topology
def test_accelerated_gossip_equals_its_polynomial_or_is_refused(name):
    net, gossip = instances.TOPOLOGIES[name], topology.AcceleratedGossip(steps=5, theta=0.4)
    symmetric = net.fixed and np.allclose(net.matrix(), net.matrix().T)
    if not symmetric:
        with pytest.raises(ConfigurationError, match="accelerated gossip"):
            gossip.prepare(net, np.zeros(1, np.int64))
        return
    constant, varying = gossip.prepare(net, np.zeros(1, np.int64))
    messages = np.random.default_rng(0).normal(size=(net.learners, 3)).astype(np.float32)
    heard = gossip.mix(constant, varying, topology.Pair(messages, messages)).now
    assert_allclose(heard, topology.polynomial_matrix(net.matrix(), 5, 0.4) @ messages, rtol=1e-4, atol=1e-5)


@every_topology
def test_every_topology_runs_and_debug_equals_compiled(name):
    net = instances.TOPOLOGIES[name]
    if not net.is_doubly_stochastic():
        with pytest.raises(ConfigurationError, match="doubly stochastic weights"):
            REGISTRY["d_ogd"].make(instances.problem(), net, step=0.1)
        return
    algorithm = REGISTRY["d_ogd"].make(problems.Linear(instances.DIM), net, step=0.1)  # few operations: fast to compile
    stream = instances.stream(net.learners, steps=4)
    compiled, stepped = (
        simulate(algorithm, stream, 4, seed=0, every=1, progress=False, debug=debug) for debug in (False, True)
    )
    assert_allclose(compiled.losses, stepped.losses, rtol=2e-5, atol=2e-6)
    assert compiled.messages == int(net.links(np.arange(4)).sum())
