"""From a directory to a running node: everything opened and checked before anything is sent."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.agreed import prepared
from gossamer.net.board import Board
from gossamer.net.costs import Cost, cost_of
from gossamer.net.directory import NodeDirectory, Settings
from gossamer.net.ledger import Ledger
from gossamer.net.node import Node, Pace
from gossamer.net.packing import require_net
from gossamer.net.sealing import Sealer
from gossamer.net.serve import Endpoint
from gossamer.net.sources import FollowedFile, Source, StandardInput, from_iterable
from gossamer.net.witness import Witness, default_witness, old_copy
from gossamer.net.zenoh_link import ZenohTransport
from gossamer.privacy import Budget
from gossamer.problems import Problem

_LEAST_KEPT, _MOST_KEPT, _EXCHANGES_KEPT, _KEPT_BYTES = 16, 4096, 8, 2**24
_LONGEST_LOG = 2**20
_M_ARENA_MAX, _ARENAS = -8, 2  # of mallopt(3)


def limit_arenas() -> None:
    """Keep the memory of a node flat: its threads share two arenas of glibc's allocator.

    By default each thread gets one of its own, up to eight a core, and all of them grow to the size of large messages.
    Call it before JAX makes its first array: that starts threads enough to settle the number. Other allocators have
    no such setting, and a user's MALLOC_ARENA_MAX stays.

    Examples:
        >>> limit_arenas()
    """
    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        libc = ctypes.CDLL(None)
        if hasattr(libc, "gnu_get_libc_version"):
            libc.mallopt(_M_ARENA_MAX, _ARENAS)


@dataclass(frozen=True)
class Running:
    """A node, and what was opened for it."""

    node: Node
    opened: ExitStack

    def run(self, *, linger: bool) -> None:
        """Run the node to its end, or until it is stopped; for a process that does nothing else."""
        gc.freeze()  # all that was imported stays: looking through it again and again costs 4 % of the time
        with self.opened:
            self.node.run(linger=linger)


def launch(
    directory: NodeDirectory,
    settings: Settings,
    algorithm: Algorithm,
    *,
    data: str | Iterable[tuple[Any, Any] | None] | None = None,
    exchanges: int | None = None,
    state_key: Path | None = None,
    adopt: bool = False,
    new_data: bool = False,
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
        adopt: accept a directory that this machine has never seen: one that was moved here. Then all neighbours must
            agree that they hold nothing later from it.
        new_data: nothing on standard input was used before a restart.
    """
    require_net()
    ready = prepared(algorithm, allow_no_guarantee=settings.no_guarantee)
    key, link, earlier = directory.key(), directory.link(settings), _earlier(directory.path, settings)
    board = Board(ready.problem, ready.guarantee, settings.learner)
    with ExitStack() as stack:
        ledger = stack.enter_context(_ledger(directory, settings, state_key, adopt, kept_rows(ready, len(link.peers))))
        node = Node(
            ready,
            settings.learner,
            key=key,
            ledger=ledger,
            transport=ZenohTransport(link),
            source=_source(directory.path, settings.data if data is None else data, settings, ready.problem, new_data),
            board=board,
            pace=Pace(**settings.pace),
            exchanges=settings.exchanges if exchanges is None else exchanges,
            budget=None if settings.budget is None else Budget(**settings.budget),
            earlier=earlier,
            empty=settings.empty,
            careful=adopt,
        )
        if settings.http:
            endpoint = stack.enter_context(_endpoint(board, settings.http))
            board.log("serving", host=endpoint.host, port=endpoint.port)
        return Running(node, stack.pop_all())


def kept_rows(algorithm: Algorithm, neighbours: int) -> int:
    """Of how many rows messages are kept, to be sent again: of some exchanges, and not too many bytes."""
    size = 8 * algorithm.problem.dim * (neighbours if algorithm.missing == "later" else 1)
    return max(_LEAST_KEPT, _EXCHANGES_KEPT * algorithm.mixing.steps, min(_MOST_KEPT, _KEPT_BYTES // max(1, size)))


def _source(directory: Path, data: str | Iterable[Any], settings: Settings, problem: Problem, new_data: bool) -> Source:
    """A file beside the settings, standard input or an iterable; what cannot be used is told to the owner alone."""
    faults = _Faults(directory / "rejected.log")
    if not isinstance(data, str):
        return from_iterable(data, problem, faults=faults)
    if data == "-":
        return StandardInput(problem, label=settings.label, new_data=new_data, faults=faults)
    return FollowedFile(directory / data, problem, label=settings.label, faults=faults)


@dataclass(frozen=True)
class _Faults:
    """Which samples could not be used and why, in a file of the owner's: it says something about the data."""

    path: Path

    def __call__(self, fault: str) -> None:
        if not self.path.exists():
            self.path.touch(0o600)
        if self.path.stat().st_size > _LONGEST_LOG:
            return
        with self.path.open("a", encoding="utf-8") as opened:
            opened.write(fault + "\n")


def _ledger(directory: NodeDirectory, settings: Settings, state_key: Path | None, adopt: bool, keep: int) -> Ledger:
    if settings.sealed != (state_key is not None):
        given = "none" if state_key is None else str(state_key)
        allowed = "a file with 32 bytes, where node.toml says sealed = true, and only there"
        raise ConfigurationError("--state-key", given, allowed)
    with Ledger.open(directory.ledger, read_only=True) as known:
        if known.identity.source != settings.source or known.identity.network != settings.network:
            hint = "they were settled when the ledger was made; set them back"
            raise PrivacyError.of("node.toml", "another network or source", "those of its ledger", hint)
        witness = _witness(directory, settings, known.identity.key)
        if adopt:
            known.verify()
            _adopt(witness, known)
    return Ledger.open(directory.ledger, sealer=_sealer(state_key), witness=witness, keep=keep)


def _witness(directory: NodeDirectory, settings: Settings, key: str) -> Witness:
    return Witness(directory.path / settings.witness / key if settings.witness else default_witness(key))


def _adopt(witness: Witness, known: Ledger) -> None:
    """Let the witness accept a ledger that was moved here, unless it saw another one go on from the same rows."""
    before = witness.read()
    at = None if before is None else next(known.rows(first=before.number), None)
    if before is not None and (at is None or at.hash != before.hash):
        raise old_copy(before, known.mark)
    witness.adopt(known.mark)
    witness.close()


def _sealer(file: Path | None) -> Sealer | None:
    if file is not None and not file.is_file():
        raise ConfigurationError("--state-key", str(file), "a file with 32 bytes")
    return None if file is None else Sealer(file.read_bytes())


def _earlier(directory: Path, settings: Settings) -> list[Cost]:
    """What earlier runs over the same data cost, by their ledgers."""
    costs = []
    for path in settings.earlier:
        place = directory / path
        with Ledger.open(place / "ledger.db" if place.is_dir() else place, read_only=True) as ledger:
            ledger.verify()
            if ledger.identity.source != settings.source:
                raise ConfigurationError("earlier", path, f"runs over the same source, {settings.source!r}")
            costs.append(cost_of(ledger))
    return costs


def _endpoint(board: Board, address: str) -> AbstractContextManager[Endpoint]:
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ConfigurationError("http", address, "host:port", "try 127.0.0.1:8400")
    return closing(Endpoint(board, host=host, port=int(port)))
