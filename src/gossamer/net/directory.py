"""The directory of a node: what it needs to take part, and no secret of the other nodes.

node.toml        data and pages: for its owner to edit
agreement.json   what all nodes of the network have agreed on: algorithm, pace, members, arrivals, end
request.json     its public keys, for the coordinator
members.json     the public keys of all members, and accepted.json: the fingerprints that its owner has accepted
cert.pem, cert.key, pair.key    who it is; the keys were made here and leave it never
page.token       who has it may see the node's page; metrics.token: its metrics only. There where they were made
noise.key        32 secret bytes; encrypted from the first start on where node.toml says sealed = true
ledger.db        what was released; made together with the key. Large messages and states: ledger.blobs
decisions        the model: the decision that was released last, and the mean of all
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gossamer.errors import ConfigurationError, NetworkError, PrivacyError
from gossamer.files import private_file
from gossamer.net.membership.agreement import Agreement
from gossamer.net.membership.members import Members
from gossamer.net.settings import Settings
from gossamer.net.store.vault import Sealer, read_key, seal_key
from gossamer.net.wire.certificates import described, public_key_of
from gossamer.net.wire.pairs import pair_secret, public_pair_key
from gossamer.net.wire.zenoh_link import Files, Link, Peer
from gossamer.topology import Topology

RESTORED = "ledger.jsonl"
"""The rows of a ledger, in a directory that was restored from a backup: no node goes on from it."""

MOVED = "moved"
"""Says where a node was moved to, in the directory that was left behind."""


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

    @property
    def next_agreement(self) -> Path:
        """The agreement under which its network goes on, where it does."""
        return self.path / "next.json"

    @property
    def decisions(self) -> Path:
        """The decisions that were released, for `gossamer model export`."""
        return self.path / "decisions"

    @property
    def witness(self) -> str:
        """Where node.toml says that the witness lies, also of directories that earlier versions made."""
        return str(self.table().get("witness", ""))

    def table(self) -> dict[str, Any]:
        """What node.toml says, whatever version of Gossamer made it."""
        file = self.path / "node.toml"
        try:
            return tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError:
            hint = "make one with `gossamer node join`"
            raise ConfigurationError("DIR", str(self.path), "the directory of a node, with node.toml", hint) from None
        except ValueError as error:  # no TOML, or no UTF-8
            raise ConfigurationError("node.toml", str(file), "a TOML file", f"it breaks off: {error}") from None

    def settings(self) -> Settings:
        """What node.toml says; refused where a key is unknown or missing."""
        table = self.table()
        if "peers" in table:
            hint = "`gossamer node upgrade` makes one, and what this one has spent counts on"
            raise ConfigurationError(
                "DIR", "a directory of Gossamer 0.3 or before", "one of `gossamer node join`", hint
            )
        known = [one.name for one in fields(Settings)]
        for key in table:
            if key not in known:
                raise ConfigurationError(f"node.toml {key}", table[key], f"the keys {', '.join(known)}")
        try:
            return Settings(**table)
        except TypeError:
            lacking = [name for name in ("member", "source") if name not in table]
            raise ConfigurationError("node.toml", f"no {', '.join(lacking)}", "all keys that were there") from None

    def agreement(self) -> Agreement:
        """What all members have agreed on."""
        return Agreement.read(self.path / "agreement.json")

    def accept(self, file: Path, confirmed: Callable[[Members], bool]) -> Members:
        """Take the keys of all members from the coordinator's document, once the owner has compared fingerprints.

        Refused where this member's keys are not those that were made here, and where a member has other keys than those
        that were accepted before: then somebody has put them in its place, or it has made new ones.

        Args:
            file: the document.
            confirmed: whether the other sites have the same fingerprint; asked last.
        """
        members = Members.read(file, self.agreement())
        self.require_known(members)
        if not confirmed(members):
            raise PrivacyError(
                "fingerprint: the sites do not have the same one. Somebody may have put keys in a member's place: "
                "compare the fingerprint of each member with what it was shown when it joined. Nothing was sent."
            )
        with private_file(self.path / "members.json") as opened:
            opened.write(members.to_bytes())
        with private_file(self.path / "accepted.json") as opened:
            opened.write(pins_of(members))
        return members

    def require_known(self, members: Members) -> None:
        """Refuse other keys than ours under our name, and keys of others that are not those that were accepted."""
        self._require_own(members)
        self._require_same(members, self.accepted())

    def members(self) -> Members:
        """The keys of all members; refused where they are not those that were accepted."""
        file, accepted = self.path / "members.json", self.accepted()
        if not accepted or not file.exists():
            raise PrivacyError(
                f"members: {self.path} has not accepted the keys of the other members. Send its request.json to the "
                f"coordinator; then run `gossamer node accept {self.path} members.json`. Nothing was sent."
            )
        members = Members.read(file, self.agreement())
        self._require_own(members)
        self._require_same(members, accepted)
        return members

    def accepted(self) -> dict[str, str]:
        """Fingerprints of the members that the owner has accepted; empty where there are none yet."""
        file = self.path / "accepted.json"
        try:
            found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))["members"]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigurationError("accepted.json", str(file), "as it was written", "bring it back") from None
        return found

    def require_here(self) -> None:
        """Refuse a directory that was moved: only the other one knows what it has spent."""
        if (self.path / MOVED).exists():
            raise PrivacyError(
                f"DIR: the node of {self.path} was moved, with its noise key, by `gossamer node move`. Run "
                f"`gossamer node restore` with that file, and start what it makes. Nothing was sent."
            )

    def require_latest(self) -> None:
        """Refuse to run where the node goes on somewhere else: it was moved, lost, or left behind by its network."""
        self.require_here()
        if (self.path / RESTORED).exists():
            raise PrivacyError(
                f"DIR: {self.path} was restored from a backup. It cannot go on in its run, where noise could be used "
                f"twice; in the next one it can: ask the coordinator for `gossamer network change`, and run "
                f"`gossamer node follow`. Nothing was sent."
            )
        self.require_not_followed()

    def require_not_followed(self) -> None:
        """Refuse a directory that was followed by another one, or whose member has left."""
        file = self.next_agreement
        if not file.exists():
            return
        if self.settings().member in Agreement.read(file).names:
            raise PrivacyError(
                f"agreement: the network of {self.path} goes on under a newer agreement, in the directory that "
                f"`gossamer node follow` made: use that one. If it never ran, or the change was called off, remove "
                f"{file}. Nothing was sent."
            )
        raise NetworkError(
            f"member: {self.settings().member} is no member any more: the coordinator has signed a newer agreement "
            f"without it, and no other member connects to it. Its model, its data and its ledger stay: "
            f"`gossamer ledger show {self.path}` says what was spent. If the change was called off, remove {file}."
        )

    def _require_own(self, members: Members) -> None:
        """Refuse a document that has other keys than ours under our name."""
        me = members.requests[members.agreement.number(self.settings().member)]
        public = public_key_of(self.secret("cert.key"))
        if me.tls_key != public or me.pair_key != public_pair_key(self.secret("pair.key")).hex():
            raise PrivacyError(
                f"members: the keys of {me.member} there are not those of {self.path}. Somebody has put others in "
                f"their place, or this member joined twice. Ask the coordinator to admit {self.path / 'request.json'}. "
                f"Nothing was sent."
            )

    def _require_same(self, members: Members, accepted: Mapping[str, str]) -> None:
        """Refuse keys that have changed since they were accepted."""
        changed = [name for name, now in members.fingerprints.items() if accepted.get(name, now) != now]
        if changed:
            raise PrivacyError(
                f"members: the keys of {', '.join(changed)} are not those that were accepted. Somebody has put others "
                f"in their place, or they joined anew. Ask them by telephone; with new keys they join under another "
                f"name. Nothing was sent."
            )

    def secret(self, name: str) -> bytes:
        """A file with a key; refused where it is gone, or where others may read it."""
        file = self.path / name
        if not file.is_file():
            raise PrivacyError(f"key: {file} is gone. Bring it back, or make a new network. Nothing was sent.")
        if file.stat().st_mode & 0o077:
            raise PrivacyError(f"key: others may read {file}. Allowed: mode 0600. Run `chmod 600 {file}`.")
        return file.read_bytes()

    def key(self, sealer: Sealer | None = None) -> bytes:
        """The noise key, sealed or not; refused where others may read it, or where its ledger is gone."""
        self.require_keys()
        return read_key(self.path / "noise.key", sealer)

    def require_keys(self) -> None:
        """Refuse keys that others may read, that are gone, or whose ledger is."""
        if not self.ledger.exists():
            raise PrivacyError(
                f"ledger: {self.ledger} is gone, and without it nobody knows which noise of the key was used. "
                f"Bring it back, or make a new network with `gossamer network new`. Nothing was sent."
            )
        for name in ("noise.key", "pair.key", "cert.key"):
            self.secret(name)

    def seal_key(self, sealer: Sealer) -> None:
        """Have the noise key encrypted from now on."""
        seal_key(self.path / "noise.key", sealer)

    def files(self) -> Files:
        """The certificate and its key; refused where others may read the key, and where they are not of each other."""
        private, file = self.secret("cert.key"), self.path / "cert.pem"
        if not file.is_file() or described(file.read_bytes()).key != public_key_of(private):
            raise PrivacyError(
                f"certificate: {file} is gone, or that of another key. Bring it back, as it was made with cert.key; "
                f"then `gossamer node renew {self.path}` makes a new one. Nothing was sent."
            )
        return Files(file, self.path / "cert.key")

    def link(self, settings: Settings, topology: Topology) -> Link:
        """How the node reaches its neighbours. Who asks for a message must be heard too, so links go both ways."""
        members, pair_key = self.members(), self.secret("pair.key")
        agreement = members.agreement
        learner = agreement.number(settings.member)
        for name in settings.addresses:
            agreement.number(name)
        addresses = [settings.addresses.get(one.name, one.address) for one in agreement.members]
        hears, heard_by = topology.ever_meets(learner)
        peers = {}
        for number in sorted(hears | heard_by):
            theirs = members.requests[number]
            secret = pair_secret(pair_key, bytes.fromhex(theirs.pair_key), agreement.network)
            peers[number] = Peer(addresses[number], theirs.certificate.encode(), secret)
        listen = settings.listen or agreement.members[learner].address
        return Link(agreement.network, learner, listen, peers, self.files())


def pins_of(members: Members) -> bytes:
    """The file of the fingerprints that an owner has accepted."""
    return json.dumps({"network": members.fingerprint, "members": members.fingerprints}, indent=1).encode()
