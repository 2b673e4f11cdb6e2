"""Secure noise: ChaCha20 streams from a secret key, exact on a lattice (docs/secure-noise.md)."""

import math
import secrets
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from gossamer.checks import check_count
from gossamer.errors import PrivacyError
from gossamer.privacy.keystream import check_key, subkey
from gossamer.privacy.lattice_draws import Draws, draw_error, multiples, pieces
from gossamer.privacy.lattice_sampler import LARGEST
from gossamer.privacy.noise import NoiseSpec, Scale
from gossamer.spec import kind

_MOST_BEYOND = 2.0**-40  # per value: the mass of the law beyond the largest multiple


@kind("noise", "secure")
@dataclass(frozen=True)
class SecureNoise:
    """Noise for real data: a function of (key, run id, configuration, name, learner, exchange), exact on a lattice.

    Every value is a whole multiple of the spacing in its `Scale`: a draw of the law, times the scale, rounded to the
    lattice. Added to values rounded to the same lattice (`Calibrated.on_lattice`) it makes releases that are functions
    of the exact mechanism's, so the set of possible outputs does not depend on the data. `error` bounds what the
    sampler adds to delta.

    A draw is made again from the same arguments, bit by bit. Any other run id, configuration, name, law, shape, scale,
    learner or exchange gives an unrelated one. *Never* use one key and run id for two data sets: the difference of the
    two releases is then the difference of the data, without noise.

    Attributes:
        key: 32 secret bytes; they are not kept, only what is derived from them for this run.
        run_id: what this run is called; another one for every run.
        digest: of everything that says what is computed: `Algorithm.digest`.

    >>> key = SecureNoise.new_key()
    >>> noise = SecureNoise(key, run_id="2026-11-15/1", digest="9f86d081")
    >>> noise
    SecureNoise(run_id='2026-11-15/1', digest='9f86d081')
    >>> spec, scale = NoiseSpec("laplace", (3,), used_in="speak"), Scale(0.75, grid=2.0**-18)
    >>> values = noise.draw("message", spec, [scale] * 2, start=0, stop=1000)
    >>> values.shape, bool(np.all(values % scale.grid == 0)), bool(0.7 < np.abs(values).mean() < 0.8)
    ((2, 1000, 3), True, True)
    """

    key: InitVar[bytes]
    run_id: bytes | str
    digest: bytes | str
    _root: bytes = field(init=False, repr=False)

    def __post_init__(self, key: bytes) -> None:
        check_key(key, "make one with SecureNoise.new_key() and keep it as you keep the data")
        for name in ("run_id", "digest"):
            if not isinstance(getattr(self, name), (bytes, str)) or not getattr(self, name):
                raise PrivacyError.of(name, getattr(self, name), "bytes or text, not empty")
        object.__setattr__(self, "_root", subkey(key, self.run_id, self.digest))

    @property
    def fingerprint(self) -> str:
        """Tells whether two sources are of the same key, run and configuration; gives no draw away."""
        return subkey(self._root, "fingerprint").hex()[:32]

    @staticmethod
    def new_key() -> bytes:
        """32 bytes from the operating system's generator.

        >>> len(SecureNoise.new_key())
        32
        """
        return secrets.token_bytes(32)

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("a secure noise source holds a secret and is not pickled or copied: make it from its key.")

    def draw(self, name: str, spec: NoiseSpec, scales: Sequence[Scale], start: int, stop: int) -> NDArray[np.float32]:
        """Draws of exchanges `start` to `stop`, one scale per learner: axes (learner, exchange, *spec.shape)."""
        check_count("start", start, least=0)
        check_count("stop", stop, least=start, most=2**63)
        for scale in set(scales):
            self.error(spec, scale)  # refuses what is not on a lattice
        size = spec.size
        draws = [
            Draws.of(spec.law, size, _spacings(scale), self._key(name, spec, scale, learner))
            for learner, scale in enumerate(scales)
        ]
        out = np.empty((len(scales), stop - start, size), np.float32)
        for some, low, high in pieces(draws, start, stop):
            out[some, low - start : high - start] = multiples(draws[some], low, high)
        out *= np.array([scale.grid for scale in scales], np.float32)[:, None, None]
        return out.reshape(len(scales), stop - start, *spec.shape)

    def _key(self, name: str, spec: NoiseSpec, scale: Scale, learner: int) -> bytes:
        """The scale belongs to it: the same unit draw at two scales would let an observer solve for the value."""
        scales = (float(number).hex() for number in scale)
        return subkey(self._root, name, spec.law, repr(spec.shape), *scales, str(learner))

    @staticmethod
    def error(spec: NoiseSpec, scale: Scale) -> float:
        """An upper bound of the total variation distance between one draw, all its values, and its ideal law.

        For independent values it is their number times 2^-49 and the mass of the law beyond 2^24 spacings; 0 for the
        uniform law. `Guarantee.with_sampler_error` carries it. A scale without a lattice is refused.

        >>> SecureNoise.error(NoiseSpec("gaussian", (1000,), used_in="speak"), Scale(1.5, grid=2.0**-19)) < 2e-12
        True
        """
        reach = (LARGEST + 0.5) / _spacings(scale)
        size = spec.size
        error, beyond = draw_error(spec.law, size, reach)
        if beyond > size * _MOST_BEYOND:
            raise PrivacyError(
                f"lattice: {spec.law} noise in {size:,} dimensions, with a scale of {_spacings(scale):,.0f} spacings, "
                f"leaves the {LARGEST:,} multiples that float32 holds. Use a coarser lattice or Gaussian noise."
            )
        return error + beyond


def _spacings(scale: Scale) -> float:
    """How many spacings a scale is; refused unless it is a whole number of them."""
    if not scale.grid:
        raise PrivacyError.of(
            "scale",
            scale,
            "a scale on a lattice",
            "secure noise is exact on a lattice only: use Calibrated.on_lattice()",
        )
    if not (2.0**-126 <= scale.grid <= 2.0**100) or math.frexp(scale.grid)[0] != 0.5:
        raise PrivacyError.of("grid", scale.grid, "a power of two from 2^-126 to 2^100")
    if not (scale.grid <= scale.value < math.inf) or scale.value % scale.grid:
        raise PrivacyError.of("scale", scale, "a whole number of spacings, 1 or more", "use Calibrated.on_lattice()")
    return scale.value / scale.grid
