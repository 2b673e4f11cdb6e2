"""A node whose page is attacked: `python -m bench.page` prints what docs/watch.md quotes. A minute and a half.

Three nodes exchange ten times a second. Then a thousand clients of the first one's page dribble, eight send the largest
bodies that it takes again and again, a hundred connect and leave every second, and somebody looks at the page.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

from bench.tools import print_table
from gossamer.net.web.server import Limits

ROOT = Path(__file__).parent.parent
PORT, PAGE = 17_800, 18_800
PERIOD, QUIET, ATTACKED = 0.1, 20.0, 40.0  # seconds
FEATURES = 30  # of the example
DESCRIPTORS = 1024  # of each node
DRIBBLING, BODIES, STRANGERS = 1001, 8, 100  # the last: a second


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, most))
        nodes = started(Path(folder) / "net")
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8 * DESCRIPTORS), most))
        try:
            until = time.monotonic() + 120
            while status().get("state") != "running":
                assert time.monotonic() < until, "the nodes did not start"
                time.sleep(0.5)
            time.sleep(5)
            measured = [("nobody else", *watched(nodes[0].pid, QUIET))]
            attack = multiprocessing.get_context("spawn").Process(target=attacked, args=(ATTACKED + 5,))
            attack.start()
            time.sleep(5)
            measured.append(("the attack", *watched(nodes[0].pid, ATTACKED)))
            attack.join()
        finally:
            for node in nodes:
                node.send_signal(signal.SIGTERM)
            for node in nodes:
                node.wait(30)
    rates = [float(row[1]) for row in measured]
    headings = ("page visited by", "exchanges a second", "memory, MB at most", "page answers in ms: median", "slowest")
    print_table(f"A page under attack: {rates[1] / rates[0]:.2f} of the rate", headings, measured)


def started(folder: Path) -> list[subprocess.Popen[bytes]]:
    """Three nodes on this machine, with pages."""
    given = ["--algorithm", str(ROOT / "examples" / "private-ring.toml"), "--nodes", "3", "--period", str(PERIOD)]
    ports = ["--port", str(PORT), "--http-port", str(PAGE)]
    gossamer = [sys.executable, "-W", "ignore", "-m", "gossamer"]
    subprocess.run([*gossamer, "network", "try", str(folder), *given, *ports], check=True, stdout=subprocess.DEVNULL)
    return [
        subprocess.Popen([*gossamer, "node", str(folder / f"node-{number}")], stderr=subprocess.DEVNULL)
        for number in range(3)
    ]


def status() -> dict[str, object]:
    with suppress(OSError, ValueError), urlopen(f"http://127.0.0.1:{PAGE}/status", timeout=10) as answer:
        return dict(json.load(answer))
    return {}


def watched(pid: int, seconds: float) -> tuple[str, str, str, str]:
    """Exchanges a second, the most memory, and how long the page takes."""
    times: list[float] = []
    first, begun, most = exchanges(), time.monotonic(), 0.0
    while time.monotonic() - begun < seconds:
        asked = time.monotonic()
        assert status(), "the page did not answer"
        times.append(1000 * (time.monotonic() - asked))
        most = max(most, memory(pid))
        time.sleep(0.5)
    rate = (exchanges() - first) / (time.monotonic() - begun)
    return f"{rate:.2f}", f"{most:.0f}", f"{statistics.median(times):.0f}", f"{max(times):.0f}"


def exchanges() -> float:
    counts = status()["counts"]
    assert isinstance(counts, dict)
    return float(counts["exchanges"])


def memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def attacked(seconds: float) -> None:
    """All of it, from another process."""
    until = time.monotonic() + seconds
    row = b"[" + b",".join([b"0"] * FEATURES) + b"]"
    body = b'{"x": [' + b",".join([row] * (Limits().body // (len(row) + 1) - 1)) + b"]}"
    post = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1:{PAGE}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    threads = [threading.Thread(target=again, args=(until, lambda: sent(post))) for _ in range(BODIES)]
    threads += [threading.Thread(target=again, args=(until, left, 1 / STRANGERS))]
    threads += [threading.Thread(target=dribble, args=(until,))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def again(until: float, what: Callable[[], None], pause: float = 0.0) -> None:
    while time.monotonic() < until:
        with suppress(OSError):
            what()
        time.sleep(pause)


def sent(request: bytes) -> None:
    with socket.create_connection(("127.0.0.1", PAGE), timeout=20) as connection:
        connection.sendall(request)
        connection.recv(1)


def left() -> None:
    socket.create_connection(("127.0.0.1", PAGE), timeout=5).close()


def dribble(until: float) -> None:
    """A byte of each every second or so; who is thrown out comes back."""
    clients: list[socket.socket] = []
    while time.monotonic() < until:
        while len(clients) < DRIBBLING:
            with suppress(OSError):
                clients.append(socket.create_connection(("127.0.0.1", PAGE), timeout=5))
        kept = []
        for client in clients:
            try:
                client.send(b"G")
                kept.append(client)
            except OSError:
                client.close()
        clients = kept
        time.sleep(1)
    for client in clients:
        client.close()


if __name__ == "__main__":
    main()
