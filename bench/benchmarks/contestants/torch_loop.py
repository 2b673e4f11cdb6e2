"""PyTorch by hand: tensors over all learners, gradients in closed form, noise drawn many rounds at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from common import Play, Played, Setting, samples, serve

CHUNK = 512


def prepare(setting: Setting) -> Play:
    """Samples in tensors before the clock starts."""
    x, y = map(torch.from_numpy, samples(setting, setting.rounds))
    torch.set_num_threads(1)  # tensors are small: more threads only wait for each other
    gossip = setting.workload == "gossip-logreg"

    def play(rounds: int, seed: int | None) -> Played:
        torch.manual_seed(seed or 0)
        begun = time.perf_counter()
        with torch.inference_mode():
            losses = (gossiped if gossip else federated)(x, y, setting, rounds, seed is not None)
        return Played(time.perf_counter() - begun, losses.mean(dim=1).numpy())

    return play


def gossiped(x: torch.Tensor, y: torch.Tensor, setting: Setting, rounds: int, noisy: bool) -> torch.Tensor:
    """Noisy decentralised gradient descent on a ring."""
    learners = setting.learners
    eye = torch.eye(learners)
    weights = (eye + eye.roll(1, 0) + eye.roll(-1, 0)) / 3
    played, heard = torch.zeros(learners, setting.dim), torch.zeros(learners, setting.dim)
    losses, law = torch.empty(rounds, learners), torch.distributions.Laplace(0.0, setting.scale)
    for t in range(rounds):
        if t % CHUNK == 0:
            noise = law.sample((CHUNK, learners, setting.dim)) if noisy else torch.zeros(CHUNK, learners, setting.dim)
        now, labels = x[t, 0], y[t, 0]
        scores = torch.linalg.vecdot(now, played)
        losses[t] = torch.nn.functional.softplus(scores) - labels * scores
        slopes = torch.sigmoid(scores) - labels
        played = torch.addcmul(heard, slopes[:, None], now, value=-setting.step / (t + 1) ** 0.5) + noise[t % CHUNK]
        heard = weights @ played
    return losses


def federated(x: torch.Tensor, y: torch.Tensor, setting: Setting, rounds: int, noisy: bool) -> torch.Tensor:
    """Federated averaging with clipped gradients and noise on every local step."""
    model, losses = torch.zeros(setting.dim), torch.empty(rounds, setting.learners)
    lengths, rows = torch.linalg.vector_norm(x, dim=3), noise_rows(setting, noisy)
    for r in range(rounds):
        scores = x[r] @ model
        losses[r] = (torch.nn.functional.softplus(scores) - y[r] * scores).mean(dim=0)
        local = model.expand(setting.learners, setting.dim)
        for k in range(setting.local_steps):
            slopes = torch.sigmoid(torch.linalg.vecdot(x[r, k], local)) - y[r, k]
            slopes = slopes * (setting.clip / (slopes.abs() * lengths[r, k]).clamp_min(1e-30)).clamp_max(1.0)
            local = local - setting.step * torch.addcmul(next(rows), slopes[:, None], x[r, k])
        model = local.mean(dim=0)
    return losses


def noise_rows(setting: Setting, noisy: bool) -> Iterator[torch.Tensor]:
    """Rows (learner, feature), fresh or correlated."""
    shape, scale = (setting.learners, setting.dim), setting.scale if noisy else 0.0
    rates = torch.tensor(setting.rates).reshape(-1, 1, 1)
    weights, buffers = torch.tensor(setting.weights), torch.zeros(len(setting.rates), *shape)
    while True:
        for row in scale * torch.randn(CHUNK, *shape):
            if len(weights):
                row = row - torch.tensordot(weights, buffers, dims=1)  # noqa: PLW2901
                buffers = torch.addcmul(buffers, rates, buffers, value=-1) + row
            yield row


serve(prepare, ("torch", "numpy"))
