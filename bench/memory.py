"""Memory of online_federated against the number of rounds: `python -m bench.memory` prints it.

Every run is a process of its own, on a few samples that come again and again, so that the data do not grow.
"""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import jax
import numpy as np

from bench.tools import Repeated, print_table
from bench.workloads import FEDERATED_DIM, FEDERATED_LEARNERS, LOCAL_STEPS, federated
from gossamer import simulate
from gossamer.mechanisms import Aggregation

ROUNDS = (1_000, 100_000)
AGGREGATIONS: tuple[Aggregation, ...] = ("independent", "blt")


def samples(steps: int = 1_000) -> Repeated:
    """Few, so that the data do not grow."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((steps, FEDERATED_LEARNERS, FEDERATED_DIM), dtype=np.float32) / np.float32(
        np.sqrt(FEDERATED_DIM)
    )
    return Repeated(x, (x[..., 0] > 0).astype(np.int32))


def beyond_data(rounds: int, aggregation: Aggregation) -> tuple[float, float]:
    """The peak resident memory of this process in MB: with modules and data loaded, and by how much a run raises it."""
    algorithm, stream = federated(rounds, aggregation), samples()
    before = peak()
    simulate(algorithm, stream, rounds * LOCAL_STEPS, seed=0, measure="local", progress=False)
    return before, peak() - before


def peak() -> float:
    """The peak resident memory of this process in MB; `getrusage` would count that of its parent at the fork too."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def state(rounds: int, aggregation: Aggregation) -> int:
    """What one learner's mechanism remembers, in bytes."""
    (release,) = federated(rounds, aggregation).releases
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(jax.eval_shape(release.mechanism.init)))


def main() -> None:
    fresh = multiprocessing.get_context("spawn")
    rows = []
    for aggregation in AGGREGATIONS:
        for rounds in ROUNDS:
            with fresh.Pool(1) as pool:
                before, more = pool.apply(beyond_data, (rounds, aggregation))
            sizes = (f"{before:.0f} MB", f"{more:.0f} MB", f"{state(rounds, aggregation):,} bytes")
            rows.append([f"{aggregation}, R={rounds:,}", *sizes])
    title = f"online_federated, n={FEDERATED_LEARNERS}, d={FEDERATED_DIM}, tau={LOCAL_STEPS}: a fresh process each"
    print_table(title, ("run", "modules and data", "a run beyond that", "state of a mechanism"), rows)


if __name__ == "__main__":
    main()
