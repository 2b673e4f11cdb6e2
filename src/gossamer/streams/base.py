"""What a stream is: samples for every learner, by step number, the same however they are read."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError, DataError
from gossamer.privacy import Assumption
from gossamer.privacy.marks import called_by_us, ours
from gossamer.problems.base import Block, Problem

Array = NDArray[Any]

AS_TOLD = Assumption("no record changes more samples than the stream says")
"""The promise of whoever writes a stream of their own, or says in which order records are played."""
_STATED = ("occurrences", "promises", "public_labels")

FEED_STEPS = 2**32
"""Programs count steps in 32 bits."""


class Feed(ABC):
    """What a compiled program reads the samples of a stream from, by itself: a pytree.

    In two parts, of which programs compute the first an exchange before the second. A compiler that makes one loop of
    two computes the first again for every element of the second; so it cannot.

    Attributes:
        exact: whether samples are those of `Stream.read` to the last bit.
    """

    exact = False

    @abstractmethod
    def ahead(self, first: jax.Array, steps: int) -> Any:
        """All that is long to compute and short to keep of the samples of steps first, first + 1, ...

        Steps are counted in 32 bits: those from FEED_STEPS on are read by the host.
        """

    @abstractmethod
    def samples(self, ahead: Any) -> Block:
        """The samples: what `Stream.read` gives, up to float32 rounding."""

    @abstractmethod
    def examples(self) -> Block:
        """What a problem checks before programs read: all records where there are any, axes (record, ...)."""

    def pieces(self, parts: int) -> list[Callable[[], Feed]] | None:
        """What makes the feeds of so many equal runs of learners, all of the same form.

        None: a device needs no less for a run than for all learners.
        """
        return None

    def most_bytes(self, parts: int) -> int:
        """How many bytes the largest of these feeds has at most."""
        return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(self))


class Stream(ABC):
    """Samples for every learner, addressed by step.

    Subclasses set the attributes below and implement `_read`; `read` checks the range first. Reading is a
    pure function of the range (the same samples whatever the chunking), except for live iterators, which only
    go forward.

    Attributes:
        learners: how many learners the stream serves; None for a common stream, which serves any number.
        length: steps available; None if the stream is endless (or live: nobody knows yet).
        shared: whether every learner sees the same batch.
        features: shape of the features of one sample; None if it is not known before the first sample
            arrives.
        occurrences: how often one record occurs at most in the stream, over all learners: how many samples change
            where one record is replaced by another. None if that is unknown, or may be all of them.
        promises: what `occurrences` rests on and nothing enforces. A stream of your own rests on you, whatever it says
            here: what is claimed per record is then heuristic.
        public_labels: whether `occurrences` counts for records that are replaced by others of the same label only.
        description: one line for people.

    >>> from gossamer.streams import from_arrays
    >>> stream = from_arrays([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1], learners=2, seed=0, shuffle=False)
    >>> stream.learners, stream.length, stream.shared, stream.occurrences
    (2, 2, False, 1)
    >>> stream.read(0, 2).x.shape
    (2, 2, 1)
    >>> stream.read(1, 3)
    Traceback (most recent call last):
    gossamer.errors.DataError: steps 1 to 3 were asked for, and the stream has 2 steps
    """

    learners: int | None
    length: int | None
    shared: bool
    features: tuple[int, ...] | None
    occurrences: int | None
    promises: tuple[Assumption, ...] = (AS_TOLD,)
    public_labels: bool = False
    description: str

    def read(self, start: int, stop: int) -> Block:
        """The samples of steps start, ..., stop-1: x (steps, n, features...) float32 and y (steps, n).

        The arrays may be views of the stream's own data: nobody changes them, neither the reader nor the stream.

        A common stream has its batch where others have learners: x (steps, batch, features...), y (steps,
        batch).
        """
        if not 0 <= start <= stop:
            raise DataError(f"steps {start} to {stop} were asked for; a range needs 0 <= start <= stop")
        if self.length is not None and stop > self.length:
            raise DataError(f"steps {start} to {stop} were asked for, and the stream has {self.length} steps")
        return self._read(start, stop)

    @abstractmethod
    def _read(self, start: int, stop: int) -> Block:
        """The samples of a range that is known to exist."""

    def feed(self) -> Feed | None:
        """Where programs read samples by themselves; None: only the host can read this stream."""
        return None

    def on_device(self, problem: Problem, put: Callable[[Any], Any] | None = None) -> Feed | None:
        """The feed, put on the device and checked once for a problem; kept as long as the stream is.

        `put`: puts it elsewhere. What was put last is kept.
        """
        kept: tuple[Feed, Problem, Any] | None = self.__dict__.get("_on_device")
        if kept is None or kept[1:] != (problem, put):
            feed = self.feed()
            if feed is None:
                return None
            problem.check(feed.examples())
            there = kept is not None and kept[2] == put
            kept = self.__dict__["_on_device"] = (
                kept[0] if kept and there else (put or jax.device_put)(feed),
                problem,
                put,
            )
        return kept[0]

    def fingerprint(self) -> str | None:
        """What all samples follow from, as a digest; None: only the samples themselves tell."""
        return None

    def head(self, steps: int) -> Stream:
        """The first steps of this stream, as a stream: an endless one becomes finite.

        >>> from gossamer.streams import random_signs
        >>> random_signs(3, 2, seed=0).head(100).length
        100
        """
        return Head(self, steps)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _STATED and ours(type(self)) and not called_by_us():
            hint = "a claim per record rests on it: write a stream of your own, which rests on you"
            raise ConfigurationError(name, value, "what Gossamer's own streams say themselves", hint)
        object.__setattr__(self, name, value)

    @property
    def unenforced(self) -> tuple[Assumption, ...]:
        """All that a claim per record rests on and nothing enforces: the promises, and that of whoever wrote the class.

        >>> class Mine(Head):
        ...     promises = ()
        >>> from gossamer.streams import random_signs
        >>> [one.claim for one in Mine(random_signs(3, 2, seed=0), 10).unenforced]
        ['no record changes more samples than the stream says']
        """
        return tuple(dict.fromkeys((*self.promises, *(() if ours(type(self)) else (AS_TOLD,)))))

    def _rest_on(self, *parts: Stream, besides: tuple[Assumption, ...] = ()) -> None:
        """Take over what the parts of this stream rest on."""
        theirs = (promise for part in parts for promise in part.unenforced)
        self.promises = tuple(dict.fromkeys((*theirs, *besides)))
        self.public_labels = any(part.public_labels for part in parts)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.description}>"


class Head(Stream):
    """The first steps of another stream; made by `Stream.head`.

    >>> from gossamer.streams import random_signs
    >>> random_signs(3, 2, seed=0).head(100)
    <Head: the first 100 steps of random signs, 3 learners, 2 features>
    """

    def __init__(self, whole: Stream, steps: int) -> None:
        check_count("steps", steps)
        if whole.length is not None and steps > whole.length:
            raise DataError(f"the first {steps} steps were asked for, and the stream has {whole.length} steps")
        self._whole = whole
        self.learners, self.length, self.shared = whole.learners, steps, whole.shared
        self.features, self.occurrences = whole.features, whole.occurrences
        self._rest_on(whole)
        self.description = f"the first {steps} steps of {whole.description}"

    def _read(self, start: int, stop: int) -> Block:
        return self._whole.read(start, stop)

    def feed(self) -> Feed | None:
        """That of the whole stream."""
        return self._whole.feed()

    def fingerprint(self) -> str | None:
        """That of the whole stream."""
        return self._whole.fingerprint()


def generator(seed: int, purpose: str, *counters: int) -> np.random.Generator:
    """The random generator for one purpose and place: equal draws for equal arguments, else independent ones.

    >>> float(generator(1, "doc", 5).random()) == float(generator(1, "doc", 5).random())
    True
    """
    key = (zlib.crc32(purpose.encode()), *counters)
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=key)))


def as_features(values: Any, name: str = "x") -> Array:
    """Features as contiguous float32, not copied where they are that already; NaN and infinities are refused.

    >>> as_features([[1, 2], [3, 4]]).dtype
    dtype('float32')
    >>> as_features([[1.0, 2.0], [3.0, float("nan")]])
    Traceback (most recent call last):
    gossamer.errors.DataError: x: NaN in row 1, column 1
    """
    array = as_numbers(values, name)
    if array.ndim < 2:
        raise DataError(f"{name}: {array.ndim} axes; features need at least two, (records, features...)")
    return _finite(array, name)


def as_labels(values: Any, name: str = "y") -> Array:
    """Class labels (whole numbers) as int32, regression targets (floating point) as float32.

    >>> as_labels([0, 1, 1]).dtype, as_labels([0.5, 1.0]).dtype
    (dtype('int32'), dtype('float32'))
    """
    array = as_numbers(values, name)
    if array.ndim != 1:
        raise DataError(f"{name}: {array.ndim} axes; labels need exactly one, (records,)")
    if array.dtype.kind == "f":
        return _finite(array, name)
    limits = np.iinfo(np.int32)
    outside = (array < limits.min) | (array > limits.max)
    if outside.any():
        raise DataError(f"{name}: a label that does not fit 32 bits in row {int(outside.argmax())}")
    return np.ascontiguousarray(array, dtype=np.int32)


def as_records(x: Any, y: Any) -> tuple[Array, Array]:
    """Features and labels of equally many records, at least one.

    >>> as_records([[1.0], [2.0]], [0])
    Traceback (most recent call last):
    gossamer.errors.DataError: x has 2 records and y has 1; every record needs one label
    """
    features, labels = as_features(x), as_labels(y)
    if len(features) != len(labels):
        raise DataError(f"x has {len(features)} records and y has {len(labels)}; every record needs one label")
    return features, labels


def as_numbers(values: Any, name: str) -> Array:
    """An array of at least one number, of whatever numeric type it has.

    >>> as_numbers(["a", "b"], "x")
    Traceback (most recent call last):
    gossamer.errors.DataError: x: not numbers (dtype <U1); encode categories as numbers first
    """
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(f"{name}: rows of different lengths; every record needs the same shape") from None
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name}: not numbers (dtype {array.dtype}); encode categories as numbers first")
    if array.size == 0:
        raise DataError(f"{name}: empty (shape {array.shape}); at least one record and one feature are needed")
    return array


def as_single(array: Array) -> Array:
    """Numbers as contiguous float32; a float64 beyond its range becomes infinite, to be reported by `fault`.

    >>> as_single(np.array([1e300, 1.0]))
    array([inf,  1.], dtype=float32)
    """
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32)


def fault(array: Array) -> tuple[str, tuple[int, ...]] | None:
    """Kind and place of the first value that is NaN or infinite, never the value; None if there is none.

    >>> fault(np.array([[0.0, np.inf]]))
    ('infinite (or beyond float32)', (0, 1))
    """
    good = np.isfinite(array)
    if good.all():
        return None
    place = tuple(int(i) for i in np.unravel_index(int(np.argmin(good)), array.shape))
    return "NaN" if np.isnan(array[place]) else "infinite (or beyond float32)", place


def _finite(array: Array, name: str) -> Array:
    single = as_single(array)
    found = fault(single)
    if found is None:
        return single
    kind, (row, *columns) = found
    where = f", column {columns[0] if len(columns) == 1 else tuple(columns)}" if columns else ""
    raise DataError(f"{name}: {kind} in row {row}{where}")
