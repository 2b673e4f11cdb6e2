"""A learner's certificate. It signs its own: nobody else can put another key in its place.

What others know a learner by is its key. A certificate is good for a year, and the learner signs the next one itself,
with the same key and name: nobody has to be asked, and whoever pinned the key goes on trusting it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.wire.addresses import without_brackets

LONGEST_NAME = 64
"""Characters that X.509 allows in a common name."""

VALID = timedelta(days=365)
"""How long a certificate is good."""

_EARLY = timedelta(days=1)  # clocks of the machines may differ


def common_name(network: str, learner: int) -> str:
    """The name in a learner's certificate: access control on every peer goes by it.

    Args:
        network: the id of the network, as hexadecimal digits.
        learner: the number of the learner.

    >>> common_name("0a1b", 3)
    'gossamer-0a1b-3'
    """
    return f"gossamer-{network}-{learner}"


def certified(name: str, hosts: Sequence[str]) -> tuple[bytes, bytes]:
    """A fresh key pair and its certificate, signed with the same key, good for both ends of a connection.

    Args:
        name: who it is, see `common_name`.
        hosts: IP addresses, in brackets or not, and host names under which others dial it.

    Returns:
        Certificate and private key, both PEM.

    >>> certificate, key = certified(common_name("0a1b", 3), ["127.0.0.1", "node-3.example"])
    >>> x509.load_pem_x509_certificate(certificate).subject.rfc4514_string()
    'CN=gossamer-0a1b-3'
    """
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate_for(private, name, hosts), private


def certificate_for(
    private: bytes, name: str, hosts: Sequence[str], valid: timedelta = VALID, issuer: str | None = None
) -> bytes:
    """A fresh certificate, PEM, for a key that is there already.

    Args:
        private: the key, PEM.
        name: who it is, see `common_name`.
        hosts: as of `certified`.
        valid: for how long.
        issuer: the name in the certificate that others have pinned; None: this one is pinned itself.

    >>> old, private = certified("an example", ["127.0.0.1"])
    >>> new = certificate_for(private, "an example", ["10.0.0.7"])
    >>> described(new).hosts, described(new).key == described(old).key
    (['10.0.0.7'], True)
    """
    if not 1 <= len(name) <= LONGEST_NAME:
        raise ConfigurationError("name", name, f"1 to {LONGEST_NAME} characters", "use a shorter network id")
    subject, pinned = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (name, issuer or name))
    key, now = _loaded(private), datetime.now(UTC)
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(pinned)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + valid) - _EARLY)
        .not_valid_after(now + valid)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_USAGE, critical=True)
        .add_extension(both, critical=False)
        .add_extension(_alternatives(hosts), critical=False)
    )
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


class Described(NamedTuple):
    """What a certificate says: whose it is, where it is dialled, for which public key (DER), until when, and by whom.

    It is signed with its own key; `issuer` is the name in the first certificate of that key, which others have pinned.
    """

    name: str
    hosts: list[str]
    key: bytes
    until: datetime
    issuer: str


def described(certificate: bytes) -> Described:
    """What a certificate in PEM says; refused where it is none.

    >>> described(certified("an example", ["::1", "node-3.example"])[0])[:2]
    ('an example', ['::1', 'node-3.example'])
    """
    try:
        found = x509.load_pem_x509_certificate(certificate)
        name, issuer = (str(_name_in(whose)) for whose in (found.subject, found.issuer))
        hosts = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        hint = "`gossamer node renew DIR --host HOST` makes a new one"
        raise ConfigurationError("cert.pem", "something else", "a certificate as it was made", hint) from None
    key = found.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Described(name, [str(host.value) for host in hosts], key, found.not_valid_after_utc, issuer)


def _name_in(whose: x509.Name) -> object:
    (name,) = whose.get_attributes_for_oid(NameOID.COMMON_NAME)
    return name.value


def until_of(certificate: bytes) -> datetime:
    """Until when a certificate in PEM is good; of a chain, the first; refused where it is none.

    >>> until_of(certified("an example", ["127.0.0.1"])[0]) > datetime.now(UTC)
    True
    """
    return _read(certificate).not_valid_after_utc


def fingerprint_of(certificate: bytes) -> str:
    """SHA-256 of a certificate in PEM, as browsers show it.

    >>> len(fingerprint_of(certified("an example", ["127.0.0.1"])[0]))
    95
    """
    return _read(certificate).fingerprint(SHA256()).hex(":").upper()


def _read(certificate: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise ConfigurationError("certificate", "something else", "a certificate in PEM") from None


def public_key_of(private: bytes) -> bytes:
    """The public key, DER, that belongs to a private key in PEM.

    >>> certificate, private = certified("an example", ["127.0.0.1"])
    >>> public_key_of(private)[:1]
    b'0'
    """
    return _loaded(private).public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _loaded(private: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(private, password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
    except (ValueError, AssertionError):
        raise PrivacyError("cert.key: it is broken. Bring it back, or make a new network. Nothing was sent.") from None
    return key


_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=False,
    crl_sign=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _alternatives(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    if isinstance(hosts, str) or not hosts:
        raise ConfigurationError("hosts", hosts, "a list of one or more addresses or names", 'try ["127.0.0.1"]')
    return x509.SubjectAlternativeName([_alternative(host) for host in hosts])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(without_brackets(host)))
    except ValueError:
        pass
    try:
        host.encode("ascii")
    except UnicodeEncodeError:
        raise ConfigurationError("hosts", host, "an IP address or a host name in ASCII", "use punycode") from None
    return x509.DNSName(host)
