"""Fast noise inside a compiled program: the host sends a recipe of a few numbers, and the program draws.

The words are those of `FastNoise` to the last bit. The transforms are those of `FastNoise` in float32: compiled
logarithms and cosines round differently in the last bits, so draws agree to float32 rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.privacy.mixture import INTERVALS, SPAN, sizes
from gossamer.privacy.noise import Law, NoiseSpec, Scale, columns
from gossamer.privacy.words import Key, Place, Time, places, words


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
    def of(cls, key: Key, spec: NoiseSpec, scales: Sequence[Scale]) -> Recipe:
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
    drawn = words(at, words_per_draw(recipe.law, recipe.size))
    values: jax.Array = _TRANSFORMS[recipe.law](drawn, recipe.size) * recipe.scales[:, None]
    return values.reshape(recipe.learners, *recipe.shape)


# The transforms of `fast.py`, step by step in the same order.


def _uniform(words: jax.Array) -> jax.Array:
    return jnp.minimum((words.astype(jnp.float32) + 0.5) * 2.0**-32, 1 - 2.0**-24)


def _laplace(words: jax.Array, size: int) -> jax.Array:
    words = words[:, :size]
    # As signed numbers, which processors convert several at a time.
    logarithm = jnp.log(((words >> 1).astype(jnp.int32).astype(jnp.float32) + 0.5) * 2.0**-31)
    return jnp.where((words & 1) == 1, -logarithm, logarithm)


def _gaussian(words: jax.Array, size: int) -> jax.Array:
    radius, angle = jnp.split(words.astype(jnp.float32), 2, axis=1)
    radius = jnp.sqrt(-2 * jnp.log((radius + 0.5) * 2.0**-32))
    angle = angle * (2 * np.pi * 2.0**-32)
    return jnp.concatenate([radius * jnp.cos(angle), radius * jnp.sin(angle)], axis=1)[:, :size]


def _l2_laplace(words: jax.Array, size: int) -> jax.Array:
    table = jnp.asarray(sizes(size))
    place = (_gaussian(words[:, -2:], 1) + SPAN) * (INTERVALS / (2 * SPAN))
    entry = place.astype(jnp.int32)
    low, high = table[entry], table[entry + 1]
    return _gaussian(words[:, :-2], size) * (low + (high - low) * (place - entry.astype(jnp.float32)))


def _exponential(words: jax.Array, size: int) -> jax.Array:
    return -jnp.log(_uniform(words[:, :size]))


def _gumbel(words: jax.Array, size: int) -> jax.Array:
    return -jnp.log(-jnp.log1p(-_uniform(words[:, :size])))


_TRANSFORMS: Mapping[Law, Callable[[jax.Array, int], jax.Array]] = {
    "laplace": _laplace,
    "gaussian": _gaussian,
    "l2-laplace": _l2_laplace,
    "exponential": _exponential,
    "gumbel": _gumbel,
    "uniform": lambda words, size: _uniform(words[:, :size]),
}
