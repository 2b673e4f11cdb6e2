"""What decisions are measured on where measuring all of them on all samples would be quadratic: samples of both.

A fixed random sample of learners is measured, each of them at every step on a few samples of its own, drawn from those
of all learners. So the errors of different learners are independent, and the spread of their losses says how far the
mean over them is from the mean over all.
"""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gossamer.privacy.words import Key, Time, below, permuted, places, words
from gossamer.problems import Block

EXACT = 1024
"""Up to so many learners every decision is measured on the samples of all: a million losses a step, milliseconds."""

LEARNERS = 128
"""With more, the decisions of so many learners are measured."""

SAMPLES = 32
"""On so many samples an exchange, or on one a step where an exchange has more steps."""


def size(measure: str, shared: bool, learners: int) -> int | None:
    """How many learners are measured in a run; None: all, and exactly, since that is not quadratic or not too much.

    >>> size("global", False, 1024), size("global", False, 1025), size("local", False, 1025)
    (None, 128, None)
    """
    return LEARNERS if measure == "global" and not shared and learners > EXACT else None


def sample_of(learners: int, size: int) -> NDArray[np.uint32]:
    """The numbers of a random sample of the learners, the same in every run.

    >>> len(set(sample_of(5000, 1024).tolist()))
    1024
    """
    at = places(Key.of(0, "sample of learners"), np.zeros(1, np.uint32), Time.of(0))
    chosen: NDArray[np.uint32] = permuted(np.arange(size, dtype=np.uint32), np.uint32(learners), at)
    return np.sort(chosen)


def per_step(steps: int) -> int:
    """How many samples of each step a decision is measured on.

    >>> per_step(1), per_step(10), per_step(100)
    (32, 3, 1)
    """
    return max(1, SAMPLES // max(1, steps))


def drawn(block: Block, exchange: jax.Array, learners: int) -> Block:
    """For each of so many learners samples drawn from a block (step, learner, ...): axes (learner, sample, ...).

    They follow from the number of the exchange and from nothing else: the same for all seeds, and however a run is cut.
    """
    steps, width = block.y.shape[:2]
    count = per_step(steps)
    # Outside of compiled programs by NumPy: JAX would compile every one of these operations by itself.
    number = exchange if isinstance(exchange, jax.core.Tracer) else np.asarray(exchange)
    time = Time(number[None], np.zeros(1, np.uint32))
    at = places(Key.of(0, "samples measured"), np.arange(learners, dtype=np.uint32), time)
    column = below(words(at, steps * count), np.uint32(width)).astype(np.int32)
    step = np.repeat(np.arange(steps, dtype=np.int32), count)[None]
    return Block(*(jnp.asarray(leaf).at[step, column].get(mode="promise_in_bounds") for leaf in block))
