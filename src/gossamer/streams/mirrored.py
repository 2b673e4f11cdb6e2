"""Linear losses that cancel: the case where only the right step schedule has the right regret."""

from __future__ import annotations

import numpy as np

from gossamer.checks import check_count
from gossamer.problems.base import Block
from gossamer.streams.base import Stream


class Mirrored(Stream):
    """Every sample `hold` times and then its negative `hold` times; made by `mirrored`."""

    def __init__(self, whole: Stream, hold: int) -> None:
        check_count("hold", hold)
        self._whole, self._hold = whole, hold
        period = 2 * hold
        self.learners, self.shared, self.features = whole.learners, whole.shared, whole.features
        self.length = None if whole.length is None else whole.length * period
        self.occurrences = None if whole.occurrences is None else whole.occurrences * period
        self._rest_on(whole)
        self.description = f"{whole.description}, mirrored after {hold} steps"

    def _read(self, start: int, stop: int) -> Block:
        steps = np.arange(start, stop)
        sample, half = steps // (2 * self._hold), steps // self._hold % 2
        first = start // (2 * self._hold)
        block = self._whole.read(first, -(-stop // (2 * self._hold)))
        sign = (1 - 2 * half).astype(block.x.dtype).reshape(-1, *(1,) * (block.x.ndim - 1))
        return Block(block.x[sample - first] * sign, block.y[sample - first])


def mirrored(whole: Stream, *, hold: int = 1) -> Mirrored:
    """Each loss vector of a stream `hold` times, then its negative `hold` times: sums stay bounded.

    Against independent random losses every schedule of steps has the same regret, because a decision cannot depend on
    the loss it meets. Here it does: a learner that has moved against a vector meets its negative next, and pays for the
    move. Its average regret is proportional to its step size, so a step that stays too large or shrinks at the wrong
    rate shows in the slope.

    >>> from gossamer.streams import random_signs
    >>> x = mirrored(random_signs(1, 1, seed=0), hold=2).read(0, 4).x[:, 0, 0]
    >>> bool(x[0] == x[1] == -x[2] == -x[3])
    True
    """
    return Mirrored(whole, hold)
