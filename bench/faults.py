"""Nodes on bad networks: `python -m bench.faults` prints what docs/network.md quotes.

First in memory: a tenth of all frames is lost, a tenth comes twice, all are late, and for 30 seconds the network is in
two parts. Then, where this machine allows it, over Zenoh between two network namespaces whose link goes down.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from bench.tools import print_table
from gossamer.net.node.correspondence import Pace
from gossamer.net.store.ledger import Ledger
from tests.networks import Faults
from tests.test_faults import CASES, FAR, LEARNERS, algorithm_of, releases, run

PARTITION = 30.0  # seconds
BEGINS = 10.0  # seconds after the start
PACE = Pace(deadline=1.0, period=0.25, retry=0.05)
EXCHANGES = 300
HEADINGS = ("algorithm", "missing", "given up", "sent again", "dropped", "off at most", "off at the end", "same spend")
SIDES = ("10.213.7.1", "10.213.7.2")
ALGORITHM = """
[problem]
kind = "logistic"
domain = {kind = "l2-ball", radius = 3.0}
[data]
generator = "heterogeneous-logistic"
dim = 5
alpha = 1.0
beta = 1.0
seed = 1
[topology]
kind = "ring"
[algorithm]
name = "pd_ogd"
budget = {epsilon = 50.0}
clip = 1.0
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            algorithm_of(case)
        with ThreadPoolExecutor(len(CASES)) as pool:
            rows = list(pool.map(lambda case: in_memory(case, Path(folder)), CASES))
    print_table(f"10 % loss, 10 % twice, delays, a partition of {PARTITION:g} s; {EXCHANGES} exchanges", HEADINGS, rows)
    if os.geteuid() or not shutil.which("ip"):
        print("Namespaces need root and `ip`: not tried.")
        return
    print_table(f"Zenoh between namespaces, link down for {PARTITION:g} s", ("node", *NAMESPACE_HEADINGS), namespaces())


def in_memory(case: str, folder: Path) -> list[str]:
    """One network with faults, and the same without."""
    algorithm = algorithm_of(case)
    clean = run(folder / f"{case} clean", algorithm, EXCHANGES)
    faults = Faults(loss=0.1, twice=0.1, delay=0.005, cut=_apart)
    ran = run(folder / f"{case} faulty", algorithm, EXCHANGES, faults, PACE)
    size = np.linalg.norm(clean.played(), axis=-1).max(axis=-1)[2:]
    off = np.linalg.norm(ran.played() - clean.played(), axis=-1).max(axis=-1)[2:] / size
    dropped = sum(sum(ran.dropped(i).values()) for i in range(LEARNERS))
    counts = [f"{ran.total(name):,}" for name in ("missing", "void", "resent")]
    same = "yes" if releases(ran) == releases(clean) else "NO"
    return [case, *counts, f"{dropped:,}", f"{off.max():.1%}", f"{off[-1]:.1%}", same]


def _apart(sender: int, receiver: int, seconds: float) -> bool:
    return BEGINS < seconds < BEGINS + PARTITION and (sender in FAR[0]) != (receiver in FAR[0])


NAMESPACE_HEADINGS = ("exchanges", "before", "while apart", "missing, logged", "last of them", "status")


def namespaces() -> list[list[str]]:
    """Nodes 0 and 1 on one side, 2 and 3 on the other, on a ring: two of its four links are cut."""
    names = [f"gossamer-{os.getpid()}-{side}" for side in (0, 1)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            _connect(names)
            return _through_a_partition(Path(folder), names)
        finally:
            for name in names:
                subprocess.run(["ip", "netns", "delete", name], check=False)


def _connect(names: list[str]) -> None:
    for name in names:
        _ip("netns", "add", name)
    _ip("-n", names[0], "link", "add", "way", "type", "veth", "peer", "name", "way", "netns", names[1])
    for name, address in zip(names, SIDES, strict=True):
        _ip("-n", name, "address", "add", f"{address}/24", "dev", "way")
        for link in ("lo", "way"):
            _ip("-n", name, "link", "set", link, "up")


def _through_a_partition(folder: Path, names: list[str]) -> list[list[str]]:
    (folder / "a.toml").write_text(ALGORITHM)
    hosts = [SIDES[0], SIDES[0], SIDES[1], SIDES[1]]
    options = [f"--host={host}" for host in hosts] + ["--deadline=1", "--period=0.25", "--http-port=0", "--nodes=4"]
    init = ["network", "init", str(folder / "net"), f"--algorithm={folder / 'a.toml'}", *options]
    subprocess.run([sys.executable, "-m", "gossamer", *init], check=True, stdout=subprocess.DEVNULL)
    nodes = [folder / f"net/node-{i}" for i in range(4)]
    started = [_start(node, names[i // 2], folder) for i, node in enumerate(nodes)]
    _reach(nodes, 20)
    before = [_exchanges(node) for node in nodes]
    _ip("-n", names[0], "link", "set", "way", "down")
    time.sleep(PARTITION)
    after = [_exchanges(node) for node in nodes]
    _ip("-n", names[0], "link", "set", "way", "up")
    _reach(nodes, max(after) + 50)
    for process in started:
        process.send_signal(signal.SIGTERM)
    codes = [process.wait(10) for process in started]
    rows = []
    for i, node in enumerate(nodes):
        missing = {int(found) for found in re.findall(r'"missing".*"exchange": (\d+)', _log(node))}
        cells = [_exchanges(node), before[i], after[i] - before[i], len(missing), max(missing, default=0), codes[i]]
        rows.append([str(i), *(f"{cell:,}" for cell in cells)])
    return rows


def _start(node: Path, namespace: str, folder: Path) -> subprocess.Popen[bytes]:
    words = ["ip", "netns", "exec", namespace, sys.executable, "-m", "gossamer", "node", str(node)]
    with (node / "node.log").open("wb") as log:
        return subprocess.Popen(words, stderr=log, env={**os.environ, "XDG_STATE_HOME": str(folder / "state")})


def _reach(nodes: list[Path], exchanges: int) -> None:
    """Wait until all nodes have made so many exchanges."""
    end = time.monotonic() + 120.0
    while min(map(_exchanges, nodes)) < exchanges:
        if time.monotonic() > end:
            raise TimeoutError(f"the nodes did not reach exchange {exchanges}")
        time.sleep(0.5)


def _exchanges(node: Path) -> int:
    with Ledger.open(node / "ledger.db", read_only=True) as ledger:
        return ledger.last.exchange + 1


def _log(node: Path) -> str:
    return (node / "node.log").read_text()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


if __name__ == "__main__":
    main()
