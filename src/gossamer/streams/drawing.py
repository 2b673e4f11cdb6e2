"""Streams that are drawn: samples as functions of (seed, step, learner), for NumPy and in compiled programs alike."""

import hashlib
import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from gossamer.checks import check_count, check_seed
from gossamer.privacy.compiled import gaussian
from gossamer.privacy.marks import called_by_us
from gossamer.privacy.words import Key, Place, Time, below, places, words, words_of
from gossamer.problems.base import Block
from gossamer.streams.base import AS_TOLD, Array, Feed, Stream

_BLOCK_VALUES = 2**15  # numbers that the host draws at once, so that they stay in the processor's cache


class Draws:
    """Random numbers for samples, axes (step, learner, number), of NumPy or JAX; each call gives new ones.

    Attributes:
        np: the library: `numpy` or `jax.numpy`.
        steps: the numbers of the steps, (steps, 1).
        learners: the numbers of the learners, (1, learners).
        dim: how many features a sample has.

    >>> draws = Draws(Key.of(0, "doc"), np.arange(4), 3, dim=2)
    >>> draws.uniform(5).shape, draws.normal(draws.dim).dtype
    ((4, 3, 5), dtype('float32'))
    """

    def __init__(self, key: Key, steps: Any, learners: int, dim: int) -> None:
        self.np: Any = jnp if isinstance(steps, jax.Array) else np
        self.dim, self.steps, self.learners = dim, steps[:, None], self.np.arange(learners, dtype=np.uint32)[None]
        time = Time(self.steps, jnp.uint32(0)) if self.np is jnp else Time.of(self.steps)
        self._at: Place = places(key, self.learners, time)
        self._used = 0

    def common(self) -> Self:
        """Those of the first learner, for samples that all learners share: the learner axis has length 1."""
        one = copy(self)
        one.learners, one._at = self.learners[:, :1], Place(*(each[:, :1] for each in self._at))
        return one

    def words(self, count: int) -> Any:
        """Random uint32."""
        self._used += count
        return words(self._at, count, self._used - count)

    def uniform(self, count: int) -> Any:
        """Uniform in [0, 1), multiples of 2^-24: the same everywhere to the last bit."""
        return (self.words(count) >> 8).astype(np.float32) * np.float32(2**-24)

    def normal(self, count: int) -> Any:
        """Standard normal, by Box and Muller, in pairs; equal on the host and in programs up to float32 rounding."""
        half = -(-count // 2)
        if self.np is jnp:
            self._used += 2 * half
            return gaussian(partial(words_of, self._at), count, self._used - 2 * half)
        radius = self.words(half).astype(np.float32) * np.float32(2**-32) + np.float32(2**-33)
        angle = self.words(half).astype(np.float32) * np.float32(2 * np.pi * 2**-32)
        radius = np.sqrt(np.float32(-2) * np.log(radius))
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)[..., :count]

    def dot(self, x: Any, w: Any) -> Any:
        """Products of vectors along the last axis; w may lack leading axes, or have axes of length 1.

        On a CPU it is no sum of products: a compiler would draw x again for the sum, and within sums of sums often.
        """
        w = self.np.broadcast_to(w, x.shape)
        if self.np is jnp and jax.default_backend() == "cpu":
            return jnp.einsum("sld,sld->sl", x, w)
        return (x * w).sum(axis=-1)

    def below(self, sizes: Sequence[int]) -> Any:
        """Whole numbers from 0 to size - 1, for each of the sizes."""
        return below(self.words(len(sizes)), np.array(sizes, np.uint32)[None, None])


Draw = Callable[..., tuple[Any, Any]]
"""Makes x (step, learner, features...) and y (step, learner) from `Draws` and parameters."""


@partial(jax.tree_util.register_dataclass, data_fields=["key", "parameters"], meta_fields=["draw", "width", "dim"])
@dataclass(frozen=True, eq=False)
class DrawnFeed(Feed):
    """Draws samples inside a compiled program."""

    key: Key
    parameters: tuple[Any, ...]
    draw: Draw
    width: int
    dim: int

    def ahead(self, first: jax.Array, steps: int) -> Block:
        """The samples themselves: they are longer to draw than to keep."""
        draws = Draws(self.key, first + jnp.arange(steps, dtype=jnp.uint32), self.width, self.dim)
        return Block(*self.draw(draws, *self.parameters))

    def samples(self, ahead: Block) -> Block:
        """As they were drawn."""
        return ahead

    def host(self, start: int, stop: int) -> Block:
        """The same by NumPy."""
        return Block(*self.draw(Draws(self.key, np.arange(start, stop), self.width, self.dim), *self.parameters))

    def examples(self) -> Block:
        """Those of the first step."""
        return self.host(0, 1)


class Generated(Stream):
    """An endless stream of fresh random samples, every one of which occurs once, or once at every learner.

    Attributes:
        truth: the parameters behind the labels, where there are any; each generator says which.

    >>> from gossamer.streams import random_signs
    >>> stream = random_signs(3, 4, seed=7)
    >>> stream.length is None, stream.occurrences
    (True, 1)
    >>> stream.read(10**12, 10**12 + 5).x.shape
    (5, 3, 4)
    """

    def __init__(
        self,
        draw: Draw,
        *parameters: Any,
        learners: int | None,
        features: tuple[int, ...],
        seed: int,
        description: str,
        truth: Array | None = None,
    ) -> None:
        check_seed(seed)
        width = 1 if learners is None else learners
        check_count("learners", width)
        self._feed = DrawnFeed(Key.of(seed, description), parameters, draw, width, math.prod(features))
        self.learners, self.length, self.shared = learners, None, learners is None
        self.features, self.occurrences, self.truth = features, 1, truth
        self.promises = () if called_by_us() else (AS_TOLD,)
        whom = "common to all learners" if learners is None else f"{learners} learners"
        self.description = f"{description}, {whom}, {'x'.join(map(str, features))} features"

    def _read(self, start: int, stop: int) -> Block:
        feed = self._feed
        piece = max(1, _BLOCK_VALUES // (feed.width * feed.dim))
        blocks = [feed.host(low, min(low + piece, stop)) for low in range(start, max(stop, start + 1), piece)]
        return Block(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))

    def feed(self) -> Feed:
        """Samples that programs draw by themselves."""
        return self._feed

    def fingerprint(self) -> str | None:
        """Of what is drawn, and with which key and parameters; nobody knows what somebody else's function draws."""
        if self.unenforced:
            return None
        digest = hashlib.sha256(self.description.encode())
        for leaf in jax.tree.leaves((self._feed.key, self._feed.parameters)):
            digest.update(np.ascontiguousarray(leaf).tobytes())
        return digest.hexdigest()
