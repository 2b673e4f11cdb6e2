"""What is measured: each workload as Gossamer runs it, as a NumPy loop, and its noise alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bench import loops
from gossamer import Budget, FastNoise, Rate, Run, algorithms, problems, sets, simulate, streams, topology
from gossamer.core import Algorithm, Every
from gossamer.mechanisms import Aggregation
from gossamer.streams import Stream

CHUNK = 512
PART = 10
"""The NumPy loop of a long workload plays one step in so many, and its time is scaled."""


@dataclass(frozen=True)
class Workload:
    """One line of the table: callables that each run all rounds once; the NumPy loop may play one in `part` of them.

    `independent` is the same run with independent noise, where the noise is correlated.
    """

    name: str
    rounds: int
    gossamer: Callable[[], Run]
    numpy: Callable[[], object] | None = None
    noise: Callable[[], object] | None = None
    part: int = 1
    independent: Callable[[], Run] | None = None


GOSSIP_LEARNERS, GOSSIP_DIM, GOSSIP_STEP, GOSSIP_SCALE = 16, 112, 0.1, 0.01


def noisy_ring(scale: float = GOSSIP_SCALE) -> Algorithm:
    """`noisy_ogd` as its workload runs it: logistic losses on a ring, Laplace noise on messages."""
    ring = topology.ring(GOSSIP_LEARNERS)
    return algorithms.noisy_ogd(problems.Logistic(GOSSIP_DIM), ring, step=Rate(GOSSIP_STEP), scale=scale)


def gossip_logreg(rounds: int = 20_000) -> Workload:
    """Ring of 16, d=112, one fresh sample per learner and round, Laplace noise on messages."""
    learners, dim, algorithm = GOSSIP_LEARNERS, GOSSIP_DIM, noisy_ring()
    x, y = _samples(rounds * learners, dim)
    stream = streams.from_arrays(x, y, learners, seed=0, shuffle=False)
    by_round = x.reshape(rounds, learners, dim), y.reshape(rounds, learners).astype(np.float32)
    weights = topology.ring(learners).matrix().astype(np.float32)
    return Workload(
        "gossip-logreg",
        rounds,
        lambda: simulate(algorithm, stream, rounds, seed=0, measure="local", progress=False),
        lambda: loops.gossip_logreg(*by_round, weights, GOSSIP_STEP, GOSSIP_SCALE, np.random.default_rng(0)),
        lambda: noise_alone(algorithm, rounds),
    )


FEDERATED_LEARNERS, FEDERATED_DIM, LOCAL_STEPS = 20, 100, 4
FEDERATED_STEP, FEDERATED_CLIP = 0.01, 1.0


def federated(rounds: int, aggregation: Aggregation, *, noisy: bool = True) -> Algorithm:
    """`online_federated` as its workloads run it: logistic losses, epsilon 2, delta 1e-3, noise on every local step."""
    return algorithms.online_federated(
        problems.Logistic(FEDERATED_DIM),
        FEDERATED_LEARNERS,
        horizon=rounds * LOCAL_STEPS,
        steps_per_exchange=LOCAL_STEPS,
        budget=Budget(2.0, 1e-3) if noisy else None,
        clip=FEDERATED_CLIP,
        step=FEDERATED_STEP,
        aggregation=aggregation if noisy else "blt",
    )


def federated_logreg(rounds: int = 2_000, aggregation: Aggregation = "independent") -> Workload:
    """20 learners, d=100, 4 local steps per round on fresh samples, Gaussian noise on each: independent, or correlated.

    The NumPy loop makes correlated noise by FFT, and a run with independent noise is timed beside it.
    """
    steps, shape = rounds * LOCAL_STEPS, (rounds, LOCAL_STEPS, FEDERATED_LEARNERS)
    x, y = _samples(steps * FEDERATED_LEARNERS, FEDERATED_DIM)
    stream = streams.from_arrays(x, y, FEDERATED_LEARNERS, seed=0, shuffle=False)
    by_round = x.reshape(*shape, FEDERATED_DIM), y.reshape(shape).astype(np.float32)
    algorithm, other = federated(rounds, aggregation), federated(rounds, "independent")
    scale, correlated = algorithm.scales_of("gradient")[0].value, aggregation != "independent"

    def gossamer(played: Algorithm) -> Run:
        return simulate(played, stream, steps, seed=0, measure="local", progress=False)

    def loop() -> object:
        rng = np.random.default_rng(0)
        noise = loops.independent_noise(FEDERATED_LEARNERS, FEDERATED_DIM, scale, rng)
        if correlated:
            noise = loops.correlated_noise(steps, FEDERATED_LEARNERS, FEDERATED_DIM, scale, rng)
        return loops.federated_logreg(*by_round, FEDERATED_STEP, FEDERATED_CLIP, noise)

    return Workload(
        "federated-logreg correlated" if correlated else "federated-logreg",
        rounds,
        lambda: gossamer(algorithm),
        loop,
        lambda: noise_alone(algorithm, rounds),
        independent=(lambda: gossamer(other)) if correlated else None,
    )


LETTER = problems.Softmax(16, 26, domain=sets.TraceNormBall(10.0, (26, 16)))
LETTER_LEARNERS, LETTER_STEPS = 9, 150_000


def letter_stream() -> Stream:
    """As many samples as letter has, of the same size; every learner sees its own order of all of them, ten times."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (15_000, LETTER.features)).astype(np.float32)
    y = np.argmax(x @ rng.normal(size=(LETTER.features, LETTER.classes)), axis=1)
    return streams.from_arrays(x, y, LETTER_LEARNERS, seed=0, copies=10 * LETTER_LEARNERS)


def letter_size(steps: int = LETTER_STEPS) -> Workload:
    """ad_ftgl at the size of the letter experiment of paper 000: 9 learners, 26 x 16 matrices, trace-norm ball."""
    stream = letter_stream()
    algorithm = algorithms.ad_ftgl(LETTER, topology.complete(LETTER_LEARNERS), steps_per_exchange=None, horizon=steps)
    return Workload(
        "ad_ftgl, letter size",
        steps,
        lambda: simulate(algorithm, stream, steps, seed=0, progress=False),
    )


def private_letter_size(steps: int = LETTER_STEPS) -> Workload:
    """pd_ftgl at the same size with blocks of eq. (7), as the NumPy loop does it, which plays a part of the steps."""
    network = topology.complete(LETTER_LEARNERS)
    stream, algorithm = letter_stream(), private_letter(topology.accelerated_block(network, steps), steps)
    part, setting = stream.read(0, steps // PART), letter_setting(algorithm)
    scale, shape = algorithm.scales_of("gradient")[0].value, (LETTER_LEARNERS, LETTER.classes, LETTER.features)
    rng = np.random.default_rng(0)

    def noise() -> loops.Floats:
        return rng.laplace(scale=scale, size=shape).astype(np.float32)

    return Workload(
        f"pd_ftgl, letter size, L={length_of(algorithm)}",
        steps,
        lambda: simulate(algorithm, stream, steps, seed=0, progress=False),
        lambda: loops.pd_ftgl(part.x, part.y, LETTER.classes, setting, noise),
        lambda: noise_alone(algorithm, steps // length_of(algorithm)),
        part=PART,
    )


def ruled_letter_size(steps: int = LETTER_STEPS) -> Workload:
    """The same with block and noise by the rule."""
    stream, algorithm = letter_stream(), private_letter(None, steps)
    return Workload(
        f"pd_ftgl, letter size, L={length_of(algorithm)} (rule)",
        steps,
        lambda: simulate(algorithm, stream, steps, seed=0, progress=False),
        noise=lambda: noise_alone(algorithm, steps // length_of(algorithm)),
    )


def private_letter(block: int | None, steps: int) -> Algorithm:
    """PD-FTGL with Laplace noise before gossip, epsilon 10, clip 1: a tree with the given block, or all by the rule."""
    network, budget = topology.complete(LETTER_LEARNERS), Budget(10.0)
    aggregation: Literal["tree"] | None = "tree" if block else None
    return algorithms.pd_ftgl(
        LETTER, network, horizon=steps, budget=budget, clip=1.0, steps_per_exchange=block, aggregation=aggregation
    )


def letter_setting(algorithm: Algorithm) -> loops.Letter:
    """What the NumPy loop needs to do the same as this algorithm."""
    assert isinstance(algorithm.topology, topology.FixedTopology)
    weight = float(algorithm.public["weight"](np.arange(1, 2))[0])
    theta, mixing = topology.accelerated_theta(algorithm.topology), algorithm.topology.matrix().astype(np.float32)
    return loops.Letter(mixing, theta, length_of(algorithm), weight, clip=1.0, radius=LETTER.domain.radius)


def length_of(algorithm: Algorithm) -> int:
    """Steps a block."""
    assert isinstance(algorithm.schedule, Every)
    return algorithm.schedule.block


def _samples(rows: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rows, dim), dtype=np.float32) / np.float32(np.sqrt(dim))
    return x, (x[:, 0] > 0).astype(np.int32)


def noise_alone(algorithm: Algorithm, rounds: int) -> None:
    """Draw what a run needs, chunk by chunk, and throw it away."""
    source = FastNoise(0)
    for low in range(0, rounds, CHUNK):
        for name, spec in algorithm.learner.noise.items():
            source.draw(name, spec, algorithm.scales_of(name), low, min(rounds, low + CHUNK))
