"""Whole draws from keystreams: every value of every learner and exchange, as multiples of the spacing."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gossamer.privacy.elementary import Floats, log, sin
from gossamer.privacy.keystream import BLOCK_WORDS, Keystream, subkey
from gossamer.privacy.lattice_sampler import VALUE_ERROR, Booleans, Integers, Strips, strips, tail
from gossamer.privacy.noise import Law

Multiples = NDArray[np.float32]

_BLOCK = 2**15  # proposals are made in blocks of about this many, so that the passes over one stay in the cache
_SLOTS = BLOCK_WORDS // 2  # proposals per block of the keystream


@dataclass(frozen=True)
class Draws:
    """One learner's draws of one name.

    Attributes:
        tables: of the law.
        size: values per exchange.
        spacings: the scale, in spacings of the lattice.
        stream: two words for each proposal.
        radius: where the scale itself is random, the words that decide it.

    >>> multiples([Draws.of("laplace", size=2, spacings=1e5, key=bytes(32))], low=0, high=3).shape
    (1, 3, 2)
    """

    tables: Strips
    size: int
    spacings: float
    stream: Keystream
    radius: Keystream | None = None

    @classmethod
    def of(cls, law: Law, size: int, spacings: float, key: bytes) -> Self:
        """The draws of one key."""
        stream = Keystream(key, _slots(size) // _SLOTS)
        if law != "l2-laplace":
            return cls(strips(law), size, spacings, stream)
        radius = Keystream(subkey(key, "radius"), -(-(size // 2 + 2) // BLOCK_WORDS))
        return cls(strips("gaussian"), size, spacings, stream, radius)

    @property
    def slots(self) -> int:
        """Proposals per exchange."""
        return self.stream.blocks * _SLOTS

    def scales(self, low: int, high: int) -> Floats:
        """The scale in spacings, one for all exchanges or one for each: axes (exchange, 1).

        An l2-Laplace vector is a Gaussian one with a random variance, chi-squared with d + 1 degrees of freedom: the
        integral of v^(-d/2) exp(-|x|^2 / 2v) * v^((d-1)/2) exp(-v/2) over v is proportional to exp(-|x|). Given the
        variance its coordinates are independent, and each is sampled as exactly as any other Gaussian.
        """
        if self.radius is None:
            return np.full((1, 1), self.spacings)
        return self.spacings * np.sqrt(_chi_squared(self.radius, self.size + 1, low, high))[:, None]


def _slots(size: int) -> int:
    """Proposals per exchange: fewer than one in 60 is rejected, and so many spare ones are hardly ever too few."""
    rejected = size / 60
    return -(-(size + math.ceil(rejected + 5 * math.sqrt(rejected)) + 1) // _SLOTS) * _SLOTS


def _chi_squared(stream: Keystream, degrees: int, low: int, high: int) -> Floats:
    """One value per exchange: twice a sum of exponential ones, and where the degrees are odd the square of a Gaussian.

    The square of a Gaussian is 2 E sin(A)^2, with E exponential and A a uniform angle in (0, pi / 2).
    """
    count = (degrees + 1) // 2
    words = np.empty((high - low, stream.blocks * BLOCK_WORDS), np.uint64)
    for first, last in _within_eras(stream, low, high):
        stream.fill(words[first - low : last - low], first)
    uniform = (words[:, : count + 1].astype(np.float64) + 0.5) * 2.0**-64
    terms = -log(uniform[:, :count])
    if degrees % 2:
        terms[:, -1] *= sin(np.pi / 2 * uniform[:, count]) ** 2
    while count > 1:  # in pairs: every term is rounded log2(count) times
        half = count // 2
        terms[:, :half] += terms[:, count - half : count]
        count -= half
    variance: Floats = np.maximum(2 * terms[:, 0], 2.0**-60)  # not 0; at this scale every multiple is 0 already
    return variance


def draw_error(law: Law, size: int, reach: float) -> tuple[float, float]:
    """Total variation distance of one draw from its law: of the sampler, and of a cut at `reach` scales.

    The variance of an l2-Laplace vector is right to 128 roundings of 2^-53 on average, and a relative error of e in it
    moves d coordinates by sqrt(d / 8) e (Pinsker).

    >>> draw_error("gaussian", 1024, reach=20.0)[0] == 2.0**-39
    True
    """
    if law == "l2-laplace":
        return size * VALUE_ERROR + math.sqrt(size) * 2.0**-47, _l2_tail(size, reach)
    return size * (0.0 if law == "uniform" else VALUE_ERROR), size * tail(law, reach)


def _l2_tail(size: int, reach: float) -> float:
    """P(some coordinate exceeds `reach`), at most: the variance exceeds c means (Chernoff), or a Gaussian is large."""

    def bound(c: float) -> float:
        deviation = math.sqrt(c * (size + 1))
        return math.exp(-(size + 1) / 2 * (c - 1 - math.log(c))) + size * tail("gaussian", reach / deviation)

    return min(bound(1 + 2.0**n) for n in range(-8, 12))


def pieces(draws: Sequence[Draws], start: int, stop: int) -> Iterator[tuple[slice, int, int]]:
    """Some learners, and exchanges of one era, whose proposals make about one block.

    >>> draws = [Draws.of("laplace", size=100, spacings=1e5, key=bytes(32))] * 3
    >>> list(pieces(draws, 0, 500))
    [(slice(0, 1, None), 0, 292), (slice(0, 1, None), 292, 500), (slice(1, 2, None), 0, 292), ...]
    """
    slots = draws[0].slots if draws else 1
    exchanges = max(1, min(_BLOCK // slots, stop - start))
    learners = max(1, _BLOCK // (slots * exchanges))
    for first in range(0, len(draws), learners):
        for low in range(start, stop, exchanges):
            for span in _within_eras(draws[0].stream, low, min(low + exchanges, stop)):
                yield slice(first, first + learners), *span


def _within_eras(stream: Keystream, low: int, high: int) -> Iterator[tuple[int, int]]:
    while low < high:
        end = min(high, (low // stream.era + 1) * stream.era)
        yield low, end
        low = end


def multiples(draws: Sequence[Draws], low: int, high: int) -> Multiples:
    """Draws of several learners and exchanges: axes (learner, exchange, value)."""
    tables, slots = draws[0].tables, draws[0].slots
    scales = np.stack([each.scales(low, high) for each in draws])
    values = np.empty((len(draws), high - low, slots), np.float32)
    accepted = np.empty(values.shape, np.bool_)
    for first in range(0, slots, _BLOCK):
        last = min(first + _BLOCK, slots)
        words = np.empty((len(draws), high - low, last - first, 2), np.uint64)
        for each, part in zip(draws, words, strict=True):
            each.stream.fill(part, low, skip=first // _SLOTS)
        values[..., first:last], accepted[..., first:last] = tables.propose(words, scales)
    _replace(draws, scales, low, values, accepted)
    return values[..., : draws[0].size]


def _replace(draws: Sequence[Draws], scales: Floats, low: int, values: Multiples, accepted: Booleans) -> None:
    """Put accepted spare proposals of the same exchange, in their order, where one of the first was rejected.

    Which proposals are accepted says nothing about the values of those that are, so the values stay independent.
    """
    (_, exchanges, slots), size = values.shape, draws[0].size
    values, accepted = values.reshape(-1, slots), accepted.reshape(-1, slots)
    row, hole = np.divmod(np.flatnonzero(~accepted[:, :size]), size)
    spare_row, spare = np.divmod(np.flatnonzero(accepted[:, size:]), slots - size)
    take = np.searchsorted(spare_row, row) + np.arange(len(row)) - np.searchsorted(row, row)
    found = take < np.searchsorted(spare_row, row, side="right")
    values[row[found], hole[found]] = values[row[found], size + spare[take[found]]]
    scales = np.broadcast_to(scales, (len(draws), exchanges, 1))
    for bare in np.unique(row[~found]):
        holes = hole[(row == bare) & ~found]
        learner, exchange = divmod(int(bare), exchanges)
        values[bare, holes] = _more(draws[learner], scales[learner, exchange], low + exchange, len(holes))


def _more(draws: Draws, scale: Floats, exchange: int, count: int) -> Integers:
    """Accepted proposals from further parts of the keystream, where an exchange has no spare ones left."""
    found, part = np.empty(0, np.int64), 0
    while len(found) < count:
        part += 1
        words = np.empty((min(draws.slots, 64), 2), np.uint64)
        draws.stream.fill(words, exchange, part=part)
        values, accepted = draws.tables.propose(words, scale)
        found = np.concatenate([found, values[accepted]])
    return found[:count]
