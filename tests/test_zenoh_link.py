"""Certificates and the Zenoh transport, on loop-back. Every refusal stands beside something that gets through."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.hashes import SHA256

from gossamer.errors import ConfigurationError, NetworkError
from gossamer.net.wire import zenoh_link
from gossamer.net.wire.addresses import address_of, parts_of
from gossamer.net.wire.certificates import certified
from gossamer.net.wire.pairs import Tags
from gossamer.net.wire.zenoh_link import LONGEST_MESSAGE, Files, Link, Peer, ZenohTransport
from tests.networks import pair, papers, peer, until

zenoh = pytest.importorskip("zenoh", reason="no Zenoh: pip install 'gossamer[net]'")

NETWORK = "5eed"
PATIENCE = 20.0  # seconds: only a failing test waits this long
PAUSE = 0.3  # seconds in which something forbidden would have arrived: what is allowed takes a few milliseconds


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[int | str, Files]:
    """Papers of the learners 0 to 4, others in the name of learner 2, and some that 2 signed in the name of 0."""
    folder = tmp_path_factory.mktemp("certificates")
    made: dict[int | str, Files] = {i: papers(folder, NETWORK, i) for i in range(5)}
    return made | {
        "foreign": papers(folder / "foreign", NETWORK, 2),
        "signed by 2": signed_by(made[2], folder / "2", 0),
    }


def signed_by(signer: Files, folder: Path, learner: int) -> Files:
    """What a neighbour can make: a certificate in another name, signed with the key that others trust."""
    made, issuer = papers(folder, NETWORK, learner), x509.load_pem_x509_certificate(signer.certificate.read_bytes())
    old = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    builder = x509.CertificateBuilder(
        issuer.subject,
        old.subject,
        old.public_key(),
        old.serial_number,
        old.not_valid_before_utc,
        old.not_valid_after_utc,
        list(old.extensions),
    )
    key = serialization.load_pem_private_key(signer.key.read_bytes(), None)
    made.certificate.write_bytes(builder.sign(key, SHA256()).public_bytes(serialization.Encoding.PEM))
    return made


class Node:
    """A transport and what it received."""

    def __init__(self, link: Link) -> None:
        self.link, self.transport = link, ZenohTransport(link)
        self.received: list[tuple[int, bytes]] = []

    def open(self) -> Node:
        self.transport.open(lambda sender, data: self.received.append((sender, data)))
        return self

    def reaches(self, other: Node, data: bytes = b"hello") -> None:
        """Send until it arrives: what is sent before the other one is connected may be lost."""
        wanted, end = (self.link.learner, data), time.monotonic() + PATIENCE
        while wanted not in other.received:
            assert time.monotonic() < end, "nothing arrived"
            self.transport.send(other.link.learner, data)
            time.sleep(0.01)


Edges = Mapping[int, tuple[int, ...]]
LINE: Edges = {0: (1,), 1: (0, 2), 2: (1,)}


def links(edges: Edges, files: Mapping[int | str, Files]) -> dict[int, Link]:
    addresses = {i: f"127.0.0.1:{port}" for i, port in zip(edges, free_ports(len(edges)), strict=True)}
    known = {i: {j: peer(addresses[j], files[j], i, j) for j in peers} for i, peers in edges.items()}
    return {i: Link(NETWORK, i, addresses[i], peers, files[i]) for i, peers in known.items()}


@contextmanager
def opened(chosen: Mapping[int, Link]) -> Iterator[dict[int, Node]]:
    nodes = {i: Node(link) for i, link in chosen.items()}
    try:
        yield {i: node.open() for i, node in nodes.items()}
    finally:
        for node in nodes.values():
            node.transport.close()


@dataclass
class Intruder:
    """A Zenoh program of somebody who does not use this library: no access control, a session of its own making."""

    session: Any
    heard: list[bytes]

    def put(self, key: str, data: bytes, tag: tuple[int, int] | None = None) -> None:
        """Send; `tag`: with what two learners share, as the first of them."""
        if tag is not None:
            data = Tags(tag[0], {tag[1]: pair(*tag)}).tagged(tag[1], data)
        self.session.put(f"gossamer/{NETWORK}/{key}", data, congestion_control=zenoh.CongestionControl.BLOCK)


@contextmanager
def intruder(victim: Link, tls: Files | None, *, certified: bool = True) -> Iterator[Intruder]:
    """A client sends whatever it puts and asks for everything: nothing is held back on its side."""
    settings: dict[str, Any] = {
        "mode": "client",
        "scouting/multicast/enabled": False,
        "connect/endpoints": [f"{'tcp' if tls is None else 'tls'}/{victim.listen}"],
        "connect/timeout_ms": 500,
    }
    if tls is not None:
        own = {"connect_certificate": str(tls.certificate), "connect_private_key": str(tls.key), "enable_mtls": True}
        settings["transport/link/tls"] = {"root_ca_certificate": str(victim.tls.certificate)} | (
            own if certified else {}
        )
    heard: list[bytes] = []
    with zenoh.open(_config(settings)) as session:
        session.declare_subscriber(
            "**", lambda sample: heard.append(sample.payload.to_bytes()), allowed_origin=zenoh.Locality.REMOTE
        )
        yield Intruder(session, heard)


def _config(settings: Mapping[str, Any]) -> Any:
    config = zenoh.Config()
    for path, value in settings.items():
        config.insert_json5(path, json.dumps(value))
    return config


# Certificates


def test_a_certificate_is_its_own_and_for_its_hosts() -> None:
    pem, key = certified("node", ["10.0.0.7", "::1", "[fd00::7]", "node.example"])
    certificate = x509.load_pem_x509_certificate(pem)
    certificate.verify_directly_issued_by(certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["node.example"]
    assert names.get_values_for_type(x509.IPAddress) == [ip_address(one) for one in ("10.0.0.7", "::1", "fd00::7")]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert key.startswith(b"-----BEGIN PRIVATE KEY-----")


def test_keys_are_fresh_and_in_no_repr(files: dict[int | str, Files]) -> None:
    assert certified("node", ["h"])[1] != certified("node", ["h"])[1]
    assert str(pair(0, 1)) not in repr(peer("a:1", files[0], 0, 1))


@pytest.mark.parametrize(
    ("name", "hosts", "field"),
    [("", ["h"], "name"), ("x" * 65, ["h"], "name"), ("x", [], "hosts"), ("x", ["é.example"], "hosts")],
)
def test_bad_names_are_refused(name: str, hosts: list[str], field: str) -> None:
    with pytest.raises(ConfigurationError, match=field):
        certified(name, hosts)


def test_hosts_must_not_be_one_string() -> None:
    with pytest.raises(ConfigurationError, match="hosts"):
        certified("node", "127.0.0.1")


# Delivery


def test_messages_arrive_both_ways(files: dict[int | str, Files]) -> None:
    with opened(links(LINE, files)) as nodes:
        big = bytes(range(256)) * (4 * 2**20 // 256)
        for sender, receiver in ((0, 1), (1, 0), (1, 2), (2, 1)):
            nodes[sender].reaches(nodes[receiver])
            nodes[sender].transport.send(receiver, big)
            until(lambda s=sender, r=receiver: (s, big) in nodes[r].received)  # type: ignore[misc]
        assert [nodes[i].transport.connected for i in range(3)] == [{1}, {0, 2}, {1}]
        assert {sender for sender, _ in nodes[0].received} == {1}


@pytest.mark.skipif(not _has_ipv6(), reason="no IPv6 on loop-back: sysctl net.ipv6.conf.lo.disable_ipv6=0")
def test_nodes_with_ipv6_addresses(files: dict[int | str, Files]) -> None:
    addresses = [address_of("::1", port) for port in free_ports(2)]
    known = [peer(addresses[i], files[i], 0, 1) for i in range(2)]
    chosen = {i: Link(NETWORK, i, addresses[i], {1 - i: known[1 - i]}, files[i]) for i in range(2)}
    with opened(chosen) as nodes:
        nodes[0].reaches(nodes[1])
        nodes[1].reaches(nodes[0])


def test_messages_of_one_sender_arrive_once_and_in_order(files: dict[int | str, Files]) -> None:
    with opened(links({0: (1,), 1: (0,)}, files)) as nodes:
        nodes[0].reaches(nodes[1])
        nodes[1].received.clear()
        for number in range(300):
            nodes[0].transport.send(1, number.to_bytes(2, "big") * 500)
        until(lambda: len(nodes[1].received) >= 300)
        assert [int.from_bytes(data[:2], "big") for _, data in nodes[1].received] == list(range(300))


def test_the_longest_message_arrives_and_a_longer_one_is_refused(files: dict[int | str, Files]) -> None:
    with opened(links({0: (1,), 1: (0,)}, files)) as nodes:
        nodes[0].reaches(nodes[1])
        nodes[0].transport.send(1, bytes(LONGEST_MESSAGE))
        until(lambda: len(nodes[1].received[-1][1]) == LONGEST_MESSAGE)
        with pytest.raises(NetworkError, match="too long"):
            nodes[0].transport.send(1, bytes(LONGEST_MESSAGE + 1))


def test_five_nodes_in_one_process(files: dict[int | str, Files]) -> None:
    ring = {i: ((i - 1) % 5, (i + 1) % 5) for i in range(5)}
    with opened(links(ring, files)) as nodes:
        for i, peers in ring.items():
            for j in peers:
                nodes[i].reaches(nodes[j])
        for i, peers in ring.items():
            assert {sender for sender, _ in nodes[i].received} == set(peers)


@pytest.mark.parametrize("again", [0, 1])  # 1 dials, 0 is dialled
def test_a_node_that_comes_back_is_reached_again(again: int, files: dict[int | str, Files]) -> None:
    with opened(links({0: (1,), 1: (0,)}, files)) as nodes:
        gone, stays = nodes[again], nodes[1 - again]
        stays.reaches(gone)
        gone.transport.close()
        until(lambda: stays.transport.connected == frozenset())
        stays.transport.send(again, b"lost")
        gone.open()
        stays.reaches(gone, b"back")
        gone.reaches(stays, b"back")
        assert (1 - again, b"lost") not in gone.received


def test_a_stalled_peer_is_cut_off_and_the_others_are_served(files: dict[int | str, Files]) -> None:
    go_on = threading.Event()
    with opened(links({0: (1, 2), 1: (0,), 2: (0,)}, files)) as nodes:
        nodes[0].reaches(nodes[2])
        nodes[1].transport.close()
        stuck = nodes[1].transport
        stuck.open(lambda _sender, _data: bool(go_on.wait(PATIENCE)))
        try:
            until(lambda: nodes[0].transport.connected == {1, 2})
            longest, end = 0.0, time.monotonic() + PATIENCE
            while longest < 0.5:
                assert time.monotonic() < end, "it was never held up"
                begin = time.monotonic()
                nodes[0].transport.send(1, bytes(2**20))
                longest = max(longest, time.monotonic() - begin)
            assert longest < 3.0
            nodes[0].transport.send(2, b"after")
            until(lambda: (0, b"after") in nodes[2].received)
        finally:
            go_on.set()


def test_a_fault_in_receive_loses_one_message(files: dict[int | str, Files], caplog: pytest.LogCaptureFixture) -> None:
    got: list[bytes] = []

    def receive(_sender: int, data: bytes) -> None:
        got.append(data)
        if data == b"private":
            raise ValueError("private")

    with opened(links({0: (1,), 1: (0,)}, files)) as nodes:
        nodes[1].transport.close()
        nodes[1].transport.open(receive)
        for data in (b"private", b"next"):
            until(lambda data=data: bool(nodes[0].transport.send(1, data) or data in got))  # type: ignore[misc]
    assert "ValueError" in caplog.text
    assert "private" not in caplog.text


def test_close_ends_all_threads(files: dict[int | str, Files]) -> None:
    before = set(threading.enumerate())
    with opened(links(LINE, files)) as nodes:
        nodes[0].reaches(nodes[1])
        assert set(threading.enumerate()) > before
    assert set(threading.enumerate()) == before
    nodes[0].transport.close()
    nodes[0].transport.send(1, b"into the void")
    assert nodes[0].transport.connected == frozenset()


UNCLOSED = """
import sys, time
from pathlib import Path
from gossamer.net.wire.zenoh_link import Files, Link, Peer, ZenohTransport
here, papers = sys.argv[1:3], [Files(*map(Path, sys.argv[i : i + 2])) for i in (3, 5)]
known = [Peer(*both, bytes(32)) for both in zip(here, (one.certificate.read_bytes() for one in papers))]
both = [ZenohTransport(Link("5eed", i, here[i], {1 - i: known[1 - i]}, papers[i])) for i in range(2)]
for transport in both:
    transport.open(lambda sender, data: None)
time.sleep(0.2)
for _ in range(5):
    both[0].send(1, bytes(10**6))
"""


def test_a_process_that_does_not_close_ends_without_a_crash(files: dict[int | str, Files]) -> None:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    papers = [str(path) for i in range(2) for path in (files[i].certificate, files[i].key)]
    command = [sys.executable, "-W", "error", "-c", UNCLOSED, *addresses, *papers]
    done = subprocess.run(command, check=False, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


# Intruders. Learner 1 hears 0 and 2. In every test the same intruder succeeds with the right papers, or where there are
# no rules of access.


@pytest.fixture
def no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zenoh_link, "_access", lambda _link: {"enabled": False})


@pytest.mark.usefixtures("no_rules")
def test_a_forger_succeeds_without_rules_and_with_a_secret(files: dict[int | str, Files]) -> None:
    """Shows that the intruder of the tests below does send what it forges."""
    with opened(links(LINE, files)) as nodes, intruder(nodes[1].link, files[2]) as forger:
        until(lambda: bool(forger.put("0/1", b"forged", (0, 1)) or (0, b"forged") in nodes[1].received))


@pytest.mark.usefixtures("no_rules")
def test_a_neighbour_listens_in_without_rules(files: dict[int | str, Files]) -> None:
    with opened(links(LINE, files)) as nodes, intruder(nodes[1].link, files[2]) as ears:
        until(lambda: bool(nodes[1].transport.send(0, b"secret") or any(b"secret" in one for one in ears.heard)))


def test_a_certificate_that_a_neighbour_signed_is_not_enough(files: dict[int | str, Files]) -> None:
    """TLS lets in whom a neighbour has signed. What it says in another name lacks the secret of that pair."""
    chosen, forged = links(LINE, files), []
    node = ZenohTransport(chosen[1], lambda: forged.append(1))
    received: list[tuple[int, bytes]] = []
    node.open(lambda sender, data: received.append((sender, data)))
    try:
        with intruder(chosen[1], files["signed by 2"]) as neighbour:
            until(lambda: bool(neighbour.put("0/1", b"forged") or len(forged) >= 3))
            neighbour.put("0/1", b"forged", (2, 1))
            until(lambda: bool(neighbour.put("0/1", b"with the secret", (0, 1)) or received))
    finally:
        node.close()
    assert {data for _, data in received} == {b"with the secret"}


@pytest.mark.parametrize("key", ["0/1", "*/1", "**", "2/*", "1/0"])
def test_a_neighbour_cannot_speak_as_another(key: str, files: dict[int | str, Files]) -> None:
    with opened(links(LINE, files)) as nodes:
        nodes[1].reaches(nodes[0])
        with intruder(nodes[1].link, files[2]) as forger:
            for _ in range(3):
                forger.put(key, b"forged")
                forger.put(key, b"forged", (0, 1))
            until(lambda: bool(forger.put("2/1", b"own", (2, 1)) or (2, b"own") in nodes[1].received))
            time.sleep(PAUSE)
        everything = [data for node in nodes.values() for _, data in node.received]
        assert b"forged" not in everything


def test_without_the_papers_of_a_neighbour_there_is_no_session(files: dict[int | str, Files]) -> None:
    with opened(links(LINE, files)) as nodes:
        victim = nodes[1].link
        with intruder(victim, files[2]) as good:
            until(lambda: bool(good.put("2/1", b"own", (2, 1)) or (2, b"own") in nodes[1].received))
        with pytest.raises(zenoh.ZError), intruder(victim, files[2], certified=False):
            pass
        for stranger in (files["foreign"], files[3], None):
            with pytest.raises(zenoh.ZError), intruder(victim, stranger):
                pass


def test_a_neighbour_cannot_listen_in(files: dict[int | str, Files]) -> None:
    """What 1 sends to 0."""
    with opened(links(LINE, files)) as nodes, intruder(nodes[1].link, files[2]) as ears:
        nodes[1].reaches(nodes[0])
        for _ in range(10):
            nodes[1].transport.send(0, b"secret")
            time.sleep(PAUSE / 10)
        until(lambda: (1, b"secret") in nodes[0].received)
        assert ears.heard == []


@pytest.mark.parametrize("papers", ["foreign", 2])
def test_an_impostor_on_the_address_of_another_gets_nothing(papers: int | str, files: dict[int | str, Files]) -> None:
    chosen = links({0: (1,), 1: (0,)}, files)
    with opened({1: chosen[1]}) as nodes:
        with opened({0: replace(chosen[0], tls=files[papers])}) as impostors:
            for _ in range(10):
                nodes[1].transport.send(0, b"secret")
                time.sleep(PAUSE / 10)
            assert nodes[1].transport.connected == frozenset()
            assert impostors[0].received == []
        with opened({0: chosen[0]}) as genuine:
            nodes[1].reaches(genuine[0], b"secret")


# Bad input


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"network": "a/b"}, "network"),
        ({"network": "**"}, "network"),
        ({"network": ""}, "network"),
        ({"learner": -1}, "learner"),
        ({"learner": 0}, "learner"),
        ({"listen": "127.0.0.1:70000"}, "address"),
        ({"peers": {0: Peer("127.0.0.1", b"", b"")}}, "address"),
    ],
)
def test_bad_links_are_refused(changed: dict[str, Any], field: str, files: dict[int | str, Files]) -> None:
    good = Link("0a", 1, "127.0.0.1:7401", {0: peer("127.0.0.1:7400", files[0], 0, 1)}, files[1])
    with pytest.raises(ConfigurationError, match=field):
        replace(good, **changed)


@pytest.mark.parametrize("address", ["[::1]:7401", "localhost:1", "node-1.example:65535", "10.0.0.7:7400", "3com:80"])
def test_addresses(address: str) -> None:
    parts_of(address)
    host, _, port = address.rpartition(":")
    assert address_of(host, int(port)) == address
    assert address_of(host.strip("[]"), int(port)) == address


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:", ":7400", "", "host:\u0663"),
        *("::1:7400", "[::1:7400", "[1:2]:7400", "[127.0.0.1]:7400", "[fe80::1%eth0]:7400", "[]:7400"),
        *("10.0.0.256:7400", "10.0.0:7400", "10.0.0.7.:7400", "a..b:7400", "a b:7400", "\u00e9.example:7400"),
        *("127.0.0.1:7401#iface=eth0", "tls/127.0.0.1:7401", "127.0.0.1:7400\n"),
    ],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ConfigurationError, match="address"):
        parts_of(address)


def test_missing_files_are_refused(files: dict[int | str, Files]) -> None:
    with pytest.raises(ConfigurationError, match=r"certificate: got .*gone\.pem"):
        replace(files[0], certificate=Path("gone.pem"))


def test_send_only_to_peers(files: dict[int | str, Files]) -> None:
    link = Link("0a", 1, "127.0.0.1:7401", {0: peer("127.0.0.1:7400", files[0], 0, 1)}, files[1])
    with pytest.raises(NetworkError, match="does not speak to learner 2"):
        ZenohTransport(link).send(2, b"")


def test_a_taken_address_and_a_second_open_are_refused(files: dict[int | str, Files]) -> None:
    chosen = links({0: ()}, files)
    with opened(chosen) as nodes:
        with pytest.raises(NetworkError, match="open already"):
            nodes[0].open()
        with pytest.raises(NetworkError, match=f"Cannot listen on {chosen[0].listen}.*in use") as caught:
            Node(chosen[0]).open()
        assert ".rs" not in str(caught.value)


def test_the_key_of_another_certificate_is_refused(files: dict[int | str, Files]) -> None:
    link = links({0: ()}, files)[0]
    with pytest.raises(NetworkError, match="KeyMismatch"):
        Node(replace(link, tls=replace(files[0], key=files[1].key))).open()


@pytest.mark.parametrize("name", ["certificate", "key"])
@pytest.mark.parametrize("content", [b"", b"no PEM", bytes(range(256))])
def test_broken_files_are_refused(name: str, content: bytes, files: dict[int | str, Files], tmp_path: Path) -> None:
    (tmp_path / "broken.pem").write_bytes(content)
    link = links({0: (), 1: (0,)}, files)[1]
    with pytest.raises(NetworkError, match="Cannot listen on"):
        Node(replace(link, tls=replace(files[1], **{name: tmp_path / "broken.pem"}))).open()


def test_without_zenoh_it_says_what_to_install(files: dict[int | str, Files], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zenoh", None)
    with pytest.raises(ConfigurationError, match=r"Pip install gossamer\[net\]"):
        Node(links({0: ()}, files)[0]).open()
