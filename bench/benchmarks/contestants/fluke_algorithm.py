"""fluke: clients with the NumPy round of `common`, its FedAvg server, its channel.

Its own gossip (`GossipDFL`) sends a model to one random neighbour, client after client; averaging with both neighbours
in every round is written here on its base classes. Noise, and the buffers of correlated noise, are the user's part:
`DPFedAVG` (Opacus) noises mini-batches with fresh noise.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import networkx as nx
import numpy as np
import torch
from common import Noise, Play, Played, Setting, local_steps, samples, serve

try:
    import torchvision  # noqa: F401
except RuntimeError:  # its wheel for GPUs beside a PyTorch for CPUs: fluke imports it, and nothing here uses it
    for missing in ("nms", "qnms"):
        torch.library.define(f"torchvision::{missing}", "(Tensor dets, Tensor scores, float limit) -> Tensor")
    for name in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[name]

from fluke import FlukeENV
from fluke.algorithms import CentralizedFL
from fluke.algorithms.decentralized import DecentralizedFL, Topology
from fluke.algorithms.decentralized.client import AbstractDFLClient
from fluke.client import Client
from fluke.comm import Message
from fluke.server import Server

NOTHING: dict[str, Any] = {"train_set": None, "test_set": None, "optimizer_cfg": None, "loss_fn": None}


def linear(dim: int) -> torch.nn.Module:
    """Logistic regression that starts at zero."""
    model = torch.nn.Linear(dim, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    return model


class Learner(Client):
    """Takes its local steps on its samples of the round; its noise lives as long as it does."""

    def __init__(self, index: int, x: np.ndarray, y: np.ndarray, setting: Setting, seed: int | None) -> None:
        super().__init__(index=index, **NOTHING)
        self._x, self._y, self._setting, self._round, self.losses = x, y, setting, 0, []
        rng = np.random.default_rng([seed or 0, index])
        self._noise = None if seed is None else Noise(setting, rng)

    def fit(self, override_local_epochs: int = 0) -> float:
        """The local steps, on the weights where they lie."""
        weights = self.model.weight.detach().numpy()[0]
        local, loss = local_steps(weights, self._x[self._round], self._y[self._round], self._setting, self._noise)
        weights[:] = local
        self._round += 1
        self.losses.append(loss)
        return loss


class Gossiper(AbstractDFLClient):
    """Speaks its noised decision to its neighbours and itself, then averages what it heard."""

    def __init__(
        self, index: int, neighbours: list[int], x: np.ndarray, y: np.ndarray, setting: Setting, seed: int | None
    ) -> None:
        super().__init__(index=index, model=None, neighbours=neighbours, **NOTHING)
        self._x, self._y, self._setting, self.losses = x, y, setting, []
        self._scale, self._rng = None if seed is None else setting.scale, np.random.default_rng([seed or 0, index])
        self._played = self._heard = np.zeros(setting.dim, np.float32)

    def local_update(self, round: int) -> None:
        """A gradient step from what was heard; the result is noised, played and sent."""
        x, y = self._x[round - 1, 0], self._y[round - 1, 0]
        score = x @ self._played
        self.losses.append(float(np.logaddexp(0, score) - y * score))
        slope = 1 / (1 + np.exp(-score)) - y
        self._played = self._heard - np.float32(self._setting.step / round**0.5) * slope * x
        if self._scale is not None:
            self._played = (self._played + self._rng.laplace(scale=self._scale, size=len(x))).astype(np.float32)
        self.channel.broadcast(
            Message(self._played, "model", self.index, inmemory=True), [self.index, *self.neighbours]
        )

    def receive_model(self) -> None:
        """The mean of what it and its neighbours said."""
        heard = [message.payload for message in self.channel.receive_all(self.index, "model")]
        self._heard = np.mean(heard, axis=0)


class Averaging(DecentralizedFL):
    """Rounds in which everybody speaks, and then everybody listens."""

    def run(self, n_rounds: int) -> None:
        """The rounds."""
        for number in range(1, n_rounds + 1):
            self.notify(event="start_round", round=number, global_model=None)
            for client in self.clients:
                client.local_update(number)
            for client in self.clients:
                client.receive_model()
            self.notify(event="end_round", round=number)
            self.rounds += 1


def prepare(setting: Setting) -> Play:
    """Samples in memory, by learner, before the clock starts."""
    x, y = (values.swapaxes(0, 2).swapaxes(1, 2).copy() for values in samples(setting, setting.rounds))
    torch.set_num_threads(1)
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)

    def gossip(rounds: int, seed: int | None) -> list[Gossiper]:
        ring = Topology(nx.cycle_graph(setting.learners))
        clients = [Gossiper(i, ring[i], x[i], y[i], setting, seed) for i in range(setting.learners)]
        Averaging(setting.learners, None, {}, topology=ring, clients=clients).run(rounds)
        return clients

    def federate(rounds: int, seed: int | None) -> list[Learner]:
        clients = [Learner(i, x[i], y[i], setting, seed) for i in range(setting.learners)]
        server = Server(linear(setting.dim), None, clients)
        CentralizedFL(setting.learners, None, {}, clients=clients, server=server).run(rounds, eligible_perc=1.0)
        return clients

    def play(rounds: int, seed: int | None) -> Played:
        begun = time.perf_counter()
        clients = (gossip if setting.workload == "gossip-logreg" else federate)(rounds, seed)
        return Played(time.perf_counter() - begun, np.mean([client.losses for client in clients], axis=0)[:rounds])

    return play


serve(prepare, ("fluke-fl", "torch", "numpy"))
