"""The plain NumPy loops that the simulator is measured against: one readable round after the other.

They are vectorised over learners, as a careful user would write them, draw their noise with NumPy's own samplers, and
do the same arithmetic as `noisy_ogd` and `noisy_federated`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[np.float32]


def gossip_logreg(x: Floats, y: Floats, weights: Floats, step: float, scale: float, rng: np.random.Generator) -> Floats:
    """Noisy decentralised gradient descent on logistic losses: one sample per learner and round.

    Axes: x (round, learner, feature), y (round, learner), weights (learner, learner). Returns each round's losses.
    """
    rounds, learners, dim = x.shape
    noised = np.zeros((learners, dim), np.float32)
    heard = np.zeros((learners, dim), np.float32)
    losses = np.empty((rounds, learners), np.float32)
    for t in range(rounds):
        scores = np.einsum("nd,nd->n", x[t], noised)
        losses[t] = np.logaddexp(0, scores) - y[t] * scores
        slopes = expit(scores) - y[t]
        decisions = heard - (step / np.sqrt(t + 1)) * slopes[:, None] * x[t]
        noised = (decisions + scale * rng.laplace(size=(learners, dim))).astype(np.float32)
        heard = weights @ noised
    return losses


def federated_logreg(x: Floats, y: Floats, step: float, scale: float, rng: np.random.Generator) -> Floats:
    """Federated averaging on logistic losses with Gaussian noise on every local step.

    Axes: x (round, local step, learner, feature), y (round, local step, learner). Returns each round's losses.
    """
    rounds, local_steps, learners, dim = x.shape
    model = np.zeros(dim, np.float32)
    losses = np.empty((rounds, learners), np.float32)
    for r in range(rounds):
        scores = x[r] @ model
        losses[r] = np.mean(np.logaddexp(0, scores) - y[r] * scores, axis=0)
        local = np.tile(model, (learners, 1))
        for k in range(local_steps):
            slopes = expit(np.einsum("nd,nd->n", x[r, k], local)) - y[r, k]
            noise = rng.standard_normal((learners, dim), dtype=np.float32)
            local -= step * (slopes[:, None] * x[r, k] + scale * noise)
        model = model - np.mean(model - local, axis=0)
    return losses
