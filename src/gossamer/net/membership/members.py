"""The keys of a network: a request of every site, signed with its own key, and all of them in one document.

Nobody has to be trusted with another one's keys. A site makes its keys, and its request holds the public halves. The
coordinator puts all requests into one document. Whoever put another key in a member's place would give two sites
documents with different fingerprints: so they compare them by telephone, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.membership.agreement import Agreement
from gossamer.net.membership.documents import VERSION, altered, canonical, fingerprint, read, write
from gossamer.net.wire.certificates import common_name
from gossamer.net.wire.pairs import is_public_key

_REQUEST = ("agreement", "member", "certificate", "pair_key")
_ALGORITHM = ec.ECDSA(SHA256())


@dataclass(frozen=True)
class Request:
    """The public keys of one member, signed with its private one.

    Attributes:
        agreement: digest of the agreement that the member joined: of this one, or of one that it follows.
        member: its name there.
        certificate: PEM, signed with its own key. The key is what counts: the member renews the certificate by itself.
        pair_key: X25519, hexadecimal digits: for secrets of two members.
        signature: of all the rest, with the key of the certificate.
    """

    agreement: str
    member: str
    certificate: str
    pair_key: str
    signature: str = ""

    @classmethod
    def new(cls, agreement: Agreement, member: str, certificate: bytes, key: bytes, pair_key: bytes) -> Request:
        """A member's request.

        Args:
            agreement: to take part in.
            member: the name there.
            certificate: PEM, and
            key: its private key.
            pair_key: the public half.
        """
        unsigned = cls(agreement.digest, member, certificate.decode(), pair_key.hex())
        private = load_pem_private_key(key, password=None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        signature = private.sign(canonical(unsigned.document()), _ALGORITHM)
        return replace(unsigned, signature=signature.hex())

    @classmethod
    def read(cls, file: Path, agreement: Agreement) -> Request:
        """The request in a file; refused where it was changed, or is none for this agreement."""
        return cls.of(read(file, "request", _REQUEST), agreement, file)

    @classmethod
    def of(cls, document: Mapping[str, Any], agreement: Agreement, file: Path) -> Request:
        """A request from its JSON values; `file` is named in refusals."""
        made = cls(*(str(document[name]) for name in (*_REQUEST, "signature")))
        if made.agreement not in (agreement.digest, *agreement.follows):
            raise PrivacyError(
                f"request: {file} is for another network, or for another version of this agreement. {made.member} "
                f"must join with the agreement that the others have. Nothing was sent."
            )
        number = agreement.number(made.member)
        try:
            made._public.verify(bytes.fromhex(made.signature), canonical(made.document()), _ALGORITHM)
            pair_key, certificate = bytes.fromhex(made.pair_key), made._x509
        except (InvalidSignature, ValueError, TypeError, AssertionError):
            raise altered("request", file, made.member) from None
        if not is_public_key(pair_key):
            hint = f"{made.member} must join again"
            raise ConfigurationError("request pair_key", made.pair_key, "the public half of an X25519 key", hint)
        names = [one.value for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        if made.agreement == agreement.digest and names != [common_name(agreement.network, number)]:
            allowed = f"the certificate of member {made.member}"
            raise ConfigurationError("request", f"a certificate of {', '.join(map(str, names))}", allowed)
        return made

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {"gossamer request": VERSION, **{name: getattr(self, name) for name in (*_REQUEST, "signature")}}

    def to_bytes(self) -> bytes:
        """As it is sent."""
        return write(self.document())

    @property
    def tls_key(self) -> bytes:
        """The public key of the certificate."""
        return self._public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    @property
    def fingerprint(self) -> str:
        """Of the network, the name and both public keys."""
        parts = (self.agreement.encode(), self.member.encode(), self.tls_key, bytes.fromhex(self.pair_key))
        return fingerprint(b"member", *parts)

    @property
    def _x509(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate.encode())

    @property
    def _public(self) -> ec.EllipticCurvePublicKey:
        key = self._x509.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        return key


@dataclass(frozen=True)
class Members:
    """The requests of all members of an agreement, in its order, signed by the coordinator."""

    agreement: Agreement
    requests: tuple[Request, ...]
    signature: str = ""

    @classmethod
    def new(cls, agreement: Agreement, requests: Sequence[Request], signer: Ed25519PrivateKey) -> Members:
        """All requests together; refused where one is missing."""
        by_name = {one.member: one for one in requests}
        missing = [name for name in agreement.names if name not in by_name]
        if missing:
            raise ConfigurationError("requests", "none of " + ", ".join(missing), "one of every member")
        unsigned = cls(agreement, _of_their_own([by_name[name] for name in agreement.names]))
        return replace(unsigned, signature=signer.sign(canonical(unsigned.document())).hex())

    @classmethod
    def read(cls, file: Path, agreement: Agreement) -> Members:
        """The members in a file; refused where it was changed, or belongs to another agreement."""
        document = read(file, "members", ("agreement", "requests"))
        if document["agreement"] != agreement.digest:
            hint = "ask the coordinator for the one of this network"
            raise ConfigurationError("members", str(file), "the members of this agreement", hint)
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(agreement.coordinator)).verify(
                bytes.fromhex(document["signature"]), canonical(document)
            )
        except (InvalidSignature, ValueError, TypeError):
            raise altered("members", file, "the coordinator") from None
        requests = _of_their_own([Request.of(one, agreement, file) for one in document["requests"]])
        if [one.member for one in requests] != agreement.names:
            raise ConfigurationError("members", str(file), "one request of every member, in order")
        return cls(agreement, requests, document["signature"])

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "gossamer members": VERSION,
            "agreement": self.agreement.digest,
            "requests": [one.document() for one in self.requests],
            "signature": self.signature,
        }

    def to_bytes(self) -> bytes:
        """As it is sent."""
        return write(self.document())

    @property
    def fingerprint(self) -> str:
        """Of the agreement and of the public keys of all members: what sites compare."""
        return fingerprint(b"members", *(one.fingerprint.encode() for one in self.requests))

    @property
    def fingerprints(self) -> dict[str, str]:
        """Of each member, by name."""
        return {one.member: one.fingerprint for one in self.requests}


def _of_their_own(requests: Sequence[Request]) -> tuple[Request, ...]:
    """The requests; refused where two members have one key: then what one pair shares, another one shares too."""
    owners: dict[bytes, str] = {}
    for one in requests:
        for key in (one.tls_key, bytes.fromhex(one.pair_key)):
            other = owners.setdefault(key, one.member)
            if other != one.member:
                raise PrivacyError(
                    f"members: {one.member} has a key of {other}. Every member makes keys of its own: ask both by "
                    f"telephone which fingerprint they were shown, and let the other one join again. Nothing was sent."
                )
    return tuple(requests)
