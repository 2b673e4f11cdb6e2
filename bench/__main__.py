"""Print the benchmark tables: whole runs, mechanisms, secure noise."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from bench import mechanisms, secure
from bench.workloads import Workload, federated_logreg, gossip_logreg, letter_size

REPEATS = 7


def main() -> None:
    table = Table(title="Rounds per second: medians of interleaved repeats, with the range over the repeats")
    for heading in ("workload", "Gossamer", "NumPy loop", "noise alone", "x NumPy", "of noise", "first call"):
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    for workload in (gossip_logreg(), federated_logreg(), letter_size()):
        table.add_row(workload.name, *measure(workload))
    console = Console(width=120)
    console.print(table)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(f"Peak memory of this process, all data included: {peak:.0f} MB.")
    console.print("'first call' is what the first run takes longer than the median one: tracing and compiling.")
    mechanisms.main()
    secure.main()


def measure(workload: Workload) -> list[str]:
    """Time the three versions in turns, so that a slow minute of the machine hits all of them."""
    versions = {"gossamer": workload.gossamer, "numpy": workload.numpy, "noise": workload.noise}
    first = seconds(workload.gossamer)
    times: dict[str, list[float]] = {name: [] for name, version in versions.items() if version}
    for _ in range(REPEATS):
        for name, version in versions.items():
            if version:
                times[name].append(seconds(version))
    median = {name: statistics.median(each) for name, each in times.items()}
    rates = [rate(workload.rounds, times[name]) if name in times else "" for name in versions]
    ratios = [f"{median[name] / median['gossamer']:.2f}" if name in median else "" for name in ("numpy", "noise")]
    return [*rates, *ratios, f"{first - median['gossamer']:.1f} s"]


def rate(rounds: int, times: list[float]) -> str:
    fast, slow = rounds / min(times), rounds / max(times)
    return f"{rounds / statistics.median(times):,.0f} ({slow:,.0f} - {fast:,.0f})"


def seconds(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
