"""The agreement of a network: what is computed, at which pace, by whom and where. The coordinator signs it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gossamer.checks import check_choice, check_count
from gossamer.core import Algorithm
from gossamer.data.schema import Schema
from gossamer.errors import ConfigurationError
from gossamer.net.membership.documents import VERSION, altered, canonical, digest_of, read, write
from gossamer.net.node.correspondence import Pace
from gossamer.net.wire.addresses import parts_of

Arrivals = Literal["public", "hidden"]
"""Whether everybody may know when samples come, or nobody outside the site."""

_KEYS = ("network", "algorithm", "pace", "members", "schema", "arrivals", "exchanges", "follows", "coordinator")


class Member(NamedTuple):
    """One site: its name, and the address `host:port` where the others reach it."""

    name: str
    address: str


@dataclass(frozen=True)
class Agreement:
    """What all sites of a network have agreed on.

    Attributes:
        network: id of the network, hexadecimal digits.
        spec: the algorithm's specification.
        pace: how long nodes wait.
        members: one for each learner, by number.
        schema: what records look like; None where samples come as numbers, {"x": [...], "y": ...}.
        arrivals: whether it is public when samples come.
        exchanges: after how many learning ends; None: with the guarantee.
        coordinator: public key of who signs, hexadecimal digits.
        follows: digests of the agreements before this one, the oldest first; empty for a new network.
        signature: of all the rest, likewise.
    """

    network: str
    spec: Mapping[str, Any]
    pace: Pace
    members: tuple[Member, ...]
    schema: Schema | None
    arrivals: Arrivals
    exchanges: int | None
    coordinator: str
    follows: tuple[str, ...] = ()
    signature: str = ""

    @classmethod
    def new(
        cls,
        algorithm: Algorithm,
        members: Mapping[str, str],
        pace: Pace,
        signer: Ed25519PrivateKey,
        *,
        schema: Schema | None = None,
        arrivals: Arrivals = "hidden",
        exchanges: int | None = None,
        after: Agreement | None = None,
    ) -> Agreement:
        """A fresh agreement over an algorithm, between members with their addresses; or the one that follows another.

        >>> from gossamer import algorithms, problems, topology
        >>> algorithm = algorithms.d_ogd(problems.Linear(2), topology.ring(3), step=0.1)
        >>> sites = {"north": "10.0.0.1:7400", "south": "10.0.0.2:7400", "west": "10.0.0.3:7400"}
        >>> agreement = Agreement.new(algorithm, sites, Pace(), Ed25519PrivateKey.generate())
        >>> agreement.number("south"), agreement.algorithm().name
        (1, 'd_ogd')
        """
        if len(members) != algorithm.learners:
            allowed = f"one for each of {algorithm.learners} learners"
            raise ConfigurationError("members", len(members), allowed)
        for name, address in members.items():
            if not (name and name.isprintable() and name == name.strip()):
                raise ConfigurationError("members", name, "names that can be printed")
            parts_of(address, field=f"members {name}")
        if len(set(members.values())) < len(members):
            addresses = list(members.values())
            twice = next(address for address in addresses if addresses.count(address) > 1)
            raise ConfigurationError("members", twice, "an address of its own for each member")
        if schema is not None:
            schema.require_fits(algorithm.problem)
        check_choice("arrivals", arrivals, Arrivals)
        if exchanges is not None:
            check_count("exchanges", exchanges)
        known = tuple(Member(*one) for one in members.items())
        public = signer.public_key().public_bytes_raw().hex()
        network = secrets.token_hex(16)
        if after is not None and after.coordinator != public:
            raise ConfigurationError("coordinator.key", "another key", "the one that signed the agreement before")
        follows = () if after is None else (*after.follows, after.digest)
        made = cls(network, algorithm.spec(), pace, known, schema, arrivals, exchanges, public, follows)
        return made.signed(signer)

    @classmethod
    def read(cls, file: Path) -> Agreement:
        """The agreement in a file; refused where it was changed after it was signed."""
        document = read(file, "agreement", _KEYS)
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(document["coordinator"])).verify(
                bytes.fromhex(document["signature"]), canonical(document)
            )
        except (InvalidSignature, ValueError, TypeError):
            raise altered("agreement", file, "the coordinator") from None
        try:
            pace, members = Pace(**document["pace"]), tuple(Member(**one) for one in document["members"])
        except TypeError:
            hint = "its maker has another version of Gossamer"
            raise ConfigurationError(
                "agreement", str(file), "a pace and members as this version writes them", hint
            ) from None
        check_choice("agreement arrivals", document["arrivals"], Arrivals)
        return cls(
            document["network"],
            document["algorithm"],
            pace,
            members,
            None if document["schema"] is None else Schema.of(document["schema"]),
            document["arrivals"],
            document["exchanges"],
            document["coordinator"],
            tuple(document["follows"]),
            document["signature"],
        )

    def signed(self, signer: Ed25519PrivateKey) -> Agreement:
        """The same, with a signature."""
        return replace(self, signature=signer.sign(canonical(self.document())).hex())

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "gossamer agreement": VERSION,
            "network": self.network,
            "algorithm": self.spec,
            "pace": asdict(self.pace),
            "members": [one._asdict() for one in self.members],
            "schema": None if self.schema is None else self.schema.table(),
            "arrivals": self.arrivals,
            "exchanges": self.exchanges,
            "follows": list(self.follows),
            "coordinator": self.coordinator,
            "signature": self.signature,
        }

    def to_bytes(self) -> bytes:
        """As it is sent."""
        return write(self.document())

    @property
    def digest(self) -> str:
        """Tells agreements apart."""
        return digest_of(self.document())

    @property
    def names(self) -> list[str]:
        """Of all members, by number."""
        return [one.name for one in self.members]

    def algorithm(self) -> Algorithm:
        """The algorithm that all nodes agreed on; refused where it can not be made of what the agreement says."""
        try:
            return Algorithm.from_spec(self.spec)
        except ConfigurationError as error:
            raise ConfigurationError(f"agreement {error.field}", error.given, error.allowed, error.hint) from error

    def number(self, name: str) -> int:
        """The learner's number of a member."""
        if name not in self.names:
            raise ConfigurationError("member", name, f"a member of the agreement: {', '.join(self.names)}")
        return self.names.index(name)
