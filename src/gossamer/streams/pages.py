"""Endless random data with random access: made page by page, each page from its own generator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gossamer.checks import check_count, check_seed
from gossamer.privacy.marks import called_by_us
from gossamer.problems.base import Block
from gossamer.streams.base import AS_TOLD, Array, Stream, generator

Draw = Callable[[np.random.Generator, int], tuple[Array, ...]]

PAGE_VALUES = 2**18  # random values per page: a page costs about a millisecond, its generator 20 microseconds


class Pages:
    """Rows of random arrays by row number, the same however they are read.

    Page p is drawn by a generator that depends on (seed, purpose, p) alone. The page read last is kept,
    because small reads come one after the other.

    >>> pages = Pages(lambda rng, rows: (rng.random((rows, 1)),), values=1, seed=0, purpose="doc")
    >>> whole, = pages.read(0, 600_000)
    >>> part, = pages.read(262_140, 262_150)
    >>> bool((whole[262_140:262_150] == part).all())
    True
    """

    def __init__(self, draw: Draw, *, values: int, seed: int, purpose: str) -> None:
        self._draw, self._seed, self._purpose = draw, seed, purpose
        self._rows = max(1, PAGE_VALUES // values)
        self._last: tuple[int, tuple[Array, ...]] | None = None

    def read(self, start: int, stop: int) -> tuple[Array, ...]:
        """Rows start, ..., stop-1 of every array, as fresh contiguous arrays."""
        first = start // self._rows
        pages = range(first, max(first + 1, -(-stop // self._rows)))
        parts = [self._cut(page, start, stop) for page in pages]
        return tuple(np.concatenate(pieces) for pieces in zip(*parts, strict=True))

    def _cut(self, page: int, start: int, stop: int) -> tuple[Array, ...]:
        origin = page * self._rows
        rows = slice(max(start - origin, 0), max(stop - origin, 0))
        return tuple(array[rows] for array in self._page(page))

    def _page(self, page: int) -> tuple[Array, ...]:
        last = self._last
        if last is None or last[0] != page:
            arrays = self._draw(generator(self._seed, self._purpose, page), self._rows)
            self._last = last = (page, arrays)
        return last[1]


class Generated(Stream):
    """An endless stream of fresh random samples, every one of which occurs once, or once at every learner.

    Attributes:
        truth: the parameters behind the labels, where there are any; each generator says which.

    >>> from gossamer.streams import random_signs
    >>> stream = random_signs(3, 4, seed=7)
    >>> stream.length is None, stream.occurrences
    (True, 1)
    >>> stream.read(10**12, 10**12 + 5).x.shape
    (5, 3, 4)
    """

    def __init__(
        self,
        draw: Draw,
        *,
        learners: int | None,
        features: tuple[int, ...],
        seed: int,
        description: str,
        truth: Array | None = None,
    ) -> None:
        check_seed(seed)
        width = 1 if learners is None else learners
        check_count("learners", width)
        values = width * int(np.prod(features))
        self._pages = Pages(draw, values=values, seed=seed, purpose=description)
        self.learners, self.length, self.shared = learners, None, learners is None
        self.features, self.occurrences, self.truth = features, 1, truth
        self.promises = () if called_by_us() else (AS_TOLD,)
        whom = "common to all learners" if learners is None else f"{learners} learners"
        self.description = f"{description}, {whom}, {'x'.join(map(str, features))} features"

    def _read(self, start: int, stop: int) -> Block:
        x, y = self._pages.read(start, stop)
        return Block(x, y)
