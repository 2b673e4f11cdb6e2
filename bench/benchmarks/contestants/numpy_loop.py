"""The NumPy loops of `bench/loops.py`, vectorised over the learners."""

from __future__ import annotations

import time

import numpy as np
from common import Play, Played, Setting, samples, serve

from bench import loops


def prepare(setting: Setting) -> Play:
    """Samples in memory before the clock starts."""
    x, y = samples(setting, setting.rounds)
    eye = np.eye(setting.learners, dtype=np.float32)
    weights = (eye + np.roll(eye, 1, 0) + np.roll(eye, -1, 0)) / np.float32(3)

    def play(rounds: int, seed: int | None) -> Played:
        scale, rng = 0.0 if seed is None else setting.scale, np.random.default_rng(seed)
        begun = time.perf_counter()
        if setting.workload == "gossip-logreg":
            losses = loops.gossip_logreg(x[:rounds, 0], y[:rounds, 0], weights, setting.step, scale, rng)
        else:
            rows, shape = rounds * setting.local_steps, (setting.learners, setting.dim)
            noise = loops.independent_noise(*shape, scale, rng)
            if setting.rates:
                noise = loops.correlated_noise(rows, *shape, scale, rng)
            losses = loops.federated_logreg(x[:rounds], y[:rounds], setting.step, setting.clip, noise)
        return Played(time.perf_counter() - begun, losses.mean(axis=1))

    return play


serve(prepare, ("numpy",))
