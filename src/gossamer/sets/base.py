"""What every decision set can do, and the set without bounds."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self

import jax
import jax.numpy as jnp

from gossamer.errors import ConfigurationError
from gossamer.spec import family, kind


@family("set")
@dataclass(frozen=True)
class DecisionSet(ABC):
    """A closed convex set of flat vectors (d,).

    The functions are pure, follow the dtype of their argument and run under `jit` and `vmap`. Sets are
    frozen and hashable, so that compiled programs take them as static arguments. `radius` is the largest
    Euclidean norm of a member, `diameter` the largest Euclidean distance between two.
    """

    def project(self, x: jax.Array) -> jax.Array:
        """The member nearest to `x` in Euclidean distance."""
        self._check_dimension(x)
        return self._project(x)

    def linear_minimizer(self, g: jax.Array) -> jax.Array:
        """A member that minimises <g, x>."""
        self._check_dimension(g)
        return self._linear_minimizer(g)

    def of_dimension(self, dim: int) -> Self:
        """This set in so many dimensions, where it was made without a number of them."""
        return self

    def support(self, g: jax.Array) -> jax.Array:
        """The largest <g, x> over the members x, exactly: what a certificate of optimality rests on."""
        self._check_dimension(g)
        return self._support(g)

    def contains(self, x: jax.Array, tolerance: float = 1e-5) -> jax.Array:
        """Whether `x` is a member, up to a tolerance relative to the size of the set."""
        self._check_dimension(x)
        return self._contains(x, tolerance)

    def origin(self, dim: int) -> jax.Array:
        """The member nearest to zero: where play starts."""
        start: jax.Array = _origin(self, dim)
        return start

    def _support(self, g: jax.Array) -> jax.Array:
        return jnp.vdot(g, self._linear_minimizer(-g))

    @property
    def dimension(self) -> int | None:
        """The length of a member, or None where the set exists in every dimension."""
        return None

    if TYPE_CHECKING:  # a field of some sets and computed by others, which one declaration cannot say at run time

        @property
        def radius(self) -> float:
            """The largest Euclidean norm of a member."""

        @property
        def diameter(self) -> float:
            """The largest Euclidean distance between two members."""

    @abstractmethod
    def _project(self, x: jax.Array) -> jax.Array: ...

    @abstractmethod
    def _linear_minimizer(self, g: jax.Array) -> jax.Array: ...

    @abstractmethod
    def _contains(self, x: jax.Array, tolerance: float) -> jax.Array: ...

    def _check_dimension(self, x: jax.Array) -> None:
        """Refuse, while tracing, a vector that cannot be a point of this set's space."""
        if x.ndim != 1 or self.dimension not in (None, x.shape[0]):
            length = "any length" if self.dimension is None else f"length {self.dimension}"
            raise ConfigurationError("x", x.shape, f"one flat vector of {length} for {self}", "use vmap for a batch")


@kind("set", "everywhere")
@dataclass(frozen=True)
class Everywhere(DecisionSet):
    """The whole space.

    >>> Everywhere().project(jnp.array([3.0, 4.0])).tolist()
    [3.0, 4.0]
    >>> Everywhere().radius
    inf
    """

    @property
    def radius(self) -> float:
        """Infinite."""
        return math.inf

    @property
    def diameter(self) -> float:
        """Infinite."""
        return math.inf

    def _project(self, x: jax.Array) -> jax.Array:
        return x

    def _linear_minimizer(self, g: jax.Array) -> jax.Array:
        raise ConfigurationError(
            "domain", self, "a bounded set", "a linear function has no minimum everywhere: give an L2Ball"
        )

    def _contains(self, x: jax.Array, tolerance: float) -> jax.Array:
        return jnp.isfinite(x).all()


def shrink_factor(norm: jax.Array, bound: float) -> jax.Array:
    """What to multiply by so that a length `norm` comes down to `bound`; 1 where it is below.

    >>> shrink_factor(jnp.array([0.0, 1.0, 4.0]), 2.0).tolist()
    [1.0, 1.0, 0.5]
    """
    return bound / jnp.maximum(norm, bound)


def direction(x: jax.Array) -> jax.Array:
    """The vector scaled to norm 1, whatever its size; zero stays zero.

    >>> direction(jnp.array([0.0, 2e-30])).tolist()
    [0.0, 1.0]
    """
    largest = jnp.abs(x).max()
    scaled = x / jnp.where(largest > 0, largest, 1)
    return scaled / jnp.maximum(jnp.linalg.norm(scaled), 1)


@partial(jax.jit, static_argnames=("domain", "dim"))
def _origin(domain: DecisionSet, dim: int) -> jax.Array:
    """Compiled once for each set: every run asks for its start."""
    return domain.project(jnp.zeros(dim))
