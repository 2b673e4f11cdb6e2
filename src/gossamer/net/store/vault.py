"""What keeps the pieces of a ledger whole and, where their owner wants it, secret: keyed digests, encryption at rest.

The noise key is sealed alike. The key that opens all of them lies elsewhere.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import struct
from collections.abc import Iterable
from pathlib import Path

from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.dependencies import require_net
from gossamer.net.store.chain import LedgerError
from gossamer.net.store.witness import sync_directory
from gossamer.privacy.keystream import check_key

SCHEMA = "CREATE TABLE secret (id INTEGER PRIMARY KEY, sealed INTEGER, salt BLOB);"
"""The key of the digests, made when the run begins."""

_SALT = 32
_STATE = -2  # what stands for a receiver in the digest of a state
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

    @classmethod
    def of(cls, file: Path) -> Sealer:
        """With the key in a file."""
        try:
            return cls(file.read_bytes())
        except OSError as error:
            hint = f"the system says: {(error.strerror or 'refused').lower()}"
            raise ConfigurationError("key", str(file), "a file that can be read, with 32 bytes", hint) from None

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


class Vault:
    """The secrets of one ledger, as its database holds them.

    Args:
        database: of the ledger.
        path: of the database, for errors.
        run: the run's id; None before it began.
        sealer: encrypts state and messages; None: they are not encrypted, or only rows are read.
        read_only: whether somebody only reads.

    Attributes:
        sealed: whether state and messages are encrypted.
    """

    def __init__(
        self, database: sqlite3.Connection, path: Path, run: str | None, sealer: Sealer | None, read_only: bool
    ) -> None:
        self._sealer, self._salt = sealer, b""
        found = database.execute("SELECT sealed, salt FROM secret").fetchone()
        if (found is None) != (run is None):
            raise LedgerError(f"{path}: the key of its digests is missing or out of place.")
        self.sealed = bool(found[0]) if found else sealer is not None
        if self.sealed and sealer is None and not read_only:
            hint = "give the sealing key that its run was begun with"
            raise PrivacyError.of("sealer", None, "a sealer: this ledger is sealed", hint)
        if sealer and not self.sealed:
            hint = "open it without one, or seal the next run from its beginning"
            raise PrivacyError.of("sealer", "a sealer", "none: this ledger was begun without", hint)
        if found and not self.locked:
            self._salt = self.opened(found[1], f"salt of run {run}")
            if len(self._salt) != _SALT:
                raise LedgerError(f"{path}: the key of its digests was changed.")

    @property
    def locked(self) -> bool:
        """Whether pieces are sealed and the key was not given: then only rows can be read."""
        return self.sealed and self._sealer is None

    def begin(self, database: sqlite3.Connection, run: str) -> None:
        """Make the key of the digests, within the transaction that begins the run."""
        self._salt = secrets.token_bytes(_SALT)
        secret = (int(self._sealer is not None), self.closed(self._salt, f"salt of run {run}"))
        database.execute("INSERT INTO secret VALUES (1, ?, ?)", secret)

    def digest(self, number: int, parts: Iterable[tuple[int, bytes]]) -> str:
        """Of a row's messages, by receiver.

        Keyed, so that nobody can try out messages or states; with the number, so that no two can be compared. BLAKE3: a
        megabyte in a fifth of the time of SHA-256, which was a tenth of all that a node does.
        """
        require_net("blake3")
        from blake3 import blake3

        digest = blake3(struct.pack("<Q", number), key=self._salt)
        for receiver, data in parts:
            digest.update(struct.pack("<qQ", receiver, len(data)))
            digest.update(data)
        return digest.hexdigest()

    def digest_of_state(self, number: int, state: bytes) -> str:
        """Of a row's state."""
        return self.digest(number, [(_STATE, state)])

    def closed(self, data: bytes, about: str) -> bytes:
        """A piece as it is stored."""
        return self._sealer.seal(data, about) if self._sealer else data

    def opened(self, data: bytes, about: str) -> bytes:
        """A stored piece as it was."""
        if self.locked:
            raise PrivacyError.of("sealer", None, "a sealer: this ledger is sealed", "give its sealing key")
        return self._sealer.unseal(data, about) if self._sealer else data


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
