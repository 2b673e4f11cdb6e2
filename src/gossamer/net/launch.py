"""From a directory to a running node: everything opened and checked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.agreed import prepared
from gossamer.net.board import Board
from gossamer.net.directory import NodeDirectory, Settings
from gossamer.net.ledger import Ledger
from gossamer.net.node import Node, Pace
from gossamer.net.packing import require_net
from gossamer.net.sealing import Sealer
from gossamer.net.serve import Endpoint
from gossamer.net.sources import FollowedFile, Source, StandardInput, from_iterable
from gossamer.net.witness import Witness, default_witness
from gossamer.net.zenoh_link import ZenohTransport
from gossamer.privacy import Budget, Loss
from gossamer.problems import Problem

_LEAST_KEPT, _MOST_KEPT, _KEPT_BYTES = (
    64,
    1024,
    2**26,
)  # messages that can be sent again: rows, and about how many bytes


@dataclass(frozen=True)
class Running:
    """A node and its page."""

    node: Node
    endpoint: Endpoint | None

    def run(self, *, linger: bool) -> None:
        """Run the node to its end, or until it is stopped."""
        try:
            self.node.run(linger=linger)
        finally:
            if self.endpoint:
                self.endpoint.close()
            self.node.ledger.close()


def launch(
    directory: NodeDirectory,
    settings: Settings,
    algorithm: Algorithm,
    *,
    data: str | Iterable[tuple[Any, Any] | None] | None = None,
    exchanges: int | None = None,
    state_key: Path | None = None,
    adopt: bool = False,
) -> Running:
    """Open all that a node needs.

    Args:
        directory: of the node.
        settings: what its node.toml says.
        algorithm: what its algorithm.json says.
        data: samples, instead of those that the settings name: a file, "-" for standard input, or an iterable of pairs
            (x, y), with None where there is nothing now.
        exchanges: after how many to end, instead of what the settings say.
        state_key: a file with the 32 bytes that the state is encrypted with.
        adopt: accept a directory that this machine has never seen: one that was moved here.
    """
    require_net()
    ready = prepared(algorithm, allow_no_guarantee=settings.no_guarantee)
    key = directory.key()
    source = _source(directory.path, settings.data if data is None else data, settings.label, ready.problem)
    earlier = _earlier(directory.path, settings)
    link = directory.link(settings)
    keep = min(_MOST_KEPT, max(_LEAST_KEPT, _KEPT_BYTES // (8 * ready.problem.dim)))
    ledger = _ledger(directory, settings, state_key, adopt, keep)
    board = Board(ready.problem, ready.guarantee, settings.learner)
    node = Node(
        ready,
        settings.learner,
        key=key,
        ledger=ledger,
        transport=ZenohTransport(link),
        source=source,
        board=board,
        pace=Pace(**settings.pace),
        exchanges=settings.exchanges if exchanges is None else exchanges,
        budget=None if settings.budget is None else Budget(**settings.budget),
        earlier=earlier,
        empty=settings.empty,
    )
    return Running(node, _endpoint(board, settings.http) if settings.http else None)


def _source(directory: Path, data: str | Iterable[Any], label: str, problem: Problem) -> Source:
    """A file beside the settings, standard input or an iterable; what cannot be used is told to the owner alone."""
    faults = _Faults(directory / "rejected.log")
    if not isinstance(data, str):
        return from_iterable(data, problem, faults=faults)
    if data == "-":
        return StandardInput(problem, label=label, faults=faults)
    return FollowedFile(directory / data, problem, label=label, faults=faults)


@dataclass(frozen=True)
class _Faults:
    """Which samples could not be used and why, in a file of the owner's: it says something about the data."""

    path: Path

    def __call__(self, fault: str) -> None:
        if not self.path.exists():
            self.path.touch(0o600)
        with self.path.open("a", encoding="utf-8") as opened:
            opened.write(fault + "\n")


def _ledger(directory: NodeDirectory, settings: Settings, state_key: Path | None, adopt: bool, keep: int) -> Ledger:
    if settings.sealed != (state_key is not None):
        given = "none" if state_key is None else str(state_key)
        allowed = "a file with 32 bytes, where node.toml says sealed = true, and only there"
        raise ConfigurationError("--state-key", given, allowed)
    with Ledger.open(directory.ledger, read_only=True) as known:
        witness, mark = Witness(default_witness(known.identity.key)), known.mark
        if known.identity.source != settings.source or known.identity.network != settings.network:
            hint = "they were settled when the ledger was made; set them back"
            raise PrivacyError.of("node.toml", "another network or source", "those of its ledger", hint)
        if adopt:
            known.verify()
    if adopt:
        witness.adopt(mark)
        witness.close()
    return Ledger.open(directory.ledger, sealer=_sealer(state_key), witness=witness, keep=keep)


def _sealer(file: Path | None) -> Sealer | None:
    if file is not None and not file.is_file():
        raise ConfigurationError("--state-key", str(file), "a file with 32 bytes")
    return None if file is None else Sealer(file.read_bytes())


def _earlier(directory: Path, settings: Settings) -> Sequence[Loss]:
    """What earlier runs over the same data cost, by their ledgers."""
    losses: list[Loss] = []
    for path in settings.earlier:
        place = directory / path
        with Ledger.open(place / "ledger.db" if place.is_dir() else place, read_only=True) as ledger:
            ledger.verify()
            losses += [one.loss for one in ledger.last.spent]
    return losses


def _endpoint(board: Board, address: str) -> Endpoint:
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ConfigurationError("http", address, "host:port", "try 127.0.0.1:8400")
    return Endpoint(board, host=host, port=int(port))
