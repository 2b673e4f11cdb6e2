"""What runs on an accelerator: `python -m bench.benchmarks gpu --out FILE`, about five minutes.

It needs JAX, NumPy, SciPy and NetworkX only (`PYTHONPATH=src:.`). The file is written after every row: a row that fails
is written as such, and one that ends the process leaves those before it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench import many, workloads
from bench.benchmarks import machine
from bench.benchmarks.sizes import Play, Ring, simulated
from bench.tools import seconds
from gossamer import Budget, algorithms, problems, sets, topology
from gossamer.core import Federation

Json = dict[str, Any]
Row = tuple[Json, dict[str, Callable[[], Play]]]
"""What a row says of itself, with the line of `make bench` that it is beside; and its versions."""

RINGS = ((16, 100), (1_000, 100), (10_000, 100), (100_000, 100), (1_000_000, 100), (10_000_000, 20))
ROUNDS = {16: 2**18, 1_000: 2**18, 10_000: 2**17, 100_000: 2**14, 1_000_000: 2**12, 10_000_000: 2**12}
"""A few seconds each: every other number of rounds would compile again."""
CROWD, DIM = 100_000, 100
REPEATS, LIMIT = 3, 330.0
PASSES = 5
"""A round of gossip reads and writes decisions, reads and writes what was heard, and reads samples."""


def rows(crowd: int = CROWD, rings: tuple[tuple[int, int], ...] = RINGS) -> Iterator[Row]:
    """From small to large, so that what does not fit comes last."""
    yield (
        {"row": "20 learners and a server", "beside": "federated-logreg"},
        {"gossamer": lambda: whole(workloads.federated_logreg())},
    )
    yield (
        {"row": "pd_ftgl, letter size", "beside": "pd_ftgl, letter size"},
        {"gossamer": lambda: whole(workloads.private_letter_size())},
    )
    yield (
        {"row": "ad_ftgl, letter size", "beside": "ad_ftgl, letter size"},
        {"gossamer": lambda: whole(workloads.letter_size())},
    )
    for learners, dim in rings[:4]:
        yield ring(learners, dim)
    yield {"row": "pd_ftgl, random regular", "learners": crowd, "dim": DIM}, {"gossamer": lambda: regular(crowd)}
    yield {"row": "online_federated, 1 % take part", "learners": crowd, "dim": DIM}, {"gossamer": lambda: server(crowd)}
    for learners, dim in rings[4:]:
        yield ring(learners, dim)


def ring(learners: int, dim: int) -> Row:
    """`pd_ogd` by `simulate`, and the prototype."""
    each = Ring(learners, dim)
    about = {"row": "gossip", "learners": learners, "dim": dim, "bytes a round": PASSES * 4 * learners * dim}
    rounds = ROUNDS[learners]
    return about, {
        "prototype": lambda: fixed(each.prototype(), rounds),
        "gossamer": lambda: fixed(each.gossamer(), rounds),
    }


def fixed(play: Play, rounds: int) -> Play:
    """So many rounds, however many are asked for."""

    def played(_: int) -> object:
        return play(rounds)

    played.rounds = rounds  # type: ignore[attr-defined]
    return played


def whole(workload: workloads.Workload) -> Play:
    """A run of fixed length, however many rounds are asked for."""
    return fixed(lambda _: workload.gossamer(), workload.rounds)


def regular(learners: int) -> Play:
    """`pd_ftgl` in blocks of 16 on a random graph of degree 4."""
    graph = topology.random_regular(learners, 4, seed=0)
    problem, horizon = problems.Logistic(DIM, domain=sets.L2Ball(10.0)), 2**20
    algorithm = algorithms.pd_ftgl(
        problem, graph, horizon=horizon, budget=Budget(1.0), clip=1.0, steps_per_exchange=16, aggregation="independent"
    )
    return fixed(simulated(algorithm, Ring(learners, DIM)), 2**13)


def server(learners: int) -> Play:
    """`online_federated` with 4 local steps, where one client in a hundred takes part in a round."""
    algorithm = algorithms.online_federated(
        problems.Logistic(DIM),
        Federation(learners, participation=0.01),
        horizon=2**20,
        steps_per_exchange=4,
        budget=Budget(2.0, 1e-3),
        clip=1.0,
        step=0.01,
        aggregation="independent",
    )
    return fixed(simulated(algorithm, Ring(learners, DIM), 4), 2**10)


def copied(size: int) -> Json:
    """Bytes a second, read and written, of a copy on the device."""
    values = jnp.zeros(size // 4, jnp.float32)
    negate = jax.jit(jnp.negative)
    jax.block_until_ready(negate(values))
    taken = [seconds(lambda: jax.block_until_ready(negate(values))) for _ in range(10)]
    return {"row": "copy", "bytes a second": 2 * size / float(np.median(taken))}


def settings(steps: int) -> Json:
    """Four algorithms with five budgets and five seeds each, in four programs."""
    return {"row": "settings"} | many.measure(steps)


def measured(make: Callable[[], Play]) -> Json:
    """The times of one version, or why there are none."""
    try:
        play = make()
        play(0)
        return {"rounds": play.rounds, "seconds": [seconds(lambda: play(0)) for _ in range(REPEATS)]}
    except Exception as error:  # the other rows go on
        return {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]}


def main(out: Path, *, small: bool = False) -> None:
    """All rows, into a file; `small` is for trying it where there is no accelerator."""
    begun, kind = time.perf_counter(), jax.devices()[0]
    copy_size = 2**28 if small else 2**32
    found: Json = {"machine": machine.about() | {"device": kind.device_kind, "platform": kind.platform}, "rows": []}
    found["rows"] += [copied(copy_size), settings(100 if small else 10_000)]
    chosen = rows(5_000, RINGS[:2]) if small else rows()
    for about, versions in chosen:
        row = dict(about)
        for name, make in versions.items():
            late = time.perf_counter() - begun > LIMIT
            row[name] = {"failed": "not run: no time left"} if late else measured(make)
            print(row["row"], row.get("learners", ""), name, rate(row[name]), flush=True)
        found["rows"].append(row)
        found["seconds in all"] = round(time.perf_counter() - begun)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(found, indent=1) + "\n")


def rate(row: Json) -> str:
    """For whoever watches."""
    return row.get("failed") or f"{row['rounds'] / float(np.median(row['seconds'])):,.0f} rounds/s"
