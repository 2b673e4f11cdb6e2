"""Bytes that belong to the rows of a ledger: small ones in the database, large ones in a file beside it.

A database writes every byte twice, into its log and then into its pages. For messages of a megabyte that is most of
what a commit costs. So large pieces go into a file of their own, straight to disk, and the transaction holds their
place and length:

- They are on disk before the transaction ends: whoever reads a row finds its pieces.
- The space of a piece is used again only after the transaction that drops it: whatever a crash undoes is still there.
- No two pieces ever have the same place. So somebody who reads while the node writes on can tell a piece that was
  dropped meanwhile, whose bytes may be those of another, from one that was changed.
- Dropped pieces are overwritten by those that follow, and what is left of them when the file is opened or closed.
"""

from __future__ import annotations

import errno
import mmap
import os
import sqlite3
from bisect import insort
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from gossamer.net.store.chain import LedgerError
from gossamer.net.store.witness import flush, sync_directory

LARGE = 100_000
"""From so many bytes on a piece lies in the file: below, a second wait for the disk costs more than it saves."""

SCHEMA = "CREATE TABLE blobs (place INTEGER PRIMARY KEY, data BLOB, page INTEGER, length INTEGER);"
"""A piece is its data, or a page of the file and a length."""

_PAGE = 4096  # what disks write at once
_CLEARED = 256  # pages that are cleared at once
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
        self._space = Space(_used(database))
        if again is None and self._space.end * _PAGE > _size(path):
            raise LedgerError(f"{path}: this file with the large pieces of the ledger is missing or was cut.")
        self._dropped: list[tuple[int, int]] = []
        self._file: _File | None = None

    def put(self, place: int, data: bytes) -> None:
        """Store a piece at a place where there never was one."""
        values: tuple[int, bytes | None, int | None, int | None] = (place, data, None, None)
        if len(data) >= LARGE:
            page = self._space.take(_pages(len(data)))
            self._opened().write(page, data)
            values = (place, None, page, len(data))
        self._database.execute("INSERT INTO blobs VALUES (?, ?, ?, ?)", values)

    def drop(self, first: int, last: int) -> None:
        """Drop all pieces from one place to another."""
        ends = (first, last)
        query = "SELECT page, length FROM blobs WHERE place BETWEEN ? AND ? AND page IS NOT NULL"
        self._dropped += [(page, _pages(length)) for page, length in self._database.execute(query, ends)]
        self._database.execute("DELETE FROM blobs WHERE place BETWEEN ? AND ?", ends)

    def sync(self) -> None:
        """Have all large pieces on disk: before the transaction ends."""
        if self._file is not None:
            self._file.flush()

    def settle(self) -> None:
        """The transaction has ended: what it dropped is free."""
        for page, pages in self._dropped:
            self._space.give(page, pages)
        self._dropped = []

    def places(self, first: int, last: int) -> list[int]:
        """Where there are pieces, from one place to another."""
        query = "SELECT place FROM blobs WHERE place BETWEEN ? AND ? ORDER BY place"
        return [place for (place,) in self._database.execute(query, (first, last))]

    def get(self, place: int) -> bytes | None:
        """The piece at a place; None where there is none.

        Raises:
            ReplacedError: it was dropped since the database was opened for reading.
        """
        query = "SELECT data, page, length FROM blobs WHERE place = ?"
        found = self._database.execute(query, (place,)).fetchone()
        if found is None or found[0] is not None:
            return None if found is None else bytes(found[0])
        data = _read(self._path, found[1] * _PAGE, found[2])
        if self._again is not None:
            with self._again() as now:
                if now.execute(query, (place,)).fetchone() is None:
                    raise ReplacedError
        return data

    def wipe(self) -> None:
        """Zeros where nothing is stored: what was dropped, or left by a crash, may be raw data."""
        if not self._path.exists():
            return
        file = self._opened()
        for page, pages in self._space.free:
            file.clear(page, pages)
        file.end_at(self._space.end)
        file.flush()

    def close(self) -> None:
        """Wipe what was dropped, and let go of the file."""
        if self._file is not None:
            with suppress(OSError):  # what cannot be wiped now is wiped when it is opened
                self.wipe()
            self._file.close()
        self._file = None

    def _opened(self) -> _File:
        if self._file is None:
            self._file = _File(self._path)
        return self._file


class _File:
    """A file of its owner's alone, written in whole pages, and straight to disk where the file system can."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.fchmod(self._file, 0o600)
        sync_directory(path.parent)
        _pass_by_the_cache(self._file, _DIRECT)
        self._buffer = mmap.mmap(-1, _PAGE)  # begins with a page: nothing else goes straight to disk
        self._dirty = False

    def write(self, page: int, data: bytes) -> None:
        size = _pages(len(data)) * _PAGE
        if len(self._buffer) < size:
            self._buffer = mmap.mmap(-1, size)
        self._buffer[: len(data)] = data
        self._buffer[len(data) : size] = bytes(size - len(data))
        self._dirty = True
        with memoryview(self._buffer) as whole:
            written = 0
            while written < size:
                with whole[written:size] as rest:
                    written += _write(self._file, rest, page * _PAGE + written)

    def clear(self, page: int, pages: int) -> None:
        for first in range(page, page + pages, _CLEARED):
            self.write(first, bytes(min(_CLEARED, page + pages - first) * _PAGE))

    def end_at(self, page: int) -> None:
        self.clear(page, max(0, _pages(os.fstat(self._file).st_size) - page))
        os.ftruncate(self._file, page * _PAGE)

    def flush(self) -> None:
        if self._dirty:
            flush(self._file)
        self._dirty = False

    def close(self) -> None:
        os.close(self._file)


def _used(database: sqlite3.Connection) -> list[tuple[int, int]]:
    """(page, pages) of all large pieces, in order; refused where the table says what cannot be."""
    query = "SELECT place, data IS NULL, typeof(data), page, length FROM blobs ORDER BY page"
    used: list[tuple[int, int]] = []
    for place, large, kind, page, length in database.execute(query):
        whole = type(page) is type(length) is int and page >= (sum(used[-1]) if used else 0) and 0 < length < 2**40
        if not (whole if large else kind == "blob" and page is length is None):
            raise LedgerError(f"the stored piece at place {place} is out of place: it was changed or damaged.")
        if large:
            used.append((page, _pages(length)))
    return used


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _pages(length: int) -> int:
    return -(-length // _PAGE)


def _read(path: Path, offset: int, length: int) -> bytes:
    """What is left of a piece where the file was cut; its digest tells."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(min(length, _size(path)))
    except FileNotFoundError:
        return b""


def _pass_by_the_cache(file: int, flag: int) -> None:
    """Write straight to disk from now on, with `O_DIRECT`, or no longer: nobody reads it again but after a crash."""
    import fcntl  # not on Windows, where no node runs

    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, (flags & ~_DIRECT) | flag)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot
            raise


def _write(file: int, data: memoryview, offset: int) -> int:
    """How much of it was written; not nothing."""
    try:
        written = os.pwrite(file, data, offset)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _pass_by_the_cache(file, 0)  # a file system that said it could, and cannot; or the rest of a part
        written = os.pwrite(file, data, offset)
    if not written:
        raise OSError(errno.EIO, "the disk takes nothing")
    return written
