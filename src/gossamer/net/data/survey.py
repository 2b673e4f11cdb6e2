"""What a node's data are like, before anything is spent: for its owner, and for nobody else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from gossamer.data.schema import Choice, Schema
from gossamer.errors import DataError
from gossamer.files import private_file
from gossamer.net.data.reader import Tally
from gossamer.net.data.sources import Source

Doubt = Literal["missing", "unusable", "outside"]
"""What stops a node at its start, unless its owner allows it."""

FILE = "data-check.json"
"""Where the owner finds it, in the directory of the node."""

_MOST_UNUSABLE, _MOST_OUTSIDE = 0.01, 0.1
_MOST_ROWS, _PIECE = 200_000, 1000
_SAID: Mapping[Doubt, str] = {
    "missing": "there is no row in it yet",
    "unusable": "more than 1 % of the rows cannot be used, or a file of a folder",
    "outside": "more than a tenth of the numbers lie outside of the bounds of the schema, and would count as the bound",
}


class Counted(Source, Protocol):
    """A source that counts what its rows were like."""

    @property
    def tally(self) -> Tally:
        """What the rows were like."""


@dataclass(frozen=True)
class Survey:
    """What was found in data.

    Attributes:
        data: what the settings call them.
        tally: what the rows are like, those of earlier runs of the node included.
        labels: how often each class came, by name.
        refused: why the data cannot be read at all; empty where they can.
        whole: whether all rows were read, and not only the first.
    """

    data: str
    tally: Tally
    labels: Mapping[str, int]
    refused: str
    whole: bool

    @property
    def doubts(self) -> list[Doubt]:
        """What would stop the node."""
        tally = self.tally
        left_out = any(reason.startswith("left out") for reason in tally.files)
        found: list[Doubt] = []
        if not tally.rows and not left_out:
            found.append("missing")
        if left_out or tally.unusable > _MOST_UNUSABLE * tally.rows:
            found.append("unusable")
        if tally.outside > _MOST_OUTSIDE * tally.values:
            found.append("outside")
        return found

    def require_sound(self, allow: Collection[str], file: Path) -> None:
        """Refuse data that cannot be used; in words that others may read, so that no count is among them.

        Args:
            allow: doubts that do not matter to the owner.
            file: where the owner reads more.
        """
        if self.refused:
            raise DataError(f"data: {self.refused}. Nothing was sent, nothing was spent.")
        for doubt in self.doubts:
            if doubt not in allow:
                raise DataError(
                    f'data: {self.data}: {_SAID[doubt]}. See {file}. Put the data right, or write allow = ["{doubt}"] '
                    f"into node.toml. Nothing was sent, nothing was spent."
                )

    def lines(self) -> list[str]:
        """As the owner reads it."""
        tally = self.tally
        if self.refused:
            return [f"data      {self.data}", f"refused   {self.refused}"]
        shown = [
            f"data      {self.data}",
            f"rows      {tally.rows:,}{'' if self.whole else ' (the first; there are more)'}",
            f"unusable  {tally.unusable:,} rows{_share(tally.unusable, tally.rows)}",
            *(f"          {count:,}: {reason}" for reason, count in tally.reasons.most_common()),
            *(f"files     {count:,}: {reason}" for reason, count in tally.files.most_common()),
        ]
        if tally.values:
            shown.append(
                f"outside   {tally.outside:,} of {tally.values:,} numbers{_share(tally.outside, tally.values)}"
            )
            shown += [f"          {count:,}: {name}" for name, count in tally.columns.most_common()]
        if self.labels:
            shown.append(f"labels    {', '.join(f'{name}: {count:,}' for name, count in self.labels.items())}")
            if tally.rows and sum(count > 0 for count in self.labels.values()) == 1:
                shown.append("          all rows have the same label: there is nothing to learn")
        return shown

    def write(self, directory: Path) -> Path:
        """Write it where the owner alone can read it."""
        tally = self.tally
        facts: dict[str, Any] = {
            "checked": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "data": self.data,
            "refused": self.refused,
            "doubts": self.doubts,
            "rows": tally.rows,
            "all rows": self.whole,
            "unusable": tally.unusable,
            "reasons": dict(tally.reasons.most_common()),
            "files": dict(tally.files.most_common()),
            "numbers": tally.values,
            "outside": tally.outside,
            "columns": dict(tally.columns.most_common()),
            "labels": dict(self.labels),
        }
        with private_file(directory / FILE) as opened:
            opened.write(json.dumps(facts, indent=1, ensure_ascii=False).encode())
        return directory / FILE


def survey(data: str, source: Counted, schema: Schema | None, most: int = _MOST_ROWS) -> Survey:
    r"""Read what is there, up to so many rows; the source is not used for anything else.

    Args:
        data: what the settings call it.
        source: of rows; it has been resumed where rows were used before.
        schema: of the records; None where samples come as numbers.
        most: after so many rows the rest is not looked at.

    >>> from gossamer.data import Number
    >>> from gossamer.net.data.followed_file import FollowedFile
    >>> from gossamer.problems import Logistic
    >>> schema = Schema((Number("size", 0, 10),), Choice("kind", ("B", "M")))
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "a.csv"
    ...     _ = file.write_text("kind,size\nB,3\nM,20\nmalignant,2\n")
    ...     found = survey("a.csv", FollowedFile(file, Logistic(2), schema=schema), schema)
    >>> print("\n".join(found.lines()))
    data      a.csv
    rows      3
    unusable  1 rows (33.3 %)
              1: column 'kind' holds a value that is not in the schema
    outside   1 of 2 numbers (50.0 %)
              1: size
    labels    B: 1, M: 1
    >>> found.doubts
    ['unusable', 'outside']
    """
    read, refused, there = 0, "", 1
    try:
        while there and read < most:
            there = len(source.take(_PIECE))
            read += there
    except DataError as error:
        refused = str(error).rstrip(".")
    return Survey(data, source.tally, _named(source.tally.labels, schema), refused, whole=not there)


def _named(labels: Counter[int], schema: Schema | None) -> dict[str, int]:
    """Counts of classes by what the schema calls them, those that never came included."""
    if schema is not None and isinstance(schema.label, Choice):
        return {name: labels[place] for place, name in enumerate(schema.label.values)}
    return {str(label): count for label, count in sorted(labels.items())}


def _share(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.1f} %)" if whole else ""
