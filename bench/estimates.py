"""Memory that runs take, estimated before them and measured: `python -m bench.estimates` prints a table of both.

Every run is a process of its own. What counts is by how much a run raises the resident memory above what modules,
algorithm and stream take before it. The numbers go to docs/evidence/memory.json.
"""

from __future__ import annotations

import json
import multiprocessing
import platform
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bench.tools import print_table
from gossamer import Budget, Rate, algorithms, problems, simulate, streams, topology
from gossamer.core import Algorithm
from gossamer.privacy import FastNoise
from gossamer.simulation import memory
from gossamer.simulation.feeding import Feeder
from gossamer.simulation.program import Program
from gossamer.simulation.sizes import length_of, usual_every
from gossamer.streams import Stream

FILE = Path("docs/evidence/memory.json")


class Case(NamedTuple):
    """A run; `stream`: "drawn", or "records" of which there are as many as samples are played."""

    algorithm: str
    learners: int
    dim: int
    steps: int
    measure: str = "global"
    stream: str = "drawn"
    seeds: int = 1
    record: tuple[str, ...] = ()


CASES = (
    Case("pd_ogd", 16, 100, 2_000),
    Case("pd_ogd", 1_000, 100, 200),
    Case("pd_ogd", 1_000, 100, 200, "local"),
    Case("pd_ogd", 10_000, 100, 100),
    Case("pd_ogd", 10_000, 100, 100, "local"),
    Case("pd_ogd", 10_000, 100, 50, seeds=5),
    Case("pd_ogd", 100_000, 100, 20),
    Case("pd_ogd", 100_000, 100, 20, "local"),
    Case("pd_ogd", 100_000, 20, 20, stream="records"),
    Case("pd_ogd", 100_000, 20, 20, record=("messages",)),
    Case("pd_ogd", 1_000_000, 10, 20),
    Case("pd_ogd", 1_000_000, 10, 20, "local"),
    Case("pd_ogd", 1_000_000, 100, 5),
    Case("d_ogd", 1_000_000, 10, 20),
    Case("pd_ftgl", 1_000, 100, 400),
)
"""The two constants of `memory` (what compilers take, what is not returned) were chosen with these in view."""

FRESH = (
    Case("online_federated", 1_000, 100, 200),
    Case("online_federated", 100_000, 100, 20),
    Case("pd_ogd", 30_000, 50, 60, "local", seeds=3),
    Case("pd_ogd", 4_000, 200, 100, record=("decisions", "messages")),
    Case("d_ogd", 300_000, 30, 20, stream="records"),
)
"""And these were not."""


def made(case: Case) -> tuple[Algorithm, Stream]:
    n, d = case.learners, case.dim
    problem = problems.Logistic(d, feature_bound=1.0)
    private = {"budget": Budget(1.0), "clip": 1.0}
    if case.algorithm == "d_ogd":
        algorithm = algorithms.d_ogd(problem, topology.ring(n), step=Rate(1.0))
    elif case.algorithm == "pd_ogd":
        algorithm = algorithms.pd_ogd(problem, topology.ring(n), step=0.1, **private)
    elif case.algorithm == "pd_ftgl":
        network = topology.random_regular(n, 8, seed=0)
        algorithm = algorithms.pd_ftgl(problem, network, horizon=case.steps, **private)
    else:
        rounds = {"horizon": case.steps, "steps_per_exchange": 1, "budget": Budget(1.0, 1e-5), "clip": 1.0}
        algorithm = algorithms.online_federated(problem, n, step=0.1, **rounds)
    if case.stream == "drawn":
        return algorithm, streams.smooth_cycle_logistic(n, d, seed=1)
    x = np.random.default_rng(0).standard_normal((n * case.steps, d), dtype=np.float32) / np.float32(np.sqrt(d))
    return algorithm, streams.from_arrays(x, (x[:, 0] > 0).astype(np.int32), learners=n, seed=0)


def measured(case: Case) -> dict[str, Any]:
    """In this process: what is estimated, and by how much the run raises the resident memory."""
    algorithm, stream = made(case)
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    seeds = list(range(case.seeds))
    run = simulate(algorithm, stream, case.steps, seeds=seeds, measure=case.measure, record=case.record)
    rise = status("VmHWM") - before
    needed = estimated(case, algorithm, stream)
    parts = {name: round(size / 1e6, 1) for name, size in needed._asdict().items()}
    return case._asdict() | {
        "estimate": round(needed.total / 1e6, 1),
        "measured": round(rise / 1e6, 1),
        "parts": parts,
        "seconds": round(run.wall_time, 1),
    }


def estimated(case: Case, algorithm: Algorithm, stream: Stream) -> memory.Memory:
    feeder = Feeder(algorithm, stream, tuple(map(FastNoise, range(case.seeds))))
    program = Program.of(algorithm, stream.shared, case.measure, case.record)  # type: ignore[arg-type]
    every = usual_every(program, case.seeds, algorithm.schedule.exchanges(case.steps), tested=False)
    length = length_of(feeder, program, case.steps, every, None)
    return memory.estimate(feeder, program, memory.Shape(case.steps, case.seeds, every, length), ask=True)


def status(name: str) -> int:
    """The resident memory of this process in bytes, now (VmRSS) or at its peak (VmHWM)."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def main() -> None:
    fresh, rows = multiprocessing.get_context("spawn"), []
    for case in CASES + FRESH:
        with fresh.Pool(1) as pool:
            rows.append(pool.apply(measured, (case,)) | {"fresh": case in FRESH})
    print_table("Memory of runs beyond modules, algorithm and stream", COLUMNS, [cells(row) for row in rows])
    about = {"machine": f"{platform.machine()}, {jax.default_backend()}", "jax": jax.__version__, "runs": rows}
    FILE.write_text(json.dumps(about, indent=1) + "\n")


COLUMNS = ("run", "measure", "estimate", "measured", "measured / estimate")


def cells(row: dict[str, Any]) -> list[str]:
    name = f"{row['algorithm']}, n={row['learners']:,}, d={row['dim']}, T={row['steps']:,}"
    name += f", {row['seeds']} seeds" * (row["seeds"] > 1) + ", records" * (row["stream"] == "records")
    name += ", messages recorded" * bool(row["record"])
    sizes = (f"{row[key]:,.0f} MB" for key in ("estimate", "measured"))
    return [name, row["measure"], *sizes, f"{row['measured'] / row['estimate']:.2f}"]


if __name__ == "__main__":
    main()
