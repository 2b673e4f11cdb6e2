"""Fed-SVT on sums of phases: `python -m bench.experts` times it, and its memory for T = 10^5 and 10^6.

64 clients, 1,000 experts, an exchange every 10 steps, epsilon 1: the stream supplies what the losses of all clients in
a phase add up to, drawn from the very law that the sums have.
"""

from __future__ import annotations

import multiprocessing

import numpy as np

from bench.memory import peak
from bench.tools import print_table, seconds
from bench.workloads import CHUNK, Workload
from gossamer import Budget, FastNoise, algorithms, simulate, streams
from gossamer.core import Algorithm
from gossamer.streams import Stream

CLIENTS, EXPERTS, PHASE = 64, 1000, 10
LONG = (100_000, 1_000_000)


def setting(steps: int) -> tuple[Algorithm, Stream]:
    """The algorithm on sums over all clients, and its stream: one expert has no losses, the others fair coins."""
    whole = algorithms.fed_svt(EXPERTS, CLIENTS, horizon=steps, steps_per_exchange=PHASE, budget=Budget(1.0))
    stream = streams.realizable_experts(CLIENTS, EXPERTS, seed=0).sums(whole.schedule, steps, pooled=True)
    return algorithms.summed(whole, pooled=True), stream


def workload(steps: int = 100_000) -> Workload:
    """One line of the table: rounds are phases."""
    algorithm, stream = setting(steps)
    phases = steps // PHASE
    return Workload(
        f"fed_svt on sums, m={CLIENTS}, d={EXPERTS}",
        phases,
        lambda: simulate(algorithm, stream, phases, seed=0, measure="local", progress=False),
        lambda: loop(phases, algorithm, np.random.default_rng(0)),
        lambda: noise_alone(algorithm, phases),
    )


def loop(phases: int, algorithm: Algorithm, rng: np.random.Generator, best: int = 0) -> tuple[np.ndarray, int]:
    """The same in NumPy: the losses of the played expert by phase, over all clients, and how often it changed.

    Sums are drawn many phases at a time, as the stream does; an expert is drawn only where there is a change.
    """
    query, threshold, choice = (algorithm.scales_of(name)[0].value for name in ("query", "threshold", "choice"))
    limit = float(algorithm.public["threshold"](np.array([1]))[0])
    left = int(algorithm.parameters["changes"].rsplit(" ", 1)[1])
    totals, losses = np.zeros(EXPERTS), np.empty(phases)
    expert, since, changes = int(rng.integers(EXPERTS)), 0.0, 0
    noisy = limit + rng.laplace(scale=threshold)
    for t in range(phases):
        if t % CHUNK == 0:
            sums = rng.binomial(CLIENTS * PHASE, 0.5, (CHUNK, EXPERTS))
            sums[:, best] = 0
        row = sums[t % CHUNK]
        losses[t] = row[expert]
        totals += row
        since += row[expert]
        if changes < left and since + rng.laplace(scale=query) > noisy:
            expert = int(np.argmax(rng.gumbel(size=EXPERTS) - totals / choice))
            since, changes, noisy = 0.0, changes + 1, limit + rng.laplace(scale=threshold)
    return losses, changes


def noise_alone(algorithm: Algorithm, phases: int) -> None:
    """Draw what the server needs, chunk by chunk, and throw it away."""
    source = FastNoise(0)
    assert algorithm.server is not None
    for low in range(0, phases, CHUNK):
        for name, spec in algorithm.server.noise.items():
            source.draw(name, spec, algorithm.scales_of(name), low, min(phases, low + CHUNK))


def data_alone(stream: Stream, phases: int) -> None:
    """Read all sums, and throw them away: binomial draws of NumPy."""
    for low in range(0, phases, CHUNK):
        stream.read(low, min(phases, low + CHUNK))


def measured(steps: int) -> tuple[float, float, float, float]:
    """Seconds of a run, of its sums alone, and of its noise alone; and by how many MB a run raises the peak memory."""
    algorithm, stream = setting(steps)
    phases, before = steps // PHASE, peak()
    whole = seconds(lambda: simulate(algorithm, stream, phases, seed=0, measure="local", progress=False))
    more = peak() - before
    return whole, seconds(lambda: data_alone(stream, phases)), seconds(lambda: noise_alone(algorithm, phases)), more


def memory() -> None:
    """Seconds and peak memory against T, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    rows = []
    for steps in LONG:
        with context.Pool(1) as pool:
            whole, data, noise, more = pool.apply(measured, (steps,))
        rows.append([f"{steps:,}", f"{whole:.1f} s", f"{data:.1f} s", f"{noise:.1f} s", f"{more:.0f} MB"])
    headings = ("T", "a run, compiling included", "sums alone", "noise alone", "a run adds")
    print_table(f"fed_svt on sums, m={CLIENTS}, d={EXPERTS}: a fresh process each", headings, rows)


def main() -> None:
    from bench.__main__ import compare

    compare([workload()])
    memory()


if __name__ == "__main__":
    main()
