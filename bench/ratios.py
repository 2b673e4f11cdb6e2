"""Whole runs against their NumPy loops: what is timed, and how, for `make bench` and for docs/benchmarks.md."""

from __future__ import annotations

from bench import dpsda, endless, experts
from bench.tools import seconds
from bench.workloads import (
    Workload,
    federated_logreg,
    gossip_logreg,
    letter_size,
    private_letter_size,
    ruled_letter_size,
)

Times = dict[str, list[float]]
"""Seconds of every repeat, by version; "first" is the first call, which traces and compiles."""


def workloads() -> tuple[Workload, ...]:
    """At least one for each of the five papers."""
    return (
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


def measure(workload: Workload, repeats: int) -> Times:
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
    for _ in range(repeats):
        for name, version in versions.items():
            if version:
                times[name].append(seconds(version) * (workload.part if name == "numpy" else 1))
    return times | {"first": [first]}
