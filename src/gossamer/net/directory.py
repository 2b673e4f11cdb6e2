"""The directory of a node: what it needs to take part, and nothing of the other nodes.

node.toml        addresses, data, deadlines: for its owner to edit
algorithm.json   what all nodes of the network must agree on
ca.pem, cert.pem, cert.key    who it is
noise.key        32 secret bytes
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
from typing import Any

from gossamer.core import Algorithm
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.agreed import Empty, config_digest, key_fingerprint
from gossamer.net.certificates import Authority, common_name
from gossamer.net.ledger import Identity, Ledger
from gossamer.net.neighbourhood import Neighbourhoods
from gossamer.net.node import Pace
from gossamer.net.packing import require_net
from gossamer.net.zenoh_link import Files, Link
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
source = "{source}"

# Where no sample has come: "silent" speaks with a zero gradient, "wait" waits, which shows when samples come.
empty = "silent"

# true: an algorithm without any privacy may run.
no_guarantee = {no_guarantee}

# true: the state is encrypted at rest; start the node with --state-key FILE.
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

# What the data may cost in all; by default what the algorithm is made for.
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
        numbers = [number for number in self.peers if not number.isdigit()]
        if numbers:
            raise ConfigurationError("node.toml [peers]", numbers[0], "numbers of learners, each with its address")
        for name, table, maker in (("pace", self.pace, Pace), ("budget", self.budget or {}, Budget)):
            known = [one.name for one in fields(maker)]
            for key in table:
                if key not in known:
                    raise ConfigurationError(f"node.toml [{name}]", key, f"the keys {', '.join(known)}")


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
        except tomllib.TOMLDecodeError as error:
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

    def tables(self) -> dict[str, Any]:
        """The tables from which the algorithm is made."""
        tables: dict[str, Any] = json.loads((self.path / "algorithm.json").read_text(encoding="utf-8"))
        return tables

    def key(self) -> bytes:
        """The noise key; refused where others may read it, or where its ledger is gone."""
        file = self.path / "noise.key"
        if not self.ledger.exists():
            raise PrivacyError(
                f"ledger: {self.ledger} is gone, and without it nobody knows which noise of the key was used. "
                f"Bring it back, or make a new network with `gossamer network init`. Nothing was sent."
            )
        if file.stat().st_mode & 0o077:
            raise PrivacyError(f"key: others may read {file}. Allowed: mode 0600. Run `chmod 600 {file}`.")
        return file.read_bytes()

    def link(self, settings: Settings) -> Link:
        """How the node reaches its neighbours. Who asks for a message must be heard too, so links go both ways."""
        peers = {int(number): address for number, address in settings.peers.items()}
        files = Files(*(self.path / name for name in ("ca.pem", "cert.pem", "cert.key")))
        neighbours = frozenset(peers)
        return Link(settings.network, settings.learner, settings.listen, peers, neighbours, neighbours, files)


def init_network(
    directory: Path,
    algorithm: Algorithm,
    *,
    hosts: Sequence[str],
    port: int = 7400,
    http_port: int | None = None,
    pace: Pace | None = None,
    tables: Mapping[str, Any] | None = None,
    source: str | None = None,
    no_guarantee: bool = False,
) -> list[NodeDirectory]:
    """Make a directory for every node, with fresh keys and certificates.

    Args:
        directory: must not exist, or be empty.
        algorithm: as `prepared` made it.
        hosts: of every node, by number.
        port: where node 0 listens; node i listens at port + i.
        http_port: of the page of node 0, likewise; None: no pages.
        pace: what the settings say about waiting.
        tables: from which `gossamer node` makes the algorithm again; a Python program gives it to `launch`.
        source: what the data are called in the ledgers, followed by the node's name; by default as the directory.
        no_guarantee: whether nodes may run an algorithm without any privacy.
    """
    require_net()
    assert isinstance(algorithm.topology, Topology)
    if directory.exists() and any(directory.iterdir()):
        raise ConfigurationError("DIR", str(directory), "a directory that does not exist yet, or is empty")
    network, authority = secrets.token_hex(16), Authority.new("gossamer")
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "ca.key", authority.key, secret=True)
    _write(directory / "ca.pem", authority.certificate)
    addresses = [f"{host}:{port + learner}" for learner, host in enumerate(hosts)]
    made = []
    for learner, host in enumerate(hosts):
        node = NodeDirectory(directory / f"node-{learner}")
        node.path.mkdir(mode=0o700)
        hears, heard_by = Neighbourhoods(algorithm.topology, learner).ever()
        certificate, private = authority.certify(common_name(network, learner), [host])
        key = SecureNoise.new_key()
        data = f"{source or directory.resolve().name}/node-{learner}"
        _write(node.path / "ca.pem", authority.certificate)
        _write(node.path / "cert.pem", certificate)
        _write(node.path / "cert.key", private, secret=True)
        _write(node.path / "noise.key", key, secret=True)
        _write(node.path / "algorithm.json", json.dumps(tables or {}, indent=2).encode())
        text = _SETTINGS.format(
            learner=learner,
            network=network,
            listen=addresses[learner],
            http="" if http_port is None else f"127.0.0.1:{http_port + learner}",
            source=data,
            no_guarantee=str(no_guarantee).lower(),
            **asdict(pace or Pace()),
            peers="\n".join(f'{one} = "{addresses[one]}"' for one in sorted(hears | heard_by)),
        )
        _write(node.path / "node.toml", text.encode())
        Ledger.create(node.ledger, Identity(network, learner, config_digest(algorithm), data, key_fingerprint(key)))
        made.append(node)
    return made


def _write(file: Path, data: bytes, *, secret: bool = False) -> None:
    """A new file; a secret one is never readable by others, not even for a moment."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)
