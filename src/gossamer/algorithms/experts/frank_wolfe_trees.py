"""Which samples go to which vertex of private Frank-Wolfe's trees (paper 004, Algorithm 3), exchange by exchange.

Along a path to a leaf exactly one vertex has fresh samples: the root at the first leaf, else a right child. So one
exchange is one leaf, and its block holds that vertex' samples.
"""

from collections.abc import Callable
from typing import NamedTuple

from gossamer.errors import ConfigurationError


class Leaf(NamedTuple):
    """One exchange: the vertex that is new on the path to one leaf.

    Attributes:
        phase: p, in whose steps the result is played.
        tree: j, its depth.
        depth: |s|; 0: the root.
        rows: steps since the last exchange.
        samples: of them that the vertex uses.
        rate: eta_k.
        last: whether x is played from now on.
    """

    phase: int
    tree: int
    depth: int
    rows: int
    samples: int
    rate: float
    last: bool

    @property
    def leaves(self) -> int:
        """How many leaves lie below the vertex."""
        return int(2 ** (self.tree - self.depth))


def leaves_of(
    horizon: int, deepest: Callable[[int, int], int | None], *, published: bool, fixed: bool
) -> tuple[tuple[Leaf, ...], int]:
    """All exchanges of a horizon, and in how many phases there are fewer or more trees than was asked for.

    A phase that is too short keeps the last point, and its samples go to the next root.

    Args:
        horizon: steps.
        deepest: T_1 of a phase, from its number and its samples; below 1 it is 1. None: no tree, only a root.
        published: whether b is the paper's, and all other samples are left out.
        fixed: whether T_1 is never lowered to fit.

    >>> found, changed = leaves_of(16, lambda phase, steps: 1, published=False, fixed=True)
    >>> [(leaf.phase, leaf.depth, leaf.samples) for leaf in found], changed
    ([(3, 0, 2), (3, 1, 1), (4, 0, 3), (4, 1, 1), (5, 0, 6), (5, 1, 2)], 0)
    """
    found: list[Leaf] = []
    waiting, changed = 0, 0
    for phase in range(2, horizon.bit_length() + 1):
        waiting += 2 ** (phase - 2)
        wanted = deepest(phase, waiting)
        depths, batch = _fitting(phase, 0 if wanted is None else max(1, wanted), waiting, published, fixed)
        if batch:
            found += _phase(phase, depths, batch, waiting, published)
            changed, waiting = changed + (wanted is not None and depths[-1] != wanted), 0
    if not found:
        hint = "half of them must hold the samples of all trees: give a longer one, or fewer trees"
        raise ConfigurationError("horizon", horizon, "enough steps for one phase", hint)
    return tuple(found), changed


def _fitting(phase: int, deepest: int, steps: int, published: bool, fixed: bool) -> tuple[range, int]:
    """The depths of a phase's trees, and b: 0 where they do not fit."""
    depths = range(1, deepest + 1) if deepest else range(1)
    # Of three binary digits, so that blocks of few sizes are compiled; a root takes what is left.
    ours = _three_digits(int(steps / _weight(depths)))
    batch = int(2 ** (phase - 1) / (phase - 1) ** 2) if published else ours
    batch -= batch % 2**deepest
    if batch and batch * _weight(depths) <= steps:
        return depths, batch
    return _fitting(phase, deepest - 1, steps, published, fixed) if deepest > 1 and not fixed else (depths, 0)


def _phase(phase: int, depths: range, batch: int, waiting: int, published: bool) -> list[Leaf]:
    """Depth first: leaf l of a tree has its fresh samples at depth j - (zeros at the end of l in binary)."""
    fresh = [(j, j - ((leaf & -leaf).bit_length() - 1) if leaf else 0) for j in depths for leaf in range(2**j)]
    sizes = [batch >> depth for _, depth in fresh]
    spare = waiting - sum(sizes)
    used = [sizes[0] + (0 if published else spare), *sizes[1:]]
    rows = [sizes[0] + spare, *sizes[1:]]
    rates = [2 / (k + 2) for k in range(len(fresh))]
    ends = [k + 1 == len(fresh) for k in range(len(fresh))]
    parts = zip(fresh, rows, used, rates, ends, strict=True)
    return [Leaf(phase, j, depth, row, use, rate, end) for (j, depth), row, use, rate, end in parts]


def _three_digits(number: int) -> int:
    """Rounded down to three binary digits."""
    spare = max(0, number.bit_length() - 3)
    return number >> spare << spare


def _weight(depths: range) -> float:
    """Samples of trees of these depths, in units of b: a level of right children has b/2."""
    return sum(1 + j / 2 for j in depths)
