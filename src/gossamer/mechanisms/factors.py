"""Lower-triangular matrices C for correlated noise C^-1 z: streaming, with exact column norms.

All noise here is made by forward substitution in C itself, y_t = z_t - sum_{s<t} C_ts y_s, not by multiplying with the
entries of an inverse. Then the matrix whose column norm is counted is, entry by entry, the matrix that is used, and its
rounding errors do not build up (docs/mechanisms.md).
"""

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import pairs
from gossamer.spec import family, kind

_SLOW = 2.0**-21  # slower rates need pairs: float32 has 24 bits, and a buffer must notice that it decays
_UP = 1 + 1e-12  # closed forms in float64 are rounded up by more than they can be wrong


@family("factor")
class Factor(ABC):
    """A lower-triangular C with positive diagonal: noise C^-1 z hides values that move C by little."""

    @abstractmethod
    def init(self, shape: tuple[int, ...]) -> Any:
        """The state before the first row."""

    @abstractmethod
    def correlate(self, state: Any, draw: jax.Array, spacing: jax.Array | None) -> tuple[jax.Array, Any]:
        """The next row of C^-1 z, on the lattice where there is one, and the state after it."""

    @abstractmethod
    def norm(self, rows: int | None) -> float:
        """The largest column norm of the first `rows` rows; None: of all rows there will ever be."""

    @abstractmethod
    def error(self, rows: int) -> float:
        """The largest squared row norm of A C^-1 in the first `rows` rows, A the prefix sums: variance of a prefix."""

    def mean_error(self, rows: int) -> float:
        """The mean of these squared row norms, or a bound on it.

        For Toeplitz factors they are concave in the row, so that of the middle of a quarter is above their mean.
        """
        middles = (min(rows, math.ceil(rows * share + 0.5)) for share in (0.125, 0.375, 0.625, 0.875))
        return sum(map(self.error, middles)) / 4

    @abstractmethod
    def rounding(self, rows: int) -> float:
        """On a lattice: by how many spacings a row of C, as computed, can differ between neighbours beyond theory."""

    @abstractmethod
    def overflow(self, rows: int) -> float:
        """On a lattice: how likely noise is at most to leave the range that `rounding` counts on, in one coordinate."""


@kind("factor", "square-root")
@dataclass(frozen=True)
class SquareRoot(Factor):
    """The first bands of the square root of the prefix-sum matrix: h(0) = 1, h(j) = (1 - 1/(2j)) h(j-1).

    With all bands it is the Toeplitz square root; with few, the banded one (Kalinin and Lampert 2024), which remembers
    only `bands - 1` rows.

    >>> round(SquareRoot(4000).norm(4000) ** 2, 4)
    3.7063
    """

    bands: int

    def init(self, shape: tuple[int, ...]) -> Any:
        """Where the next row goes, and the last rows of noise."""
        return jnp.zeros((), jnp.int32), jnp.zeros((self._past, *shape), jnp.float32)

    @property
    def _past(self) -> int:
        return max(1, self.bands - 1)

    def correlate(self, state: Any, draw: jax.Array, spacing: jax.Array | None) -> tuple[jax.Array, Any]:
        """Forward substitution with the last rows, kept in a ring."""
        slot, past = state
        reversed_ = np.zeros(self._past, np.float32)
        reversed_[: self.bands - 1] = square_root(self.bands)[:0:-1]
        doubled = jnp.asarray(np.concatenate([reversed_, reversed_]))
        weights = lax.dynamic_slice(doubled, ((self._past - slot) % self._past,), (self._past,))
        noise = draw - _combined(weights, past, spacing)
        return noise, ((slot + 1) % self._past, past.at[slot].set(noise))

    def norm(self, rows: int | None) -> float:
        """The norm of the coefficients, as float32 holds them."""
        used = self.bands if rows is None else min(rows, self.bands)
        return math.sqrt(math.fsum(square_root(self.bands)[:used].astype(np.float64) ** 2)) * _UP

    def error(self, rows: int) -> float:
        """By the power series of 1 / ((1 - x) C(x))."""
        from scipy.signal import lfilter

        coefficients = square_root(self.bands).astype(np.float64)[:rows]
        if rows <= self.bands:
            return float(np.sum(coefficients**2))
        return float(np.sum(lfilter([1.0], coefficients, np.ones(rows)) ** 2))

    def rounding(self, rows: int) -> float:
        """Half a spacing on either side, and the error of a sum of pairs while rows stay below 16 scales."""
        terms = min(rows, self.bands)
        return 1 + float(square_root(terms).sum()) * (2.0**-6 + terms * 2.0**-21)

    def overflow(self, rows: int) -> float:
        """A row has variance 4/pi at most with all bands, else that of the coefficients of 1 / C(x)."""
        from scipy.signal import lfilter

        variance = 4 / math.pi
        if rows > self.bands:
            impulse = np.eye(1, rows)[0]
            variance = float(np.sum(lfilter([1.0], square_root(self.bands).astype(np.float64), impulse) ** 2))
        return rows * math.erfc(16 / math.sqrt(2 * variance))


@lru_cache
def square_root(bands: int) -> NDArray[np.float32]:
    """The first coefficients of (1 - x)^(-1/2), as float32 holds them.

    >>> square_root(4).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    j = np.arange(1, bands)
    return np.concatenate([[1.0], np.cumprod(1 - 1 / (2 * j))]).astype(np.float32)


def _combined(weights: jax.Array, past: jax.Array, spacing: jax.Array | None) -> jax.Array:
    """The weighted sum of rows: a matrix product; on a lattice in pairs, row by row, and then rounded to it."""
    if spacing is None:
        return jnp.tensordot(weights, past, axes=1, precision=lax.Precision.HIGHEST)
    tops, bottoms = pairs.halves(weights)

    def step(row: jax.Array, total: pairs.Pair) -> pairs.Pair:
        top, bottom = pairs.halves(past[row])
        high, rest = pairs.two_sum(total[0], tops[row] * top)
        return pairs.fast_two_sum(high, total[1] + (rest + (tops[row] * bottom + bottoms[row] * past[row])))

    zero = jnp.zeros_like(past[0])
    return pairs.round_pair(lax.fori_loop(0, len(weights), step, (zero, zero)), spacing)


@kind("factor", "blt")
@dataclass(frozen=True)
class Buffered(Factor):
    """A buffered linear Toeplitz matrix: C_ts = sum_k scale_k (1 - rate_k)^(t-s-1) below a diagonal of ones.

    Forward substitution needs one buffer of past noise per term: S <- (1 - rate) S + y, y = z - sum_k scale_k S_k.
    Buffers are pairs of float32, rates and scales have 12 significant bits.

    *Column norm.* The first column is the largest; the squares of its entries are geometric series:
    1 + sum_kl scale_k scale_l (1 - q_kl^(n-1)) / (1 - q_kl), with q_kl = (1 - rate_k)(1 - rate_l) < 1. All terms are
    positive, and 1 - q = rate_k + rate_l - rate_k rate_l has no cancellation. It converges as n grows: endless streams
    have a bound.

    *Error.* With v = sqrt(scale), C(x) = 1 + v^T (1/x - 1 + diag(rate))^-1 v, so by Sherman and Morrison
    C(x)^-1 = 1 - v^T (1/x - 1 + M)^-1 v with M = diag(rate) + v v^T. Its eigenvalues are the rates of the inverse, and
    prefix sums of its coefficients are again a constant plus geometric terms, all positive.

    >>> one = Buffered(rates=(0.5,), scales=(0.5,))
    >>> round(one.norm(3) ** 2, 6), round(one.norm(None) ** 2, 6), one.error(2)
    (1.3125, 1.333333, 1.25...)
    """

    rates: tuple[float, ...]
    scales: tuple[float, ...]

    def __post_init__(self) -> None:
        for name, given in (("rates", self.rates), ("scales", self.scales)):
            short = all(0 < x <= 1 and np.float32(x) == x and _significant_bits(x) <= 12 for x in given)
            if not short or len(given) != len(self.rates):
                raise ConfigurationError(name, given, "as many rates as scales in (0, 1], of 12 significant bits")

    def init(self, shape: tuple[int, ...]) -> Any:
        """One buffer a term: a pair, high parts and low parts."""
        form = (len(self.rates), *shape)
        return jnp.zeros(form, jnp.float32), jnp.zeros(form, jnp.float32)

    def correlate(self, state: Any, draw: jax.Array, spacing: jax.Array | None) -> tuple[jax.Array, Any]:
        """Forward substitution with what the buffers remember.

        In pairs where there is a lattice, or a rate so slow that float32 would forget it.
        """
        rate = jnp.asarray(np.array(self.rates, np.float32).reshape(-1, *(1,) * draw.ndim))
        high, low = state
        if spacing is None and min(self.rates) >= _SLOW:
            noise = draw - sum(scale * high[k] for k, scale in enumerate(np.array(self.scales, np.float32)))
            return noise, (high - rate * high + jnp.broadcast_to(noise, high.shape), low)
        top, bottom = pairs.halves(high)
        total, below = jnp.zeros_like(draw), jnp.zeros_like(draw)
        for k, scale in enumerate(np.array(self.scales, np.float32)):
            total, rest = pairs.two_sum(total, scale * top[k])
            below = below + (rest + scale * (bottom[k] + low[k]))
        if spacing is None:
            noise = draw - (total + below)
        else:  # Counted in spacings. Dividing last makes XLA keep the row: it repeats cheaper operations every time.
            per = 1 / spacing
            noise = (draw * per - pairs.round_pair((total * per, below * per), spacing * per)) / per
        decayed, rest = pairs.fast_two_sum(high, -rate * top)
        updated, more = pairs.two_sum(decayed, jnp.broadcast_to(noise, high.shape))
        return noise, pairs.fast_two_sum(updated, low + ((rest + more) - rate * (bottom + low)))

    def norm(self, rows: int | None) -> float:
        """By the closed form."""
        rates, scales = np.array(self.rates), np.array(self.scales)
        series = _geometric(rates[:, None] + rates - rates[:, None] * rates, None if rows is None else rows - 1)
        return math.sqrt(1 + float(scales @ series @ scales)) * _UP

    def error(self, rows: int) -> float:
        """By the closed form."""
        rates, roots = np.array(self.rates), np.sqrt(self.scales)
        inverse, vectors = np.linalg.eigh(np.diag(rates) + np.outer(roots, roots))
        rest = 1 / (1 + float(np.sum(np.array(self.scales) / rates)))
        shares = (roots @ vectors) ** 2 / inverse
        both = _geometric(inverse[:, None] + inverse - inverse[:, None] * inverse, rows)
        return float(rows * rest**2 + 2 * rest * shares @ _geometric(inverse, rows) + shares @ both @ shares)

    def rounding(self, rows: int) -> float:
        """Half a spacing on either side, and the error of the pairs while buffers stay below 32 scales."""
        return 1 + 2.0**-4 + 2.0**-19 * sum(s / r for r, s in zip(self.rates, self.scales, strict=True))

    def overflow(self, rows: int) -> float:
        """The variance of a buffer grows towards that of its stationary law, which solves Lyapunov's equation."""
        from scipy.linalg import solve_discrete_lyapunov

        count = len(self.rates)
        step = np.diag(1 - np.array(self.rates)) - np.tile(self.scales, (count, 1))
        variance = float(np.diag(solve_discrete_lyapunov(step, np.ones((count, count)))).max())
        return rows * count * math.erfc(32 / math.sqrt(2 * variance))


def _geometric(missing: NDArray[np.float64], terms: int | None) -> NDArray[np.float64]:
    """The sum of (1 - missing)^i over i < terms."""
    if terms is None:
        return 1 / missing
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.where(missing < 1, np.expm1(terms * np.log1p(-np.minimum(missing, 1))), -1.0)
    return np.where(terms > 0, -powers / missing, 0.0)


def _significant_bits(x: float) -> int:
    mantissa = int(math.ldexp(math.frexp(x)[0], 53))
    return 53 - ((mantissa & -mantissa).bit_length() - 1)


@kind("factor", "dense", facts=lambda factor: {"digest": factor.digest}, readable=False)
@dataclass(frozen=True)
class Dense(Factor):
    """Any lower-triangular matrix with a positive diagonal.

    That diagonal is not constant, so its rows need noise of different scales: there is no version on a lattice.

    Attributes:
        matrix: a copy that cannot be written to.
        digest: SHA-256 of its numbers, by which matrices are compared.
    """

    matrix: NDArray[np.float32] = field(compare=False, repr=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix, np.float32)
        square = matrix.ndim == 2 and len(matrix) == len(matrix.T) > 0 and bool(np.isfinite(matrix).all())
        if not square or (np.triu(matrix, 1) != 0).any() or not (np.diag(matrix) > 0).all():
            allowed = "a lower-triangular matrix of finite numbers with a positive diagonal"
            raise ConfigurationError("matrix", f"an array of shape {matrix.shape}", allowed)
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "digest", hashlib.sha256(matrix.tobytes()).hexdigest())

    def init(self, shape: tuple[int, ...]) -> Any:
        """The next row, and all rows of noise."""
        return jnp.zeros((), jnp.int32), jnp.zeros((len(self.matrix), *shape), jnp.float32)

    def correlate(self, state: Any, draw: jax.Array, spacing: jax.Array | None) -> tuple[jax.Array, Any]:
        """Forward substitution; no number on a lattice."""
        row, past = state
        weights = jnp.asarray(self.matrix)[row]
        noise = (draw - jnp.tensordot(weights, past, axes=1, precision=lax.Precision.HIGHEST)) / weights[row]
        noise = noise if spacing is None else jnp.full_like(noise, jnp.nan)
        return noise, (row + 1, past.at[row].set(noise))

    def norm(self, rows: int | None) -> float:
        """From the matrix itself; more rows than it has are refused."""
        norms = self._column_norms
        if rows is None or rows >= len(norms):
            raise PrivacyError.of("horizon", rows, f"at most {len(norms) - 1:,}: the rows of the matrix")
        return float(norms[rows])

    def error(self, rows: int) -> float:
        """By solving B C = A."""
        return float(self._prefix_errors[:rows].max())

    def mean_error(self, rows: int) -> float:
        """By solving B C = A: exact."""
        return float(self._prefix_errors[:rows].mean())

    def rounding(self, rows: int) -> float:
        """Refused."""
        raise PrivacyError(
            "lattice: the rows of an optimised matrix need noise of different scales, which one lattice does not hold. "
            "Use Factorized.blt or Factorized.toeplitz, whose noise is within a few per cent of it."
        )

    def overflow(self, rows: int) -> float:
        """Refused."""
        return self.rounding(rows)

    @cached_property
    def _column_norms(self) -> NDArray[np.float64]:
        """The largest column norm of the first 0, 1, 2, ... rows, rounded up by more than the sums can be wrong."""
        squares = np.square(self.matrix, dtype=np.float64)
        largest = np.cumsum(squares, axis=0, out=squares).max(axis=1)
        return np.concatenate([[0.0], np.sqrt(largest) * (_UP + len(largest) * 2.0**-53)])

    @cached_property
    def _prefix_errors(self) -> NDArray[np.float64]:
        """The squared row norms of A C^-1."""
        from scipy.linalg import solve_triangular

        matrix = self.matrix.astype(np.float64)
        prefixes = solve_triangular(matrix.T, np.tri(len(matrix)).T, lower=False, overwrite_b=True)
        return np.asarray(np.square(prefixes, out=prefixes).sum(axis=0))
