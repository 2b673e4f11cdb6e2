"""Private prefix sums by a binary tree: each leaf enters few noisy nodes, each prefix is the sum of few of them."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from gossamer.checks import check_count
from gossamer.errors import PrivacyError
from gossamer.mechanisms import pairs
from gossamer.mechanisms.additive import Additive
from gossamer.mechanisms.base import Grid, Noise, State, snap
from gossamer.privacy import Law, Sensitivity
from gossamer.spec import kind

LIMIT = 2**31 - 1
"""Leaves are counted in int32."""

_SEGMENTS = 31  # segment k holds the leaves 2^k to 2^(k+1) - 1


class _Place(NamedTuple):
    """Where a leaf stands.

    Attributes:
        leaf: its number in its tree.
        level: of the node that it completes.
        weight: what that node's noise is multiplied with.
        coarse: the lattice of the leaf, in spacings of the noise's.
        closes: whether it ends a segment.
    """

    leaf: jax.Array
    level: jax.Array
    weight: jax.Array | float
    coarse: jax.Array | float
    closes: jax.Array | bool


@kind("mechanism", "tree")
@dataclass(frozen=True)
class TreeSum(Additive):
    """Releases the sum of all values so far, at every value: streaming binary-tree sums (Dwork et al., Chan et al.).

    The node that leaf t completes and that is ever output covers the last 2^l leaves, 2^l the largest power of two that
    divides t. The prefix [1, t] is the disjoint union of such nodes, one for every binary digit 1 of t. So one draw per
    leaf is enough, and the state holds one draw per level: O(d log N).

    *Proof.* Let everything released be the noisy nodes, in the order in which they are completed; prefixes are sums of
    them. Given the nodes released so far, all leaves are functions of these and of the data, adaptive streams included,
    so neighbours have the same leaves but for the one that the unit enters. That leaf is in at most one node of every
    level, and N leaves complete nodes of the levels 0 to floor(log2 N): the height is H = floor(log2 N) + 1, and leaf 1
    is in H nodes. By composition epsilon = H D / b for the pure laws, and mu = sqrt(H) D / s for a Gaussian.

    On a lattice every leaf is rounded before it is added, and sums are kept as pairs of float32, which are exact below
    2^46 spacings. So what is released is the exact sum of noisy nodes, each on the lattice, rounded once: a function of
    releases that the proof covers. Plain float32 sums would round by amounts that depend on the data.

    **Endless** (`horizon=None`, after Chan, Shi and Song 2011): the leaves 2^k to 2^(k+1) - 1 form segment k, with a
    tree of its own. A prefix is the sum of the totals of finished segments, which are the roots of their trees, and of
    nodes of the present one. In segment k the noise of a node at level l is multiplied by w(k, l), a power of two, with

        sum over l = 0..k of 1 / w(k, l) <= 1   (pure laws),        of 1 / w(k, l)^2 <= 1   (Gaussian).

    *Proof.* As above; and a leaf of segment k is in at most one node of each level 0 to k, and in no other segment. So
    it costs at most D / b (or mu = D / s), whatever k is: the scale is that of one release, for ever. Weights are
    powers of two so that weighted noise, and leaves rounded to the largest weight of their segment, lie on one lattice.

    Attributes:
        horizon: leaves that the proof covers; None: no end (the counter holds 2,147,483,647).

    >>> from gossamer.privacy import Budget
    >>> tree = TreeSum((1,), horizon=2236, law="laplace")
    >>> tree.height, tree.calibrate(Sensitivity(l1=2.0, l2=2.0), Budget(1.0)).scales["noise"][0].value
    (12, 24.00000000002...)
    >>> quiet, state = {"noise": jnp.zeros(1)}, tree.init()
    >>> for leaf in (1.0, 2.0, 3.0):
    ...     prefix, state = tree.release(state, jnp.array([leaf]), quiet, {})
    >>> prefix.tolist()
    [6.0]
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.horizon is not None and self.horizon > LIMIT:
            raise PrivacyError.of("horizon", self.horizon, f"at most {LIMIT:,} leaves, or None for no end")

    @property
    def sums(self) -> bool:
        """Yes: prefix sums."""
        return True

    @property
    def height(self) -> int:
        """Levels of the tree: floor(log2 horizon) + 1."""
        return _SEGMENTS if self.horizon is None else self.horizon.bit_length()

    def init(self) -> State:
        """Leaves so far, their exact sum (and the noise of finished segments), one draw per level."""
        return jnp.zeros((), jnp.int32), pairs.zeros(self.shape), jnp.zeros((self.height, *self.shape), jnp.float32)

    def release(self, state: State, value: jax.Array, noise: Noise, grid: Grid) -> tuple[jax.Array, State]:
        """The noisy sum of all leaves so far, this one included."""
        place, value, (count, packed, nodes) = self._node(state, value, noise, grid)
        exact = pairs.add(pairs.unpack(packed), value)
        noisy = _plus_nodes(exact, nodes, place.leaf)
        kept = jnp.where(place.closes, pairs.pack(noisy), pairs.pack(exact))
        return noisy[0], (count, kept, nodes)

    def increment(self, state: State, value: jax.Array, noise: Noise, grid: Grid) -> tuple[jax.Array, State]:
        """The value, with the noise of the new node in the place of that of the nodes below it, which it covers."""
        place, value, state = self._node(state, value, noise, grid)
        covered = (jnp.int32(1) << place.level) - 1
        fresh = pairs.two_sum(value, state[2][place.level])
        return _plus_nodes(fresh, state[2], covered, sign=-1.0)[0], state

    def _node(
        self, state: State, value: jax.Array, noise: Noise, grid: Grid
    ) -> tuple[_Place, jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
        """Where the leaf stands, the leaf on its lattice, and the state with the new node's noise and the old sum."""
        released, packed, nodes = state
        value, spacing = self._guard(released, value), grid.get(self.name)
        place = self._place(released + 1)
        nodes = nodes.at[place.level].set(place.weight * snap(noise[self.name], spacing))
        leaf = value if spacing is None else snap(value, place.coarse * spacing)
        return place, leaf, (jnp.where(released < LIMIT, released + 1, released), packed, nodes)

    def _place(self, number: jax.Array) -> _Place:
        if self.horizon is not None:
            return _Place(number, _trailing_zeros(number), 1.0, 1.0, False)
        segment = 31 - lax.clz(number)
        first = jnp.int32(1) << segment
        leaf = number - first + 1
        level = _trailing_zeros(leaf)
        weights = jnp.asarray(_weights(self.law))
        return _Place(leaf, level, weights[segment, level], weights[segment].max(), leaf == first)

    def gain(self, position: int | None) -> float:
        """The number of noisy nodes that one leaf enters, its root for a Gaussian; 1 where weights pay for it."""
        if self.horizon is None:
            return 1.0
        assert position is not None
        levels = position.bit_length()
        return math.sqrt(levels) if self.law == "gaussian" else float(levels)

    def touched(self, position: int | None) -> float:
        """The draws of the nodes that one leaf enters."""
        return float(_SEGMENTS if position is None else position.bit_length())

    def rounded(self, sensitivity: Sensitivity, grid: float) -> Sensitivity:
        """On a lattice: endless, leaves are rounded to the largest weight of their segment."""
        coarsest = 1.0 if self.horizon is not None else float(_weights(self.law).max())
        return super().rounded(sensitivity, coarsest * grid)

    def max_error(self, rows: int) -> float:
        """The largest variance of the noise in the first `rows` prefixes, for draws of variance 1.

        >>> TreeSum((), horizon=1024).max_error(1024), TreeSum((), horizon=None).max_error(1024)
        (10.0, 1...)
        """
        self.require(check_count("rows", rows))
        if self.horizon is not None:
            return _worst_sum(np.ones(self.height), rows)
        closed, worst = 0.0, 0.0
        squares = _weights(self.law) ** 2
        for segment in range(rows.bit_length()):
            leaves = min(2**segment, rows - 2**segment + 1)
            worst = max(worst, closed + _worst_sum(squares[segment], leaves))
            closed += float(squares[segment, segment])
        return worst

    def mean_error(self, rows: int) -> float:
        """The variance of the noise in the first `rows` prefixes, averaged, for draws of variance 1; finite horizons.

        >>> TreeSum((), horizon=1024).mean_error(1023)
        5.004887585532747
        """
        self.require(check_count("rows", rows))
        if self.horizon is None:
            return self.max_error(rows)
        # Among 0, ..., rows the digit of 2^level is 1 in half of every period of 2^(level+1).
        halves = [2**level for level in range(rows.bit_length())]
        digits = sum((rows + 1) // (2 * half) * half + max(0, (rows + 1) % (2 * half) - half) for half in halves)
        return float(digits / rows)

    def require(self, position: int) -> None:
        """Refuse more leaves than the proof, or the counter, covers."""
        super().require(position)
        if position > LIMIT:
            raise PrivacyError.of("position", position, f"at most {LIMIT:,} leaves", "start a new mechanism")

    def _guard(self, released: jax.Array, value: jax.Array) -> jax.Array:
        if self.horizon is not None:
            return super()._guard(released, value)
        if not isinstance(released, jax.core.Tracer):
            self.require(int(released) + 1)
        return jnp.where(released < LIMIT, value, jnp.nan)


@lru_cache
def _weights(law: Law) -> NDArray[np.float32]:
    """Endless: the weight of every node by (segment, level); 1 where a segment has no such level.

    Inverse weights (squared for a Gaussian) obey Kraft's inequality as the words of a prefix code do, of k + 1 words
    over 2 letters (4 for a Gaussian). The total of a segment, which stays in all later sums, gets a short word.
    """
    base = 4 if law == "gaussian" else 2
    inverse = np.full((_SEGMENTS, _SEGMENTS), 1.0)
    for segment in range(_SEGMENTS):
        words = segment + 1
        longest = base ** math.ceil(math.log(words, base) - 1e-9)
        short = (longest - words) // (base - 1)
        inverse[segment, :words] = longest
        inverse[segment, words - short : words] = longest // base
    return np.asarray(np.sqrt(inverse) if law == "gaussian" else inverse, np.float32)


def _plus_nodes(exact: pairs.Pair, nodes: jax.Array, leaf: jax.Array, sign: float = 1.0) -> pairs.Pair:
    """With the noise of the nodes that make up the prefix: one for every binary digit 1 of the leaf's number."""

    def step(carried: tuple[jax.Array, pairs.Pair]) -> tuple[jax.Array, pairs.Pair]:
        digits, total = carried
        return digits & (digits - 1), pairs.add(total, sign * nodes[_trailing_zeros(digits)])

    total: pairs.Pair = lax.while_loop(lambda carried: carried[0] != 0, step, (leaf, exact))[1]
    return total


def _trailing_zeros(number: jax.Array) -> jax.Array:
    return lax.population_count((number & -number) - 1)


def _worst_sum(of_levels: NDArray[np.floating], leaves: int) -> float:
    """The largest sum of levels over the binary digits of a number from 1 to `leaves`.

    The number agrees with `leaves` down to some digit 1, has a 0 there, and only ones below; or it is `leaves` itself.
    """
    digits = [level for level in range(leaves.bit_length()) if leaves >> level & 1]
    above = [sum(of_levels[high] for high in digits if high > level) for level in digits]
    below = [of_levels[:level].sum() for level in digits]
    return float(max(sum(of_levels[digits]), *(a + b for a, b in zip(above, below, strict=True))))
