"""Arrays with notes in one file, as safetensors has them: a length, a JSON header and the raw numbers. Nothing runs.

The format is read by `safetensors` (Hugging Face) in several languages. What is read here is checked as strictly: the
header says of every byte to which array it belongs, and no byte is left over.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import DataError

_NOTES = "__metadata__"
_LENGTH = struct.Struct("<Q")
_LONGEST_HEADER = 2**26
_TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def to_bytes(tensors: Mapping[str, NDArray[Any]], notes: Mapping[str, str]) -> bytes:
    """Arrays of float32 or float64 and notes as one file.

    >>> from_bytes(to_bytes({"w": np.arange(3, dtype=np.float32)}, {"made by": "us"}))
    ({'w': array([0., 1., 2.], dtype=float32)}, {'made by': 'us'})
    """
    header: dict[str, Any] = {_NOTES: dict(notes)}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        kind = _NAMES[tensor.dtype.newbyteorder("<")]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, allow_nan=False).encode()
    text += b" " * (-len(text) % 8)  # numbers begin where a processor likes them to
    raw = (tensor.astype(tensor.dtype.newbyteorder("<"), copy=False).tobytes() for tensor in tensors.values())
    return b"".join((_LENGTH.pack(len(text)), text, *raw))


def from_bytes(data: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays and the notes of a file; refused where it was cut, or is none.

    >>> from_bytes(b"PK")
    Traceback (most recent call last):
        ...
    gossamer.errors.DataError: it ends after 2 bytes, within the length of its header: it was cut, or is no safetensors
    """
    if len(data) < _LENGTH.size:
        raise DataError(
            f"it ends after {len(data)} bytes, within the length of its header: it was cut, or is no safetensors"
        )
    (length,) = _LENGTH.unpack_from(data)
    if length > _LONGEST_HEADER:
        raise DataError(f"its header would have {length:,} bytes; allowed: {_LONGEST_HEADER:,}: it is no safetensors")
    begin = _LENGTH.size + length
    if begin > len(data):
        raise DataError(f"it ends after {len(data):,} bytes, and its header needs {begin:,}: it was cut")
    header = _header(data[_LENGTH.size : begin])
    notes = header.pop(_NOTES, {})
    if not isinstance(notes, dict) or not all(isinstance(note, str) for note in notes.values()):
        raise DataError("its notes are no texts by name")
    places = {name: _place(name, entry) for name, entry in header.items()}
    _require_whole(places, len(data) - begin)
    return {name: _tensor(data, begin, place) for name, place in places.items()}, notes


_Place = tuple[np.dtype[Any], tuple[int, ...], int, int]


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        raise DataError("its header cannot be read: it was changed, or is no safetensors") from None
    if not isinstance(header, dict):
        raise DataError("its header is no table")
    return header


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that is there twice: readers differ in which one they take."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key twice")
    return table


def _place(name: str, entry: Any) -> _Place:
    """The type and shape of an array, and where its bytes begin and end."""
    try:
        dtype, shape, (begin, end) = _TYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise DataError(f"its header says of {name!r} no type (F32, F64), shape and place") from None
    if not all(type(one) is int and one >= 0 for one in (*shape, begin, end)):
        raise DataError(f"its header says of {name!r} a shape or place that is no count")
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise DataError(f"its header says of {name!r} a place of {end - begin:,} bytes, which is not that of its shape")
    return dtype, shape, begin, end


def _require_whole(places: Mapping[str, _Place], size: int) -> None:
    """Refuse bytes that belong to no array, or to two."""
    at = 0
    for _, _, begin, end in sorted(places.values(), key=lambda place: place[2:]):
        if begin != at:
            raise DataError("its header leaves bytes out, or gives them to two arrays: it was changed")
        at = end
    if at != size:
        what = "it was cut" if size < at else "something was added"
        raise DataError(f"it has {size:,} bytes of numbers, and its header says {at:,}: {what}")


def _tensor(data: bytes, start: int, place: _Place) -> NDArray[Any]:
    dtype, shape, begin, _ = place
    flat = np.frombuffer(data, dtype, math.prod(shape), start + begin)
    try:
        return flat.reshape(shape).astype(dtype.newbyteorder("="))
    except ValueError:  # 0 x 2^70
        raise DataError(f"an array has the shape {shape}: it was changed") from None
