"""Rounded continuous laws, sampled with integers: noise on a lattice, exact to 2^-49 in total variation.

The law of round(s X), X of unit scale, is cut into strips of equal width. A *proposal* picks a strip by the alias
method (integer thresholds), then one cell of the strip uniformly, and is accepted with probability

    T = c * (mean density over the cell) / (weight of the strip).

A cell then comes out with probability proportional to weight * T, which is its exact mass: the weights are whole
numbers that only have to be large enough for T <= 1. T alone is computed in floating point. With T' instead of T, and
A the probability that a proposal is accepted, the output moves by at most E|T' - T| / A in total variation:

    |q T / A - q T' / A'|_1 / 2 <= (E|T - T'| + |A - A'|) / (2 A) <= E|T - T'| / A.

T' takes additions, multiplications and divisions only, so it is the same on every machine; docs/secure-noise.md shows
that its error is at most 2^-49 on average.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gossamer.privacy.elementary import Floats, expm1
from gossamer.privacy.noise import Law

Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Fall = Callable[[Floats, Floats], tuple[Floats, Floats]]

LARGEST = 2**24 - 1
"""The largest multiple of the spacing: float32 holds every whole number up to it."""

VALUE_ERROR = 2.0**-49
"""Total variation distance between one sampled value and its rounded law, but for the tail that is cut off."""

_TOTAL = 2**31  # 31 bits choose a strip: a column of the alias table, and a coin within the column
_FINE = 20  # while sampling, a scale is at least 2^19 spacings
_OVERHANG = 2.0**-19  # the last cell of a strip ends less than this after the strip
_LOW = np.uint64(2**32 - 1)


@dataclass(frozen=True, eq=False)
class Strips:
    """The tables of one law. Strip j lies between `edges[j]` and `edges[j + 1]`, in units of the scale.

    Attributes:
        edges: multiples of a power of two.
        weights: strip j is proposed with probability weights[j] / 2^31.
        threshold: a column of the alias table stands for its own strip while the coin is below this,
        alias: and for this strip else.
        ratio: T at the left edge.
        squeeze: 2^64 times a lower bound of T in the strip: coins below it are accepted without computing T.
        fall: (x, left edge) -> how far the log density falls between them, and second derivative / density at x.
        terms: of the series of exp(-fall): what is left out is below 2^-56.
        signed: whether the result gets a random sign.

    >>> normal = strips("gaussian")
    >>> int(normal.weights.sum()) == 2**31, float(normal.edges[-1])
    (True, 16.0)
    """

    edges: Floats
    weights: Integers
    threshold: Words
    alias: Integers
    ratio: Floats
    squeeze: Words
    fall: Fall
    terms: int
    signed: bool

    def propose(self, words: Words, scale: Floats) -> tuple[Integers, Booleans]:
        """One proposal from each pair of words: a multiple of the spacing, and whether it is accepted.

        With h half a spacing, in units of the scale, cell m is [m h, m h + h), and round(s x) = floor((m + 1) / 2).
        Where the scale is below 2^19 spacings the cells are 2^k times as fine: floors of floors are floors. The cell of
        -x is -1 - m.

        Args:
            words: axes (..., 2). Of the first word 31 bits choose the strip, 1 the sign, 32 the cell within the strip;
                the second is the coin that decides on acceptance.
            scale: in spacings; any positive numbers, broadcast against the leading axes.
        """
        head, coin = np.ascontiguousarray(words[..., 0]), words[..., 1]
        k = np.maximum(_FINE - np.frexp(scale)[1], 0).astype(np.int64)
        halves = np.ldexp(scale, k + 1)
        strip = self._strip(head)
        offset, fair, inside = _uniform(head & _LOW, self._step(halves) >> 32)
        cell = self._first(strip, halves)
        cell += offset
        accepted = coin < self.squeeze.take(strip, mode="clip")
        accepted &= inside
        accepted &= fair
        unsure = np.flatnonzero(~accepted)
        each = halves.ravel() if halves.size == 1 else np.broadcast_to(halves, cell.shape).flat[unsure]
        coins = words.reshape(-1, 2)[unsure, 1]
        accepted.ravel()[unsure] = fair.ravel()[unsure] & self._decide(
            strip.ravel()[unsure], cell.ravel()[unsure], each, coins
        )
        if self.signed:
            minus = head.view(np.int64) << 31
            minus >>= 63
            cell ^= minus
        cell += 1 << k
        cell >>= k + 1
        if scale.max() * self.edges[-1] > LARGEST:
            np.clip(cell, -LARGEST, LARGEST, out=cell)
        return cell, accepted

    def acceptance(self, strip: Integers, cell: Integers, halves: Floats) -> Floats:
        """T', from the midpoint of the cell: the mean over it is the density there times 1 + h^2 f'' / (24 f) + ..."""
        h = 1 / halves
        x = (cell + 0.5) * h
        fall, bend = self.fall(x, self.edges[strip])
        return self.ratio[strip] * (1 + expm1(-fall, self.terms)) * (1 + h * h / 24 * bend)

    def _strip(self, head: Words) -> Integers:
        columns = len(self.alias)
        column = (head >> np.uint64(65 - columns.bit_length())).view(np.int64)
        coin = head >> np.uint64(33)
        coin &= np.uint64(_TOTAL // columns - 1)
        own = coin < self.threshold.take(column, mode="clip")
        return np.where(own, column, self.alias.take(column, mode="clip"))

    def _step(self, halves: Floats) -> Integers:
        """Cells per strip, times 2^32."""
        step: Integers = (halves * (self.edges[1] - self.edges[0]) * 2.0**32).astype(np.int64)
        return step

    def _first(self, strip: Integers, halves: Floats) -> Integers:
        """The first cell of a strip: ceil(left edge / h - e), where 0 <= e < 2^-20 because the step is rounded down."""
        first = strip * self._step(halves)
        first += (halves * (self.edges[0] * 2.0**32)).astype(np.int64) + (2**32 - 1)
        first >>= 32
        return first

    def _decide(self, strip: Integers, cell: Integers, halves: Floats, coin: Words) -> Booleans:
        inside = cell < self._first(strip + 1, halves)
        chance = (coin >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return inside & (chance < self.acceptance(strip, cell, halves))


def _uniform(word: Words, least: Integers) -> tuple[Integers, Booleans, Booleans]:
    """A cell's place in its strip, which has `least` cells or one more.

    Returns a number that is uniform from 0 to `least` where the second answer is true (Lemire 2019), and whether it is
    less than `least`, so that the cell is certainly one of the strip.
    """
    room = least.astype(np.uint64) + np.uint64(1)
    word *= room
    offset = word >> np.uint64(32)
    word &= _LOW
    return offset.view(np.int64), word >= np.uint64(2**32) % room, offset < room - np.uint64(1)


@dataclass(frozen=True)
class _Shape:
    """A log-concave density on its strips: the logarithm of the density, exactly, and the fall in float64."""

    log_density: Callable[[Decimal], Decimal]
    fall: Fall
    count: int
    width: float
    terms: int
    start: float = 0.0
    signed: bool = False

    def density(self, x: float) -> Decimal:
        """Up to a factor; its mode is at 0."""
        return self.log_density(Decimal(float(x))).exp()


def _fall_exponential(x: Floats, left: Floats) -> tuple[Floats, Floats]:
    return x - left, np.zeros_like(x)  # the mean over a cell is the same multiple of the midpoint everywhere


def _fall_gaussian(x: Floats, left: Floats) -> tuple[Floats, Floats]:
    return (x - left) * (x + left) / 2, x * x - 1


def _fall_gumbel(x: Floats, left: Floats) -> tuple[Floats, Floats]:
    rise = expm1(left - x, terms=8)
    at_left = _decays()[((left - _GUMBEL_START) * 32).astype(np.int64)]
    decay = at_left * (1 + rise)
    return (x - left) + at_left * rise, decay * decay - 3 * decay + 1


def _fall_uniform(x: Floats, left: Floats) -> tuple[Floats, Floats]:
    return np.zeros_like(x), np.zeros_like(x)


@lru_cache
def _decays() -> Floats:
    """exp(-x) at the edges of the strips of the Gumbel law."""
    start = Decimal(_GUMBEL_START)
    with localcontext(prec=36):
        return np.array([float((-start - Decimal(j) / 32).exp()) for j in range(2048)])


_GUMBEL_START = -3.75
_SHAPES: dict[Law, _Shape] = {
    "laplace": _Shape(lambda x: -x, _fall_exponential, count=2048, width=1 / 32, terms=8, signed=True),
    "exponential": _Shape(lambda x: -x, _fall_exponential, count=2048, width=1 / 32, terms=8),
    "gaussian": _Shape(lambda x: -x * x / 2, _fall_gaussian, count=1024, width=1 / 64, terms=12, signed=True),
    "gumbel": _Shape(lambda x: -x - (-x).exp(), _fall_gumbel, count=2048, width=1 / 32, terms=20, start=_GUMBEL_START),
    "uniform": _Shape(lambda x: Decimal(0), _fall_uniform, count=2, width=1 / 2, terms=1),
}


@lru_cache
def strips(law: Law) -> Strips:
    """The tables of a law, made once (0.1 to 0.4 s). Decimal arithmetic makes them the same on every machine.

    >>> strips("uniform").weights.tolist() == [2**30, 2**30]
    True
    """
    shape = _SHAPES[law]
    edges: Floats = shape.start + shape.width * np.arange(shape.count + 1, dtype=np.float64)
    with localcontext(prec=36):
        heights = [shape.density(a) for a in edges[:-1]]
        tops = list(heights)
        for j in np.flatnonzero(edges < 0):  # there the density rises
            tops[j] = shape.density(min(edges[j + 1] + _OVERHANG, 0.0))
        c = (_TOTAL - shape.count) / sum(tops, Decimal(0))
        weights = [int(c * top) + 1 for top in tops]
        weights[tops.index(max(tops))] += _TOTAL - sum(weights)
        ratio = np.array([float(height * c / weight) for height, weight in zip(heights, weights, strict=True)])
    fall, _ = shape.fall(edges[1:] + _OVERHANG, edges[:-1])
    least = np.maximum(ratio * np.exp(-np.maximum(fall, 0)) - 2.0**-40, 0)
    squeeze = (least * 2.0**64).astype(np.uint64)
    return Strips(edges, np.array(weights), *_alias(weights), ratio, squeeze, shape.fall, shape.terms, shape.signed)


def _alias(weights: list[int]) -> tuple[Words, Integers]:
    """Walker's tables: columns of equal height, each filled by its own strip up to a threshold, by another above it."""
    height = _TOTAL // len(weights)
    left, alias = list(weights), list(range(len(weights)))
    small = [j for j, weight in enumerate(left) if weight < height]
    large = [j for j, weight in enumerate(left) if weight >= height]
    while small:
        j, giver = small.pop(), large[-1]
        alias[j] = giver
        left[giver] -= height - left[j]
        if left[giver] < height:
            small.append(large.pop())
    return np.minimum(np.array(left, np.uint64), np.uint64(height)), np.array(alias)


def tail(law: Law, reach: float) -> float:
    """The mass that a law of unit scale has outside the strips, and beyond `reach`.

    >>> tail("laplace", 32.0) < 2.0**-46
    True
    """
    if law == "uniform":
        return 0.0 if reach >= 1 else 1.0
    shape = _SHAPES[law]
    last = min(reach, shape.start + shape.count * shape.width)
    if law == "gaussian":
        return math.erfc(last / math.sqrt(2))
    below = math.exp(-math.exp(-shape.start)) if law == "gumbel" else 0.0
    return math.exp(-last) + below
