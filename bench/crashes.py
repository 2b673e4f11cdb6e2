"""A node killed with SIGKILL again and again: `python -m bench.crashes --kills 240`. It fails where anything is wrong.

What is checked after every kill and at the end is in tests/crashes.py, and for a few kills in tests/test_crashes.py.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from bench.tools import print_table
from tests.crashes import OPTIONS, POINTS, Nursery, Point, Trial, algorithm_of

ROWS = 3  # messages that the victim commits for each kill, on average
HEADINGS = ("algorithm", "exchanges", "messages", "kills", "run", "restart, median", "longest")


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a node again and again.")
    parser.add_argument("--kills", type=int, default=240, help="in all, over four runs")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    kills, lines, nursery = Counter[str](), [], Nursery()
    for number, name in enumerate(OPTIONS):
        times = (given.kills + number) // len(OPTIONS)
        line, by_point = run(nursery, name, times, given.seed + number)
        print(*line, sep=", ", flush=True)
        lines.append(line)
        kills += by_point
    nursery.close()
    print_table("Five nodes of which one is killed; times in seconds", HEADINGS, lines)
    print_table("Where it was killed", ("point", "kills"), [(point, str(kills[point])) for point in POINTS])


def run(nursery: Nursery, name: str, kills: int, seed: int) -> tuple[list[str], Counter[str]]:
    """One run with so many kills, everything checked: its line of the table, and the kills by point."""
    draw = random.Random(seed)
    rounds = kills // len(POINTS) + 1
    points: list[Point] = [point for _ in range(rounds) for point in draw.sample(POINTS, len(POINTS))]
    steps = algorithm_of(name).mixing.steps
    exchanges = max(20, ROWS * kills // steps)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        with Trial(nursery, Path(folder) / "trial", name, exchanges) as trial:
            trial.kill(points[:kills], seed)
        trial.judge()
        restarts = trial.restarts()
    counts = (exchanges, exchanges * steps, sum(trial.kills.values()))
    times = (time.perf_counter() - begun, float(np.median(restarts)), max(restarts))
    return [name, *map(str, counts), *(f"{one:.2f}" for one in times)], trial.kills


if __name__ == "__main__":
    main()
