"""Fast noise inside a compiled program: the host sends a recipe of a few numbers, and the program draws.

The words are those of `FastNoise` to the last bit. The transforms are those of `FastNoise` in float32: compiled
logarithms and cosines round differently in the last bits, so draws agree to float32 rounding.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from gossamer.privacy.mixture import INTERVALS, SPAN, sizes
from gossamer.privacy.noise import Law, NoiseSpec, Scale, columns
from gossamer.privacy.words import Key, Place, Time, places, words_of


@partial(jax.tree_util.register_dataclass, data_fields=["key", "scales"], meta_fields=["learners", "law", "shape"])
@dataclass(frozen=True, eq=False)
class Recipe:
    """How to draw any exchange. A pytree: learners, law and shape are static, another seed or scale is not.

    Recipes of several seeds stack leaf by leaf; `jax.vmap` of the functions below then draws for all of them.

    Attributes:
        key: of the draws.
        scales: of every learner, or one for all.
        learners: how many.
        law: of the draws.
        shape: of one learner's draw.
    """

    key: Key
    scales: Any
    learners: int
    law: Law
    shape: tuple[int, ...]

    @classmethod
    def of(cls, key: Key, spec: NoiseSpec, scales: Sequence[Scale]) -> Self:
        """The recipe of draws with these scales."""
        values = columns(scales)[0]
        alike = values[:1] if (values == values[0]).all() else values
        return cls(key, alike, len(scales), spec.law, spec.shape)

    @property
    def size(self) -> int:
        """Numbers per learner's draw."""
        return int(np.prod(self.shape, dtype=np.int64))


def words_per_draw(law: Law, size: int) -> int:
    """Words for one learner's draw: one for each value, in pairs for Gaussian ones; two more for a random size.

    >>> words_per_draw("laplace", 5), words_per_draw("gaussian", 5), words_per_draw("l2-laplace", 5)
    (5, 6, 8)
    """
    pairs = law in ("gaussian", "l2-laplace")
    return (size + size % 2 if pairs else size) + 2 * (law == "l2-laplace")


def places_at(recipe: Recipe, exchange: Time) -> Place:
    """Where the words of all learners' draws at an exchange come from: two words for each learner."""
    return places(recipe.key, jnp.arange(recipe.learners, dtype=jnp.uint32), exchange)


def draws_from(recipe: Recipe, at: Place) -> jax.Array:
    """All learners' draws, at scale: axes (learner, *shape).

    >>> from gossamer.privacy import FastNoise
    >>> source, spec = FastNoise(seed=7), NoiseSpec("laplace", (3,), used_in="speak")
    >>> recipe = source.recipe("message", spec, [Scale(0.5)] * 4)
    >>> host = source.draw("message", spec, [Scale(0.5)] * 4, start=100, stop=200)
    >>> bool(jnp.allclose(draws_from(recipe, places_at(recipe, Time.of(117))), host[:, 17], rtol=1e-5))
    True
    """
    values: jax.Array = _TRANSFORMS[recipe.law](partial(words_of, at), recipe.size) * recipe.scales[:, None]
    return values.reshape(recipe.learners, *recipe.shape)


# The transforms of `fast.py`, value by value: a compiler makes one loop of each, without a branch.

Pick = Callable[[np.ndarray[Any, Any]], jax.Array]
"""Gives the words of these numbers, of every place: axes (..., word)."""


def _numbers(size: int) -> np.ndarray[Any, Any]:
    return np.arange(size, dtype=np.uint32)


def _uniform(pick: Pick, size: int) -> jax.Array:
    return jnp.minimum((pick(_numbers(size)).astype(jnp.float32) + 0.5) * 2.0**-32, 1 - 2.0**-24)


def _laplace(pick: Pick, size: int) -> jax.Array:
    drawn = pick(_numbers(size))
    # As signed numbers, which processors convert several at a time.
    logarithm = jnp.log(((drawn >> 1).astype(jnp.int32).astype(jnp.float32) + 0.5) * 2.0**-31)
    return jnp.where((drawn & 1) == 1, -logarithm, logarithm)


def gaussian(pick: Pick, size: int, first: int = 0) -> jax.Array:
    """Gaussian numbers from the words first, first + 1, ..., as Box and Muller make pairs of them.

    Every number is computed for itself, both words again: putting cosines and sines side by side takes five times as
    long. The second number of a pair is the cosine of an angle a quarter turn behind.
    """
    half, value = (size + 1) // 2, _numbers(size)
    pair, behind = value % np.uint32(max(1, half)), (value >= half).astype(np.uint32) * np.uint32(2**30)
    radius, angle = pick(first + pair), pick(first + half + pair)
    # Both halves of the word as signed numbers: their sum rounds once, as the whole word would.
    upper, lower = (part.astype(jnp.int32).astype(jnp.float32) for part in (radius >> 16, radius & 0xFFFF))
    length = jnp.sqrt(-2 * jnp.log((upper * 2.0**16 + lower + 0.5) * 2.0**-32))
    return length * _cosine(angle - behind.reshape(*(1,) * (angle.ndim - 1), size))


# sin(2 pi t) / t in powers of t^2, for a quarter turn to both sides: off by at most 4e-9.
_SINE = (6.28318516, -41.34165503, 81.60100404, -76.54978143, 39.53669927)


def _cosine(angle: jax.Array) -> jax.Array:
    """Of so many parts in 2^32 of a turn: the sine of what is left to a quarter, exact in whole numbers."""
    left = jnp.int32(2**30) - jnp.abs(lax.bitcast_convert_type(angle, jnp.int32))
    turn = left.astype(jnp.float32) * 2.0**-32
    sine: jax.Array = turn * reduce(lambda total, one: total * (turn * turn) + one, reversed(_SINE))
    return sine


def _l2_laplace(pick: Pick, size: int) -> jax.Array:
    table = jnp.asarray(sizes(size))
    place = (gaussian(pick, 1, first=size + size % 2) + SPAN) * (INTERVALS / (2 * SPAN))
    entry = place.astype(jnp.int32)
    low, high = table[entry], table[entry + 1]
    return gaussian(pick, size) * (low + (high - low) * (place - entry.astype(jnp.float32)))


def _exponential(pick: Pick, size: int) -> jax.Array:
    return -jnp.log(_uniform(pick, size))


def _gumbel(pick: Pick, size: int) -> jax.Array:
    return -jnp.log(-jnp.log1p(-_uniform(pick, size)))


_TRANSFORMS: Mapping[Law, Callable[[Pick, int], jax.Array]] = {
    "laplace": _laplace,
    "gaussian": gaussian,
    "l2-laplace": _l2_laplace,
    "exponential": _exponential,
    "gumbel": _gumbel,
    "uniform": _uniform,
}
