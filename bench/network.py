"""How fast learners can talk on this machine: `python -m bench.network` prints what docs/network.md quotes.

Zenoh alone, in processes that do nothing but send and receive: what a node can hope for at most. Then nodes, which also
draw noise, learn, write their ledgers to disk and mix. `--minutes 10` runs nodes for so long and prints their memory.
"""

from __future__ import annotations

import io
import multiprocessing as mp
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.tools import print_table
from gossamer import Budget, algorithms, problems, sets, topology
from gossamer.core import Algorithm
from gossamer.net import Board, Identity, Ledger, Node, config_digest, from_iterable, prepared
from gossamer.net.agreed import key_fingerprint
from gossamer.net.certificates import Authority, common_name
from gossamer.net.zenoh_link import Files, Link, ZenohTransport
from gossamer.privacy import SecureNoise

NETWORK = "be7c"
DIMENSION = 100_000
SECONDS = 10.0
RESEND = 0.2  # seconds after which a message counts as lost
HEADER = 8  # bytes that hold the number of the exchange
HEADINGS = ("what", "processes", "message", "TLS", "exchanges a second", "MB a second")

Job = Callable[[Link, int, float, Barrier], Any]
"""What one process does, with message size and seconds, and what it gives back."""


@dataclass(frozen=True)
class Rate:
    """What a run reached: exchanges a second, and the megabytes that all processes together received a second."""

    exchanges: float
    megabytes: float


def main(
    minutes: Annotated[float, typer.Option(help="Run sixteen nodes for so long instead, and print memory.")] = 0.0,
) -> None:
    if minutes:
        print_memory(minutes)
    else:
        print_speeds()


def print_speeds() -> None:
    """Zenoh alone, nodes, and noise alone, in one run."""
    rows = []
    for encrypted in (True, False):
        ring = zenoh_alone(16, 2, 400_000, SECONDS, encrypted=encrypted)
        stream = zenoh_stream(1_000_000, SECONDS, encrypted=encrypted)
        security = "yes" if encrypted else "no"
        rows.append(["Zenoh alone, ring in lock-step", "16", "400 KB", security, *cells(ring)])
        rows.append(["Zenoh alone, one way, no waiting", "2", "1 MB", security, *cells(stream)])
    rows.append(["Zenoh alone, ring in lock-step", "16", "800 KB", "yes", *cells(zenoh_alone(16, 2, 800_000, SECONDS))])
    for name, algorithm in (
        ("d_ogd", "d_ogd"),
        ("pd_ogd, Gaussian", "pd_ogd"),
        ("pd_ftgl, 32 gossip steps", "pd_ftgl"),
    ):
        rate, _ = nodes_at_work(16, algorithm, SECONDS)
        size = "400 KB" if algorithm != "pd_ftgl" else "800 KB"
        rows.append([f"nodes, {name}", "16", size, "yes", *cells(rate)])
    print_table("Ring on loop-back", HEADINGS, rows)
    print_table(
        "Noise alone", ("draws", "exchanges a second of 16 nodes on 2 cores"), [["Gaussian, 100,000", noise_alone()]]
    )


def print_memory(minutes: float) -> None:
    """Resident memory of sixteen nodes, ten times on the way."""
    rate, memory = nodes_at_work(16, "pd_ogd", 60 * minutes)
    rows = [[f"{minute:g}", f"{low:,.0f} to {high:,.0f}"] for minute, low, high in memory]
    print_table("Resident memory of 16 nodes, pd_ogd, 100,000 coordinates", ("minutes", "MB a node"), rows)
    print_table("Speed meanwhile", HEADINGS[-2:], [cells(rate)])


def example(name: str, nodes: int) -> Algorithm:
    """An algorithm as nodes run it."""
    problem, ring = problems.Linear(DIMENSION, domain=sets.L2Ball(1.0)), topology.ring(nodes, weights="lazy")
    if name == "d_ogd":
        return prepared(algorithms.d_ogd(problem, ring, step=0.1), allow_no_guarantee=True)
    options = {"budget": Budget(8.0, 1e-5), "clip": 1.0, "noise": "gaussian", "horizon": 10**7}
    if name == "pd_ogd":
        return prepared(algorithms.pd_ogd(problem, ring, **options))
    return prepared(algorithms.pd_ftgl(problem, ring, **options, block=32, aggregation="independent"))


def noise_alone() -> str:
    """Exchanges a second for which two cores draw the noise of sixteen nodes, by what one core draws."""
    algorithm = example("pd_ogd", 16)
    source, (name, spec) = SecureNoise(bytes(32), "bench", "bench"), *algorithm.learner.noise.items()
    scale = algorithm.scales_of(name)[:1]
    source.draw(name, spec, scale, 0, 10)
    begun = time.perf_counter()
    source.draw(name, spec, scale, 10, 60)
    return f"{2 * 50 / 16 / (time.perf_counter() - begun):,.1f}"


def nodes_at_work(nodes: int, name: str, seconds: float) -> tuple[Rate, list[tuple[float, float, float]]]:
    """Nodes on a ring in processes of their own, with ledgers on disk: speed, and memory (minute, least, most)."""
    peers = {i: frozenset({(i + 1) % nodes, (i - 1) % nodes}) for i in range(nodes)}
    with tempfile.TemporaryDirectory() as folder:
        work = partial(_node, name, nodes, Path(folder))
        results = _play(peers, work, 0, seconds, True)
    speeds = [speed for speed, _, _ in results]
    sent = sum(megabytes for _, megabytes, _ in results)
    memory = list(zip(*(samples for _, _, samples in results), strict=True))
    minutes = [seconds / 60 * (place + 1) / len(memory) for place in range(len(memory))]
    lows_and_highs = [(minute, min(each), max(each)) for minute, each in zip(minutes, memory, strict=True)]
    return Rate(sum(speeds) / nodes, sent), lows_and_highs


def _node(name: str, nodes: int, folder: Path, link: Link, _size: int, seconds: float, barrier: Barrier) -> Any:
    """One node: exchanges a second, megabytes a second sent, and its resident memory at ten moments."""
    algorithm, key = example(name, nodes), SecureNoise.new_key()
    path = folder / f"{link.learner}.db"
    identity = Identity(NETWORK * 8, link.learner, config_digest(algorithm), "bench", key_fingerprint(key))
    Ledger.create(path, identity)
    board = Board(algorithm.problem, algorithm.guarantee, link.learner, logs=io.StringIO())
    with Ledger.open(path, keep=64) as ledger:
        node = Node(
            algorithm,
            link.learner,
            key=key,
            ledger=ledger,
            transport=ZenohTransport(link),
            source=from_iterable([], algorithm.problem),
            board=board,
        )
        barrier.wait(300)
        thread = threading.Thread(target=node.run, daemon=True)
        thread.start()
        while board.numbers()["exchanges"] < 3:  # compiled, connected
            time.sleep(0.05)
        barrier.wait(300)
        begun, before, memory = time.monotonic(), board.numbers(), []
        for _ in range(10):
            time.sleep(seconds / 10)
            memory.append(_resident())
        passed, after = time.monotonic() - begun, board.numbers()
        barrier.wait(300)
        node.stop()
        thread.join(30)
    steps = algorithm.mixing.steps
    speed, bytes_ = ((after[each] - before[each]) / passed for each in ("exchanges", "bytes_sent"))
    return speed * steps, bytes_ / 1e6, memory


def _resident() -> float:
    """Megabytes that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cells(rate: Rate) -> list[str]:
    return [f"{rate.exchanges:,.1f}", f"{rate.megabytes:,.0f}"]


def zenoh_alone(nodes: int, neighbours: int, size: int, seconds: float, *, encrypted: bool = True) -> Rate:
    """Processes on a circle that send to their neighbours in lock-step: number k + 1 when all have sent number k.

    Args:
        nodes: processes.
        neighbours: of each, half of them on either side; 1 for two nodes.
        size: bytes of a message.
        seconds: how long.
        encrypted: with mutual TLS, or over plain TCP.
    """
    offsets = [sign * step for step in range(1, neighbours // 2 + 1) for sign in (1, -1)] or [1]
    peers = {i: frozenset((i + offset) % nodes for offset in offsets) - {i} for i in range(nodes)}
    exchanges = _play(peers, _in_lock_step, size, seconds, encrypted)
    mean = sum(exchanges) / nodes
    return Rate(mean, mean * sum(map(len, peers.values())) * size / 1e6)


def zenoh_stream(size: int, seconds: float, *, encrypted: bool = True) -> Rate:
    """One process sends to another as fast as it can."""
    received, _ = _play({0: frozenset({1}), 1: frozenset({0})}, _one_way, size, seconds, encrypted)
    return Rate(received, received * size / 1e6)


def _play(peers: Mapping[int, frozenset[int]], job: Job, size: int, seconds: float, encrypted: bool) -> list[Any]:
    """Run a job in a process for every learner, and gather what they give back."""
    context = mp.get_context("forkserver")
    modules = ["bench.tools", "gossamer.net", "gossamer.algorithms"]  # imported once, not once a process
    context.set_forkserver_preload(modules)
    with tempfile.TemporaryDirectory() as folder:
        links = loopback_links(peers, Path(folder) if encrypted else None)
        barrier, pipes, processes = context.Barrier(len(links)), [], []
        for link in links:
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(job, link, size, seconds, barrier, theirs), daemon=True)
            process.start()
            pipes.append(mine)
            processes.append(process)
        results = [pipe.recv() for pipe in pipes]
        for process in processes:
            process.join()
    return results


def loopback_links(peers: Mapping[int, frozenset[int]], folder: Path | None) -> list[Link]:
    """Links on free ports of this machine, with certificates in a folder, or without TLS."""
    authority = Authority.new("bench")
    addresses = dict(zip(peers, _free_addresses(len(peers)), strict=True))
    return [
        Link(
            NETWORK,
            learner,
            addresses[learner],
            {peer: addresses[peer] for peer in others},
            hears=others,
            speaks_to=others,
            tls=None if folder is None else _certify(authority, learner, folder),
        )
        for learner, others in peers.items()
    ]


def _free_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def _certify(authority: Authority, learner: int, folder: Path) -> Files:
    certificate, key = authority.certify(common_name(NETWORK, learner), ["127.0.0.1"])
    paths = [folder / f"{learner}.{kind}" for kind in ("ca", "pem", "key")]
    for path, content in zip(paths, (authority.certificate, certificate, key), strict=True):
        path.write_bytes(content)
    return Files(*paths)


def _work(job: Job, link: Link, size: int, seconds: float, barrier: Barrier, result: Connection) -> None:
    result.send(job(link, size, seconds, barrier))


def _connect(transport: ZenohTransport, link: Link) -> None:
    while transport.connected != link.peers.keys():
        time.sleep(0.01)


class _Player:
    """One learner that does nothing but send numbered messages and wait for those of its peers."""

    def __init__(self, link: Link, size: int) -> None:
        self._link, self._transport = link, ZenohTransport(link)
        self._body = bytes(size - HEADER)
        self._arrived = dict.fromkeys(link.hears, -1)
        self._change = threading.Condition()
        self._transport.open(self._receive)
        _connect(self._transport, link)

    def _receive(self, sender: int, data: bytes) -> None:
        with self._change:
            self._arrived[sender] = int.from_bytes(data[:HEADER], "big")
            self._change.notify()

    def _complete(self, number: int) -> bool:
        return all(latest >= number for latest in self._arrived.values())

    def exchange(self, number: int, end: float) -> bool:
        """Send one number and wait for those of all peers; False where time ran out."""
        data = number.to_bytes(HEADER, "big") + self._body
        while time.monotonic() < end:
            for peer in self._link.speaks_to:
                self._transport.send(peer, data)
            with self._change:
                if self._change.wait_for(lambda: self._complete(number), RESEND):
                    return True
        return False

    def close(self) -> None:
        self._transport.close()


def _in_lock_step(link: Link, size: int, seconds: float, barrier: Barrier) -> float:
    player = _Player(link, size)
    barrier.wait(60)
    begin, number = time.monotonic(), 0
    while player.exchange(number, begin + seconds):
        number += 1
    rate = number / (time.monotonic() - begin)
    barrier.wait(60)
    player.close()
    return rate


def _one_way(link: Link, size: int, seconds: float, barrier: Barrier) -> float:
    """Learner 1 sends, learner 0 counts."""
    arrived: list[float] = []
    transport, data = ZenohTransport(link), bytes(size)
    transport.open(lambda _sender, _data: arrived.append(time.monotonic()))
    _connect(transport, link)
    barrier.wait(60)
    end = time.monotonic() + seconds
    while link.learner == 1 and time.monotonic() < end:
        transport.send(0, data)
    barrier.wait(60)
    transport.close()
    return (len(arrived) - 1) / (arrived[-1] - arrived[0]) if len(arrived) > 1 else 0.0


if __name__ == "__main__":
    typer.run(main)
