"""A network that goes on: members come and leave, the horizon grows, and nobody spends more than its owner said."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from gossamer import Budget, algorithms, topology
from gossamer.cli import app
from gossamer.errors import ConfigurationError, GossamerError, NetworkError, PrivacyError
from gossamer.net import (
    Agreement,
    Bill,
    Link,
    Members,
    NodeDirectory,
    Request,
    ZenohTransport,
    admit,
    change_network,
    follow,
    launch,
    prepared,
)
from gossamer.net.ledgers import checked_ledger, distinct
from gossamer.net.node.spending import added_up, costs_of
from gossamer.net.wire.certificates import described
from gossamer.net.wire.renewal import renew
from tests.lives import (
    NAMES,
    PROBLEM,
    agree,
    algorithm_for,
    begun,
    changed,
    folder,
    followed,
    hub,
    joined,
    lived,
    made,
    nodes,
    rows_of,
    rows_read,
    run,
    same,
    sites,
)
from tests.networks import Hub, free_range, until

__all__ = ["folder", "hub", "made", "nodes"]  # fixtures


def files_of(coordinator: Path) -> tuple[Path, Path]:
    return coordinator / "agreement.json", coordinator / "members.json"


def spent(*nodes: NodeDirectory) -> float:
    with ExitStack() as stack:
        ledgers = [checked_ledger(node.path, stack) for node in nodes]
        return added_up([cost for one in distinct(ledgers) for cost in costs_of(one)])[0]


# One member comes, one leaves


def test_one_comes_and_one_leaves(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    """Those that stay keep keys, pins and ledgers; only the new key is compared; spends add up, records go on."""
    assert run(nodes, 5) == ["finished"] * 3
    second = changed(folder, add={"east": "127.0.0.1:7409"}, remove=["west"])
    assert not (second / "members.json").exists()
    east = joined(folder, "east", second, folder / "east")
    done = admit(second, [east.path / "request.json"])
    assert done.members is not None
    asked: list[list[str]] = []

    def compared(members: Members, new: list[str]) -> bool:
        asked.append(list(new))
        return members.fingerprints["east"] == done.fingerprints["east"]

    after = {
        name: follow(nodes[name], folder / f"{name}-2", *files_of(second), compared=compared, consent=agree)
        for name in ("north", "south")
    }
    assert asked == [["east"]] * 2
    east.accept(second / "members.json", lambda members: members.fingerprint == done.members.fingerprint)
    for name, node in after.items():
        for kept in ("cert.key", "pair.key"):
            assert (node.path / kept).read_bytes() == (nodes[name].path / kept).read_bytes()
        assert (node.path / "noise.key").read_bytes() != (nodes[name].path / "noise.key").read_bytes()
        assert node.accepted().items() >= {one: nodes[name].accepted()[one] for one in ("north", "south")}.items()
    read = rows_read(nodes["north"])
    assert run({**after, "east": east}, 7) == ["finished"] * 3
    assert (rows_of(nodes["north"]), rows_of(after["north"]), rows_of(east)) == (2 + 5, 2 + 7, 2 + 7)
    lines = (folder / "north.jsonl").read_bytes().splitlines(keepends=True)
    assert read == sum(map(len, lines[:5]))
    assert rows_read(after["north"]) == sum(map(len, lines[:12]))
    assert spent(after["north"], nodes["north"]) == pytest.approx(2.0, rel=1e-3)
    assert spent(east) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        ("sqlite:clinic.db", "sqlite:../../north/clinic.db"),
        ("sqlite:/srv/clinic.db", "sqlite:/srv/clinic.db"),
        ("postgresql://ward@host/clinic", "postgresql://ward@host/clinic"),
        ("-", "-"),
    ],
)
def test_databases_are_found_from_the_new_directory(
    folder: Path, nodes: dict[str, NodeDirectory], data: str, seen: str
) -> None:
    file = nodes["north"].path / "node.toml"
    query = "" if data == "-" else '[query]\nrows = "SELECT * FROM visits"\ncursor = "id"\n'
    lines = [f'data = "{data}"' if line.startswith("data = ") else line for line in file.read_text().splitlines()]
    file.write_text("\n".join(lines) + "\n" + query)
    settings = followed(nodes["north"], changed(folder, exchanges=5), folder / "far" / "new").settings()
    assert settings.data == seen
    assert settings.query == nodes["north"].settings().query


def test_a_member_that_has_left_says_why_it_is_alone(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    second = changed(folder, remove=["west"])
    with pytest.raises(NetworkError, match=r"west is no member any more: .* no other member connects to it"):
        followed(nodes["west"], second, folder / "west-2")
    assert not (folder / "west-2").exists()
    with pytest.raises(NetworkError, match="west is no member any more"):
        run([nodes["west"]], 1)


def test_whoever_stays_does_not_connect_to_who_has_left(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    after = followed(nodes["north"], changed(folder, remove=["west"]), folder / "north-2")
    link = after.link(after.settings(), after.agreement().algorithm().topology)
    gone = described((nodes["west"].path / "cert.pem").read_bytes())
    assert [described(peer.certificate).key == gone.key for peer in link.peers.values()] == [False]


def test_a_key_of_before_is_known_by_its_new_name(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    """Over TLS: numbers and names in certificates have changed, keys have not."""
    first, port = folder / "coordinator", free_range(2)
    second = changed(folder, remove=["north"])
    after = [followed(nodes[name], second, folder / f"{name}-2") for name in ("south", "west")]
    links = [node.link(node.settings(), node.agreement().algorithm().topology) for node in after]
    assert [link.learner for link in links] == [0, 1]
    old = Agreement.read(first / "agreement.json")
    assert [old.number(name) for name in ("south", "west")] == [1, 2]
    transports = []
    for link in links:
        renew(link.tls)  # the next certificate is known, too
        peers = {n: type(p)(f"127.0.0.1:{port + n}", p.certificate, p.secret) for n, p in link.peers.items()}
        transports.append(
            ZenohTransport(Link(link.network, link.learner, f"127.0.0.1:{port + link.learner}", peers, link.tls))
        )
    got = [threading.Event(), threading.Event()]
    try:
        for transport, event in zip(transports, got, strict=True):
            transport.open(lambda sender, data, event=event: event.set())
        for speaker in (0, 1):
            until(lambda s=speaker: bool(transports[s].send(1 - s, b"hello")) or got[1 - s].wait(0.01))
    finally:
        for transport in transports:
            transport.close()


# A longer horizon, and what it costs


def test_a_longer_horizon_is_a_new_run_that_every_owner_agrees_to(
    folder: Path, nodes: dict[str, NodeDirectory], tmp_path: Path
) -> None:
    options = {"budget": Budget(2.0, 1e-6), "clip": 1.0, "step": 0.1, "noise": "gaussian", "horizon": 4}
    private = algorithms.pd_ogd(PROBLEM, topology.complete(3), **options)
    shorter = changed(folder, algorithm=prepared(private))
    first = {name: followed(node, shorter, folder / f"{name}-2") for name, node in nodes.items()}
    assert run(first, 99) == ["exhausted"] * 3
    longer = changed(folder, 3, horizon=6)
    assert Agreement.read(longer / "agreement.json").algorithm().guarantee.horizon == 6
    bills: list[Bill] = []

    def consent(bill: Bill) -> Budget:
        bills.append(bill)
        return bill.whole

    after = {
        name: follow(node, folder / f"{name}-3", *files_of(longer), compared=same, consent=consent)
        for name, node in first.items()
    }
    assert bills[0].spent[0] == pytest.approx(2.0, rel=1e-3)
    assert 2.0 < bills[0].whole.epsilon <= 4.0001
    assert run(after, 99) == ["exhausted"] * 3
    assert rows_of(after["north"]) == 2 + 6 + 1
    assert spent(after["north"], first["north"]) <= bills[0].whole.epsilon
    assert spent(after["north"], first["north"]) > spent(after["north"])


def test_nobody_spends_more_without_its_owner(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    run(nodes, 2)
    second = changed(folder)

    def never(bill: Bill) -> Budget:
        raise ConfigurationError("--epsilon", "no", "what your data may cost in all")

    with pytest.raises(ConfigurationError, match="--epsilon"):
        follow(nodes["north"], folder / "north-2", *files_of(second), compared=same, consent=never)
    with pytest.raises(PrivacyError, match=r"\[budget\]: got 'epsilon 1.5, .* set \[budget\]|Set \[budget\]"):
        follow(
            nodes["north"],
            folder / "north-2",
            *files_of(second),
            compared=same,
            consent=lambda bill: bill.up_to(1.5),
        )
    assert not (folder / "north-2").exists()
    assert not (folder / "north" / "next.json").exists()


def test_a_budget_below_the_first_exchange_is_refused_before_anything_is_sent(
    nodes: dict[str, NodeDirectory], hub: Hub
) -> None:
    north = nodes["north"]
    with (north.path / "node.toml").open("a") as opened:
        opened.write("[budget]\nepsilon = 0.5\ndelta = 1e-6\n")
    with pytest.raises(PrivacyError, match=r"budget: these data may cost epsilon 0.5.*Nothing was sent"):
        run([north], 1)
    assert rows_of(north) == 1
    assert not hub.sent


def test_what_was_followed_runs_no_longer_and_not_at_once(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    run(nodes, 2)
    second = changed(folder)
    running = launch(nodes["south"], nodes["south"].settings(), nodes["south"].agreement().algorithm())
    with running.opened, pytest.raises(NetworkError, match="Stop the other one first"):
        followed(nodes["south"], second, folder / "south-2")
    followed(nodes["south"], second, folder / "south-2")
    with pytest.raises(PrivacyError, match="goes on under a newer agreement"):
        run([nodes["south"]], 3)
    (nodes["south"].path / "next.json").unlink()
    followed(nodes["south"], second, folder / "again")  # the first one was thrown away, say


# What is refused


def test_only_the_next_agreement_of_the_same_coordinator_is_followed(
    folder: Path, nodes: dict[str, NodeDirectory], tmp_path: Path
) -> None:
    north, first = nodes["north"], Agreement.read(folder / "coordinator" / "agreement.json")
    second = changed(folder, remove=["west"])
    with pytest.raises(PrivacyError, match="does not follow the one of"):
        followed(north, folder / "coordinator", folder / "n2")
    begun(tmp_path / "other", NAMES)
    with pytest.raises(PrivacyError, match="somebody else has signed it"):
        followed(north, tmp_path / "other" / "coordinator", folder / "n2")
    forger = Ed25519PrivateKey.generate()
    with pytest.raises(ConfigurationError, match="the one that signed the agreement before"):
        Agreement.new(first.algorithm(), sites(NAMES), first.pace, forger, exchanges=9, after=first)
    after = followed(north, second, folder / "n2")
    with pytest.raises(PrivacyError, match="does not follow the one of"):  # back to the one before
        followed(after, folder / "coordinator", folder / "n3")
    third = folder / "fork"
    change_network(folder / "coordinator", third, add={"east": "127.0.0.1:7409"})
    for other in (second, third):  # once is enough: a copy would not know what the first one spends
        with pytest.raises(PrivacyError, match="goes on under a newer agreement"):
            followed(north, other, folder / "n3")
    document = json.loads((second / "agreement.json").read_text())
    document["follows"] = []
    (second / "agreement.json").write_text(json.dumps(document))
    with pytest.raises(PrivacyError, match="was changed after"):
        followed(nodes["south"], second, folder / "s2")


def test_several_changes_may_be_followed_at_once(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    changed(folder, remove=["west"])
    third = changed(folder, 3)
    after = {name: followed(nodes[name], third, folder / f"{name}-3") for name in ("north", "south")}
    assert run(after, 2) == ["finished"] * 2


def test_other_keys_under_a_known_name_are_refused(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    """The coordinator, or whoever has its key, puts a key of its own in the place of a member that stays."""
    second = changed(folder, add={"east": "127.0.0.1:7409"})
    agreement = Agreement.read(second / "agreement.json")
    own = {name: joined(folder, name, second, folder / f"own-{name}") for name in ("south", "east")}
    signer = Ed25519PrivateKey.from_private_bytes((second / "coordinator.key").read_bytes())
    requests = [
        Request.read((own[name].path if name in own else nodes[name].path) / "request.json", agreement)
        for name in agreement.names
    ]
    (second / "members.json").write_bytes(Members.new(agreement, requests, signer).to_bytes())
    with pytest.raises(PrivacyError, match="the keys of south are not those that were accepted"):
        followed(nodes["north"], second, folder / "north-2")
    with pytest.raises(PrivacyError, match="the keys of south there are not those of"):
        followed(nodes["south"], second, folder / "south-2")
    assert not (folder / "north-2").exists()


def test_a_new_key_that_was_not_shown_to_its_member_is_refused(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    second = changed(folder, add={"east": "127.0.0.1:7409"})
    admit(second, [joined(folder, "east", second, folder / "east").path / "request.json"])
    with pytest.raises(PrivacyError, match="east was shown another one when it joined"):
        follow(nodes["north"], folder / "n2", *files_of(second), compared=lambda members, new: False, consent=agree)
    assert not (folder / "n2").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"remove": ["east"]}, "a member of the agreement: north, south, west"),
        ({"add": {"west": "127.0.0.1:7409"}}, "joins under another name"),
        ({"add": {"east": "127.0.0.1:7400"}}, "an address of its own for each member"),
        ({"algorithm": algorithm_for(2)}, "one for each of 2 learners"),
    ],
)
def test_changes_that_cannot_be(folder: Path, options: dict[str, object], said: str) -> None:
    with pytest.raises(GossamerError, match=said):
        change_network(folder / "coordinator", folder / "second", **options)  # type: ignore[arg-type]
    assert not (folder / "second").exists()


# What the model begins with


def test_the_model_goes_on_from_a_decision_that_was_released(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    played: list[float] = lived(nodes, 3)[0].node.board.decision()["decision"]
    assert any(played)
    second = changed(folder, start=played)
    after = {name: followed(node, second, folder / f"{name}-2") for name, node in nodes.items()}
    algorithm = after["north"].agreement().algorithm()
    np.testing.assert_array_equal(algorithm.problem.initial_decision(), np.asarray(played, np.float32))
    assert algorithm.guarantee.basis == "proven"
    assert run(after, 2) == ["finished"] * 3


def test_a_start_that_would_be_forgotten_or_that_nobody_may_see_is_refused(folder: Path, tmp_path: Path) -> None:
    options = {"budget": Budget(1.0, 1e-6), "clip": 1.0, "horizon": 8}
    forgets = prepared(algorithms.pd_ftgl(PROBLEM, topology.complete(3), **options))
    with pytest.raises(ConfigurationError, match="goes on from where it begins"):
        change_network(folder / "coordinator", folder / "second", algorithm=forgets, start=[0.5, 0.5])
    with pytest.raises(ConfigurationError, match="2 finite numbers"):
        change_network(folder / "coordinator", folder / "second", start=[0.5])
    assert not (folder / "second").exists()


def test_a_node_that_runs_says_that_it_has_left(
    folder: Path, nodes: dict[str, NodeDirectory], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules["gossamer.net.startup"], "_LOOK", 0.02)
    west = nodes["west"]
    running = launch(west, west.settings(), west.agreement().algorithm())
    thread = threading.Thread(target=running.run, kwargs={"linger": False}, daemon=True)
    thread.start()
    with pytest.raises(NetworkError, match="west is no member any more"):
        followed(west, changed(folder, remove=["west"]), folder / "west-2")
    said: list[str] = []
    until(lambda: bool(said.append(capfd.readouterr().err)) or '"left_network"' in "".join(said))
    running.node.stop()
    thread.join(10)


# The commands


def gossamer(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, (words, done.output, done.stderr)
    return " ".join(done.stdout.split())


def refusal(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (2, True), done.output
    return " ".join(done.stderr.split())


def test_the_commands_of_a_network_that_lives(folder: Path, nodes: dict[str, NodeDirectory]) -> None:
    run(nodes, 2)
    (folder / "start.json").write_text(json.dumps({"decision": [0.25, -0.5]}))
    old, new = folder / "coordinator", folder / "coordinator-2"
    change = ("network", "change", old, new, "--add", "east=127.0.0.1:7409", "--remove", "west")
    said = gossamer(*change, "--start", folder / "start.json")
    assert "gossamer node follow OLD NEW agreement.json members.json" in said
    shown = gossamer("node", "join", new / "agreement.json", folder / "east", "--member", "east", "--http", "")
    fingerprint = shown.partition("Fingerprint of east: ")[2]
    gossamer("network", "admit", new, folder / "east" / "request.json")
    follow_north = ("node", "follow", folder / "north", folder / "north-2", *files_of(new))
    assert "--fingerprint: got 'none'" in refusal(*follow_north)
    assert "was shown another one" in refusal(*follow_north, "--fingerprint", "0000", "--epsilon", "3")
    assert "--epsilon: got 'none'" in refusal(*follow_north, "--fingerprint", fingerprint)
    assert "first exchange cost" in refusal(*follow_north, "--fingerprint", fingerprint, "--epsilon", "1.5")
    said = gossamer(*follow_north, "--fingerprint", fingerprint, "--epsilon", "2.5")
    assert "So far your data have cost epsilon 1, " in said
    assert NodeDirectory(folder / "north-2").settings().budget["epsilon"] == 2.5  # type: ignore[index]
    assert "no member any more" in refusal("node", "follow", folder / "west", folder / "west-2", *files_of(new))
    assert "no member any more" in refusal("node", folder / "west", "--exchanges", "3")
    gossamer("node", "backup", folder / "south", "--out", folder / "south.backup")
    assert "counts in full" in gossamer("node", "restore", folder / "south.backup", folder / "south-back")
    gossamer("node", "move", folder / "south", "--out", folder / "south.moved")
    assert "--adopt" in gossamer("node", "restore", folder / "south.moved", folder / "south-there")
    assert "was moved" in refusal("node", folder / "south")
    (folder / "start.json").write_text("no decision")
    assert "the answer of /decision" in refusal(
        "network", "change", old, folder / "coordinator-3", "--start", folder / "start.json"
    )
    private = (
        'problem = {kind = "logistic", dim = 2, feature_bound = 1.0}\ntopology = {kind = "complete"}\n'
        'algorithm = {name = "pd_ogd", budget = {epsilon = 0.5}, clip = 1.0, step = 0.1}\n'
    )
    (folder / "other.toml").write_text(private)
    gossamer("network", "change", old, folder / "coordinator-3", "--algorithm", folder / "other.toml")
    other = Agreement.read(folder / "coordinator-3" / "agreement.json").algorithm()
    assert (round(other.guarantee.epsilon, 3), other.learners) == (0.5, 3)
