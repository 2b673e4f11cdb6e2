"""The simulator: exact counters, schedules, measures, records, saving, resuming, bad input."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from gossamer import ConfigurationError, DataError, Run, algorithms, problems, sets, simulate, streams, topology
from gossamer.core import Algorithm, Every, Learner, Phases, Rate, Segment
from gossamer.mechanisms import Independent
from gossamer.metrics import average_loss, best_decision
from gossamer.privacy import FastNoise, NoiseSpec, Scale, no_guarantee
from gossamer.simulation import checkpoint as checkpoints
from gossamer.simulation import engine
from gossamer.simulation.checkpoint import Progress, Seen
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.inputs import Inputs
from gossamer.simulation.observing import Figures
from gossamer.simulation.plan import Chunk, chunk_length, chunks, cut_at_rows
from gossamer.simulation.program import Program
from gossamer.simulation.tally import Tally
from gossamer.simulation.testing import HeldOut
from gossamer.spec import keys_of, kind
from gossamer.topology import Gossip, PushSum
from tests import instances
from tests.instances import QUIET


def small(name="d_ogd", **options):
    return simulate(instances.algorithm(name), instances.stream(), 60, **(QUIET | options))


# -- what is measured ------------------------------------------------------------------------------------------------


def reference_losses(record, stream, problem, measure):
    """The losses of the recorded decisions, computed sample by sample."""
    block = stream.read(0, len(record))
    rows = []
    for t, played in enumerate(record):
        x, y = block.x[t], block.y[t]
        matrix = np.array(
            [[float(problem.loss(w, a, b)) for a, b in zip(x, y, strict=True)] for w in jnp.asarray(played)]
        )
        rows.append(np.diag(matrix) if measure == "local" else matrix.mean(axis=1))
    return np.array(rows)


def mean_loss(w, x, y):
    return np.mean([float(instances.problem().loss(jnp.asarray(w), a, b)) for a, b in zip(x, y, strict=True)])


@pytest.mark.parametrize("measure", ["local", "global"])
def test_losses_are_those_of_the_decisions_played(measure):
    run = simulate(
        instances.algorithm("d_ogd"), instances.stream(), 12, every=1, measure=measure, record=("decisions",), **QUIET
    )
    expected = reference_losses(run.transcript["decisions"], instances.stream(), instances.problem(), measure)
    assert_allclose(run.losses, expected, rtol=1e-5)


def test_joint_measure_puts_the_decision_together():
    owners = (0, 1, 2, 3, 4)
    algorithm = replace(instances.algorithm("d_ogd"), coordinates=owners)
    run = simulate(algorithm, instances.stream(), 12, every=1, measure="joint", record=("decisions",), **QUIET)
    joint = run.transcript["decisions"][:, owners, np.arange(5)][:, None]
    assert_allclose(run.losses, reference_losses(joint, instances.stream(), instances.problem(), "global"), rtol=1e-5)


def test_common_stream_shows_every_learner_the_same_batch():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, 5)).astype(np.float32), rng.integers(0, 2, 90)
    stream = streams.common(x, y, batch=3)
    run = simulate(instances.algorithm("local_ogd"), stream, 30, every=1, record=("decisions",), **QUIET)
    decisions = run.transcript["decisions"]
    assert_array_equal(decisions, np.repeat(decisions[:, :1], 5, axis=1))
    batches = zip(x.reshape(30, 3, 5), y.reshape(30, 3), strict=True)
    losses = [mean_loss(w, batch, labels) for w, (batch, labels) in zip(decisions[:, 0], batches, strict=True)]
    assert_allclose(run.losses[:, 0], losses, rtol=1e-5)


def test_rows_are_means_over_all_their_steps():
    fine, coarse = small("ad_ftgl", every=1), small("ad_ftgl", every=4)
    assert_array_equal(coarse.steps, np.minimum(np.arange(1, 6) * 12, 60))
    assert_allclose(coarse.losses, fine.losses.reshape(5, 4, 5).mean(axis=1), rtol=1e-12)
    assert_allclose(average_loss(coarse)[-1], average_loss(fine)[-1], rtol=1e-12)


def test_steps_left_over_are_played_and_never_released():
    algorithm = instances.algorithm("ad_ftgl")  # blocks of 3
    whole, more = (
        simulate(algorithm, instances.stream(), s, every=1, record=("messages", "decisions"), **QUIET) for s in (30, 32)
    )
    assert_array_equal(more.transcript["messages"], whole.transcript["messages"])
    assert more.messages == whole.messages
    assert list(more.steps[-2:]) == [30, 32]
    block = instances.stream().read(30, 32)
    losses = [mean_loss(w, block.x.reshape(-1, 5), block.y.reshape(-1)) for w in more.decisions]
    assert_allclose(more.losses[-1], losses, rtol=1e-5)


def test_consensus_is_the_mean_squared_distance_from_the_average():
    run = small(every=1, record=("decisions",))
    played = run.transcript["decisions"].astype(np.float64)
    expected = ((played - played.mean(axis=1, keepdims=True)) ** 2).sum(axis=2).mean(axis=1)
    assert_allclose(run.consensus, expected, rtol=1e-4, atol=1e-9)


def test_messages_and_bytes():
    ring = topology.ring(5)
    ad_ftgl = algorithms.ad_ftgl(instances.problem(), ring, steps_per_exchange=3)
    accelerated = simulate(ad_ftgl, instances.stream(), 30, **QUIET)
    assert (accelerated.messages, accelerated.bytes) == (10 * 3 * 10, 10 * 3 * 10 * 5 * 4)
    star = small("centralized_ogd")
    assert (star.messages, star.bytes) == (60 * 10, 60 * 10 * 20)
    assert small("local_ogd").messages == 0


# -- counters and schedules ------------------------------------------------------------------------------------------


class Parity(NamedTuple):
    """How often each of two alternating public values was seen, and the last step size."""

    odd: jax.Array
    even: jax.Array
    step: jax.Array


@dataclass(frozen=True)
class Counter(Learner):
    """Counts, to see whether the engine does."""

    def init(self, identity):
        return Parity(jnp.int32(0), jnp.int32(0), jnp.float32(0))

    def decide(self, state, now):
        return state.step[None]

    def learn(self, state, block, now):
        odd = now.public["odd"] > 0.5
        return Parity(state.odd + odd.astype(jnp.int32), state.even + (~odd).astype(jnp.int32), now.public["step"])

    def speak(self, state, now):
        return state.step[None], state

    def listen(self, state, heard):
        return state


@kind("algorithm", "tests:counting")
def counting(topology, **options):
    return Algorithm(
        name="counter",
        problem=problems.Linear(1),
        topology=topology,
        learner=Counter(),
        guarantee=no_guarantee("a test"),
        public={"odd": lambda t: (t % 2).astype(float), "step": Rate(1.0, power=0.25)},
        **options,
    )


class Endless(streams.Stream):
    """Zeros for ever."""

    learners, length, shared, occurrences, description, features = 2, None, False, 1, "zeros", (1,)

    def _read(self, start, stop):
        return problems.Block(np.zeros((stop - start, 2, 1), np.float32), np.zeros((stop - start, 2), np.float32))


@pytest.mark.parametrize("far", [2**24, 2**33, 2**53 + 2])
def test_counters_are_exact_beyond_float32(far, tmp_path):
    """A float32 counter stops at 2^24: parities would freeze and the alternating network would stop changing."""
    algorithm = counting(topology.alternating([topology.ring(2), topology.isolated(2)]))
    fresh = simulate(algorithm, Endless(), 2, checkpoint=tmp_path / "c", every=far, **QUIET)
    assert fresh.messages == 2
    with np.load(tmp_path / "c") as stored:
        arrays = dict(stored)
    facts = json.loads(str(arrays["facts"]))
    arrays["facts"] = np.array(json.dumps(facts | {"exchanges": far}))
    with open(tmp_path / "c", "wb") as file:
        np.savez(file, **arrays)
    program = Program.of(algorithm, False, "global", ())
    worlds = jax.tree.map(lambda leaf: leaf[None], engine.start(program))
    identity = {key: facts[key] for key in facts.keys() - {"exchanges", "every", "steps", "samples"}}
    assert checkpoints.read(tmp_path / "c", identity, worlds, None, Endless()).exchanges == far
    simulate(algorithm, Endless(), far + 11, checkpoint=tmp_path / "c", **QUIET)
    after = checkpoints.read(tmp_path / "c", identity, worlds, None, Endless())
    assert after.exchanges == far + 11
    states = after.worlds.learners
    assert (int(states.odd[0, 0]), int(states.even[0, 0])) == (1 + 6, 1 + 5)
    assert_allclose(states.step[0, 0], (far + 11) ** -0.25, rtol=1e-6)


def test_growing_phases_run_with_one_compilation_per_shape():
    runs = (Segment(2, 1), Segment(1, 4), Segment(3, 0), Segment(2, 8))
    algorithm = counting(topology.ring(2), schedule=Phases(runs))
    before = engine.run_small_chunk._cache_size()
    run = simulate(algorithm, Endless(), 25, every=1, chunk=4, **QUIET)
    assert engine.run_small_chunk._cache_size() == before + 4
    assert_array_equal(run.steps, [1, 2, 6, 6, 6, 6, 14, 22, 25])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    runs=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=4),
    length=st.integers(1, 7),
    done=st.integers(0, 12),
)
def test_chunks_cover_every_exchange_once(runs, length, done):
    segments = [Segment(*run) for run in runs]
    blocks = [block for exchanges, block in runs for _ in range(exchanges)]
    starts = np.concatenate([[0], np.cumsum(blocks)])
    covered = []
    for chunk in chunks(iter(segments), length, done):
        assert 0 <= chunk.first < chunk.stop <= chunk.length
        first = chunk.origin + chunk.first
        assert chunk.step == starts[first]
        assert set(blocks[first : chunk.origin + chunk.stop]) == {chunk.block}
        covered += range(first, chunk.origin + chunk.stop)
    assert covered == list(range(done, len(blocks)))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=6), every=st.integers(1, 7))
def test_tally_adds_up_whatever_the_chunks(counts, every):
    total = sum(counts)
    values = np.random.default_rng(1).normal(size=(total, 1, 2))
    tally, low = Tally(every), 0
    for count in counts:
        part = values[low : low + count]
        rows = range(low - low % every, low + count, every)  # the first from its beginning on
        sums = np.array([values[row : min(row + every, low + count)].sum(axis=0) for row in rows])
        chunk = Chunk(low, count, 0, count, 1, low)
        figures = Figures(sums, None, sums[..., 0])
        tally.put(chunk, figures, {"messages": part}, samples=3, messages=np.full(count, 2))
        tally = Tally.restore(every, tally.arrays())
        low += count
    expected = [values[low : low + every].sum(axis=0) for low in range(0, total, every)]
    assert_allclose(tally.sums["loss"], expected, rtol=1e-12)
    assert tally.sums["samples"].sum() == 3 * total
    assert_array_equal(np.concatenate(tally.transcript["messages"]), values)
    assert tally.sums["messages"].sum() == 2 * total


# -- push-sum and time-varying networks through the engine -------------------------------------------------------------


class Held(NamedTuple):
    """What push-sum holds."""

    held: PushSum


@dataclass(frozen=True)
class Averaging(Learner):
    """Learner i starts with the value i and only averages."""

    def init(self, identity):
        return Held(PushSum(identity.astype(jnp.float32)[None], jnp.float32(1)))

    def decide(self, state, now):
        return state.held.ratio()

    def learn(self, state, block, now):
        return state

    def speak(self, state, now):
        return state.held, state

    def listen(self, state, heard):
        return Held(heard)


@pytest.mark.parametrize(
    "net",
    [
        topology.directed_exponential(6),
        topology.alternating([topology.directed_ring(6), topology.directed_exponential(6)]),
        topology.with_link_failures(topology.directed_exponential(6), 0.3, seed=4),
        topology.random_matching(6, seed=4),
    ],
    ids=lambda net: net.name,
)
def test_push_sum_reaches_the_average_on_changing_directed_networks(net):
    algorithm = Algorithm("averaging", problems.Linear(1), net, Averaging(), no_guarantee("a test"), mixing=Gossip())
    stream = streams.common(np.zeros((80, 1), np.float32))
    run = simulate(algorithm, stream, 80, record=("messages",), chunk=7, **QUIET)
    assert_allclose(run.decisions, 2.5, rtol=1e-4)
    assert set(run.transcript) == {"messages.value", "messages.mass"}
    assert_allclose(run.transcript["messages.mass"].sum(axis=1), 6, rtol=1e-5)


# -- noise reaches only the function that declared it ------------------------------------------------------------------


def test_functions_get_only_their_own_draws():
    specs = {"a": NoiseSpec("laplace", (1,), used_in="speak"), "b": NoiseSpec("laplace", (1,), used_in="learn")}
    inputs = Inputs(None, {"a": 1, "b": 2}, {}, {"step": 3}, None, None, {"a": 0, "b": 0}, {})
    assert engine.now_for("speak", specs, inputs).noise == {"a": 1}
    assert engine.now_for("decide", specs, inputs).noise == {}


def test_noise_of_the_run_is_that_of_the_source():
    algorithm = algorithms.noisy_ogd(problems.Linear(2), topology.ring(3), step=0.1, scale=2.0)
    stream = streams.random_signs(3, 2, seed=0)
    options = {"record": ("messages",), "every": 1} | QUIET
    noisy = simulate(algorithm, stream, 1, **options).transcript["messages"][0]
    silent = algorithms.noisy_ogd(problems.Linear(2), topology.ring(3), step=0.1, scale=0.0)
    still = simulate(silent, stream, 1, **options)
    draws = FastNoise(0).draw("message", algorithm.learner.noise["message"], [Scale(2.0)] * 3, 0, 1)[:, 0]
    assert_allclose(noisy, still.transcript["messages"][0] + draws, rtol=1e-6)


@pytest.mark.parametrize("name", ["noisy_ogd", "online_federated", "pd_ogd"])
def test_draws_made_in_the_compiled_program_are_those_of_the_host(name):
    """As on an accelerator: recipes instead of arrays, in a run that is chunked and has several seeds."""
    algorithm, stream = instances.algorithm(name), instances.stream()
    options = {"seeds": [3, 4], "chunk": 5, "progress": False, "record": ("messages",)}
    host = simulate(algorithm, stream, 42, **options)
    compiled = simulate(algorithm, stream, 42, noise=partial(FastNoise, compiled=True), **options)
    assert_allclose(compiled.transcript["messages"], host.transcript["messages"], rtol=1e-3, atol=1e-4)
    assert_allclose(compiled.losses, host.losses, rtol=1e-3)
    debug = simulate(algorithm, stream, 7, noise=partial(FastNoise, compiled=True), debug=True, **options)
    assert_allclose(
        debug.transcript["messages"],
        host.transcript["messages"][:, : debug.transcript["messages"].shape[1]],
        rtol=1e-3,
        atol=1e-4,
    )


# -- samples held out ------------------------------------------------------------------------------------------------


def held_out(rows=23, seed=9):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 5))
    return problems.Block(x, (x[:, 0] + rng.normal(size=rows) > 0).astype(np.int64))


def scores(decisions, test):
    """Mean logistic loss and accuracy of `instances.problem()`, in double precision; axes (..., learner)."""
    x, w = test.x, np.asarray(decisions, np.float64)
    x = x * np.minimum(1, 2.0 / np.linalg.norm(x, axis=1, keepdims=True))
    margins = w @ x.T
    losses = np.logaddexp(0, margins) - test.y * margins
    return losses.mean(axis=-1) + 0.005 * (w**2).sum(axis=-1), ((margins > 0) == test.y).mean(axis=-1)


MEASURED = ("losses", "accuracy", "consensus", "decisions", "steps")
TESTED = ("test_steps", "test_losses", "test_accuracy")


def next_decisions(run, every):
    """What was, or would be, played after each row of so many exchanges, from the transcript."""
    played = np.concatenate([run.transcript["decisions"], run.decisions[None]])
    return played[np.minimum(every * np.arange(1, len(run.steps) + 1), len(played) - 1)]


def assert_same(run, other, fields):
    for name in fields:
        assert_array_equal(getattr(run, name), getattr(other, name), err_msg=name)
    assert run.messages == other.messages


@pytest.mark.parametrize("name", ["noisy_ogd", "online_federated", "ad_ftgl"])
def test_decisions_are_tested_at_the_end_of_every_row(name, monkeypatch):
    """Rows of 4 exchanges, batches of 8 rows; the blocks of ad_ftgl leave two steps over, a row of their own."""
    monkeypatch.setattr("gossamer.simulation.testing._BATCH", 8)
    algorithm, options = instances.algorithm(name), {"every": 4, "chunk": 8, "record": ("decisions",)} | QUIET
    run = simulate(algorithm, instances.stream(), 62, test=held_out(), **options)
    losses, accuracy = scores(next_decisions(run, every=4), held_out())
    assert_array_equal(run.test_steps, run.steps)
    assert run.test_losses.shape == run.test_accuracy.shape == run.losses.shape
    assert_allclose(run.test_losses, losses, rtol=1e-5)
    assert_allclose(run.test_accuracy, accuracy, rtol=1e-12)
    without = simulate(algorithm, instances.stream(), 62, **options)
    assert_same(run, without, MEASURED)
    assert_array_equal(without.transcript["decisions"], run.transcript["decisions"])
    assert without.test_steps is without.test_losses is without.test_accuracy is None


@dataclass(frozen=True)
class Moody(Counter):
    """Its decisions depend on the exchange they are played in, and on noise drawn for it."""

    noise = Independent((1,), name="mood").noise(used_in="decide")

    def decide(self, state, now):
        return now.public["step"][None] + now.noise["mood"]


def test_test_neither_compiles_another_loop_nor_changes_growing_phases():
    algorithm = replace(
        counting(topology.ring(2), schedule=Phases((Segment(3, 1), Segment(1, 4), Segment(4, 0), Segment(9, 2)))),
        learner=Moody(),
        releases=(Independent((1,), name="mood").at_scale(mood=0.1),),
    )
    options = {"every": 3, "chunk": 8, "record": ("decisions",)} | QUIET
    without = simulate(algorithm, Endless(), 26, **options)
    before = engine.run_small_chunk._cache_size()
    test = problems.Block(np.array([[2.0], [4.0]]), np.zeros(2))
    run = simulate(algorithm, Endless(), 26, test=test, **options)
    assert engine.run_small_chunk._cache_size() == before
    assert_same(run, without, ("losses", "consensus", "decisions", "steps"))
    assert_array_equal(run.test_steps, [3, 7, 9, 15, 21, 26])
    assert_allclose(run.test_losses, 3 * next_decisions(run, every=3)[..., 0], rtol=1e-6)
    other = simulate(algorithm, Endless(), 26, test=test, **(options | {"chunk": 5}))
    assert_allclose(other.test_losses, run.test_losses, rtol=1e-5)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    runs=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=4),
    length=st.integers(1, 7),
    done=st.integers(0, 12),
    every=st.integers(1, 8),
)
def test_chunks_are_cut_at_the_end_of_every_row(runs, length, done, every):
    def numbers(chunk):
        return range(chunk.origin + chunk.first, chunk.origin + chunk.stop)

    whole = list(chunks(iter([Segment(*run) for run in runs]), length, done))
    cut = list(cut_at_rows(iter(whole), every))
    steps = {n: chunk.step + i * chunk.block for chunk in whole for i, n in enumerate(numbers(chunk))}
    assert [n for chunk in cut for n in numbers(chunk)] == list(steps)
    assert {chunk[:2] for chunk in cut} == {chunk[:2] for chunk in whole}  # the same arrays: the same program
    for chunk in cut:
        first, last = numbers(chunk)[0], numbers(chunk)[-1]
        assert chunk.step == steps[first]
        assert first // every == last // every


@pytest.mark.parametrize(
    ("name", "seeds", "distinct"), [("online_federated", 2, 2), ("centralized_ogd", 1, 1), ("noisy_ogd", 2, 10)]
)
def test_equal_decisions_are_tested_once(name, seeds, distinct, monkeypatch):
    """A federation plays one model per seed. (Without noise the models of two seeds may differ in the last bit.)"""
    seen, whole = [], HeldOut._means
    monkeypatch.setattr(HeldOut, "_means", lambda self, decision: seen.append(decision) or whole(self, decision))
    options = {"seeds": [3, 4][:seeds], "every": 10, "progress": False}
    run = simulate(instances.algorithm(name), instances.stream(), 20, test=held_out(), **options)
    points = len(run.test_steps)
    assert run.test_losses.shape == run.test_accuracy.shape == (seeds, points, 5)
    assert len(seen) == distinct * points
    losses, accuracy = scores(run.decisions, held_out())
    assert_allclose(run.test_losses[:, -1], losses, rtol=1e-5)
    assert_allclose(run.test_accuracy[:, -1], accuracy, rtol=1e-12)


def test_joint_decision_is_tested_as_a_whole():
    owners = (0, 1, 2, 3, 4)
    algorithm = replace(instances.algorithm("d_ogd"), coordinates=owners)
    run = simulate(algorithm, instances.stream(), 12, measure="joint", test=held_out(), **QUIET)
    joint = run.decisions[owners, np.arange(5)]
    assert run.test_losses.shape == (12, 1)
    assert_allclose(run.test_losses[-1, 0], scores(joint, held_out())[0], rtol=1e-5)


def test_test_comes_at_about_fifty_rows_and_without_classes_has_no_accuracy(tmp_path):
    algorithm = algorithms.d_ogd(problems.Linear(2), topology.ring(2), step=0.1)
    x = np.array([[1.0, 2.0], [3.0, -4.0]])
    run = simulate(algorithm, streams.random_signs(2, 2, seed=0), 1050, test=problems.Block(x, np.zeros(2)), **QUIET)
    assert_array_equal(run.test_steps, [*range(21, 1050, 21), 1050])
    assert_allclose(run.test_losses[-1], (run.decisions @ x.T).mean(axis=1), rtol=1e-5)
    assert run.test_accuracy is None
    run.save(tmp_path)
    loaded = Run.load(tmp_path)
    assert_same(loaded, run, ("test_steps", "test_losses"))
    assert loaded.test_accuracy is None


@pytest.mark.parametrize("cut", [8, 21, 28, 59])
def test_tests_survive_in_the_checkpoint(cut, tmp_path):
    """Cut within a row, at its end, and within a chunk."""
    options = {"every": 7, "chunk": 16, "test": held_out()} | QUIET
    algorithm, stream, path = instances.algorithm("noisy_ogd"), instances.stream(), tmp_path / "c"
    simulate(algorithm, stream, cut, checkpoint=path, **options)
    resumed = simulate(algorithm, stream, 60, checkpoint=path, **options)
    straight = simulate(algorithm, stream, 60, **options)
    assert_same(resumed, straight, MEASURED + TESTED)
    resumed.save(tmp_path / "run")
    assert_same(Run.load(tmp_path / "run"), straight, TESTED)


def test_checkpoint_with_another_test_is_refused(tmp_path):
    path, test = tmp_path / "c", held_out()
    small(checkpoint=path, test=test)
    small(checkpoint=path, test=held_out())
    swapped = problems.Block(test.x, np.append(test.y[:-1], 1 - test.y[-1]))
    for other in (swapped, problems.Block(test.x + 1e-3, test.y), None):
        with pytest.raises(ConfigurationError, match=r"checkpoint \(test\): got .*allowed: '23 samples, sha256"):
            small(checkpoint=path, test=other)
    small(checkpoint=tmp_path / "without")
    with pytest.raises(ConfigurationError, match=r"checkpoint \(test\): got .*allowed: None"):
        small(checkpoint=tmp_path / "without", test=test)


@pytest.mark.parametrize(
    ("test", "error", "message"),
    [
        (held_out().x, ConfigurationError, "test: got 'ndarray'; allowed: samples held out"),
        (problems.Block(np.zeros((0, 5)), np.zeros(0, int)), DataError, "x: empty"),
        (problems.Block(np.zeros((3, 4)), np.zeros(3, int)), DataError, r"every sample needs shape \(5,\)"),
        (problems.Block(np.zeros((3, 5)), np.zeros(2, int)), DataError, "x has 3 records and y has 2"),
        (problems.Block(np.zeros((3, 2, 5)), np.zeros((3, 2), int)), DataError, "y: 2 axes"),
        (problems.Block(np.full((3, 5), np.nan), np.zeros(3, int)), DataError, "x: NaN in row 0"),
        (problems.Block(np.zeros((3, 5)), np.array([0, 1, 2])), DataError, r"label out of range at position \(2,\)"),
        (problems.Block(np.zeros((3, 5)), np.array([0.0, 1.0, 1.0])), DataError, "labels are float32, not integers"),
    ],
)
def test_bad_tests_are_refused(test, error, message):
    with pytest.raises(error, match=message):
        small(test=test)


def test_no_file_can_say_a_test():
    assert keys_of(simulate).keys().isdisjoint({"test", "noise"})


# -- runs on disk ----------------------------------------------------------------------------------------------------


def arrays_of(run):
    own = [getattr(run, one.name) for one in fields(run)]
    return [each for each in (*own, *run.transcript.values()) if isinstance(each, np.ndarray)]


@pytest.mark.parametrize("seeds", [{"seed": 0}, {"seed": None, "seeds": [0, 1]}])
def test_arrays_of_a_run_cannot_be_written_to(seeds, tmp_path):
    test = problems.Block(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in instances.stream().read(0, 2)))
    run = small(record=("decisions", "messages"), test=test, **seeds)
    run.save(tmp_path)
    for one in (run, replace(run, losses=np.zeros((3, 5))), Run.load(tmp_path)):
        arrays = arrays_of(one)
        assert len(arrays) == 10
        for array in arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[:] = 0


def test_save_and_load(tmp_path):
    run = small(record=("messages",))
    run.save(tmp_path / "a")
    loaded = Run.load(tmp_path / "a")
    assert loaded.seed is None
    for field in ("losses", "accuracy", "steps", "consensus", "decisions"):
        assert_array_equal(getattr(loaded, field), getattr(run, field))
    assert_array_equal(loaded.transcript["messages"], run.transcript["messages"])
    assert (
        replace(
            loaded,
            seed=0,
            **{f: getattr(run, f) for f in ("losses", "accuracy", "steps", "consensus", "decisions", "transcript")},
        )
        == run
    )
    run.save(tmp_path / "b", public_data=True)
    assert Run.load(tmp_path / "b").seed == 0
    assert '"seed"' not in (tmp_path / "a" / "run.json").read_text()


def test_loading_what_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"holds no saved run: .*run.json is missing"):
        Run.load(tmp_path)


def test_dataframe_has_a_row_per_seed_learner_and_step():
    frame = small(seed=None, seeds=[7, 8], every=20).to_dataframe()
    assert list(frame.columns) == ["seed", "step", "learner", "loss", "average_loss", "consensus", "accuracy"]
    assert len(frame) == 2 * 3 * 5
    assert sorted(set(frame.seed)) == [7, 8]
    assert "seed" not in small().to_dataframe().columns


def test_plot_has_a_curve_for_loss_and_accuracy():
    figure = small().plot()
    assert [trace.name for trace in figure.data if trace.name] == ["d_ogd", "d_ogd"]


def test_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "c"
    small(checkpoint=path)
    with pytest.raises(ConfigurationError, match=r"checkpoint \(seeds\): got 'others'; allowed: those in"):
        small(checkpoint=path, seed=1)
    with pytest.raises(ConfigurationError, match=r"checkpoint \(algorithm algorithm name\)"):
        small("d_ftrl", checkpoint=path)
    with pytest.raises(ConfigurationError, match="steps: got '10 exchanges'; allowed: at least the 60"):
        simulate(instances.algorithm("d_ogd"), instances.stream(), 10, checkpoint=path, **QUIET)


def test_checkpoint_of_another_layout_is_refused(tmp_path):
    """Rows of an earlier version had the same shape and another order."""
    path = tmp_path / "c"
    small(checkpoint=path)
    with np.load(path) as stored:
        arrays = dict(stored)
    facts = json.loads(str(arrays["facts"]))
    arrays["facts"] = np.array(json.dumps({key: facts[key] for key in facts if key != "layout"}))
    with path.open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(ConfigurationError, match="Another version wrote it"):
        small(checkpoint=path)


class Silence(FastNoise):
    """Noise of scale zero."""

    def draw(self, name, spec, scales, start, stop):
        return np.zeros((len(scales), stop - start, *spec.shape), np.float32)


def noisy(step=0.12341, l2=0.01, own=0.5):
    problem = problems.Logistic(4, l2=l2, feature_bound=1.0, domain=sets.L2Ball(3.0))
    weights = own * np.eye(4) + (1 - own) / 2 * (np.roll(np.eye(4), 1, 0) + np.roll(np.eye(4), -1, 0))
    return algorithms.noisy_ogd(problem, topology.ring(4, weights=weights), step=step, scale=0.1)


@pytest.mark.parametrize(
    ("algorithm", "stream_seed", "noise"),
    [
        (noisy(), 1, FastNoise),
        (noisy(), 0, Silence),
        (noisy(step=0.12344), 0, FastNoise),
        (noisy(l2=0.02), 0, FastNoise),
        (noisy(own=0.6), 0, FastNoise),
    ],
    ids=["data", "noise", "step", "problem", "weights"],
)
def test_checkpoint_is_refused_when_anything_else_changed(algorithm, stream_seed, noise, tmp_path):
    def stream(seed):
        return streams.smooth_cycle_logistic(4, 4, seed=seed)

    path = tmp_path / "c"
    simulate(noisy(), stream(0), 20, checkpoint=path, **QUIET)
    simulate(noisy(), stream(0), 30, checkpoint=path, **QUIET)  # the same run goes on
    with pytest.raises(ConfigurationError, match="checkpoint"):
        simulate(algorithm, stream(stream_seed), 40, checkpoint=path, noise=noise, **QUIET)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint"])
def test_file_that_is_no_checkpoint_is_refused(content, tmp_path):
    path = tmp_path / "c"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="allowed: a file that simulate wrote"):
        small(checkpoint=path)


@pytest.mark.parametrize(
    ("place", "test"),
    [
        ("Tally.put", None),
        ("Feeder.inputs", None),
        ("Algorithm.messages", None),
        ("checkpoint.write", None),
        ("Tally.add_test", held_out()),
        ("HeldOut.evaluate", held_out()),
        ("Feeder.inputs", held_out()),
    ],
)
@pytest.mark.parametrize("call", [1, 2, 5, 9])
def test_run_that_was_interrupted_anywhere_goes_on_as_if_it_was_not(place, test, call, tmp_path, monkeypatch):
    """With a checkpoint after every chunk: states, sums and tests on disk always belong together."""
    monkeypatch.setattr(sys.modules["gossamer.simulation.checkpoint"], "_SECONDS", -1.0)
    options = QUIET | {"chunk": 4, "every": 3, "record": ("messages",), "checkpoint": tmp_path / "c", "test": test}
    algorithm, stream = instances.algorithm("noisy_ogd"), instances.stream()
    owners = {"Tally": Tally, "Feeder": Feeder, "Algorithm": Algorithm, "checkpoint": checkpoints, "HeldOut": HeldOut}
    owner, name = owners[place.partition(".")[0]], place.partition(".")[2]
    whole, calls = getattr(owner, name), iter(range(1, 10_000))

    def interrupted(*args, **keywords):
        result = whole(*args, **keywords)  # half way: what it did is done
        if next(calls) == call:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            simulate(algorithm, stream, 60, **options)
    resumed = simulate(algorithm, stream, 60, **options)
    straight = simulate(algorithm, stream, 60, **(options | {"checkpoint": None}))
    assert_same(resumed, straight, MEASURED + (TESTED if test else ()))
    assert_array_equal(resumed.transcript["messages"], straight.transcript["messages"])


def test_live_stream_that_ends_early_leaves_its_checkpoint(tmp_path):
    block = instances.stream().read(0, 25)
    live = streams.from_iterators([iter(list(zip(block.x[:, i], block.y[:, i], strict=True))) for i in range(5)])
    path = tmp_path / "c"
    options = {"checkpoint": path, "chunk": 10, "test": held_out()} | QUIET
    with pytest.raises(DataError, match="25 whole steps"):
        simulate(instances.algorithm("d_ogd"), live, 60, every=1, **options)
    again = streams.from_iterators(
        [iter(list(zip(*(leaf[:, i] for leaf in instances.stream().read(0, 60)), strict=True))) for i in range(5)]
    )
    resumed = simulate(instances.algorithm("d_ogd"), again, 60, **options)
    assert_same(resumed, small(chunk=10, every=1, test=held_out()), MEASURED + TESTED)


def test_checkpoint_survives_a_crash_while_it_is_written(tmp_path, monkeypatch):
    path = tmp_path / "c"
    small(checkpoint=path)
    before = path.read_bytes()

    def crash(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(np.lib.format, "write_array_header_2_0", crash)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.write(path, {}, Progress(1, engine.World((), (), ()), Tally(1), Seen()))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["c"]


def of_samples(x, y, *, live=False):
    """The same samples as a stream of arrays, or as live ones."""
    if live:
        return streams.from_iterators([zip(x[:, i], y[:, i], strict=True) for i in range(x.shape[1])])
    order = np.arange(y.size).reshape(y.shape)
    rows = (x.reshape(-1, x.shape[-1]), y.reshape(-1))
    return streams.ArrayStream(*rows, order, learners=y.shape[1], occurrences=1, description="samples")


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("step", [0, 8, 29])
@pytest.mark.parametrize("leaf", ["x", "y"])
def test_checkpoint_knows_every_sample_that_was_read(leaf, step, live, tmp_path):
    """One bit of one sample, also of the last that the interrupted run has read; what comes later may be anything."""
    options = QUIET | {"checkpoint": tmp_path / "c", "chunk": 4}
    block = instances.stream().read(0, 60)
    arrays = [np.array(block.x), np.array(block.y)]
    simulate(instances.algorithm("d_ogd"), of_samples(*arrays, live=live), 30, **options)
    changed = {"x": 0, "y": 1}[leaf]
    right = arrays[changed].copy()
    if leaf == "x":
        arrays[0][step, 2, 1] = np.nextafter(arrays[0][step, 2, 1], np.float32(9))
    else:
        arrays[1][step, 2] = 1 - arrays[1][step, 2]
    with pytest.raises(ConfigurationError, match=r"checkpoint \(samples\): got 'others'; .* first 30 steps"):
        simulate(instances.algorithm("d_ogd"), of_samples(*arrays, live=live), 60, **options)
    arrays[changed] = right
    arrays[0][30:] = 0.5  # nobody has read these
    simulate(instances.algorithm("d_ogd"), of_samples(*arrays, live=live), 60, **options)


@pytest.mark.parametrize("block", [1, 7])
def test_what_a_checkpoint_knows_does_not_depend_on_chunks(block, tmp_path):
    def samples_of(chunk, *ends):
        path = tmp_path / f"{chunk} {ends}"
        algorithm = algorithms.d_ftrl(instances.problem(), topology.ring(5), step=0.1)
        if block > 1:
            algorithm = algorithms.ad_ftgl(instances.problem(), topology.ring(5), steps_per_exchange=block)
        for end in ends:
            simulate(algorithm, instances.stream(), end, checkpoint=path, chunk=chunk, every=3, **QUIET)
        with np.load(path) as stored:
            facts = json.loads(str(stored["facts"]))
        assert facts["steps"] == 60 // block * block  # steps after the last whole block are in no checkpoint
        return facts["samples"]

    assert len({samples_of(4, 60), samples_of(16, 60), samples_of(4, 23, 37, 60)}) == 1


def test_what_ends_up_in_logs_shows_neither_numbers_nor_the_seed():
    run = small(seed=987654321, record=("messages",))
    assert repr(run) == "<Run: d_ogd, 60 steps, 5 learners, guarantee none>"
    assert repr(small(seed=None, seeds=[987654321, 5])) == repr(run)
    assert f"{[run]}" == f"[{run!r}]"


def test_a_printed_run_is_five_lines_without_the_seed():
    run = small(seed=987654321, every=1)
    ran, quality, traffic, promise, time = str(run).splitlines()
    losses, late = run.losses.mean(axis=0), run.accuracy[-6:].mean(axis=0)
    assert ran == f"{run.algorithm.splitlines()[0]}: 5 learners, 60 steps, 1 seed, global measure"
    assert f"average loss {losses.mean():.4f} (learners {losses.min():.4f} to {losses.max():.4f})" in quality
    assert f"accuracy in the last tenth {100 * late.mean():.1f}%" in quality
    assert traffic.startswith(f"consensus error in the last tenth {run.consensus[-6:].mean():.3g}; ")
    assert traffic.endswith(f"{run.messages:,} messages and {run.bytes:,} bytes")
    assert promise == run.guarantee.sentence()
    assert time.endswith(" seconds")
    assert "987654321" not in str(run)


def test_a_printed_run_of_several_seeds_shows_mean_and_spread():
    run = small("noisy_ogd", seed=None, seeds=[987654321, 5, 6], every=1)
    ran, quality, traffic, *_ = str(run).splitlines()
    by_seed = run.losses.mean(axis=(1, 2))
    assert "3 seeds" in ran
    assert f"average loss {by_seed.mean():.4f} ± {by_seed.std(ddof=1):.4f}, accuracy" in quality
    assert quality.endswith("(mean ± standard deviation over 3 seeds)")
    assert traffic.endswith("bytes per seed")
    assert "987654321" not in str(run)


def test_a_printed_run_wraps_a_long_guarantee():
    printed = str(small("pd_ogd")).splitlines()
    assert " ".join(line.strip() for line in printed[3:-1]) == small("pd_ogd").guarantee.sentence()
    assert max(map(len, printed[3:-1])) <= 110


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps: got 0; allowed: a whole number of at least 1"),
        ({"steps": 2}, r"steps: got 2; allowed: at least one whole block of Every\(block=3\)"),
        ({"seed": None}, "seed: got None; allowed: either seed=number or seeds="),
        ({"seeds": [1]}, "seed: got"),
        ({"seed": None, "seeds": []}, "seed: got"),
        ({"measure": "everything"}, "measure: got 'everything'; allowed: 'global', 'local' or 'joint'"),
        ({"measure": "joint"}, "each own a whole decision"),
        ({"every": 0}, "every: got 0"),
        ({"chunk": 0}, "chunk: got 0"),
        ({"record": ("secrets",)}, r"record: got \('secrets',\); allowed: a list with any of"),
        ({"record": "messages"}, "record: got 'messages'; allowed: a list"),
        ({"steps": 10.0}, "steps: got 10.0"),
        ({"steps": True}, "steps: got True"),
        ({"every": 2.5}, "every: got 2.5"),
        ({"seed": 1.7}, "seed: got 1.7"),
        ({"seed": "3"}, "seed: got '3'"),
        ({"seed": -1}, "seed: got -1"),
    ],
)
def test_bad_options_are_refused(options, message):
    arguments = {"steps": 30} | QUIET | options
    steps = arguments.pop("steps")
    with pytest.raises(ConfigurationError, match=message):
        simulate(instances.algorithm("ad_ftgl"), instances.stream(), steps, **arguments)


def test_stream_for_other_learners_is_refused():
    with pytest.raises(ConfigurationError, match=r"stream: got '4 learners'; allowed: 5"):
        simulate(instances.algorithm("d_ogd"), instances.stream(4), 10, **QUIET)


def test_stream_that_is_too_short_is_refused():
    with pytest.raises(DataError, match="201 steps were asked for, and the stream has 200 steps"):
        simulate(instances.algorithm("d_ogd"), instances.stream(), 201, **QUIET)


def test_features_that_are_not_finite_are_refused_with_their_place():
    stream = instances.stream()
    stream.x[17, 3, 2] = np.inf
    with pytest.raises(DataError, match=r"feature not finite at position \(17, 3, 2\)"):
        simulate(instances.algorithm("d_ogd"), stream, 100, **QUIET)


def test_large_features_are_not_taken_for_infinite_ones():
    stream = instances.stream()
    stream.x[17, 3, 2] = 1e30
    assert np.isfinite(simulate(instances.algorithm("d_ogd"), stream, 100, **QUIET).losses).all()


def test_labels_out_of_range_are_refused_with_their_place():
    stream = instances.stream()
    stream.y[17, 3] = 7
    with pytest.raises(DataError, match="17") as error:
        simulate(instances.algorithm("d_ogd"), stream, 100, **QUIET)
    assert "7" not in str(error.value).replace("17", "")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: algorithms.d_ogd(instances.problem(), topology.ring(4), clip=-1.0), "clip: got -1.0"),
        (lambda: algorithms.d_ogd(instances.problem(), topology.ring(4), step=-1.0), "step: got -1.0"),
        (lambda: algorithms.d_ogd(problems.Logistic(3), topology.ring(4)), "step: got None"),
        (lambda: algorithms.noisy_ogd(instances.problem(), topology.ring(4), scale=-1.0), "scale: got -1.0"),
        (lambda: algorithms.ad_ftgl(instances.problem(), topology.ring(4), steps_per_exchange=0), "got 0"),
        (lambda: algorithms.ad_ftgl(instances.problem(), topology.ring(4), regularization=0.0), "regularization"),
        (lambda: algorithms.ad_ftgl(instances.problem(), topology.ring(4), strong_convexity=-1.0), "strong_convexity"),
        (lambda: algorithms.centralized_ogd(instances.problem(), 0), "learners: got 0"),
        (
            lambda: algorithms.online_federated(
                instances.problem(), 3, steps_per_exchange=0, horizon=9, step=0.1, budget=None
            ),
            "steps_per_exchange: got 0",
        ),
        (lambda: Rate(-1.0), "scale: got -1.0"),
        (lambda: Rate(1.0, power=3.0), "power: got 3.0"),
        (lambda: Rate(1.0, delay=-1), "delay: got -1"),
        (lambda: Every(0), "block: got 0"),
        (lambda: Phases((Segment(0, 1),)), "runs: got"),
        (lambda: replace(instances.algorithm("d_ogd"), server=1), "topology: got"),
    ],
)  # fmt: skip
def test_bad_algorithms_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


CROOKED = nx.DiGraph([(0, 1), (1, 0), (1, 2), (2, 0)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: algorithms.ad_ftgl(p, topology.with_link_failures(topology.ring(5), 0.1, seed=0)), "accelerated"),
        (lambda p: algorithms.ad_ftgl(p, topology.isolated(4), steps_per_exchange=None), "without a spectral gap"),
        (lambda p: algorithms.ad_ftgl(p, topology.ring(4), horizon=0), "horizon: got 0"),
        (lambda p: algorithms.d_ogd(p, topology.star(5, weights="uniform")), "doubly stochastic weights"),
        (lambda p: algorithms.d_ftrl(p, topology.from_networkx(CROOKED)), "doubly stochastic weights"),
        (lambda p: algorithms.d_ogd(p, 4), "topology: got 4; allowed: a topology"),
        (lambda p: algorithms.noisy_ogd(p, topology.ring(4), scale=1.0, noise="cauchy"), "noise: got 'cauchy'"),
        (
            lambda p: algorithms.online_federated(p, 3, steps_per_exchange=2.5, horizon=9, step=0.1, budget=None),
            "steps_per_exchange: got 2.5",
        ),
        (lambda p: algorithms.centralized_ogd(p, 2.5), "learners: got 2.5"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make(instances.problem())


def test_numpy_numbers_are_numbers():
    algorithm = algorithms.d_ogd(instances.problem(), topology.ring(5), step=np.float32(0.1), clip=np.float64(1.0))
    assert np.isfinite(simulate(algorithm, instances.stream(), np.int64(20), **QUIET).losses).all()


# -- common batches and empty rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 8])
def test_strongly_convex_blocks_on_a_common_batch_reach_the_optimum(batch):
    """The loss of a step is the sum over its batch, so its strong convexity is l2 times the batch size."""
    rng = np.random.default_rng(0)
    steps = 3200 // batch
    x = rng.normal(size=(3200, 5)).astype(np.float32)
    y = (x[:, 0] + rng.normal(size=len(x)) > 0).astype(np.int32)
    problem = problems.Logistic(5, l2=0.1, domain=sets.L2Ball(5.0))
    algorithm = algorithms.ad_ftgl(problem, topology.ring(5), strong_convexity=0.1 * batch)
    stream = streams.common(x, y, batch=batch)
    played = simulate(algorithm, stream, steps, **QUIET).decisions
    best = best_decision(problem, stream, steps).decision
    assert np.abs(played - best).max() < 0.1


def test_steps_per_exchange_on_a_common_batch_use_the_whole_batch():
    rng = np.random.default_rng(0)
    stream = streams.common(rng.normal(size=(60, 5)).astype(np.float32), rng.integers(0, 2, 60), batch=3)
    algorithm = algorithms.online_federated(
        instances.problem(), 5, horizon=None, steps_per_exchange=4, step=0.1, budget=None
    )
    assert np.isfinite(simulate(algorithm, stream, 20, **QUIET).losses).all()


def test_rows_without_samples_have_no_loss():
    algorithm = replace(
        instances.algorithm("d_ogd"), schedule=Phases((Segment(1, 0), Segment(2, 1), Segment(2, 0), Segment(1, 3)))
    )
    run = simulate(algorithm, instances.stream(), 5, every=1, **QUIET)
    assert_array_equal(np.isnan(run.losses[:, 0]), [True, False, False, True, True, False])
    assert np.isfinite(average_loss(run)).all()
    assert_allclose(average_loss(run)[-1], (run.losses[1] + run.losses[2] + 3 * run.losses[5]) / 5)


def test_chunks_of_changing_networks_stay_small():
    big = algorithms.d_ogd(problems.Linear(1), topology.random_matching(128, seed=0), step=0.1)
    assert chunk_length(big, [FastNoise(0)], block=1) <= 128


def test_default_step_is_the_textbook_one():
    problem = problems.Logistic(3, feature_bound=2.0, domain=sets.L2Ball(5.0))
    rate = algorithms.d_ogd(problem, topology.ring(4)).public["step"]
    assert_allclose(rate(np.array([4])), 10 / 2 / 2)
