"""Certificates end, keys do not: a node renews its certificate while it runs, and nothing is lost or void."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gossamer import Budget, algorithms, problems, streams, topology
from gossamer.cli import app
from gossamer.errors import ConfigurationError, GossamerError, PrivacyError
from gossamer.net import Files, Link, NodeDirectory, Pace, prepared, try_network
from gossamer.net.wire import renewal
from gossamer.net.wire.certificates import certificate_for, common_name, described
from gossamer.net.wire.renewal import RenewedTransport, renew
from gossamer.net.wire.zenoh_link import ZenohTransport
from tests.networks import Member, papers, peer, repeatable, run_all, until, zenoh_transports

NETWORK = "5eed"
ALGORITHM = prepared(algorithms.pd_ogd(problems.Linear(3), topology.ring(3), budget=Budget(1.0), clip=1.0, step=0.1))
PAIR = algorithms.d_ogd(problems.Linear(2), topology.complete(2), step=0.1)
DAY = timedelta(days=1)


def days_left(files: Files) -> float:
    return (described(files.certificate.read_bytes()).until - datetime.now(UTC)) / DAY


def ends_in(files: Files, days: float, network: str = NETWORK, learner: int = 0) -> None:
    """A certificate for the same key that ends so soon."""
    name = common_name(network, learner)
    files.certificate.write_bytes(certificate_for(files.key.read_bytes(), name, ["127.0.0.1"], days * DAY))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return papers(tmp_path, NETWORK, 0)


def test_a_new_certificate_has_the_same_key_name_and_hosts(files: Files) -> None:
    old = described(files.certificate.read_bytes())
    ends_in(files, 3)
    until_when = renew(files, old.hosts)
    new = described(files.certificate.read_bytes())
    assert new[:3] == old[:3]
    assert new.until == until_when
    assert 364 < days_left(files) <= 365
    renew(files, ["10.0.0.7"])
    assert described(files.certificate.read_bytes()).hosts == ["10.0.0.7"]


def test_a_certificate_of_another_key_is_not_renewed(files: Files, tmp_path: Path) -> None:
    other = papers(tmp_path / "other", NETWORK, 0)
    mixed = Files(other.certificate, files.key)
    before = other.certificate.read_bytes()
    with pytest.raises(PrivacyError, match="is not for the key"):
        renew(mixed)
    assert other.certificate.read_bytes() == before
    files.certificate.write_text("no certificate")
    with pytest.raises(ConfigurationError, match=r"cert\.pem"):
        renew(files)


def two(folder: Path, days: float) -> list[ZenohTransport]:
    """Two learners; 1 knows 0 by a certificate that ended, and 0 shows one that ends in so many days."""
    made = zenoh_transports(folder, PAIR, NETWORK)
    shown = [transport._link.tls for transport in made]
    ends_in(shown[0], -3)
    known = [peer(made[i]._link.listen, shown[i], 0, 1) for i in range(2)]
    ends_in(shown[0], days)
    return [ZenohTransport(Link(NETWORK, i, known[i].address, {1 - i: known[1 - i]}, shown[i])) for i in range(2)]


@pytest.mark.parametrize("speaker", [0, 1])
@pytest.mark.parametrize(("days", "reached"), [(1.0, True), (-1.0, False)])
def test_who_pinned_an_old_certificate_trusts_the_new_one_of_its_key(
    tmp_path: Path, speaker: int, days: float, reached: bool
) -> None:
    """The pin is the key. A certificate that has ended is shown in vain, also by whom everybody knows."""
    transports, got = two(tmp_path, days), threading.Event()
    try:
        for transport in transports:
            transport.open(lambda sender, data: got.set())
        if reached:
            until(lambda: bool(transports[speaker].send(1 - speaker, b"hello")) or got.wait(0.01))
        else:
            assert not got.wait(0.5)
            assert [transport.connected for transport in transports] == [frozenset()] * 2
    finally:
        for transport in transports:
            transport.close()


def test_nodes_go_on_while_certificates_change(tmp_path: Path) -> None:
    """Every node changes its certificate three times; all play bit for bit what they play without that."""
    (calm, used), (changed, more) = (run(tmp_path / str(renewals), renewals) for renewals in (0, 3))
    assert (used, more) == (["certificate_used"] * 3, ["certificate_used"] * 12)
    np.testing.assert_array_equal(calm, changed)


def run(folder: Path, renewals: int, steps: int = 60) -> tuple[np.ndarray, list[str]]:
    """What three nodes play, each renewing so often; nothing is missing or void."""
    inner, used = zenoh_transports(folder / "papers", ALGORITHM), list[str]()
    files = [one._link.tls for one in inner]
    transports = [
        RenewedTransport(one, mine, lambda event, _: used.append(event), look=0.02)
        for one, mine in zip(inner, files, strict=True)
    ]
    pace, stream = Pace(deadline=30.0, period=0.03), streams.random_signs(3, 3, seed=4)
    members = repeatable(folder, ALGORITHM, transports, stream, steps, pace=pace, exchanges=steps)
    changes = threading.Thread(target=change, args=(files, members, renewals, used))
    changes.start()
    run_all(members)
    changes.join()
    for member in members:
        numbers = member.node.board.numbers()
        assert (numbers["missing"], numbers["void"]) == (0, 0)
    return np.array([[member.played[step] for step in range(steps)] for member in members]), used


def change(files: list[Files], members: list[Member], renewals: int, used: list[str]) -> None:
    for turn in range(renewals):
        for mine, member in zip(files, members, strict=True):
            before = len(used)
            until(lambda m=member, t=turn: len(m.played) > 10 * (t + 1))  # type: ignore[misc]
            renew(mine)
            until(lambda n=before: len(used) > n)  # type: ignore[misc]


class Counted:
    """A transport that counts how often it was opened, and fails as often as it is told."""

    def __init__(self, fails: int = 0) -> None:
        self.opens, self.fails, self.connected = 0, fails, frozenset[int]()

    def open(self, receive: object) -> None:
        self.opens += 1
        if self.opens > 1 and self.fails:
            self.fails -= 1
            raise GossamerError("the address is in use")

    def send(self, receiver: int, data: bytes) -> None: ...

    def close(self) -> None: ...


def opened(inner: Counted, files: Files) -> tuple[RenewedTransport, list[tuple[str, datetime]]]:
    told: list[tuple[str, datetime]] = []
    made = RenewedTransport(inner, files, lambda *facts: told.append(facts), look=0.01)
    made.open(lambda sender, data: None)
    return made, told


@pytest.mark.parametrize(("days", "renewed"), [(200.0, False), (100.0, True), (-1.0, True)])
def test_what_ends_soon_is_renewed_at_the_start(files: Files, days: float, renewed: bool) -> None:
    ends_in(files, days)
    transport, told = opened(Counted(), files)
    transport.close()
    assert (days_left(files) > 300) == renewed
    assert [event for event, _ in told] == ["certificate_used"]


def test_what_ends_soon_is_renewed_while_the_node_runs(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "_AGAIN", 0.01)
    inner = Counted(fails=2)
    transport, told = opened(inner, files)
    ends_in(files, 50)
    until(lambda: inner.opens == 4)  # once at first, and three times until it succeeds
    transport.close()
    assert days_left(files) > 300
    assert told[-1] == ("certificate_used", described(files.certificate.read_bytes()).until)


def test_a_certificate_that_cannot_be_renewed_is_told_of(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(renewal, "private_file", full)
    ends_in(files, 100)
    transport, told = opened(Counted(), files)
    transport.close()
    assert [event for event, _ in told] == ["certificate_used"]
    ends_in(files, 20)
    transport, told = opened(Counted(), files)
    transport.close()
    assert {event for event, _ in told} == {"certificate_ends", "certificate_used"}
    ends_in(files, -1)
    with pytest.raises(ConfigurationError, match="no space left"):
        opened(Counted(), files)


def test_a_certificate_of_somebody_else_is_not_taken(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inner = Counted()
    with caplog.at_level(logging.ERROR):
        transport, told = opened(inner, files)
        files.certificate.write_bytes(papers(tmp_path / "other", NETWORK, 0).certificate.read_bytes())
        until(lambda: "is not for the key" in caplog.text)
    transport.close()
    assert (inner.opens, len(told)) == (1, 1)


def test_the_command(tmp_path: Path) -> None:
    node = try_network(tmp_path / "net", ALGORITHM, hosts=["127.0.0.1"] * 3, arrivals="public")[1]
    pinned = node.members().fingerprint
    done = CliRunner().invoke(app, ["node", "renew", str(node.path), "--host", "10.0.0.7"])
    assert done.exit_code == 0, done.stderr
    assert "nobody has to be told" in done.output
    assert described(node.files().certificate.read_bytes()).hosts == ["10.0.0.7"]
    assert NodeDirectory(node.path).members().fingerprint == pinned
