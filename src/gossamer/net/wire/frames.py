"""What learners send each other: versioned msgpack frames of fixed dtypes and shapes.

A frame is the array [version, network, configuration, kind, sender, exchange, step, padding, leaves], and a leaf is
[dtype, shape, bytes]. Padding (zeros, seven at most) has the bytes of the first leaf begin at a multiple of eight: they
are read where they lie.

Everything but the header's numbers and the leaves' bytes is known before a frame arrives, so it is compared and not
interpreted: there is one encoding of every frame, and any other is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError, NetworkError

VERSION = 2
"""Of the encoding; frames of other versions are refused."""

Kind = Literal["message", "void", "want", "seen"]
"""A learner's message; word that it has none; a request to send one again; the last one held, in answer."""

Reason = Literal[
    "size", "malformed", "version", "network", "configuration", "sender", "kind", "position", "shape", "range"
]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""Why a frame can be refused."""

DTYPES = ("<f4", "<f8", "<i4")
"""Types of leaves."""

LARGEST = 2.0**100
"""Absolute value of any number of a message."""

_KINDS: tuple[Kind, ...] = get_args(Kind)
_FIELDS = 9
_ALIGNED = 8
_LONGEST_HEAD = 1 + 1 + (2 + 16) + (2 + 32) + 1 + 9 + 9 + 9 + (2 + _ALIGNED - 1)
_EXCHANGES = 2**62


class Leaf(NamedTuple):
    """The type and shape of one array of a message.

    >>> Leaf("<f4", (2, 3)).size
    24
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Position(NamedTuple):
    """An exchange, and a gossip step of it."""

    exchange: int
    step: int


NEVER = Position(-1, 0)
"""Before the first exchange."""


class Frame(NamedTuple):
    """What one learner says to another about one gossip step of one exchange.

    "seen" may have exchange -1 and step 0: nothing was seen yet. Only "message" has values.
    """

    kind: Kind
    sender: int
    exchange: int
    step: int
    values: tuple[np.ndarray, ...] = ()

    @property
    def position(self) -> Position:
        """What it is about."""
        return Position(self.exchange, self.step)


class FrameError(NetworkError):
    """A frame that is refused: says why, never what is in it.

    Attributes:
        reason: one of REASONS, for counters.

    >>> raise FrameError("version", "this is version 3; version 2 is understood")
    Traceback (most recent call last):
        ...
    gossamer.net.wire.frames.FrameError: frame refused (version): this is version 3; version 2 is understood
    """

    def __init__(self, reason: Reason, what: str) -> None:
        self.reason: Reason = reason
        super().__init__(f"frame refused ({reason}): {what}")


@dataclass(frozen=True)
class Format:
    """What the frames of one network look like.

    Attributes:
        network: 16 bytes, the same for all its learners.
        config: 32 bytes, the digest of the configuration that all must share.
        learners: how many there are.
        steps: gossip steps of an exchange.
        first: the leaves of messages of step 0.
        later: the leaves of messages of steps 1, 2, ...

    >>> form = Format(bytes(16), bytes(32), learners=3, steps=1, first=(Leaf("<f4", (2,)),), later=())
    >>> data = form.encode(Frame("message", 2, 0, 0, (np.ones(2, np.float32),)))
    >>> form.decode(data, sender=2).values
    (array([1., 1.], dtype=float32),)
    >>> form.decode(data, sender=1)
    Traceback (most recent call last):
        ...
    gossamer.net.wire.frames.FrameError: frame refused (sender): learner 1 sent it, and it names another one
    """

    network: bytes
    config: bytes
    learners: int
    steps: int
    first: tuple[Leaf, ...]
    later: tuple[Leaf, ...]

    def __post_init__(self) -> None:
        for name, length in (("network", 16), ("config", 32)):
            given = getattr(self, name)
            if not isinstance(given, bytes) or len(given) != length:
                raise ConfigurationError(name, type(given).__name__, f"{length} bytes")
        check_count("learners", self.learners, most=2**31)
        check_count("steps", self.steps, most=2**31)
        for leaf in (*self.first, *self.later):
            _check_leaf(leaf)

    @cached_property
    def limit(self) -> int:
        """The largest frame, in bytes."""
        return _LONGEST_HEAD + max(tail.size for tail in self._tails)

    @cached_property
    def _tails(self) -> tuple[_Tail, _Tail, _Tail]:
        """What follows the header: of the first message, of later ones, of frames without values."""
        return _Tail(self.first), _Tail(self.later), _Tail(())

    def encode(self, frame: Frame) -> bytes:
        """The bytes of a frame; refused where `decode` would refuse them."""
        if frame.kind not in _KINDS:
            raise FrameError("kind", f"allowed are {', '.join(_KINDS)}")
        sender, exchange, step = (_as_int(number) for number in frame[1:4])
        if not 0 <= sender < self.learners:
            raise FrameError("sender", f"learners have the numbers 0 to {self.learners - 1}")
        self._check_position(frame.kind, exchange, step)
        tail = self._tail(frame.kind, step)
        if len(frame.values) != len(tail.leaves):
            raise FrameError("shape", f"{len(frame.values)} arrays were given, and it has {len(tail.leaves)}")
        parts: list[Any] = [self._head(frame.kind, sender, exchange, step), tail.opening]
        for number, value in enumerate(frame.values):
            parts += [tail.prefixes[number], self._raw(value, tail.leaves[number], number)]
        return b"".join(parts)

    def decode(self, data: bytes, sender: int) -> Frame:
        """The frame in these bytes; any others raise a FrameError, and nothing else.

        Args:
            data: as it arrived.
            sender: who sent it, as the transport authenticated it.

        Returns:
            Its values are read-only.
        """
        if len(data) > self.limit:
            raise FrameError("size", f"{len(data):,} bytes; at most {self.limit:,} are allowed")
        kind, exchange, step, end = self._read_head(data, sender)
        tail = self._tail(kind, step)
        if not tail.fits(data, end):
            raise tail.fault(data, end)
        values, view = [], memoryview(data)
        place = end + len(tail.opening)
        for number, (leaf, prefix, size) in enumerate(zip(tail.leaves, tail.prefixes, tail.sizes, strict=True)):
            place += len(prefix)
            value = np.frombuffer(view[place : place + size], leaf.dtype).reshape(leaf.shape)
            if not value.flags.aligned:  # numbers that do not lie on their boundaries are slow to read
                value = np.frombuffer(data[place : place + size], leaf.dtype).reshape(leaf.shape)
            _check_range(value, number)
            values.append(value)
            place += size
        return Frame(kind, sender, exchange, step, tuple(values))

    def _tail(self, kind: Kind, step: int) -> _Tail:
        if kind != "message":
            return self._tails[2]
        return self._tails[1 if step else 0]

    def _head(self, kind: Kind, sender: int, exchange: int, step: int) -> bytes:
        import msgpack

        fields = (self.network, self.config, _KINDS.index(kind), sender, exchange, step)
        pack = msgpack.Packer(use_bin_type=True, autoreset=False)
        pack.pack_array_header(_FIELDS)
        for field in (VERSION, *fields):
            pack.pack(field)
        tail = self._tail(kind, step)
        lead = len(pack.bytes()) + 2 + tail.lead  # two bytes open the padding
        pack.pack(bytes(-lead % _ALIGNED if tail.leaves else 0))
        return bytes(pack.bytes())

    def _read_head(self, data: bytes, sender: int) -> tuple[Kind, int, int, int]:
        """Kind, exchange, step, and where the header ends."""
        fields, end = _unpack_head(data[:_LONGEST_HEAD])
        if fields[0] != self.network:
            raise FrameError("network", "it belongs to another network")
        if fields[1] != self.config:
            raise FrameError("configuration", "its sender runs with another configuration")
        number, named, exchange, step = (_as_int(field) for field in fields[2:6])
        if named != sender or not 0 <= sender < self.learners:
            raise FrameError("sender", f"learner {sender} sent it, and it names another one")
        if not 0 <= number < len(_KINDS):
            raise FrameError("kind", f"allowed are the numbers 0 to {len(_KINDS) - 1}")
        kind = _KINDS[number]
        self._check_position(kind, exchange, step)
        if data[:end] != self._head(kind, sender, exchange, step):
            raise FrameError("malformed", "its header is not in the shortest encoding")
        return kind, exchange, step, end

    def _check_position(self, kind: Kind, exchange: int, step: int) -> None:
        nothing_seen = kind == "seen" and (exchange, step) == (-1, 0)
        if not nothing_seen and not (0 <= exchange < _EXCHANGES and 0 <= step < self.steps):
            raise FrameError("position", f"exchanges are 0 to 2^62 - 1, and their steps 0 to {self.steps - 1}")

    def _raw(self, value: np.ndarray, leaf: Leaf, number: int) -> memoryview:
        if value.dtype.newbyteorder("<").str != leaf.dtype or value.shape != leaf.shape:
            raise FrameError("shape", f"array {number} is {value.dtype} {value.shape}; it must be {tuple(leaf)}")
        _check_range(value, number)
        return np.ascontiguousarray(value, leaf.dtype).reshape(-1).view(np.uint8).data


class _Tail:
    """The part of a frame that holds its values: a known text with gaps for their bytes."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        import msgpack

        self.leaves = leaves
        self.opening: bytes = msgpack.Packer().pack_array_header(len(leaves))
        self.prefixes = [b"\x93" + msgpack.packb([*leaf])[1:] + _opening_of_bytes(leaf.size) for leaf in leaves]
        self.sizes = [leaf.size for leaf in leaves]
        self.lead = len(self.opening) + len(self.prefixes[0]) if leaves else 0
        self.size = len(self.opening) + sum(map(len, self.prefixes)) + sum(self.sizes)

    def fits(self, data: bytes, place: int) -> bool:
        """Whether data has the known text from a place to its end."""
        if len(data) != place + self.size or not data.startswith(self.opening, place):
            return False
        place += len(self.opening)
        for prefix, size in zip(self.prefixes, self.sizes, strict=True):
            if not data.startswith(prefix, place):
                return False
            place += len(prefix) + size
        return True

    def fault(self, data: bytes, place: int) -> FrameError:
        """Why it does not fit: other arrays, or no arrays at all."""
        found = _unpack_tail(data[place:])
        if found is not None and found != [(*leaf, leaf.size) for leaf in self.leaves]:
            return FrameError("shape", f"its arrays are not the {len(self.leaves)} that belong to its kind and step")
        return FrameError("malformed", "its arrays are not in the one encoding that is allowed")


def _check_range(value: np.ndarray, number: int) -> None:
    # A NaN makes both of them NaN, which is in no range.
    if value.size and not (float(value.min()) >= -LARGEST and float(value.max()) <= LARGEST):
        raise FrameError("range", f"array {number} has a number that is not finite or above {LARGEST:g}")


def _check_leaf(leaf: Leaf) -> None:
    if leaf.dtype not in DTYPES:
        raise ConfigurationError("dtype", leaf.dtype, " or ".join(DTYPES))
    for length in leaf.shape:
        check_count("shape", length, least=0, most=2**31)
    if leaf.size >= 2**32:
        raise ConfigurationError("shape", leaf.shape, "less than 4 GiB in one array")


def _as_int(number: Any) -> int:
    if type(number) is not int:  # True is an int too, and equals 1
        raise FrameError("malformed", "a number of its header is not a whole number")
    return number


def _opening_of_bytes(size: int) -> bytes:
    """What msgpack writes before so many bytes; its Packer only writes it with the bytes themselves."""
    if size < 2**8:
        return b"\xc4" + size.to_bytes(1, "big")
    if size < 2**16:
        return b"\xc5" + size.to_bytes(2, "big")
    return b"\xc6" + size.to_bytes(4, "big")


def _unpack_head(data: bytes) -> tuple[list[Any], int]:
    """The fields after the version, and where they end; `data` is not much longer than they are."""
    import msgpack

    longest = 32
    unpacker = msgpack.Unpacker(
        max_buffer_size=_LONGEST_HEAD,
        max_str_len=longest,
        max_bin_len=longest,
        max_array_len=_FIELDS,
        max_map_len=0,
        max_ext_len=0,
    )
    try:
        unpacker.feed(data)
        fields = unpacker.read_array_header()
        version = _as_int(unpacker.unpack())
        if version != VERSION:
            raise FrameError("version", f"version {VERSION} is understood here; update the older side")
        if fields == _FIELDS:
            return [unpacker.unpack() for _ in range(_FIELDS - 2)], unpacker.tell()
    except FrameError:
        raise
    except Exception:  # whatever msgpack makes of a stranger's bytes
        raise FrameError("malformed", "its header is not msgpack") from None
    raise FrameError("malformed", f"a frame has {_FIELDS} fields")


def _unpack_tail(data: bytes) -> list[tuple[str, tuple[int, ...], int]] | None:
    """Type, shape and size of every array; None where they cannot be read."""
    import msgpack

    try:
        arrays = msgpack.unpackb(data, max_str_len=8, max_array_len=1024, max_map_len=0, max_ext_len=0)
        found = [(str(dtype), tuple(shape), len(memoryview(raw))) for dtype, shape, raw in arrays]
    except Exception:  # as above
        return None
    return found if isinstance(arrays, list) else None
