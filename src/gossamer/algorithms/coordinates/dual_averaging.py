"""Dual averaging with noised duals: what DPSDA (paper 002) and DPPS (Han et al.) share.

A node adds `weight` times its gradient to a dual that gossip spreads, and decides from what it holds. `dpsda_ps` has
the equations of DPSDA, `dp_push_sum_dual_averaging` those of DPPS; masses w are 1 where weights are doubly stochastic.

Round t of the paper is exchange t here, but for what round 0 says: A(0) = I, and no noise before there are data. The
paper's A(t) is the matrix of exchange t - 1. A message then holds the gradient of its own exchange, and decisions wait
for nobody.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.algorithms.coordinates.proximal import EUCLIDEAN, Proximal
from gossamer.core import Learner, Now
from gossamer.errors import ConfigurationError
from gossamer.mechanisms import Additive
from gossamer.privacy import Clip, NoiseSpec, declared
from gossamer.problems import Block, Problem, clipped
from gossamer.topology import PushSum

NAME = "dual"
ERROR = "error"
Own = Literal["exact", "gossip"]
_FEW_PLACES = 4
_STACKED = "one unit moves the clipped part of every node by twice the clip, times their number, and all parts together"


class State(NamedTuple):
    """What a node remembers.

    Attributes:
        y: the decision in play.
        heard: the mixed duals last heard, with their mass where the network is directed.
        own: the sum of all that it added to the dual itself.
        gradient: of the batch just seen, times the weight.
        places: the coordinates of the decision that it controls, padded.
        private: the mechanism's state.
    """

    y: jax.Array
    heard: Any
    own: jax.Array
    gradient: jax.Array
    places: jax.Array
    private: Any


@dataclass(frozen=True)
class DualAveraging(Learner):
    """One node without noise, and what the private forms share.

    Attributes:
        problem: loss and decision set.
        clip: of what a sample, or the whole batch, adds; None: no clipping.
        blocks: the coordinates that each node controls; empty where every node controls all.
        weight: n for DPSDA, so that the average of all duals is the sum of the gradients.
        push: whether messages carry a mass.
        whole: whether the batch's gradient is clipped, and not that of each sample.
        batch: samples of a batch.
        share: of each sample in the loss of its batch: 1 in a sum, 1 / batch in a mean.
        proximal: psi, which makes decisions of duals.
        own: "exact": on its own coordinates a node uses the sum of what it added, which gossip only converges to.
        error: whether gradients come with an error of the environment's.
    """

    problem: Problem
    clip: Clip | None
    _: KW_ONLY
    blocks: tuple[tuple[int, ...], ...] = ()
    weight: float = 1.0
    push: bool = False
    whole: bool = False
    batch: int = 1
    share: float = 1.0
    proximal: Proximal = EUCLIDEAN
    own: Own = "gossip"
    error: bool = False

    released = frozenset({"y"})

    @property
    def width(self) -> int:
        """The coordinates of the node that controls most."""
        return max(map(len, self.blocks)) if self.blocks else self.problem.dim

    @property
    def consecutive(self) -> bool:
        """Whether all nodes control equally many coordinates, which follow one another."""
        width = self.width
        return all(len(block) == width and block == tuple(range(block[0], block[0] + width)) for block in self.blocks)

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """Errors of the gradients, where there are any."""
        return {ERROR: NoiseSpec("gaussian", (self.width,), "speak")} if self.error else {}

    def init(self, identity: jax.Array) -> State:
        """Duals start at zero."""
        dim, width = self.problem.dim, self.width
        heard = jnp.zeros(dim)
        padded = np.array([block + (dim,) * (width - len(block)) for block in self.blocks], np.int32)
        return State(
            y=jnp.asarray(self.problem.initial_decision()),
            heard=PushSum(heard, jnp.ones(())) if self.push else heard,
            own=jnp.zeros(width),
            gradient=jnp.zeros(width),
            places=jnp.asarray(padded)[identity] if self.blocks else jnp.zeros(0, jnp.int32),
            private=self._start(),
        )

    def decide(self, state: State, now: Now) -> jax.Array:
        """y_i(t), of which the node's own coordinates are played."""
        return state.y

    def learn(self, state: State, block: Block, now: Now) -> State:
        """The node's own part of the clipped gradient at y_i(t), times the weight."""
        rows = block.x.shape[0]
        if rows != self.batch:
            raise ConfigurationError("stream", f"batches of {rows}", f"batches of {self.batch}, as `batch` says")
        places, clip = state.places if self.blocks else None, None if self.whole else self.clip
        gradient = self.problem.clipped_data_gradient_sum(state.y, block, clip, places, consecutive=self.consecutive)
        if not self.whole:
            return state._replace(gradient=self.weight * self.share * gradient)
        gradient = gradient if self.share == 1 else self.share * gradient
        gradient = gradient if self.clip is None else clipped(gradient, self.clip)
        return state._replace(gradient=self.weight * gradient)

    def speak(self, state: State, now: Now) -> tuple[Any, State]:
        """The dual with what is new, and the decision it gives."""
        added, private = self._release(state, now)
        added = added + self._without_data(state, now)
        own, dual = state.own + added, self._add(state, added)
        y = self._decide(state, dual, own, now)
        return dual, state._replace(y=y, own=own, private=private)

    def listen(self, state: State, heard: Any) -> State:
        """sum_j P_ij of what was said."""
        return state._replace(heard=heard)

    def _start(self) -> Any:
        return ()

    def _release(self, state: State, now: Now) -> tuple[jax.Array, Any]:
        return state.gradient, state.private

    def _without_data(self, state: State, now: Now) -> jax.Array | float:
        """The part of a gradient that no data enter: regularisation, and the error of the environment."""
        rest: jax.Array | float = 0.0
        if self.problem.l2:
            part = jnp.take(state.y, state.places, mode="fill", fill_value=0) if self.blocks else state.y
            rest = self.weight * self.batch * self.share * self.problem.l2 * part
        return rest + self.weight * now.noise[ERROR] if self.error else rest

    def _add(self, state: State, added: jax.Array) -> Any:
        dual = state.heard.value if self.push else state.heard
        # A scatter, which is written down: what gossip reads several times must not be computed as often.
        dual = dual.at[state.places].add(added, mode="drop") if self.blocks else dual + added
        return state.heard._replace(value=dual) if self.push else dual

    def _decide(self, state: State, dual: Any, own: jax.Array, now: Now) -> jax.Array:
        average = dual.ratio() if self.push else dual
        if self.own == "exact":
            average = _with_parts(average, state.places, own / self.weight)
        return self.proximal.minimizer(average, now.public["step"], self.problem.domain)


@dataclass(frozen=True)
class NoisedDual(DualAveraging):
    """What both private forms share: one vector of noise an exchange."""

    mechanism: Additive

    @property
    def noise(self) -> Mapping[str, NoiseSpec]:
        """That of the mechanism, and errors."""
        return {**self.mechanism.noise(used_in="speak"), **super().noise}

    def _start(self) -> Any:
        return self.mechanism.init()


@dataclass(frozen=True)
class TightDual(NoisedDual):
    """Releases what it adds once, on its own coordinates; all that is sent or played is a function of releases."""

    def _release(self, state: State, now: Now) -> tuple[jax.Array, Any]:
        gradient = declared(state.gradient, _STACKED) if self.blocks else state.gradient
        return self.mechanism.increment(state.private, gradient, now.noise, now.grid)


@dataclass(frozen=True)
class PublishedDual(NoisedDual):
    """Sends every dual with noise on all coordinates, and decides without it: none of its fields is released."""

    released = frozenset()

    def speak(self, state: State, now: Now) -> tuple[Any, State]:
        """h_i(t+1) = z_i(t+1) + noise, and y_i(t+1) from z_i(t+1)."""
        said, state = super().speak(state, now)
        dual = said.value if self.push else said
        noised, private = self.mechanism.release(state.private, dual, now.noise, now.grid)
        return said._replace(value=noised) if self.push else noised, state._replace(private=private)


def _with_parts(whole: jax.Array, places: jax.Array, parts: jax.Array) -> jax.Array:
    """The vector with other values in these places; a place outside stands for nothing.

    Few places are compared with every coordinate: a compiler makes one pass of that and of what comes next, where a
    scatter copies the vector first.
    """
    if places.shape[0] > _FEW_PLACES:
        return whole.at[places].set(parts, mode="drop")
    coordinates = jnp.arange(whole.shape[0])
    for index in range(places.shape[0]):
        whole = jnp.where(coordinates == places[index], parts[index], whole)
    return whole
