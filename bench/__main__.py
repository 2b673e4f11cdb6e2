"""Print the benchmark tables: whole runs, mechanisms, secure noise."""

from __future__ import annotations

import resource
import statistics
from collections.abc import Sequence

from rich.console import Console

from bench import dpsda, endless, experts, mechanisms, memory, secure
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

Times = dict[str, list[float]]
"""Seconds of every repeat, by version."""


def main() -> None:
    compare(
        (
            gossip_logreg(),
            federated_logreg(),
            federated_logreg(aggregation="blt"),
            letter_size(),
            private_letter_size(),
            ruled_letter_size(),
            *dpsda.workloads(),
            endless.workload(),
            experts.workload(),
        )
    )
    memory.main()
    endless.memory()
    experts.memory()
    mechanisms.main()
    secure.main()


def compare(workloads: Sequence[Workload]) -> None:
    """Time whole runs and print them."""
    headings = ("workload", "Gossamer", "NumPy loop", "noise alone", "x NumPy", "of noise", "first call")
    title = "Rounds per second: medians of interleaved repeats, with the range over the repeats"
    measured = [measure(workload) for workload in workloads]
    print_table(title, headings, [row(*pair) for pair in zip(workloads, measured, strict=True)])
    console = Console(width=120)
    for workload, times in zip(workloads, measured, strict=True):
        if "independent" in times:
            console.print(beside_independent(workload, times))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(f"Peak memory of this process, all data included: {peak:.0f} MB.")
    console.print("'first call' is what the first run takes longer than the median one: tracing and compiling.")
    parts = ", ".join(f"{each.name} 1/{each.part}" for each in workloads if each.part > 1)
    if parts:
        console.print(f"The NumPy loop plays a part of the steps, and its time is scaled: {parts}.")


def measure(workload: Workload) -> Times:
    """Time all versions in turns, so that a slow minute of the machine hits all of them; the first call by itself."""
    versions = {
        "gossamer": workload.gossamer,
        "independent": workload.independent,
        "numpy": workload.numpy,
        "noise": workload.noise,
    }
    first = seconds(workload.gossamer)
    if workload.independent:
        workload.independent()
    times: Times = {name: [] for name, version in versions.items() if version}
    for _ in range(REPEATS):
        for name, version in versions.items():
            if version:
                times[name].append(seconds(version) * (workload.part if name == "numpy" else 1))
    return times | {"first": [first]}


def row(workload: Workload, times: Times) -> list[str]:
    """A line of the table."""
    median = {name: statistics.median(each) for name, each in times.items()}
    rates = [rate(workload.rounds, times[name]) if name in times else "" for name in ("gossamer", "numpy", "noise")]
    ratios = [f"{median[name] / median['gossamer']:.2f}" if name in median else "" for name in ("numpy", "noise")]
    return [workload.name, *rates, *ratios, f"{median['first'] - median['gossamer']:.1f} s"]


def beside_independent(workload: Workload, times: Times) -> str:
    """How much slower correlated noise is, run by run in turns."""
    share = statistics.median(times["independent"]) / statistics.median(times["gossamer"])
    other = rate(workload.rounds, times["independent"])
    return f"{workload.name}: {share:.2f} of the rate with independent noise, which is {other}."


def rate(rounds: int, times: list[float]) -> str:
    fast, slow = rounds / min(times), rounds / max(times)
    return f"{rounds / statistics.median(times):,.0f} ({slow:,.0f} - {fast:,.0f})"


if __name__ == "__main__":
    main()
