"""How long the check of an algorithm's flow takes: `python -m bench.flow`.

The first algorithm of a process also waits for JAX to wake up. All others are checked with an empty cache of ours.
"""

from __future__ import annotations

import time

import jax

from bench.tools import print_table
from gossamer import algorithms, problems, sets, topology
from gossamer.algorithms import REGISTRY
from gossamer.core import checked
from gossamer.core.algorithm import Algorithm


def main() -> None:
    made = {name: _small(name) for name in REGISTRY}
    private = {name: one for name, one in made.items() if one.guarantee.basis == "proven"}
    rows = []
    for name, algorithm in private.items():
        cold = _seconds(algorithm, forget_jax=True)
        warm = min(_seconds(algorithm) for _ in range(3))
        rows.append([name, f"{1000 * cold:.0f} ms", f"{1000 * warm:.0f} ms"])
    print_table("first check of an algorithm", ["algorithm", "nothing in JAX's caches", "JAX has traced before"], rows)


def _small(name: str) -> Algorithm:
    entry = REGISTRY[name]
    experts = entry.losses == "experts"
    problem = problems.Experts(20) if experts else problems.Logistic(20, feature_bound=1.0, domain=sets.L2Ball(3.0))
    network = topology.ring(5) if entry.network == "graph" else 5
    return getattr(algorithms, name)(problem, network, **entry.example)


def _seconds(algorithm: Algorithm, forget_jax: bool = False) -> float:
    checked._kept.cache_clear()
    if forget_jax:
        jax.clear_caches()
    begun = time.perf_counter()
    checked.check(algorithm.flow)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
