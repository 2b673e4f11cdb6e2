"""Print the benchmark tables: whole runs, mechanisms, secure noise."""

from __future__ import annotations

import resource
import statistics
from collections.abc import Sequence

from rich.console import Console

from bench import endless, experts, mechanisms, memory, ratios, secure
from bench.ratios import Times
from bench.tools import print_table
from bench.workloads import Workload

REPEATS = 7


def main() -> None:
    compare(ratios.workloads())
    memory.main()
    endless.memory()
    experts.memory()
    mechanisms.main()
    secure.main()


def compare(workloads: Sequence[Workload]) -> None:
    """Time whole runs and print them."""
    headings = ("workload", "Gossamer", "NumPy loop", "noise alone", "x NumPy", "of noise", "first call")
    title = "Rounds per second: medians of interleaved repeats, with the range over the repeats"
    measured = [ratios.measure(workload, REPEATS) for workload in workloads]
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
