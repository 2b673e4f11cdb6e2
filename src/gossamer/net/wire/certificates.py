"""A certificate authority for one network: a key pair and a certificate for every learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gossamer.errors import ConfigurationError
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


@dataclass(frozen=True)
class Authority:
    """Signs the certificates of one network. Whoever holds its key can pose as any learner: keep it off the nodes.

    Attributes:
        certificate: PEM, for every node.
        key: PEM, not encrypted.

    >>> authority = Authority.new("gossamer 0a1b")
    >>> certificate, key = authority.certify(common_name("0a1b", 3), ["127.0.0.1", "node-3.example"])
    >>> x509.load_pem_x509_certificate(certificate).subject.rfc4514_string()
    'CN=gossamer-0a1b-3'
    """

    certificate: bytes
    key: bytes = field(repr=False)

    @classmethod
    def new(cls, name: str) -> Authority:
        """A fresh authority, valid for ten years."""
        subject, key = _name(name), ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(subject, subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        certificate = builder.sign(key, SHA256())
        return cls(certificate.public_bytes(Encoding.PEM), _pem(key))

    def certify(self, common_name: str, hosts: Sequence[str]) -> tuple[bytes, bytes]:
        """A fresh key pair and its certificate, good for both ends of a connection.

        Args:
            common_name: who it is, see `common_name`.
            hosts: IP addresses, in brackets or not, and host names under which others dial it.

        Returns:
            Certificate and private key, both PEM.
        """
        signer = load_pem_private_key(self.key, password=None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        issuer = x509.load_pem_x509_certificate(self.certificate)
        key = ec.generate_private_key(ec.SECP256R1())
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        builder = (
            _builder(_name(common_name), issuer.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(both, critical=False)
            .add_extension(_alternatives(hosts), critical=False)
            .add_extension(identifier, critical=False)
        )
        return builder.sign(signer, SHA256()).public_bytes(Encoding.PEM), _pem(key)


def _name(common_name: str) -> x509.Name:
    if not 1 <= len(common_name) <= LONGEST_NAME:
        hint = "use a shorter network id"
        raise ConfigurationError("common_name", common_name, f"1 to {LONGEST_NAME} characters", hint)
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + _VALID)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
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


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
