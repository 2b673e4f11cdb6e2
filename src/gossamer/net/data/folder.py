"""Samples of a folder in which files arrive: each file once, whatever it is called later."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from gossamer.data.schema import Schema
from gossamer.errors import DataError
from gossamer.net.data.followed_file import SUFFIXES, open_tape
from gossamer.net.data.parquet import Group, fingerprint
from gossamer.net.data.reader import Faults, Reader
from gossamer.net.data.sources import Mark, other_data
from gossamer.net.data.tapes import Row, Tape, Tapes
from gossamer.problems import Problem

SETTLED = 10.0
"""Seconds after which a file that nobody has written to counts as whole."""

_KNOWN = 8  # bytes by which a name, and what a file holds, are remembered


class Folder(Tapes):
    r"""Files that arrive in a folder (.csv, .jsonl, .ndjson, .parquet; others, and hidden ones, are not looked at).

    A file is read once it was left alone for a while, by name among those that are there, from its first row to its
    last. Its name and what it holds are remembered: neither a file that was read under another name nor another file
    under a name that was read is read again. Files that were read may be moved away or removed. One that changes, other
    than at its end, while it is read is refused; rows that are added to a file behind which another one was begun are
    left out.

    Args:
        path: of the folder.
        problem: whose samples they are.
        schema: of the records; None where samples come as numbers.
        label: the column, or the JSON key, of the label where there is no schema.
        settled: after how many seconds a file counts as whole.
        faults: is told of rows and files that cannot be used.

    >>> import tempfile
    >>> from gossamer.problems import Logistic
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = Path(name)
    ...     _ = (folder / "b.csv").write_text("a,y\n1,1\n"), (folder / "a.csv").write_text("a,y\n2,0\n")
    ...     source = Folder(folder, Logistic(1), settled=0)
    ...     taken = source.take(5)
    ...     _ = (folder / "b.csv").rename(folder / "c.csv")
    ...     taken, source.take(5)
    ([(array([2.], dtype=float32), 0), (array([1.], dtype=float32), 1)], [])
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        problem: Problem,
        *,
        schema: Schema | None = None,
        label: str = "y",
        settled: float = SETTLED,
        faults: Faults | None = None,
    ) -> None:
        self._path, self._settled, self._group = Path(path), settled, Group()
        super().__init__(self._path.name, Reader(problem, schema, label=label, faults=faults))
        self._names: set[bytes] = set()  # of files that were read, or are
        self._contents: set[bytes] = set()  # when the first row was taken of them, and after the last
        self._told: set[str] = set()

    @property
    def mark(self) -> Mark:
        """As of a file; and what all files are remembered by."""
        read = {"names": b"".join(sorted(self._names)), "contents": b"".join(sorted(self._contents))}
        return super().mark | {"folder": self._name, "read": read}

    def _take_mark(self, mark: Mark) -> bool:
        read: dict[str, bytes] | None = mark.get("read")
        if read is None or mark["folder"] != self._name:
            return False
        self._names, self._contents = _split(read["names"]), _split(read["contents"])
        return True

    def _tapes(self, stack: ExitStack) -> Iterator[tuple[Tape, int]]:
        there = self._listed()
        current = self._current(there, stack) if self._at else None
        if self._at and current:
            yield current, self._at[1].row
            if not self._is_settled(self._path / current.name):
                return
        seen = set(self._contents)
        for name in there:
            path = self._path / name
            if self._was_read(name) or (current and name == current.name) or not self._is_settled(path):
                continue
            tape = self._suitable(path, seen, stack)
            if tape:
                yield tape, 0

    def _was_read(self, name: str) -> bool:
        return _short(name.encode()) in self._names

    def _listed(self) -> list[str]:
        """Names of files that can be read, in their order."""
        try:
            with os.scandir(self._path) as entries:
                names = [entry.name for entry in entries if entry.is_file()]
        except FileNotFoundError:
            return []
        except OSError as unreadable:
            raise DataError(f"{self._path}: it cannot be read ({type(unreadable).__name__})") from None
        return sorted(name for name in names if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES)

    def _is_settled(self, path: Path) -> bool:
        try:
            return time.time() - path.stat().st_mtime >= self._settled
        except FileNotFoundError:
            return False

    def _current(self, there: list[str], stack: ExitStack) -> Tape | None:
        """The file that is read, by whatever name; None where it is gone."""
        assert self._at is not None
        name, place = self._at
        if name in there:
            tape = self._open(self._path / name, stack)
            if not tape.holds(place):
                raise other_data(f"{self._name}/{name}")
            return tape
        for other in there:
            with suppress(DataError):
                if not self._was_read(other) and (tape := self._open(self._path / other, stack)).holds(place):
                    return tape
        return None

    def _suitable(self, path: Path, seen: set[bytes], stack: ExitStack) -> Tape | None:
        """A file whose rows were not read before; the owner is told, once, of one that is left out."""
        content = _short(fingerprint(path))
        if content in seen:
            self._tell(path.name, "it holds what another file held that was read: a sample must not be used twice")
            return None
        try:
            tape = self._open(path, stack)
            tape.rows(0, 0)  # refuses one whose columns do not suit
        except DataError as unusable:
            self._tell(path.name, f"left out: {unusable}")
            return None
        seen.add(content)
        return tape

    def _open(self, path: Path, stack: ExitStack) -> Tape:
        return open_tape(path, SUFFIXES[path.suffix.lower()], self._reader, stack, self._group)

    def _went_on(self, tapes: list[Tape]) -> None:
        """What the last file holds is remembered when it is begun, and of the others, which may have grown, now."""
        names = {_short(tape.name.encode()) for tape in tapes}
        ends = tapes if names - self._names else tapes[:-1]
        self._contents |= {_short(fingerprint(self._path / tape.name)) for tape in ends}
        self._names |= names

    def _tell(self, name: str, what: str) -> None:
        if name not in self._told:
            self._told.add(name)
            self._reader.tally.files[what] += 1
            self._reader.tell(f"{name}: {what}")

    def _position(self, tape: Tape, row: Row) -> str:
        return f"{tape.name}, {super()._position(tape, row)}"


def _short(what: bytes) -> bytes:
    return hashlib.sha256(what).digest()[:_KNOWN]


def _split(joined: bytes) -> set[bytes]:
    return {joined[start : start + _KNOWN] for start in range(0, len(joined), _KNOWN)}
