"""Streams made of streams: one after another, abruptly (`sequence`) or by and by (`blend`), or `mirrored`."""

import numpy as np

from gossamer.checks import check_count, check_seed
from gossamer.errors import ConfigurationError, DataError
from gossamer.privacy import Assumption
from gossamer.privacy.words import Key
from gossamer.problems.base import Block
from gossamer.streams.base import Stream
from gossamer.streams.drawing import Draws

DISJOINT = Assumption("no record is in two of the streams")


class Sequence(Stream):
    """One stream after the other; made by `sequence`."""

    def __init__(self, parts: tuple[Stream, ...], *, disjoint: bool) -> None:
        lengths = [part.length for part in parts]
        finite = [length for length in lengths[:-1] if length is not None]
        if len(finite) < len(parts) - 1:
            given, hint = "an endless stream before the last", "use stream.head(steps)"
            raise ConfigurationError("sequence", given, "finite streams first", hint)
        self._parts = parts
        self._starts = np.concatenate([[0], np.cumsum(finite, dtype=np.int64)]).tolist()
        self.length = None if lengths[-1] is None else self._starts[-1] + lengths[-1]
        self.learners, self.shared, self.features = _alike(parts)
        self.occurrences = _occurrences(parts, disjoint)
        self._rest_on(*parts, besides=(DISJOINT,) * disjoint)
        self.description = ", then ".join(part.description for part in parts)

    def _read(self, start: int, stop: int) -> Block:
        blocks = []
        for part, origin in zip(self._parts, self._starts, strict=True):
            end = stop if part.length is None else min(stop, origin + part.length)
            if max(start, origin) < end:
                blocks.append(part.read(max(start, origin) - origin, end - origin))
        if not blocks:
            return self._parts[-1].read(0, 0)
        _same_labels(blocks)
        return Block(np.concatenate([b.x for b in blocks]), np.concatenate([b.y for b in blocks]))


def sequence(first: Stream, *others: Stream, disjoint: bool = False) -> Sequence:
    """One stream after the other: abrupt drift. Each is read from its own beginning.

    Args:
        first: what comes first; all but the last stream must be finite (see `Stream.head`).
        others: what follows, for the same learners and features.
        disjoint: promise that no record is in two of the streams, so that the occurrences of a record do not add up.
            Nothing checks it: what is claimed per record is then heuristic.

    >>> from gossamer.streams import random_signs
    >>> calm, storm = random_signs(2, 3, seed=0), random_signs(2, 3, seed=1)
    >>> stream = sequence(calm.head(100), storm, disjoint=True)
    >>> stream.length is None, stream.occurrences
    (True, 1)
    >>> bool((stream.read(99, 101).x[1] == storm.read(0, 1).x[0]).all())
    True
    """
    return Sequence((first, *others), disjoint=disjoint)


class Blend(Stream):
    """A stream that turns into another; made by `blend`."""

    def __init__(self, first: Stream, second: Stream, start: int, stop: int, seed: int, *, disjoint: bool) -> None:
        check_count("start", start, least=0)
        check_count("stop", stop, least=start + 1)
        check_seed(seed)
        self._first, self._second, self._start, self._stop = first, second, start, stop
        lengths = [part.length for part in (first, second) if part.length is not None]
        self.length = min(lengths) if lengths else None
        self.learners, self.shared, self.features = _alike((first, second))
        self.occurrences = _occurrences((first, second), disjoint)
        self._rest_on(first, second, besides=(DISJOINT,) * disjoint)
        self.description = f"{first.description}, from {start} to {stop} turning into {second.description}"
        self._coins = Key.of(seed, "blend")

    def _read(self, start: int, stop: int) -> Block:
        old, new = self._first.read(start, stop), self._second.read(start, stop)
        _same_labels([old, new])
        width = self.learners or 1  # a common batch changes as a whole
        coins = Draws(self._coins, np.arange(start, stop), width, dim=1).uniform(1)[..., 0]
        share = (np.arange(start, stop) - self._start) / (self._stop - self._start)
        drifted = coins < share[:, None]
        wide = drifted.reshape(drifted.shape + (1,) * (old.x.ndim - 2))
        return Block(np.where(wide, new.x, old.x), np.where(drifted, new.y, old.y))


def blend(first: Stream, second: Stream, *, start: int, stop: int, seed: int, disjoint: bool = False) -> Blend:
    """Gradual drift: samples come from `second` with a probability that rises linearly from 0 to 1.

    The probability is (t - start)/(stop - start), cut to [0, 1]; every learner and step has its own coin (a
    common batch one per step). The other samples are those of `first`. The shorter stream sets the length.

    Args:
        first: the stream before the drift.
        second: the stream after it, for the same learners and features.
        start: the last step at which the probability is 0.
        stop: the first step at which it is 1.
        seed: of the coins.
        disjoint: promise that no record is in both streams; see `sequence`.

    >>> from gossamer.streams import random_signs
    >>> old, new = random_signs(2, 3, seed=0), random_signs(2, 3, seed=1)
    >>> stream = blend(old, new, start=10, stop=20, seed=2)
    >>> stream.occurrences
    2
    >>> bool((stream.read(0, 11).x == old.read(0, 11).x).all())
    True
    >>> bool((stream.read(20, 30).x == new.read(20, 30).x).all())
    True
    """
    return Blend(first, second, start, stop, seed, disjoint=disjoint)


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


def _alike(parts: tuple[Stream, ...]) -> tuple[int | None, bool, tuple[int, ...] | None]:
    """Learners, shared and features, which all streams must have in common."""
    first = parts[0]
    for number, part in enumerate(parts[1:], start=1):
        if (part.learners, part.shared) != (first.learners, first.shared):
            raise DataError(f"stream 0 serves {_whom(first)} and stream {number} serves {_whom(part)}; they must agree")
        if None not in (part.features, first.features) and part.features != first.features:
            raise DataError(f"stream 0 has features {first.features} and stream {number} has {part.features}")
    known = [part.features for part in parts if part.features is not None]
    return first.learners, first.shared, known[0] if known else None


def _whom(stream: Stream) -> str:
    return "all learners alike" if stream.shared else f"{stream.learners} learners"


def _occurrences(parts: tuple[Stream, ...], disjoint: bool) -> int | None:
    counts = [part.occurrences for part in parts if part.occurrences is not None]
    if len(counts) < len(parts):
        return None
    return max(counts) if disjoint else sum(counts)


def _same_labels(blocks: list[Block]) -> None:
    kinds = sorted({str(block.y.dtype) for block in blocks})
    if len(kinds) > 1:
        raise DataError(f"the streams have labels of different kinds: {' and '.join(kinds)}")
