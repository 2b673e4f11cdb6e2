"""Balls, boxes and the simplex."""

import math
from dataclasses import dataclass, replace
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.checks import check_count, check_positive
from gossamer.errors import ConfigurationError
from gossamer.sets.base import DecisionSet, direction, shrink_factor
from gossamer.spec import kind


@dataclass(frozen=True)
class Ball(DecisionSet):
    """The vectors whose norm, of one kind or another, is at most `radius`."""

    radius: float

    def __post_init__(self) -> None:
        check_positive("radius", self.radius)

    @property
    def diameter(self) -> float:
        """Twice the radius."""
        return 2 * self.radius


@kind("set", "l2-ball")
@dataclass(frozen=True)
class L2Ball(Ball):
    """The vectors of Euclidean norm at most `radius`.

    >>> L2Ball(2.5).project(jnp.array([3.0, 4.0])).tolist()
    [1.5, 2.0]
    >>> L2Ball(2.5).diameter
    5.0
    """

    def _project(self, x: jax.Array) -> jax.Array:
        return x * shrink_factor(jnp.linalg.norm(x), self.radius)

    def _linear_minimizer(self, g: jax.Array) -> jax.Array:
        return -self.radius * direction(g)

    def _contains(self, x: jax.Array, tolerance: float) -> jax.Array:
        norm: jax.Array = jnp.linalg.norm(x)
        return norm <= self.radius * (1 + tolerance)


@kind("set", "l1-ball")
@dataclass(frozen=True)
class L1Ball(Ball):
    """The vectors whose absolute values sum to at most `radius`.

    >>> L1Ball(1.0).project(jnp.array([2.0, -1.5, 0.0])).tolist()
    [0.75, -0.25, 0.0]
    """

    def _project(self, x: jax.Array) -> jax.Array:
        inside = jnp.abs(x).sum() <= self.radius
        return jnp.where(inside, x, jnp.sign(x) * project_on_simplex(jnp.abs(x), self.radius))

    def _linear_minimizer(self, g: jax.Array) -> jax.Array:
        vertex = jax.nn.one_hot(jnp.argmax(jnp.abs(g)), g.shape[0], dtype=g.dtype)
        return -self.radius * jnp.sign(g) * vertex

    def _contains(self, x: jax.Array, tolerance: float) -> jax.Array:
        return jnp.abs(x).sum() <= self.radius * (1 + tolerance)


@kind("set", "simplex")
@dataclass(frozen=True)
class Simplex(DecisionSet):
    """The probability vectors; `dim` fixes their length where it is known.

    >>> Simplex().project(jnp.array([0.75, 0.5, -3.0])).tolist()
    [0.625, 0.375, 0.0]
    >>> Simplex().origin(4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    dim: int | None = None

    def __post_init__(self) -> None:
        if self.dim is not None:
            check_count("dim", self.dim)

    @property
    def dimension(self) -> int | None:
        """As given."""
        return self.dim

    @property
    def radius(self) -> float:
        """One: the norm of a corner."""
        return 1.0

    @property
    def diameter(self) -> float:
        """The distance of two corners."""
        return 0.0 if self.dim == 1 else math.sqrt(2)

    def origin(self, dim: int) -> jax.Array:
        """The uniform one: the projection would have to be compiled to find it."""
        start = jnp.full(dim, 1 / dim, jnp.float32)
        self._check_dimension(start)
        return start

    def _project(self, x: jax.Array) -> jax.Array:
        return project_on_simplex(x, 1.0)

    def _linear_minimizer(self, g: jax.Array) -> jax.Array:
        return jax.nn.one_hot(jnp.argmin(g), g.shape[0], dtype=g.dtype)

    def _contains(self, x: jax.Array, tolerance: float) -> jax.Array:
        return (x >= -tolerance).all() & (jnp.abs(x.sum() - 1) <= tolerance)


@kind("set", "box")
@dataclass(frozen=True)
class Box(DecisionSet):
    """The vectors between `low` and `high`: numbers for every coordinate alike, or tuples.

    `dim` is needed for `radius` and `diameter` when both bounds are numbers.

    >>> Box(-1.0, (1.0, 2.0)).project(jnp.array([-3.0, 3.0])).tolist()
    [-1.0, 2.0]
    >>> Box(0.0, 2.0, dim=4).diameter
    4.0
    """

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    dim: int | None = None

    def __post_init__(self) -> None:
        if self.dim is not None:
            check_count("dim", self.dim)
        for field in ("low", "high"):
            _check_bound(field, getattr(self, field))
        if len(self._lengths()) > 1:
            raise ConfigurationError("low, high, dim", self, "bounds of one common length")
        if (np.asarray(self.low) > np.asarray(self.high)).any():
            raise ConfigurationError("low", self.low, f"at most high, {self.high}, in every coordinate")

    @property
    def dimension(self) -> int | None:
        """As given, or the length of a bound that is a tuple."""
        return next(iter(self._lengths()), None)

    def of_dimension(self, dim: int) -> Self:
        """The box with its number of dimensions, which its radius and diameter need."""
        return self if self.dimension is not None else replace(self, dim=dim)

    @property
    def radius(self) -> float:
        """The norm of the corner farthest from zero."""
        return self._length_of(np.maximum(np.abs(self.low), np.abs(self.high)))

    @property
    def diameter(self) -> float:
        """The length of the diagonal."""
        return self._length_of(np.subtract(self.high, self.low))

    def _lengths(self) -> set[int]:
        tuples = {len(bound) for bound in (self.low, self.high) if isinstance(bound, tuple)}
        return tuples if self.dim is None else tuples | {self.dim}

    def _length_of(self, sides: np.ndarray) -> float:
        if self.dimension is None:
            raise ConfigurationError("dim", None, "a whole number", f"give the dimension: {self} has no size")
        return float(np.linalg.norm(np.broadcast_to(sides, self.dimension)))

    def _bounds(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.asarray(self.low, x.dtype), jnp.asarray(self.high, x.dtype)

    def _project(self, x: jax.Array) -> jax.Array:
        return jnp.clip(x, *self._bounds(x))

    def _linear_minimizer(self, g: jax.Array) -> jax.Array:
        return jnp.where(g > 0, *self._bounds(g))

    def _contains(self, x: jax.Array, tolerance: float) -> jax.Array:
        low, high = self._bounds(x)
        return ((x >= low - tolerance) & (x <= high + tolerance)).all()


def _check_bound(field: str, bound: object) -> None:
    numbers = bound if isinstance(bound, tuple) and bound else (bound,)
    if not all(isinstance(b, int | float) and math.isfinite(b) for b in numbers):
        raise ConfigurationError(field, bound, "a finite number, or a tuple of finite numbers")


def project_on_simplex(x: jax.Array, total: float) -> jax.Array:
    """The nearest vector that is non-negative and sums to `total`.

    It is max(x - t, 0) for one threshold t, found from the sorted coordinates. Subtracting the largest
    coordinate first changes nothing but keeps small differences of large numbers exact.

    >>> project_on_simplex(jnp.array([3.0, 2.0, -5.0]), 2.0).tolist()
    [1.5, 0.5, 0.0]
    """
    x = x - x.max()
    descending = jnp.sort(x, descending=True)
    count = jnp.arange(1, x.shape[0] + 1, dtype=x.dtype)
    thresholds = (jnp.cumsum(descending) - total) / count
    # The right threshold is the largest: fewer or more coordinates kept give smaller ones.
    return jnp.maximum(x - thresholds.max(), 0)
