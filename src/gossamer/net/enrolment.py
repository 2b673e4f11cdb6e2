"""How sites become a network: an agreement, a request of every site, and the keys of all members.

    new_network    the coordinator writes and signs agreement.json, and sends it to every site
    join           a site makes its keys and its directory, and sends request.json back
    admit          the coordinator puts all requests into members.json, signs it, and sends it to every site
    accept         a site takes it, once all sites have compared its fingerprint (`NodeDirectory.accept`)

Every private key is made where it is used, and stays there. `try_network` does all of it on one machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gossamer.core import Algorithm
from gossamer.data.schema import Schema
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.files import private_file
from gossamer.net.dependencies import require_net
from gossamer.net.directory import SETTINGS, NodeDirectory, settings_text
from gossamer.net.membership.agreement import Agreement, Arrivals
from gossamer.net.membership.members import Members, Request
from gossamer.net.node.agreement import key_fingerprint, prepared
from gossamer.net.node.correspondence import Pace
from gossamer.net.store.ledger import Identity, Ledger
from gossamer.net.wire.addresses import address_of, parts_of
from gossamer.net.wire.certificates import certified, common_name
from gossamer.net.wire.pairs import new_pair_key, public_pair_key
from gossamer.privacy import SecureNoise


def new_network(
    directory: Path,
    algorithm: Algorithm,
    members: Mapping[str, str],
    *,
    pace: Pace | None = None,
    schema: Schema | None = None,
    arrivals: Arrivals = "hidden",
    exchanges: int | None = None,
) -> Agreement:
    """Write the agreement of a network, and the key that signs it.

    Args:
        directory: the coordinator's; must not exist, or be empty.
        algorithm: as `prepared` made it.
        members: the sites and their addresses `host:port`, in the order of the learners.
        pace: how long nodes wait.
        schema: what records look like; None where samples come as numbers.
        arrivals: whether it is public when samples come.
        exchanges: after how many learning ends; None: with the guarantee.

    >>> import tempfile
    >>> from gossamer import algorithms, problems, topology
    >>> algorithm = algorithms.d_ogd(problems.Linear(2), topology.complete(2), step=0.1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sites = {"north": "127.0.0.1:7400", "south": "127.0.0.1:7401"}
    ...     agreement = new_network(Path(folder), algorithm, sites)
    ...     file = Path(folder) / "agreement.json"
    ...     made = [join(file, name, Path(folder) / name, no_guarantee=True) for name in sites]
    ...     members = admit(Path(folder), [node.path / "request.json" for node in made]).members
    ...     for node in made:
    ...         _ = node.accept(Path(folder) / "members.json", lambda mine: mine.fingerprint == members.fingerprint)
    ...     sorted(made[0].link(made[0].settings(), algorithm.topology).peers)
    [1]
    """
    require_net()
    signer = Ed25519PrivateKey.generate()
    agreement = Agreement.new(
        algorithm, members, pace or Pace(), signer, schema=schema, arrivals=arrivals, exchanges=exchanges
    )
    make_empty(directory)
    write_new(directory / "coordinator.key", signer.private_bytes_raw())
    write_new(directory / "agreement.json", agreement.to_bytes())
    return agreement


def join(
    agreement: Path,
    member: str,
    directory: Path,
    *,
    algorithm: Algorithm | None = None,
    source: str | None = None,
    http: str = "",
    data: str = "samples.jsonl",
    label: str = "y",
    no_guarantee: bool = False,
    key: bytes | None = None,
    settings: Mapping[str, Any] | None = None,
) -> NodeDirectory:
    """Make the directory of one node, with keys that are made here and never leave it.

    Args:
        agreement: file of the agreement.
        member: the site's name in it.
        directory: of the node; must not exist, or be empty.
        algorithm: what the agreement says, of programs that cannot make it of that; as `prepared` made it.
        source: what the site's data are called in its ledger: the same name in all runs over the same data. By default
            the directory's name.
        http: address of the node's page; "": none.
        data: the samples, as seen from the directory.
        label: the label's name in them.
        no_guarantee: whether the node may run an algorithm without any privacy.
        key: its noise key, made here; None: a new one.
        settings: all that node.toml says, instead of the five before.
    """
    require_net()
    agreed = Agreement.read(agreement)
    learner, name = agreed.number(member), source or directory.resolve().name
    if settings is not None:
        name = settings["source"]
    if not name.isprintable():
        raise ConfigurationError("source", name, "a text that can be printed")
    ready = algorithm or prepared(agreed.algorithm(), allow_no_guarantee=no_guarantee)
    if http:
        parts_of(http, field="http", least_port=0)
    host, _ = parts_of(agreed.members[learner].address)
    make_empty(directory)
    certificate, private = certified(common_name(agreed.network, learner), [host])
    key, pair_key = key or SecureNoise.new_key(), new_pair_key()
    request = Request.new(agreed, member, certificate, private, public_pair_key(pair_key))
    text = SETTINGS.format(
        network=agreed.network,
        http=http,
        no_guarantee=json.dumps(no_guarantee),
        **{
            field: _quoted(text)
            for field, text in (("member", member), ("data", data), ("label", label), ("source", name))
        },
    )
    node = NodeDirectory(directory)
    for file, content in (
        ("agreement.json", agreed.to_bytes()),
        ("cert.pem", certificate),
        ("cert.key", private),
        ("pair.key", pair_key),
        ("noise.key", key),
        ("request.json", request.to_bytes()),
        ("node.toml", (text if settings is None else settings_text(settings)).encode()),
    ):
        write_new(directory / file, content)
    Ledger.create(node.ledger, Identity(agreed.network, learner, ready.digest, name, key_fingerprint(key)))
    return node


class Admitted(NamedTuple):
    """Who has sent a request so far, with its fingerprint; `members` once nobody is missing."""

    fingerprints: Mapping[str, str]
    missing: list[str]
    members: Members | None


def admit(directory: Path, requests: Sequence[Path]) -> Admitted:
    """Take requests of members; with the last one all of them become one signed document, `members.json`.

    Args:
        directory: the coordinator's; requests are kept in it.
        requests: files of members, one or more at a time.
    """
    agreement, kept = Agreement.read(directory / "agreement.json"), directory / "requests"
    kept.mkdir(mode=0o700, exist_ok=True)
    known = {one.member: one for one in (Request.read(file, agreement) for file in sorted(kept.glob("*.json")))}
    for file in requests:
        request = Request.read(file, agreement)
        if known.setdefault(request.member, request).fingerprint != request.fingerprint:
            raise PrivacyError(
                f"request: {file} has other keys for {request.member} than the request before. Somebody has put them "
                f"there, or {request.member} joined twice. Ask it by telephone which fingerprint it was shown; then "
                f"remove the wrong one from {kept}. Nothing was signed."
            )
    for name, request in known.items():
        with private_file(kept / f"{agreement.number(name)}.json") as opened:
            opened.write(request.to_bytes())
    fingerprints = {name: known[name].fingerprint for name in agreement.names if name in known}
    missing = [name for name in agreement.names if name not in known]
    if missing:
        return Admitted(fingerprints, missing, None)
    members = Members.new(agreement, list(known.values()), signer_of(directory))
    with private_file(directory / "members.json") as opened:
        opened.write(members.to_bytes())
    return Admitted(fingerprints, missing, members)


def signer_of(directory: Path) -> Ed25519PrivateKey:
    """The coordinator's key."""
    file = directory / "coordinator.key"
    try:
        return Ed25519PrivateKey.from_private_bytes(file.read_bytes())
    except (OSError, ValueError):
        allowed = "the key that signed the agreement"
        raise ConfigurationError("coordinator.key", str(file), allowed, "bring it back") from None


def try_network(
    directory: Path,
    algorithm: Algorithm,
    *,
    hosts: Sequence[str],
    port: int = 7400,
    http_port: int | None = None,
    pace: Pace | None = None,
    sources: Sequence[str] | None = None,
    schema: Schema | None = None,
    no_guarantee: bool = False,
) -> list[NodeDirectory]:
    """Make all nodes of a network on one machine, which then has the keys of all: for trying it out.

    Args:
        directory: must not exist, or be empty.
        algorithm: as `prepared` made it.
        hosts: of every node, by number: names or IP addresses.
        port: where node 0 listens; node i listens at port + i.
        http_port: of the page of node 0, likewise; None: no pages.
        pace: how long nodes wait.
        sources: what the data of every node are called in its ledger, by number. By default the directory's name and
            the node's.
        schema: what records look like; None where samples come as numbers.
        no_guarantee: whether nodes may run an algorithm without any privacy.
    """
    learners = algorithm.learners
    _check_texts("hosts", hosts, learners)
    listens, pages = _addresses(hosts, port, http_port)
    data = sources or [f"{directory.resolve().name}/node-{learner}" for learner in range(learners)]
    _check_texts("sources", data, learners)
    names = [f"node-{learner}" for learner in range(learners)]
    new_network(directory, algorithm, dict(zip(names, listens, strict=True)), pace=pace, schema=schema)
    made = [
        join(
            directory / "agreement.json",
            name,
            directory / name,
            algorithm=algorithm,
            source=source,
            http=page,
            no_guarantee=no_guarantee,
        )
        for name, source, page in zip(names, data, pages, strict=True)
    ]
    admit(directory, [node.path / "request.json" for node in made])
    for node in made:
        node.accept(directory / "members.json", lambda members: True)
    return made


def _addresses(hosts: Sequence[str], port: int, http_port: int | None) -> tuple[list[str], list[str]]:
    """Where nodes listen, and where their pages are ("" for none)."""
    listens = [address_of(host, port + learner) for learner, host in enumerate(hosts)]
    if http_port is None:
        return listens, [""] * len(hosts)
    pages = [address_of("127.0.0.1", http_port + learner) for learner in range(len(hosts))]
    twice = {address_of(host, http_port + learner) for learner, host in enumerate(hosts)}.intersection(listens)
    if twice:
        hint = f"{min(twice)} would be used twice"
        raise ConfigurationError("http_port", http_port, "ports on which no node of the same host listens", hint)
    return listens, pages


def _check_texts(field: str, given: Sequence[str], learners: int) -> None:
    if isinstance(given, str) or len(given) != learners or not all(one and one.isprintable() for one in given):
        raise ConfigurationError(field, given, f"one printable text for each of {learners} learners")


def make_empty(directory: Path) -> None:
    """Make a directory that only its owner can read; refused where there is something already."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        empty = not any(directory.iterdir())
    except OSError as error:
        hint = f"the system says: {(error.strerror or 'refused').lower()}"
        raise ConfigurationError("DIR", str(directory), "a directory that can be made", hint) from None
    if not empty:
        raise ConfigurationError("DIR", str(directory), "a directory that does not exist yet, or is empty")


def _quoted(text: str) -> str:
    """A text as TOML has it."""
    return json.dumps(text, ensure_ascii=False)


def write_new(file: Path, data: bytes) -> None:
    """A new file that only its owner can read, not even for a moment anybody else."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)
