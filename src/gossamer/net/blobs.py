"""Bytes that belong to the rows of a ledger: small ones in the database, large ones in a file beside it.

A database writes every byte twice, into its log and then into its pages. For messages of a megabyte that is most of
what a commit costs. So large pieces go into a file of their own, straight to disk, and the transaction holds their
place and length:

- They are on disk before the transaction ends: whoever reads a row finds its pieces.
- The space of a piece is used again only after the transaction that drops it: whatever a crash undoes is still there.
- Dropped pieces are overwritten by those that follow, and what is left of them when the file is opened or closed.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import sqlite3
from bisect import insort
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

from gossamer.net.chain import LedgerError
from gossamer.net.witness import sync_directory

LARGE = 100_000
"""From so many bytes on a piece lies in the file: below, a second wait for the disk costs more than it saves."""

SCHEMA = "CREATE TABLE blobs (place INTEGER PRIMARY KEY, length INTEGER, page INTEGER, data BLOB);"

_PAGE = 4096  # what disks write at once
_DIRECT = getattr(os, "O_DIRECT", 0)


class ReplacedError(Exception):
    """The piece was dropped by a node that runs while somebody reads."""


class Space:
    """Which pages of a file are free. The first that suffice are taken: the file stays as small as it can.

    Args:
        used: (page, pages) of all pieces.

    >>> space = Space([(0, 2), (3, 1)])
    >>> space.take(2), space.take(1)
    (4, 2)
    >>> space.give(0, 2)
    >>> space.give(3, 1)
    >>> space.give(2, 1)
    >>> space.take(4)
    0
    """

    def __init__(self, used: Iterable[tuple[int, int]]) -> None:
        self._free: list[tuple[int, int]] = []  # (page, pages), in order, none beside another
        self._end = 0
        for page, pages in sorted(used):
            if page > self._end:
                self._free.append((self._end, page - self._end))
            self._end = max(self._end, page + pages)

    def take(self, pages: int) -> int:
        """The first of so many pages in a row, which are free no longer."""
        for number, (page, length) in enumerate(self._free):
            if length >= pages:
                self._free[number : number + 1] = [(page + pages, length - pages)] if length > pages else []
                return page
        page, self._end = self._end, self._end + pages
        return page

    @property
    def free(self) -> tuple[tuple[int, int], ...]:
        """(page, pages) of all that is free before the end."""
        return tuple(self._free)

    @property
    def end(self) -> int:
        """The page after the last that was ever used."""
        return self._end

    def give(self, page: int, pages: int) -> None:
        """Make pages free."""
        insort(self._free, (page, pages))
        joined: list[tuple[int, int]] = []
        for begin, length in self._free:
            if joined and sum(joined[-1]) == begin:
                joined[-1] = (joined[-1][0], joined[-1][1] + length)
            else:
                joined.append((begin, length))
        self._free = joined


class Blobs:
    """Pieces of bytes by their places, in the transactions of a database that has the table of `SCHEMA`.

    Args:
        database: within its transactions `put` and `drop` are called, then `sync`; after it `settle`.
        path: the file of large pieces; made when the first one comes.
        again: opens the database anew, for somebody who reads while another one writes; None for the one who writes.
    """

    def __init__(
        self,
        database: sqlite3.Connection,
        path: Path,
        again: Callable[[], AbstractContextManager[sqlite3.Connection]] | None,
    ) -> None:
        self._database, self._path, self._again = database, path, again
        used = database.execute("SELECT page, length FROM blobs WHERE page IS NOT NULL").fetchall()
        self._space = Space((page, _pages(length)) for page, length in used)
        self._dropped: list[tuple[int, int]] = []
        self._files = ExitStack()
        self._writer: int | None = None
        self._buffer = mmap.mmap(-1, _PAGE)
        self._written = False

    def put(self, place: int, data: bytes) -> None:
        """Store a piece at a place where there is none."""
        page = None if len(data) < LARGE else self._write(data)
        values = (place, len(data), page, data if page is None else None)
        self._database.execute("INSERT INTO blobs VALUES (?, ?, ?, ?)", values)

    def drop(self, first: int, last: int) -> None:
        """Drop all pieces from one place to another."""
        query = "DELETE FROM blobs WHERE place BETWEEN ? AND ? RETURNING page, length"
        found = self._database.execute(query, (first, last)).fetchall()
        self._dropped += [(page, _pages(length)) for page, length in found if page is not None]

    def sync(self) -> None:
        """Have all large pieces on disk: before the transaction ends."""
        if self._written and self._writer is not None:
            os.fdatasync(self._writer)
        self._written = False

    def settle(self) -> None:
        """The transaction has ended: what it dropped is free."""
        for page, pages in self._dropped:
            self._space.give(page, pages)
        self._dropped = []

    def get(self, place: int) -> bytes | None:
        """The piece at a place; None where there is none.

        Raises:
            ReplacedError: it was replaced since the database was opened for reading.
        """
        query = "SELECT length, page, data FROM blobs WHERE place = ?"
        found = self._database.execute(query, (place,)).fetchone()
        if found is None or found[1] is None:
            return None if found is None else bytes(found[2])
        data = self._read(found[0], found[1])
        if self._again is not None:
            with self._again() as now:
                if now.execute(query, (place,)).fetchone() != found:
                    raise ReplacedError
        return data

    def close(self) -> None:
        """Wipe what was dropped, and let go of the file."""
        with self._files, suppress(OSError):  # what cannot be wiped now is wiped when it is opened
            if self._writer is not None:
                self.wipe()
        self._writer = None

    def wipe(self) -> None:
        """Zeros where nothing is stored: what was dropped, or left by a crash, may be raw data."""
        if not self._path.exists():
            return
        file = self._open_writer()
        os.ftruncate(file, self._space.end * _PAGE)
        for page, pages in self._space.free:
            self._write_at(page, bytes(pages * _PAGE))
        os.fdatasync(file)

    def _write(self, data: bytes) -> int:
        page = self._space.take(_pages(len(data)))
        self._write_at(page, data)
        self._written = True
        return page

    def _write_at(self, page: int, data: bytes) -> None:
        """Whole pages, from memory that begins with one: without that nothing goes straight to disk."""
        size = _pages(len(data)) * _PAGE
        if len(self._buffer) < size:
            self._buffer = mmap.mmap(-1, size)
        self._buffer[: len(data)] = data
        self._buffer[len(data) : size] = bytes(size - len(data))
        with memoryview(self._buffer) as whole, whole[:size] as view:
            _write(self._open_writer(), view, page * _PAGE)

    def _open_writer(self) -> int:
        if self._writer is None:
            made = not self._path.exists()
            self._writer = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            self._files.callback(os.close, self._writer)
            os.fchmod(self._writer, 0o600)
            if made:
                sync_directory(self._path.parent)
            _pass_by_the_cache(self._writer, _DIRECT)
        return self._writer

    def _read(self, length: int, page: int) -> bytes:
        try:
            file = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            raise LedgerError(f"{self._path}: the file with the large pieces of this ledger is missing.") from None
        try:
            return os.pread(file, length, page * _PAGE)
        finally:
            os.close(file)


def _pages(length: int) -> int:
    return -(-length // _PAGE)


def _pass_by_the_cache(file: int, flag: int) -> None:
    """Write straight to disk from now on, with `O_DIRECT`, or no longer: nobody reads it again but after a crash."""
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, (flags & ~_DIRECT) | flag)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot
            raise


def _write(file: int, data: memoryview, offset: int) -> None:
    try:
        written = os.pwrite(file, data, offset)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _pass_by_the_cache(file, 0)  # a file system that said it could, and cannot
        written = os.pwrite(file, data, offset)
    if written < len(data):
        raise OSError(errno.EIO, "the disk took a part only")
