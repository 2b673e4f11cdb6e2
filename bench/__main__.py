"""Print the benchmark tables: whole runs, mechanisms, secure noise."""

from __future__ import annotations

import resource
import statistics

from rich.console import Console

from bench import mechanisms, secure
from bench.tools import print_table, seconds
from bench.workloads import (
    Workload,
    federated_logreg,
    gossip_logreg,
    letter_size,
    private_letter_size,
    ruled_letter_size,
)

REPEATS = 7


def main() -> None:
    headings = ("workload", "Gossamer", "NumPy loop", "noise alone", "x NumPy", "of noise", "first call")
    workloads = (gossip_logreg(), federated_logreg(), letter_size(), private_letter_size(), ruled_letter_size())
    title = "Rounds per second: medians of interleaved repeats, with the range over the repeats"
    print_table(title, headings, [[workload.name, *measure(workload)] for workload in workloads])
    console = Console(width=120)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(f"Peak memory of this process, all data included: {peak:.0f} MB.")
    console.print("'first call' is what the first run takes longer than the median one: tracing and compiling.")
    parts = ", ".join(f"{each.name} 1/{each.part}" for each in workloads if each.part > 1)
    console.print(f"The NumPy loop plays a part of the steps, and its time is scaled: {parts}.")
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
                times[name].append(seconds(version) * (workload.part if name == "numpy" else 1))
    median = {name: statistics.median(each) for name, each in times.items()}
    rates = [rate(workload.rounds, times[name]) if name in times else "" for name in versions]
    ratios = [f"{median[name] / median['gossamer']:.2f}" if name in median else "" for name in ("numpy", "noise")]
    return [*rates, *ratios, f"{first - median['gossamer']:.1f} s"]


def rate(rounds: int, times: list[float]) -> str:
    fast, slow = rounds / min(times), rounds / max(times)
    return f"{rounds / statistics.median(times):,.0f} ({slow:,.0f} - {fast:,.0f})"


if __name__ == "__main__":
    main()
