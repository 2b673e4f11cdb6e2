"""What a node keeps to go on after a crash, as bytes: numbers, texts, lists and arrays, and nothing that could run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gossamer.net.data.sources import Mark

_ARRAY = 1
_WORDS = ("step", "heard", "mark", "seen", "state", "gossip", "arrays")  # on disk: no name of the code is written


class Checkpoint(NamedTuple):
    """All that a restart needs beside the messages that the ledger holds.

    Attributes:
        step: the gossip step at which it was made.
        heard: whether the exchange was finished.
        mark: where the source of samples is.
        seen: of every neighbour, exchange and step of the last message that came.
        state: of the learner, as `Participant.stored` gives it.
        gossip: what kind of gossip it is, as `LocalGossip.word` says.
        arrays: of that gossip.

    >>> made = Checkpoint(0, False, {"items": 3}, {1: (2, 0)}, [None, 0], "plain", [])
    >>> Checkpoint.from_bytes(made.to_bytes()).mark
    {'items': 3}
    """

    step: int
    heard: bool
    mark: Mark
    seen: Mapping[int, Sequence[int]]
    state: list[Any]
    gossip: str
    arrays: list[Any]

    def to_bytes(self) -> bytes:
        """As bytes; `from_bytes` reads them back."""
        return pack(dict(zip(_WORDS, self, strict=True)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """The checkpoint that `to_bytes` wrote."""
        facts = unpack(data)
        return cls(*(facts[word] for word in _WORDS))


def pack(value: Any) -> bytes:
    """The value as bytes.

    >>> unpack(pack({"x": [np.arange(3), 1.5]}))
    {'x': [array([0, 1, 2]), 1.5]}
    """
    import msgpack

    packed: bytes = msgpack.packb(value, default=_pack_array)
    return packed


def unpack(data: bytes) -> Any:
    """The value of which `pack` made these bytes."""
    import msgpack

    return msgpack.unpackb(data, ext_hook=_unpack_array, strict_map_key=False)


def _pack_array(array: Any) -> Any:
    import msgpack

    plain = np.asarray(array)
    return msgpack.ExtType(_ARRAY, msgpack.packb([plain.dtype.str, plain.shape, plain.tobytes()]))


def _unpack_array(_: int, data: bytes) -> np.ndarray:
    import msgpack

    dtype, shape, values = msgpack.unpackb(data)
    return np.frombuffer(values, dtype).reshape(shape)
