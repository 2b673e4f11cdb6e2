"""Algorithms 1 to 5 of paper 004 from its text alone, in plain NumPy and double precision, against `simulate`.

With the paper's constants, without noise and with the same draws. Where the paper leaves something open, and only
there, the loop does what the library does; each place says so.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gossamer import Budget, problems, sets, simulate
from gossamer.algorithms import fed_ope_stoch, fed_svt
from tests.instances import Given

pytestmark = pytest.mark.unoptimized

ALPHA = 1.0


class Draws:
    """Draws of unit scale that the loop gets too."""

    def __init__(self, **unit):
        self.unit = unit

    def draw(self, name, spec, scales, start, stop):
        return (scales[0].value * self.unit[name.rsplit("/", 1)[-1]][:, start:stop]).astype(np.float32)


# -- Fed-DP-OPE-Stoch --------------------------------------------------------------------------------------------------


def fed_dp_ope_stoch(grad, shape, trees, epsilon, first, client_draws, server_draws):
    """Algorithms 1 to 3: what is played at every step; for every leaf what clients send, and the expert that is named.

    Args:
        grad: the gradients of client i's losses at a point, of these steps, axes (step, expert).
        shape: steps, clients, experts.
        trees: T_1.
        epsilon: of the noise.
        first: the first step of the samples of every leaf's new vertex. The paper draws them uniformly, without
            replacement; losses of a phase are exchangeable, so any set that nothing else uses will do.
        client_draws: Lap(1) for every client, leaf and expert.
        server_draws: Lap(1) for every leaf and expert.
    """
    steps, m, d = shape
    x = np.full(d, 1 / d)  # z, arbitrary
    played, sent, named = np.tile(x, (steps, 1)), [], []
    waiting = 0
    for p in range(2, steps.bit_length() + 1):
        waiting += 2 ** (p - 2)
        b = int(2 ** (p - 1) / (p - 1) ** 2)
        b -= b % 2**trees  # 2^-|s| b samples are a whole number
        if b and b * sum(1 + j / 2 for j in range(1, trees + 1)) <= waiting:  # else the phase is too short: x stays
            waiting, k = 0, 1
            for j in range(1, trees + 1):
                points, v = {}, {}
                for s in depth_first(j):
                    parent = s[:-1]
                    if s.endswith("0"):
                        points[s], v[s] = points[parent], v[parent]
                    else:
                        rows = np.arange(b >> len(s)) + first[len(named)]
                        points[s] = x  # the current point, which Algorithm 3 does not say
                        v[s] = np.array([grad(x, i, rows).mean(axis=0) for i in range(m)])
                        if s:
                            before = [grad(points[parent], i, rows).mean(axis=0) for i in range(m)]
                            v[s] = v[parent] + v[s] - before  # (3)
                    if len(s) == j:
                        scale = 4 * ALPHA * 2**j / (b * epsilon)
                        sent.append(v[s] + scale * client_draws[:, len(named)])
                        w = np.argmin(sent[-1].mean(axis=0) - scale / m * server_draws[len(named)])  # (1)
                        eta = 2 / (k + 1)
                        x = (1 - eta) * x + eta * np.eye(d)[w]  # (2)
                        named.append(w)
                        k += 1
        played[2 ** (p - 1) - 1 : 2**p - 1] = x
    return played, sent, named


def depth_first(depth, s=""):
    """The vertices of a binary tree."""
    yield s
    if len(s) < depth:
        yield from depth_first(depth, s + "0")
        yield from depth_first(depth, s + "1")


def squares(shape):
    """Least squares on the simplex with gradients in [-1, 1]."""
    rng = np.random.default_rng(2)
    x = rng.uniform(-0.5, 0.5, shape).astype(np.float32)
    y = (x @ np.linspace(0, 0.5, shape[-1]) + 0.1 * rng.uniform(-1, 1, shape[:2])).astype(np.float32)
    doubled = x.astype(np.float64), y.astype(np.float64)

    def grad(w, i, rows):
        return 2 * (doubled[0][rows, i] @ w - doubled[1][rows, i])[:, None] * doubled[0][rows, i]

    return problems.LeastSquares(shape[-1], domain=sets.Simplex()), Given(x, y), grad


@pytest.mark.parametrize("trust", ["local", "central"])
@pytest.mark.parametrize("noise", [0, 1])
def test_fed_dp_ope_stoch(noise, trust):
    m, d, trees, steps, epsilon = 3, 5, 2, 2**9 - 1, 200.0
    problem, stream, grad = squares((steps, m, d))
    options = {"lipschitz": ALPHA, "smoothness": 1.0, "trees": trees, "calibration": "published"}
    made = fed_ope_stoch(problem, m, horizon=steps, budget=Budget(epsilon), trust=trust, **options)
    blocks = np.array([run.block for run in made.schedule.segments(steps) for _ in range(run.exchanges)])
    first, leaves = np.cumsum(blocks) - blocks, len(blocks)
    by, rng = (noise, 0) if trust == "local" else (0, noise), np.random.default_rng(7)
    draws = Draws(gradient=by[0] * rng.laplace(size=(m, leaves, d)), choice=by[1] * rng.laplace(size=(1, leaves, d)))
    record = ["broadcasts", "decisions", "messages"]
    run = simulate(made, stream, steps, seed=0, noise=lambda seed: draws, record=record, progress=False)
    played, sent, named = fed_dp_ope_stoch(
        grad, (steps, m, d), trees, epsilon, first, draws.unit["gradient"], draws.unit["choice"][0]
    )
    assert_array_equal(run.transcript["broadcasts"], named)
    assert len(set(named)) > 2
    assert_allclose(run.transcript["messages"], sent, atol=1e-3)  # gradients are rounded to 2^-12 of their range
    for ends in (first, first + blocks - 1):
        assert_allclose(run.transcript["decisions"], np.repeat(played[ends, None], m, axis=1), atol=5e-7)
    assert_allclose(run.decisions, np.tile(played[-1], (m, 1)), atol=5e-7)


# -- Fed-SVT -----------------------------------------------------------------------------------------------------------


def paper_constants(d, phases, rho, epsilon, delta):
    """Theorem D.1: kappa, eta, and L without m L*; T / N is the number of phases."""
    kappa = math.ceil(3 * math.ceil(math.log2(d)) + 24 * math.log(1 / rho))
    eta = epsilon / math.sqrt(kappa * math.log(1 / delta)) if delta else epsilon / (2 * kappa)
    return kappa, eta, 8 * math.log(2 * phases**2 / rho) / epsilon + 4 / eta


def svt(losses, n, best, rho, epsilon, delta, unit):
    """Algorithms 4 and 5: the expert of every step; steps count from 0, losses have axes (step, client, expert).

    Line 9 compares with the noisy threshold that lines 2 and 14 draw, and line 12 adds up the losses of x.
    """
    steps, m, d = losses.shape
    kappa, eta, more = paper_constants(d, steps // n, rho, epsilon, delta)
    limit = m * best + more
    query, threshold, gumbel = (unit[name][0] for name in ("query", "threshold", "choice"))
    expert = int(np.argmax(gumbel[0]))  # uniform
    k, tau, noisy, played = 0, 0, None, []
    for t in range(steps):
        if t and t % n == 0 and k < kappa:
            r = t // n
            if noisy is None:
                noisy = limit + 4 / epsilon * threshold[r]
            q = sum(losses[u, :, played[u]].sum() for u in range(tau, t))
            if q + 8 / epsilon * query[r] > noisy:
                scores = np.maximum(losses[:t].sum(axis=(0, 1)), m * best)
                expert = int(np.argmax(-eta * scores / 2 + gumbel[r]))
                k, tau, noisy = k + 1, t, None
        played.append(expert)
    return played, k, kappa


@pytest.mark.parametrize(
    ("budget", "best", "noise", "all_used"),
    [
        (Budget(20.0), 0.0, 0, False),
        (Budget(20.0), 0.0, 1, False),
        (Budget(20.0), 15.0, 1, False),
        (Budget(10.0, 1e-5), 0.0, 1, False),
        (Budget(2000.0), 0.0, 1, True),
    ],
    ids=["no noise", "pure", "L* = 15", "approximate", "all changes used"],
)
def test_fed_svt(budget, best, noise, all_used):
    d, m, n, phases, rho = 6, 3, 4, 60, 0.4
    losses = np.random.default_rng(1).integers(0, 65, (n * phases, m, d)) / 64
    options = {"steps_per_exchange": n, "optimal_loss": best, "failure": rho, "calibration": "published"}
    made = fed_svt(d, m, horizon=n * phases, budget=budget, **options)
    rng, exchanges = np.random.default_rng(5), phases + 1
    draws = Draws(
        query=noise * rng.laplace(size=(1, exchanges)),
        threshold=noise * rng.laplace(size=(1, exchanges)),
        choice=noise * rng.gumbel(size=(1, exchanges, d)),
    )
    stream = Given(losses.astype(np.float32), np.zeros(losses.shape[:2], np.float32))
    run = simulate(made, stream, n * phases, seed=0, noise=lambda seed: draws, record=["decisions"], progress=False)
    played, changes, most = svt(losses, n, best, rho, budget.epsilon, budget.delta, draws.unit)
    assert_array_equal(run.transcript["decisions"][1:].argmax(axis=-1), np.repeat([played[::n]], m, axis=0).T)
    assert 2 < changes <= most
    assert (changes == most) == all_used
