"""What the algorithms of paper 000 share: blocks of steps, gossiped duals, and decisions that follow from a dual.

In block z every learner plays x_i(z) and sums d_i(z) = sum_t (grad f_{t,i}(x_i(z)) - alpha x_i(z)). Meanwhile the d of
the block before is gossiped. What differs between algorithms is where noise is added, whether gossip is carried on from
block to block, and how a decision follows from the dual.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer.algorithms.authoring import gradient_bound
from gossamer.checks import check_positive
from gossamer.core import Algorithm, Every, Learner, Now
from gossamer.mechanisms import Additive, Gossiped, Prefix
from gossamer.privacy import Clip, NoiseSpec, declared, no_guarantee
from gossamer.problems import Block, Problem, check_clip
from gossamer.sets import DecisionSet
from gossamer.topology import AcceleratedGossip, Pair, Topology

_SPREAD = "one sample moves one d_j by twice the clip, and what gossip makes of it by the matrix that scales the noise"


class State(NamedTuple):
    """The decision in play, its dual, what gossip made of the last messages, d_i(z), and the noisy sums so far."""

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
class Leader:
    """Follow the leader: argmin over K of <dual, x> + weight/2 |x|^2, eq. (6) of paper 000: one projection."""

    lag = 0
    error = 0.0

    def __call__(
        self, domain: DecisionSet, x: jax.Array, before: jax.Array, dual: jax.Array, weight: jax.Array
    ) -> jax.Array:
        """The point of K nearest to the minimiser without bounds."""
        return domain.project(-dual / weight)


@dataclass(frozen=True)
class ConditionalGradient:
    """Algorithm 4 of paper 000: so many steps towards the same minimum with a linear oracle and exact line search.

    It works on the dual of the block before, F(x) = <before, x> + weight/2 |x|^2, so that its steps can be taken while
    the block is played.

    >>> from gossamer.sets import L1Ball
    >>> update = ConditionalGradient(iterations=200)
    >>> dual, zero = jnp.array([1.0, -3.0]), jnp.zeros(2)
    >>> update(L1Ball(1.0), zero, dual, dual, jnp.float32(2.0)).round(2).tolist()
    [...0.0, 1.0]
    """

    iterations: int
    lag = 1

    @property
    def error(self) -> float:
        """Jaggi 2013: after k steps F is within 8 W R^2 / (k + 2) of its minimum, so x within 4 R / sqrt(k + 2)."""
        return 4 / math.sqrt(self.iterations + 2)

    def __call__(
        self, domain: DecisionSet, x: jax.Array, before: jax.Array, dual: jax.Array, weight: jax.Array
    ) -> jax.Array:
        """X + s (v - x) with v = argmin over K of <grad F(x), v> and the best s in [0, 1], again and again."""

        def step(_: int, point: jax.Array) -> jax.Array:
            slope = before + weight * point
            move = domain.linear_minimizer(slope) - point
            curvature = weight * jnp.vdot(move, move)
            length = -jnp.vdot(slope, move) / jnp.where(curvature > 0, curvature, 1)
            return point + jnp.clip(length, 0, 1) * move

        found: jax.Array = jax.lax.fori_loop(0, self.iterations, step, x)
        return found


@dataclass(frozen=True)
class BlockLearner(Learner):
    """What does not depend on where the noise is."""

    problem: Problem
    clip: Clip | None
    strong_convexity: float
    block: int
    update: Update

    released = frozenset({"x"})

    def _start(self, private: Any) -> State:
        x = jnp.asarray(self.problem.initial_decision())
        zero = jnp.zeros_like(x)
        return State(x, zero, Pair(zero, zero), zero, private)

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
class BeforeGossip(BlockLearner):
    """Releases every d_i(z) once, through its mechanism, and gossips what was released: all the rest is public.

    Without a mechanism nothing is private.
    """

    mechanism: Additive | None
    coupled: bool

    @property
    def noise(self) -> dict[str, NoiseSpec]:
        """One draw a block."""
        return self.mechanism.noise(used_in="speak") if self.mechanism else {}

    def init(self, identity: jax.Array) -> State:
        """Duals start at zero."""
        return self._start(Prefix.start(self.mechanism) if self.mechanism else ())

    def learn(self, state: State, block: Block, now: Now) -> State:
        """What is released are clipped gradients alone: l2 knows no data, and comes after the noise."""
        if not self.mechanism:
            return super().learn(state, block, now)
        return state._replace(gradient=self.problem.clipped_data_gradient_sum(state.x, block, self.clip))

    def speak(self, state: State, now: Now) -> tuple[Pair, State]:
        """The next decision from what was gossiped during this block; then d_i(z), noised, starts on its way."""
        gradient, private = state.gradient, state.private
        if self.mechanism:
            noised, private = private.release(self.mechanism, gradient, now.noise, now.grid)
            gradient = self.problem.add_l2(noised, state.x, self.block)
        fresh, heard = self._fresh(gradient, state.x), state.heard
        message = Pair(heard.now + fresh, heard.before + fresh) if self.coupled else Pair(fresh, fresh)
        dual = heard.now if self.coupled else state.dual + heard.now
        return message, self._next(state, dual, now)._replace(private=private)


@dataclass(frozen=True)
class AfterGossip(BlockLearner):
    """Gossips raw d_i(z), and releases the sum of what gossip made of them: decisions are private, messages are not."""

    mechanism: Gossiped

    @property
    def noise(self) -> dict[str, NoiseSpec]:
        """One draw a block."""
        return self.mechanism.noise(used_in="speak")

    def init(self, identity: jax.Array) -> State:
        """Duals start at zero."""
        return self._start(Prefix.start(self.mechanism))

    def speak(self, state: State, now: Now) -> tuple[Pair, State]:
        """zhat_i(z), the private sum of all that was gossiped, and the next decision; d_i(z) is sent as it is."""
        gossiped = declared(state.heard.now, _SPREAD)
        _, private = state.private.release(self.mechanism, gossiped, now.noise, now.grid)
        fresh = self._fresh(state.gradient, state.x)
        return Pair(fresh, fresh), self._next(state, private.total, now)._replace(private=private)


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


def open_algorithm(
    name: str,
    problem: Problem,
    topology: Topology,
    update: Update,
    *,
    block: int,
    gossip_steps: int,
    strong_convexity: float,
    regularization: float,
    horizon: int | None,
    clip: float | Clip | None,
) -> Algorithm:
    """Coupled blocks without noise: AD-FTGL, or D-OCG, as the update says; nothing is private.

    h = (G / R) sqrt(6 (1 + lag) L T), which balances the terms of eqs. (8) and (11) that have no noise in them, or
    alpha L; without a horizon T is the number of steps played so far.
    """
    clip = check_clip(clip)
    mixing = AcceleratedGossip(gossip_steps)
    mixing.check(topology)
    check_positive("regularization", regularization, "try 1.0")
    check_positive("strong_convexity", strong_convexity, zero=True)
    bound, radius = bound_and_radius(problem, clip)
    per_root = bound / radius * math.sqrt(6 * (1 + update.lag) * block)
    h = strong_convexity * block or per_root * math.sqrt(horizon or 1)
    anytime = horizon is None and not strong_convexity
    parameters: dict[str, object] = {"block": block}
    parameters |= {"gossip steps a block": gossip_steps} if gossip_steps != block else {}
    parameters |= {"regularization": regularization}
    parameters |= {"strong convexity": strong_convexity} if strong_convexity else {}
    return Algorithm(
        name=name,
        problem=problem,
        topology=topology,
        learner=BeforeGossip(problem, clip, strong_convexity, block, update, mechanism=None, coupled=True),
        guarantee=no_guarantee("messages and decisions are functions of raw gradients"),
        mixing=mixing,
        schedule=Every(block),
        public={"weight": Weight(regularization * h, block, strong_convexity, update.lag, anytime)},
        parameters=parameters | ({} if clip is None else {"clip": clip}),
    )
