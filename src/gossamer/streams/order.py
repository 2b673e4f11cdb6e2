"""Which record is played when: orders as functions of the step, for NumPy and in compiled programs alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.privacy.words import Key, Time, permuted, places
from gossamer.streams.base import Array

_pytree = partial(partial, jax.tree_util.register_dataclass)


class Order(ABC):
    """The numbers of the records that are played at any step; nothing is stored for each step.

    Attributes:
        width: records a step.
    """

    width: int

    def records(self, steps: Any) -> Any:
        """Record numbers, axes (step, width), at these steps: int64 of NumPy, or uint32 of JAX."""
        return self.looked_up(self.places(steps))

    @abstractmethod
    def places(self, steps: Any) -> Any:
        """Where to look for record numbers."""

    def looked_up(self, places: Any) -> Any:
        """The record numbers there: those themselves, where nothing is listed."""
        return places

    def told(self) -> tuple[str, list[Any]]:
        """All that the order follows from: what checkpoints and cells of studies know a stream by stays the same."""
        return str(jax.tree.structure(self)), jax.tree.leaves(self)

    @property
    def nbytes(self) -> int:
        """Of what is listed."""
        return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(self))

    @abstractmethod
    def most(self, parts: int) -> int:
        """How many places the longest of so many equal runs of learners has."""

    @abstractmethod
    def among(self, part: int, parts: int) -> tuple[Array, Order]:
        """What one of so many equal runs of learners plays: records in rising order, and their order among these."""


@_pytree(data_fields=["listed"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class Listed(Order):
    """An order that somebody wrote down: axes (step, width).

    >>> Listed(np.array([[0, 1], [1, 0]])).records(np.array([1]))
    array([[1, 0]])
    """

    listed: Any

    @property
    def width(self) -> int:  # type: ignore[override]
        """As given."""
        return int(self.listed.shape[1])

    def places(self, steps: Any) -> Any:
        """The rows."""
        return steps

    def looked_up(self, places: Any) -> Any:
        """Of the list."""
        return self.listed[places]

    def most(self, parts: int) -> int:
        """Columns of the list."""
        return int(self.listed.size) // parts

    def among(self, part: int, parts: int) -> tuple[Array, Order]:
        """Columns of the list."""
        mine = self.listed[:, _run(part, parts, self.width)]
        used, number = np.unique(mine, return_inverse=True)
        return used, Listed(number.reshape(mine.shape).astype(mine.dtype))


@_pytree(data_fields=["dealt", "first", "size", "stride", "key", "origin"], meta_fields=["shuffle"])
@dataclass(frozen=True, eq=False)
class Shares(Order):
    """Every learner goes over its own share again and again, in a new random order each time where `shuffle` is on.

    Record k of learner i's share is dealt[first[i] + stride k], of size[i] in all. `origin` is the number of the first
    of these learners.

    >>> even = Shares.evenly(np.arange(6, dtype=np.uint32), 3, Key.of(0, "doc"), shuffle=False)
    >>> even.records(np.arange(3)).tolist()
    [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    """

    dealt: Any
    first: Any
    size: Any
    stride: Any
    key: Key
    origin: Any
    shuffle: bool

    def told(self) -> tuple[str, list[Any]]:
        """Without the origin: what learners are dealt does not depend on how a mesh cuts them."""
        key = "CustomNode(namedtuple[Key], [*, *, *, *])"
        kept = [self.dealt, self.first, self.size, self.stride, *self.key]
        return f"PyTreeDef(CustomNode(Shares[({self.shuffle},)], [*, *, *, *, {key}]))", kept

    @classmethod
    def evenly(cls, dealt: Array, learners: int, key: Key, *, shuffle: bool) -> Shares:
        """Like cards: shares differ by one record at most."""
        first = np.arange(learners, dtype=np.uint32)
        size = (len(dealt) // learners + (first < len(dealt) % learners)).astype(np.uint32)
        return cls(dealt, first, size, np.uint32(learners), key, np.uint32(0), shuffle)

    @classmethod
    def of(cls, shares: list[Array], key: Key, *, shuffle: bool) -> Shares:
        """These record numbers for each learner."""
        size = np.array([len(share) for share in shares], np.uint32)
        first = (np.cumsum(size) - size).astype(np.uint32)
        return cls(np.concatenate(shares), first, size, np.uint32(1), key, np.uint32(0), shuffle)

    @property
    def width(self) -> int:  # type: ignore[override]
        """One record for each learner."""
        return len(self.first)

    def places(self, steps: Any) -> Any:
        """Where each learner has got to in its share."""
        size = self.size[None]
        turn, place = steps[:, None] // size, steps[:, None] % size
        if not self.shuffle:
            return place
        learners = self.origin + _like(steps).arange(self.width, dtype=np.uint32)
        at = places(self.key, learners[None], _time(turn))
        return permuted(place.astype(np.uint32), size, at)

    def looked_up(self, places: Any) -> Any:
        """Of what was dealt."""
        return self.dealt[self.first[None] + self.stride * places]

    def most(self, parts: int) -> int:
        """Their shares."""
        return int(self.size.reshape(parts, -1).sum(axis=1, dtype=np.int64).max())

    def among(self, part: int, parts: int) -> tuple[Array, Order]:
        """Their shares, one after the other.

        >>> records, order = Shares.evenly(np.arange(6), 3, Key.of(0, "doc"), shuffle=False).among(2, 3)
        >>> records.tolist(), order.dealt.tolist(), int(order.origin)
        ([2, 5], [0, 1], 2)
        """
        mine = _run(part, parts, self.width)
        size = self.size[mine]
        first = np.cumsum(size, dtype=np.int64) - size
        place = np.arange(size.sum(dtype=np.int64)) - np.repeat(first, size)
        used, number = np.unique(
            self.dealt[np.repeat(self.first[mine], size) + self.stride * place], return_inverse=True
        )
        own = (number.astype(np.uint32), first.astype(np.uint32), size, np.uint32(1))
        return used, Shares(*own, self.key, np.uint32(mine.start), self.shuffle)


@_pytree(data_fields=["key"], meta_fields=["size", "batch", "shuffle"])
@dataclass(frozen=True, eq=False)
class Batches(Order):
    """Batches of all records, pass after pass; records that do not fill the last batch of a pass are left out.

    >>> Batches(Key.of(0, "doc"), size=5, batch=2, shuffle=False).records(np.arange(3)).tolist()
    [[0, 1], [2, 3], [0, 1]]
    """

    key: Key
    size: int
    batch: int
    shuffle: bool

    @property
    def width(self) -> int:  # type: ignore[override]
        """The batch."""
        return self.batch

    def places(self, steps: Any) -> Any:
        """The next batch of the pass."""
        turns = np.uint32(self.size // self.batch)
        turn, number = steps[:, None] // turns, (steps[:, None] % turns).astype(np.uint32)
        place = number * np.uint32(self.batch) + np.arange(self.batch, dtype=np.uint32)[None]
        if not self.shuffle:
            return place
        at = places(self.key, _like(steps).zeros((1, 1), np.uint32), _time(turn))
        return permuted(place, np.uint32(self.size), at)

    def most(self, parts: int) -> int:
        """All of them."""
        return self.size

    def among(self, part: int, parts: int) -> tuple[Array, Order]:
        """All of them: every learner sees them."""
        return np.arange(self.size), self


def _run(part: int, parts: int, learners: int) -> slice:
    return slice(part * learners // parts, (part + 1) * learners // parts)


def _time(turn: Any) -> Time:
    """The number of a pass; programs count it in 32 bits."""
    return Time(turn, jnp.uint32(0)) if isinstance(turn, jax.Array) else Time.of(turn)


def _like(steps: Any) -> Any:
    return jnp if isinstance(steps, jax.Array) else np
