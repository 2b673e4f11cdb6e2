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
        out = _aligned((learners, stop - start, *spec.shape))
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


def _aligned(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """An array that starts at a multiple of 64 bytes: JAX can use it on the CPU without copying it."""
    size = 4 * int(np.prod(shape, dtype=np.int64))
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(np.float32).reshape(shape)


def _fill_page(law: Law, states: NDArray[np.uint64], out: NDArray[np.float32]) -> None:
    """Fill out[i] from the state states[i]. One generator is re-seated, since making a new one costs 10x more."""
    bits = np.random.SFC64(0)
    generator = np.random.Generator(bits)
    fill = {"laplace": _fill_laplace, "gaussian": _fill_gaussian}[law]
    seat = bits.state
    for state, values in zip(states, out, strict=True):
        seat["state"]["state"][:3] = state
        seat["state"]["state"][3] = 1
        seat["has_uint32"] = 0
        bits.state = seat
        fill(generator, values.reshape(-1))


# Numpy's own samplers reject, one value at a time. These transform whole arrays with vectorised logarithms and cosines,
# 2 to 3 times faster. Uniforms have 31 or 32 bits: tails end at 22 (Laplace) and 6.8 (Gaussian).


def _words(generator: np.random.Generator, size: int) -> NDArray[np.uint32]:
    """Uniform 32-bit words."""
    pairs = generator.integers(0, 2**64 - 1, -(-size // 2), dtype=np.uint64, endpoint=True)
    return pairs.view(np.uint32)[:size]


def _fill_laplace(generator: np.random.Generator, out: NDArray[np.float32]) -> None:
    """By inversion: the logarithm of a uniform number is minus an exponential one; the last bit is the sign."""
    words = _words(generator, out.size)
    np.copyto(out, words >> 1, casting="unsafe")
    out += np.float32(0.5)
    out *= np.float32(2**-31)
    np.log(out, out=out)
    out.view(np.uint32)[:] ^= words << 31


def _fill_gaussian(generator: np.random.Generator, out: NDArray[np.float32]) -> None:
    """By Box and Muller: a radius from one word and an angle from another give two values."""
    half = -(-out.size // 2)
    words = _words(generator, 2 * half)
    radius, angle = words[:half].astype(np.float32), words[half:].astype(np.float32)
    radius += np.float32(0.5)
    radius *= np.float32(2**-32)
    np.log(radius, out=radius)
    radius *= np.float32(-2)
    np.sqrt(radius, out=radius)
    angle *= np.float32(2 * np.pi * 2**-32)
    np.multiply(radius, np.cos(angle), out=out[:half])
    rest = out.size - half
    np.multiply(radius[:rest], np.sin(angle[:rest]), out=out[half:])
