"""Fast noise for simulation: counter-based, vectorised, in float32."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count
from gossamer.privacy.compiled import Recipe, words_per_draw
from gossamer.privacy.mixture import INTERVALS, SPAN, sizes
from gossamer.privacy.noise import Law, NoiseSpec, Scale
from gossamer.privacy.words import Key, Place, Time, places, words
from gossamer.spec import kind

# Words are made in blocks of about this many, so that the passes over a block stay in the processor's cache.
_BLOCK_WORDS = 2**15
_BLOCK_PLACES = 2**14


@kind("noise", "fast")
@dataclass(frozen=True)
class FastNoise:
    """Fast noise for simulation: a function of (seed, name, learner, exchange), whatever the chunking.

    Counter-based: a hash of its place (`words.py`). It is not cryptographic, and floating-point noise leaks
    (docs/noise.md): guarantees of runs that use it read "as if run with secure noise".

    Attributes:
        seed: of all its draws.
        compiled: whether programs draw on their own from a `recipe`, or the host draws beside them; None: whichever is
            faster. On an accelerator programs draw, on a CPU they do where a draw of all learners is large.

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
        values = np.array([scale.value for scale in scales], np.float32)
        out = _aligned((len(scales), stop - start, spec.size))
        _fill(spec.law, self._key(name, spec), values, start, out)
        return out.reshape(len(scales), stop - start, *spec.shape)

    def recipe(self, name: str, spec: NoiseSpec, scales: Sequence[Scale]) -> Recipe:
        """The same draws for a compiled program, which makes them by `draws_from`.

        >>> spec = NoiseSpec("laplace", (2,), used_in="speak")
        >>> FastNoise(seed=7).recipe("message", spec, [Scale(0.5)] * 3).law
        'laplace'
        """
        return Recipe.of(self._key(name, spec), spec, scales)

    def _key(self, name: str, spec: NoiseSpec) -> Key:
        return Key.of(self.seed, f"{name}/{spec.law}")


def _fill(law: Law, key: Key, scales: NDArray[np.float32], start: int, out: NDArray[np.float32]) -> None:
    """Fill `out` (learner, exchange, value) from the exchange `start` on, block by block."""
    learners, exchanges, size = out.shape
    width = words_per_draw(law, size)
    flat = out.reshape(learners * exchanges, size)
    rows = max(1, _BLOCK_WORDS // max(1, width))
    for low in range(0, len(flat), _BLOCK_PLACES):
        learner, later = np.divmod(np.arange(low, min(low + _BLOCK_PLACES, len(flat))), exchanges)
        at = places(key, learner.astype(np.uint32), Time.of(start + later))
        for i in range(0, len(learner), rows):
            block = flat[low + i : low + min(i + rows, len(learner))]
            _TRANSFORMS[law](words(Place(at.u[i : i + rows], at.v[i : i + rows]), width), block)
            block *= scales[learner[i : i + rows], None]


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
