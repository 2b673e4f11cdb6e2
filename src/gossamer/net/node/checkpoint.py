"""States of learners as bytes: numbers, lists, dictionaries and arrays, and nothing that could run."""

from __future__ import annotations

from typing import Any

import numpy as np

_ARRAY = 1


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
