"""Finished cells on disk: an interrupted study goes on where it stopped, and several processes share the work."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gossamer.errors import ConfigurationError, DataError
from gossamer.files import private_file
from gossamer.spec import digest, plain

Values = dict[str, Any]

PATIENCE = 0.2
"""Seconds between two looks at what another process is at."""


class Store:
    """A directory of cells: one JSON file for each setting that was run. Without a directory they are in memory only.

    A cell is found by the digest of its whole setting: whatever differs, a seed or a noise scale, is another cell. It
    is on disk as a whole or not at all. Whoever computes a cell holds a lock on it, which the system takes back when
    the process ends, however it ends: no lock is ever left behind.

    Attributes:
        directory: where they are; None: nowhere.

    >>> store = Store()
    >>> key = store.key({"clip": 1.0})
    >>> store.read(key) is None, store.claim(key)
    (True, True)
    >>> store.write(key, "a cell", {"clip": 1.0}, {"loss": 0.5})
    >>> store.read(key)
    {'loss': 0.5}
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        self._memory: dict[str, Values] = {}
        self._locks: dict[str, int] = {}
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)

    def key(self, setting: Mapping[str, Any]) -> str:
        """What the cell of a setting is found by."""
        return digest(plain(setting))[:20]

    def read(self, key: str) -> Values | None:
        """The values of a finished cell; None where it is not there. A damaged one is refused."""
        if key not in self._memory and self.directory is not None:
            file = self.directory / f"{key}.json"
            try:
                self._memory[key] = _checked(file, key, json.loads(file.read_bytes()))
            except FileNotFoundError:
                return None
            except OSError as error:
                raise DataError(f"{file} cannot be read: {_reason(error)}") from None
            except ValueError:
                raise DataError(f"{file} is damaged: remove it, and it is computed again") from None
        return self._memory.get(key)

    def claim(self, key: str) -> bool:
        """Whether the cell is ours to compute; no: somebody else is at it. Ours are given back by `write` or `drop`."""
        if self.directory is None:
            return True
        place = self.directory / f"{key}.lock"
        while True:
            try:
                lock = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
            except OSError as error:
                raise self._unwritable(place, error) from None
            if not _locked(lock):
                os.close(lock)
                return False
            if place.exists() and os.path.samestat(os.fstat(lock), place.stat()):
                self._locks[key] = lock
                return True
            os.close(lock)  # whoever had it has removed it in between

    def write(self, key: str, name: str, setting: Mapping[str, Any], values: Values) -> None:
        """Keep a finished cell, readable by its owner only; a full disk leaves nothing of it behind."""
        if self.directory is not None:
            cell = {"name": name, "setting": plain(setting), "values": values, "sum": digest(values)}
            file = self.directory / f"{key}.json"
            try:
                with private_file(file) as new:
                    new.write(json.dumps(cell, allow_nan=False).encode())
            except OSError as error:
                raise self._unwritable(file, error) from None
        self._memory[key] = values
        self.drop(key)

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Wait until nobody else is at something that has this name, and keep others from it."""
        while not self.claim(name):
            time.sleep(PATIENCE)
        try:
            yield
        finally:
            self.drop(name)

    def drop(self, key: str) -> None:
        """Give up a claim."""
        lock = self._locks.pop(key, None)
        if lock is not None and self.directory is not None:
            (self.directory / f"{key}.lock").unlink(missing_ok=True)
            os.close(lock)

    def beside(self, key: str) -> Path | None:
        """Where a long cell may keep what it has so far; None without a directory."""
        return None if self.directory is None else self.directory / f"{key}.part"

    def _unwritable(self, file: Path, error: OSError) -> DataError:
        return DataError(f"{file} cannot be written: {_reason(error)}. All finished cells are kept: start again")


def _checked(file: Path, key: str, cell: Any) -> Values:
    """The values of a cell that is what was written under its name."""
    if not isinstance(cell, dict) or digest(cell.get("setting"))[:20] != key or digest(cell["values"]) != cell["sum"]:
        raise ValueError(file)
    values: Values = cell["values"]
    return values


def _locked(lock: int) -> bool:
    """Whether nobody else holds it; the system lets go of it with the process."""
    try:
        import fcntl  # not on Windows, where one process at a time works on a study
    except ImportError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        hint = "give a directory on a local disk with --out"
        raise ConfigurationError("--out", _reason(error), "a file system with locks", hint) from None
    return True


def _reason(error: OSError) -> str:
    return (error.strerror or "refused").lower()
