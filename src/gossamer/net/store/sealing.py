"""Encryption at rest: raw data of a ledger, and the noise key, unreadable without a key that lies elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.store.witness import sync_directory
from gossamer.privacy.keystream import check_key

_NONCE, _KEY = 12, 32


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


def read_key(file: Path, sealer: Sealer | None) -> bytes:
    """The key of 32 bytes in a file, which may hold it as it is or sealed."""
    data = file.read_bytes()
    if len(data) == _KEY:
        return data
    if sealer is None:
        raise PrivacyError(
            f"key: {file} is sealed or damaged. Allowed: the 32 bytes themselves, or the key that sealed them: "
            f"start the node with --state-key, and with sealed = true in node.toml."
        )
    return sealer.unseal(data, file.name)


def seal_key(file: Path, sealer: Sealer) -> None:
    """Replace a key in a file by its sealed form, unless it is sealed already; a crash leaves the one or the other.

    The bytes in clear are overwritten when the sealed ones are on disk. A disk may still hold copies of them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "noise.key"
    ...     _ = file.write_bytes(bytes(range(32)))
    ...     seal_key(file, Sealer(bytes(32)))
    ...     bytes(range(32)) in file.read_bytes(), read_key(file, Sealer(bytes(32))) == bytes(range(32))
    (False, True)
    """
    key = file.read_bytes()
    if len(key) != _KEY:
        return
    try:
        _replace(file, sealer.seal(key, file.name))
    except OSError as error:
        raise PrivacyError(
            f"key: {file} cannot be replaced by its sealed form ({error.strerror}). Make its directory writable, and "
            f"start again; nothing was sent."
        ) from None


def _replace(file: Path, data: bytes) -> None:
    """Put data in the place of a file, and zeros where the old bytes lay."""
    unfinished = file.with_name(f"{file.name}.new")
    unfinished.unlink(missing_ok=True)  # of a crash
    with file.open("r+b", buffering=0) as old:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as new:
            new.write(data)
            os.fsync(new.fileno())
        unfinished.replace(file)
        sync_directory(file.parent)
        old.write(bytes(os.fstat(old.fileno()).st_size))
        os.fsync(old.fileno())
