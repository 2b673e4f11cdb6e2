"""ChaCha20 keystreams in which every exchange has its own place."""

from __future__ import annotations

import hashlib
import struct
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import ConfigurationError, PrivacyError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

BLOCK_WORDS = 8
"""64-bit words in a block of ChaCha20."""

_PERSON = b"gossamer noise 1"  # another use of the same key, or another version of this one, gets other subkeys
_COUNTERS = 2**32  # the first 32 bits of the nonce count blocks and must not overflow: beyond them begins a new era


def check_key(key: object, advice: str) -> None:
    """Refuse what is not a key of 32 bytes; the error never shows it.

    >>> check_key(b"short", "make one with secrets.token_bytes(32)")
    Traceback (most recent call last):
    gossamer.errors.PrivacyError: key: got bytes of length 5; allowed: exactly 32 secret bytes. Make one with ...
    """
    if not isinstance(key, bytes) or len(key) != 32:
        size = f" of length {len(key)}" if isinstance(key, (bytes, bytearray, str)) else ""
        hint = f"{advice[0].upper()}{advice[1:]}."
        raise PrivacyError(f"key: got {type(key).__name__}{size}; allowed: exactly 32 secret bytes. {hint}")


def subkey(key: bytes, *fields: bytes | str) -> bytes:
    """A key for one purpose: keyed BLAKE2b over the fields, each after its length, so that no two lists are alike.

    >>> subkey(bytes(32), "ab", "c") == subkey(bytes(32), "a", "bc")
    False
    """
    parts = [part.encode() if isinstance(part, str) else part for part in fields]
    encoded = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return hashlib.blake2b(encoded, key=key, digest_size=32, person=_PERSON).digest()


@dataclass(frozen=True)
class Keystream:
    """The words of one learner's draws: exchange e has `blocks` blocks to itself, at a place that only e decides.

    The 16 bytes that `cryptography` calls the nonce are a 32-bit block counter, which must not overflow, and 96 bits of
    nonce (RFC 8439). The latter hold `part` (32 bits) and the era (64 bits): 2^32 // blocks exchanges make an era.
    """

    key: bytes = field(repr=False)
    blocks: int

    @property
    def era(self) -> int:
        """Exchanges per era: those of one era lie one behind the other."""
        return _COUNTERS // self.blocks

    def fill(self, out: NDArray[np.uint64], exchange: int, *, skip: int = 0, part: int = 0) -> None:
        """Fill an array with the words at the place of an exchange, and of those that follow in its era.

        Args:
            out: contiguous, whole blocks.
            exchange: where to begin.
            skip: blocks left out at the beginning.
            part: 0, or the number of a further stream of the same exchanges.
        """
        era, place = divmod(exchange, self.era)
        counter = place * self.blocks + skip
        assert counter + out.size // BLOCK_WORDS <= _COUNTERS
        nonce = struct.pack("<IIQ", counter, part, era)
        _chacha20(self.key, nonce).update_into(_zeros(out.nbytes), out.reshape(-1).view(np.uint8).data)
        if sys.byteorder == "big":
            out.byteswap(inplace=True)


@lru_cache(maxsize=4)
def _zeros(size: int) -> bytes:
    return bytes(size)


def _chacha20(key: bytes, nonce: bytes) -> CipherContext:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    except ImportError:
        hint = "pip install cryptography"
        raise ConfigurationError("noise", "no cryptography", "an installed cryptography", hint) from None
    return Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor()
