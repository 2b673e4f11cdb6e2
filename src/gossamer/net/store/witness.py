"""A witness outside the node's directory: it knows the last row, so that an old copy of the directory is refused.

To run on from an old copy would draw the same noise again over other data, which gives the data away.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gossamer.errors import ConfigurationError
from gossamer.net.store.chain import FIRST, LedgerError

_MAGIC = b"gossamer witness"
_RECORD = struct.Struct("<16sQQ32s")  # magic, turn, number, hash; a checksum follows
_CHECKSUM = 16
_SLOT = 4096  # each slot has a block of the disk to itself: a write that is torn leaves the other slot whole


class Mark(NamedTuple):
    """The last row that a witness knows of."""

    number: int
    hash: str


_NOTHING = Mark(0, FIRST)  # a file that is there to be held, and knows of no row yet


class Witness:
    """A file of two slots that are written in turn, in place, and are on disk before `record` returns.

    Attributes:
        path: outside the node's directory, so that a copy of that directory does not hold it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     witness = Witness(Path(folder) / "witness")
    ...     print(witness.read())
    ...     witness.record(Mark(7, "ab" * 32))
    ...     print(witness.read().number)
    ...     witness.close()
    None
    7
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._turn = 0

    def hold(self) -> None:
        """Keep every other process from using this witness until `close`; the file is made where there is none."""
        if self._file is None:
            if not self.path.exists():
                self._create()
            self._file = os.open(self.path, os.O_RDWR)
            self._lock()
            self.read()  # which slot is next

    def read(self) -> Mark | None:
        """The last row on record; None where nothing was recorded yet. A damaged file is refused."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"{self.path}: the witness cannot be read ({error.strerror}).") from None
        found = [slot for slot in (_unpack(data[start : start + _SLOT]) for start in (0, _SLOT)) if slot]
        if not found:
            raise LedgerError(
                f"{self.path}: the witness is damaged: neither of its two slots can be read. Remove it, and adopt the "
                f"directory if you are sure that it is no old copy."
            )
        self._turn, mark = max(found)
        return None if mark == _NOTHING else mark

    def record(self, mark: Mark) -> None:
        """Write down the last row; it is on disk when this returns."""
        self.hold()
        assert self._file is not None
        self._turn += 1
        os.pwrite(self._file, _pack(self._turn, mark), self._turn % 2 * _SLOT)
        flush(self._file)

    def require_next(self, known: Mark | None, last: Mark) -> None:
        """Refuse a ledger that goes on further than one row, which a crash may leave, from what was on record."""
        if known is None:
            raise LedgerError(
                f"{self.path}: the witness knows nothing of a ledger whose run has begun (it ends with row "
                f"{last.number}): it may be an old copy, and going on would use the same noise twice. If you moved "
                f"the directory here and nothing ran on it since, adopt it: gossamer node DIR --adopt."
            )
        if known.number < last.number - 1:
            raise LedgerError(
                f"{self.path}: the witness ends at row {known.number}, the ledger at row {last.number}: the "
                f"node ran with another witness. If nothing else ran on it, adopt it: gossamer node DIR --adopt."
            )

    def close(self) -> None:
        """Let other processes use it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _create(self) -> None:
        """A witness that knows of nothing; under another name first: a crash leaves a whole file or none."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        file = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.pwrite(file, bytes(2 * _SLOT), 0)
            os.pwrite(file, _pack(1, _NOTHING), _SLOT)
            os.fsync(file)
            with suppress(FileExistsError):  # another process made it meanwhile: the lock says whose it is
                os.link(unfinished, self.path)
        finally:
            os.close(file)
            unfinished.unlink()
        sync_directory(self.path.parent)

    def _lock(self) -> None:
        assert self._file is not None
        try:
            lock(self._file)
        except BlockingIOError:
            self.close()
            raise LedgerError(
                f"{self.path}: another process uses this witness: the same node, or a copy of its directory, is "
                f"running. Stop it first."
            ) from None


def default_witness(name: str) -> Path:
    """Where the witness of a ledger lies unless somebody says otherwise.

    Args:
        name: what no other ledger shares: the fingerprint of the noise key (`Identity.key`), or a run id.

    >>> default_witness("a1b2").parts[-3:]
    ('gossamer', 'witness', 'a1b2')
    """
    return state_directory() / "witness" / _plain(name)


def state_directory() -> Path:
    """Where this machine keeps what no copy of a directory may bring along: $XDG_STATE_HOME, or ~/.local/state.

    >>> state_directory().name
    'gossamer'
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "gossamer"


def witness_of(directory: Path, chosen: str, name: str) -> Witness:
    """The witness of a ledger; refused where it would lie in the directory that it is to tell old copies of.

    Args:
        directory: where the ledger lies.
        chosen: the directory that node.toml names, seen from there; "": the default.
        name: as of `default_witness`.

    >>> witness_of(Path("/nodes/node-0"), "/volume", "a1b2").path.as_posix()
    '/volume/a1b2'
    >>> witness_of(Path("/nodes/node-0"), "witness", "a1b2")
    Traceback (most recent call last):
        ...
    gossamer.errors.ConfigurationError: witness: got 'witness'; allowed: a directory outside of the node's. A copy ...
    """
    path = directory / chosen / _plain(name) if chosen else default_witness(name)
    if path.resolve().is_relative_to(directory.resolve()):
        hint = "a copy of the node's directory would bring its own witness along"
        raise ConfigurationError("witness", chosen or str(path), "a directory outside of the node's", hint)
    return Witness(path)


def _plain(name: str) -> str:
    """A name that leads to no other place."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", name):
        raise ConfigurationError("witness", name, "up to 128 letters, digits, - and _")
    return name


def old_copy(ledger: Path, known: Mark, last: Mark) -> LedgerError:
    """The error of a ledger that its witness knows better."""
    return LedgerError(
        f"{ledger}: row {last.number}: the ledger was restored from an old copy, or another copy of it ran: its "
        f"witness knows of row {known.number} with hash {known.hash[:12]}, the ledger ends with hash {last.hash[:12]}. "
        f"Going on would use the same noise twice. Make a new directory with a new key (`gossamer node join`)."
    )


def lock(file: int) -> None:
    """Take the exclusive lock of an open file; BlockingIOError where somebody has it."""
    import fcntl  # not on Windows, where nothing else of this module is needed either

    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def flush(file: int) -> None:
    """Have what was written to an open file on disk."""
    getattr(os, "fdatasync", os.fsync)(file)  # macOS has the second only


def sync_directory(path: Path) -> None:
    """Have the names in a directory on disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _pack(turn: int, mark: Mark) -> bytes:
    record = _RECORD.pack(_MAGIC, turn, mark.number, bytes.fromhex(mark.hash))
    return record + hashlib.blake2b(record, digest_size=_CHECKSUM).digest()


def _unpack(slot: bytes) -> tuple[int, Mark] | None:
    """Turn and mark of a slot; None where it is not whole."""
    record, checksum = slot[: _RECORD.size], slot[_RECORD.size : _RECORD.size + _CHECKSUM]
    if len(record) < _RECORD.size or hashlib.blake2b(record, digest_size=_CHECKSUM).digest() != checksum:
        return None
    magic, turn, number, digest = _RECORD.unpack(record)
    return (turn, Mark(number, digest.hex())) if magic == _MAGIC else None
