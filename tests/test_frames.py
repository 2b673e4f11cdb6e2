"""Frames: what goes in comes out, in one encoding only, and no bytes of a stranger do more than raise a FrameError."""

from __future__ import annotations

import time

import hypothesis.extra.numpy as hnp
import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from gossamer.errors import ConfigurationError, NetworkError
from gossamer.net.wire.frames import LARGEST, REASONS, VERSION, Format, Frame, FrameError, Leaf
from tests.networks import padded

NETWORK, CONFIG = bytes(range(16)), bytes(range(100, 132))
FIRST = (Leaf("<f4", (2, 3)), Leaf("<i4", ()))
LATER = (Leaf("<f8", (4,)),)
FORM = Format(NETWORK, CONFIG, learners=300, steps=3, first=FIRST, later=LATER)
X, N = np.arange(6, dtype=np.float32).reshape(2, 3), np.array(-7, np.int32)
LEAVES = [["<f4", [2, 3], X.tobytes()], ["<i4", [], N.tobytes()]]


FULL = padded([VERSION, NETWORK, CONFIG, 0, 5, 9, 0], LEAVES)


def changed(place, value):
    return msgpack.packb([*FULL[:place], value, *FULL[place + 1 :]])


def reason_of(data, sender=5, form=FORM):
    with pytest.raises(FrameError) as caught:
        form.decode(data, sender)
    assert caught.value.reason in REASONS
    assert isinstance(caught.value, NetworkError)
    return caught.value.reason


def same(one, other):
    assert one[:4] == other[:4]
    assert len(one.values) == len(other.values)
    for a, b in zip(one.values, other.values, strict=True):
        assert a.dtype == b.dtype
        assert_array_equal(a, b, strict=True)


# Round trips


def test_the_encoding_is_the_one_that_the_module_describes():
    data = FORM.encode(Frame("message", 5, 9, 0, (X, N)))
    assert data == msgpack.packb(FULL)
    same(FORM.decode(data, 5), Frame("message", 5, 9, 0, (X, N)))


def finite(leaf):
    kind = np.dtype(leaf.dtype)
    elements = None if kind.kind == "i" else {"min_value": -(2.0**100), "max_value": 2.0**100}
    return hnp.arrays(kind, leaf.shape, elements=elements)


@st.composite
def frames(draw):
    kind = draw(st.sampled_from(["message", "void", "want", "seen"]))
    sender = draw(st.integers(0, 299))
    if kind == "seen" and draw(st.booleans()):
        return Frame("seen", sender, -1, 0)
    exchange, step = draw(st.integers(0, 2**62 - 1)), draw(st.integers(0, 2))
    leaves = () if kind != "message" else LATER if step else FIRST
    return Frame(kind, sender, exchange, step, tuple(draw(finite(leaf)) for leaf in leaves))


@settings(max_examples=300, deadline=None)
@given(frames())
def test_round_trip(frame):
    data = FORM.encode(frame)
    back = FORM.decode(data, frame.sender)
    same(back, frame)
    assert FORM.encode(back) == data
    assert len(data) <= FORM.limit
    for value in back.values:
        assert not value.flags.writeable
        assert value.flags.aligned


def test_arrays_of_any_layout_are_sent():
    turned = np.arange(6, dtype=np.float32).reshape(3, 2).T
    same(FORM.decode(FORM.encode(Frame("message", 5, 9, 0, (turned, N))), 5), Frame("message", 5, 9, 0, (turned, N)))
    big = turned.astype(">f4")
    assert_array_equal(FORM.decode(FORM.encode(Frame("message", 5, 9, 0, (big, N))), 5).values[0], turned)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 16_383, 16_384, 70_000])
def test_every_length_that_msgpack_writes_in_another_way(size):
    form = Format(NETWORK, CONFIG, 2, 1, (Leaf("<f4", (size,)),), ())
    value = np.full(size, 0.5, np.float32)
    data = form.encode(Frame("message", 1, 0, 0, (value,)))
    assert data == msgpack.packb(padded([VERSION, NETWORK, CONFIG, 0, 1, 0, 0], [["<f4", [size], value.tobytes()]]))
    assert_array_equal(form.decode(data, 1).values[0], value, strict=True)


def test_a_large_frame_is_checked_in_less_time_than_it_takes_to_send():
    """100,000 numbers: some 0.05 ms on a slow core; the bound leaves room for a busy machine."""
    form = Format(NETWORK, CONFIG, 2, 1, (Leaf("<f4", (100_000,)),), ())
    data = form.encode(Frame("message", 1, 0, 0, (np.ones(100_000, np.float32),)))
    times = []
    for _ in range(50):
        start = time.perf_counter()
        form.decode(data, 1)
        times.append(time.perf_counter() - start)
    assert min(times) < 2e-4


# One test for every reason


def test_size():
    assert reason_of(bytes(FORM.limit + 1)) == "size"
    assert reason_of(bytes(FORM.limit)) == "malformed"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x99",
        b"\xc1",
        msgpack.packb(FULL)[:-1],
        msgpack.packb(FULL) + b"\x00",
        msgpack.packb([VERSION, NETWORK]),
        msgpack.packb([*FULL, 0]),
        msgpack.packb({"kind": 0}),
        msgpack.packb(None),
        changed(0, True),
        changed(0, 1.0),
        changed(3, False),
        changed(4, 5.0),
        changed(5, "9"),
        changed(6, None),
        changed(5, {}),
        changed(5, {1: 2}),
        changed(5, []),
        changed(5, msgpack.Timestamp(0, 0)),
        changed(5, msgpack.ExtType(1, b"")),
        changed(1, "x" * 40),
        changed(8, None),
        changed(8, {}),
        changed(8, [["<f4", [2, 3], "text"]]),
        changed(8, [msgpack.ExtType(1, b"abcd")]),
        changed(8, [[]]),
    ],
)
def test_malformed(data):
    assert reason_of(data) == "malformed"


@pytest.mark.parametrize(
    ("short", "longer"),
    [
        (b"\x99\x02", b"\xdc\x00\x09\x02"),
        (b"\x99\x02", b"\x99\xcc\x02"),
        (b"\xc4\x10", b"\xc5\x00\x10"),
        (b"\x00\x05\x09", b"\x00\x05\xd0\x09"),
        (b"\x00\x05\x09", b"\x00\xd1\x00\x05\x09"),
        (b"\x92\x93", b"\xdc\x00\x02\x93"),
        (b"\xa3<f4", b"\xd9\x03<f4"),
        (b"\xc4\x18", b"\xc6\x00\x00\x00\x18"),
    ],
)
def test_other_encodings_of_the_same_frame_are_malformed(short, longer):
    data = msgpack.packb(FULL)
    other = data.replace(short, longer, 1)
    assert other != data
    assert msgpack.unpackb(other) == FULL
    assert reason_of(other) == "malformed"


def test_version():
    assert reason_of(changed(0, 1)) == "version"
    assert reason_of(msgpack.packb([3, "another", "structure"])) == "version"


def test_network():
    assert reason_of(changed(1, bytes(16))) == "network"


def test_configuration():
    assert reason_of(changed(2, bytes(32))) == "configuration"


def test_sender():
    assert reason_of(msgpack.packb(FULL), sender=6) == "sender"
    assert reason_of(changed(4, 300), sender=300) == "sender"
    assert reason_of(changed(4, -1), sender=-1) == "sender"


@pytest.mark.parametrize("kind", [-1, 4, 2**40])
def test_kind(kind):
    assert reason_of(changed(3, kind)) == "kind"


@pytest.mark.parametrize(
    ("kind", "exchange", "step"),
    [
        *[(0, -1, 0), (0, 2**62, 0), (0, 2**64 - 1, 0), (0, 0, 3), (0, 0, -1)],
        *[(1, -1, 0), (2, -1, 0), (3, -1, 1), (3, -2, 0), (3, 0, 3)],
    ],
)
def test_position(kind, exchange, step):
    assert reason_of(msgpack.packb([*FULL[:3], kind, 5, exchange, step, b"", []])) == "position"


@pytest.mark.parametrize(
    "leaves",
    [
        [],
        LEAVES[:1],
        [*LEAVES, LEAVES[1]],
        [["<f8", [2, 3], X.tobytes()], LEAVES[1]],
        [["<f4", [3, 2], X.tobytes()], LEAVES[1]],
        [["<f4", [6], X.tobytes()], LEAVES[1]],
        [["<f4", [2, 3], X.tobytes()[:-1]], LEAVES[1]],
        [["|O", [2, 3], X.tobytes()], LEAVES[1]],
        [["<f4", [2, -3], X.tobytes()], LEAVES[1]],
    ],
)
def test_shape(leaves):
    assert reason_of(changed(8, leaves)) == "shape"


def test_frames_without_values_have_none():
    for kind in (1, 2, 3):
        assert reason_of(msgpack.packb([*FULL[:3], kind, 5, 9, 0, b"", LEAVES])) == "shape"


def test_the_leaves_of_another_step_are_refused():
    later = padded([*FULL[:6], 1], [["<f8", [4], bytes(32)]])
    same(FORM.decode(msgpack.packb(later), 5), Frame("message", 5, 9, 1, (np.zeros(4),)))
    assert reason_of(msgpack.packb([*later[:8], LEAVES])) == "shape"


@pytest.mark.parametrize("padding", [FULL[7] + b"\0", FULL[7][:-1], b"\1" * len(FULL[7]), bytes(8), 0, None, ""])
def test_any_other_padding_is_malformed(padding):
    assert reason_of(changed(7, padding)) == "malformed"


@pytest.mark.parametrize("exchange", [0, 127, 128, 255, 256, 2**16, 2**32, 2**61])
def test_the_first_array_is_read_where_it_lies(exchange):
    data = FORM.encode(Frame("message", 5, exchange, 1, (np.arange(4.0),)))
    (value,) = FORM.decode(data, 5).values
    start = np.frombuffer(data, np.uint8).ctypes.data
    assert start < value.ctypes.data < start + len(data)
    assert value.ctypes.data % 8 == start % 8


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**101, -(2.0**101)])
@pytest.mark.parametrize("place", [0, 5])
def test_range(bad, place):
    value = X.copy()
    value.flat[place] = bad
    leaves = [["<f4", [2, 3], value.tobytes()], LEAVES[1]]
    assert reason_of(changed(8, leaves)) == "range"
    with pytest.raises(FrameError, match="range"):
        FORM.encode(Frame("message", 5, 9, 0, (value, N)))


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_number_passes_and_the_next_one_does_not(sign):
    value = np.full((2, 3), sign * LARGEST, np.float32)
    same(FORM.decode(FORM.encode(Frame("message", 5, 9, 0, (value, N))), 5), Frame("message", 5, 9, 0, (value, N)))
    beyond = np.nextafter(value, np.float32(sign * np.inf))
    assert reason_of(changed(8, [["<f4", [2, 3], beyond.tobytes()], LEAVES[1]])) == "range"


def test_messages_of_errors_repeat_no_value():
    marked = np.array([123456.789] * 5 + [np.nan], np.float32).reshape(2, 3)
    with pytest.raises(FrameError) as caught:
        FORM.encode(Frame("message", 5, 9, 0, (marked, N)))
    assert "12345" not in str(caught.value)


# Frames that our own side must not send, and formats that make no sense


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (Frame("shout", 5, 9, 0), "kind"),
        (Frame("want", 300, 9, 0), "sender"),
        (Frame("want", 5, -1, 0), "position"),
        (Frame("want", 5, True, 0), "malformed"),
        (Frame("want", 5, 9, 0, (X,)), "shape"),
        (Frame("message", 5, 9, 0, (X,)), "shape"),
        (Frame("message", 5, 9, 0, (X.astype(np.float64), N)), "shape"),
        (Frame("message", 5, 9, 0, (X.T, N)), "shape"),
    ],
)
def test_encode_refuses_what_decode_would(frame, reason):
    with pytest.raises(FrameError) as caught:
        FORM.encode(frame)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"network": b"short"}, "network"),
        ({"config": "x" * 32}, "config"),
        ({"learners": 0}, "learners"),
        ({"steps": 0}, "steps"),
        ({"first": (Leaf("|O", (2,)),)}, "dtype"),
        ({"later": (Leaf("<f4", (-1,)),)}, "shape"),
        ({"later": (Leaf("<f8", (2**30,)),)}, "shape"),
    ],
)
def test_formats_that_make_no_sense(change, field):
    good = {"network": NETWORK, "config": CONFIG, "learners": 2, "steps": 1, "first": FIRST, "later": LATER}
    with pytest.raises(ConfigurationError) as caught:
        Format(**good | change)
    assert caught.value.field == field


# Bytes of a stranger


def random_bytes(rng):
    return rng.bytes(int(rng.integers(0, FORM.limit + 20)))


def flipped(rng):
    data = bytearray(some_frame(rng))
    for _ in range(int(rng.integers(1, 4))):
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    return bytes(data)


def cut(rng):
    data = some_frame(rng)
    return data[: int(rng.integers(len(data)))]


def grown(rng):
    data = some_frame(rng)
    place = int(rng.integers(len(data) + 1))
    return data[:place] + rng.bytes(int(rng.integers(1, 12))) + data[place:]


def confused(rng):
    odd = [None, True, 1.5, -1, 2**63, "text", b"bytes", [], [[]], {}, {"a": 1}, msgpack.Timestamp(1, 2)]
    odd += [msgpack.ExtType(5, b"x"), float("nan"), [LEAVES[0]] * 5, 0, 1, 2, 3]
    return changed(int(rng.integers(9)), odd[int(rng.integers(len(odd)))])


LONG = [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"]
LONG += [b"\xc9\xff\xff\xff\xff\x01", b"\xdc\xff\xff", b"\xc5\xff\xff", b"\xcf" + b"\xff" * 8, b"\xc1"]


def declared(rng):
    """A type with a huge length somewhere in a frame."""
    data = some_frame(rng)
    place = int(rng.integers(len(data)))
    return data[:place] + LONG[int(rng.integers(len(LONG)))] + data[place + int(rng.integers(6)) :]


def nested(rng):
    data, deep = some_frame(rng), int(rng.integers(1, 200))
    place = int(rng.integers(len(data)))
    opening = [b"\x91", b"\x81\xa1a", b"\xdc\x00\x01"][int(rng.integers(3))]
    return (data[:place] + opening * deep + data[place:])[: FORM.limit]


def some_frame(rng):
    step, kind = int(rng.integers(3)), int(rng.integers(4))
    if kind:
        return FORM.encode(Frame(("void", "want", "seen")[kind - 1], 5, int(rng.integers(2**40)), step))
    values = (rng.normal(size=4),) if step else (rng.normal(size=(2, 3)).astype(np.float32), N)
    return FORM.encode(Frame("message", 5, int(rng.integers(300)), step, values))


def test_100_000_fuzzed_frames_raise_a_frame_error_or_are_frames():
    """Seed fixed. What is accepted is encoded again, and must be the same bytes: nothing has two readings."""
    rng = np.random.default_rng(9)
    makers = (random_bytes, flipped, cut, grown, confused, declared, nested)
    accepted, reasons = 0, set()
    for number in range(100_000):
        data = makers[number % len(makers)](rng)
        try:
            frame = FORM.decode(data, 5)
        except FrameError as refused:
            reasons.add(refused.reason)
        else:
            accepted += 1
            assert FORM.encode(frame) == data
    assert reasons == set(REASONS)
    assert 0 < accepted < 15_000  # flipped bits of values make other values
