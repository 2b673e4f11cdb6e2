"""What was read of a node's samples and what could not be used: facts about its data, for its owner alone."""

from __future__ import annotations

import re
import threading
from collections import Counter
from typing import Any

from gossamer.net.data.reader import Faults
from gossamer.net.data.samples import Sample
from gossamer.net.data.sources import Mark, Source

_MOST_REASONS = 12
_OTHERS = "other reasons"


class Rows:
    """Counts of rows since the process started; from any thread.

    >>> rows = Rows()
    >>> rows.read, rows.rejected = 3, 1
    >>> rows.fault("byte 120: a feature is NaN at (0, 1)")
    >>> rows.facts()
    {'read': 3, 'rejected': 1, 'reasons': {'a feature is NaN': 1}}
    """

    def __init__(self) -> None:
        self.read = self.rejected = 0
        self._reasons: Counter[str] = Counter()
        self._lock = threading.Lock()

    def fault(self, told: str) -> None:
        """Count a sample that cannot be used by the kind of its fault: without its position."""
        kind = re.sub(r" at (position )?\([^)]*\)", "", told.partition(": ")[2])
        with self._lock:
            known = kind in self._reasons or len(self._reasons) < _MOST_REASONS
            self._reasons[kind if known else _OTHERS] += 1

    def facts(self) -> dict[str, Any]:
        """All of it, as JSON values."""
        with self._lock:
            return {"read": self.read, "rejected": self.rejected, "reasons": dict(self._reasons.most_common())}


class CountedSource:
    """A source, and how many of its rows were taken.

    >>> from gossamer.net.data.sources import from_iterable
    >>> from gossamer.problems import Logistic
    >>> rows = Rows()
    >>> source = CountedSource(from_iterable([([1.0], 1), ([2.0], 7)], Logistic(1)), rows)
    >>> len(source.take(10)), rows.read, rows.rejected
    (2, 2, 1)
    """

    def __init__(self, inner: Source, rows: Rows) -> None:
        self._inner, self._rows = inner, rows

    def take(self, most: int, whole: int = 1) -> list[Sample | None]:
        """What the source gives."""
        taken = self._inner.take(most, whole)
        self._rows.read += len(taken)
        self._rows.rejected += sum(one is None for one in taken)
        return taken

    @property
    def mark(self) -> Mark:
        """Where the source is."""
        return self._inner.mark

    def resume(self, mark: Mark) -> None:
        """Have the source go on from a mark."""
        self._inner.resume(mark)

    @property
    def ended(self) -> bool:
        """Whether nothing will come any more."""
        return self._inner.ended


def both(one: Faults, other: Faults) -> Faults:
    """Tells two of every fault.

    >>> both(print, print)("line 7: not a number")
    line 7: not a number
    line 7: not a number
    """

    def tell(fault: str) -> None:
        one(fault)
        other(fault)

    return tell
