"""Gossamer: `simulate` on samples that come in the order of the arrays."""

from __future__ import annotations

import time

import numpy as np
from common import Play, Played, Setting, samples, serve

from bench.workloads import federated, noisy_ring
from gossamer import simulate, streams
from gossamer.core import Algorithm


def prepare(setting: Setting) -> Play:
    """The algorithm of the workload and one that adds no noise."""
    x, y = samples(setting, setting.rounds)
    flat = x.reshape(-1, setting.dim), y.reshape(-1).astype(np.int32)
    stream = streams.from_arrays(*flat, setting.learners, seed=0, shuffle=False)

    def algorithm(noisy: bool) -> Algorithm:
        if setting.workload == "gossip-logreg":
            return noisy_ring(setting.scale if noisy else 0.0)
        return federated(setting.rounds, "blt" if setting.rates else "independent", noisy=noisy)

    algorithms = {noisy: algorithm(noisy) for noisy in (False, True)}

    def play(rounds: int, seed: int | None) -> Played:
        begun, steps = time.perf_counter(), rounds * setting.local_steps
        run = simulate(algorithms[seed is not None], stream, steps, seed=seed or 0, measure="local", progress=False)
        taken = time.perf_counter() - begun
        return Played(taken, run.losses.mean(axis=1))

    play(setting.rounds, 0)  # compile
    return play


serve(prepare, ("gossamer", "jax", "numpy"))
