"""How fast learners can talk on this machine: `python -m bench.network` prints what docs/network.md quotes.

Zenoh alone, in processes that do nothing but send and receive: what a node can hope for at most. And nodes, which also
draw noise, learn, write their ledgers to disk and mix: each run of them is compared with Zenoh right before and after
it, as machines have better and worse minutes. `--minutes 10` runs nodes for so long and prints their memory.
"""

from __future__ import annotations

import gc
import io
import multiprocessing as mp
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.tools import print_table
from gossamer import Budget, algorithms, problems, sets, topology
from gossamer.core import Algorithm
from gossamer.net import Board, Identity, Ledger, Node, from_iterable, prepared
from gossamer.net.node.agreement import key_fingerprint
from gossamer.net.startup import kept_rows, limit_arenas
from gossamer.net.store.witness import Witness
from gossamer.net.wire.certificates import certified, common_name
from gossamer.net.wire.zenoh_link import Files, Link, Peer, ZenohTransport
from gossamer.privacy import SecureNoise
from gossamer.topology import FixedTopology

NETWORK = "be7c"
DIMENSION = 100_000
SECONDS = 10.0
RESEND = 0.2  # seconds after which a message counts as lost
HEADER = 8  # bytes that hold the number of the exchange
HEADINGS = ("what", "network", "message", "steps a second", "MB a second", "of Zenoh alone")
NETWORKS = {"ring, 2 neighbours": topology.ring(16, weights="lazy"), "torus, 4": topology.torus(4, 4, weights="lazy")}
RUNS = {
    "d_ogd, no noise": ("d_ogd", 400_000),
    "pd_ogd, Gaussian": ("pd_ogd", 400_000),
    "pd_ftgl, 32 gossip steps": ("pd_ftgl", 800_000),
}

Job = Callable[[Link, int, float, Barrier], Any]
"""What one process does, with message size and seconds, and what it gives back."""


@dataclass(frozen=True)
class Rate:
    """What a run reached: steps a second, and the megabytes of messages that all processes together sent a second."""

    steps: float
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
    for where, network in NETWORKS.items():
        for what, (name, size) in RUNS.items():
            before = zenoh_alone(peers_of(network), size, SECONDS)
            nodes, _ = nodes_at_work(network, name, size, SECONDS)
            after = zenoh_alone(peers_of(network), size, SECONDS)
            zenoh = Rate(*((a + b) / 2 for a, b in zip(astuple(before), astuple(after), strict=True)))
            rows.append(["Zenoh alone, in lock-step", where, f"{size // 1000} KB", *cells(zenoh), ""])
            share = f"{nodes.megabytes / zenoh.megabytes:.2f}"
            rows.append([f"nodes, {what}", where, f"{size // 1000} KB", *cells(nodes), share])
    stream = zenoh_stream(1_000_000, SECONDS)
    rows.append(["Zenoh alone, no waiting", "two processes, one way", "1 MB", *cells(stream), ""])
    print_table("16 processes on loop-back, mutual TLS", HEADINGS, rows)
    print_table(
        "Noise alone", ("draws", "exchanges a second of 16 nodes on 2 cores"), [["Gaussian, 100,000", noise_alone()]]
    )


def print_memory(minutes: float) -> None:
    """Resident memory of sixteen nodes, ten times on the way."""
    network = next(iter(NETWORKS.values()))
    rate, memory = nodes_at_work(network, "pd_ogd", 400_000, 60 * minutes)
    rows = [[f"{minute:g}", f"{low:,.0f} to {high:,.0f}"] for minute, low, high in memory]
    print_table("Resident memory of 16 nodes, pd_ogd, 100,000 coordinates", ("minutes", "MB a node"), rows)
    print_table("Speed meanwhile", HEADINGS[3:5], [cells(rate)])


def example(name: str, network: FixedTopology) -> Algorithm:
    """An algorithm as nodes run it."""
    problem = problems.Linear(DIMENSION, domain=sets.L2Ball(1.0))
    if name == "d_ogd":
        return prepared(algorithms.d_ogd(problem, network, step=0.1), allow_no_guarantee=True)
    options = {"budget": Budget(8.0, 1e-5), "clip": 1.0, "noise": "gaussian", "horizon": 10**7}
    if name == "pd_ogd":
        return prepared(algorithms.pd_ogd(problem, network, **options))
    return prepared(algorithms.pd_ftgl(problem, network, **options, steps_per_exchange=32, aggregation="independent"))


def peers_of(network: FixedTopology) -> dict[int, frozenset[int]]:
    """Who talks with whom."""
    ever = {learner: network.ever_meets(learner) for learner in range(network.learners)}
    return {learner: frozenset(hears | heard_by) for learner, (hears, heard_by) in ever.items()}


def noise_alone() -> str:
    """Exchanges a second for which two cores draw the noise of sixteen nodes, by what one core draws."""
    algorithm = example("pd_ogd", NETWORKS["ring, 2 neighbours"])
    source, (name, spec) = SecureNoise(bytes(32), "bench", "bench"), *algorithm.learner.noise.items()
    scale = algorithm.scales_of(name)[:1]
    source.draw(name, spec, scale, 0, 10)
    begun = time.perf_counter()
    source.draw(name, spec, scale, 10, 60)
    return f"{2 * 50 / 16 / (time.perf_counter() - begun):,.1f}"


def nodes_at_work(
    network: FixedTopology, name: str, size: int, seconds: float
) -> tuple[Rate, list[tuple[float, float, float]]]:
    """Nodes in processes of their own, with ledgers on disk: speed, and memory (minute, least, most)."""
    peers = peers_of(network)
    with tempfile.TemporaryDirectory() as folder:
        results = _play(peers, partial(_node, name, network, Path(folder)), size, seconds)
    sent = sum(messages for messages, _ in results)
    memory = list(zip(*(samples for _, samples in results), strict=True))
    minutes = [seconds / 60 * (place + 1) / len(memory) for place in range(len(memory))]
    lows_and_highs = [(minute, min(each), max(each)) for minute, each in zip(minutes, memory, strict=True)]
    return Rate(sent / sum(map(len, peers.values())), sent * size / 1e6), lows_and_highs


def _node(
    name: str, network: FixedTopology, folder: Path, link: Link, _size: int, seconds: float, barrier: Barrier
) -> tuple[float, list[float]]:
    """One node: messages a second sent, those that were sent again not counted, and its memory at ten moments."""
    limit_arenas()  # as `gossamer node` does
    algorithm, key = example(name, network), SecureNoise.new_key()
    path = folder / f"{link.learner}.db"
    identity = Identity(NETWORK * 8, link.learner, algorithm.digest, "bench", key_fingerprint(key))
    Ledger.create(path, identity)
    board = Board(algorithm.problem, algorithm.guarantee, link.learner, logs=io.StringIO())
    witness = Witness(folder / f"{link.learner}.witness")
    with Ledger.open(path, witness=witness, keep=kept_rows(algorithm, len(link.peers))) as ledger:
        node = Node(
            algorithm,
            link.learner,
            key=key,
            ledger=ledger,
            transport=ZenohTransport(link),
            source=from_iterable([], algorithm.problem),
            board=board,
        )
        gc.freeze()  # as `gossamer node` does
        barrier.wait(300)
        thread = threading.Thread(target=node.run, daemon=True)
        thread.start()
        while board.numbers()["exchanges"] < 3:  # compiled, connected
            time.sleep(0.05)
        barrier.wait(300)
        begun, before, memory = time.monotonic(), board.numbers()["messages_sent"], []
        for _ in range(10):
            time.sleep(seconds / 10)
            memory.append(_resident())
        rate = (board.numbers()["messages_sent"] - before) / (time.monotonic() - begun)
        barrier.wait(300)
        node.stop()
        thread.join(30)
    return rate, memory


def _resident() -> float:
    """Megabytes that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cells(rate: Rate) -> list[str]:
    return [f"{rate.steps:,.1f}", f"{rate.megabytes:,.0f}"]


def zenoh_alone(peers: Mapping[int, frozenset[int]], size: int, seconds: float) -> Rate:
    """Processes that send to their peers in lock-step: number k + 1 when all have sent number k.

    Args:
        peers: who talks with whom.
        size: bytes of a message.
        seconds: how long.
    """
    steps = _play(peers, _in_lock_step, size, seconds)
    mean = sum(steps) / len(peers)
    return Rate(mean, mean * sum(map(len, peers.values())) * size / 1e6)


def zenoh_stream(size: int, seconds: float) -> Rate:
    """One process sends to another as fast as it can."""
    received, _ = _play({0: frozenset({1}), 1: frozenset({0})}, _one_way, size, seconds)
    return Rate(received, received * size / 1e6)


def _play(peers: Mapping[int, frozenset[int]], job: Job, size: int, seconds: float) -> list[Any]:
    """Run a job in a process for every learner, and gather what they give back."""
    context = mp.get_context("forkserver")
    modules = ["bench.tools", "gossamer.net", "gossamer.algorithms"]  # imported once, not once a process
    context.set_forkserver_preload(modules)
    with tempfile.TemporaryDirectory() as folder:
        links = loopback_links(peers, Path(folder))
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


def loopback_links(peers: Mapping[int, frozenset[int]], folder: Path) -> list[Link]:
    """Links on free ports of this machine, with certificates in a folder."""
    addresses = dict(zip(peers, _free_addresses(len(peers)), strict=True))
    files = {learner: _certify(learner, folder) for learner in peers}
    known = {learner: Peer(addresses[learner], files[learner].certificate.read_bytes(), bytes(32)) for learner in peers}
    return [
        Link(NETWORK, learner, addresses[learner], {peer: known[peer] for peer in others}, files[learner])
        for learner, others in peers.items()
    ]


def _free_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def _certify(learner: int, folder: Path) -> Files:
    paths = [folder / f"{learner}.{kind}" for kind in ("pem", "key")]
    for path, content in zip(paths, certified(common_name(NETWORK, learner), ["127.0.0.1"]), strict=True):
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
        self._arrived = dict.fromkeys(link.peers, -1)
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
            for peer in self._link.peers:
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
