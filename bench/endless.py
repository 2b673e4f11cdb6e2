"""`ldp_endless` with sums instead of samples: `python -m bench.endless` times it, and its memory over 10^6 rounds.

Five learners on the paper's circle, least squares in 20 dimensions, one sample a round, Gaussian noise.
"""

from __future__ import annotations

import multiprocessing

import numpy as np

from bench.memory import peak
from bench.tools import Repeated, print_table
from bench.workloads import Workload, noise_alone
from gossamer import Budget, algorithms, problems, sets, simulate, streams, topology
from gossamer.core import Algorithm, Rate

LEARNERS, DIM, RADIUS, LABEL = 5, 20, 5.0, 3.0
STEP, COUPLING = Rate(0.5, 0.77), Rate(1.0, 0.65)
LONG = (10_000, 1_000_000)


def algorithm() -> Algorithm:
    """Its guarantee covers as many rounds as can be counted."""
    weights = 0.4 * np.eye(LEARNERS) + 0.3 * (np.roll(np.eye(LEARNERS), 1, 0) + np.roll(np.eye(LEARNERS), -1, 0))
    return algorithms.ldp_endless(
        problems.LeastSquares(DIM, feature_bound=1.0, domain=sets.L2Ball(RADIUS)),
        topology.ring(LEARNERS, weights=weights),
        budget=Budget(2.0, 1e-5),
        noise="gaussian",
        growth=0.0,
        history="statistics",
        label_bound=LABEL,
        step=STEP,
        coupling=COUPLING,
    )


def samples(rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Features of norm about 1 and labels within the bound, axes (round, learner, ...)."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rounds, LEARNERS, DIM), dtype=np.float32) / np.float32(np.sqrt(DIM))
    return x, np.clip(x @ rng.uniform(-1, 1, DIM).astype(np.float32), -LABEL, LABEL)


def workload(rounds: int = 20_000) -> Workload:
    """One line of the table."""
    made, (x, y) = algorithm(), samples(rounds)
    stream = streams.from_arrays(x.reshape(-1, DIM), y.reshape(-1), LEARNERS, seed=0, shuffle=False)
    scale = made.scales_of("parameters")[0].value
    return Workload(
        f"ldp_endless, statistics, {LEARNERS} learners, d={DIM}",
        rounds,
        lambda: simulate(made, stream, rounds, seed=0, measure="local", progress=False),
        lambda: loop(x, y, weights_of(made), scale, np.random.default_rng(0)),
        lambda: noise_alone(made, rounds),
    )


def weights_of(made: Algorithm) -> np.ndarray:
    """P of the network."""
    assert isinstance(made.topology, topology.Topology)
    return made.topology.matrix().astype(np.float32)


def loop(x: np.ndarray, y: np.ndarray, weights: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
    """The same in NumPy, all learners at once: the mean loss of what is played, by round."""
    rounds, learners, dim = x.shape
    exchanges = np.arange(1, rounds + 1)
    steps, pulls = STEP(exchanges).astype(np.float32), COUPLING(exchanges).astype(np.float32)
    x = x * np.minimum(1, 1 / np.maximum(np.linalg.norm(x, axis=2, keepdims=True), 1e-9)).astype(np.float32)
    outer, labelled = np.zeros((learners, dim, dim), np.float32), np.zeros((learners, dim), np.float32)
    theta, sent, average = (np.zeros((learners, dim), np.float32) for _ in range(3))
    others, total = weights - np.diag(np.diag(weights)), (1 - np.diag(weights))[:, None]
    losses = np.empty(rounds, np.float32)
    for t in range(rounds):
        if t % 512 == 0:
            noise = rng.standard_normal((512, learners, dim), dtype=np.float32) * np.float32(scale)
        played = average * np.minimum(1, RADIUS / np.maximum(np.linalg.norm(average, axis=1, keepdims=True), RADIUS))
        losses[t] = np.mean((np.einsum("nd,nd->n", x[t], played) - y[t]) ** 2)
        outer += x[t][:, :, None] * x[t][:, None, :]
        labelled += x[t] * y[t][:, None]
        gradient = 2 * (np.matmul(outer, theta[:, :, None])[:, :, 0] - labelled) / (t + 1)
        theta = theta + pulls[t] * (others @ sent - total * theta) - steps[t] * gradient
        theta *= np.minimum(1, RADIUS / np.maximum(np.linalg.norm(theta, axis=1, keepdims=True), RADIUS))
        sent = theta + noise[t % 512]
        average += np.float32(4 / (t + 4)) * (sent - average)
    return losses


def beyond_data(rounds: int) -> tuple[float, float]:
    """The peak resident memory of this process in MB, with modules and data loaded, and by how much a run raises it."""
    made, stream = algorithm(), Repeated(*samples(1_000))
    before = peak()
    simulate(made, stream, rounds, seed=0, measure="local", progress=False)
    return before, peak() - before


def memory() -> None:
    """Peak memory against the number of rounds, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    rows = []
    for rounds in LONG:
        with context.Pool(1) as pool:
            before, more = pool.apply(beyond_data, (rounds,))
        rows.append([f"{rounds:,}", f"{before:.0f} MB", f"{more:.0f} MB"])
    print_table("Memory of ldp_endless with sums", ("rounds", "before", "a run adds"), rows)


def main() -> None:
    from bench.__main__ import compare

    compare([workload()])
    memory()


if __name__ == "__main__":
    main()
