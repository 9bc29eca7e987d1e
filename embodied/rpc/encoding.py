"""Trees of arrays and plain values to bytes and back: msgpack and raw array frames.

A tree is made of dict, list, tuple, None, bool, int, float, str, bytes, numpy arrays
and numpy scalars, and comes back with the same types. Small arrays are part of the
msgpack payload; each larger one is a frame of its own, in the order in which the
payload mentions them, which is neither copied nor parsed. Nothing is ever unpickled.

Decoding is strict. Whatever the bytes are, it gives a tree or a `DecodeError`, and uses
no more memory than a small multiple of what was received. Decoded arrays are read-only
views of the received memory.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack
import numpy as np

from embodied.rpc import errors

Buffer = Any  # bytes, memoryview, zmq.Frame or a contiguous array.

INLINE_BYTES = 1024  # Larger arrays get a frame of their own.
MAX_DEPTH = 32
MAX_DIMS = 16
MAX_FRAMES = 4096  # Array frames of one message.
# Bytes of a header with its payload, which take up several times as much when decoded.
MAX_HEADER = 1 << 25

# Codes of the msgpack extension types.
_FRAME, _INLINE, _SCALAR, _TUPLE = 1, 2, 3, 4
# The position of a dtype is its code on the wire.
_NAMES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
_DTYPES = [np.dtype(np.bool_)] + [np.dtype("<" + name) for name in _NAMES]
_DTYPE_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_CONTAINERS = (dict, list, tuple)
_CACHE_LIMIT = 4096  # Distinct array kinds to remember; a peer may invent many.


class Kind(NamedTuple):
    """What the descriptor in front of an array says."""

    dtype: np.dtype
    shape: tuple[int, ...]
    nbytes: int


_EXT = msgpack.ExtType
_ext = tuple.__new__  # What `ExtType(...)` does after checks that cost more than it.

_descriptors: dict[tuple[np.dtype, tuple[int, ...]], bytes] = {}
_kinds: dict[bytes, Kind] = {}


def encode(tree: Any) -> tuple[bytes, list[Buffer]]:
    """The payload and the array frames of a tree.

    Frames refer to the memory of the arrays; do not change these while they are sent.
    """
    encoder = _Encoder()
    try:
        payload = encoder.pack(tree)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise errors.EncodeError(explain(tree) or str(error)) from None
    if len(encoder.frames) > MAX_FRAMES:
        raise errors.EncodeError(
            f"{len(encoder.frames)} large arrays in one message, the limit is "
            f"{MAX_FRAMES}: stack them"
        )
    if len(payload) > MAX_HEADER - 1024:
        raise errors.EncodeError(
            f"{len(payload)} bytes besides arrays in one message, the limit is "
            f"{MAX_HEADER - 1024}: send large data as arrays"
        )
    return payload, encoder.frames


def decode(payload: Buffer, frames: Sequence[Buffer] = ()) -> Any:
    """The tree of a payload and its frames; `DecodeError` if there is none."""
    try:
        decoder = _Decoder(frames)
        tree = decoder.unpack(payload)
        check_depth(tree, MAX_DEPTH)
    except Exception as error:  # Untrusted bytes may cause any error.
        raise errors.DecodeError(f"malformed message: {error}") from None
    if decoder.used != len(frames):
        raise errors.DecodeError(
            f"malformed message: {len(frames)} array frames, {decoder.used} used"
        )
    return tree


def size(frames: Sequence[Buffer]) -> int:
    """Bytes in frames."""
    total = 0
    for frame in frames:
        total += len(frame) if type(frame) is bytes else memoryview(frame).nbytes
    return total


class _Encoder:
    """Packs one tree; collects the arrays that become frames."""

    def __init__(self) -> None:
        self.frames: list[Buffer] = []

    def pack(self, tree: Any) -> bytes:
        # Strict, so that tuples and numpy scalars are not taken for lists and floats.
        packer = msgpack.Packer(
            default=self._extend, strict_types=True, buf_size=INLINE_BYTES
        )
        return packer.pack(tree)

    def _extend(self, node: Any) -> msgpack.ExtType:
        if isinstance(node, np.ndarray):
            return self._array(node)
        if type(node) is tuple:
            return _ext(_EXT, (_TUPLE, self.pack(list(node))))
        if isinstance(node, np.generic):
            data = _descriptors.get((node.dtype, ())) or _describe(_normal(node))
            return _ext(_EXT, (_SCALAR, data + node.tobytes()))
        raise TypeError

    def _array(self, array: np.ndarray) -> msgpack.ExtType:
        found = _descriptors.get((array.dtype, array.shape))
        if found is None or not array.flags.c_contiguous:
            array = _normal(array)
            found = _describe(array)
        if array.nbytes <= INLINE_BYTES:
            return _ext(_EXT, (_INLINE, found + array.tobytes()))
        self.frames.append(array)
        return _ext(_EXT, (_FRAME, found))


class _Decoder:
    """Unpacks one message; hands its frames to the arrays that refer to them."""

    def __init__(self, frames: Sequence[Buffer]):
        self.used = 0
        self._frames = frames
        self._depth = 0

    def unpack(self, payload: Buffer) -> Any:
        return msgpack.unpackb(payload, ext_hook=self._extend, strict_map_key=False)

    def _extend(self, code: int, data: bytes) -> Any:
        if code in (_INLINE, _SCALAR):
            kind, offset = _parse(data)
            if len(data) - offset != kind.nbytes:
                raise ValueError(f"{len(data) - offset} bytes for an array {kind}")
            array = np.ndarray(kind.shape, kind.dtype, data, offset)
            return array if code == _INLINE else array[()]
        if code == _FRAME:
            return self._array(data)
        if code == _TUPLE:
            return self._tuple(data)
        raise ValueError(f"unknown extension type {code}")

    def _array(self, data: bytes) -> np.ndarray:
        kind, offset = _parse(data)
        if offset != len(data):
            raise ValueError("bytes after an array descriptor")
        frame = self._frames[self.used]
        self.used += 1
        if len(frame) != kind.nbytes:
            raise ValueError(f"a frame of {len(frame)} bytes for an array {kind}")
        array = np.ndarray(kind.shape, kind.dtype, frame)
        array.flags.writeable = False
        return array

    def _tuple(self, data: bytes) -> tuple:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} nested tuples")
        items = self.unpack(data)
        self._depth -= 1
        if type(items) is not list:
            raise ValueError("a tuple that is not a list of items")
        return tuple(items)


def _normal(value: np.ndarray | np.generic) -> np.ndarray:
    """The array contiguous, in little-endian order, of a dtype that has a code."""
    array = np.asarray(value)
    if array.dtype not in _DTYPE_CODES:
        if array.dtype.kind not in "biufc":
            raise TypeError
        array = array.astype(array.dtype.newbyteorder("<"))
        if array.dtype not in _DTYPE_CODES:
            raise TypeError
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return array


def _describe(array: np.ndarray) -> bytes:
    """Dtype code, number of dimensions, padding to 8 bytes, dimensions."""
    key = (array.dtype, array.shape)
    found = _descriptors.get(key)
    if found is None:
        if array.ndim > MAX_DIMS:
            raise ValueError(f"more than {MAX_DIMS} dimensions")
        code = _DTYPE_CODES[array.dtype]
        found = struct.pack(f"<BB6x{array.ndim}Q", code, array.ndim, *array.shape)
        if len(_descriptors) < _CACHE_LIMIT:
            _descriptors[key] = found
    return found


def _parse(data: bytes) -> tuple[Kind, int]:
    """What the descriptor at the front of `data` says, and its length."""
    length = 8 + 8 * data[1]
    descriptor = data[:length]
    kind = _kinds.get(descriptor)
    if kind is None:
        code, dims = data[0], data[1]
        if code >= len(_DTYPES) or dims > MAX_DIMS or any(data[2:8]):
            raise ValueError(f"unknown array kind {data[:8]!r}")
        shape = struct.unpack(f"<{dims}Q", descriptor[8:])
        kind = Kind(_DTYPES[code], shape, math.prod(shape) * _DTYPES[code].itemsize)
        if len(_kinds) < _CACHE_LIMIT:
            _kinds[descriptor] = kind
    return kind, length


def check_depth(node: Any, left: int) -> None:
    """Raise if containers are nested too deep or there is a foreign type."""
    if left == 0:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    values = node.values() if type(node) is dict else node
    if type(node) not in _CONTAINERS:
        values = (node,)
    for value in values:
        if type(value) in _CONTAINERS:
            check_depth(value, left - 1)
        elif type(value) is msgpack.Timestamp:
            raise ValueError("a timestamp")


def explain(node: Any, path: str = "") -> str:
    """Where and why a tree cannot be sent, or nothing if it can."""
    if path.count("/") > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} at '{path[:80]}'"
    if type(node) in _CONTAINERS:
        items = node.items() if type(node) is dict else enumerate(node)
        found = (explain(value, f"{path}/{key}") for key, value in items)
        return next((text for text in found if text), "")
    try:
        _Encoder().pack(node)
    except (TypeError, ValueError, OverflowError) as error:
        dtype = f" of {node.dtype}" if hasattr(node, "dtype") else ""
        reason = f": {error}" if str(error) else ""
        return f"cannot send {type(node).__name__}{dtype} at '{path or '/'}'{reason}"
    return ""
