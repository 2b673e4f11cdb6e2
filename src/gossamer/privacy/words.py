"""Random 32-bit words by their place: hashes of a key and of counters, the same bits for NumPy and for JAX.

JAX has no 64-bit integers unless a process-wide switch is set, and processors multiply 32-bit ones several at a time. A
place is (row, time); each has 64 bits of its own, from which any number of words follow. Functions here take and give
arrays of uint32 of either library, at least one axis each: NumPy warns where a single number overflows.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import jax
import numpy as np

Words = Any
"""An array of uint32, of NumPy or JAX."""

GOLDEN = np.uint32(0x9E3779B9)
_FIRST, _SECOND = np.uint32(0x21F0AAAD), np.uint32(0xD35A2D97)


class Key(NamedTuple):
    """128 random bits that name a family of words."""

    a: Words
    b: Words
    c: Words
    d: Words

    @classmethod
    def of(cls, *parts: int | str) -> Key:
        """Of a seed and a purpose: equal for equal parts, else unrelated.

        >>> Key.of(7, "doc") == Key.of(7, "doc"), Key.of(7, "doc") == Key.of(8, "doc")
        (True, False)
        """
        digest = hashlib.sha256(repr(parts).encode()).digest()
        return cls(*np.frombuffer(digest[:16], "<u4"))


class Time(NamedTuple):
    """A counter below 2^64 as two words."""

    low: Words
    high: Words

    @classmethod
    def of(cls, number: int | np.ndarray[Any, Any]) -> Time:
        """The two halves.

        >>> [int(half[0]) for half in Time.of(2**32 + 5)]
        [5, 1]
        """
        numbers = np.atleast_1d(np.asarray(number)).astype(np.uint64)
        return cls((numbers & np.uint64(2**32 - 1)).astype(np.uint32), (numbers >> np.uint64(32)).astype(np.uint32))

    def plus(self, later: Words) -> Time:
        """So much later, less than 2^32: where the low half overflows, it gets smaller."""
        low = self.low + later
        return Time(low, self.high + (low < later).astype(np.uint32))


class Place(NamedTuple):
    """64 random bits for every (row, time): what `words` makes words of."""

    u: Words
    v: Words


def spread(x: Words) -> Words:
    """A bijection of 32-bit numbers in which every bit moves about half of all (constants found by TheIronBorn)."""
    x = x ^ (x >> 16)
    x *= _FIRST
    x ^= x >> 15
    x *= _SECOND
    x ^= x >> 15
    return x


def places(key: Key, rows: Words, time: Time) -> Place:
    """The places of these rows and times, whose shapes are broadcast.

    For one row, or for one time, the first word of a place is a bijection of the other: none comes twice.

    >>> at = places(Key.of(0, "doc"), np.arange(3, dtype=np.uint32), Time.of(10))
    >>> at.u.shape, at.u.dtype
    ((3,), dtype('uint32'))
    """
    one = spread(spread(rows ^ key.a) + key.b)
    other = spread(spread(rows ^ key.c) + key.d)
    later = time.high * GOLDEN
    return Place(spread(spread(time.low ^ one) + other + later), spread(spread(time.low + other) ^ (one + later)))


def words(at: Place, count: int, first: int = 0) -> Words:
    """Words first, ..., first+count-1 of every place: axes (..., word).

    >>> at = places(Key.of(0, "doc"), np.arange(3, dtype=np.uint32), Time.of(10))
    >>> bool((words(at, 8)[:, 5:] == words(at, 3, first=5)).all())
    True
    """
    return words_of(at, np.arange(first, first + count, dtype=np.uint32))


def words_of(at: Place, numbers: np.ndarray[Any, Any]) -> Words:
    """The words of these numbers, of every place: axes (..., word).

    >>> at = places(Key.of(0, "doc"), np.arange(3, dtype=np.uint32), Time.of(10))
    >>> bool((words_of(at, np.array([5, 2], np.uint32)) == words(at, 8)[:, [5, 2]]).all())
    True
    """
    counters = numbers * GOLDEN
    x = at.u[..., None] + counters.reshape(*(1,) * at.u.ndim, len(numbers))
    shifted = x >> 16
    x ^= shifted
    x *= _FIRST
    x ^= at.v[..., None]
    x ^= _shifted(x, shifted)
    x *= _SECOND
    x ^= _shifted(x, shifted)
    return x


def _shifted(x: Words, place: Words) -> Words:
    """By 15 bits; NumPy puts them into memory that is there already."""
    return x >> 15 if isinstance(x, jax.Array) else np.right_shift(x, np.uint32(15), out=place)


def below(word: Words, size: Words) -> Words:
    """A number from 0 to size - 1 from a word: the upper half of their product, from halves of 16 bits.

    >>> below(np.array([0, 2**31, 2**32 - 1], np.uint32), np.uint32(10)).tolist()
    [0, 5, 9]
    """
    a0, a1, b0, b1 = word & 0xFFFF, word >> 16, size & 0xFFFF, size >> 16
    middle = a1 * b0 + ((a0 * b0) >> 16)
    carried = a0 * b1 + (middle & 0xFFFF)
    return a1 * b1 + (middle >> 16) + (carried >> 16)


ROUNDS = 12


def permuted(number: Words, size: Words, at: Place) -> Words:
    """Where a random permutation of 0, ..., size-1 takes a number; every place has a permutation of its own.

    A rotation, and then rounds of the swap-or-not shuffle (Hoang, Morris and Rogaway 2012): each pairs the numbers by a
    random sum, and swaps each pair or not by a coin. Two numbers keep their distance through a round with probability
    one half. Nothing is stored, and nothing is drawn until it fits.

    >>> at = places(Key.of(0, "doc"), np.zeros(5, np.uint32), Time.of(3))
    >>> sorted(permuted(np.arange(5, dtype=np.uint32), np.uint32(5), at).tolist())
    [0, 1, 2, 3, 4]
    """
    turned = number + below(at.v, size)
    number = _library(turned).where(turned >= size, turned - size, turned)
    for turn in range(1, ROUNDS + 1):
        pivot = below(spread(at.u + _weyl(turn)), size)
        partner = pivot - number + _library(number).where(number > pivot, size, 0).astype(np.uint32)
        coin = (_library(number).maximum(number, partner) ^ (at.v + _weyl(turn))) * _FIRST
        coin = (coin ^ (coin >> 15)) * _SECOND
        number = _library(number).where(coin >> 31, partner, number)
    return number


def _weyl(turn: int) -> Any:
    return np.uint32(turn * int(GOLDEN) % 2**32)


def _library(x: Words) -> Any:
    """The library whose array this is."""
    return jax.numpy if isinstance(x, jax.Array) else np
