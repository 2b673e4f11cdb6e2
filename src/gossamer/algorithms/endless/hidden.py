"""The hidden state of `ldp_endless`: float32 updates of it whose every rounding has a bound, whatever is heard.

theta is a pair of float32 arrays (`mechanisms.pairs`): an update then rounds by a share of itself, and not of theta.

    theta(t+1) = Proj( theta + p - (c theta + lambda d) ),      c = (1 - P_ii) gamma + l2 lambda,   p = gamma m

m is the sum over others of P_ij y_j. It is public, and so is p: neighbours have the same. Every coordinate of m counts
as at most `REACH` radii of the decision set, so that nobody can move theta to where float32 has few digits.

Let u = 2^-24, R the radius, n the dimension, and let B bound the gradients d. The exact update is the one with the same
p, c and lambda, and with a gradient from which the computed one is off by E. From it, the computed update is off by at
most

    2^-40 R (ball) or 0 (box)       the projection                                                                 (1)
    2^-44 R + 2^-100 sqrt(n)        the sums of pairs, each off by u^2 of its terms; underflow                      (2)
    gamma 2^-31 R sqrt(n)           the second of them, one of whose terms is p: |p| <= gamma REACH R sqrt(n)       (3)
    2^-22 (c R + lambda B)          c theta + lambda d: two products, their sum, and c times the low part of theta  (4)
    lambda E                        the gradient: `History.error`                                                   (5)

in the Euclidean norm. What is released, theta / (t+1)^varsigma, is off by 2^-22 R / (t+1)^varsigma: the low part of
theta, and a division. c is what it should be within 2^-21 (gamma + l2 lambda), and lambda within 2^-24 of itself.

*Sums of pairs.* Let (a, b) be a pair, |b| <= u |a|. `pairs.add` splits a + x exactly into s + r, |r| <= u |s|, and
rounds b + r once: by at most u^2 (|a| + |s|).

*Compilers* may fuse a product x into the sum that takes it. Let fl(x) be what is taken elsewhere, and s = a + x rounded
once. Then fl(s - a) is off by some e, |e| <= u |s - a|, and s less that is a float32 number within 2 |e| of a, because
a itself is within |e|. All else in `two_sum` is exact up to u^2, so s + r is off by at most u |x| more. So products
that are not exact are only added where they are small: p ends with a minimum and (4) with a sum, with which nothing is
fused. Nothing is assumed about the order in which other sums are taken.

*Projection on a ball* of radius r. S, the sum of squares as a pair, is off by (2^-44 + 2^-46 log2 n) S: a square by 17
u^2, and every level of a tree of sums by 4 u^2. So points are found inside or outside within 2^-41 r. A point x outside
is scaled by f = r / sqrt(S) in float32, off by less than 8 u with the roots and quotients of any device, as a pair: f x
is off by 2^-44. Its squares are summed again, which gives g = 1 - S' / r^2, |g| <= 2^-20, and f x is made longer by the
share (1 - g)^(-1/2) - 1 = g/2 + 3 g^2/8 + ..., which has 6 operations after S'. Together that is less than 2^-40 r for
n < 2^40.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.algorithms.endless.fading import Rounding
from gossamer.mechanisms import pairs
from gossamer.mechanisms.pairs import Pair
from gossamer.sets import Box, DecisionSet, L2Ball

REACH = 2.0**16
"""What others say counts as at most so many radii of the decision set, in every coordinate. Noise with a standard
deviation of up to 4,096 radii is hardly ever cut."""
_FARTHEST = 2.0**100  # of what a frame carries: all that is known where the decision set has no end
_LEAST, _MOST = 2.0**-40, 2.0**60  # radii for which nothing here under- or overflows


def counted(domain: DecisionSet) -> bool:
    """Whether roundings have a bound in this set: balls and boxes.

    >>> from gossamer.sets import Everywhere
    >>> counted(L2Ball(2.0)), counted(Everywhere())
    (True, False)
    """
    return isinstance(domain, L2Ball | Box) and _LEAST <= domain.radius <= _MOST


def rounding(domain: DecisionSet, dim: int, l2: float, gradient: float, error: float) -> Rounding:
    """How far float32 is off in one update and in what is released of it: (1) to (5).

    Args:
        domain: a set that is `counted`.
        dim: d.
        l2: of the regularisation, whose gradient is exact up to (4).
        gradient: B, the largest gradient without it.
        error: E, how far a computed gradient is from an exact one.

    >>> round(rounding(L2Ball(10.0), 112, 0.0, 1.0, 1e-5).coupling / 10 * 2**22, 3)
    1.021
    """
    radius = domain.radius * (1 + 2.0**-22)
    projected = 2.0**-40 if isinstance(domain, L2Ball) else 0.0
    return Rounding(
        update=radius * (projected + 2.0**-44) + 2.0**-100 * math.sqrt(dim),
        coupling=radius * (2.0**-22 + 2.0**-47 * REACH * math.sqrt(dim)),
        step=error + 2.0**-22 * (gradient + l2 * radius),
        view=2.0**-22 * radius,
        public=2.0**-21,
    )


def pulled(domain: DecisionSet, said: jax.Array, coupling: jax.Array) -> jax.Array:
    """p: the coupling times what others said, of which no coordinate counts as more than `REACH` radii.

    What is no number counts as 0.

    >>> pulled(L2Ball(1.0), jnp.array([3.0, 1e30, jnp.nan]), jnp.float32(0.5)).tolist()
    [1.5, 32768.0, 0.0]
    """
    most = coupling * (REACH * domain.radius if math.isfinite(domain.radius) else _FARTHEST)
    pull = coupling * said
    return jnp.clip(jnp.where(jnp.isnan(pull), 0, pull), -most, most)


def moved(domain: DecisionSet, theta: Pair, pull: jax.Array, update: jax.Array) -> Pair:
    """Proj( theta + pull - update ).

    >>> start = jnp.array([1.0]), jnp.array([0.0])
    >>> [part.tolist() for part in moved(L2Ball(2.0), start, jnp.array([2.0**-30]), jnp.array([0.0]))]
    [[1.0], [9.313225746154785e-10]]
    """
    return projected(domain, pairs.add(pairs.add(theta, -update), pull))


def projected(domain: DecisionSet, point: Pair) -> Pair:
    """The nearest member of the set to a pair: exactly for boxes, within 2^-40 radii for balls.

    >>> [part.tolist() for part in projected(L2Ball(2.5), (jnp.array([3.0, 4.0]), jnp.zeros(2)))]
    [[1.5, 2.0], [0.0, 0.0]]
    """
    if isinstance(domain, L2Ball):
        return _into_ball(point, domain.radius)
    high, low = point
    near = domain.project(high)
    rest = jnp.where(near == high, low, 0)
    if isinstance(domain, Box):  # a high part on the boundary may have a low part that is outside
        bottom, top = (jnp.asarray(bound, high.dtype) for bound in (domain.low, domain.high))
        rest = jnp.where(near == bottom, jnp.maximum(rest, 0), rest)
        rest = jnp.where(near == top, jnp.minimum(rest, 0), rest)
    return near, rest


def _into_ball(point: Pair, radius: float) -> Pair:
    unit = 2.0 ** math.floor(math.log2(radius))  # squares of huge points would overflow, those of tiny ones vanish
    bound = float(np.float32(radius / unit))
    square = bound**2  # 48 bits, and so exactly the sum of two float32 numbers
    high = float(np.float32(square))

    def beyond(size: Pair) -> jax.Array:
        """By how much a squared norm is larger than that of the ball."""
        return (size[0] - high) + (size[1] - (square - high))

    scaled = point[0] / unit, point[1] / unit
    size = _squared_norm(scaled)
    outside = beyond(size) > 0
    near = _times(scaled, jnp.where(outside, bound / jnp.sqrt(jnp.where(outside, size[0], 1)), 1))
    gap = -beyond(_squared_norm(near)) / square
    near = pairs.add(near, near[0] * (gap * (0.5 + 0.375 * gap)))
    return jnp.where(outside, near[0], scaled[0]) * unit, jnp.where(outside, near[1], scaled[1]) * unit


def _times(pair: Pair, factor: jax.Array) -> Pair:
    """A pair times float32 numbers, within 2^-44 of the result."""
    (top, rest), (high, low) = pairs.halves(factor), pairs.halves(pair[0])
    product = pairs.add(pairs.two_sum(top * high, top * low), rest * high)
    return pairs.add(product, rest * low + factor * pair[1])


def _squared_norm(pair: Pair) -> Pair:
    """The sum of squares, (h + l)^2 = h (h + l) + h l, within 2^-44 + 2^-46 log2 d of itself."""
    high, low = pairs.add(_times(pair, pair[0]), pair[0] * pair[1])
    levels = (high.shape[0] - 1).bit_length()
    full = 2**levels

    def level(parts: Pair, _: None) -> tuple[Pair, None]:
        """Sums of two each, and zeros behind them."""
        (high, other), (low, others) = ((part[0::2], part[1::2]) for part in parts)
        high, low = pairs.add(pairs.add((high, low), other), others)
        return (_padded(high, full), _padded(low, full)), None

    # A loop, because compilers compute a level of a tree again for everything that uses it.
    start: Pair = _padded(high, full), _padded(low, full)
    (high, low), _ = jax.lax.scan(level, start, length=levels)
    return high[0], low[0]


def _padded(x: jax.Array, length: int) -> jax.Array:
    return jnp.pad(x, (0, length - x.shape[0]))
