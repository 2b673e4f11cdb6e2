"""Encryption at rest: what a ledger keeps of raw data, unreadable without a key that lies elsewhere."""

from __future__ import annotations

import os

from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.privacy.keystream import check_key

_NONCE = 12


class Sealer:
    """Seals bytes with ChaCha20-Poly1305 under a key of 32 bytes.

    Every sealed piece has a nonce from the operating system and is bound to what it is about: it opens nowhere else.

    >>> sealer = Sealer(bytes(32))
    >>> sealed = sealer.seal(b"raw sums", "state of row 7")
    >>> sealer.unseal(sealed, "state of row 7")
    b'raw sums'
    >>> sealer.unseal(sealed, "state of row 8")
    Traceback (most recent call last):
        ...
    gossamer.errors.PrivacyError: state of row 8 cannot be unsealed: ...
    """

    def __init__(self, key: bytes) -> None:
        check_key(key, "make one with secrets.token_bytes(32) and keep it away from what it seals")
        try:
            from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        except ImportError:
            hint = "pip install cryptography"
            raise ConfigurationError("sealer", "no cryptography", "an installed cryptography", hint) from None
        self._cipher = ChaCha20Poly1305(key)

    def seal(self, data: bytes, about: str) -> bytes:
        """The data, readable only with the key and the same `about`."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, data, about.encode())

    def unseal(self, sealed: bytes, about: str) -> bytes:
        """What was sealed; refused with another key, another `about`, or where a bit was changed."""
        from cryptography.exceptions import InvalidTag

        view = memoryview(sealed)
        try:
            return self._cipher.decrypt(sealed[:_NONCE], view[_NONCE:], about.encode())
        except (InvalidTag, ValueError):
            raise PrivacyError(
                f"{about} cannot be unsealed: it was sealed with another key, or changed since. "
                f"Give the key that the ledger was begun with."
            ) from None
