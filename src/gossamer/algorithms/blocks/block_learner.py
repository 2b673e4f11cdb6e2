"""What learners in blocks share (paper 000): blocks of steps, gossiped duals, and decisions that follow from a dual.

In block z every learner plays x_i(z) and sums d_i(z) = sum_t (grad f_{t,i}(x_i(z)) - alpha x_i(z)). Meanwhile the d of
the block before is gossiped. What differs between algorithms is where noise is added, whether gossip is carried on from
block to block, and how a decision follows from the dual.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer.algorithms.authoring import gradient_bound
from gossamer.core import Learner, Now
from gossamer.privacy import Clip
from gossamer.problems import Block, Problem
from gossamer.sets import DecisionSet
from gossamer.topology import Pair


class State(NamedTuple):
    """The decision in play, its dual, what gossip made of the last messages, d_i(z), and noisy sums, if any."""

    x: jax.Array
    dual: jax.Array
    heard: Pair
    gradient: jax.Array
    private: Any


class Update(Protocol):
    """How the next decision follows from the duals; implementations are hashable values."""

    lag: int
    """How many blocks later than at once a dual is used."""

    @property
    def error(self) -> float:
        """How far from the minimiser its result is at most, in radii of the decision set."""

    def __call__(
        self, domain: DecisionSet, x: jax.Array, before: jax.Array, dual: jax.Array, weight: jax.Array
    ) -> jax.Array:
        """The next decision, from the one in play, the dual of the block before, this one's, and the weight."""


@dataclass(frozen=True)
class BlockLearner(Learner):
    """What does not depend on noise: a decision is played in a whole block, whose gradients are summed."""

    problem: Problem
    clip: Clip | None
    strong_convexity: float
    block: int
    update: Update

    released = frozenset({"x"})

    def init(self, identity: jax.Array) -> State:
        """Duals start at zero."""
        x = jnp.asarray(self.problem.initial_decision())
        zero = jnp.zeros_like(x)
        return State(x, zero, Pair(zero, zero), zero, ())

    def decide(self, state: State, now: Now) -> jax.Array:
        """Play x_i(z) in the whole block."""
        return state.x

    def learn(self, state: State, block: Block, now: Now) -> State:
        """The sum of the block's gradients at x_i(z), each clipped."""
        return state._replace(gradient=self.problem.clipped_gradient_sum(state.x, block, self.clip))

    def listen(self, state: State, heard: Pair) -> State:
        """What gossip made of the messages."""
        return state._replace(heard=heard)

    def _fresh(self, gradient: jax.Array, x: jax.Array) -> jax.Array:
        """d_i(z): without the strongly convex part, which the weight adds back exactly."""
        return gradient - self.block * self.strong_convexity * x if self.strong_convexity else gradient

    def _next(self, state: State, dual: jax.Array, now: Now) -> State:
        x = self.update(self.problem.domain, state.x, state.dual, dual, now.public["weight"])
        return state._replace(x=x, dual=dual)


@dataclass(frozen=True)
class Weight:
    """The weight of |x|^2 / 2 at exchange z: alpha (z - 1 - lag) L + 2h.

    Attributes:
        h: of the whole horizon; where it is not known (`anytime`), of one step.
        block: L.
        alpha: the strong convexity.
        lag: of the update.
        anytime: whether h grows with the root of the steps played.
    """

    h: float
    block: int
    alpha: float = 0.0
    lag: int = 0
    anytime: bool = False

    def __call__(self, z: NDArray[np.int64]) -> NDArray[np.float64]:
        """The weight at each exchange number."""
        played = (self.block * z).astype(np.float64)
        h = self.h * np.sqrt(played) if self.anytime else np.full_like(played, self.h)
        return self.alpha * np.maximum(0.0, played - (1 + self.lag) * self.block) + 2 * h


def bound_and_radius(problem: Problem, clip: Clip | None) -> tuple[float, float]:
    """G, the largest norm of a gradient, and R, of a decision; where one is not known, their ratio is taken as 1.

    >>> from gossamer import problems, sets
    >>> bound_and_radius(problems.Linear(3, domain=sets.L2Ball(2.0)), Clip(l2=0.5))
    (0.5, 2.0)
    >>> bound_and_radius(problems.Linear(3), Clip(l2=0.5))
    (0.5, 0.5)
    """
    bound, radius = gradient_bound(problem, clip), problem.domain.radius
    if clip is not None and not math.isfinite(radius):
        return clip.norm, clip.norm
    if bound is None or not math.isfinite(bound) or not math.isfinite(radius):
        return 1.0, 1.0
    return bound, radius
