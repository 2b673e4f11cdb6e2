"""Noise sources: learners declare the randomness they need, the engine supplies it by name.

No function that adds noise makes its own randomness. A source answers with arrays at *unit scale* whose values depend
only on (seed, name, learner, exchange), so a run gives the same result however it is cut into chunks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError

Law = Literal["laplace", "gaussian"]
LAWS: tuple[Law, ...] = ("laplace", "gaussian")
UsedIn = Literal["decide", "learn", "speak", "aggregate"]

# Draws are made in pages of about this many values over all learners: long enough that seeding a generator is cheap
# beside filling the page, short enough that a page stays in the cache.
_PAGE_VALUES = 2**20


@dataclass(frozen=True)
class NoiseSpec:
    """One named draw a learner needs at every exchange: its law at unit scale, its shape, the function that gets it.

    >>> NoiseSpec("laplace", (3,), used_in="speak").size
    3
    """

    law: Law
    shape: tuple[int, ...]
    used_in: UsedIn

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            raise ConfigurationError("law", self.law, " or ".join(map(repr, LAWS)))

    @property
    def size(self) -> int:
        """Numbers per draw."""
        return int(np.prod(self.shape, dtype=np.int64))


class NoiseSource(Protocol):
    """Where the engine gets the draws from."""

    def draw(
        self, name: str, spec: NoiseSpec, learners: int, start: int, stop: int
    ) -> NDArray[np.float32]:  # pragma: no cover
        """Draws of exchanges `start` to `stop` for all learners: axes (learner, exchange, *spec.shape)."""
        ...


@dataclass(frozen=True)
class FastNoise:
    """Fast noise for simulation: a function of (seed, name, learner, exchange), whatever the chunking.

    It is not cryptographic, and floating-point noise leaks (docs/noise.md): guarantees of runs that use it
    read "as if run with secure noise".

    >>> noise, spec = FastNoise(seed=7), NoiseSpec("laplace", (2,), used_in="speak")
    >>> whole = noise.draw("message", spec, learners=3, start=0, stop=100)
    >>> part = noise.draw("message", spec, learners=3, start=40, stop=41)
    >>> whole.shape, bool((whole[:, 40] == part[:, 0]).all())
    ((3, 100, 2), True)
    """

    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise ConfigurationError("seed", self.seed, "an integer from 0 to 2^64 - 1")

    def draw(self, name: str, spec: NoiseSpec, learners: int, start: int, stop: int) -> NDArray[np.float32]:
        """Draws of exchanges `start` to `stop` for all learners: axes (learner, exchange, *spec.shape)."""
        page = page_length(spec, learners)
        out = np.empty((learners, stop - start, *spec.shape), np.float32)
        for number in range(start // page, -(-stop // page)):
            first = number * page
            low, high = max(start, first), min(stop, first + page)
            wanted = out[:, low - start : high - start]
            whole = wanted if high - low == page else np.empty((learners, page, *spec.shape), np.float32)
            _fill_page(spec.law, self._states(name, number, learners), whole)
            if whole is not wanted:
                wanted[:] = whole[:, low - first : high - first]
        return out

    def _states(self, name: str, page: int, learners: int) -> NDArray[np.uint64]:
        """Starting states of one generator per learner, three words each."""
        digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        words = np.array([self.seed, digest, page], np.uint64).view(np.uint32)
        states = np.random.SeedSequence(words.tolist()).generate_state(3 * learners, np.uint64)
        return states.reshape(learners, 3).astype(np.uint64)


def page_length(spec: NoiseSpec, learners: int) -> int:
    """Exchanges drawn together: a power of two, so that chunks that are powers of two never cut a page twice.

    >>> page_length(NoiseSpec("gaussian", (112,), used_in="speak"), learners=16)
    512
    """
    exchanges = max(1, _PAGE_VALUES // max(1, spec.size * learners))
    return 1 << (exchanges.bit_length() - 1)


def _fill_page(law: Law, states: NDArray[np.uint64], out: NDArray[np.float32]) -> None:
    """Fill out[i] from the state states[i]. One generator is re-seated, since making a new one costs 10x more."""
    bits = np.random.SFC64(0)
    generator = np.random.Generator(bits)
    seat = bits.state
    for state, values in zip(states, out, strict=True):
        seat["state"]["state"][:3] = state
        seat["state"]["state"][3] = 1
        seat["has_uint32"] = 0
        bits.state = seat
        if law == "gaussian":
            generator.standard_normal(dtype=np.float32, out=values)
        else:
            _fill_laplace(generator, values)


def _fill_laplace(generator: np.random.Generator, out: NDArray[np.float32]) -> None:
    """Laplace = exponential with a random sign; one random bit per value goes into the float's sign bit."""
    generator.standard_exponential(dtype=np.float32, out=out)
    words = generator.integers(0, 2**64 - 1, out.size // 64 + 1, dtype=np.uint64, endpoint=True)
    signs = np.unpackbits(words.view(np.uint8), count=out.size).astype(np.uint32)
    out.reshape(-1).view(np.uint32)[:] |= signs << np.uint32(31)
