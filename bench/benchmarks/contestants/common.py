"""What all contestants share: settings, samples, noise in plain NumPy, and the way they talk to the driver.

A contestant is a script that its own virtual environment runs, so this file needs NumPy and nothing else. The driver
gives it the settings of one workload as JSON. It answers with one line of JSON when it is ready, and with one more for
every seed that it reads.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

CHECKED = 10
"""So many rounds are played without noise, and their losses are compared."""


@dataclass(frozen=True)
class Setting:
    """One workload.

    Attributes:
        workload: "gossip-logreg", "federated-logreg" or "federated-logreg correlated".
        rounds: how many are timed.
        learners: n.
        dim: d.
        local_steps: samples, and gradient steps, of a learner in a round.
        step: of gradient descent; divided by the square root of the round's number where learners gossip.
        clip: of a sample's gradient, in the Euclidean norm; None: no clip.
        scale: Laplace's b where learners gossip, else the Gaussian's standard deviation.
        rates: of correlated noise: how fast each buffer forgets.
        weights: of correlated noise: how much of each buffer is taken away.
    """

    workload: str
    rounds: int
    learners: int
    dim: int
    local_steps: int
    step: float
    clip: float | None
    scale: float
    rates: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    def text(self) -> str:
        """As the driver hands it over."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Setting:
        """From what the driver hands over."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Played:
    """What came of some rounds: seconds from the first to the last, and the mean loss of each round."""

    seconds: float
    losses: np.ndarray


Play = Callable[[int, int | None], Played]
"""Play so many rounds, with this seed of the noise; None: without noise."""


def samples(setting: Setting, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for every contestant: x (round, local step, learner, feature), y (round, local step, learner)."""
    rng = np.random.default_rng(1)
    shape = rounds, setting.local_steps, setting.learners
    x = rng.standard_normal((*shape, setting.dim), dtype=np.float32) / np.float32(np.sqrt(setting.dim))
    return x, (x[..., 0] > 0).astype(np.float32)


def files(setting: Setting) -> tuple[Path, Path]:
    """Where the samples lie that processes share."""
    base = Path(__file__).parents[3] / ".benchmarks" / "samples" / f"{setting.workload.replace(' ', '-')}"
    return base.with_suffix(".x.npy"), base.with_suffix(".y.npy")


class Noise:
    """Gaussian rows of one learner, fresh or correlated: y = z - weights . S, then S = (1 - rates) S + y."""

    def __init__(self, setting: Setting, rng: np.random.Generator, buffers: np.ndarray | None = None) -> None:
        self._rng, self._scale, self._dim = rng, np.float32(setting.scale), setting.dim
        self._rates = np.array(setting.rates, np.float32)[:, None]
        self._weights = np.array(setting.weights, np.float32)
        self.buffers = np.zeros((len(setting.rates), setting.dim), np.float32) if buffers is None else buffers

    def row(self) -> np.ndarray:
        """The noise of one local step."""
        drawn = self._scale * self._rng.standard_normal(self._dim, dtype=np.float32)
        if len(self._weights):
            drawn -= self._weights @ self.buffers
            self.buffers += drawn - self._rates * self.buffers
        return drawn


def local_steps(
    model: np.ndarray, x: np.ndarray, y: np.ndarray, setting: Setting, noise: Noise | None
) -> tuple[np.ndarray, float]:
    """One learner's round in NumPy: its model after the local steps, and the mean loss of the model it began with.

    Axes: x (local step, feature), y (local step,).
    """
    scores = x @ model
    loss = float(np.mean(np.logaddexp(0, scores) - y * scores))
    local = model.copy()
    for k in range(len(x)):
        slope = 1 / (1 + np.exp(-(x[k] @ local))) - y[k]
        norm = abs(slope) * np.linalg.norm(x[k])
        gradient = slope * min(1.0, (setting.clip or np.inf) / max(norm, 1e-30)) * x[k]
        local -= setting.step * (gradient if noise is None else gradient + noise.row())
    return local, loss


def serve(prepare: Callable[[Setting], Play], packages: tuple[str, ...]) -> None:
    """Say what is played without noise, then play and say how long it took whenever the driver asks."""
    setting = Setting.read(sys.argv[1])
    play = prepare(setting)
    say(versions={name: version(name) for name in packages}, losses=play(CHECKED, None).losses.tolist())
    for line in sys.stdin:
        played = play(setting.rounds, int(line))
        tail = played.losses[-max(1, setting.rounds // 10) :]
        say(seconds=played.seconds, loss=float(np.mean(tail)))


def say(**what: Any) -> None:
    """One line to the driver."""
    print("@" + json.dumps(what), flush=True)
