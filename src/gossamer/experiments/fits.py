"""By which power of a size something falls or grows: fits with intervals, and findings about them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer.experiments.claims import NOT_RUN, Estimate, Finding, judged, sign

_DRAWS = 2000  # of the bootstrap


class Fit(NamedTuple):
    """A fitted exponent with its 95 % interval, and the sizes it is fitted over.

    >>> print(Fit(0.5, 0.4, 0.6, (1, 64)))
    0.50 (0.40 to 0.60), from 1 to 64
    """

    exponent: float
    low: float
    high: float
    sizes: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.exponent:.2f} ({self.low:.2f} to {self.high:.2f}), from {self.sizes[0]:g} to {self.sizes[-1]:g}"


def exponent(sizes: Sequence[float], values: ArrayLike, floor: float = 0.0) -> Fit | None:
    """The fitted exponent a where the mean of the values is like size^a and above a floor; None with fewer than two.

    The interval is a percentile bootstrap over the repetitions, the same ones at all sizes.

    Args:
        sizes: such as T, or a number of clients.
        values: axes (size, repetition).
        floor: what is not about size: below it nothing is fitted.

    >>> fit = exponent([1, 4, 16], [[64.0, 66.0], [32.0, 33.0], [1.0, 1.0]], floor=2.0)
    >>> round(fit.exponent, 3), fit.sizes
    (-0.5, (1.0, 4.0))
    """
    table = np.asarray(values, np.float64)
    used = table.mean(axis=1) > floor
    if used.sum() < 2:
        return None
    kept = np.asarray(sizes, np.float64)[used]
    rows, centred = table[used], np.log(kept) - np.log(kept).mean()

    def slope(means: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(centred @ np.log(means) / np.sum(centred**2))

    picks = np.random.default_rng(0).integers(rows.shape[1], size=(_DRAWS, rows.shape[1]))
    least = max(floor, float(rows.mean(axis=1).min())) / 100
    low, high = np.quantile(slope(np.maximum(rows[:, picks].mean(axis=2), least)), [0.025, 0.975])
    return Fit(float(slope(rows.mean(axis=1))), float(low), float(high), tuple(kept.tolist()))


def at_most_like(fit: Fit | None, power: float) -> Finding:
    """Whether something grows at most like size^power, so falls at least so: the interval tells.

    >>> at_most_like(Fit(-0.6, -0.65, -0.55, (1, 64)), -0.5).verdict
    'holds'
    >>> at_most_like(Fit(-0.6, -0.7, -0.45, (1, 64)), -0.5).verdict
    'not resolved'
    """
    return NOT_RUN if fit is None else judged(str(fit), holds=fit.high <= power, fails=fit.low > power)


def like(fit: Fit | None, power: float, near: float = 0.1) -> Finding:
    """Whether something is like size^power, give or take `near`: the interval tells.

    >>> like(Fit(1.02, 0.98, 1.06, (1, 16)), 1.0).verdict, like(Fit(0.6, 0.5, 0.7, (1, 64)), 1.0).verdict
    ('holds', 'does not hold')
    """
    if fit is None:
        return NOT_RUN
    low, high = power - near, power + near
    return judged(str(fit), holds=low <= fit.low and fit.high <= high, fails=fit.low > high or fit.high < low)


def share_of(low: Estimate, high: Estimate, share: float) -> Finding:
    """Whether one number is at most a share of another: by the interval of the difference.

    >>> share_of(Estimate.of([1.0, 1.1]), Estimate.of([2.0, 2.1]), 0.8).verdict
    'holds'
    """
    return Finding(f"{low} against {high}: {low.mean / high.mean:.3f} of it", sign(low - share * high))
