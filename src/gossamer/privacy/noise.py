"""Noise sources: learners declare the randomness they need, the engine supplies it by name.

No function that adds noise makes its own randomness. A source answers with arrays at *unit scale* whose values depend
only on (seed, name, learner, exchange), so a run gives the same result however it is cut into chunks, and a learner
alone draws what it would draw among others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError

Law = Literal["laplace", "gaussian"]
LAWS: tuple[Law, ...] = ("laplace", "gaussian")
UsedIn = Literal["decide", "learn", "speak", "aggregate"]

# Words are made in blocks of about this many, so that the passes over a block stay in the processor's cache.
_BLOCK_WORDS = 2**15
# So many exchanges share a sequence: its 64-bit counter never overflows, and exchange numbers may go up to 2^63.
_ERA = 2**32


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

    def draw(self, name: str, spec: NoiseSpec, learners: int, start: int, stop: int) -> NDArray[np.float32]:
        """Draws of exchanges `start` to `stop` for all learners: axes (learner, exchange, *spec.shape).

        A fresh array at every call, which the source never touches again: the engine hands its memory to JAX.
        """
        ...


@dataclass(frozen=True)
class FastNoise:
    """Fast noise for simulation: a function of (seed, name, learner, exchange), whatever the chunking.

    Counter-based: every learner has its own SplitMix64 sequence (Steele, Lea and Flood 2014), and an exchange has its
    own place in it. It is not cryptographic, and floating-point noise leaks (docs/noise.md): guarantees of runs that
    use it read "as if run with secure noise".

    >>> noise, spec = FastNoise(seed=7), NoiseSpec("laplace", (2,), used_in="speak")
    >>> whole = noise.draw("message", spec, learners=3, start=0, stop=100)
    >>> part = noise.draw("message", spec, learners=1, start=40, stop=41)
    >>> whole.shape, bool((whole[0, 40] == part[0, 0]).all())
    ((3, 100, 2), True)
    """

    seed: int

    def __post_init__(self) -> None:
        check_count("seed", self.seed, least=0, most=2**64 - 1)

    def draw(self, name: str, spec: NoiseSpec, learners: int, start: int, stop: int) -> NDArray[np.float32]:
        """Draws of exchanges `start` to `stop` for all learners: axes (learner, exchange, *spec.shape)."""
        out = _aligned((learners, stop - start, spec.size))
        fill = {"laplace": _fill_laplace, "gaussian": _fill_gaussian}[spec.law]
        for era in range(start // _ERA, -(-stop // _ERA)):
            sequences = self._sequences(f"{name}/{spec.law}", era, learners)
            low, high = max(start, era * _ERA), min(stop, (era + 1) * _ERA)
            _fill(fill, sequences, low - era * _ERA, out[:, low - start : high - start])
        return out.reshape(learners, stop - start, *spec.shape)

    def _sequences(self, name: str, era: int, learners: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Origin and odd stride of every learner's sequence."""
        digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        words = np.array([self.seed, digest, era], np.uint64).view(np.uint32)
        states = np.random.SeedSequence(words.tolist()).generate_state(2 * learners, np.uint64).astype(np.uint64)
        origins, strides = states.reshape(learners, 2).T
        strides = strides | np.uint64(1)
        # Strides with few changes from bit to bit make a weak sequence; SplitMix64 flips every other bit of those.
        weak = np.bitwise_count(strides ^ (strides >> np.uint64(1))) < 24
        return origins, np.where(weak, strides ^ np.uint64(0xAAAAAAAAAAAAAAAA), strides)


def _fill(
    fill: Callable[[NDArray[np.uint32], NDArray[np.float32]], None],
    sequences: tuple[NDArray[np.uint64], NDArray[np.uint64]],
    start: int,
    out: NDArray[np.float32],
) -> None:
    """Fill `out` (learner, exchange, value) from the exchange `start` of an era on, block by block."""
    learners, exchanges, size = out.shape
    pairs = -(-size // 2)  # words per draw: a word gives two values
    rows = max(1, _BLOCK_WORDS // max(1, pairs * exchanges))
    span = max(1, _BLOCK_WORDS // max(1, pairs * rows))
    for i in range(0, learners, rows):
        origins, strides = (each[i : i + rows] for each in sequences)
        for low in range(0, exchanges, span):
            block = out[i : i + rows, low : low + span]
            words = _splitmix(origins, strides, (start + low) * pairs, block.shape[1] * pairs)
            fill(words.reshape(*block.shape[:2], 2 * pairs), block)


def _splitmix(origins: NDArray[np.uint64], strides: NDArray[np.uint64], start: int, count: int) -> NDArray[np.uint32]:
    """Words start, ..., start+count-1 of every sequence, as pairs of 32-bit words: axes (sequence, word)."""
    counters = np.uint64(start) + np.arange(1, count + 1, dtype=np.uint64)
    z = counters * strides[:, None]
    z += origins[:, None]
    shifted = z >> np.uint64(30)
    z ^= shifted
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= np.right_shift(z, np.uint64(27), out=shifted)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= np.right_shift(z, np.uint64(31), out=shifted)
    return z.view(np.uint32)


# Numpy's own samplers reject, one value at a time. These transform whole arrays with vectorised logarithms and cosines,
# 2 to 3 times faster. Uniforms have 31 or 32 bits: tails end at 22 (Laplace) and 6.8 (Gaussian).


def _fill_laplace(words: NDArray[np.uint32], out: NDArray[np.float32]) -> None:
    """By inversion: the logarithm of a uniform number is minus an exponential one; the last bit is the sign."""
    words = words[..., : out.shape[-1]]
    np.copyto(out, words >> np.uint32(1), casting="unsafe")
    out += np.float32(0.5)
    out *= np.float32(2**-31)
    np.log(out, out=out)
    out.view(np.uint32)[...] ^= words << np.uint32(31)


def _fill_gaussian(words: NDArray[np.uint32], out: NDArray[np.float32]) -> None:
    """By Box and Muller: a radius from one word and an angle from another give two values."""
    half = words.shape[-1] // 2
    radius, angle = words[..., :half].astype(np.float32), words[..., half:].astype(np.float32)
    radius += np.float32(0.5)
    radius *= np.float32(2**-32)
    np.log(radius, out=radius)
    radius *= np.float32(-2)
    np.sqrt(radius, out=radius)
    angle *= np.float32(2 * np.pi * 2**-32)
    np.multiply(radius, np.cos(angle), out=out[..., :half])
    rest = out.shape[-1] - half
    np.multiply(radius[..., :rest], np.sin(angle[..., :rest]), out=out[..., half:])


def _aligned(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """An array that starts at a multiple of 64 bytes: JAX can use it on the CPU without copying it."""
    size = 4 * int(np.prod(shape, dtype=np.int64))
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(np.float32).reshape(shape)
