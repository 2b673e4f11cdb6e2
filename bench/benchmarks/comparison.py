"""The same three workloads in Gossamer, NumPy, PyTorch, Flower, pfl-research and fluke, in processes of their own.

Every contestant first plays a few rounds without noise, whose losses must be those of the NumPy loop. Then all play
with noise in turns, so that a slow minute of the machine hits all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import workloads
from bench.benchmarks.contestants.common import Setting
from bench.benchmarks.environments import ROOT, InstallError, python_of
from bench.tools import seconds

SCRIPTS = Path(__file__).parent / "contestants"
PATIENCE = 300
"""So many seconds a contestant has to say something; then it is stopped."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Contestant:
    """One way to run the workloads.

    Attributes:
        name: on the page.
        script: in `contestants/`.
        environment: in `.benchmarks/`; None: that of Gossamer.
        rounds: how many are timed where learners gossip, and where there is a server; None: as many as Gossamer.
        cannot: why it does not run where learners gossip.
        fresh: a new process for every repeat: idle processes of Ray are not quiet.
    """

    name: str
    script: str
    environment: str | None = None
    rounds: tuple[int | None, int | None] = (None, None)
    cannot: str | None = None
    fresh: bool = False


CONTESTANTS = (
    Contestant("Gossamer", "gossamer_run.py"),
    Contestant("NumPy loop", "numpy_loop.py"),
    Contestant("PyTorch loop", "torch_loop.py", "torch"),
    Contestant("pfl-research", "pfl_algorithm.py", "pfl", (None, 300), "no gossip: it has a server"),
    Contestant("fluke", "fluke_algorithm.py", "fluke", (1_000, 200)),
    Contestant("Flower", "flower_app.py", "flower", (None, 20), "no gossip: it has a server", fresh=True),
)
REFERENCE = "NumPy loop"
FRESH = 3
"""Repeats at most of a contestant that needs a new process for each."""


def settings(quick: bool = False) -> tuple[Setting, ...]:
    """The three workloads, as `bench/workloads.py` has them."""
    rounds = 500 if quick else 2_000
    gossip = Setting(
        "gossip-logreg",
        rounds * 10,
        workloads.GOSSIP_LEARNERS,
        workloads.GOSSIP_DIM,
        1,
        workloads.GOSSIP_STEP,
        None,
        workloads.GOSSIP_SCALE,
    )
    return gossip, *(federated(rounds, name) for name in ("independent", "blt"))


def federated(rounds: int, aggregation: Any) -> Setting:
    """Scale and factor of the noise are those that Gossamer calibrates."""
    algorithm = workloads.federated(rounds, aggregation)
    factor = getattr(algorithm.releases[0].mechanism, "factor", None)
    return Setting(
        "federated-logreg correlated" if factor else "federated-logreg",
        rounds,
        workloads.FEDERATED_LEARNERS,
        workloads.FEDERATED_DIM,
        workloads.LOCAL_STEPS,
        workloads.FEDERATED_STEP,
        workloads.FEDERATED_CLIP,
        algorithm.scales_of("gradient")[0].value,
        factor.rates if factor else (),
        factor.scales if factor else (),
    )


class Process:
    """A contestant that waits to be asked."""

    def __init__(self, contestant: Contestant, setting: Setting) -> None:
        python = python_of(contestant.environment) if contestant.environment else sys.executable
        paths = [str(SCRIPTS), *([] if contestant.environment else [str(ROOT), str(ROOT / "src")])]
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(python), str(SCRIPTS / contestant.script), setting.text()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            cwd=ROOT,
        )
        self.ready = self._answer()

    def play(self, seed: int) -> Json:
        """One repeat, with this seed of the noise."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seed}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Json:
        assert self._process.stdout is not None
        patience = threading.Timer(PATIENCE, self._process.kill)
        patience.start()
        try:
            for line in self._process.stdout:
                if line.startswith("@"):
                    return dict(json.loads(line[1:]))
        finally:
            patience.cancel()
        self._complaints.seek(0)
        lines = self._complaints.read().strip().splitlines()
        raise RuntimeError(lines[-1] if lines else "it ended without a word")

    def end(self) -> None:
        """No more repeats."""
        if self._process.returncode is None:
            self._process.communicate()
            self._complaints.close()


def compare(repeats: int, quick: bool = False) -> Json:
    """All workloads, by name."""
    found: Json = {}
    for setting in settings(quick):
        print(f"{setting.workload}: {repeats} repeats", flush=True)
        found[setting.workload] = compare_on(setting, repeats)
    return found


def compare_on(setting: Setting, repeats: int) -> Json:
    """One workload: a row for every contestant, and the noise alone."""
    rows: Json = {}
    processes: dict[str, Process] = {}
    for contestant in CONTESTANTS:
        rows[contestant.name] = row = start(contestant, own(contestant, setting), processes)
        row["checked"] = row.get("checked", [])
    algorithm, noise = noisy(setting), []
    for repeat in range(repeats):
        noise.append(seconds(lambda: workloads.noise_alone(algorithm, setting.rounds)))
        for contestant in CONTESTANTS:
            if contestant.name in processes and not (contestant.fresh and repeat >= FRESH):
                play(contestant, own(contestant, setting), rows[contestant.name], processes, repeat)
    for process in processes.values():
        process.end()
    reference = np.array(rows[REFERENCE]["checked"])
    for row in rows.values():
        checked = row.pop("checked")
        if "failed" not in row and "cannot" not in row:
            row["losses differ by"] = float(np.max(np.abs(np.array(checked) - reference)))
    return {"setting": json.loads(setting.text()), "rows": rows, "noise alone": noise}


def own(contestant: Contestant, setting: Setting) -> Setting:
    """With as many rounds as this contestant plays."""
    rounds = contestant.rounds[setting.workload != "gossip-logreg"]
    return setting if rounds is None else replace(setting, rounds=min(rounds, setting.rounds))


def start(contestant: Contestant, setting: Setting, processes: dict[str, Process]) -> Json:
    """The row of a contestant that is ready, or that cannot be."""
    if contestant.cannot and setting.workload == "gossip-logreg":
        return {"cannot": contestant.cannot}
    begun = time.perf_counter()
    try:
        process = Process(contestant, setting)
    except (InstallError, RuntimeError) as error:
        return {"failed": str(error)}
    processes[contestant.name] = process
    ready = process.ready
    print(f"  {contestant.name} is ready after {time.perf_counter() - begun:.0f} s", flush=True)
    return {
        "rounds": setting.rounds,
        "versions": ready["versions"],
        "checked": ready["losses"],
        "seconds": [],
        "loss": [],
    }


def play(contestant: Contestant, setting: Setting, row: Json, processes: dict[str, Process], repeat: int) -> None:
    """One repeat, into the row."""
    try:
        if contestant.fresh and repeat:
            processes[contestant.name] = Process(contestant, setting)
        played = processes[contestant.name].play(repeat)
    except RuntimeError as error:
        processes.pop(contestant.name)
        row["failed"] = str(error)
        return
    row["seconds"].append(played["seconds"])
    row["loss"].append(played["loss"])
    if contestant.fresh:
        processes[contestant.name].end()


def noisy(setting: Setting) -> Any:
    """The algorithm whose noise is drawn alone."""
    if setting.workload == "gossip-logreg":
        return workloads.noisy_ring()
    return workloads.federated(setting.rounds, "blt" if setting.rates else "independent")
