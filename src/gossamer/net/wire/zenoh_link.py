"""Messages between learners over Zenoh: one session per learner, peer to peer, no router, mutual TLS."""

from __future__ import annotations

import atexit
import base64
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

from gossamer.errors import ConfigurationError, NetworkError
from gossamer.net.dependencies import require_net
from gossamer.net.wire.addresses import parts_of
from gossamer.net.wire.certificates import common_name
from gossamer.net.wire.pairs import Tags
from gossamer.net.wire.transport import LONGEST_MESSAGE, Receive

_LOG = logging.getLogger(__name__)

_WAITING = (
    8  # messages of one peer that wait for `receive`: then its connection waits, so that no peer fills the memory
)
_STALLED_US = 1_000_000  # a peer that takes nothing for this long is cut off, so that others do not wait for it
_BATCHES = 16  # of 64 KB that wait to be sent to one peer, the most Zenoh allows: a fifth less work than with 2
_LEASE_MS = 4000  # a peer that is silent for this long is gone: its machine lost power, or the network broke
_RETRY = {"period_init_ms": 50, "period_max_ms": 200, "period_increase_factor": 2.0}
_RUST_PLACE = re.compile(r" at /\S+\.rs:[0-9]+\.?")  # in Zenoh's messages: of no use to the reader
_CLOSING = 5.0  # seconds that `close` waits for a `receive` that does not return


@dataclass(frozen=True)
class Files:
    """Where the PEM files of one learner lie.

    Attributes:
        certificate: this learner's certificate.
        key: its private key.
    """

    certificate: Path
    key: Path

    def __post_init__(self) -> None:
        for name in ("certificate", "key"):
            path = getattr(self, name)
            if not Path(path).is_file():
                raise ConfigurationError(name, str(path), "a PEM file that exists", "bring it back")


@dataclass(frozen=True)
class Peer:
    """Somebody whom a learner talks with.

    Attributes:
        address: `host:port` where it listens.
        certificate: PEM; with another one it is not let in.
        secret: of the two, see `pairs`.
    """

    address: str
    certificate: bytes
    secret: bytes = field(repr=False)


@dataclass(frozen=True)
class Link:
    """Where one learner listens and whom it talks with.

    Attributes:
        network: id of the network, hexadecimal digits.
        learner: its number.
        listen: `host:port` on which it waits for the peers with higher numbers.
        peers: everybody that it talks with, by number: it hears nobody else, and sends to nobody else.
        tls: its certificate.
    """

    network: str
    learner: int
    listen: str
    peers: Mapping[int, Peer]
    tls: Files

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]+", self.network):
            raise ConfigurationError("network", self.network, "lower-case hexadecimal digits")
        if self.learner < 0 or self.learner in self.peers:
            raise ConfigurationError("learner", self.learner, "a number from 0 that is not among the peers")
        for address in (self.listen, *(peer.address for peer in self.peers.values())):
            parts_of(address)

    def key(self, sender: int, receiver: int) -> str:
        """The Zenoh key of everything that one learner sends to another."""
        return f"gossamer/{self.network}/{sender}/{receiver}"

    def key_from(self, peer: int) -> str:
        """The key of what a peer sends to this learner."""
        return self.key(peer, self.learner)

    def key_to(self, peer: int) -> str:
        """The key of what this learner sends to a peer."""
        return self.key(self.learner, peer)


class ZenohTransport:
    """Moves bytes between learners over Zenoh; a `Transport`.

    Of two peers the one with the higher number dials, again and again until it succeeds. A message to a peer that is
    not connected is lost. A peer that is connected and takes nothing holds up `send` for a second, then it is cut off.

    Args:
        link: where to listen and whom to talk with.
        forged: called where a message came in the name of a peer, without its tag.
    """

    def __init__(self, link: Link, forged: Callable[[], None] | None = None) -> None:
        self._link, self._forged = link, forged
        self._tags = Tags(link.learner, {number: peer.secret for number, peer in link.peers.items()})
        self._session: Any = None
        self._publishers: dict[int, Any] = {}
        self._subscribers: list[Any] = []
        self._threads: list[Thread] = []
        self._names = {common_name(link.network, peer): peer for peer in link.peers}

    def open(self, receive: Receive) -> None:
        """Listen, begin to dial, and give whatever arrives to `receive`, from one thread per peer.

        Raises:
            NetworkError: where the address is taken or the certificates cannot be used.
        """
        require_net("zenoh")
        import zenoh

        if self._session is not None:
            raise NetworkError("This transport is open already: close it first.")
        config = zenoh.Config()
        for path, value in settings(self._link).items():
            config.insert_json5(path, json.dumps(value))
        try:
            self._session = session = zenoh.open(config)
        except zenoh.ZError as error:
            where = f"{self._link.listen} (learner {self._link.learner})"
            reason = _RUST_PLACE.sub("", str(error)).rstrip(".")
            message = f"Cannot listen on {where}: {reason}. Check that the address is free and the certificates fit."
            raise NetworkError(message) from None
        atexit.register(self.close)  # Python aborts where it ends while a thread waits inside Zenoh
        for peer in sorted(self._link.peers):
            self._hear(session, peer, receive)
            self._publishers[peer] = session.declare_publisher(
                self._link.key_to(peer),
                congestion_control=zenoh.CongestionControl.BLOCK,
                express=True,
                reliability=zenoh.Reliability.RELIABLE,
            )

    def send(self, receiver: int, data: bytes) -> None:
        """Send to one learner; lost without a word where it is not connected, or this transport is closed.

        Raises:
            NetworkError: for a learner that is no peer, and for a message that is too long.
        """
        if receiver not in self._link.peers:
            raise NetworkError(f"Learner {self._link.learner} does not speak to learner {receiver}.")
        if len(data) > LONGEST_MESSAGE:
            raise NetworkError(f"A message of {len(data)} bytes is too long; allowed: {LONGEST_MESSAGE}.")
        publisher = self._publishers.get(receiver)
        if publisher is not None:
            import zenoh

            with suppress(zenoh.ZError):  # the session was closed meanwhile
                publisher.put(self._tags.tagged(receiver, data))

    def close(self) -> None:
        """End all connections and wait until `receive` has returned; not to be called from within it."""
        session, self._session = self._session, None
        if session is None:
            return
        atexit.unregister(self.close)
        self._publishers = {}
        for subscriber in self._subscribers:
            subscriber.undeclare()
        session.close()
        for thread in self._threads:
            thread.join(_CLOSING)
        self._subscribers, self._threads = [], []

    @property
    def connected(self) -> frozenset[int]:
        """The peers with which there is a connection now, as far as it is known."""
        session = self._session
        links = session.info.links() if session is not None else []
        return frozenset(self._names[link.auth_identifier] for link in links if link.auth_identifier in self._names)

    def _hear(self, session: Any, peer: int, receive: Receive) -> None:
        import zenoh

        subscriber = session.declare_subscriber(self._link.key_from(peer), zenoh.handlers.FifoChannel(_WAITING))
        thread = Thread(target=self._deliver, args=(subscriber.handler, peer, receive))
        thread.daemon = True  # a `receive` that hangs must not keep the process alive
        thread.start()
        self._subscribers.append(subscriber)
        self._threads.append(thread)

    def _deliver(self, samples: Iterable[Any], peer: int, receive: Receive) -> None:
        key = self._link.key_from(peer)
        for sample in samples:
            if str(sample.key_expr) != key:  # a put on a pattern is no message, whatever it matches
                continue
            data = self._tags.opened(peer, sample.payload.to_bytes())
            try:
                if data is not None:
                    receive(peer, data)
                elif self._forged is not None:
                    self._forged()
            except Exception as error:  # this thread must live on, or nothing more is heard from this peer
                _LOG.error("a message of learner %d was lost: %s in receive", peer, type(error).__name__)


def settings(link: Link) -> dict[str, Any]:
    """The settings of the Zenoh session: their paths and values.

    Nothing is found by multicast or gossip, nothing is forwarded, no shared memory: every message goes over the
    connection between its two learners. Each trusts the certificates of its peers and no others.
    """
    # Zenoh looks for what stands before the last colon in the certificate, where an IPv6 address has no brackets.
    dialled = [re.sub(r"[\[\]]", "", link.peers[peer].address) for peer in sorted(link.peers) if peer < link.learner]
    return {
        "mode": "peer",
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "open/return_conditions": {"connect_scouted": False, "declares": False},
        "listen/endpoints": [f"tls/{link.listen}"],
        "connect/endpoints": [f"tls/{address}" for address in dialled],
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        "connect/retry": _RETRY,
        "transport/shared_memory/enabled": False,
        "transport/link/protocols": ["tls"],
        "transport/link/tls": _certified(link),
        "transport/link/tx/lease": _LEASE_MS,
        "transport/link/tx/queue/size/data": _BATCHES,
        "transport/link/tx/queue/congestion_control/block/wait_before_close": _STALLED_US,
        "transport/link/rx/max_message_size": LONGEST_MESSAGE + 2**16,
        "access_control": _access(link),
    }


def _certified(link: Link) -> dict[str, Any]:
    """Both ends of a connection show their certificates."""
    certificate, key = str(link.tls.certificate), str(link.tls.key)
    trusted = b"".join(link.peers[peer].certificate for peer in sorted(link.peers)) or link.tls.certificate.read_bytes()
    return {
        "root_ca_certificate_base64": base64.b64encode(trusted).decode(),
        "listen_certificate": certificate,
        "listen_private_key": key,
        "connect_certificate": certificate,
        "connect_private_key": key,
        "enable_mtls": True,
        "verify_name_on_connect": True,
        "close_link_on_expiration": True,
    }


def _access(link: Link) -> dict[str, Any]:
    """What each peer may do, by the name in its certificate; everything else is denied."""
    rules, subjects, policies = [], [], []
    for peer in sorted(link.peers):
        allowed = _rules(link, peer)
        rules += allowed
        subjects.append({"id": f"learner {peer}", "cert_common_names": [common_name(link.network, peer)]})
        names = [rule["id"] for rule in allowed]
        policies.append({"id": f"learner {peer}", "rules": names, "subjects": [f"learner {peer}"]})
    lists = {"rules": rules, "subjects": subjects, "policies": policies}
    return {"enabled": True, "default_permission": "deny", **lists}


def _rules(link: Link, peer: int) -> list[dict[str, Any]]:
    """Puts in one direction need the subscription in the other: without it they vanish without a word."""
    return [
        _rule("put", "ingress", link.key_from(peer)),
        _rule("declare_subscriber", "egress", link.key_from(peer)),
        _rule("put", "egress", link.key_to(peer)),
        _rule("declare_subscriber", "ingress", link.key_to(peer)),
    ]


def _rule(message: str, flow: str, key: str) -> dict[str, Any]:
    name = f"{message} {flow} {key}"
    return {"id": name, "permission": "allow", "messages": [message], "flows": [flow], "key_exprs": [key]}
