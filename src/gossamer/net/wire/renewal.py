"""Certificates are renewed while the node runs: a new one for the same key, and new connections with it.

Others know a learner by its key, so nobody has to agree. What is lost while connections are made anew is asked for
again, like all that is lost on the way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from gossamer.errors import ConfigurationError, GossamerError, PrivacyError
from gossamer.files import private_file
from gossamer.net.wire.certificates import VALID, certificate_for, described, public_key_of
from gossamer.net.wire.transport import Receive, Transport
from gossamer.net.wire.zenoh_link import Files

_LOG = logging.getLogger(__name__)

EARLY = VALID / 3
"""How long before its end a node renews its certificate by itself."""

Told = Literal["certificate_used", "certificate_ends"]

_LOOK = 10.0  # seconds between two looks at the certificate
_AGAIN = 1.0  # seconds, where connections could not be opened again
_SHOWN = timedelta(days=30)  # before its end: a certificate that could not be renewed is told of from then on


def renew(files: Files, hosts: Sequence[str] | None = None, valid: timedelta = VALID) -> datetime:
    """Put a new certificate for the same key in the place of the old one; says until when it is good.

    A node that runs on it takes it within seconds.

    Args:
        files: certificate and key.
        hosts: where others dial the learner from now on; None: where they did.
        valid: for how long.
    """
    private, old = files.key.read_bytes(), described(files.certificate.read_bytes())
    if old.key != public_key_of(private):
        raise PrivacyError(
            f"certificate: {files.certificate} is not for the key in {files.key}. Bring back both as they were made "
            f"together. Nothing was sent."
        )
    made = certificate_for(private, old.name, hosts or old.hosts, valid, old.issuer)
    try:
        with private_file(files.certificate) as opened:
            opened.write(made)
    except OSError as error:
        hint = f"the system says: {(error.strerror or 'refused').lower()}"
        raise ConfigurationError("cert.pem", str(files.certificate), "a file that can be replaced", hint) from None
    return described(made).until


class RenewedTransport:
    """A transport that is opened anew whenever the certificate on disk is another one; renews it before its end.

    Args:
        inner: the transport; it reads the files when it is opened.
        files: certificate and key.
        told: called with what happened, "certificate_used" or "certificate_ends", and until when the certificate is
            good.
        look: seconds between two looks at the certificate.
    """

    def __init__(
        self, inner: Transport, files: Files, told: Callable[[Told, datetime], None], look: float = _LOOK
    ) -> None:
        self._inner, self._files, self._told, self._look = inner, files, told, look
        self._turn, self._over = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._used = b""

    def open(self, receive: Receive) -> None:
        """Renew what is due, and open with it."""
        self._renew()
        self._used = self._files.certificate.read_bytes()
        self._inner.open(receive)
        self._told("certificate_used", described(self._used).until)
        self._over.clear()
        self._thread = threading.Thread(target=self._watch, args=(receive,), daemon=True)
        self._thread.start()

    def send(self, receiver: int, data: bytes) -> None:
        """Send to one learner; lost while connections are made anew."""
        self._inner.send(receiver, data)

    @property
    def connected(self) -> frozenset[int]:
        """The learners that can be reached now, as far as it is known."""
        return self._inner.connected

    def close(self) -> None:
        """End all connections."""
        self._over.set()
        with self._turn:
            self._inner.close()
        if self._thread is not None:
            self._thread.join(_LOOK)

    def _watch(self, receive: Receive) -> None:
        while not self._over.wait(self._look):
            try:
                self._renew()
                self._take(receive)
            except (GossamerError, OSError) as error:  # the node goes on with what it has, and tries again
                _LOG.error("the certificate was not renewed: %s", error)

    def _renew(self) -> None:
        """Renew a certificate that ends soon; where that cannot be, say so while there is time."""
        until = described(self._files.certificate.read_bytes()).until
        remaining = until - datetime.now(UTC)
        if remaining > EARLY:
            return
        try:
            renew(self._files)
        except GossamerError:
            if remaining < timedelta(0):
                raise
            if remaining < _SHOWN:
                self._told("certificate_ends", until)

    def _take(self, receive: Receive) -> None:
        """Open new connections where there is another certificate; those of before are closed."""
        now = self._files.certificate.read_bytes()
        if now == self._used:
            return
        if described(now).key != public_key_of(self._files.key.read_bytes()):
            raise PrivacyError("cert.pem: it is not for the key in cert.key. Run `gossamer node renew DIR`.")
        with self._turn:
            if not self._over.is_set():
                self._inner.close()
                self._reopen(receive)
        self._used = now
        self._told("certificate_used", described(now).until)

    def _reopen(self, receive: Receive) -> None:
        """Until it succeeds: the address may be in use for a moment."""
        while not self._over.is_set():
            try:
                self._inner.open(receive)
                return
            except GossamerError as error:
                _LOG.error("connections are tried again: %s", error)
                self._over.wait(_AGAIN)
