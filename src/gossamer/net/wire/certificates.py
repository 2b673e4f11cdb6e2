"""A learner's certificate. It signs its own: nobody else can put another key in its place."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

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

_VALID = timedelta(days=3650)
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
    if not 1 <= len(name) <= LONGEST_NAME:
        raise ConfigurationError("name", name, f"1 to {LONGEST_NAME} characters", "use a shorter network id")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_USAGE, critical=True)
        .add_extension(both, critical=False)
        .add_extension(_alternatives(hosts), critical=False)
    )
    certificate = builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
    return certificate, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_key_of(private: bytes) -> bytes:
    """The public key, DER, that belongs to a private key in PEM.

    >>> certificate, private = certified("an example", ["127.0.0.1"])
    >>> public_key_of(private)[:1]
    b'0'
    """
    try:
        key = load_pem_private_key(private, password=None)
    except ValueError:
        raise PrivacyError("cert.key: it is broken. Bring it back, or make a new network. Nothing was sent.") from None
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


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
