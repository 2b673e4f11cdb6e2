"""The plain NumPy loops that the simulator is measured against: one readable round after the other.

They are vectorised over learners, as a careful user would write them, draw their noise with NumPy's own samplers, and
do the same arithmetic as `noisy_ogd`, `pd_ogd`, `online_federated`, `pd_ftgl`, `dpsda_c` and `dpsda_ps`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft
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


def pd_ogd(
    x: Floats, y: Floats, rounds: int, step: float, clip: float, scale: float, rng: np.random.Generator
) -> Floats:
    """Private gradient descent on a ring, logistic losses: a random one of its own records per learner and round.

    Axes: x (learner, record, feature), y (learner, record). Returns each round's losses.
    """
    learners, records, dim = x.shape
    own, decisions = np.arange(learners), np.zeros((learners, dim), np.float32)
    losses = np.empty((rounds, learners), np.float32)
    for t in range(rounds):
        drawn = rng.integers(records, size=learners)
        features, labels = x[own, drawn], y[own, drawn]
        scores = np.einsum("nd,nd->n", features, decisions)
        losses[t] = np.logaddexp(0, scores) - labels * scores
        slopes = expit(scores) - labels
        slopes *= np.minimum(1, clip / np.maximum(np.abs(slopes) * np.linalg.norm(features, axis=1), 1e-30))
        gradients = slopes[:, None] * features + rng.laplace(scale=scale, size=(learners, dim)).astype(np.float32)
        mixed = (decisions + np.roll(decisions, 1, axis=0) + np.roll(decisions, -1, axis=0)) / np.float32(3)
        decisions = mixed - np.float32(step / np.sqrt(t + 1)) * gradients
    return losses


def federated_logreg(x: Floats, y: Floats, step: float, clip: float, noise: Iterator[Floats]) -> Floats:
    """Federated averaging on logistic losses with clipped gradients and noise on every local step.

    Axes: x (round, local step, learner, feature), y (round, local step, learner); `noise` gives (learner, feature) for
    one step after the other. Returns each round's losses.
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
            norms = np.abs(slopes) * np.linalg.norm(x[r, k], axis=1)
            slopes *= np.minimum(1, clip / np.maximum(norms, 1e-30))
            local -= step * (slopes[:, None] * x[r, k] + next(noise))
        model = model - np.mean(model - local, axis=0)
    return losses


def independent_noise(learners: int, dim: int, scale: float, rng: np.random.Generator) -> Iterator[Floats]:
    """Fresh Gaussian rows, (learner, feature), made when they are needed."""
    while True:
        yield np.float32(scale) * rng.standard_normal((learners, dim), dtype=np.float32)


def correlated_noise(rows: int, learners: int, dim: int, scale: float, rng: np.random.Generator) -> Iterator[Floats]:
    """Rows of the same shape whose prefix sums have little noise, all made at once, learner by learner."""
    noise = np.empty((rows, learners, dim), np.float32)
    for learner in range(learners):
        draws = np.float32(scale) * rng.standard_normal((dim, rows), dtype=np.float32)
        noise[:, learner] = correlate(draws).T
    return iter(noise)


def correlate(draws: Floats) -> Floats:
    """C^-1 z for the Toeplitz square root C of prefix sums, axes (feature, row): a convolution, by FFT."""
    rows = draws.shape[1]
    length = fft.next_fast_len(2 * rows, real=True)
    inverse = np.concatenate([[1.0], np.cumprod(1 - 3 / (2 * np.arange(1, rows)))]).astype(np.float32)
    spectrum = fft.rfft(draws, length) * fft.rfft(inverse, length)
    return np.asarray(fft.irfft(spectrum, length)[:, :rows])


class Letter(NamedTuple):
    """What `pd_ftgl` needs beside samples: P and theta of gossip, L, 2h, clip, the radius of the trace-norm ball."""

    mixing: Floats
    theta: float
    block: int
    weight: float
    clip: float
    radius: float


def pd_ftgl(
    x: Floats, y: NDArray[np.int32], classes: int, setting: Letter, noise: Callable[[], Floats]
) -> tuple[Floats, Floats]:
    """PD-FTGL, noise before coupled gossip, tree sums: softmax losses, one sample per learner and round.

    Axes: x (round, learner, feature), y (round, learner); `noise` draws (learner, class, feature). Returns the mean
    loss of every learner's decision on all learners' samples in each round, and the last decisions.
    """
    rounds, learners, features = x.shape
    shape, own = (learners, classes, features), np.arange(learners)
    decisions, gradients, sums, released = (np.zeros(shape, np.float32) for _ in range(4))
    now, before = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    nodes: list[Floats] = [np.zeros(shape, np.float32) for _ in range(rounds.bit_length())]
    losses = np.empty((rounds, learners), np.float32)
    leaf = 0
    for t in range(rounds):
        scores = x[t] @ decisions.transpose(0, 2, 1)  # (learner whose decision, learner whose sample, class)
        scores -= scores.max(axis=2, keepdims=True)
        powers = np.exp(scores)
        totals = powers.sum(axis=2)
        losses[t] = np.mean(np.log(totals) - scores[:, own, y[t]], axis=1)
        slopes = powers[own, own] / totals[own, own, None]
        slopes[own, y[t]] -= 1
        norms = np.linalg.norm(slopes, axis=1) * np.linalg.norm(x[t], axis=1)
        slopes *= np.minimum(1, setting.clip / np.maximum(norms, 1e-30))[:, None]
        gradients += slopes[:, :, None] * x[t][:, None, :]
        mixed = np.tensordot(setting.mixing, now, axes=1)
        now, before = (1 + setting.theta) * mixed - setting.theta * before, now
        if (t + 1) % setting.block == 0:
            leaf += 1
            nodes[(leaf & -leaf).bit_length() - 1] = noise()
            sums += gradients
            noisy = sums + sum(node for level, node in enumerate(nodes) if leaf >> level & 1)
            decisions = project_on_trace_norm_ball(-now / setting.weight, setting.radius)
            now, before = now + (noisy - released), before + (noisy - released)
            released, gradients = noisy, np.zeros(shape, np.float32)
    return losses, decisions


def project_on_trace_norm_ball(matrices: Floats, radius: float) -> Floats:
    """Each matrix of a stack by its own singular values, projected on the l1 ball."""
    left, values, right = np.linalg.svd(matrices, full_matrices=False)
    surplus = (np.cumsum(values, axis=1) - radius) / np.arange(1, values.shape[1] + 1)
    kept = (values > surplus).sum(axis=1)
    threshold = np.maximum(0, np.take_along_axis(surplus, kept[:, None] - 1, axis=1))
    return np.asarray((left * np.maximum(values - threshold, 0)[:, None, :]) @ right, np.float32)


class Link(NamedTuple):
    """A loss of the score, and its slope: functions of scores and labels."""

    loss: Callable[[Floats, Floats], Floats]
    slope: Callable[[Floats, Floats], Floats]


SQUARE = Link(lambda scores, y: (scores - y) ** 2, lambda scores, y: 2 * (scores - y))
LOGISTIC = Link(lambda scores, y: np.logaddexp(0, scores) - y * scores, lambda scores, y: expit(scores) - y)


class Lists(NamedTuple):
    """Neighbour lists: whom each node hears (node, place), and the weights (node, 1 + place), its own first."""

    speakers: NDArray[np.int64]
    weights: Floats

    def gather(self, values: Floats, out: Floats) -> None:
        """The weighted sum of what each node hears, place by place."""
        np.multiply(self.weights[:, :1], values, out=out)
        for place in range(self.speakers.shape[1]):
            heard = values[self.speakers[:, place]]
            heard *= self.weights[:, place + 1 : place + 2]
            out += heard


class Dual(NamedTuple):
    """What `dpsda` needs beside samples.

    Attributes:
        mixing: the weights of round 1, 2, ..., again and again: dense matrices, neighbour lists or sparse matrices.
        nodes: n, which divides the number of coordinates: each has as many, one after the other.
        push: whether masses are mixed too.
        steps: alpha of every round.
        clip: of a sample's gradient on the coordinates of a node.
        box: its half side.
        link: the loss.
    """

    mixing: Sequence[Any]
    nodes: int
    push: bool
    steps: Floats
    clip: float
    box: float
    link: Link


def dpsda(x: Floats, y: Floats, setting: Dual, noise: Iterator[Floats]) -> Floats:
    """DPSDA-C or DPSDA-PS from noised duals with exact own coordinates, on batches that all nodes see.

    Axes: x (round, row, feature), y (round, row); `noise` gives (node, own coordinate), round by round. Returns the
    mean loss of the joint decision on each round's batch.
    """
    rounds, batch, dim = x.shape
    nodes, box = setting.nodes, np.float32(setting.box)
    duals, spare, decisions = (np.zeros((nodes, dim), np.float32) for _ in range(3))
    sums, masses = np.zeros((nodes, dim // nodes), np.float32), np.ones(nodes, np.float32)
    mine, other, played = _own(duals), _own(spare), _own(decisions)
    blocks = x.reshape(rounds, batch, nodes, dim // nodes).transpose(0, 2, 1, 3)  # (round, node, row, own coordinate)
    lengths = np.sqrt(np.einsum("tnbw,tnbw->tnb", blocks, blocks))
    losses = np.empty((rounds, batch), np.float32)
    for t in range(rounds):
        losses[t] = setting.link.loss(x[t] @ played.ravel(), y[t])
        slopes = setting.link.slope(decisions @ x[t].T, y[t])  # (node, row)
        slopes *= np.minimum(1, setting.clip / np.maximum(np.abs(slopes) * lengths[t], 1e-30))
        added = slopes * blocks[t, :, 0] if batch == 1 else np.matmul(slopes[:, None], blocks[t])[:, 0]
        added *= nodes
        added += next(noise)
        sums += added
        mine += added
        step = -setting.steps[t]
        np.multiply(duals, (step / masses)[:, None] if setting.push else step, out=decisions)
        np.multiply(sums, step / nodes, out=played)
        np.clip(decisions, -box, box, out=decisions)
        mixing = setting.mixing[t % len(setting.mixing)]
        if isinstance(mixing, np.ndarray | Lists):
            np.matmul(mixing, duals, out=spare) if isinstance(mixing, np.ndarray) else mixing.gather(duals, spare)
            duals, spare, mine, other = spare, duals, other, mine
        else:
            duals = mixing @ duals
            mine = _own(duals)
        if setting.push:
            masses = mixing @ masses
    return losses.mean(axis=1)


def _own(values: Floats) -> Floats:
    """Each node's own coordinates, (node, own coordinate): a view, which may be written to."""
    nodes = len(values)
    return np.einsum("nnw->nw", values.reshape(nodes, nodes, -1))


def laplace_noise(rows: int, learners: int, dim: int, scale: float, rng: np.random.Generator) -> Iterator[Floats]:
    """Fresh Laplace rows, (learner, feature), many at a time: small draws cost mostly the call."""
    for low in range(0, rows, 512):
        yield from rng.laplace(scale=scale, size=(min(512, rows - low), learners, dim)).astype(np.float32)
