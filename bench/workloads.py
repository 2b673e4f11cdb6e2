"""What is measured: each workload as Gossamer runs it, as a NumPy loop, and its noise alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench import loops
from gossamer import FastNoise, Rate, Run, algorithms, problems, sets, simulate, streams, topology
from gossamer.core import Algorithm

CHUNK = 512


@dataclass(frozen=True)
class Workload:
    """One line of the table: callables that each run all rounds once."""

    name: str
    rounds: int
    gossamer: Callable[[], Run]
    numpy: Callable[[], object] | None = None
    noise: Callable[[], object] | None = None


def gossip_logreg(rounds: int = 20_000) -> Workload:
    """Ring of 16, d=112, one fresh sample per learner and round, Laplace noise on messages."""
    learners, dim, step, scale = 16, 112, 0.1, 0.01
    x, y = _samples(rounds * learners, dim)
    ring = topology.ring(learners)
    algorithm = algorithms.noisy_ogd(problems.Logistic(dim), ring, step=Rate(step), scale=scale)
    stream = streams.from_arrays(x, y, learners, seed=0, shuffle=False)
    by_round = x.reshape(rounds, learners, dim), y.reshape(rounds, learners).astype(np.float32)
    weights = ring.matrix().astype(np.float32)
    return Workload(
        "gossip-logreg",
        rounds,
        lambda: simulate(algorithm, stream, rounds, seed=0, measure="local", progress=False),
        lambda: loops.gossip_logreg(*by_round, weights, step, scale, np.random.default_rng(0)),
        lambda: _noise_alone(algorithm, rounds),
    )


def federated_logreg(rounds: int = 2_000) -> Workload:
    """20 learners, d=100, 4 local steps per round on fresh samples, Gaussian noise on each."""
    learners, dim, local_steps, step, scale = 20, 100, 4, 0.01, 0.1
    x, y = _samples(rounds * local_steps * learners, dim)
    algorithm = algorithms.noisy_federated(
        problems.Logistic(dim), learners, local_steps=local_steps, step=step, scale=scale
    )
    stream = streams.from_arrays(x, y, learners, seed=0, shuffle=False)
    shape = (rounds, local_steps, learners)
    by_round = x.reshape(*shape, dim), y.reshape(shape).astype(np.float32)
    return Workload(
        "federated-logreg",
        rounds,
        lambda: simulate(algorithm, stream, rounds * local_steps, seed=0, measure="local", progress=False),
        lambda: loops.federated_logreg(*by_round, step, scale, np.random.default_rng(0)),
        lambda: _noise_alone(algorithm, rounds),
    )


def letter_size(steps: int = 150_000) -> Workload:
    """ad_ftgl at the size of the letter experiment of paper 000: 9 learners, 26 x 16 matrices, trace-norm ball."""
    learners, features, classes = 9, 16, 26
    problem = problems.Softmax(features, classes, domain=sets.TraceNormBall(10.0, (classes, features)))
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (15_000, features)).astype(np.float32)
    y = np.argmax(x @ rng.normal(size=(features, classes)), axis=1)
    stream = streams.from_arrays(x, y, learners, seed=0, copies=10 * learners)
    algorithm = algorithms.ad_ftgl(problem, topology.complete(learners), block=None, horizon=steps)
    return Workload(
        "ad_ftgl, letter size",
        steps,
        lambda: simulate(algorithm, stream, steps, seed=0, progress=False),
    )


def _samples(rows: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rows, dim), dtype=np.float32) / np.float32(np.sqrt(dim))
    return x, (x[:, 0] > 0).astype(np.int32)


def _noise_alone(algorithm: Algorithm, rounds: int) -> None:
    """Draw what a run needs, chunk by chunk, and throw it away."""
    source = FastNoise(0)
    for low in range(0, rounds, CHUNK):
        for name, spec in algorithm.learner.noise.items():
            source.draw(name, spec, algorithm.scales_of(name), low, min(rounds, low + CHUNK))
