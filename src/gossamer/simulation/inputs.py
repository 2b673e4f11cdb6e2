"""What the host supplies for a chunk of exchanges, and what the program makes of it for one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gossamer.privacy.compiled import Recipe, draws_from, places_at
from gossamer.privacy.words import Place, Time
from gossamer.problems import Block
from gossamer.streams import Feed


class Inputs(NamedTuple):
    """What the host supplies for a chunk of C exchanges, or, sliced, for one of them.

    Attributes:
        block: samples, axes (C, block, learner or batch, ...), or where the program reads them by itself.
        noise: the learners' draws by name, axes (seed, learner, C, ...), or how to draw them here.
        server_noise: the server's draws by name, axes (seed, 1, C, ...), or how to draw them here.
        public: schedules by name, axis (C,).
        varying: the part of the mixing weights that changes from exchange to exchange, leading axis C; in a
            federation who takes part, axes (C, learner), or nothing where everybody does.
        rows: which row of the result an exchange belongs to, axis (C,).
        grid: the lattice of the learners' draws by name, axis (learner,): the same at every exchange.
        server_grid: that of the server's draws, axis (1,).
    """

    block: Any
    noise: Mapping[str, Any]
    server_noise: Mapping[str, Any]
    public: Mapping[str, Any]
    varying: Any
    rows: Rows
    grid: Mapping[str, Any]
    server_grid: Mapping[str, Any]


class Rows(NamedTuple):
    """Rows of a chunk's result.

    Attributes:
        number: of the row that an exchange belongs to.
        begins: whether the exchange begins the row.
        exchange: its number in the run, modulo 2^32.
    """

    number: Any
    begins: Any
    exchange: Any


@partial(jax.tree_util.register_dataclass, data_fields=["feed", "first"], meta_fields=["steps"])
@dataclass(frozen=True, eq=False)
class Fed:
    """A feed of samples, the first step of a chunk, and how many steps each of its exchanges plays."""

    feed: Feed
    first: Any
    steps: int

    def ahead(self, t: jax.Array | int) -> Any:
        """What is computed before the samples of one exchange."""
        return self.feed.ahead(self.first + jnp.asarray(t, jnp.uint32) * jnp.uint32(self.steps), self.steps)

    def samples(self, ahead: Any) -> Block:
        """The samples."""
        return self.feed.samples(ahead)


class Drawn(NamedTuple):
    """Recipes for the draws of all seeds, and the first exchange of a chunk."""

    recipes: Recipe
    first: Time

    def ahead(self, t: jax.Array | int) -> Place:
        """What is computed before the draws of one exchange, axes (seed, learner)."""
        exchange = self.first.plus(jnp.asarray(t, jnp.uint32))
        found: Place = jax.vmap(places_at, (0, None))(self.recipes, exchange)
        return found

    def draws(self, ahead: Place) -> jax.Array:
        """The draws, axes (seed, learner, ...)."""
        made: jax.Array = jax.vmap(draws_from)(self.recipes, ahead)
        return made


class Scaled(NamedTuple):
    """Unit draws of a chunk, axes (seed, learner, C, ...), and what they are multiplied by, axis (learner,)."""

    units: Any
    scales: Any


class Ahead(NamedTuple):
    """What a program computes an exchange ahead, of samples and draws that it makes by itself; else nothing."""

    block: Any
    noise: Mapping[str, Place]
    server_noise: Mapping[str, Place]


def ahead(inputs: Inputs, t: jax.Array | int) -> Ahead:
    """For one exchange of the chunk."""

    def places(noise: Mapping[str, Any]) -> dict[str, Place]:
        return {name: draws.ahead(t) for name, draws in noise.items() if isinstance(draws, Drawn)}

    block = inputs.block.ahead(t) if isinstance(inputs.block, Fed) else ()
    return Ahead(block, places(inputs.noise), places(inputs.server_noise))


def at(inputs: Inputs, t: jax.Array | int, known: Ahead | None = None) -> Inputs:
    """The inputs of one exchange of the chunk; `known`: what was computed ahead."""
    known = ahead(inputs, t) if known is None else known
    here = partial(jax.tree.map, lambda leaf: leaf[t])

    def draws(noise: Mapping[str, Any], places: Mapping[str, Place]) -> dict[str, jax.Array]:
        """Axes (seed, learner, ...): taken from the chunk's, or made now."""
        return {
            name: each.draws(places[name]) if isinstance(each, Drawn) else _draws_at(each, t)
            for name, each in noise.items()
        }

    return Inputs(
        inputs.block.samples(known.block) if isinstance(inputs.block, Fed) else here(inputs.block),
        draws(inputs.noise, known.noise),
        draws(inputs.server_noise, known.server_noise),
        here(inputs.public),
        here(inputs.varying),
        here(inputs.rows),
        inputs.grid,
        inputs.server_grid,
    )


def _draws_at(noise: Any, t: jax.Array | int) -> jax.Array:
    """Draws that the host made, of one exchange: axes (seed, learner, ...)."""
    made = noise.units if isinstance(noise, Scaled) else noise
    units: jax.Array = lax.dynamic_index_in_dim(made, t, 2, keepdims=False)
    if not isinstance(noise, Scaled):
        return units
    return units * jnp.asarray(noise.scales).reshape(1, -1, *(1,) * (units.ndim - 2))
