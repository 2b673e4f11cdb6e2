"""The directory of a node: what it needs to take part, and nothing of the other nodes.

node.toml        addresses, data, deadlines: for its owner to edit
algorithm.json   what all nodes of the network must agree on
ca.pem, cert.pem, cert.key    who it is
noise.key        32 secret bytes; encrypted from the first start on where node.toml says sealed = true
ledger.db        what was released; made together with the key. Large messages and states: ledger.blobs
"""

from __future__ import annotations

import json
import os
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.dependencies import require_net
from gossamer.net.node.agreement import Empty, key_fingerprint
from gossamer.net.node.correspondence import Pace
from gossamer.net.store.ledger import Identity, Ledger
from gossamer.net.store.vault import Sealer, read_key, seal_key
from gossamer.net.wire.addresses import address_of
from gossamer.net.wire.certificates import Authority, common_name
from gossamer.net.wire.zenoh_link import Files, Link
from gossamer.privacy import Budget, SecureNoise
from gossamer.topology import Topology

_SETTINGS = """\
# Node {learner} of network {network}. What all nodes must agree on is in algorithm.json.
network = "{network}"
learner = {learner}

# Where neighbours reach it, and its own page (/healthz /metrics /guarantee /decision /predict; "" for none).
listen = "{listen}"
http = "{http}"

# Samples: a .jsonl or .csv file, which may grow, or "-" for standard input; and the label's name in it.
data = "samples.jsonl"
label = "y"

# The ledger adds up what these data cost under this name. It cannot be changed.
source = {source}

# Where no sample has come: "silent" speaks with a zero gradient, "wait" waits, which shows when samples come.
empty = "silent"

# true: an algorithm without any privacy may run.
no_guarantee = {no_guarantee}

# true, from the first start on: state, messages and noise.key are encrypted; start the node with --state-key FILE.
sealed = false

# Directories of earlier runs over the same data: what they cost counts towards [budget].
earlier = []

# Where the witness against old copies of this directory lies: outside of it, and not restored together with it.
# "": below $XDG_STATE_HOME or ~/.local/state. In a container name a volume.
witness = ""

# In seconds: for a sign of life from a neighbour; between two exchanges, at least; for all neighbours at the beginning.
[pace]
deadline = {deadline}
period = {period}
patience = {patience}

# What the data may cost in all; by default what the algorithm is made for. Secure noise needs some delta.
# [budget]
# epsilon = 1.0
# delta = 1e-6

# Neighbours, and where they are.
[peers]
{peers}
"""


@dataclass(frozen=True)
class Settings:
    """What node.toml says."""

    network: str
    learner: int
    listen: str
    peers: Mapping[str, str]
    source: str
    http: str = ""
    data: str = "-"
    label: str = "y"
    empty: Empty = "silent"
    no_guarantee: bool = False
    sealed: bool = False
    exchanges: int | None = None
    earlier: Sequence[str] = ()
    pace: Mapping[str, float] = field(default_factory=dict)
    budget: Mapping[str, float] | None = None
    witness: str = ""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Settings).items():
            if not _fits(getattr(self, name), kind):
                raise ConfigurationError(f"node.toml {name}", getattr(self, name), _in_words(kind))
        numbers = [number for number in self.peers if not (number.isdecimal() and str(int(number)) == number)]
        if numbers:
            raise ConfigurationError("node.toml [peers]", numbers[0], "numbers of learners, each with its address")
        for name, table, maker in (("pace", self.pace, Pace), ("budget", self.budget or {}, Budget)):
            known = [one.name for one in fields(maker)]
            for key in table:
                if key not in known:
                    raise ConfigurationError(f"node.toml [{name}]", key, f"the keys {', '.join(known)}")
        if self.budget is not None and "epsilon" not in self.budget:
            raise ConfigurationError("node.toml [budget]", dict(self.budget), "an epsilon, and a delta if you like")


@dataclass(frozen=True)
class NodeDirectory:
    """One node's files.

    Attributes:
        path: the directory.
    """

    path: Path

    @property
    def ledger(self) -> Path:
        """The ledger and outbox."""
        return self.path / "ledger.db"

    def settings(self) -> Settings:
        """What node.toml says; refused where a key is unknown or missing."""
        file = self.path / "node.toml"
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError:
            hint = "make one with `gossamer network init`"
            raise ConfigurationError("DIR", str(self.path), "the directory of a node, with node.toml", hint) from None
        except ValueError as error:  # no TOML, or no UTF-8
            raise ConfigurationError("node.toml", str(file), "a TOML file", f"it breaks off: {error}") from None
        known = [one.name for one in fields(Settings)]
        for key in table:
            if key not in known:
                raise ConfigurationError(f"node.toml {key}", table[key], f"the keys {', '.join(known)}")
        try:
            return Settings(**table)
        except TypeError:
            lacking = [name for name in ("network", "learner", "listen", "peers", "source") if name not in table]
            raise ConfigurationError("node.toml", f"no {', '.join(lacking)}", "all keys that were there") from None

    def algorithm(self) -> Algorithm:
        """The algorithm that all nodes agreed on; refused where it can not be made of what algorithm.json says."""
        file = self.path / "algorithm.json"
        try:
            spec: Any = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            hint = "it is gone or broken: copy that of another node, they are all the same"
            raise ConfigurationError("algorithm.json", str(file), "a JSON file, as it was made", hint) from None
        try:
            return Algorithm.from_spec(spec)
        except ConfigurationError as error:
            where = f"algorithm.json {error.field}"
            raise ConfigurationError(where, error.given, error.allowed, error.hint) from error

    def key(self, sealer: Sealer | None = None) -> bytes:
        """The noise key, sealed or not; refused where others may read it, or where its ledger is gone."""
        file = self.path / "noise.key"
        if not self.ledger.exists():
            raise PrivacyError(
                f"ledger: {self.ledger} is gone, and without it nobody knows which noise of the key was used. "
                f"Bring it back, or make a new network with `gossamer network init`. Nothing was sent."
            )
        if not file.is_file():
            raise PrivacyError(f"key: {file} is gone. Bring it back, or make a new network. Nothing was sent.")
        if file.stat().st_mode & 0o077:
            raise PrivacyError(f"key: others may read {file}. Allowed: mode 0600. Run `chmod 600 {file}`.")
        return read_key(file, sealer)

    def seal_key(self, sealer: Sealer) -> None:
        """Have the noise key encrypted from now on."""
        seal_key(self.path / "noise.key", sealer)

    def link(self, settings: Settings) -> Link:
        """How the node reaches its neighbours. Who asks for a message must be heard too, so links go both ways."""
        peers = {int(number): address for number, address in settings.peers.items()}
        files = Files(*(self.path / name for name in ("ca.pem", "cert.pem", "cert.key")))
        return Link(settings.network, settings.learner, settings.listen, peers, files)


def init_network(
    directory: Path,
    algorithm: Algorithm,
    *,
    hosts: Sequence[str],
    port: int = 7400,
    http_port: int | None = None,
    pace: Pace | None = None,
    sources: Sequence[str] | None = None,
    no_guarantee: bool = False,
) -> list[NodeDirectory]:
    """Make a directory for every node, with fresh keys and certificates.

    Args:
        directory: must not exist, or be empty.
        algorithm: as `prepared` made it.
        hosts: of every node, by number: names or IP addresses.
        port: where node 0 listens; node i listens at port + i.
        http_port: of the page of node 0, likewise; None: no pages.
        pace: what the settings say about waiting.
        sources: what the data of every node are called in its ledger, by number: the same name in all runs over the
            same data. By default the directory's name and the node's.
        no_guarantee: whether nodes may run an algorithm without any privacy.
    """
    require_net()
    assert isinstance(algorithm.topology, Topology)
    listens, pages = _addresses(hosts, port, http_port)
    data = sources or [f"{directory.resolve().name}/node-{learner}" for learner in range(len(hosts))]
    _check_texts("hosts", hosts, algorithm.learners)
    _check_texts("sources", data, algorithm.learners)
    _make_empty(directory)
    network, authority = secrets.token_hex(16), Authority.new("gossamer")
    _write(directory / "ca.key", authority.key, secret=True)
    _write(directory / "ca.pem", authority.certificate)
    made = []
    for learner, host in enumerate(hosts):
        node = NodeDirectory(directory / f"node-{learner}")
        node.path.mkdir(mode=0o700)
        hears, heard_by = algorithm.topology.ever_meets(learner)
        certificate, private = authority.certify(common_name(network, learner), [host])
        key = SecureNoise.new_key()
        _write(node.path / "ca.pem", authority.certificate)
        _write(node.path / "cert.pem", certificate)
        _write(node.path / "cert.key", private, secret=True)
        _write(node.path / "noise.key", key, secret=True)
        _write(node.path / "algorithm.json", json.dumps(algorithm.spec(), indent=1).encode())
        text = _SETTINGS.format(
            learner=learner,
            network=network,
            listen=listens[learner],
            http=pages[learner],
            source=json.dumps(data[learner], ensure_ascii=False),
            no_guarantee=str(no_guarantee).lower(),
            **asdict(pace or Pace()),
            peers="\n".join(f'{one} = "{listens[one]}"' for one in sorted(hears | heard_by)),
        )
        _write(node.path / "node.toml", text.encode())
        identity = Identity(network, learner, algorithm.digest, data[learner], key_fingerprint(key))
        Ledger.create(node.ledger, identity)
        made.append(node)
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


def _make_empty(directory: Path) -> None:
    """Make a directory; refused where there is something already."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        empty = not any(directory.iterdir())
    except OSError as error:
        hint = f"the system says: {(error.strerror or 'refused').lower()}"
        raise ConfigurationError("DIR", str(directory), "a directory that can be made", hint) from None
    if not empty:
        raise ConfigurationError("DIR", str(directory), "a directory that does not exist yet, or is empty")


def _fits(given: Any, kind: Any) -> bool:
    """Whether a value is of a declared type, as far as TOML has types.

    >>> _fits(["../old"], Sequence[str]), _fits("../old", Sequence[str]), _fits(1, float), _fits(True, int)
    (True, False, True, False)
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return any(_fits(given, one) for one in inner)
    if origin is Literal:
        return given in inner
    if origin is Mapping:
        return isinstance(given, Mapping) and all(_fits(one, inner[1]) for one in given.values())
    if origin is Sequence:
        return isinstance(given, list | tuple) and all(_fits(one, inner[0]) for one in given)
    return type(given) in ((int, float) if kind is float else (kind,))


def _in_words(kind: Any) -> str:
    """A declared type for whoever writes TOML, in which there is no None.

    >>> _in_words(Mapping[str, float] | None)
    'a table, each value a number'
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return _in_words(inner[0])
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is Mapping:
        return f"a table, each value {_in_words(inner[1])}"
    if origin is Sequence:
        return f"a list, each entry {_in_words(inner[0])}"
    return {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}[kind]


def _write(file: Path, data: bytes, *, secret: bool = False) -> None:
    """A new file; a secret one is never readable by others, not even for a moment."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)
