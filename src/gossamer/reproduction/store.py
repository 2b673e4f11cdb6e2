"""Finished parts of an experiment on disk, so that an interrupted one goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gossamer.errors import DataError

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
        text = json.dumps(dict(setting), sort_keys=True, allow_nan=False)
        words = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
        file = self.directory / f"{words}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
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

    def _read(self, file: Path) -> Result | None:
        if not file.exists():
            return None
        try:
            cell: Result = json.loads(file.read_text())
        except ValueError:
            raise DataError(f"{file} is damaged: remove it, and it is computed again") from None
        return cell


def _write(file: Path, cell: Result) -> None:
    """In one step: a crash leaves no half of a file."""
    temporary = file.with_name(file.name + ".new")
    temporary.write_text(json.dumps(cell, allow_nan=False))
    os.replace(temporary, file)
