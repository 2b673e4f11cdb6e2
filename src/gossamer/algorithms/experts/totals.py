"""All losses of every expert so far, exact however many they are, and the scores that experts are drawn with."""

from abc import abstractmethod
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from gossamer.core import Now, Server
from gossamer.mechanisms import pairs
from gossamer.problems import Experts

CAP = 64.0
"""In scales of a selection: an expert so much worse than the best one is drawn with probability e^-64."""
ROUNDED = 2.0**-23
"""Float32: by how much of the cap one sample moves a score farther, where `relative` has rounded it."""


@dataclass(frozen=True)
class Adding(Server):
    """Adds up all that it is sent, and broadcasts what to play next."""

    problem: Experts

    def init(self) -> jax.Array:
        """No losses."""
        return pairs.zeros((self.problem.dim,))

    def aggregate(self, state: jax.Array, messages: jax.Array, now: Now) -> tuple[jax.Array, jax.Array]:
        """A function of the totals."""
        totals = pairs.add(pairs.unpack(state), jnp.sum(messages, axis=0))
        return self.named(totals, now), pairs.pack(totals)

    @abstractmethod
    def named(self, totals: pairs.Pair, now: Now) -> jax.Array:
        """The expert, or the mixture."""


def floored(totals: pairs.Pair, floor: jax.Array) -> pairs.Pair:
    """Totals less the floor, those below it as 0: max with a bound does not move scores apart.

    >>> floored((jnp.array([5.0, 1.0]), jnp.zeros(2)), jnp.float32(2.0))[0].tolist()
    [3.0, 0.0]
    """
    over = pairs.add(totals, -floor)
    negative = (over[0] < 0) | ((over[0] == 0) & (over[1] < 0))
    return jnp.where(negative, 0.0, over[0]), jnp.where(negative, 0.0, over[1])


def least(totals: pairs.Pair) -> jax.Array:
    """The number of the least total; of several the lowest.

    >>> int(least((jnp.array([2.0, 1.0, 1.0]), jnp.array([0.0, 0.0, -1e-9]))))
    2
    """
    high, low = totals
    return jnp.argmin(jnp.where(high == jnp.min(high), low, jnp.inf)).astype(jnp.int32)


def relative(totals: pairs.Pair, cap: jax.Array) -> jax.Array:
    """By how much each total exceeds the least one, at most `cap`: scores that select as the totals would.

    What is common to all scores does not change which is selected, and min(total, least + cap) moves no farther than
    the totals do. Totals may be far larger than float32 holds exactly; the excess is rounded once, by cap * 2^-24.

    >>> totals = jnp.array([2.0**30, 2.0**30, 2.0**30 + 2**20]), jnp.array([1.5, 0.0, 0.0])
    >>> relative(totals, jnp.float32(100.0)).tolist()
    [1.5, 0.0, 100.0]
    """
    best = least(totals)
    excess = pairs.add(pairs.add(totals, -totals[0][best]), -totals[1][best])
    return jnp.minimum(excess[0] + excess[1], cap)
