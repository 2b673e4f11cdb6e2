"""Flower: a ClientApp with the NumPy round of `common`, FedAvg on the server, and Flower's own simulation (Ray).

Noise that is correlated over rounds lives in the client's `Context.state`, the place that Flower has for it.
`LocalDpMod` is not used: it noises a model once a round, ties its sensitivity to no clip and composes nothing.
"""

from __future__ import annotations

import logging
import os
import time

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}

import numpy as np
from common import Noise, Play, Played, Setting, files, local_steps, samples, serve
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

logging.disable(logging.WARNING)
client, server = ClientApp(), ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """The local steps of one learner on its samples of this round."""
    config, learner = message.content["config"], int(context.node_config["partition-id"])
    setting, place = Setting.read(str(config["setting"])), int(config["server-round"]) - 1
    x, y = (np.load(path, mmap_mode="r")[place, :, learner] for path in files(setting))
    (model,) = message.content["arrays"].to_numpy_ndarrays()
    noise = None
    if config["seed"] >= 0:
        kept = context.state["noise"].to_numpy_ndarrays()[0] if place and setting.rates else None
        rng = np.random.default_rng([config["seed"], learner, place])
        noise = Noise(setting, rng, None if kept is None else kept.copy())
    local, loss = local_steps(model, x, y, setting, noise)
    if noise is not None and setting.rates:
        context.state["noise"] = ArrayRecord([noise.buffers])
    metrics = MetricRecord({"loss": loss, "num-examples": len(x)})
    return Message(content=RecordDict({"arrays": ArrayRecord([local]), "metrics": metrics}), reply_to=message)


def prepare(setting: Setting, grid: Grid) -> Play:
    """Samples in files that the clients map into memory."""
    for path, values in zip(files(setting), samples(setting, max(setting.rounds, 20)), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, values)

    def play(rounds: int, seed: int | None) -> Played:
        config = ConfigRecord({"setting": setting.text(), "seed": -1 if seed is None else seed})
        strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=setting.learners)
        start = ArrayRecord([np.zeros(setting.dim, np.float32)])
        begun = time.perf_counter()
        result = strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds, train_config=config)
        taken = time.perf_counter() - begun
        return Played(taken, np.array([metrics["loss"] for metrics in result.train_metrics_clientapp.values()]))

    return play


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Answer the driver from where the server runs."""
    serve(lambda setting: prepare(setting, grid), ("flwr", "ray", "numpy"))


if __name__ == "__main__":
    import sys

    learners = Setting.read(sys.argv[1]).learners
    run_simulation(server, client, learners, backend_config={"client_resources": {"num_cpus": 1}})
