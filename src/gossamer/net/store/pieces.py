"""The messages and the states of a ledger's rows: each checked against the digest in its row, and sealed if asked."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

from gossamer.errors import ConfigurationError
from gossamer.net.store.blobs import Blobs
from gossamer.net.store.chain import LedgerError, Row
from gossamer.net.store.vault import Vault
from gossamer.net.wire.transport import ALL

_RECEIVERS = 1 << 24
_FIRST = -(2**63)


def place(number: int, receiver: int) -> int:
    """Where a message lies among the blobs: one row's messages side by side, rows in their order.

    >>> place(3, -1) < place(3, 0) < place(4, -1)
    True
    """
    return number * _RECEIVERS + receiver + 1


def unplace(at: int) -> tuple[int, int]:
    """Row number and receiver of a place.

    >>> unplace(place(3, 7))
    (3, 7)
    """
    return at // _RECEIVERS, at % _RECEIVERS - 1


def state_place(number: int) -> int:
    """Where the state of a row lies: before all messages, and never where another was.

    >>> state_place(3)
    -3
    """
    return -number


FIRST_MESSAGE = place(0, ALL)
"""Places before it are those of states."""

MOST_RECEIVER = _RECEIVERS - 2
"""The largest number of a receiver."""


class Pieces:
    """What one ledger stores beside its rows; `put` and `drop` within the transaction of the row.

    Args:
        database: of the ledger.
        path: of the file of large pieces.
        vault: digests and seals.
        again: opens the database anew, for somebody who reads while another one writes; None for the one who writes.

    Attributes:
        blobs: where they lie.
    """

    def __init__(
        self,
        database: sqlite3.Connection,
        path: Path,
        vault: Vault,
        again: Callable[[], AbstractContextManager[sqlite3.Connection]] | None,
    ) -> None:
        self._database, self._vault = database, vault
        self.blobs = Blobs(database, path, again)

    def put_messages(self, row: Row, messages: Sequence[tuple[int, bytes]], keep: int) -> None:
        """Store what a row sends, by receiver; of rows before the last `keep` messages are dropped."""
        self.blobs.drop(FIRST_MESSAGE, place(row.number - keep + 1, ALL) - 1)
        for who, data in messages:
            self.blobs.put(place(row.number, who), self._vault.closed(data, _about_message(row, who)))

    def put_state(self, row: Row, state: bytes) -> None:
        """Store the state after a row, in the place of the one before."""
        self.blobs.drop(_FIRST, FIRST_MESSAGE - 1)
        self.blobs.put(state_place(row.number), self._vault.closed(state, _about_state(row)))

    def messages(self, row: Row) -> dict[int, bytes]:
        """What was stored with a row, by receiver; anything else than was committed is refused."""
        sent = {}
        for at in self.blobs.places(place(row.number, ALL), place(row.number, MOST_RECEIVER)):
            _, who = unplace(at)
            data = self.blobs.get(at)
            assert data is not None
            sent[who] = self._vault.opened(data, _about_message(row, who))
        if self._vault.digest(row.number, sent.items()) != row.message:
            raise LedgerError(f"row {row.number}: the stored messages are not those of the row: one was changed.")
        return sent

    def state(self, row: Row | None, last: Row) -> bytes | None:
        """The state that was stored with the last row that has one (None: no row has); any other is refused."""
        if self.blobs.places(_FIRST, FIRST_MESSAGE - 1) != ([state_place(row.number)] if row else []):
            raise LedgerError(f"row {last.number}: the stored state is missing or out of place.")
        found = self.blobs.get(state_place(row.number)) if row else None
        if row is None or found is None:
            return None
        state = self._vault.opened(found, _about_state(row))
        if row.state != self._vault.digest_of_state(row.number, state):
            raise LedgerError(f"row {row.number}: the stored state is not the one of this row.")
        return state

    def sent(self, last: int) -> dict[tuple[int, int], int]:
        """Numbers of the rows whose messages are kept, the last row's included, by exchange and step."""
        query = "SELECT exchange, step, number FROM rows WHERE number >= ? AND message != '' ORDER BY number"
        found = self._database.execute(query, (self.kept("min") or last,))
        return {(exchange, step): number for exchange, step, number in found}

    def kept(self, which: Literal["min", "max"]) -> int | None:
        """The first or the last row of which a message is kept; None where there is none."""
        query = f"SELECT {which}(place) FROM blobs WHERE place >= {FIRST_MESSAGE}"
        at: int | None = self._database.execute(query).fetchone()[0]
        return None if at is None else unplace(at)[0]


def _about_message(row: Row, receiver: int) -> str:
    """What a sealed message is bound to."""
    return f"message for {receiver} of row {row.number} of run {row.run}"


def _about_state(row: Row) -> str:
    """What a sealed state is bound to."""
    return f"state of row {row.number} of run {row.run}"


def require_bytes(data: bytes) -> None:
    """Refuse what is no bytes.

    >>> require_bytes(b"noised")
    """
    if not isinstance(data, bytes):
        raise ConfigurationError("messages and state", type(data).__name__, "bytes")
