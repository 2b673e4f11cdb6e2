"""Proximal functions: how dual averaging makes a decision of a dual.

Pi(z, a) = argmin_{x in K} <z, x> + psi(x) / a                                                     (7) of paper 002

psi is non-negative and 1-strongly convex, so that |Pi(z, a) - Pi(z', a)| <= a |z - z'|            (10)

A guarantee with calibration="tight" rests on no property of psi: the noise is on the duals, and a decision is a
function of noised ones. What messages cost as published rests on (10).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import jax

from gossamer.errors import ConfigurationError
from gossamer.sets import DecisionSet, Simplex
from gossamer.spec import family, kind


@family("proximal")
@dataclass(frozen=True)
class Proximal(ABC):
    """psi. For one of your own write a frozen dataclass with `minimizer`, in JAX.

    >>> import jax.numpy as jnp
    >>> @dataclass(frozen=True)
    ... class Scaled(Proximal):  # psi(x) = c |x|^2 / 2
    ...     c: float
    ...     def minimizer(self, dual, step, domain):
    ...         return domain.project(-step / self.c * dual)
    ...     def largest(self, domain):
    ...         return self.c * domain.radius**2 / 2
    >>> Scaled(2.0).minimizer(jnp.array([1.0, -4.0]), 1.0, Simplex()).tolist()
    [0.0, 1.0]
    """

    domains: ClassVar[type[DecisionSet] | None] = None
    """The kind of decision sets on which it is a proximal function; None: all."""

    @abstractmethod
    def minimizer(self, dual: jax.Array, step: jax.Array | float, domain: DecisionSet) -> jax.Array:
        """Pi(dual, step), a member of the decision set."""

    @abstractmethod
    def largest(self, domain: DecisionSet) -> float:
        """C of Assumption 1(b): the largest psi in the decision set, for the theorems."""


@kind("proximal", "euclidean")
@dataclass(frozen=True)
class Euclidean(Proximal):
    """psi(x) = |x|^2 / 2: the point of the set that is nearest to -step * dual.

    >>> import jax.numpy as jnp
    >>> from gossamer.sets import Box
    >>> Euclidean().minimizer(jnp.array([1.0, -4.0]), 0.5, Box(-1.0, 1.0)).tolist()
    [-0.5, 1.0]
    >>> Euclidean().largest(Box(-1.0, 1.0, dim=2)).__round__(6)
    1.0
    """

    def minimizer(self, dual: jax.Array, step: jax.Array | float, domain: DecisionSet) -> jax.Array:
        """The projection of -step * dual."""
        return domain.project(-step * dual)

    def largest(self, domain: DecisionSet) -> float:
        """Half the squared radius."""
        return domain.radius**2 / 2


@kind("proximal", "entropy")
@dataclass(frozen=True)
class Entropy(Proximal):
    """psi(x) = log d + sum_k x_k log x_k on the simplex: decisions proportional to exp(-step * dual).

    It is 1-strongly convex in the l1 norm, and so in the Euclidean norm, which is never larger.

    >>> import jax.numpy as jnp
    >>> Entropy().minimizer(jnp.array([0.0, math.log(3.0)]), 1.0, Simplex()).round(6).tolist()
    [0.75, 0.25]
    >>> Entropy().largest(Simplex(4)).__round__(4)
    1.3863
    """

    domains: ClassVar[type[DecisionSet] | None] = Simplex

    def minimizer(self, dual: jax.Array, step: jax.Array | float, domain: DecisionSet) -> jax.Array:
        """The exponential weights of the dual."""
        return jax.nn.softmax(-step * dual)

    def largest(self, domain: DecisionSet) -> float:
        """It is log d, in the corners."""
        if domain.dimension is None:
            raise ConfigurationError("domain", domain, "a simplex with a dimension", "its entropy grows with log d")
        return math.log(domain.dimension)


EUCLIDEAN = Euclidean()


def check_proximal(proximal: Proximal, domain: DecisionSet) -> None:
    """Refuse what is no proximal function, or none of this set.

    >>> check_proximal("entropy", Simplex())
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: proximal: got 'entropy'; allowed: a Proximal. Try Euclidean() or Entropy(), ...
    """
    if not isinstance(proximal, Proximal):
        hint = "try Euclidean() or Entropy(), from gossamer.algorithms.coordinates.proximal"
        raise ConfigurationError("proximal", proximal, "a Proximal", hint)
    if proximal.domains is not None and not isinstance(domain, proximal.domains):
        hint = "proximal=Euclidean() fits every set"
        raise ConfigurationError("domain", domain, f"a {proximal.domains.__name__} with proximal={proximal}", hint)
