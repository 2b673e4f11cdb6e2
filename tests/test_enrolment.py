"""How sites become a network: nobody else ever holds a site's keys, and nobody puts others in their place."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from gossamer import Budget, algorithms, problems, topology
from gossamer.cli import app
from gossamer.cli.config import load_for_nodes
from gossamer.core.drawing import learners_draws, schedules
from gossamer.errors import ConfigurationError, GossamerError, PrivacyError
from gossamer.net import (
    Agreement,
    Ledger,
    Members,
    NodeDirectory,
    Request,
    admit,
    join,
    new_network,
    prepared,
    try_network,
)
from gossamer.net.membership.documents import canonical
from gossamer.net.node.agreement import frame_format
from gossamer.net.node.participant import Participant
from gossamer.net.store.export import export
from gossamer.net.wire.certificates import certificate_for, common_name
from gossamer.net.wire.pairs import public_pair_key
from gossamer.privacy import SecureNoise
from tests.lives import LATE, PACE, run, sites
from tests.networks import Hub

ROOT = Path(__file__).parent.parent
SITES = {"north": "127.0.0.1:7400", "south": "127.0.0.1:7401", "west": "127.0.0.1:7402"}
ALGORITHM = prepared(algorithms.pd_ogd(problems.Logistic(2), topology.ring(3), budget=Budget(1.0), clip=1.0, step=0.1))


def agreed(folder: Path, algorithm: object = ALGORITHM) -> dict[str, NodeDirectory]:
    """An agreement in `folder`, and what every site made of it."""
    new_network(folder, algorithm, SITES, arrivals="public")
    return {name: join(folder / "agreement.json", name, folder / name) for name in SITES}


def requests_of(nodes: dict[str, NodeDirectory]) -> list[Path]:
    return [node.path / "request.json" for node in nodes.values()]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sites that have joined, and were admitted: to be copied."""
    folder = tmp_path_factory.mktemp("made")
    admit(folder, requests_of(agreed(folder)))
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "net"))


def yes(_members: Members) -> bool:
    return True


def edit(file: Path, change: Callable[[dict[str, object]], object]) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def nothing_was_spent(node: Path) -> bool:
    with Ledger.open(node / "ledger.db", read_only=True) as ledger:
        return ledger.last.number == 1


def refusal(node: Path) -> str:
    """What `gossamer node DIR` says; nothing is sent."""
    done = CliRunner().invoke(app, ["node", str(node), "--exchanges", "1", "--no-linger"])
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (2, True), done.output
    assert nothing_was_spent(node)
    return " ".join(done.stderr.split())


# Everybody's part


def test_sites_that_accept_reach_each_other_by_the_same_secrets(folder: Path) -> None:
    nodes = [NodeDirectory(folder / name) for name in SITES]
    for node in nodes:
        node.accept(folder / "members.json", yes)
    links = [node.link(node.settings(), ALGORITHM.topology) for node in nodes]
    assert [link.listen for link in links] == list(SITES.values())
    for link in links:
        for number, peer in link.peers.items():
            assert peer.secret == links[number].peers[link.learner].secret
            assert peer.certificate == (nodes[number].path / "cert.pem").read_bytes()
    assert len({peer.secret for link in links for peer in link.peers.values()}) == 3


def test_requests_may_come_one_by_one(tmp_path: Path) -> None:
    nodes = agreed(tmp_path)
    first = admit(tmp_path, requests_of(nodes)[:2])
    assert (first.missing, first.members) == (["west"], None)
    assert not (tmp_path / "members.json").exists()
    last = admit(tmp_path, requests_of(nodes)[2:])
    assert last.members is not None
    assert last.fingerprints == last.members.fingerprints
    for node in nodes.values():
        assert node.accept(tmp_path / "members.json", lambda members: members == last.members) == last.members


def test_no_private_key_leaves_its_site(folder: Path) -> None:
    """The coordinator's own files, and all that sites send, hold none of their secrets."""
    sent = b"".join(file.read_bytes() for file in [*folder.glob("*.*"), *folder.glob("*/request.json")])
    for name in SITES:
        for secret in ("noise.key", "pair.key", "cert.key"):
            key = (folder / name / secret).read_bytes()
            assert (folder / name / secret).stat().st_mode & 0o777 == 0o600
            assert key not in sent
            assert key.hex().encode() not in sent


def test_the_cosine_of_what_a_coordinator_recovers_is_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a neighbour too: it has its own keys, all that was ever sent, and an exported ledger with the run's id.

    What it subtracts from the releases is noise that it makes of everything it has. Noise of the right key gives all.
    """
    dim, steps, names = 200, 40, ("north", "south")
    given = {"budget": Budget(2.0), "clip": 1.0, "step": 0.1}
    algorithm = prepared(algorithms.pd_ogd(problems.Linear(dim), topology.complete(2), **given))
    hub, x = Hub(), np.random.default_rng(3).choice([-1.0, 1.0], (steps, dim))
    monkeypatch.setattr(
        sys.modules["gossamer.net.startup"], "ZenohTransport", lambda link, forged: hub.transport(link.learner)
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "machine"))
    coordinator = tmp_path / "coordinator"
    new_network(coordinator, algorithm, sites(names), pace=PACE, exchanges=LATE)
    nodes = [join(coordinator / "agreement.json", name, tmp_path / name, algorithm=algorithm) for name in names]
    admit(coordinator, [node.path / "request.json" for node in nodes])
    for node in nodes:
        node.accept(coordinator / "members.json", yes)
        rows = [json.dumps({"x": row.tolist(), "y": 0.0}) + "\n" for row in x]
        (node.path / "samples.jsonl").write_text("".join(rows))
    assert run(nodes, steps) == ["finished"] * 2
    with Ledger.open(nodes[0].ledger, read_only=True) as ledger:
        export(ledger, coordinator / "north.jsonl")
    run_id = json.loads((coordinator / "north.jsonl").read_text().partition("\n")[0])["run"]

    form = frame_format(
        algorithm, Agreement.read(coordinator / "agreement.json").network, Participant(algorithm, 0).leaves
    )
    said = {
        (frame.sender, frame.exchange): frame.values[0]
        for frame in (form.decode(data, sender) for sender, _, data in hub.sent)
        if frame.kind == "message"
    }
    heard = [(said[0, t] + said[1, t]) / 2 for t in range(steps)]
    released = np.array([before - said[0, t + 1] for t, before in enumerate(heard[:-1])])
    (draw,) = learners_draws(algorithm, [0]).values()

    def cosine(key: bytes) -> float:
        noise = draw.made(SecureNoise(key, run_id, algorithm.digest), 1, steps)[0]
        left = released / schedules(algorithm, 1, steps)["step"][:, None] - noise
        return float((left * x[1:]).sum() / (np.linalg.norm(left) * np.linalg.norm(x[1:])))

    assert cosine((nodes[0].path / "noise.key").read_bytes()) > 0.999
    chance = 5 / np.sqrt(dim * (steps - 1))  # five standard deviations of the cosine of independent directions
    guesses = keys_in([file for folder in (coordinator, nodes[1].path) for file in folder.rglob("*") if file.is_file()])
    assert (nodes[1].path / "noise.key").read_bytes() in guesses
    assert len(guesses) > 50
    assert max(abs(cosine(guess)) for guess in guesses) < chance


def keys_in(files: list[Path]) -> set[bytes]:
    """All that could be a key of 32 bytes: small files, numbers in hexadecimal digits in texts, and hashes of files."""
    found = set[bytes]()
    for file in files:
        content = file.read_bytes()
        found.add(hashlib.sha256(content).digest())
        if len(content) == 32:
            found.add(content)
        for digits in re.findall(rb"[0-9a-f]{32,}", content) if len(content) < 100_000 else []:
            number = bytes.fromhex(digits.decode()[: len(digits) // 2 * 2])
            found |= {number[:32].ljust(32, b"\0"), hashlib.sha256(number).digest()}
    return found


# A coordinator, or somebody on the way, who puts other keys in a member's place


def swapped(folder: Path, name: str) -> Path:
    """A document in which the coordinator has put keys of its own in a member's place; its signature is right."""
    agreement = Agreement.read(folder / "agreement.json")
    own = join(folder / "agreement.json", name, folder / "impostor")
    signer = Ed25519PrivateKey.from_private_bytes((folder / "coordinator.key").read_bytes())
    nodes = [own if one == name else NodeDirectory(folder / one) for one in SITES]
    members = Members.new(agreement, [Request.read(one.path / "request.json", agreement) for one in nodes], signer)
    file = folder / "swapped.json"
    file.write_bytes(members.to_bytes())
    return file


def test_a_swapped_key_shows_in_the_fingerprint_and_is_refused_by_its_owner(folder: Path) -> None:
    false, true = swapped(folder, "south"), folder / "members.json"
    seen: dict[str, str] = {}

    def compared(name: str) -> Callable[[Members], bool]:
        return lambda members: bool(seen.update({name: members.fingerprint})) or len(set(seen.values())) == 1

    NodeDirectory(folder / "south").accept(true, compared("south"))
    with pytest.raises(PrivacyError, match="the sites do not have the same one"):
        NodeDirectory(folder / "north").accept(false, compared("north"))
    assert seen["north"] != seen["south"]
    with pytest.raises(PrivacyError, match=r"the keys of south there are not those of"):
        NodeDirectory(folder / "south").accept(false, yes)
    assert "gossamer node accept" in refusal(folder / "north")


@pytest.mark.parametrize("way", ["accept", "copy"])
def test_a_key_that_changed_stops_the_node(folder: Path, way: str) -> None:
    north = NodeDirectory(folder / "north")
    north.accept(folder / "members.json", yes)
    false = swapped(folder, "south")
    if way == "accept":
        with pytest.raises(PrivacyError, match="the keys of south are not those that were accepted"):
            north.accept(false, yes)
        return
    shutil.copy(false, north.path / "members.json")
    assert "the keys of south are not those that were accepted" in refusal(north.path)


# Documents that cannot be taken


def test_an_agreement_that_was_altered_is_refused_everywhere(folder: Path) -> None:
    NodeDirectory(folder / "north").accept(folder / "members.json", yes)
    for file in (folder / "agreement.json", folder / "north" / "agreement.json"):
        edit(file, lambda document: document["pace"].update(period=3.0))  # type: ignore[attr-defined]
    with pytest.raises(PrivacyError, match=r"was changed after the coordinator signed it"):
        join(folder / "agreement.json", "north", folder / "again")
    assert not (folder / "again").exists()
    with pytest.raises(PrivacyError, match="was changed after"):
        admit(folder, [folder / "south" / "request.json"])
    assert "was changed after" in refusal(folder / "north")


def test_an_agreement_that_somebody_else_signed_is_another_one(folder: Path) -> None:
    """Whoever alters it can sign it anew: then no request fits, and no members."""
    north, forger = NodeDirectory(folder / "north"), Ed25519PrivateKey.generate()
    north.accept(folder / "members.json", yes)
    old = Agreement.read(folder / "agreement.json")
    public = forger.public_key().public_bytes_raw().hex()
    other = replace(old, pace=replace(old.pace, period=9.0), coordinator=public).signed(forger)
    for file in (folder / "agreement.json", north.path / "agreement.json"):
        file.write_bytes(other.to_bytes())
    with pytest.raises(PrivacyError, match="another network, or for another version of this agreement"):
        admit(folder, [folder / "south" / "request.json"])
    assert "the members of this agreement" in refusal(north.path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda document: document.update(member="south"), "was changed after south signed it"),
        (lambda document: document.update(pair_key="00" * 32), "was changed after north signed it"),
        (lambda document: document.update(pair_key="zz"), "was changed after north signed it"),
        (lambda document: document.update(certificate="no PEM"), "was changed after north signed it"),
        (lambda document: document.update(signature=""), "was changed after north signed it"),
        (lambda document: document.update(agreement="00" * 32), "for another network"),
        (lambda document: document.update(member="east"), "a member of the agreement: north, south, west"),
        (lambda document: document.update(extra=1), "See 'extra'"),
        (lambda document: document.pop("signature"), "See 'signature'"),
        (lambda document: document.update({"gossamer request": 2}), "another version of Gossamer"),
        (lambda document: document.pop("gossamer request"), "This is something else"),
    ],
)
def test_requests_that_cannot_be_taken(folder: Path, change: Callable[[dict[str, object]], object], said: str) -> None:
    shutil.rmtree(folder / "requests")
    edit(folder / "north" / "request.json", change)
    with pytest.raises(GossamerError, match=re.escape(said)):
        admit(folder, requests_of({name: NodeDirectory(folder / name) for name in SITES}))
    assert not (folder / "requests").exists() or not list((folder / "requests").iterdir())


def test_a_request_for_another_network_is_refused(folder: Path, tmp_path: Path) -> None:
    other = agreed(tmp_path / "other")
    with pytest.raises(PrivacyError, match="another network"):
        admit(folder, requests_of(other))


def signed_anew(node: Path, pair_key: bytes, keys_of: Path | None = None) -> Path:
    """The request of a site, rightly signed, with another pair key; or with a certificate that another's key signs."""
    agreement, private = Agreement.read(node / "agreement.json"), ((keys_of or node) / "cert.key").read_bytes()
    member = Request.read(node / "request.json", agreement).member
    certificate = certificate_for(private, common_name(agreement.network, agreement.number(member)), ["127.0.0.1"])
    request = Request.new(agreement, member, certificate, private, pair_key)
    (node / "request.json").write_bytes(request.to_bytes())
    return node / "request.json"


@pytest.mark.parametrize("low", [bytes(32), bytes([1]) + bytes(31)])
def test_a_key_with_which_every_secret_is_zero_is_refused(folder: Path, low: bytes) -> None:
    with pytest.raises(ConfigurationError, match="the public half of an X25519 key"):
        admit(folder, [signed_anew(folder / "west", low)])


@pytest.mark.parametrize("which", ["pair", "tls"])
def test_a_member_with_the_key_of_another_is_refused_by_all(folder: Path, which: str) -> None:
    """By the coordinator, and by sites where the coordinator signs it."""
    shutil.rmtree(folder / "requests")
    theirs = public_pair_key((folder / "south" / "pair.key").read_bytes())
    own = public_pair_key((folder / "west" / "pair.key").read_bytes())
    copy = {"pair": (theirs, None), "tls": (own, folder / "south")}[which]
    signed_anew(folder / "west", *copy)
    with pytest.raises(PrivacyError, match="west has a key of south"):
        admit(folder, [folder / name / "request.json" for name in SITES])
    agreement = Agreement.read(folder / "agreement.json")
    requests = tuple(Request.read(folder / name / "request.json", agreement) for name in SITES)
    signer = Ed25519PrivateKey.from_private_bytes((folder / "coordinator.key").read_bytes())
    unsigned = Members(agreement, requests)
    signed = replace(unsigned, signature=signer.sign(canonical(unsigned.document())).hex())
    (folder / "members.json").write_bytes(signed.to_bytes())
    with pytest.raises(PrivacyError, match="west has a key of south"):
        NodeDirectory(folder / "north").accept(folder / "members.json", yes)


def test_two_requests_of_one_member_are_refused(folder: Path) -> None:
    again = join(folder / "agreement.json", "north", folder / "again")
    with pytest.raises(PrivacyError, match=r"other keys for north .* Ask it by telephone"):
        admit(folder, [again.path / "request.json"])
    admit(folder, [folder / "north" / "request.json"])  # the same one once more


def test_members_that_somebody_else_signed_are_refused(folder: Path) -> None:
    agreement = Agreement.read(folder / "agreement.json")
    requests = [Request.read(folder / name / "request.json", agreement) for name in SITES]
    (folder / "members.json").write_bytes(Members.new(agreement, requests, Ed25519PrivateKey.generate()).to_bytes())
    with pytest.raises(PrivacyError, match=r"members: .* was changed after the coordinator signed it"):
        NodeDirectory(folder / "north").accept(folder / "members.json", yes)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        (dict(list(SITES.items())[:2]), "one for each of 3 learners"),
        (SITES | {"north": "127.0.0.1"}, "members north: got '127.0.0.1'; allowed: host:port"),
        (SITES | {"north": SITES["south"]}, "an address of its own for each member"),
        ({" ": "127.0.0.1:7409", **dict(list(SITES.items())[:2])}, "names that can be printed"),
    ],
)
def test_members_that_make_no_sense(tmp_path: Path, members: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        new_network(tmp_path / "net", ALGORITHM, members, arrivals="public")
    assert not (tmp_path / "net").exists()


def test_who_is_not_in_the_agreement_cannot_join(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="a member of the agreement: north, south, west"):
        join(folder / "agreement.json", "east", folder / "east")
    assert not (folder / "east").exists()


def test_an_algorithm_without_privacy_needs_the_word_of_every_site(tmp_path: Path) -> None:
    raw = algorithms.d_ogd(problems.Logistic(2), topology.ring(3), step=0.1)
    new_network(tmp_path, raw, SITES, arrivals="public")
    with pytest.raises(PrivacyError, match="--no-guarantee"):
        join(tmp_path / "agreement.json", "north", tmp_path / "north")
    join(tmp_path / "agreement.json", "north", tmp_path / "north", no_guarantee=True)


def test_keys_that_others_may_read_are_refused(folder: Path) -> None:
    node = NodeDirectory(folder / "north")
    node.accept(folder / "members.json", yes)
    for name in ("pair.key", "cert.key", "noise.key"):
        (node.path / name).chmod(0o644)
        assert f"others may read {node.path / name}" in refusal(node.path)
        (node.path / name).chmod(0o600)


def test_a_directory_of_an_earlier_version_is_refused_in_words(folder: Path) -> None:
    node = folder / "north"
    (node / "node.toml").write_text('network = "0a"\nlearner = 0\nlisten = "a:1"\nsource = "s"\n[peers]\n1 = "b:1"\n')
    assert "`gossamer node upgrade` makes one" in refusal(node)
    done = CliRunner().invoke(app, ["ledger", "verify", str(node)])
    assert done.exit_code == 0, done.stderr


# The commands


def test_the_schema_says_what_the_problem_needs(tmp_path: Path) -> None:
    clinics = (ROOT / "examples" / "clinics" / "tumours.toml").read_text()
    found = load_for_nodes(ROOT / "examples" / "clinics" / "tumours.toml", 3)
    problem = found.algorithm.problem
    assert isinstance(problem, problems.Logistic)
    assert found.schema is not None
    assert (problem.dim, problem.feature_bound) == (11, found.schema.feature_bound)
    own = tmp_path / "own.toml"  # what a file says itself counts
    own.write_text(clinics.replace('kind = "logistic"', 'kind = "logistic"\nfeature_bound = 2.0'))
    own_problem = load_for_nodes(own, 3).algorithm.problem
    assert isinstance(own_problem, problems.Logistic)
    assert own_problem.feature_bound == 2.0


def test_trying_says_that_it_is_for_trying(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        'problem = {kind = "logistic", dim = 2}\ntopology = {kind = "ring"}\n'
        'algorithm = {name = "pd_ogd", budget = {epsilon = 1.0}, clip = 1.0, step = 0.1}\n'
    )
    given = ["network", "try", str(tmp_path / "net"), "--algorithm", str(file), "--nodes", "3", "--arrivals", "public"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.stderr
    assert "this machine made the keys of all nodes" in " ".join(done.output.split())
    made = try_network(tmp_path / "b", ALGORITHM, hosts=["a", "b", "c"], arrivals="public")
    assert [one.name for one in made[0].path.glob("*.key")]
