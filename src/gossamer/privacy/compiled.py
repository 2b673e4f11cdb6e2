"""Fast noise inside a compiled program: the host sends a recipe of a few numbers, and the accelerator draws.

The words are those of `FastNoise` to the last bit. JAX has no 64-bit integers unless a process-wide switch is set, so
they are computed on pairs of 32-bit ones. The transforms are those of `FastNoise` in float32: an accelerator's
logarithms and cosines round differently in the last bits, so draws agree to float32 rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer.privacy.mixture import INTERVALS, SPAN, sizes
from gossamer.privacy.noise import Law, NoiseSpec, Scale


class Wide(NamedTuple):
    """64-bit numbers as 32-bit halves."""

    low: Any
    high: Any

    @classmethod
    def of(cls, numbers: NDArray[np.uint64]) -> Wide:
        """The halves of these numbers.

        >>> Wide.of(np.array([2**32 + 5], np.uint64))
        Wide(low=array([5], dtype=uint32), high=array([1], dtype=uint32))
        """
        return cls((numbers & np.uint64(2**32 - 1)).astype(np.uint32), (numbers >> np.uint64(32)).astype(np.uint32))


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["origins", "strides", "scales", "before"],
    meta_fields=["law", "shape"],
)
@dataclass(frozen=True, eq=False)
class Recipe:
    """How to draw any exchange of a chunk. A pytree: law and shape are static, another seed, start or scale is not.

    Recipes of several seeds stack leaf by leaf; `jax.vmap(draw_at, (0, None))` then draws for all of them.

    Attributes:
        origins: the first word of every learner's sequence.
        strides: the step of every learner's sequence.
        scales: of every learner.
        before: how many words come before the chunk's first exchange.
        law: of the draws.
        shape: of one learner's draw.
    """

    origins: Wide
    strides: Wide
    scales: Any
    before: Wide
    law: Law
    shape: tuple[int, ...]

    @classmethod
    def of(
        cls,
        spec: NoiseSpec,
        sequences: tuple[NDArray[np.uint64], NDArray[np.uint64]],
        scales: Sequence[Scale],
        first: int,
    ) -> Recipe:
        """The recipe of a chunk that begins at exchange `first` of these sequences."""
        origins, strides = sequences
        before = np.uint64(first * words_per_draw(spec.law, spec.size))
        values = np.array([scale.value for scale in scales], np.float32)
        return cls(Wide.of(origins), Wide.of(strides), values, Wide.of(np.asarray(before)), spec.law, spec.shape)

    @property
    def size(self) -> int:
        """Numbers per learner's draw."""
        return int(np.prod(self.shape, dtype=np.int64))


def words_per_draw(law: Law, size: int) -> int:
    """64-bit words for one learner's draw: one for two values, and one for the size of an l2-Laplace vector.

    >>> words_per_draw("laplace", 5), words_per_draw("l2-laplace", 5)
    (3, 4)
    """
    return -(-size // 2) + (law == "l2-laplace")


def draw_at(recipe: Recipe, t: jax.Array | int) -> jax.Array:
    """All learners' draws at row `t` of the chunk, at scale: axes (learner, *shape).

    >>> from gossamer.privacy import FastNoise
    >>> source, spec = FastNoise(seed=7, compiled=True), NoiseSpec("laplace", (3,), used_in="speak")
    >>> recipe = source.recipe("message", spec, [Scale(0.5)] * 4, start=100, stop=200)
    >>> host = source.draw("message", spec, [Scale(0.5)] * 4, start=100, stop=200)
    >>> bool(jnp.allclose(draw_at(recipe, 17), host[:, 17], rtol=1e-5))
    True
    """
    values: jax.Array = _TRANSFORMS[recipe.law](words_at(recipe, t), recipe.size) * recipe.scales[:, None]
    return values.reshape(len(recipe.scales), *recipe.shape)


def words_at(recipe: Recipe, t: jax.Array | int) -> jax.Array:
    """The 32-bit words of row `t`: axes (learner, word), two for every word of SplitMix64, the low half first."""
    count = words_per_draw(recipe.law, recipe.size)
    rows = Wide(jnp.asarray(t).astype(jnp.uint32), np.uint32(0))
    before = _plus(recipe.before, _times(rows, _constant(count)))
    start = _plus(recipe.origins, _times(recipe.strides, before))
    start, strides = (Wide(x.low[:, None], x.high[:, None]) for x in (start, recipe.strides))
    counters = Wide(jnp.arange(1, count + 1, dtype=jnp.uint32)[None], np.uint32(0))
    z = _plus(start, _times(strides, counters))
    z = _times(_xor_shifted(z, 30), _constant(0xBF58476D1CE4E5B9))
    z = _times(_xor_shifted(z, 27), _constant(0x94D049BB133111EB))
    return jnp.stack(_xor_shifted(z, 31), axis=-1).reshape(-1, 2 * count)


def _constant(number: int) -> Wide:
    return Wide(np.uint32(number % 2**32), np.uint32(number >> 32))


def _plus(x: Wide, y: Wide) -> Wide:
    """The sum modulo 2^64: where the low halves overflow, their sum is below each of them."""
    low = x.low + y.low
    return Wide(low, x.high + y.high + (low < y.low).astype(np.uint32))


def _times(x: Wide, y: Wide) -> Wide:
    """The product modulo 2^64; the product of the high halves is a multiple of it."""
    return Wide(x.low * y.low, _upper(x.low, y.low) + x.low * y.high + x.high * y.low)


def _upper(a: Any, b: Any) -> Any:
    """The upper 32 bits of a product of 32-bit numbers, from their 16-bit halves: no sum here exceeds 32 bits."""
    a0, a1, b0, b1 = a & 0xFFFF, a >> 16, b & 0xFFFF, b >> 16
    middle = a1 * b0 + ((a0 * b0) >> 16)
    carried = a0 * b1 + (middle & 0xFFFF)
    return a1 * b1 + (middle >> 16) + (carried >> 16)


def _xor_shifted(x: Wide, by: int) -> Wide:
    """Each number xor itself shifted right, by 1 to 31."""
    return Wide(x.low ^ ((x.low >> by) | (x.high << (32 - by))), x.high ^ (x.high >> by))


# The transforms of `fast.py`, step by step in the same order.


def _uniform(words: jax.Array) -> jax.Array:
    return jnp.minimum((words.astype(jnp.float32) + 0.5) * 2.0**-32, 1 - 2.0**-24)


def _laplace(words: jax.Array, size: int) -> jax.Array:
    words = words[:, :size]
    logarithm = jnp.log(((words >> 1).astype(jnp.float32) + 0.5) * 2.0**-31)
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
