"""Endless sums that are proven to be finite, for losses that never stop growing but converge (paper 003)."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count, check_positive
from gossamer.errors import PrivacyError
from gossamer.privacy.budget import as_float

Terms = Callable[[NDArray[np.int64]], NDArray[np.float64]]

_FIRST_BLOCK, _LARGEST_BLOCK = 2**10, 2**18
_ROUNDED_UP = 1 + 2.0**-40  # more than adding up a block in float64 can lose


class Total(NamedTuple):
    """An upper bound on an infinite sum, and the index up to which its terms were evaluated."""

    bound: float
    stop: int


def sum_with_tail(
    term: Terms,
    tail: Callable[[int], float],
    start: int = 0,
    tolerance: float = 1e-6,
    most: int = 10**7,
) -> Total:
    """An upper bound on the sum of term(t) over all t from `start` on: terms up to a stop, and a proven bound beyond.

    Args:
        term: non-negative terms of consecutive indices. Blocks are asked for in order and each index once, so a
            recursion may keep its state in between.
        tail: a *proven* bound on the sum of all terms from an index on, asked for after the terms before it; infinite
            where the proof does not reach yet.
        start: the first index.
        tolerance: stop when the tail is at most this share of the terms before it. Whatever it is, the bound is
            valid; a series that converges slowly needs a larger one.
        most: terms to evaluate at most.

    >>> total = sum_with_tail(lambda t: 1.0 / (t + 1.0) ** 2, lambda stop: 1.0 / stop)
    >>> 0 <= total.bound - math.pi**2 / 6 < 1e-6
    True
    """
    check_positive("tolerance", tolerance, zero=True)
    check_count("most", most)
    partial, rest, at, size = 0.0, math.inf, start, _FIRST_BLOCK
    while at < start + most:
        stop = min(start + most, at + size)
        partial = (partial + _block(term, at, stop)) * _ROUNDED_UP
        rest = as_float(tail(stop))
        if not rest >= 0:
            raise PrivacyError.of("tail", rest, "a bound of at least 0")
        if rest <= tolerance * partial:
            return Total((partial + rest) * _ROUNDED_UP, stop)
        at, size = stop, min(2 * size, _LARGEST_BLOCK)
    raise PrivacyError.of("tail", rest, f"at most {tolerance:g} of {partial:g}, the sum of {most:,} terms before it")


def _block(term: Terms, start: int, stop: int) -> float:
    values = np.asarray(term(np.arange(start, stop, dtype=np.int64)), dtype=np.float64)
    if values.shape != (stop - start,) or not np.all((values >= 0) & np.isfinite(values)):
        raise PrivacyError(f"term: allowed: {stop - start:,} finite numbers of at least 0, one per index.")
    return float(np.sum(values))
