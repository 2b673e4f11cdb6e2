"""What keeps the pieces of a ledger whole and, where their owner wants it, secret: keyed digests and a seal."""

from __future__ import annotations

import secrets
import sqlite3
import struct
from collections.abc import Iterable
from pathlib import Path

from gossamer.errors import PrivacyError
from gossamer.net.store.chain import LedgerError
from gossamer.net.store.sealing import Sealer
from gossamer.net.wire.packing import require_net

SCHEMA = "CREATE TABLE secret (id INTEGER PRIMARY KEY, sealed INTEGER, salt BLOB);"
"""The key of the digests, made when the run begins."""

_SALT = 32
_STATE = -2  # what stands for a receiver in the digest of a state


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


def about_message(run: str, number: int, receiver: int) -> str:
    """What a sealed message is bound to.

    >>> about_message("a1", 7, -1)
    'message for -1 of row 7 of run a1'
    """
    return f"message for {receiver} of row {number} of run {run}"


def about_state(run: str, number: int) -> str:
    """What a sealed state is bound to.

    >>> about_state("a1", 7)
    'state of row 7 of run a1'
    """
    return f"state of row {number} of run {run}"
