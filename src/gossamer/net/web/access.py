"""Who may see the page of a node: programs of this machine, or whoever has the token, over TLS."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.files import private_file
from gossamer.net.web.server import RefusedError, Request
from gossamer.net.wire.certificates import until_of
from gossamer.net.wire.zenoh_link import Files

OWNER, METRICS = "page.token", "metrics.token"
"""Files in a node's directory: who has the first may see everything, who has the second the metrics alone."""

_LEAST = 32  # characters of a token

Right = Literal["page", "everybody", "metrics", "owner"]
"""What a route needs: nothing, not even to be asked by the node's own page; no token; one of the two; the owner's."""


@dataclass(frozen=True)
class Access:
    """The rules of one page.

    Attributes:
        host: where it listens.
        port: likewise.
        owner: the token of whoever may see everything; None: whoever reaches the port may.
        metrics: the token that is good for metrics and health only.

    >>> Access("127.0.0.1", 8400).may(Request("GET", "/status", {}), "owner")
    True
    >>> Access("10.0.0.7", 8400, "s" * 43).may(Request("GET", "/status", {}), "owner")
    False
    """

    host: str
    port: int
    owner: str | None = None
    metrics: str | None = None

    def may(self, request: Request, right: Right) -> bool:
        """Whether a request has the token that is needed; compared in constant time."""
        if right in ("page", "everybody") or self.owner is None:
            return True
        given = _digest(request.headers.get("authorization", "").removeprefix("Bearer "))
        good = hmac.compare_digest(given, _digest(self.owner))
        if right == "metrics" and self.metrics is not None:
            good |= hmac.compare_digest(given, _digest(self.metrics))
        return good

    def check(self, request: Request, right: Right) -> None:
        """Refuse what comes through another site's page, and whoever lacks the token."""
        self._check_host(request)
        if right != "page":
            self._check_origin(request)
            self._check_proxy(request)
        if not self.may(request, right):
            file = OWNER if right == "owner" else f"{METRICS} or {OWNER}"
            raise RefusedError(401, f"a token is needed: Authorization: Bearer, and what is in {file} of the node")

    def _check_host(self, request: Request) -> None:
        """A page of another site that made its name point here (DNS rebinding) has its own name in this header."""
        ours = {f"{name}:{self.port}" for name in ("localhost", "127.0.0.1", "[::1]", self.host)}
        if is_loopback(self.host) and request.headers.get("host", "").lower() not in ours:
            raise RefusedError(403, f"the Host header must be localhost:{self.port} or 127.0.0.1:{self.port}")

    def _check_origin(self, request: Request) -> None:
        """What a browser asks in the name of another site says so."""
        origin, host = request.headers.get("origin"), request.headers.get("host", "")
        ours = origin is None or origin.partition("://")[2].lower() == host.lower()
        if not ours or request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise RefusedError(403, "a request of another site's page: open this node's own page")

    def _check_proxy(self, request: Request) -> None:
        """Without a token only programs of this machine may ask, not others through one of them."""
        if self.owner is None and not request.headers.keys().isdisjoint(("forwarded", "x-forwarded-for", "via")):
            raise RefusedError(403, "a proxy hands this on: then a token is needed, see `gossamer node token`")


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise ConfigurationError("host", host, "localhost or an IP address", "try 127.0.0.1") from None


def new_token(file: Path) -> str:
    """A fresh token, in a file that only its owner may read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = new_token(Path(folder) / OWNER)
    ...     len(made), made == read_token(Path(folder) / OWNER)
    (43, True)
    """
    token = secrets.token_urlsafe(32)
    with private_file(file) as opened:
        opened.write(token.encode() + b"\n")
    return token


def read_token(file: Path) -> str | None:
    """The token in a file, None where there is no file; refused where others may read it, or somebody may guess it."""
    if not file.exists():
        return None
    if file.stat().st_mode & 0o077:
        raise PrivacyError(f"token: others may read {file}. Allowed: mode 0600. Run `chmod 600 {file}`.")
    token = file.read_text(encoding="utf-8", errors="replace").strip()
    if len(token) < _LEAST or not (token.isascii() and token.isprintable() and " " not in token):
        hint = "make one with `gossamer node token DIR`"
        allowed = f"{_LEAST} characters or more, of ASCII, without spaces"
        raise ConfigurationError("token", f"{len(token)} characters in {file}", allowed, hint)
    return token


def given_certificate(folder: Path, certificate: str, key: str) -> Files | None:
    """The certificate and the key that an owner names for a page, as seen from a folder; None where neither is named.

    >>> given_certificate(Path("node-0"), "", "") is None
    True
    """
    if certificate and key:
        return Files(folder / certificate, folder / key)
    if certificate or key:
        named = "http_certificate" if certificate else "http_key"
        raise ConfigurationError("node.toml", f"{named} alone", "http_certificate and http_key, or neither")
    return None


class Certified:
    """TLS with the certificate that lies on disk: a new one is taken for the next connection.

    Args:
        files: certificate and key, PEM.
    """

    def __init__(self, files: Files) -> None:
        self._files, self._read = files, 0
        self._context: ssl.SSLContext | None = None
        self.context()

    @property
    def until(self) -> datetime:
        """Until when the certificate is good."""
        return until_of(self._files.certificate.read_bytes())

    def context(self) -> ssl.SSLContext:
        """For the next connection; a certificate that was renewed and fits its key takes the place of the old one."""
        try:
            now = self._files.certificate.stat().st_mtime_ns
            if self._context is None or now != self._read:
                made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                made.minimum_version = ssl.TLSVersion.TLSv1_3
                made.load_cert_chain(self._files.certificate, self._files.key, password=lambda: b"")
                self._context, self._read = made, now
        except OSError:  # gone, half written, or not for its key
            if self._context is None:
                allowed = "a certificate and its key, both PEM, the key without a password"
                raise ConfigurationError("http_certificate", str(self._files.certificate), allowed) from None
        return self._context


def _digest(text: str) -> bytes:
    """Of equal length whatever is given: comparing takes equally long."""
    return hashlib.sha256(text.encode()).digest()
