"""What a ring of learners costs without a library: plain JAX, for `simulate` to be measured against.

Records lie on the device. Which record a learner plays, and its Laplace noise, are 32-bit hashes computed in the step.
There is no guarantee, no check, no schedule and no result but losses: it is a floor, not an alternative.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp


def mixed(words: jax.Array) -> jax.Array:
    """The finaliser of MurmurHash3: 32-bit words that look random."""
    words = (words ^ (words >> 16)) * jnp.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * jnp.uint32(0xC2B2AE35)
    return words ^ (words >> 16)


def laplace(step: jax.Array, shape: tuple[int, int]) -> jax.Array:
    """Unit Laplace noise: the logarithm of 31 bits, the last bit is the sign."""
    places = jax.lax.broadcasted_iota(jnp.uint32, shape, 0) * jnp.uint32(shape[1])
    places += jax.lax.broadcasted_iota(jnp.uint32, shape, 1)
    words = mixed(places ^ mixed(step * jnp.uint32(0x9E3779B9)))
    size = -jnp.log(((words >> 1).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-31))
    return jnp.where(words & 1, size, -size)


@partial(jax.jit, static_argnames=("steps", "rows"))
def gossip(x: jax.Array, y: jax.Array, steps: int, rows: int, rate: float, clip: float, scale: float) -> jax.Array:
    """The mean loss of every learner over all steps; learner i owns records i rows to (i + 1) rows."""
    learners = len(x) // rows
    first = jnp.arange(learners, dtype=jnp.uint32) * rows

    def step(t: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        decisions, losses = state
        now = t.astype(jnp.uint32)
        record = first + mixed(first ^ mixed(now + jnp.uint32(1))) % rows
        features, labels = x[record], y[record]
        scores = jnp.sum(features * decisions, axis=1)
        losses = losses + jnp.logaddexp(0.0, scores) - labels * scores
        slopes = jax.nn.sigmoid(scores) - labels
        norms = jnp.abs(slopes) * jnp.sqrt(jnp.sum(features**2, axis=1))
        slopes = slopes * jnp.minimum(1.0, clip / jnp.maximum(norms, 1e-30))
        gradients = slopes[:, None] * features + scale * laplace(now, decisions.shape)
        heard = (decisions + jnp.roll(decisions, 1, 0) + jnp.roll(decisions, -1, 0)) / 3
        return heard - rate / jnp.sqrt(t + 1.0) * gradients, losses

    start = jnp.zeros((learners, x.shape[1]), jnp.float32), jnp.zeros(learners, jnp.float32)
    return jax.lax.fori_loop(0, steps, step, start)[1] / steps
