"""Rates of regret, measured: `python -m bench.regret` prints what docs/metrics.md quotes.

Regret is the average over learners of R_{T,i} / (n T), against the best fixed decision found to a stated accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from rich.console import Console

from gossamer import Rate, algorithms, problems, sets, simulate, streams, topology
from gossamer.core import Algorithm, Every
from gossamer.metrics import average_loss, best_decision, static_regret
from gossamer.problems import Problem
from gossamer.streams import Stream

LEARNERS, DIM = 16, 10
TWO_DECADES = (128, 256, 512, 1024, 2048, 4096, 8192, 12_800)
BALL = problems.Linear(DIM, feature_bound=1.0, domain=sets.L2Ball(1.0))
LOGISTIC = problems.Logistic(DIM, feature_bound=1.0, domain=sets.L2Ball(10.0))
STRONGLY_CONVEX = problems.Logistic(DIM, l2=0.1, feature_bound=1.0, domain=sets.L2Ball(10.0))

WRONG_STEPS = {"constant": Rate(1.0, power=0.0), "1/t": Rate(1.0, power=1.0)}


def ring(learners: int = LEARNERS) -> topology.Topology:
    return topology.ring(learners, weights="lazy")


def signs(seed: int) -> Stream:
    """Independent random signs: no algorithm can do better than T^-1/2, and none does worse."""
    return streams.random_signs(LEARNERS, DIM, seed=seed)


def mirrored(hold: int) -> Callable[[int], Stream]:
    """Random signs that are taken back later: only the right schedule of steps gives T^-1/2."""
    return lambda seed: streams.mirrored(signs(seed), hold=hold)


def smooth_cycle(seed: int) -> Stream:
    return streams.smooth_cycle_logistic(LEARNERS, DIM, seed=seed)


def slope(
    algorithm: Algorithm, data: Callable[[int], Stream], at: Sequence[int] = TWO_DECADES, seeds: int = 8
) -> float:
    """The exponent of T in the average regret, fitted over `at`, regret averaged over streams."""
    regrets = [curve(algorithm, algorithm.problem, data(seed), at) for seed in range(seeds)]
    return float(np.polyfit(np.log(at), np.log(np.mean(regrets, axis=0)), 1)[0])


def curve(algorithm: Algorithm, problem: Problem, stream: Stream, at: Sequence[int]) -> np.ndarray:
    run = simulate(algorithm, stream, at[-1], seed=0, every=1, progress=False)
    return static_regret(run, problem, stream, at=at).mean(axis=-1)


def final_regret(algorithm: Algorithm, stream: Stream, steps: int, best: float) -> float:
    run = simulate(algorithm, stream, steps, seed=0, progress=False)
    return float(average_loss(run)[-1].mean()) - best


def cycle_of_64(spread: float, steps: int = 10_000) -> str:
    """The best of each grid on a cycle of 64: plain gossip against accelerated gossip in small coupled blocks."""
    stream = streams.smooth_cycle_logistic(64, DIM, seed=0, spread=spread)
    best = best_decision(LOGISTIC, stream, steps, tolerance=1e-6).loss
    plain, lazy = topology.ring(64), ring(64)
    ogd = {c: algorithms.d_ogd(LOGISTIC, plain, step=Rate(c)) for c in (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)}
    ftgl = {
        (block, weight): algorithms.ad_ftgl(LOGISTIC, lazy, steps_per_exchange=block, regularization=weight)
        for block in (2, 4, 8)
        for weight in (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
    }
    regret = {key: final_regret(algorithm, stream, steps, best) for key, algorithm in (ogd | ftgl).items()}
    c, setting = min(ogd, key=regret.__getitem__), min(ftgl, key=regret.__getitem__)
    four = min((key for key in ftgl if key[0] == 4), key=regret.__getitem__)
    return (
        f"spread {spread:g}: d_ogd {regret[c]:.5f} (step {c}/sqrt t), ad_ftgl {regret[setting]:.5f} "
        f"(block {setting[0]}, weight {setting[1]}): {regret[c] / regret[setting]:.1f}x lower; "
        f"with block 4 {regret[four]:.5f}: {regret[c] / regret[four]:.1f}x"
    )


def blocks(algorithm: Algorithm) -> int:
    assert isinstance(algorithm.schedule, Every)
    return algorithm.schedule.block


def main() -> None:
    say = Console(highlight=False).print
    d_ogd, ad_ftgl = algorithms.d_ogd(BALL, ring()), algorithms.ad_ftgl(BALL, ring())
    say(f"Fitted exponent of T over {TWO_DECADES[0]} to {TWO_DECADES[-1]:,}, ring of {LEARNERS}, lazy weights:")
    say(f"  random signs            d_ogd {slope(d_ogd, signs):.3f}   ad_ftgl {slope(ad_ftgl, signs):.3f}")
    later = mirrored(2 * blocks(ad_ftgl))
    say(f"  mirrored random signs   d_ogd {slope(d_ogd, mirrored(1)):.3f}   ad_ftgl {slope(ad_ftgl, later):.3f}")
    for name, rate in WRONG_STEPS.items():
        wrong = slope(algorithms.d_ogd(BALL, ring(), step=rate), mirrored(1))
        say(f"  mirrored, wrong step    d_ogd with a step of {name}: {wrong:.3f}")
    plain = slope(algorithms.d_ogd(LOGISTIC, ring(), step=Rate(1.0)), smooth_cycle, seeds=2)
    fast = slope(algorithms.ad_ftgl(LOGISTIC, ring(), regularization=0.2), smooth_cycle, seeds=2)
    say(f"  logistic, smooth cycle  d_ogd, step 1/sqrt t: {plain:.3f}   ad_ftgl, regularization 0.2: {fast:.3f}")
    plain = slope(algorithms.d_ogd(STRONGLY_CONVEX, ring(), step=Rate(10.0, power=1.0)), smooth_cycle, seeds=2)
    fast = slope(algorithms.ad_ftgl(STRONGLY_CONVEX, ring(), strong_convexity=0.1), smooth_cycle, seeds=2)
    say(f"  the same with l2 = 0.1  d_ogd, step 10/t: {plain:.3f}   ad_ftgl, alpha 0.1: {fast:.3f}")
    say("Cycle of 64, T = 10,000, logistic, mean average regret of the best setting of each grid:")
    for spread in (1.0, 3.0, 10.0):
        say("  " + cycle_of_64(spread))


if __name__ == "__main__":
    main()
