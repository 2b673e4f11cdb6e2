"""The command line: `python -m bench.benchmarks [all | render | gpu | PART]`."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.benchmarks import render
from bench.benchmarks.render import EVIDENCE, GPU, PARTS

Json = dict[str, Any]


def comparison(quick: bool) -> Json:
    """Six ways to run three workloads."""
    from bench.benchmarks.comparison import compare

    return compare(2 if quick else 7, quick)


def algorithms(quick: bool) -> list[Json]:
    """Every workload of `make bench` against its NumPy loop."""
    from bench import ratios

    found = []
    for workload in ratios.workloads():
        print(f"  {workload.name}", flush=True)
        times = ratios.measure(workload, 1 if quick else 5)
        found.append({"name": workload.name, "rounds": workload.rounds, "part": workload.part} | times)
    return found


def mechanisms(quick: bool) -> Json:
    """A step of correlated noise beside one of independent noise."""
    from bench import mechanisms

    return {"dim": mechanisms.DIM, "rows": mechanisms.HORIZON, "ms a step": mechanisms.measure(3 if quick else 9)}


def scaling(quick: bool) -> Json:
    """Cost against learners, dimensions and rounds."""
    from bench.benchmarks.scaling import measure

    return measure(2 if quick else 3, quick)


def settings(quick: bool) -> Json:
    """Four algorithms, each with all its settings in one program."""
    from bench import many

    return many.measure(1_000 if quick else 10_000)


MEASURE: dict[str, Callable[[bool], Any]] = dict(
    zip(PARTS, (comparison, algorithms, mechanisms, scaling, settings), strict=True)
)


def measure(parts: tuple[str, ...], quick: bool, busy: bool) -> None:
    """Into the evidence, part by part; parts that are not measured stay as they are."""
    from bench.benchmarks import environments, machine

    if "comparison" in parts:
        environments.make_all()
    found: Json = json.loads(EVIDENCE.read_text()) if EVIDENCE.exists() else {}
    for part in parts:
        print(f"{part}:", flush=True)
        about, begun = machine.about(), time.perf_counter()
        found[part] = {"found": MEASURE[part](quick), "machine": about, "busy": busy, "quick": quick}
        found[part]["seconds in all"] = round(time.perf_counter() - begun)
        EVIDENCE.parent.mkdir(parents=True, exist_ok=True)
        EVIDENCE.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.benchmarks", description="Measure, and write the page.")
    parser.add_argument("what", nargs="?", default="all", choices=("all", "render", "gpu", *PARTS))
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats: to see whether it works")
    parser.add_argument("--busy", action="store_true", help="note that other programs were running")
    parser.add_argument("--out", type=Path, default=GPU, help="where `gpu` writes")
    given = parser.parse_args()
    if given.what == "gpu":
        from bench.benchmarks import gpu

        gpu.main(given.out, small=given.quick)
        return
    if given.what != "render":
        measure(PARTS if given.what == "all" else (given.what,), given.quick, given.busy)
    render.write()


if __name__ == "__main__":
    main()
