"""Nodes among intruders: nothing forged, foreign, old or broken moves a decision, and no secret leaves a node."""

from __future__ import annotations

import base64
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import msgpack
import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from typer.testing import CliRunner

from gossamer import topology
from gossamer.algorithms import REGISTRY
from gossamer.cli import app
from gossamer.core import Algorithm
from gossamer.net.directory import NodeDirectory
from gossamer.net.node.agreement import prepared
from gossamer.net.node.correspondence import Pace
from gossamer.net.startup import launch
from gossamer.net.store.ledger import LedgerError
from gossamer.net.wire.frames import REASONS, VERSION
from gossamer.net.wire.pairs import Tags
from gossamer.net.wire.transport import Receive, Transport
from gossamer.net.wire.zenoh_link import Files, Link
from tests import instances
from tests.networks import (
    Hub,
    Member,
    free_range,
    padded,
    pair,
    papers,
    repeatable,
    run_all,
    until,
    zenoh_transports,
)
from tests.test_faults import Ran, head, warm
from tests.test_zenoh_link import intruder, zenoh

NETWORK = "0" * 32
EXCHANGES = 600  # more than anybody waits for: nodes are stopped before
PERIOD = 0.1
LONGEST = 300


@dataclass
class Recorder:
    """A transport that keeps what it carries."""

    inner: Any
    frames: list[tuple[int, bytes]] = field(default_factory=list)

    def open(self, receive: Receive) -> None:
        def received(sender: int, data: bytes) -> None:
            self.frames.append((sender, data))
            receive(sender, data)

        self.inner.open(received)

    def send(self, receiver: int, data: bytes) -> None:
        self.frames.append((receiver, data))
        self.inner.send(receiver, data)

    @property
    def connected(self) -> frozenset[int]:
        return frozenset(self.inner.connected)

    def close(self) -> None:
        self.inner.close()


# Intruders among nodes that run: learners on the line 0 - 1 - 2 - 3, and learner 1 is the victim.


@dataclass
class Network:
    """Four nodes over Zenoh with keys, run ids and data that are always the same, and what 1 heard."""

    algorithm: Algorithm
    members: list[Member]
    heard: Recorder
    links: list[Link]

    def played(self) -> np.ndarray:
        """What all of them played, as far as all of them came."""
        length = min(len(member.played) for member in self.members)
        return np.stack([[member.played[t] for member in self.members] for t in range(length)])

    def recorded(self, sender: int) -> bytes:
        """An old message of a sender to learner 1."""

        def found() -> list[bytes]:
            messages = [data for _, data in list(self.heard.frames) if head(data)[:2] == ("message", 2)]
            return [data for data in messages if msgpack.unpackb(data)[4] == sender]

        until(lambda: bool(found()))
        return found()[0]

    def dropped(self, reason: str) -> int:
        return Ran(self.members, Hub(), []).dropped(1)[reason]


@contextmanager
def running(folder: Path, *, refused: bool = False, period: float = PERIOD) -> Iterator[Network]:
    """In the body the nodes run; after it they are stopped, or, if that is allowed, one refused to go on."""
    algorithm = prepared(REGISTRY["pd_ogd"].make(instances.problem(), topology.path(4), **REGISTRY["pd_ogd"].example))
    warm(algorithm)
    stream = instances.stream(4, EXCHANGES)
    transports = zenoh_transports(folder / "certificates", algorithm, NETWORK)
    links = [transport._link for transport in transports]
    carried: list[Transport] = [*transports]
    carried[1] = heard = Recorder(transports[1])
    pace = Pace(deadline=2.0 if refused else 30.0, period=period)
    members = repeatable(folder, algorithm, carried, stream, EXCHANGES, network=NETWORK, pace=pace, exchanges=EXCHANGES)
    errors: list[BaseException] = []
    thread = threading.Thread(target=_all, args=(members, errors))
    thread.start()
    try:
        yield Network(algorithm, members, heard, links)
    finally:
        for member in members:
            member.node.stop()
        thread.join()
    assert not errors or (refused and isinstance(errors[0], LedgerError)), errors


def _all(members: list[Member], errors: list[BaseException]) -> None:
    try:
        run_all(members)
    except BaseException as error:
        errors.append(error)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    with running(tmp_path_factory.mktemp("undisturbed"), period=0.0) as network:
        until(lambda: min(len(member.played) for member in network.members) >= LONGEST)
    assert np.ptp(network.played()[-1]) > 0
    return network.played()


def put(session: Any, key: str, data: bytes, tag: int | None = None) -> None:
    """Send, as a learner whose secret with learner 1 is known; by default as the one that the key names."""
    sender = key[0] if tag is None else tag
    sender = int(sender) if str(sender) in "023" else 2  # a pattern names nobody
    tagged = Tags(sender, {1: pair(sender, 1)}).tagged(1, data)
    session.put(f"gossamer/{NETWORK}/{key}", tagged, congestion_control=zenoh.CongestionControl.BLOCK)


def forged(frame: bytes, **changes: Any) -> bytes:
    """A frame with other fields, and with values that would be seen: version, network, config, ..., leaves."""
    fields = msgpack.unpackb(frame)
    for name, value in changes.items():
        fields[("version", "network", "config", "kind", "sender", "exchange", "step").index(name)] = value
    [[dtype, shape, raw]] = fields[8]
    return bytes(msgpack.packb(padded(fields[:7], [[dtype, shape, struct.pack("<f", 1.0) * (len(raw) // 4)]])))


def later(network: Network) -> range:
    """Exchanges that learner 1 has not reached and would keep frames of."""
    now = max(network.members[1].played)
    return range(now + 2, now + 6)


def forge(session: Any, network: Network, frame: bytes) -> int:
    """Send forged frames of exchanges to come; how many genuine ones came after such a frame, and were dropped."""
    for exchange in later(network):
        put(session, "0/1", forged(frame, exchange=exchange))
    return network.dropped("other_payload")


def same(network: Network, undisturbed: np.ndarray) -> bool:
    """Whether decisions are those of the undisturbed run, bit by bit, as far as both go."""
    played = network.played()
    length = min(len(played), len(undisturbed))
    assert length > 10
    return np.array_equal(played[:length], undisturbed[:length])


@contextmanager
def replaying(victim: Link, papers: Files, key: str, frame: bytes, count: Callable[[], int]) -> Iterator[Any]:
    """A session that has sent an old frame until it was dropped a few times: what is sent first may be lost."""
    with intruder(victim, papers) as one:
        before = count()
        until(lambda: bool(put(one.session, key, frame) or count() >= before + 5))  # type: ignore[func-returns-value]
        yield one


def tls_of(folder: Path, name: int) -> Files:
    return Files(*(folder / f"certificates/{name}.{end}" for end in ("pem", "key")))


def test_an_owner_of_a_certificate_can_do_harm(undisturbed: np.ndarray, tmp_path: Path) -> None:
    """The frames of the test below do move decisions, or stop the one in whose name they come, with its certificate."""
    with running(tmp_path, refused=True) as network:
        frame, genuine = network.recorded(0), network.members[0]
        victim = network.links[1]
        with replaying(victim, tls_of(tmp_path, 0), "0/1", frame, lambda: network.dropped("late")) as other:
            for _ in range(60):  # a few at a time: a flood would only be dropped
                if forge(other.session, network, frame) or genuine.error is not None:
                    break
                time.sleep(0.05)
            now = max(network.members[1].played)
            until(lambda: genuine.error is not None or max(network.members[1].played) > now + 8)
    assert genuine.error is not None or not same(network, undisturbed)


def test_intruders_move_no_decision(undisturbed: np.ndarray, tmp_path: Path) -> None:
    with running(tmp_path) as network:
        frames, victim = {i: network.recorded(i) for i in (0, 2)}, network.links[1]
        foreign, stranger = papers(tmp_path / "foreign", NETWORK, 0), tls_of(tmp_path, 3)
        for theirs, certified in ((tls_of(tmp_path, 0), False), (foreign, True), (stranger, True), (None, True)):
            with pytest.raises(zenoh.ZError), intruder(victim, theirs, certified=certified):
                pass
        by_another = replaying(victim, tls_of(tmp_path, 2), "2/1", frames[0], lambda: network.dropped("sender"))
        with by_another as neighbour:
            before = network.dropped("sender")
            for exchange in later(network):
                for key in ("0/1", "*/1", "2/1"):  # the last arrives, and names another sender
                    put(neighbour.session, key, forged(frames[0], exchange=exchange))
            put(neighbour.session, "0/1", frames[0])
            until(lambda: network.dropped("sender") >= before + len(later(network)))
        by_itself = replaying(victim, tls_of(tmp_path, 0), "0/1", frames[0], lambda: network.dropped("late"))
        with by_itself as sender:
            for exchange in later(network):
                put(sender.session, "0/1", forged(frames[0], exchange=exchange, network=b"\1" * 16))
                put(sender.session, "0/1", forged(frames[0], exchange=exchange, config=b"\1" * 32))
                put(sender.session, "0/1", forged(frames[0], exchange=exchange, version=VERSION + 1))
            until(lambda: min(map(network.dropped, ("network", "configuration", "version"))) == 4)
        now = max(network.members[1].played)
        until(lambda: max(network.members[1].played) > now + 6)  # what was sent for exchanges to come was looked at
    assert same(network, undisturbed)


# Broken frames


FUZZED = 100_000
FUZZED_AT = 130  # an exchange whose number no single change makes of that of an earlier one


@dataclass
class Fuzzed:
    """What a run with broken frames left behind: drops by reason and frames that were answered or believed."""

    members: list[Member]
    dropped: dict[str, int] = field(default_factory=dict)
    answered: int = 0
    believed: int = 0


def test_broken_frames_move_nothing(tmp_path: Path) -> None:
    """In the middle of a run 100,000 of them come from both neighbours, from strangers and from itself."""
    clean, broken = fuzzed_run(tmp_path / "clean", 0), fuzzed_run(tmp_path / "broken", FUZZED)
    for one, other in zip(clean.members, broken.members, strict=True):
        np.testing.assert_array_equal(np.stack(list(other.played.values())), np.stack(list(one.played.values())))
    assert sum(broken.dropped.values()) + broken.answered + broken.believed == FUZZED
    often = {reason for reason, count in broken.dropped.items() if count > 100}
    assert often == {*REASONS, "late", "stranger"}


def fuzzed_run(folder: Path, count: int) -> Fuzzed:
    """Three nodes; learner 0 is given broken frames before it speaks at one exchange, in its own thread."""
    algorithm = prepared(REGISTRY["pd_ogd"].make(instances.problem(), topology.ring(3), **REGISTRY["pd_ogd"].example))
    warm(algorithm)
    stream, hub, exchanges = instances.stream(3, FUZZED_AT + 5), Hub(), FUZZED_AT + 5
    transports, pace = map(hub.transport, range(3)), Pace(deadline=120.0)
    members = repeatable(folder, algorithm, transports, stream, exchanges, pace=pace, exchanges=exchanges)
    left, victim = Fuzzed(members), members[0]

    def play(exchange: int, decision: np.ndarray) -> None:
        victim.played[exchange] = decision
        if exchange == FUZZED_AT:
            torment(victim, hub, count, left)

    victim.node._play = play
    run_all(members)
    return left


def torment(victim: Member, hub: Hub, count: int, left: Fuzzed) -> None:
    """Send broken frames to a node, and check that all it keeps is as before."""
    node, ran = victim.node, Ran([victim], hub, [])
    state, before = kept_by(node), ran.dropped(0)
    post, inbox, broken = node._post, node._post._inbox, [b""]
    look = inbox._look

    def looked(sender: int, data: bytes) -> Any:
        frame = look(sender, data)
        if frame is not None:
            left.answered += frame.kind == "want" and data is broken[-1]  # neighbours that wait for it ask too
            left.believed += frame.kind == "seen"
        return frame

    inbox._look = looked
    for sender, data in fuzz(list(hub.sent), count):
        broken[-1] = data
        inbox.put(sender, data)
        post.look(0.0)
    inbox._look = look
    left.dropped = {reason: now - before[reason] for reason, now in ran.dropped(0).items()}
    assert kept_by(node) == state


def kept_by(node: Any) -> list[bytes]:
    """All that a learner and its gossip remember."""
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((node._state, node._gossip.arrays()))]


def fuzz(sent: list[tuple[int, int, bytes]], count: int) -> Iterator[tuple[int, bytes]]:
    """Random bytes, and real frames with changed, missing or added bytes or with other fields."""
    rng = np.random.default_rng(11)
    real = [(sender, data) for sender, receiver, data in sent if receiver == 0 and head(data)[1] < 100]
    longest = max(len(data) for _, data in real)
    for number in range(count):
        sender, data = real[int(rng.integers(len(real)))]
        whoever = int(rng.integers(-1, 4))
        yield (whoever, data) if number % 8 == 7 else (sender, broken_frame(rng, number % 8, data, longest))


def broken_frame(rng: np.random.Generator, way: int, data: bytes, longest: int) -> bytes:
    place = int(rng.integers(len(data)))
    ways: list[Callable[[], bytes]] = [
        lambda: rng.bytes(int(rng.integers(0, 2 * longest))),
        lambda: data[:place],
        lambda: data + rng.bytes(int(rng.integers(1, 9))),
        lambda: data[:place] + rng.bytes(1) + data[place:],
        lambda: data[:place] + bytes([data[place] ^ 1 << int(rng.integers(8))]) + data[place + 1 :],
        lambda: data[:place] + rng.bytes(len(data) - place),
        lambda: other_fields(rng, data),
    ]
    return ways[way]()


def other_fields(rng: np.random.Generator, data: bytes) -> bytes:
    """One field is something else, well packed."""
    numbers = [None, True, -1, 2**40, 2**63, 1.5, 3, 0]
    strange: list[Any] = [*numbers, "x", b"\0" * 16, b"\0" * 32, [], {}, [["<f4", [5], b"\xff" * 20]]]
    fields, place, value = msgpack.unpackb(data), int(rng.integers(9)), strange[int(rng.integers(len(strange)))]
    if place == 5 and value == 2**40 and head(data)[0] != "want":
        return b""  # well formed: a neighbour who has sent, or seen, more than the ledger holds is believed
    fields[place] = value
    return bytes(msgpack.packb(fields))


# Secrets. Nodes 0 and 1 are processes; node 2, here, writes down all that it is sent and sends.


SECONDS = 60.0  # only a failing test waits this long
TOML = """
[problem]
kind = "logistic"
dim = 4
feature_bound = 2.0
domain = {kind = "l2-ball", radius = 3.0}
[topology]
kind = "complete"
[algorithm]
name = "ldp_endless"
budget = {epsilon = 200.0}
clip = 1.0
horizon = 500
"""
LEAKING = 30  # exchanges


def marked(learner: int) -> np.ndarray:
    """Samples of one learner with features that nobody else would write: float32 with long decimals."""
    return np.random.default_rng(100 + learner).uniform(0.1, 0.9, size=(LEAKING, 4)).astype(np.float32)


def texts(value: np.float32) -> set[bytes]:
    """Decimal forms, short and long, without rounding to less than 7 digits."""
    return {repr(float(value)).encode(), str(value).encode(), f"{value:.7f}".encode()}


def needles_of(node: Path, learner: int) -> dict[str, set[bytes]]:
    """All forms in which a secret of one node could appear."""
    key, pair_key = (node / "noise.key").read_bytes(), (node / "pair.key").read_bytes()
    pem = (node / "cert.key").read_bytes()
    private = serialization.load_pem_private_key(pem, None)
    der = private.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    rows = marked(learner)
    doubles = rows.astype(np.float64)
    return {
        "noise key": {*in_text(key), in_text(key[:16])[1], in_text(key[16:])[1], key[:16], key[16:]},
        "pair key": {*in_text(pair_key), *in_text(pair_key[:16])},
        "TLS key": {
            *in_text(der[-40:]),
            *(line for line in pem.splitlines() if len(line) > 40 and b"-----" not in line),
        },
        # Two features in a row: four bytes alone would appear by chance.
        "samples": {*(row[k : k + 2].tobytes() for row in rows for k in range(3))}
        | {one.tobytes() for one in doubles.ravel()}
        | {text for one in rows.ravel() for text in texts(one)},
    }


def in_text(secret: bytes) -> list[bytes]:
    """As it is, in hexadecimal digits, and in base 64."""
    return [secret, secret.hex().encode(), base64.b64encode(secret).rstrip(b"="), base64.urlsafe_b64encode(secret)]


def found(needles: Mapping[str, set[bytes]], data: bytes) -> set[str]:
    lower = data.lower()
    return {name for name, forms in needles.items() if any(one in data or one in lower for one in forms)}


@dataclass
class Processes:
    """A network made by the command line, of which two nodes run in processes of their own."""

    folder: Path
    spy: Recorder
    processes: list[subprocess.Popen[bytes]]
    pages: list[str]
    needles: dict[str, set[bytes]]
    ended: list[tuple[int, float]] = field(default_factory=list)

    def node(self, learner: int) -> Path:
        return self.folder / f"node-{learner}"

    def ask(self, learner: int, path: str, body: bytes | None = None) -> bytes:
        try:
            with urllib.request.urlopen(f"http://{self.pages[learner]}{path}", body, timeout=10) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as refusal:
            return refusal.read()


def command(*arguments: object) -> bytes:
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exit_code == 0, done.output
    return done.output.encode()


def start(node: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "gossamer", "node", str(node), "--exchanges", str(LEAKING)]
    with (node.parent / f"{node.name}.log").open("wb") as log:
        return subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **environment})


def write_samples(node: Path, learner: int) -> None:
    """Marked samples, between lines that are wrong and hold marked values too."""
    lines = [json.dumps({"x": row.tolist(), "y": k % 2}) for k, row in enumerate(marked(learner))]
    row = marked(learner)[0].tolist()
    wrong = [json.dumps({"x": row[:3], "y": 1}), json.dumps({"x": row, "y": row[0]}), lines[0][:-9], json.dumps(row)]
    wrong.append(json.dumps({"x": [*row[:3], float("nan")], "y": 1}))
    (node / "samples.jsonl").write_text("\n".join([*lines[:3], *wrong, *lines[3:]]) + "\n", encoding="utf-8")
    settings = node / "node.toml"
    settings.write_text(settings.read_text().replace("allow = []", 'allow = ["unusable"]'))


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("leaks")
    (folder / "a.toml").write_text(TOML)
    ports = free_range(3), free_range(3)
    home = {"XDG_STATE_HOME": str(folder / "state")}
    said = command(
        "network", "try", folder / "net", "--algorithm", folder / "a.toml", "--nodes", 3,
        "--port", ports[0], "--http-port", ports[1], "--period", 0.02,
        "--exchanges", LEAKING,
    )  # fmt: skip
    nodes = [folder / f"net/node-{i}" for i in range(3)]
    needles: dict[str, set[bytes]] = {}
    for i, node in enumerate(nodes):
        write_samples(node, i)
        for name, forms in needles_of(node, i).items():
            needles[name] = needles.get(name, set()) | forms
    (folder / "net/init.log").write_bytes(said)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", home["XDG_STATE_HOME"])
        directory = NodeDirectory(nodes[2])
        third = launch(directory, directory.settings(), directory.agreement().algorithm(), exchanges=LEAKING)
    third.node._post._transport = spy = Recorder(third.node._post._transport)
    started = [start(node, home) for node in nodes[:2]]
    thread = threading.Thread(target=third.run, kwargs={"linger": True})
    thread.start()
    made = Processes(folder / "net", spy, started, [f"127.0.0.1:{ports[1] + i}" for i in range(3)], needles)
    try:
        wait_for(lambda: all(b"finished" in made.ask(i, "/healthz") for i in range(3)), started)
        yield made
    finally:
        third.node.stop()
        thread.join()
        for process in started:
            process.kill()
            process.wait()


def wait_for(condition: Callable[[], bool], started: list[subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + SECONDS
    while True:
        try:
            if condition():
                return
        except OSError:
            pass  # its page is not there yet
        assert all(process.poll() is None for process in started), "a node ended"
        assert time.monotonic() < end, "the nodes did not come to their end"
        time.sleep(0.05)


def test_secrets_are_found_where_they_are(processes: Processes) -> None:
    """The search finds what it looks for."""
    for i in range(3):
        node = processes.node(i)
        assert found(processes.needles, (node / "noise.key").read_bytes()) == {"noise key"}
        assert found(processes.needles, (node / "cert.key").read_bytes()) == {"TLS key"}
        assert found(processes.needles, (node / "pair.key").read_bytes()) == {"pair key"}
        assert found(processes.needles, (node / "samples.jsonl").read_bytes()) == {"samples"}
        stored = b"".join(file.read_bytes() for file in node.glob("ledger.db*"))
        assert found(processes.needles, stored) == {"samples"}


def test_secrets_are_in_no_frame(processes: Processes) -> None:
    frames = [data for _, data in processes.spy.frames]
    assert sum(head(data)[0] == "message" for data in frames) >= 4 * LEAKING
    assert not found(processes.needles, b"|".join(frames))


def test_secrets_are_in_no_log_page_or_export(processes: Processes, tmp_path: Path) -> None:
    row = marked(0)[0].tolist()
    bad = [json.dumps({"features": row}), json.dumps({"x": row[:3]}), json.dumps({"x": [*row[:3], "a"]}), "{"]
    for i in range(3):
        node = processes.node(i)
        shown = [processes.ask(i, path) for path in ("/metrics", "/healthz", "/guarantee", "/decision", "/nothing")]
        assert all(shown)
        shown += [processes.ask(i, "/predict", one.encode()) for one in bad]
        shown += [command("ledger", "show", node), command("ledger", "export", node, "--out", tmp_path / f"{i}.jsonl")]
        shown.append((tmp_path / f"{i}.jsonl").read_bytes())
        assert (node / "rejected.log").read_text().count("\n") == 5
        shown += [file.read_bytes() for file in (node / "rejected.log", node / "node.toml", node / "agreement.json")]
        assert not found(processes.needles, b"|".join(shown))
    logs = [(processes.folder / name).read_bytes() for name in ("init.log", "node-0.log", "node-1.log")]
    assert all(b"started" in log for log in logs[1:])
    assert not found(processes.needles, b"|".join(logs))


def test_secret_files_are_their_owners_alone(processes: Processes) -> None:
    assert (processes.folder / "coordinator.key").stat().st_mode & 0o777 == 0o600
    for i in range(3):
        node = processes.node(i)
        names = ["noise.key", "cert.key", "pair.key", "rejected.log", *(file.name for file in node.glob("ledger.*"))]
        assert {"ledger.db", "ledger.db-wal"} <= set(names)
        assert {name: (node / name).stat().st_mode & 0o777 for name in names} == dict.fromkeys(names, 0o600)


def test_a_directory_runs_once_and_ends_when_told(processes: Processes) -> None:
    words = [sys.executable, "-m", "gossamer", "node", str(processes.node(0))]
    home = {"XDG_STATE_HOME": str(processes.folder.parent / "state")}
    second = subprocess.run(words, capture_output=True, timeout=SECONDS, env={**os.environ, **home}, check=False)
    assert (second.returncode, second.stdout) == (2, b"")
    assert len(second.stderr.decode().strip().splitlines()) == 1
    assert not found(processes.needles, second.stderr)
    for process in processes.processes:
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert time.monotonic() - begun < 5.0
