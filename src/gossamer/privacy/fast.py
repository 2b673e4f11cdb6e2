"""Fast noise for simulation: counter-based, vectorised, in float32."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count
from gossamer.privacy.compiled import Recipe, words_per_draw
from gossamer.privacy.mixture import INTERVALS, SPAN, sizes
from gossamer.privacy.noise import Law, NoiseSpec, Scale
from gossamer.spec import kind

# Words are made in blocks of about this many, so that the passes over a block stay in the processor's cache.
_BLOCK_WORDS = 2**15
# So many exchanges share a sequence: its 64-bit counter never overflows, and exchange numbers may go up to 2^63.
_ERA = 2**32


@kind("noise", "fast")
@dataclass(frozen=True)
class FastNoise:
    """Fast noise for simulation: a function of (seed, name, learner, exchange), whatever the chunking.

    Counter-based: every learner has its own SplitMix64 sequence (Steele, Lea and Flood 2014), and an exchange has its
    own place in it. It is not cryptographic, and floating-point noise leaks (docs/noise.md): guarantees of runs that
    use it read "as if run with secure noise".

    Attributes:
        seed: of all its draws.
        compiled: whether programs draw on their own from a `recipe`; None: exactly on accelerators. A CPU draws faster
            on the host, beside the program.

    >>> noise, spec = FastNoise(seed=7), NoiseSpec("laplace", (2,), used_in="speak")
    >>> whole = noise.draw("message", spec, [Scale(0.5)] * 3, start=0, stop=100)
    >>> part = noise.draw("message", spec, [Scale(0.5)], start=40, stop=41)
    >>> whole.shape, bool((whole[0, 40] == part[0, 0]).all())
    ((3, 100, 2), True)
    """

    seed: int
    compiled: bool | None = None

    def __post_init__(self) -> None:
        check_count("seed", self.seed, least=0, most=2**64 - 1)

    def draw(self, name: str, spec: NoiseSpec, scales: Sequence[Scale], start: int, stop: int) -> NDArray[np.float32]:
        """Draws of exchanges `start` to `stop`, one scale per learner: axes (learner, exchange, *spec.shape)."""
        learners = len(scales)
        values = np.array([scale.value for scale in scales], np.float32)
        out = _aligned((learners, stop - start, spec.size))
        for era in range(start // _ERA, -(-stop // _ERA)):
            sequences = self._sequences(f"{name}/{spec.law}", era, learners)
            low, high = max(start, era * _ERA), min(stop, (era + 1) * _ERA)
            _fill(spec.law, sequences, values, low - era * _ERA, out[:, low - start : high - start])
        return out.reshape(learners, stop - start, *spec.shape)

    @property
    def in_program(self) -> bool:
        """Whether programs draw on their own."""
        return jax.default_backend() != "cpu" if self.compiled is None else self.compiled

    def recipe(self, name: str, spec: NoiseSpec, scales: Sequence[Scale], start: int, stop: int) -> Recipe | None:
        """The same draws for a compiled program, which makes them by `draw_at`; None: use `draw`.

        That is so where the program runs on a CPU (unless `compiled` says otherwise), on which host draws are faster,
        and for the one chunk in 2^32 exchanges at whose middle a new sequence begins.

        >>> spec = NoiseSpec("laplace", (2,), used_in="speak")
        >>> FastNoise(seed=7, compiled=True).recipe("message", spec, [Scale(0.5)] * 3, start=0, stop=100).law
        'laplace'
        >>> FastNoise(seed=7, compiled=False).recipe("message", spec, [Scale(0.5)] * 3, start=0, stop=100) is None
        True
        """
        era = start // _ERA
        if not self.in_program or stop > (era + 1) * _ERA:
            return None
        sequences = self._sequences(f"{name}/{spec.law}", era, len(scales))
        return Recipe.of(spec, sequences, scales, start - era * _ERA)

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
    law: Law,
    sequences: tuple[NDArray[np.uint64], NDArray[np.uint64]],
    scales: NDArray[np.float32],
    start: int,
    out: NDArray[np.float32],
) -> None:
    """Fill `out` (learner, exchange, value) from the exchange `start` of an era on, block by block."""
    learners, exchanges, size = out.shape
    width = words_per_draw(law, size)
    rows = max(1, _BLOCK_WORDS // max(1, width * exchanges))
    span = max(1, _BLOCK_WORDS // max(1, width * rows))
    for i in range(0, learners, rows):
        origins, strides = (each[i : i + rows] for each in sequences)
        for low in range(0, exchanges, span):
            block = out[i : i + rows, low : low + span]
            words = _splitmix(origins, strides, (start + low) * width, block.shape[1] * width)
            _TRANSFORMS[law](words.reshape(*block.shape[:2], 2 * width), block)
            block *= scales[i : i + rows, None, None]


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
# 2 to 3 times faster. Uniforms have 31 or 32 bits, so tails end: docs/noise.md says where.


def _uniform(words: NDArray[np.uint32], out: NDArray[np.float32]) -> None:
    """The middle of one of 2^32 equal parts of (0, 1), rounded; the nearest to 1 would round to 1."""
    np.copyto(out, words[..., : out.shape[-1]], casting="unsafe")
    out += np.float32(0.5)
    out *= np.float32(2**-32)
    np.minimum(out, np.float32(1 - 2**-24), out=out)


def _laplace(words: NDArray[np.uint32], out: NDArray[np.float32]) -> None:
    """By inversion: the logarithm of a uniform number is minus an exponential one; the last bit is the sign."""
    words = words[..., : out.shape[-1]]
    np.copyto(out, (words >> np.uint32(1)).view(np.int32), casting="unsafe")
    out += np.float32(0.5)
    out *= np.float32(2**-31)
    np.log(out, out=out)
    bits = out.view(np.uint32)
    bits ^= words << np.uint32(31)


def _gaussian(words: NDArray[np.uint32], out: NDArray[np.float32]) -> None:
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


def _l2_laplace(words: NDArray[np.uint32], out: NDArray[np.float32]) -> None:
    """A Gaussian vector of random size (`mixture.py`), looked up at a Gaussian number from the last word."""
    table, place = sizes(out.shape[-1]), np.empty((*out.shape[:-1], 1), np.float32)
    _gaussian(words[..., -2:], place)
    place += np.float32(SPAN)
    place *= np.float32(INTERVALS / (2 * SPAN))
    entry = place.astype(np.int32)
    place -= entry
    low = table[entry]
    _gaussian(words[..., :-2], out)
    out *= low + (table[entry + 1] - low) * place


def _exponential(words: NDArray[np.uint32], out: NDArray[np.float32]) -> None:
    """By inversion: minus the logarithm of a uniform number."""
    _uniform(words, out)
    np.log(out, out=out)
    np.negative(out, out=out)


def _gumbel(words: NDArray[np.uint32], out: NDArray[np.float32]) -> None:
    """Minus the logarithm of an exponential number; small ones, which give the long tail, have all their digits."""
    _uniform(words, out)
    np.negative(out, out=out)
    np.log1p(out, out=out)
    np.negative(out, out=out)
    np.log(out, out=out)
    np.negative(out, out=out)


_TRANSFORMS: Mapping[Law, Callable[[NDArray[np.uint32], NDArray[np.float32]], None]] = {
    "laplace": _laplace,
    "gaussian": _gaussian,
    "l2-laplace": _l2_laplace,
    "exponential": _exponential,
    "gumbel": _gumbel,
    "uniform": _uniform,
}


def _aligned(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """An array that starts at a multiple of 64 bytes: JAX can use it on the CPU without copying it."""
    size = 4 * int(np.prod(shape, dtype=np.int64))
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(np.float32).reshape(shape)
