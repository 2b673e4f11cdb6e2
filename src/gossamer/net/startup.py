"""From a directory to a running node: everything opened and checked before anything is sent."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.checkup import check_data, mark_of, require_sound, source_of
from gossamer.net.data.query import is_database
from gossamer.net.data.survey import Survey
from gossamer.net.dependencies import require_net
from gossamer.net.directory import NodeDirectory
from gossamer.net.ledgers import earlier_costs, enter_earlier, enter_own
from gossamer.net.membership.agreement import Agreement
from gossamer.net.node.agreement import prepared, promise_of, require_kept
from gossamer.net.node.node import Node
from gossamer.net.node.spending import Spending
from gossamer.net.registry import DataAccount, Registry, registry_of
from gossamer.net.settings import Settings
from gossamer.net.store.decisions import Decisions
from gossamer.net.store.ledger import Ledger
from gossamer.net.store.vault import Sealer
from gossamer.net.store.witness import witness_of
from gossamer.net.web.access import METRICS, OWNER, given_certificate, is_loopback, read_token
from gossamer.net.web.endpoint import Endpoint
from gossamer.net.web.rows import CountedSource
from gossamer.net.web.status import About
from gossamer.net.web.status_board import Board
from gossamer.net.wire.addresses import parts_of
from gossamer.net.wire.renewal import RenewedTransport, Told
from gossamer.net.wire.zenoh_link import Link, ZenohTransport
from gossamer.privacy import Budget
from gossamer.problems import Problem
from gossamer.topology import Topology

_LEAST_KEPT, _MOST_KEPT, _EXCHANGES_KEPT, _KEPT_BYTES = 16, 4096, 8, 2**24
_DRAWN = 64  # members whose links the page draws
_LOOK = 5.0  # seconds between two looks for a newer agreement
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
    next_agreement: Path

    def run(self, *, linger: bool) -> None:
        """Run the node to its end, or until it is stopped; for a process that does nothing else."""
        gc.freeze()  # all that was imported stays: looking through it again and again costs 4 % of the time
        over = threading.Event()
        threading.Thread(target=self._watch, args=(over,), daemon=True).start()
        with self.opened:
            try:
                self.node.run(linger=linger)
            finally:
                over.set()

    def _watch(self, over: threading.Event) -> None:
        """Say why nobody is there any more: a newer agreement came that does not have this member."""
        while not over.wait(_LOOK):
            if self.next_agreement.exists():
                self.node.board.log("left_network")
                return


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
    tell: Callable[[Survey], None] | None = None,
) -> Running:
    """Open all that a node needs.

    Args:
        directory: of the node.
        settings: what its node.toml says.
        algorithm: what its agreement.json says.
        data: samples, instead of those that the settings name: a file, a folder or a database as in node.toml, "-" for
            standard input, or an iterable of pairs (x, y) or, with a schema, of records; None is nothing now.
        exchanges: after how many to end, where that is before what the agreement says.
        state_key: a file with the 32 bytes that state, messages and noise key are encrypted with.
        adopt: accept a directory that this machine has never seen: one that was moved here. Then all neighbours must
            agree that they hold nothing later from it, before anything is released or the witness learns of it.
        new_data: nothing on standard input was used before a restart.
        tell: is given what the data are like, which is for nobody but the owner.
    """
    require_net()
    directory.require_latest()
    ready, agreed = prepared(algorithm, allow_no_guarantee=settings.no_guarantee), directory.agreement()
    require_kept(ready, agreed.arrivals, agreed.exchanges, agreed.pace.period)
    if isinstance(data, str):
        settings = replace(settings, data=data, query=settings.query if is_database(data) else None)
    sealer = _sealer(settings, state_key)
    assert isinstance(ready.topology, Topology)
    key, link = directory.key(sealer), directory.link(settings, ready.topology)
    board = Board(ready.problem, ready.guarantee, link.learner, schema=agreed.schema)
    budget = None if settings.budget is None else Budget(**settings.budget)
    with ExitStack() as stack:
        registry = stack.enter_context(closing(Registry(registry_of(directory.path, settings.registry))))
        promise = promise_of(ready, agreed.arrivals)
        earlier = earlier_costs(directory.path, settings, key, promise, stack)
        keep = kept_rows(ready, len(link.peers))
        ledger = stack.enter_context(_ledger(directory, settings, link.network, sealer, adopt, keep))
        mark = mark_of(directory.path, settings, ledger, sealer)
        given = data is not None and not isinstance(data, str)
        if not ledger.ended and not given:
            found = check_data(directory, settings, ready.problem, agreed.schema, mark)
            require_sound(directory, settings, found, tell)
        source = source_of(
            directory.path, settings, ready.problem, agreed.schema, data, new_data=new_data, told=board.rows.fault
        )
        if settings.continues and ledger.state() is None:
            source.resume(mark)
        enter_earlier(directory.path, settings, registry)
        entered = partial(enter_own, registry, ledger, directory.path, settings, given=given, adopt=adopt)
        entered()
        stack.callback(_leave, ledger, entered)
        account = DataAccount(registry, ledger.identity.key)
        times, spending = ledger.sources.count(settings.source), Spending(ready, link.learner)
        fresh, following = ledger.last.exchange < 0 or ledger.data_changed, ledger.last.exchange + 1
        if fresh and not ledger.ended and spending.refusal(following) is None:
            account.require(partial(spending.cost, promise), following + 1)
        node = Node(
            ready,
            link.learner,
            key=key,
            ledger=ledger,
            transport=_transport(link, board),
            source=CountedSource(source, board.rows),
            board=board,
            pace=agreed.pace,
            exchanges=min((end for end in (exchanges, agreed.exchanges) if end is not None), default=None),
            budget=budget,
            earlier=earlier,
            times=times,
            account=account,
            play=_kept_by(board, directory, link, ready.problem, sealer, stack),
            arrivals=agreed.arrivals,
        )
        if settings.http:
            endpoint = stack.enter_context(_endpoint(directory, settings, board, about(agreed, ready)))
            board.log("serving", host=endpoint.host, port=endpoint.port)
        if sealer is not None:
            directory.seal_key(sealer)  # last: whoever is refused before may still take another key, or none
        return Running(node, stack.pop_all(), directory.next_agreement)


def _leave(ledger: Ledger, entered: Callable[[], None]) -> None:
    """At an orderly end the registry knows what the ledger does, and no more; else it keeps what it has."""
    if not ledger.broken:
        entered()


def _kept_by(
    board: Board, directory: NodeDirectory, link: Link, problem: Problem, sealer: Sealer | None, stack: ExitStack
) -> Callable[[int, Any], None] | None:
    """What keeps released decisions for their owner. The board shows the last one at once, before anybody answers."""
    if not board.shows_decisions:
        return None
    decisions = stack.enter_context(
        closing(Decisions(directory.decisions, link.network, link.learner, problem.dim, sealer))
    )
    if decisions.kept is not None:
        board.publish(decisions.kept.exchange, decisions.kept.last)
    return decisions.add


def _transport(link: Link, board: Board) -> RenewedTransport:
    """To the neighbours, with a certificate that is renewed in time."""

    def told(event: Told, until: datetime) -> None:
        board.set("certificate_end", until.timestamp())
        days = (until - datetime.now(UTC)).days
        if event == "certificate_ends":
            board.log("certificate_ends", days=days)
        else:
            board.log("certificate_used", days=days)

    return RenewedTransport(
        ZenohTransport(link, partial(board.count, "frames_dropped", reason="forged")), link.tls, told
    )


def kept_rows(algorithm: Algorithm, neighbours: int) -> int:
    """Of how many rows messages are kept, to be sent again: of some exchanges, and not too many bytes."""
    size = 8 * algorithm.problem.dim * (neighbours if algorithm.missing == "later" else 1)
    return max(_LEAST_KEPT, _EXCHANGES_KEPT * algorithm.mixing.steps, min(_MOST_KEPT, _KEPT_BYTES // max(1, size)))


def _sealer(settings: Settings, file: Path | None) -> Sealer | None:
    allowed = "a file with 32 bytes, where node.toml says sealed = true, and only there"
    if settings.sealed != (file is not None):
        raise ConfigurationError("--state-key", "none" if file is None else str(file), allowed)
    if file is not None and not file.is_file():
        raise ConfigurationError("--state-key", str(file), allowed)
    return None if file is None else Sealer(file.read_bytes())


def _ledger(
    directory: NodeDirectory, settings: Settings, network: str, sealer: Sealer | None, adopt: bool, keep: int
) -> Ledger:
    with Ledger.open(directory.ledger, read_only=True) as known:
        if known.sources[-1] != settings.source or known.identity.network != network:
            hint = "they were settled when the ledger was made; set them back"
            raise PrivacyError.of("node.toml", "another network or source", "those of its ledger", hint)
        if adopt:
            known.verify()
        witness = witness_of(directory.path, settings.witness, known.identity.key)
    return Ledger.open(directory.ledger, sealer=sealer, witness=witness, keep=keep, adopt=adopt)


def about(agreement: Agreement, algorithm: Algorithm) -> About:
    """What the page says of a network: all of it is in the agreement.

    Of large networks the links are left out: no picture of them could be read.
    """
    topology = algorithm.topology
    assert isinstance(topology, Topology)
    drawn = range(topology.learners) if topology.learners <= _DRAWN else ()
    links = {(min(one, other), max(one, other)) for one in drawn for other in topology.ever_meets(one)[0]}
    return About(
        network=agreement.network,
        algorithm=f"{algorithm.name} on {topology.name}",
        members=tuple(one.name for one in agreement.members),
        links=tuple(sorted(links)),
        deadline=agreement.pace.deadline,
    )


def _endpoint(
    directory: NodeDirectory, settings: Settings, board: Board, about: About
) -> AbstractContextManager[Endpoint]:
    """The node's page; at an address that others reach, over TLS with the certificate that is given or the node's."""
    host, port = parts_of(settings.http, field="http", least_port=0)
    given = given_certificate(directory.path, settings.http_certificate, settings.http_key)
    return closing(
        Endpoint(
            board,
            host=host,
            port=port,
            about=about,
            token=read_token(directory.path / OWNER),
            metrics_token=read_token(directory.path / METRICS),
            certificate=given if given or is_loopback(host) else directory.files(),
        )
    )
