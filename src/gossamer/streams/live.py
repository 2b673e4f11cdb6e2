"""Streams from live Python iterators: samples are checked as they arrive, and only go forward."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from gossamer.errors import ConfigurationError, DataError
from gossamer.problems.base import Block
from gossamer.streams.base import Array, Stream, as_labels, as_numbers, as_single, fault

Sample = tuple[Any, Any]


class LiveStream(Stream):
    """One iterator of (x, y) per learner; made by `from_iterators`.

    Step t holds the t-th sample of every iterator. Steps before the last one read are gone. The stream ends
    with the shortest iterator, or with the first sample that cannot be used.

    >>> stream = from_iterators([iter([([0.5], 1), ([1.5], 0)])])
    >>> stream.length is None, stream.read(1, 2).x
    (True, array([[[1.5]]], dtype=float32))
    >>> stream.read(0, 1)
    Traceback (most recent call last):
    gossamer.errors.DataError: step 0 was asked for, and a live stream only goes forward: step 2 is next
    """

    def __init__(self, iterators: list[Iterator[Sample]]) -> None:
        self._iterators = iterators
        self._next = 0
        self._waiting: list[tuple[Array, Array]] = []  # steps that have arrived and were not read yet
        self._label_kind: type[np.generic] | None = None
        self.learners, self.length, self.shared = len(iterators), None, False
        self.features, self.occurrences, self.promises = None, None, ()
        self.description = f"live samples, {len(iterators)} learners"

    def _read(self, start: int, stop: int) -> Block:
        if start < self._next:
            gone = f"a live stream only goes forward: step {self._next} is next"
            raise DataError(f"step {start} was asked for, and {gone}")
        while self._next + len(self._waiting) < stop:
            self._waiting.append(self._arrival(self._next + len(self._waiting)))
        steps = self._waiting[start - self._next : stop - self._next]
        del self._waiting[: stop - self._next]
        self._next = stop
        if not steps:
            return self._nothing()
        return Block(np.stack([x for x, _ in steps]), np.stack([y for _, y in steps]))

    def _nothing(self) -> Block:
        n = len(self._iterators)
        return Block(np.zeros((0, n, *(self.features or ())), np.float32), np.zeros((0, n), self._label_kind))

    def _arrival(self, step: int) -> tuple[Array, Array]:
        """The next sample of every learner; a fault in one of them ends the stream before this step."""
        samples = []
        try:
            for learner, iterator in enumerate(self._iterators):
                samples.append(self._sample(iterator, learner, step))
        except DataError:
            self.length = step
            raise
        x, y = zip(*samples, strict=True)
        return np.stack(x), np.array(y, dtype=self._label_kind)

    def _sample(self, iterator: Iterator[Sample], learner: int, step: int) -> tuple[Array, Any]:
        where = f"learner {learner}, step {step}"
        try:
            sample = next(iterator)
        except StopIteration:
            raise DataError(f"learner {learner} has no more samples: the stream has {step} whole steps") from None
        try:
            x, y = sample
        except (TypeError, ValueError):
            raise DataError(f"{where}: a sample must be a pair (x, y)") from None
        return self._checked_features(x, where), self._checked_label(y, where)

    def _checked_features(self, values: Any, where: str) -> Array:
        x = as_single(as_numbers(values, where))
        if self.features is None and x.ndim > 0:
            self.features = x.shape
        if x.shape != self.features:
            raise DataError(f"{where}: features of shape {x.shape}; expected {self.features or '(features...)'}")
        found = fault(x)
        if found is not None:
            kind, place = found
            raise DataError(f"{where}: {kind} in feature {place[0] if len(place) == 1 else place}")
        return x

    def _checked_label(self, value: Any, where: str) -> Any:
        given = as_numbers(value, where)
        if given.ndim != 0:
            raise DataError(f"{where}: a label of shape {given.shape}; expected one number")
        label = as_labels(given[None], f"{where}, label")[0]
        if self._label_kind is None:
            self._label_kind = type(label)
        if self._label_kind is np.int32 and given.dtype.kind == "f":
            raise DataError(f"{where}: a floating-point label, after labels that were whole numbers")
        return label


def from_iterators(iterators: Iterable[Iterable[Sample]]) -> LiveStream:
    """Live samples: one iterator of (x, y) per learner, read forward only, as from sensors or queues.

    x has the same shape in every sample. The first label decides the kind of all: a whole number means
    classes, a floating-point number regression. `length` is None until an iterator ends; how often a record
    occurs is unknown.

    >>> stream = from_iterators([[([0.0, 1.0], 1)], [([2.0, 3.0], 0)]])
    >>> stream.read(0, 1).y
    array([[1, 0]], dtype=int32)
    >>> stream.read(1, 2)
    Traceback (most recent call last):
    gossamer.errors.DataError: learner 0 has no more samples: the stream has 1 whole steps
    """
    own = [iter(iterator) for iterator in iterators]
    if not own:
        raise ConfigurationError("iterators", "none", "at least one iterator, one per learner")
    return LiveStream(own)
