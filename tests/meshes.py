"""Runs over several devices and processes, each in a process that starts JAX with them; `test_mesh.py` judges.

python -m tests.meshes devices FOLDER                 eight fake devices: every case, with and without a mesh
python -m tests.meshes process FOLDER WHAT PORT RANK  one of two processes with two devices each
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from gossamer import Budget, Run, algorithms, problems, sets, simulate, streams, topology
from gossamer.core import Algorithm, Federation
from gossamer.errors import GossamerError
from gossamer.privacy import FastNoise
from gossamer.problems import Block
from gossamer.simulation import spread, watch
from gossamer.simulation.mesh import spread_over
from gossamer.streams import Stream
from tests import instances

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

DIM, SEEDS = 5, [0, 1]
PROBLEM = problems.Logistic(DIM, feature_bound=1.0, domain=sets.L2Ball(3.0))
RECORD = ["decisions", "messages"]
OPTIMIZED = 2
"""So many cases are compiled as users compile them; for the others LLVM optimises nothing: half the time."""
Case = tuple[Algorithm, Stream, int, dict[str, Any]]


def pd_ogd(graph: Any, **options: Any) -> Algorithm:
    return algorithms.pd_ogd(PROBLEM, graph, budget=Budget(1.0), clip=1.0, **({"step": 0.1} | options))


def pd_ftgl(graph: Any) -> Algorithm:
    return algorithms.pd_ftgl(PROBLEM, graph, **algorithms.REGISTRY["pd_ftgl"].example)


def dealt(learners: int) -> Stream:
    """Records, shuffled and played again and again."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2 * learners, DIM))
    return streams.from_arrays(x, (x[:, 0] > 0).astype(int), learners, seed=3, passes=50)


def generated(learners: int) -> Stream:
    return streams.smooth_cycle_logistic(learners, DIM, seed=1)


def federated(name: str, network: Any) -> Algorithm:
    entry = algorithms.REGISTRY[name]
    return entry.make(PROBLEM, network, **entry.example)


IN_PROGRAM: dict[str, Any] = {"noise": partial(FastNoise, compiled=True)}
LOCAL: dict[str, Any] = {"measure": "local"}
HELD_OUT: dict[str, Any] = {"test": Block(np.eye(DIM), np.ones(DIM, int)), "every": 4}

GOSSIP: dict[str, Callable[[], Case]] = {
    "pd_ogd, ring, lists, records": lambda: (pd_ogd(topology.ring(512)), dealt(512), 12, IN_PROGRAM | LOCAL),
    "d_ogd, torus, lists": lambda: (
        algorithms.d_ogd(PROBLEM, topology.torus(16, 16), step=0.1), generated(256), 12, IN_PROGRAM | LOCAL
    ),
    "pd_ogd, random regular, lists, the host draws": lambda: (
        pd_ogd(topology.random_regular(256, 3, seed=1)), generated(256), 12, HELD_OUT | LOCAL
    ),
    "d_ogd, directed exponential, matrix, the host reads": lambda: (
        algorithms.d_ogd(PROBLEM, topology.directed_exponential(16, weights="uniform"), step=0.1),
        instances.stream(16), 12, LOCAL,
    ),
    "pd_ftgl, ring, matrix": lambda: (pd_ftgl(topology.ring(16)), generated(16), 14, IN_PROGRAM | LOCAL),
    "pd_ftgl, torus, lists, losses of a sample": lambda: (pd_ftgl(topology.torus(48, 44)), dealt(2112), 14, IN_PROGRAM),
    "d_ogd, matchings, lists that change": lambda: (
        algorithms.d_ogd(PROBLEM, topology.random_matching(256, seed=1), step=0.1), generated(256), 12, LOCAL
    ),
}  # fmt: skip
SERVED: dict[str, Callable[[], Case]] = {
    "online_federated": lambda: (
        federated("online_federated", Federation(64, participation=0.5, seed=1)),
        generated(64),
        24,
        IN_PROGRAM,
    ),
    "dp_ftrl": lambda: (federated("dp_ftrl", 64), dealt(64), 24, {}),
}
REFUSED: dict[str, Callable[[], Any]] = {
    "does not divide": lambda: run_ring(20, mesh=8),
    "more than there are": lambda: run_ring(32, mesh=16),
    "no such axis": lambda: run_ring(32, mesh=jax.make_mesh((8,), ("devices",))),
    "two axes": lambda: run_ring(32, mesh=jax.make_mesh((4, 2), ("learners", "rest"))),
    "no mesh": lambda: run_ring(32, mesh="8"),
    "no device": lambda: run_ring(32, mesh=0),
    "debug": lambda: run_ring(32, mesh=8, debug=True),
}


def run_ring(learners: int = 64, steps: int = 20, step: float = 0.1, **options: Any) -> Run:
    return simulate(pd_ogd(topology.ring(learners), step=step), generated(learners), steps, seeds=SEEDS, **options)


def apart(one: Run, other: Run) -> dict[str, float]:
    """The largest difference of every array of two runs, relative to its largest number (or to 1e-6)."""
    arrays = {name: (getattr(one, name), getattr(other, name)) for name in ("losses", "consensus", "decisions")}
    arrays |= {name: (one.transcript[name], other.transcript[name]) for name in one.transcript}
    if one.test_losses is not None:
        arrays["test"] = (one.test_losses, other.test_losses)
    return {name: float(np.abs(a - b).max() / max(1e-6, np.abs(a).max())) for name, (a, b) in arrays.items()}


def compared(case: Callable[[], Case], mesh: Any) -> dict[str, float]:
    algorithm, stream, steps, options = case()
    runs = [simulate(algorithm, stream, steps, seeds=SEEDS, record=RECORD, mesh=m, **options) for m in (None, mesh)]
    return apart(*runs)


def resumed(folder: Path) -> dict[str, Any]:
    """A run that is begun on two devices and goes on on eight, and then on none."""
    file, found = folder / "resumed.checkpoint", {}
    options: dict[str, Any] = {"record": RECORD, "every": 3}
    for steps, mesh in ((7, 2), (13, 8), (20, None)):
        run = run_ring(steps=steps, mesh=mesh, checkpoint=file, **options)
        found[f"{steps} steps"] = apart(run_ring(steps=steps, **options), run)
    found["another program"] = refusal(lambda: run_ring(step=0.2, mesh=8, checkpoint=file))
    return found


def refusal(call: Callable[[], Any]) -> str:
    try:
        call()
    except GossamerError as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def devices(folder: Path) -> dict[str, Any]:
    gossip = {}
    for number, (name, case) in enumerate(GOSSIP.items()):
        jax.config.update("jax_disable_most_optimizations", number >= OPTIMIZED)
        gossip[name] = compared(case, 8)
    return {
        "gossip": gossip,
        "served": {name: compared(case, jax.make_mesh((8,), ("learners",))) for name, case in SERVED.items()},
        "resumed": resumed(folder),
        "refused": {name: refusal(call) for name, call in REFUSED.items()},
        "records": kept_records(),
        "a piece": shown_by_one(),
    }


def kept_records() -> dict[str, Any]:
    """How many records a device has of 1,280 that are dealt by label, and whether it plays what the host reads."""
    labels = np.repeat([0, 1, 2], [640, 384, 256])
    rows = np.arange(len(labels), dtype=np.float32)[:, None]
    stream, found = streams.from_arrays(rows, labels, 32, "by-label", seed=3, passes=3), {}
    feed = stream.on_device(problems.Softmax(1, 3), spread_over(8, 32).put_feed(shared=False))
    for step in (0, 50):
        played = feed.samples(feed.ahead(np.uint32(step), 2))
        found[f"step {step}"] = bool((np.asarray(played.x) == stream.read(step, step + 2).x).all())
    return found | {"records": [shard.data.shape[1] for shard in feed.own.x.addressable_shards]}


def shown_by_one() -> bool:
    """Whether putting down a piece of the states puts all of them together somewhere."""
    here = spread_over(8, 800)
    array = here.put(np.zeros((2, 800, 5), np.float32), 1)
    program = spread._shown_by_one.lower(array, np.int32(1), np.int32(1), 1, here.mesh).compile()
    return "all-gather" in program.as_text()


def process(folder: Path, what: str, port: str, rank: str) -> dict[str, Any]:
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        f"localhost:{port}", 2, int(rank), heartbeat_timeout_seconds=10, shutdown_timeout_seconds=5
    )
    mesh = Mesh(np.array(jax.devices()), ("learners",))
    if what == "lost":
        return lost(folder, mesh, int(rank), partial(os._exit, 9))
    found = agreed(folder, mesh, int(rank))
    (folder / f"process-agreed-{rank}.json").write_text(json.dumps(found))  # one of them does not come back
    watch.SILENT = 3.0
    return found | {"stopped": lost(folder, mesh, int(rank), stops)}


def agreed(folder: Path, mesh: Mesh, rank: int) -> dict[str, Any]:
    """Two processes: what they compute together, and what they refuse together."""
    algorithm, stream, steps, options = next(iter(GOSSIP.values()))()
    shared = folder / "two.checkpoint"
    run = partial(simulate, algorithm, stream, seeds=SEEDS, record=RECORD, every=3, **options)
    run(steps // 2, mesh=mesh, checkpoint=shared)
    together = run(steps, mesh=mesh, checkpoint=shared)
    here = spread_over(2, 64)
    return {
        "devices": [mesh.size, here.parts, here.several],
        "apart": apart(run(steps), together),
        "refused": {
            "step": refusal(lambda: run_ring(step=0.1 + rank, mesh=mesh)),
            "steps": refusal(lambda: run_ring(steps=10 + rank, mesh=mesh)),
            "one refuses": refusal(lambda: run_ring(steps=-rank or 5, mesh=mesh)),
            "checkpoint": refusal(lambda: run(steps, mesh=mesh, checkpoint=shared if rank else folder / "none")),
        },
    }


def lost(folder: Path, mesh: Mesh, rank: int, ends: Callable[[], Any]) -> dict[str, Any]:
    """The second process ends in the middle of a run."""
    algorithm, file = pd_ogd(topology.ring(64)), folder / "lost.checkpoint"
    stream = Dying(64, ends if rank else None)
    run = partial(simulate, algorithm, stream, seeds=SEEDS, chunk=1, every=3)
    run(9, mesh=mesh, checkpoint=file)
    begun = time.monotonic()
    return {"error": refusal(lambda: run(1000, mesh=mesh, checkpoint=file)), "seconds": time.monotonic() - begun}


def stops() -> None:
    """Silent, but with all connections open: only a sign of life that does not come tells."""
    os.kill(os.getpid(), signal.SIGSTOP)


class Dying(instances.Given):
    """The samples of `generated`, whose process ends in the middle of them."""

    def __init__(self, learners: int, ends: Callable[[], Any] | None = None) -> None:
        self.whole, self.ends = generated(learners), ends
        for name in ("learners", "length", "shared", "features", "occurrences", "description"):
            setattr(self, name, getattr(self.whole, name))

    def _read(self, start: int, stop: int) -> Block:
        if self.ends and stop > 30:
            self.ends()
        return self.whole.read(start, stop)


def main() -> None:
    mode, folder, *rest = sys.argv[1:]
    found = devices(Path(folder)) if mode == "devices" else process(Path(folder), *rest)
    name = "-".join([mode, *rest[:1], *rest[2:]])
    (Path(folder) / f"{name}.json").write_text(json.dumps(found))
    if mode == "process":
        os._exit(0)  # JAX would wait for the other process


if __name__ == "__main__":
    main()
