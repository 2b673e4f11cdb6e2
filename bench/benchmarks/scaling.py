"""Cost against learners, dimensions and rounds on this machine: Gossamer, the NumPy loop, the prototype."""

from __future__ import annotations

from typing import Any

from bench.benchmarks.sizes import Ring, timed
from bench.tools import seconds

LEARNERS = (16, 100, 1_000, 10_000, 100_000, 1_000_000)
DIMENSIONS = (10, 100, 1_000, 10_000)
ROUNDS = (100, 1_000, 10_000, 100_000, 1_000_000)
DIM, FEW = 100, 16
LOOP_LEARNERS, LOOP_ROUNDS = 100_000, 10_000
"""The NumPy loop is not run with more learners, nor over more rounds."""
MANY = 100_000
"""From so many learners on a row takes three times as long, for what a call costs once not to count."""

Json = dict[str, Any]


def measure(repeats: int, quick: bool = False) -> Json:
    """All three."""
    target = 0.25 if quick else 1.0
    learners, rounds = (LEARNERS[:4], ROUNDS[:4]) if quick else (LEARNERS, ROUNDS)
    return {
        "learners": [{"learners": n, "dim": DIM} | at(Ring(n, DIM), target, repeats) for n in learners],
        "dimensions": [{"learners": FEW, "dim": d} | at(Ring(FEW, d), target, repeats) for d in DIMENSIONS],
        "rounds": [{"learners": FEW, "dim": DIM} | over(steps, repeats) for steps in rounds],
    }


def at(ring: Ring, target: float, repeats: int) -> Json:
    """One size: each version by itself, one after the other, so that a large one has the memory for itself."""
    print(f"  {ring.learners:,} learners, {ring.dim:,} dimensions", flush=True)
    versions = {"gossamer": ring.gossamer, "prototype": ring.prototype}
    if ring.learners <= LOOP_LEARNERS:
        versions["numpy"] = ring.numpy
    longer = 3 * target if ring.learners >= MANY else target
    found: Json = {}
    for name, make in versions.items():
        try:
            found[name] = timed(make(), target=longer, repeats=repeats)
        except Exception as error:  # a size that one version cannot do is a result
            found[name] = {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    return found


def over(steps: int, repeats: int) -> Json:
    """One horizon: whole calls, with all that they do once."""
    print(f"  {steps:,} rounds", flush=True)
    ring = Ring(FEW, DIM)
    versions = {"gossamer": ring.gossamer()}
    if steps <= LOOP_ROUNDS:
        versions["numpy"] = ring.numpy()
    found: Json = {}
    for name, play in versions.items():
        play(steps)
        found[name] = {"rounds": steps, "seconds": [seconds(lambda: play(steps)) for _ in range(repeats)]}  # noqa: B023
    return found
