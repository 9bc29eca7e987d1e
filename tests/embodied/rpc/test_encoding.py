"""Trees survive the wire with their types; other bytes are refused, not believed."""

import contextlib

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from embodied.rpc import encoding, errors, protocol

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
DTYPES += ["c8", "c16", ">i4", ">f8"]

arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0))
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    arrays,
    hnp.from_dtype(np.dtype("f4"), allow_nan=False),
)
trees = st.recursive(
    leaves,
    lambda node: (
        st.lists(node, max_size=4)
        | st.lists(node, max_size=4).map(tuple)
        | st.dictionaries(st.text(), node, max_size=4)
    ),
    max_leaves=12,
)


def transfer(tree):
    payload, frames = encoding.encode(tree)
    return encoding.decode(payload, [f.tobytes() for f in frames])


def same(a, b):
    if isinstance(a, np.ndarray):
        assert isinstance(b, np.ndarray)
        assert (a.dtype.newbyteorder("="), a.shape) == (b.dtype, b.shape)
        return a.astype(b.dtype).tobytes() == b.tobytes()
    assert type(a) is type(b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


@given(trees)
@settings(max_examples=500, deadline=None)
def test_round_trip(tree):
    assert same(tree, transfer(tree))


def test_large_arrays_are_frames_and_views():
    image = np.arange(64 * 64 * 3, dtype=np.uint8).reshape(64, 64, 3)
    payload, frames = encoding.encode({"image": image, "reward": np.float32(1)})
    assert len(payload) < 100
    assert np.shares_memory(frames[0], image)
    data = frames[0].tobytes()
    decoded = encoding.decode(payload, [data])["image"]
    assert np.shares_memory(decoded, np.frombuffer(data, np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        decoded[0] = 1


def test_strided_arrays():
    array = np.arange(4000).reshape(40, 100)
    for view in (array.T, array[::3], array[:, ::-1], np.asfortranarray(array)):
        np.testing.assert_array_equal(transfer(view), view)


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        ({"a": [1, object()]}, "object at '/a/1'"),
        ({"a": {"b": 2**64}}, "int at '/a/b'"),
        ({"a": np.array(["x"])}, "ndarray of <U1 at '/a'"),
        ({"a": np.array([None])}, "ndarray of object at '/a'"),
        ([np.longdouble(1)], "longdouble of float128 at '/0'"),
        ([{1, 2}], "set at '/0'"),
        (["\ud800"], "str at '/0'"),
    ],
)
def test_what_cannot_be_sent_is_named(tree, place):
    with pytest.raises(errors.EncodeError, match=place):
        encoding.encode(tree)


def test_no_more_frames_than_allowed():
    tree = [np.zeros(2000, np.uint8)] * (encoding.MAX_FRAMES + 1)
    with pytest.raises(errors.EncodeError, match="stack them"):
        encoding.encode(tree)


def test_no_more_besides_arrays_than_allowed():
    with pytest.raises(errors.EncodeError, match="as arrays"):
        encoding.encode(bytes(encoding.MAX_HEADER))


def nested(depth, make):
    tree = 1
    for _ in range(depth):
        tree = make(tree)
    return tree


@pytest.mark.parametrize("depth", [encoding.MAX_DEPTH + 1, 400])
def test_depth_is_bounded(depth):
    for make in (lambda tree: [tree], lambda tree: {"a": tree}):
        with pytest.raises(errors.DecodeError):
            encoding.decode(msgpack.packb(nested(depth, make)))
    data = msgpack.packb([1])
    for _ in range(depth):
        data = msgpack.packb([msgpack.ExtType(4, data)])
    with pytest.raises(errors.DecodeError):
        encoding.decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgpack.packb(1) * 2,
        msgpack.packb(msgpack.Timestamp(1, 2)),
        msgpack.packb(msgpack.ExtType(9, b"")),
        msgpack.packb(msgpack.ExtType(2, b"")),
        msgpack.packb(msgpack.ExtType(2, b"\xff" * 40)),
        # One byte, which claims to be an array of 2 ** 60 elements.
        msgpack.packb(msgpack.ExtType(2, b"\x05\1" + bytes(13) + b"\x10" + b"x")),
        msgpack.packb(msgpack.ExtType(1, b"\x05\0" + bytes(6))),  # No such frame.
        b"\xdd\xff\xff\xff\xff",  # A list of four billion items.
        b"\x81\x91\x01\x01",  # A list as key.
    ],
)
def test_malformed(data):
    with pytest.raises(errors.DecodeError):
        encoding.decode(data)


def test_frames_must_match():
    payload, frames = encoding.encode([np.zeros(5000)])
    data = frames[0].tobytes()
    for wrong in ([], [data, data], [data[:-1]], [data + b"x"], [b""]):
        with pytest.raises(errors.DecodeError):
            encoding.decode(payload, wrong)


@given(st.binary(max_size=300), st.lists(st.binary(max_size=50), max_size=3))
@settings(max_examples=5_000, deadline=None)
def test_fuzz_decode(data, frames):
    with contextlib.suppress(errors.DecodeError):
        encoding.decode(data, frames)


@given(trees, st.data())
@settings(max_examples=2_500, deadline=None)
def test_fuzz_mutated(tree, data):
    payload, frames = encoding.encode(tree)
    corrupt = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 4))):
        corrupt[data.draw(st.integers(0, len(corrupt) - 1))] = data.draw(
            st.integers(0, 255)
        )
    with contextlib.suppress(errors.DecodeError):
        encoding.decode(bytes(corrupt), [f.tobytes() for f in frames])


@given(st.binary(max_size=80) | st.binary(max_size=60).map(lambda b: b"dr\2" + b))
@settings(max_examples=2_500, deadline=None)
def test_fuzz_header(data):
    with contextlib.suppress(errors.DecodeError):
        protocol.parse(data)


def test_header_round_trip():
    frames = protocol.pack(protocol.REQUEST, 7, b"add", b"payload")
    header = protocol.parse(frames[0])
    assert header[:-1] == (protocol.REQUEST, 0, 7, b"add")
    assert bytes(header.payload) == b"payload"


def test_other_version_is_named():
    data = bytearray(protocol.pack(protocol.REPLY, 1)[0])
    data[2] = 77
    with pytest.raises(errors.DecodeError, match="version 77"):
        protocol.parse(bytes(data))
