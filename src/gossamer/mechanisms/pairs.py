"""Sums without rounding errors: a number as an unevaluated sum of two float32 numbers.

Plain float32 sums round, and which way they round depends on the data. A pair keeps what a sum rounds off (Knuth's
two-sum, Dekker's splitting), so that sums of points of a lattice are exact as long as they stay below 2^46 spacings.

In states a pair is one complex64 array, high part real and low part imaginary: one array is one pass over memory in
compiled programs, where two would be two. No complex arithmetic is ever done.

Nothing here is spoilt by a compiler that fuses a multiplication into the addition that follows it: every product that
goes into a two-sum is exact, so that fused and separate give the same number.
"""

import jax
import jax.numpy as jnp
from jax import lax

from gossamer.mechanisms.base import snap

Pair = tuple[jax.Array, jax.Array]


def two_sum(a: jax.Array, b: jax.Array) -> Pair:
    """The float32 sum, and exactly what rounding took from it.

    >>> [float(part) for part in two_sum(jnp.float32(2**24), jnp.float32(1.5))]
    [16777218.0, -0.5]
    """
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def fast_two_sum(a: jax.Array, b: jax.Array) -> Pair:
    """The same in half the operations, where |a| >= |b|.

    >>> [float(part) for part in fast_two_sum(jnp.float32(2**24), jnp.float32(1.5))]
    [16777218.0, -0.5]
    """
    total = a + b
    return total, b - (total - a)


def halves(x: jax.Array) -> Pair:
    """A number as the sum of two with 12 significant bits each: their products with 12-bit numbers are exact.

    >>> [float(half) for half in halves(jnp.float32(1 + 2**-12))]
    [1.0, 0.000244140625]
    """
    bits = lax.bitcast_convert_type(x, jnp.uint32) & jnp.uint32(0xFFFFF000)
    top = lax.bitcast_convert_type(bits, jnp.float32)
    return top, x - top


def add(pair: Pair, x: jax.Array) -> Pair:
    """The pair plus a float32 number.

    Exact on a lattice: the rests of the old and of the new sum are multiples of the spacing and below 2^-24 of the
    sums, so that their own sum is exact while the sums stay below 2^46 spacings. The high part is then the exact
    sum, rounded once.

    >>> pair = jnp.float32(2**30), jnp.float32(0.25)
    >>> [float(part) for part in add(add(pair, jnp.float32(0.5)), jnp.float32(-(2**30)))]
    [0.75, 0.0]
    """
    total, rest = two_sum(pair[0], x)
    return two_sum(total, pair[1] + rest)


def round_pair(pair: Pair, spacing: jax.Array) -> jax.Array:
    """The nearest point of the lattice to a pair.

    >>> float(round_pair((jnp.float32(4.0), jnp.float32(-0.6)), jnp.float32(1.0)))
    3.0
    """
    near = snap(pair[0], spacing)
    return near + snap((pair[0] - near) + pair[1], spacing)


def first_largest(pair: Pair) -> jax.Array:
    """The index of the largest of a vector of pairs, as int32; of several the lowest.

    What argmax would say, in three plain minima and maxima: compilers make of argmax a loop over single numbers.

    >>> int(first_largest((jnp.array([1.0, 2.0, 2.0, 2.0]), jnp.array([0.0, 0.0, 1e-9, 1e-9]))))
    2
    """
    high, low = pair
    low = jnp.where(high == jnp.max(high), low, -jnp.inf)
    last = high.shape[0] - 1
    return jnp.min(jnp.where(low == jnp.max(low), jnp.arange(last + 1, dtype=jnp.int32), last))


def zeros(shape: tuple[int, ...]) -> jax.Array:
    """Pairs of zeros, as states hold them.

    >>> zeros((2,)).dtype
    dtype('complex64')
    """
    return jnp.zeros(shape, jnp.complex64)


def unpack(packed: jax.Array) -> Pair:
    """High and low part.

    >>> [float(part) for part in unpack(pack((jnp.float32(1.0), jnp.float32(2**-30))))]
    [1.0, 9.313225746154785e-10]
    """
    return lax.real(packed), lax.imag(packed)


def pack(pair: Pair) -> jax.Array:
    """One complex64 array."""
    return lax.complex(*pair)
