"""Noise after gossip: every learner releases what gossip made of everybody's values."""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal, Self

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.errors import ConfigurationError
from gossamer.mechanisms.additive import Additive
from gossamer.mechanisms.base import Grid, Mechanism, Noise, State
from gossamer.privacy import Budget, Law, Loss, Pure, Sensitivity
from gossamer.spec import kind


@kind("mechanism", "gossiped")
@dataclass(frozen=True)
class Gossiped(Mechanism):
    """One release by each of n learners, of sum_j M_ij d_j, one exchange after the d_j were spoken (paper 000).

    One unit moves one d_j by v. Then the values of all learners move together, by M_ij v: on the stack of all releases

        Laplace      sum_i |M_ij v|_1     <= k1 |v|_1,      k1 = max_j sum_i |M_ij|
        l2-Laplace   sum_i |M_ij v|_2     <= k1 |v|_2
        Gaussian     (sum_i |M_ij v|_2^2)^(1/2) <= k2 |v|_2,      k2 = max_j (sum_i M_ij^2)^(1/2)

    and everything else is as for `inner`. Peers see the d_j: nothing here is private from them. At the first exchange
    nothing has been gossiped yet, and nothing is released: position p has spent what `inner` has at p - 1.

    Attributes:
        inner: what each learner releases through.
        learners: n.
        spread: k1, or k2 for Gaussian noise.

    >>> from gossamer.mechanisms import TreeSum
    >>> third = np.full((3, 3), 1 / 3)
    >>> after = Gossiped.of(TreeSum((4,), horizon=3, law="gaussian"), third)
    >>> after.horizon, round(after.spread, 4)
    (4, 0.5774)
    >>> exact, budget = Sensitivity(l1=4.0, l2=2.0), Budget(1.0, 1e-5)
    >>> ratio = after.scales(exact, budget)["noise"] / after.inner.scales(exact, budget)["noise"]
    >>> round(ratio, 4)
    0.5774
    """

    _: KW_ONLY
    inner: Additive
    learners: int
    spread: float

    @classmethod
    def of(cls, inner: Additive, matrix: np.ndarray) -> Self:
        """With the spread of this matrix, which gossip computes in float32."""
        if inner.horizon is None:
            raise ConfigurationError("horizon", None, "a number of releases", "noise after gossip has no endless form")
        size = np.abs(np.asarray(matrix, np.float64))
        spread = np.sqrt((size**2).sum(axis=0)) if inner.law == "gaussian" else size.sum(axis=0)
        horizon = inner.horizon + 1
        return cls(
            inner.shape, horizon=horizon, name=inner.name, inner=inner, learners=len(size), spread=float(spread.max())
        )

    @property
    def order(self) -> Literal[1, 2]:
        """That of `inner`."""
        return self.inner.order

    @property
    def sums(self) -> bool:
        """As `inner`."""
        return self.inner.sums

    def promises(self) -> tuple[str, ...]:
        """What gossip does to a unit."""
        return (f"gossip spreads what one unit moves by at most {self.spread:.6g}", *self.inner.promises())

    def laws(self) -> Mapping[str, tuple[Law, tuple[int, ...]]]:
        """Those of `inner`: every learner has draws of its own."""
        return self.inner.laws()

    def init(self) -> State:
        """Whether something has been gossiped yet, and the state of `inner`."""
        return jnp.zeros((), jnp.int32), self.inner.init()

    def release(self, state: State, value: jax.Array, noise: Noise, grid: Grid) -> tuple[jax.Array, State]:
        """What `inner` releases; zero at the first exchange, when nothing has been heard."""
        gossiped, before = state
        noisy, after = self.inner.release(before, value, noise, grid)
        kept = jax.tree.map(lambda new, old: jnp.where(gossiped > 0, new, old), after, before)
        return jnp.where(gossiped > 0, noisy, 0), (jnp.ones_like(gossiped), kept)

    def loss(self, sensitivity: Sensitivity, scales: Mapping[str, float], position: int | None) -> Loss:
        """That of `inner` for the stack of all learners' values."""
        assert position is not None  # `of` wants a horizon
        if position <= 1:
            return Pure(0.0)
        return self.inner.loss(self._stacked(sensitivity), scales, position - 1)

    def scales(self, sensitivity: Sensitivity, budget: Budget) -> dict[str, float]:
        """Those of `inner` for the stack of all learners' values."""
        return self.inner.scales(self._stacked(sensitivity), budget)

    def touched(self, position: int | None) -> float:
        """The draws of all learners that the proof needs to be exact for one unit."""
        assert position is not None
        return self.learners * self.inner.touched(max(1, position - 1))

    def overflow(self) -> float:
        """Of any learner."""
        return min(1.0, self.learners * self.inner.overflow())

    def rounded(self, sensitivity: Sensitivity, grid: float) -> Sensitivity:
        """On a lattice: the values of all learners are rounded, after gossip."""
        own = self.inner.rounded(sensitivity, grid)
        together = math.sqrt(self.learners) if self.inner.law == "gaussian" else self.learners
        share = together / self.spread
        return Sensitivity(
            sensitivity.l1 + share * (own.l1 - sensitivity.l1), sensitivity.l2 + share * (own.l2 - sensitivity.l2)
        )

    def _stacked(self, sensitivity: Sensitivity) -> Sensitivity:
        return Sensitivity(self.spread * sensitivity.l1, self.spread * sensitivity.l2)
