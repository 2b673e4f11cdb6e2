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


def least(totals: pairs.Pair) -> jax.Array:
    """The number of the least total; of several the lowest.

    >>> int(least((jnp.array([2.0, 1.0, 1.0]), jnp.array([0.0, 0.0, -1e-9]))))
    2
    """
    return pairs.first_largest((-totals[0], -totals[1]))


def relative(totals: pairs.Pair, cap: jax.Array, floor: jax.Array | None = None) -> jax.Array:
    """By how much each total exceeds the least one, at most `cap`: scores that select as the totals would.

    What is common to all scores does not change which is selected, and min(total, least + cap) moves no farther than
    the totals do, and neither does max(total, floor), in place of which totals below the floor are. Totals may be far
    larger than float32 holds exactly; the excess is rounded once, by cap * 2^-24.

    >>> totals = jnp.array([2.0**30, 2.0**30, 2.0**30 + 2**20]), jnp.array([1.5, 0.0, 0.0])
    >>> relative(totals, jnp.float32(100.0)).tolist()
    [1.5, 0.0, 100.0]
    >>> relative(totals, jnp.float32(1000.0), floor=jnp.float32(2.0**30 + 2**20 - 256)).tolist()
    [0.0, 0.0, 256.0]
    """
    high, low = totals
    best = jnp.min(high)
    rest = jnp.min(jnp.where(high == best, low, jnp.inf))
    if floor is not None:
        below = (best < floor) | ((best == floor) & (rest < 0))
        best, rest = jnp.where(below, floor, best), jnp.where(below, 0.0, rest)
    excess = pairs.add(pairs.add(totals, -best), -rest)
    return jnp.clip(excess[0] + excess[1], 0.0, cap)
