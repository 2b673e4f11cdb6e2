"""Algorithm 1 of paper 003 in plain NumPy and float64, written from the paper's text alone, against `simulate`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gossamer import problems, sets, simulate, topology
from gossamer.algorithms import ldp_endless
from gossamer.core import Rate
from tests.instances import QUIET, Given

pytestmark = pytest.mark.unoptimized

M, N, T = 5, 6, 60
RADIUS, REGULARISATION = 0.5, 0.05
SIGMA = np.array([0.2, 0.3, 0.1, 0.4, 0.25])
VARSIGMA = np.array([0.1 + 0.01 * i for i in range(1, M + 1)])


def gradient(theta, a, b):
    """Of section VII-A's loss (1 - b) a' theta - log s(a' theta) + (r / 2) |theta|^2, s the sigmoid."""
    s = 1 / (1 + math.exp(-a @ theta))
    return (1 - b) * a - (1 - s) * a + REGULARISATION * theta


def algorithm_1(samples, labels, zeta, step, coupling):
    """Lines 1 to 9 from theta_0 = 0: all theta_t, t = 0 ... T, and all y_t, t = 0 ... T - 1, of every learner.

    zeta_t^i are Laplace draws of scale 1 and become those of Assumption 4: of scale sigma_i / sqrt(2) (t+1)^varsigma_i.
    """
    (lambda_0, v), (gamma_0, u) = step, coupling
    w = np.zeros((M, M))
    for i in range(M):
        w[i, (i + 1) % M] = w[i, (i - 1) % M] = 0.3
    theta, sent = [np.zeros((M, N))], []
    for t in range(T):
        y = np.array([theta[t][i] + SIGMA[i] / math.sqrt(2) * (t + 1) ** VARSIGMA[i] * zeta[t, i] for i in range(M)])
        following = np.zeros((M, N))
        for i in range(M):
            d = sum(gradient(theta[t][i], samples[k, i], labels[k, i]) for k in range(t + 1)) / (t + 1)
            gamma, rate = gamma_0 / (t + 1) ** u, lambda_0 / (t + 1) ** v
            hat = theta[t][i] + sum(gamma * w[i, j] * (y[j] - theta[t][i]) for j in range(M) if j != i) - rate * d
            following[i] = hat * min(1, RADIUS / np.linalg.norm(hat))  # Pro_Theta
        theta.append(following)
        sent.append(y)
    return np.array(theta), np.array(sent)


class Injected:
    """Those draws, times the scales that the library asks for."""

    def __init__(self, zeta):
        self.zeta = zeta

    def draw(self, name, spec, scales, start, stop):
        drawn = np.moveaxis(self.zeta[start:stop], 0, 1)
        return (np.array([scale.value for scale in scales])[:, None, None] * drawn).astype(np.float32)


@pytest.mark.parametrize("noise", [0.0, 1.0], ids=["without noise", "with the same draws"])
@pytest.mark.parametrize(("step", "coupling"), [((1.0, 0.77), (1.0, 0.65)), ((6.0, 0.9), (0.3, 0.75))])
def test_simulate_is_algorithm_1_as_printed(noise, step, coupling):
    rng = np.random.default_rng(11)
    samples = rng.normal(size=(T, M, N)).astype(np.float32)
    labels = rng.integers(0, 2, size=(T, M)).astype(np.int32)
    zeta = noise * rng.laplace(size=(T + 1, M, N))
    made = ldp_endless(
        problems.Logistic(N, feature_bound=10.0, l2=REGULARISATION, domain=sets.L2Ball(RADIUS)),
        topology.ring(M, weights=0.4 * np.eye(M) + 0.3 * (np.roll(np.eye(M), 1, 0) + np.roll(np.eye(M), -1, 0))),
        sigma=SIGMA.tolist(),
        growth=VARSIGMA.tolist(),
        clip=10.0,
        horizon=T,
        step=Rate(*step),
        coupling=Rate(*coupling),
        start="noised",
        publish="raw",
    )
    kept = ["messages", "decisions"]
    run = simulate(made, Given(samples, labels), T, record=kept, noise=lambda seed: Injected(zeta), **QUIET)
    theta, sent = algorithm_1(samples.astype(float), labels, zeta, step, coupling)
    assert_allclose(run.transcript["messages"][:T], sent, rtol=0, atol=1e-6)
    assert_allclose(run.transcript["decisions"][1:], theta[:T], rtol=0, atol=1e-6)
    assert_allclose(run.decisions, theta[T], rtol=0, atol=1e-6)
    assert np.linalg.norm(theta, axis=-1).max() > 0.99 * RADIUS  # it moved as far as it may, and was projected
