"""Clipping and sensitivity are one object: the bound that enters a proof is the bound that the code enforces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gossamer.checks import check_count, check_positive
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.privacy.budget import is_number
from gossamer.privacy.units import Unit
from gossamer.spec import kind

_LEAST_GROUP, _LEAST_NORM_GROUP = 24, 128  # sums of fewer numbers than that take as long
_LEAST, _MOST = 1e-12, 1e12
_OPERATIONS = 24  # see `norm_slack`


@dataclass(frozen=True)
class Sensitivity:
    """How far the unit of privacy can move a released value, in two norms.

    >>> Sensitivity(l1=4.0, l2=2.0).of(order=1)
    4.0
    """

    l1: float
    l2: float

    def __post_init__(self) -> None:
        for name in ("l1", "l2"):
            value = getattr(self, name)
            if not is_number(value) or not 0 <= value < math.inf:
                raise PrivacyError.of(
                    f"{name} sensitivity", value, "a finite number of at least 0", "give a clip, which bounds it"
                )
            object.__setattr__(self, name, float(value))

    def of(self, order: Literal[1, 2]) -> float:
        """The bound in this norm."""
        return self.l1 if order == 1 else self.l2


@kind("clip")
@dataclass(frozen=True)
class Clip:
    """Scales a gradient down until its norm is at most a bound: `l2=...` or `l1=...`, or one bound per block.

    Attributes:
        l2: the bound of the Euclidean norm, or one bound per block.
        l1: the bound of the sum of absolute values instead, or one per block.
        blocks: the sizes of consecutive coordinate blocks, each clipped by itself, where there is one bound per block.

    >>> sensitivity = Clip(l2=1.0).sensitivity(Unit.SAMPLE, dim=100)
    >>> round(sensitivity.l2, 3), round(sensitivity.l1, 2)
    (2.0, 20.0)
    >>> Clip(l2=(1.0, 0.5), blocks=(3, 2)).dim
    5
    """

    l2: float | tuple[float, ...] | None = None
    l1: float | tuple[float, ...] | None = None
    blocks: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if (self.l1 is None) == (self.l2 is None):
            raise ConfigurationError("clip", self, "a bound of one norm, l2 or l1", "try Clip(l2=1.0)")
        name = "l2" if self.l1 is None else "l1"
        given = getattr(self, name)
        if self.blocks is None:
            object.__setattr__(self, name, check_bound(f"clip {name}", given))
            return
        if not isinstance(self.blocks, Sequence):
            raise ConfigurationError("clip blocks", self.blocks, "a list of sizes", "try blocks=(3, 2)")
        sizes = tuple(check_count("clip blocks", size) for size in self.blocks)
        bounds = tuple(np.atleast_1d(given).tolist())
        if len(bounds) != len(sizes):
            raise ConfigurationError(f"clip {name}", given, f"one bound for each of the {len(sizes)} blocks")
        object.__setattr__(self, "blocks", sizes)
        object.__setattr__(self, name, tuple(check_bound(f"clip {name}", bound) for bound in bounds))

    @classmethod
    def of(cls, given: float | Clip | None) -> Clip:
        """A clip from what a user gave; a number bounds the Euclidean norm.

        >>> Clip.of(0.5)
        Clip(l2=0.5)
        >>> Clip.of(None)
        Traceback (most recent call last):
        gossamer.errors.PrivacyError: clip: got None; allowed: a positive number or a Clip. Without a bound ...
        """
        if given is None:
            hint = "without a bound on every sample's gradient no noise is enough: try clip=1.0"
            raise PrivacyError.of("clip", given, "a positive number or a Clip", hint)
        return given if isinstance(given, Clip) else cls(l2=check_bound("clip", given))

    def __repr__(self) -> str:
        fields = [f"{name}={getattr(self, name)!r}" for name in ("l2", "l1", "blocks") if getattr(self, name)]
        return f"Clip({', '.join(fields)})"

    @property
    def order(self) -> Literal[1, 2]:
        """Which norm is bounded."""
        return 2 if self.l1 is None else 1

    @property
    def bounds(self) -> tuple[float, ...]:
        """The bound of every block."""
        bound: Any = self.l2 if self.l1 is None else self.l1
        return bound if isinstance(bound, tuple) else (bound,)

    @property
    def norm(self) -> float:
        """The largest Euclidean norm of a clipped gradient."""
        return math.hypot(*self.bounds)

    @property
    def dim(self) -> int | None:
        """The length of the gradients, where the blocks say it."""
        return None if self.blocks is None else sum(self.blocks)

    def check_dim(self, dim: int) -> None:
        """Refuse blocks that do not cover a gradient of this length."""
        if self.dim not in (None, dim):
            raise ConfigurationError("clip blocks", self.blocks, f"sizes that add up to {dim}")

    def parts(self, dim: int) -> tuple[tuple[slice, float], ...]:
        """The coordinates of each block and its bound.

        >>> Clip(l2=(1.0, 0.5), blocks=(3, 2)).parts(5)
        ((slice(0, 3, None), 1.0), (slice(3, 5, None), 0.5))
        """
        self.check_dim(dim)
        ends = np.cumsum(self.blocks or (dim,)).tolist()
        starts = [0, *ends[:-1]]
        return tuple((slice(a, b), bound) for a, b, bound in zip(starts, ends, self.bounds, strict=True))

    def sensitivity(self, unit: Unit, dim: int, *, rows: int = 1, batch: int = 1) -> Sensitivity:
        """How far one unit moves one learner's sum of clipped gradients: one that is replaced, by twice the clip.

        Args:
            unit: what changes between neighbours.
            dim: the length of a gradient.
            rows: gradients in the sum. More of them round more: the worst case of float32 additions, in groups of
                `summation_group`, is counted.
            batch: samples of a common batch, all of which change where the unit is the batch.
        """
        replaced = batch if unit is Unit.BATCH else 1
        rows = max(rows, batch)
        summed = rounding(_additions(rows, summation_group(rows)))
        share = 2 * (replaced + rows * summed) * (1 + norm_slack(dim, self.order))
        bounds, sizes = np.array(self.bounds), np.array(self.blocks or (dim,))
        self.check_dim(dim)
        root = np.sqrt(sizes) if self.order == 2 else 1.0
        return Sensitivity(l1=share * float(np.sum(bounds * root)), l2=share * self.norm)


def summation_group(rows: int) -> int:
    """How many gradients are summed first, before such sums are: about the root of their number, and not few.

    A float32 addition is off by 2^-24 of its result at most. Summed one after the other, the first of B gradients goes
    through B - 1 additions; in groups of sqrt(B), through 2 sqrt(B) - 2. Sums of a few rows each take much longer.

    >>> summation_group(1), summation_group(67), summation_group(1000)
    (1, 24, 32)
    """
    return _group(rows, _LEAST_GROUP)


def norm_group(dim: int) -> int:
    """How many squares of a vector's entries are summed first for its norm, before such sums are.

    >>> norm_group(112), norm_group(784), norm_group(10**6)
    (112, 128, 1000)
    """
    return _group(dim, _LEAST_NORM_GROUP)


def norm_slack(dim: int, order: Literal[1, 2] = 2) -> float:
    """The share by which float32 can leave a clipped vector of this length longer than its bound.

    An operation is off by a share of 2^-24 at most, and n of them by `rounding(n)`. A norm that comes out too small
    makes the vector too long, and so do the operations after it. Counted are, for gradients that are weight times
    features (a weight for each class at most):

    - additions: each entry goes through A of them, with A from the groups of `norm_group`, whatever the order within a
      group. Only the groups are ours, and a barrier keeps compilers from joining them. In the Euclidean norm the root
      halves what they are off by. Weights and features have A + A' for norms of their own, never more than the A of
      their product.
    - 19 others: two times a square and the sum with what squares lose by underflow, halved (2); two roots (4 each, of
      which GPUs need 2); their product (1); the bound in float32 (1); the division (4, the 2 ulp of GPUs); factor times
      weight (1); that times the features (1); and 1 for underflow. That is at most 2^-126 for an operation, whether a
      device keeps subnormal numbers or not, and no bound is below 1e-12, which is above 2^-40.
    - 4 more for weights below 2^-126, which become zero: features have norms below 2^64, so that is 2^-62 at most.

    >>> [f"{norm_slack(dim):.1e}" for dim in (10, 100, 10_000, 61_482, 1_000_000)]
    ['1.7e-06', '4.4e-06', '7.5e-06', '1.6e-05', '6.1e-05']
    """
    return rounding(_additions(dim, norm_group(dim)) / order + _OPERATIONS)


def rounding(operations: float) -> float:
    """The largest share by which so many float32 operations are off, one after the other.

    >>> rounding(1) == 2**-24 / (1 - 2**-24)
    True
    """
    off = operations * 2.0**-24
    if off >= 1:
        raise ConfigurationError("operations", operations, "fewer than 2^24 float32 operations in a row")
    return off / (1 - off)


def check_bound(field: str, given: Any, hint: str = "") -> float:
    """The bound of a norm as a float; refused unless float32 can keep it on every device: see `norm_slack`.

    >>> check_bound("clip l2", 1e-20)
    Traceback (most recent call last):
    gossamer.errors.ConfigurationError: clip l2: got 1e-20; allowed: 1e-12 to 1e+12, where float32 has its digits ...
    """
    bound = check_positive(field, given, hint)
    if not _LEAST <= bound <= _MOST:
        allowed = f"{_LEAST:g} to {_MOST:g}, where float32 has its digits on every device"
        raise ConfigurationError(field, given, allowed, "give the loss or the features another unit")
    return bound


def _group(count: int, least: int) -> int:
    return max(math.isqrt(count - 1) + 1, min(count, least)) if count else 1


def _additions(count: int, group: int) -> int:
    """That one of so many numbers goes through."""
    return (group - 1) + (math.ceil(count / group) - 1)
