"""What a chunk file looks like: schema of the steps, header, and column offsets."""

from __future__ import annotations

import dataclasses
import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from embodied.core.mapping import PAGE

MAGIC = b"DRMCHUNK"
VERSION = 1
_PREFIX = struct.Struct("<8sII")  # Magic, CRC-32 of the header, length of the header.

# Columns of every chunk besides the keys of the steps.
ORDER = "#order"  # Position in the order of insertion, from 1; 0 means not there yet.
PRIORITY = "#priority"  # Set by `update`; NaN until then.

RAW, ZLIB = "raw", "zlib"  # How the bytes of a column are stored.


class ChunkError(Exception):
    """A file is not a whole chunk of a version that we read."""


@dataclasses.dataclass(frozen=True)
class Field:
    """Name, dtype and per-step shape of one key."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes per step."""
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


Schema = tuple[Field, ...]  # In the order of the names.


def make_schema(step: Mapping[str, np.ndarray]) -> Schema:
    """The schema of a step whose values are arrays already."""
    return tuple(
        Field(key, value.dtype, value.shape) for key, value in sorted(step.items())
    )


def describe(schema: Schema) -> dict[str, str]:
    """The schema for people, as in `{'image': 'uint8[64,64,3]'}`."""
    return {x.name: f"{x.dtype.name}[{','.join(map(str, x.shape))}]" for x in schema}


def internal_fields() -> Schema:
    """The columns that every chunk holds besides those of the schema."""
    return (
        Field(ORDER, np.dtype(np.int64), ()),
        Field(PRIORITY, np.dtype(np.float32), ()),
    )


@dataclasses.dataclass(frozen=True)
class Column:
    """Where a column lives in the file."""

    field: Field
    offset: int
    nbytes: int
    codec: str = RAW


@dataclasses.dataclass(frozen=True)
class Header:
    """Everything about a chunk that is known when its file is made."""

    number: int  # Counts the chunks of a replay; also the name of the file.
    nonce: int  # Random 31 bits; tells apart chunks that happen to share a number.
    worker: int  # Whose stream this is a part of.
    start: int  # Sequence number of the first step.
    size: int  # Number of steps there is room for.
    columns: tuple[Column, ...]
    nbytes: int  # Size of the file.

    @property
    def schema(self) -> Schema:
        """The fields of the steps, without the internal columns."""
        return tuple(x.field for x in self.columns if not x.field.name.startswith("#"))

    def encode(self) -> bytes:
        """The first bytes of the file."""
        data = dataclasses.asdict(self)
        data["version"] = VERSION
        data["columns"] = [
            [*_describe(x.field), x.offset, x.nbytes, x.codec] for x in self.columns
        ]
        text = json.dumps(data).encode()
        return _PREFIX.pack(MAGIC, zlib.crc32(text), len(text)) + text


def plan(
    number: int,
    nonce: int,
    worker: int,
    start: int,
    size: int,
    columns: Iterable[tuple[Field, int, str]],
) -> Header:
    """Place columns, given as (field, bytes, codec), one after the other."""
    columns = tuple(columns)
    offset = _header_room(columns)
    placed = []
    for field, nbytes, codec in columns:
        placed.append(Column(field, offset, nbytes, codec))
        # Whole pages for large columns, so that no page mixes two of them.
        offset = _align(offset + nbytes, PAGE if nbytes >= PAGE else 64)
    total = _align(offset, PAGE)
    return Header(number, nonce, worker, start, size, tuple(placed), total)


def plan_raw(
    number: int, nonce: int, worker: int, start: int, size: int, schema: Schema
) -> Header:
    """The header of a chunk file that steps are written into."""
    fields = internal_fields() + schema
    columns = [(field, field.nbytes * size, RAW) for field in fields]
    return plan(number, nonce, worker, start, size, columns)


def decode(data: bytes) -> Header:
    """The header at the beginning of a file."""
    if len(data) < _PREFIX.size:
        raise ChunkError("shorter than a header")
    magic, crc, length = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise ChunkError("not a chunk file")
    text = data[_PREFIX.size : _PREFIX.size + length]
    if len(text) < length or zlib.crc32(text) != crc:
        raise ChunkError("broken header")
    return _from_json(json.loads(text))


def header_length(data: bytes) -> int:
    """How many bytes `decode` needs, given the first sixteen or more."""
    if len(data) < _PREFIX.size:
        raise ChunkError("shorter than a header")
    return _PREFIX.size + int(_PREFIX.unpack_from(data)[2])


def _from_json(data: dict[str, Any]) -> Header:
    if data.pop("version") != VERSION:
        raise ChunkError("written by another version")
    columns = []
    for name, dtype, shape, offset, nbytes, codec in data.pop("columns"):
        field = Field(name, _dtype(dtype), tuple(shape))
        columns.append(Column(field, offset, nbytes, codec))
    return Header(**data, columns=tuple(columns))


def _describe(field: Field) -> tuple[str, str, tuple[int, ...]]:
    return field.name, field.dtype.name, field.shape


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # Registers bfloat16 and its kin with numpy.

        return np.dtype(getattr(ml_dtypes, name))


def _header_room(columns: tuple[tuple[Field, int, str], ...]) -> int:
    """An upper bound of the encoded header, in whole pages."""
    names = sum(len(json.dumps(x[0].name)) + 8 * len(x[0].shape) for x in columns)
    return _align(_PREFIX.size + 512 + 128 * len(columns) + names, PAGE)


def _align(offset: int, to: int) -> int:
    return -(-offset // to) * to
