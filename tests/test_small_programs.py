"""Loops of small exchanges are not split between threads: the same results, and the rule which ones are small."""

from __future__ import annotations

import os
from dataclasses import replace

import jax
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from gossamer import Budget, algorithms, problems, sets, streams, topology
from gossamer.privacy import FastNoise
from gossamer.simulation import engine
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.plan import Chunk
from gossamer.simulation.program import Program
from gossamer.simulation.sizes import runner

NODES, BATCH, ROUNDS = 7, 100, 4


def parts(dim):
    """The pixels of docs/benchmarks.md: large enough for XLA to split loops, unless it is told not to."""
    problem = problems.Logistic(dim, domain=sets.Box(-5.0, 5.0))
    algorithm = algorithms.dpsda_c(problem, topology.ring(NODES), budget=Budget(2.0), clip=1.0, batch=BATCH)
    x = np.random.default_rng(0).standard_normal((ROUNDS * BATCH, dim), dtype=np.float32) / np.float32(np.sqrt(dim))
    stream = streams.common(x, (x[:, 0] > 0).astype(np.int32), batch=BATCH)
    return Feeder(algorithm, stream, (FastNoise(0),)), Program.of(algorithm, True, "joint", ())


def call(dim):
    feeder, program = parts(dim)
    chunk = Chunk(0, ROUNDS, 0, ROUNDS, 1, 0)
    inputs = feeder.inputs(chunk)
    return feeder, chunk, (program, feeder.constant, engine.start_many(program, 1), inputs, 0, ROUNDS)


@pytest.mark.skipif((os.cpu_count() or 1) == 1, reason="on one core nothing is split")
def test_small_exchanges_are_not_split_and_compute_the_same_bits():
    _, _, arguments = call(784)
    split, whole = (run.lower(*arguments).compile() for run in (engine.run_chunk, engine.run_small_chunk))
    told = "outer_dimension_partitions"
    assert f'{told}":["' in split.as_text()
    assert f'{told}":["' not in whole.as_text()
    results = [jax.tree.leaves(run(*arguments)) for run in (engine.run_chunk, engine.run_small_chunk)]
    for one, other in zip(*results, strict=True):
        assert_array_equal(one, other)


def test_what_is_small():
    """Samples and decisions of an exchange, times seeds: below 100,000 numbers, on a CPU, drawn by the host."""
    feeder, chunk, _ = call(784)  # (100 + 7) x 784
    assert runner(feeder, chunk) is engine.run_small_chunk
    assert runner(replace(feeder, sources=(FastNoise(0), FastNoise(1))), chunk) is engine.run_chunk
    assert runner(feeder, chunk._replace(block=2)) is engine.run_chunk
    assert runner(replace(feeder, sources=(FastNoise(0, compiled=True),)), chunk) is engine.run_chunk
