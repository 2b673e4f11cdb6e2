"""The database of a ledger: SQLite with a write-ahead log, on disk when a commit returns, for its owner only."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gossamer.errors import NetworkError, PrivacyError
from gossamer.net.store import blobs, vault
from gossamer.net.store.chain import FIRST, WORDS, Identity, LedgerError, Row, decode_spent, encode_spent, unreadable
from gossamer.net.store.witness import lock

_APPLICATION = 0x476F7373  # "Goss": tells a ledger from other databases
_VERSION = 4
_LOG_BYTES = 1 << 22  # of the log that stays: it holds earlier states until they are written over
_COLUMNS = ", ".join(WORDS)
_SCHEMA = """
CREATE TABLE rows (number INTEGER PRIMARY KEY, time INTEGER, kind TEXT, exchange INTEGER, step INTEGER, run TEXT,
    spent TEXT, bytes INTEGER, message TEXT, state TEXT, note TEXT, previous TEXT, hash TEXT);
"""


def fill(path: Path, identity: Identity) -> None:
    """The tables and the first row, in an empty file."""
    row = Row(1, int(time.time()), "genesis", -1, -1, "", (), 0, "", "", identity.to_json(), FIRST, "").chained()
    with connect(path, read_only=False) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA application_id = {_APPLICATION}")
        database.execute(f"PRAGMA user_version = {_VERSION}")
        database.executescript(_SCHEMA + vault.SCHEMA + blobs.SCHEMA)
        insert(database, row)


@contextmanager
def connect(path: Path, read_only: bool) -> Iterator[sqlite3.Connection]:
    """The database; for reading only as of one moment, also on media that nobody can write to."""
    still = "&immutable=1" if read_only and _still(path) else ""
    uri = f"{path.resolve().as_uri()}?mode={'ro' if read_only else 'rw'}{still}"
    database = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10)
    try:
        database.execute("PRAGMA temp_store = MEMORY")  # no raw data in files that nobody thinks of
        if read_only:
            database.execute("BEGIN")
        else:
            database.execute("PRAGMA synchronous = FULL")
            database.execute("PRAGMA fullfsync = ON")  # macOS: else the drive may keep it in its memory
            database.execute("PRAGMA secure_delete = ON")
            database.execute("PRAGMA cache_spill = OFF")  # what is written before the commit is written twice
            database.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        yield database
    finally:
        database.close()


def _still(path: Path) -> bool:
    """Whether nobody can change a database, and no log is left of it: else SQLite needs to write beside it, to read."""
    log = path.with_name(f"{path.name}-wal")
    return not os.access(path.parent, os.W_OK) and not (log.exists() and log.stat().st_size)


def flush_log(path: Path) -> None:
    """Have the log of the database on disk.

    A process that was killed within a commit may have left it in the system's memory only. It is read from there all
    the same, and must not be lost after something was sent, or wiped, because of it.
    """
    log = path.with_name(f"{path.name}-wal")
    if log.exists():
        file = os.open(log, os.O_RDWR)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def fold(path: Path) -> None:
    """Bring all that is in the log into the database, so that its file is all there is."""
    with connect(path, read_only=False) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def require_ledger(database: sqlite3.Connection, path: Path) -> None:
    """Refuse what is not the database of a ledger, or of another version."""
    ours, version = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if ours != _APPLICATION:
        raise LedgerError(f"{path}: not a ledger.")
    if version != _VERSION:
        raise LedgerError(
            f"{path}: not a ledger that this version of Gossamer can read: it has format {version}; allowed: format "
            f"{_VERSION}. Use the version that made it, or make a new network with `gossamer network new`."
        )


def insert(database: sqlite3.Connection, row: Row) -> None:
    """Add a row."""
    marks = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO rows ({_COLUMNS}) VALUES ({marks})", (*row[:6], encode_spent(row.spent), *row[7:]))


def select(database: sqlite3.Connection, where: str, values: tuple[int, ...] = ()) -> list[Row]:
    """Rows as stored."""
    return [_row(raw) for raw in database.execute(f"SELECT {_COLUMNS} FROM rows {where}", values)]


def _row(raw: tuple[Any, ...]) -> Row:
    try:
        return Row._make((*raw[:6], decode_spent(raw[6]), *raw[7:]))
    except (ValueError, KeyError, TypeError, AttributeError, PrivacyError) as error:
        raise unreadable(raw[0], error) from None


@contextmanager
def database_errors(path: Path) -> Iterator[None]:
    """What the database or the system refuses, as an error of ours."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(
            f"{path}: the ledger cannot be read or written ({error}). Nothing may be sent. If the disk is full, make "
            f"room and start again; a damaged ledger cannot be used any more: make a new directory."
        ) from error


def hold(path: Path) -> int:
    """Take a lock file, for as long as it is open."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        lock(file)
    except BlockingIOError:
        os.close(file)
        raise NetworkError(
            f"{path.parent}: another process runs on this directory, or on one that counts its cost (`earlier`). "
            f"Stop it first."
        ) from None
    return file
