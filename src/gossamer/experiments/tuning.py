"""Search on a grid of hyper-parameters, from a start that is known to be sensible."""

from collections.abc import Callable, Sequence

import numpy as np

Point = tuple[int, ...]

FIRST_TUNING_SEED = 1000


def tuning_seeds(count: int) -> range:
    """Seeds of runs to tune on: tuning never sees the data, their order or the noise of the final runs.

    >>> tuning_seeds(2)
    range(1000, 1002)
    """
    return range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + count)


def search(loss: Callable[..., float], grids: Sequence[Sequence[float]], start: Sequence[float]) -> tuple[float, ...]:
    """The values of the grids that coordinate descent comes to, see `climb`, from those that are nearest to a start.

    >>> search(lambda clip, step: abs(clip - 1) + abs(step - 0.1), [(0.1, 1.0, 10.0), (0.01, 0.1)], (10.0, 0.01))
    (1.0, 0.1)
    """

    def values(point: Point) -> tuple[float, ...]:
        return tuple(grid[place] for grid, place in zip(grids, point, strict=True))

    begin = tuple(nearest(grid, wanted) for grid, wanted in zip(grids, start, strict=True))
    return values(climb(lambda point: loss(*values(point)), tuple(map(len, grids)), begin))


def nearest(values: Sequence[float], wanted: float) -> int:
    """The place of the value that is nearest in ratio.

    >>> nearest([0.01, 0.1, 1.0], 0.2)
    1
    """
    return int(np.argmin(np.abs(np.log(values) - np.log(wanted))))


def climb(evaluate: Callable[[Point], float], sizes: tuple[int, ...], start: Point) -> Point:
    """The point that coordinate descent comes to: no neighbour on the grid, one step along one axis, is better.

    Axes are searched one after the other, the last one first, again after every move along another axis.

    Args:
        evaluate: the loss at a point, given by its places on the axes; called once for each point.
        sizes: of the axes.
        start: where to begin; drawn into the grid where it lies outside.

    >>> climb(lambda point: (point[0] - 2) ** 2 + (point[1] - 5) ** 2, (4, 9), (0, 0))
    (2, 5)
    """
    known: dict[Point, float] = {}

    def loss(point: Point) -> float:
        if point not in known:
            known[point] = evaluate(point)
        return known[point]

    best = tuple(min(max(place, 0), size - 1) for place, size in zip(start, sizes, strict=True))
    axis = len(sizes) - 1
    while axis >= 0:
        moved = _along(loss, sizes, best, axis)
        axis = len(sizes) - 1 if moved != best and axis != len(sizes) - 1 else axis - 1
        best = moved
    return best


def _along(loss: Callable[[Point], float], sizes: tuple[int, ...], best: Point, axis: int) -> Point:
    """Down along one axis, in both directions, as long as it gets better."""
    for step in (1, -1):
        while 0 <= best[axis] + step < sizes[axis]:
            following = (*best[:axis], best[axis] + step, *best[axis + 1 :])
            if loss(following) >= loss(best):
                break
            best = following
    return best
