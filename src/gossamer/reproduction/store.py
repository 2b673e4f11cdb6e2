"""Finished parts of an experiment on disk, so that an interrupted one goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.errors import DataError
from gossamer.files import private_file
from gossamer.streams import Stream

Result = dict[str, Any]


class Store:
    """A directory of cells: one JSON file for each setting that was run.

    A cell is found again by its whole setting: whatever differs, a seed or a noise scale, is another cell.

    Attributes:
        directory: where they are.
        used: every cell that was asked for, by its file name: setting and result.
        computed: how many of them were computed, not read.

    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()))
    >>> store.cell("sum", {"a": 1, "b": 2}, lambda: {"sum": 3})
    {'sum': 3}
    >>> store.cell("sum", {"a": 1, "b": 2}, lambda: {"sum": "not called"}), store.computed
    ({'sum': 3}, 1)
    """

    def __init__(self, directory: Path, say: Callable[[str], None] | None = None) -> None:
        self.directory, self._say = directory, say
        self.used: dict[str, Result] = {}
        self.computed = 0
        directory.mkdir(parents=True, exist_ok=True)

    def cell(self, name: str, setting: Mapping[str, Any], compute: Callable[[], Result]) -> Result:
        """The result for a setting, read or computed now.

        Args:
            name: for people; the file name begins with it.
            setting: all that the result depends on; plain values only.
            compute: called where the result is not there yet; gives plain values only.
        """
        text, file = self._place(name, setting)
        cell = self._read(file)
        if cell is None:
            if self._say:
                self._say(name)
            cell = {"name": name, "setting": json.loads(text), "result": compute()}
            _write(file, cell)
            self.computed += 1
        self.used[file.stem] = cell
        result: Result = cell["result"]
        return result

    def has(self, name: str, setting: Mapping[str, Any]) -> bool:
        """Whether the result for a setting is there, perhaps from another machine."""
        return self._place(name, setting)[1].exists()

    def _place(self, name: str, setting: Mapping[str, Any]) -> tuple[str, Path]:
        """The setting as text, and the file of its cell."""
        text = json.dumps(dict(setting), sort_keys=True, allow_nan=False)
        words = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
        return text, self.directory / f"{words}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"

    def _read(self, file: Path) -> Result | None:
        if not file.exists():
            return None
        try:
            cell: Result = json.loads(file.read_text())
        except ValueError:
            raise DataError(f"{file} is damaged: remove it, and it is computed again") from None
        return cell


def fingerprint(stream: Stream) -> str:
    """Tells streams apart, by their first samples.

    >>> from gossamer.streams import random_signs
    >>> fingerprint(random_signs(2, 3, seed=0)) == fingerprint(random_signs(2, 3, seed=1))
    False
    """
    first = stream.read(0, min(64, stream.length or 64))
    return hashlib.sha256(b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in first)).hexdigest()[:12]


def rounded(values: Any) -> Any:
    """Arrays as lists of numbers that are short to write.

    >>> rounded([0.12345678])
    [0.123457]
    """
    return np.round(values, 6).tolist()


def _write(file: Path, cell: Result) -> None:
    with private_file(file) as new:
        new.write(json.dumps(cell, allow_nan=False).encode())
