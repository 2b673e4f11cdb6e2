"""How fast learners can talk on this machine: `python -m bench.network` prints what docs/network.md quotes.

Zenoh alone, in processes that do nothing but send and receive: what a node can hope for at most.
"""

from __future__ import annotations

import multiprocessing as mp
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from bench.tools import print_table
from gossamer.net.certificates import Authority, common_name
from gossamer.net.zenoh_link import Files, Link, ZenohTransport

NETWORK = "be7c"
SECONDS = 10.0
RESEND = 0.2  # seconds after which a message counts as lost
HEADER = 8  # bytes that hold the number of the exchange
HEADINGS = ("what", "processes", "message", "TLS", "exchanges a second", "MB a second")

Job = Callable[[Link, int, float, Barrier], float]
"""What one process does, with message size and seconds: gives back how many exchanges a second it made."""


@dataclass(frozen=True)
class Rate:
    """What a run reached: exchanges a second, and the megabytes that all processes together received a second."""

    exchanges: float
    megabytes: float


def main() -> None:
    rows = []
    for encrypted in (True, False):
        ring = zenoh_alone(16, 2, 400_000, SECONDS, encrypted=encrypted)
        stream = zenoh_stream(1_000_000, SECONDS, encrypted=encrypted)
        security = "yes" if encrypted else "no"
        rows.append(["ring in lock-step", "16", "400 KB", security, *cells(ring)])
        rows.append(["one way, no waiting", "2", "1 MB", security, *cells(stream)])
    print_table("Zenoh alone, on loop-back", HEADINGS, rows)


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


def _play(peers: Mapping[int, frozenset[int]], job: Job, size: int, seconds: float, encrypted: bool) -> list[float]:
    """Run a job in a process for every learner, and gather what they give back."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["bench.tools", "gossamer.net.zenoh_link"])  # imported once, not once a process
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
    main()
