"""Audit `online_federated` on the network of paper 001 in one run: `python -m bench.one_run_audit DATA [SEED ...]`.

Ten learners, MNIST dealt as in figure 4, (2, 1e-3), one local step, BLT noise, the whole horizon. Some of the samples
are canaries: faint images, each with one of two labels. The same run is judged at the delta of the claim and at 1e-5,
where one run shows more; the claim there is that of the same noise.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gossamer.reproduction.paper_001.cases import Case, Digits

from bench.tools import print_table
from gossamer.auditing import Canaries, Part, audit, matched_filter
from gossamer.auditing.attacks.one_run import two_labels

CANARIES = 6000
STEP = 0.02
DELTAS = (1e-3, 1e-5)
HEADINGS = ("seed", "delta", "claim", "bound, 95 %", "right", "guesses", "counted", "seconds")


def main() -> None:
    digits, seeds = Digits(Path(sys.argv[1])), [int(seed) for seed in sys.argv[2:]] or [0]
    steps = digits.samples(1)
    algorithm = Case(4, "blt", 1).build(digits.problem, steps, STEP)
    inputs = two_labels(digits.stream, steps=steps, classes=10, canaries=CANARIES, seed=1)
    score, rows = matched_filter(algorithm, *inputs), []
    for seed in seeds:
        kept: list[np.ndarray] = []

        def scores(canaries: Canaries, parts: Iterator[Part], kept: list[np.ndarray] = kept) -> np.ndarray:
            """The same seed gives the same run, so it is played once."""
            if not kept:
                kept.append(score(canaries, parts))
            return kept[0]

        for delta in DELTAS:
            begun = time.perf_counter()
            found = audit(algorithm, *inputs, statistic=scores, method="one-run", seed=seed, delta=delta)
            taken, guesses = time.perf_counter() - begun, found.guesses
            cells = (f"{delta:g}", f"{found.claimed:.3f}", f"{found.epsilon:.3f}")
            counts = (f"{each:,}" for each in (guesses.right, guesses.guessed, guesses.counted))
            rows.append((str(seed), *cells, *counts, f"{taken:.0f}"))
    print_table(f"{algorithm.name}, {steps:,} steps, {CANARIES:,} canaries in one run", HEADINGS, rows)


if __name__ == "__main__":
    main()
