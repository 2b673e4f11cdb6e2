"""Private prefix sums with correlated Gaussian noise: less noise than a tree, in less memory."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.mechanisms import pairs
from gossamer.mechanisms.additive import Additive, AdditiveLaw
from gossamer.mechanisms.base import Grid, Noise, State, snap
from gossamer.mechanisms.blt import TABLE
from gossamer.mechanisms.factors import Buffered, Dense, Factor, SquareRoot
from gossamer.mechanisms.optimal import optimise
from gossamer.mechanisms.tree import LIMIT
from gossamer.privacy import Sensitivity
from gossamer.spec import kind

_CLOSE = 1.005  # so close to the Toeplitz square root is close enough: fewer buffers cost less


@kind("mechanism", "factorized")
@dataclass(frozen=True)
class Factorized(Additive):
    """Releases the sum of all values so far, at every value: prefix sums of noisy values x_t + (C^-1 z)_t.

    C is lower triangular, z are independent Gaussian draws of scale s. The noise of the t-th prefix has variance
    s^2 |b_t|^2, with b_t a row of B = A C^-1, where A takes prefix sums. The cost is mu = |c| D / s, with |c| the
    largest column norm of C.

    *Proof, for adaptive streams.* Let y_t = x_t + (C^-1 z)_t be released; prefixes are functions of y. Since C y = C x
    + z and C is lower triangular, to release y_t after y_1 .. y_(t-1) is to release (C x)_t + z_t. Given the same past
    releases, neighbours have the same values but for the one that the unit enters, x_j. So the mean of that Gaussian
    moves by a_t = C_tj (x_j - x'_j), and sum_t |a_t|^2 <= (|c| D)^2, where a_t is a function of z_1 .. z_(t-1).
    The log-likelihood ratio is (sum_t <a_t, z_t> - sum_t |a_t|^2 / 2) / s^2. Let one more draw be shifted by what is
    missing to |c| D, which only helps an observer. For every u, E exp(i u sum_t <a_t, z_t> / s + u^2 sum_t |a_t|^2 / 2)
    = 1 (take expectations from the last draw on, each given those before it). The second sum is constant now, so
    sum_t <a_t, z_t> / s is exactly N(0, |c|^2 D^2), and the ratio has the law that it has for N(0, 1) against N(mu, 1).
    (Theorem 2.1 of Denisov et al. 2022, by another way.)

    Column norms are those of the numbers that the recursion uses, for exactly the horizon asked for. The bound of
    eq. (8) in paper 001, 1 + ln(4n/5)/pi for the Toeplitz square root, is *below* the true value for every n: it is not
    used.

    Why not Laplace: then the l1 norm of a column counts, which grows like the root of the horizon; in `TreeSum` like
    its logarithm.

    Attributes:
        factor: the matrix C.

    >>> from gossamer.privacy import Budget
    >>> mechanism = Factorized.blt((1,), horizon=1024)
    >>> round(mechanism.gain(1024) ** 2 * mechanism.max_error(1024), 2)  # a tree has 110
    10.74
    >>> mechanism.calibrate(Sensitivity(l1=2.0, l2=2.0), Budget(2.0, 1e-3)).losses[0].mu < 1 / 1.44523
    True
    """

    _: KW_ONLY
    law: AdditiveLaw = "gaussian"
    factor: Factor

    ALLOWED: ClassVar[tuple[AdditiveLaw, ...]] = ("gaussian",)

    def __post_init__(self) -> None:
        if self.law not in self.ALLOWED:
            hint = "with Laplace noise the l1 norm of a column counts, which grows like sqrt(horizon): use TreeSum"
            raise ConfigurationError("law", self.law, "'gaussian'", hint)
        super().__post_init__()
        if self.horizon is not None and self.horizon > LIMIT:
            raise PrivacyError.of("horizon", self.horizon, f"at most {LIMIT:,} values, or None for no end")

    @classmethod
    def toeplitz(cls, shape: tuple[int, ...], horizon: int, *, name: str = "noise") -> Self:
        """The square root of A: the best Toeplitz matrix but for a fraction of a per cent. Remembers all past noise.

        >>> round(Factorized.toeplitz((1,), 4000).gain(4000) ** 2, 4)
        3.7063
        """
        return cls(shape, horizon=horizon, name=name, factor=SquareRoot(check_count("horizon", horizon)))

    @classmethod
    def banded(cls, shape: tuple[int, ...], horizon: int | None, bands: int, *, name: str = "noise") -> Self:
        """The first bands of that square root (Kalinin and Lampert 2024): remembers `bands - 1` rows, never ends.

        >>> round(Factorized.banded((1,), None, bands=32).gain(None) ** 2, 3)
        2.167
        """
        return cls(shape, horizon=horizon, name=name, factor=SquareRoot(check_count("bands", bands)))

    @classmethod
    def blt(
        cls, shape: tuple[int, ...], horizon: int | None = None, buffers: int | None = None, *, name: str = "noise"
    ) -> Self:
        """Buffered linear Toeplitz (Dvijotham et al. 2024): within 0.5 % of the square root from few buffers.

        Args:
            shape: of the values.
            horizon: how many; None: no end. Then coefficients are those for 2^30 values, the sensitivity is that of any
                number of values, and beyond 2^30 the noise of a prefix grows like the root of its length.
            buffers: how many to keep; by default as few as are enough.
            name: of the draws.

        >>> len(Factorized.blt((10,), horizon=10**6, buffers=5).factor.rates)
        5
        """
        if horizon is not None:
            check_count("horizon", horizon)
        return cls(shape, horizon=horizon, name=name, factor=_buffered(horizon, buffers))

    @classmethod
    def optimal(cls, shape: tuple[int, ...], horizon: int, *, name: str = "noise") -> Self:
        """The matrix with the least mean squared error (paper 001, eq. (7)), found once in a process.

        Its mean squared error is within 1e-5 of the least one (`gossamer.mechanisms.optimal`). 1,024 values take a
        second, 4,000 half a minute, 6,000 a minute. Noise of all past values is remembered. No lattice: see `Dense`.

        >>> best = Factorized.optimal((1,), 64)
        >>> round(best.gain(64) ** 2 * best.mean_error(64), 2)  # the square root has 4.97
        4.41
        """
        return cls(shape, horizon=horizon, name=name, factor=_optimal(check_count("horizon", horizon)))

    @property
    def sums(self) -> bool:
        """Yes: prefix sums."""
        return True

    def init(self) -> State:
        """Values so far, their noisy sum, and what the factor remembers."""
        return jnp.zeros((), jnp.int32), pairs.zeros(self.shape), self.factor.init(self.shape)

    def release(self, state: State, value: jax.Array, noise: Noise, grid: Grid) -> tuple[jax.Array, State]:
        """The noisy sum of all values so far, this one included."""
        value, correlated, (count, total, memory) = self._row(state, value, noise, grid)
        noisy = pairs.add(pairs.add(pairs.unpack(total), value), correlated)
        return noisy[0], (count, pairs.pack(noisy), memory)

    def increment(self, state: State, value: jax.Array, noise: Noise, grid: Grid) -> tuple[jax.Array, State]:
        """The value and its row of C^-1 z: y_t itself, rounded once."""
        value, correlated, state = self._row(state, value, noise, grid)
        return value + correlated, state

    def _row(
        self, state: State, value: jax.Array, noise: Noise, grid: Grid
    ) -> tuple[jax.Array, jax.Array, tuple[jax.Array, jax.Array, State]]:
        """The value on its lattice, the noise of its row, and the state with the total as it was."""
        released, total, memory = state
        value, spacing = self._guard(released, value), grid.get(self.name)
        correlated, memory = self.factor.correlate(memory, snap(noise[self.name], spacing), spacing)
        count = jnp.where(released < LIMIT, released + 1, released)
        return snap(value, spacing), correlated, (count, total, memory)

    def gain(self, position: int | None) -> float:
        """The largest column norm of the first `position` rows of C."""
        return self.factor.norm(position)

    def max_error(self, rows: int) -> float:
        """The largest variance of the noise in the first `rows` prefixes, for draws of variance 1.

        >>> round(Factorized.toeplitz((), 1024).max_error(1024), 3)
        3.273
        """
        self.require(check_count("rows", rows))
        return self.factor.error(rows)

    def mean_error(self, rows: int) -> float:
        """The variance of the noise in the first `rows` prefixes, averaged, for draws of variance 1.

        An upper bound, or exact for `optimal`.

        >>> mechanism = Factorized.toeplitz((), 1024)
        >>> 2.9 < mechanism.mean_error(1024) < mechanism.max_error(1024)
        True
        """
        self.require(check_count("rows", rows))
        return self.factor.mean_error(rows)

    def overflow(self) -> float:
        """Of every coordinate; certain without an end."""
        return 1.0 if self.horizon is None else min(1.0, math.prod(self.shape) * self.factor.overflow(self.horizon))

    def rounded(self, sensitivity: Sensitivity, grid: float) -> Sensitivity:
        """On a lattice: values are rounded once, and so is what every row subtracts for the noise before it.

        *Proof.* On a lattice y_t = round(x_t + v_t + z_t), where x_t and v_t lie on it, v_t being -sum_(s<t) C_ts
        (y_s - x_s), rounded. That is a function of an exact Gaussian release, whose mean moves by C_tj (x_j - x'_j) and
        in every coordinate by up to `Factor.rounding` spacings: one for the two roundings, the rest for errors of the
        arithmetic. So |a| <= |c| (D + sqrt(d) g) + sqrt(rows d) rounding g. An endless stream has no such bound.
        """
        if not grid:
            return sensitivity
        if self.horizon is None:
            raise PrivacyError(
                "lattice: every release rounds, and an endless stream rounds without end. "
                "Give a horizon, or use TreeSum, whose noise is rounded once for each node."
            )
        rows = math.sqrt(self.horizon) * self.factor.rounding(self.horizon) / self.gain(self.horizon)
        rounded = super().rounded(sensitivity, grid * (1 + rows))
        if rounded.l2 > 2 * sensitivity.l2:
            raise PrivacyError(
                f"lattice: over {self.horizon:,} releases in {math.prod(self.shape):,} dimensions rounding moves the "
                f"noise more than the data move the values. Use TreeSum, whose noise is rounded once for each node."
            )
        return rounded


def _buffered(horizon: int | None, buffers: int | None) -> Buffered:
    """The shipped coefficients with the least noise at this horizon."""
    table = _shipped()
    rows = 2**30 if horizon is None else min(horizon, 2**30)
    near = {min(30, (rows - 1).bit_length()), max(0, rows.bit_length() - 1)}
    most = max(len(table[exponent]) for exponent in near)
    if buffers is not None:
        check_count("buffers", buffers, most=most)
    for count in range(1, most + 1) if buffers is None else (buffers,):
        known = [table[exponent][count - 1] for exponent in near if len(table[exponent]) >= count]
        found = min(known, key=lambda factor: _product(factor, rows))
        if _product(found, rows) <= _CLOSE * _landau(rows) ** 2:
            break
    return found


def _product(factor: Factor, rows: int) -> float:
    return factor.norm(rows) ** 2 * factor.error(rows)


def _landau(rows: int) -> float:
    """The squared column norm of the Toeplitz square root, to 1/rows^2: only to choose coefficients by."""
    return (math.log(rows) + np.euler_gamma + 4 * math.log(2)) / math.pi - 1 / (4 * math.pi * rows)


@lru_cache
def _shipped() -> dict[int, list[Buffered]]:
    """Coefficients by exponent of the horizon and number of buffers."""
    return {exponent: [Buffered(*each) for each in family] for exponent, family in TABLE.items()}


@lru_cache(maxsize=4)  # up to a hundred megabytes each
def _optimal(horizon: int) -> Dense:
    return Dense(optimise(horizon).matrix.astype(np.float32))
