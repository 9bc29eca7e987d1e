"""What a chunk file looks like: schema of the steps, header, and column offsets."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from embodied.core import formats
from embodied.replay.mapping import PAGE

MAGIC = b"DRMCHUNK"
VERSION = 1
_PREFIX = struct.Struct("<8sII")  # Magic, CRC-32 of the header, length of the header.

# Columns of every chunk besides the large keys of the steps.
ORDER = "#order"  # Position in the order of insertion, from 1; 0 means not there yet.
PRIORITY = "#priority"  # Set by `update`; NaN until then.
RECORDS = "#records"  # All small keys together.

_PLAIN = ("number", "nonce", "worker", "start", "size", "nbytes")
ALIGN = 64
RAW, ZLIB = "raw", "zlib"  # How the bytes of a column are stored.


class ChunkError(Exception):
    """A file is not a whole chunk of a version that we read."""


@dataclasses.dataclass(frozen=True)
class Field:
    """Name, dtype and per-step shape of one key."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]

    @functools.cached_property
    def nbytes(self) -> int:
        """Bytes per step."""
        return self.dtype.itemsize * math.prod(self.shape)


Schema = tuple[Field, ...]  # In the order of the names.


def make_schema(step: Mapping[str, np.ndarray]) -> Schema:
    """The schema of a step whose values are arrays already."""
    return tuple(
        Field(key, value.dtype, value.shape) for key, value in sorted(step.items())
    )


def describe(schema: Schema) -> dict[str, str]:
    """The schema for people, as in `{'image': 'uint8[64,64,3]'}`."""
    return {x.name: f"{x.dtype.name}[{','.join(map(str, x.shape))}]" for x in schema}


class Records:
    """The small keys of a step side by side in one record, to be copied at once.

    Large keys have a block of their own each. Copying a sequence costs one call per
    block, and for a dozen scalars the calls would take longer than the bytes.
    """

    SMALL = 256  # Bytes per step below which a key joins the record.

    def __init__(self, schema: Schema):
        self.schema = schema
        self.large = tuple(x for x in schema if x.nbytes >= self.SMALL)
        self.small = tuple(x for x in schema if x.nbytes < self.SMALL)
        self.offsets: dict[str, int] = {}
        offset = 0
        for field in self.small:
            offset = align(offset, max(1, field.dtype.alignment))
            self.offsets[field.name] = offset
            offset += field.nbytes
        self.nbytes = align(offset, 8)
        self.dtype = np.dtype(
            {
                "names": [x.name for x in self.small],
                "formats": [(x.dtype, x.shape) for x in self.small],
                "offsets": [self.offsets[x.name] for x in self.small],
                "itemsize": self.nbytes,
            }
        )

    def encode(self, batch: Mapping[str, np.ndarray], count: int) -> np.ndarray:
        """Records [count, nbytes] of the small keys of a batch of steps."""
        records = np.zeros(count, self.dtype)
        for field in self.small:
            records[field.name] = batch[field.name]
        return records.view(np.uint8).reshape(count, self.nbytes)

    def column(self, records: np.ndarray, field: Field) -> np.ndarray:
        """The view of one key in records [..., nbytes]."""
        offset = self.offsets[field.name]
        part = records[..., offset : offset + field.nbytes]
        return part.view(field.dtype).reshape((*records.shape[:-1], *field.shape))


def as_rows(block: Any) -> Any:
    """Rows [size] without structure instead of [size, ...].

    NumPy releases the interpreter lock when it copies more than 500 elements, which
    costs far more than copying a single step. A row is one element. Compressed blocks
    are read-only and are returned unchanged.
    """
    if not isinstance(block, np.ndarray):
        return block
    size, nbytes = len(block), block.nbytes // max(1, len(block))
    return np.ndarray((size,), f"V{nbytes}", np.ascontiguousarray(block))


@dataclasses.dataclass(frozen=True)
class Column:
    """Where a block of the file lies: a large key, or the record of all small ones."""

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
    schema: Schema
    columns: tuple[Column, ...]
    nbytes: int  # Size of the file.
    joined: bool = (
        True  # Whether windows may come from the chunk before, if it is full.
    )

    @functools.cached_property
    def packable(self) -> Schema:
        """The keys worth compressing: images and other large integer ones.

        Floats, and with them the latents that `update` rewrites, barely shrink.
        """
        large = Records(self.schema).large
        return tuple(field for field in large if field.dtype.kind in "uib")

    def encode(self) -> bytes:
        """The first bytes of the file."""
        data: dict[str, Any] = {"version": VERSION}
        data |= {key: getattr(self, key) for key in (*_PLAIN, "joined")}
        data["schema"] = [_describe(x) for x in self.schema]
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
    schema: Schema,
    joined: bool,
) -> Header:
    """The header of a chunk file that steps are written into."""
    records = Records(schema)
    fields = (
        Field(ORDER, np.dtype(np.int64), ()),
        Field(PRIORITY, np.dtype(np.float32), ()),
        Field(RECORDS, np.dtype(np.uint8), (records.nbytes,)),
        *records.large,
    )
    columns = [Column(field, 0, field.nbytes * size) for field in fields]
    header = Header(number, nonce, worker, start, size, schema, (), 0, joined)
    return arrange(header, columns)


def arrange(header: Header, columns: Iterable[Column]) -> Header:
    """The header with these columns one after the other; their offsets are ignored."""
    columns = tuple(columns)
    offset = _header_room(columns, header.schema)
    placed = []
    for column in columns:
        offset = align(offset, _alignment(column.nbytes))
        placed.append(dataclasses.replace(column, offset=offset))
        offset += column.nbytes
    total = align(offset, PAGE)
    return dataclasses.replace(header, columns=tuple(placed), nbytes=total)


def decode(data: bytes, what: object = "a chunk") -> Header:
    """The header at the beginning of a file; raises if a newer release wrote it."""
    if len(data) < _PREFIX.size:
        raise ChunkError("shorter than a header")
    magic, crc, length = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise ChunkError("not a chunk file")
    text = data[_PREFIX.size : _PREFIX.size + length]
    if len(text) < length or zlib.crc32(text) != crc:
        raise ChunkError("broken header")
    return _from_json(json.loads(text), what)


def header_length(data: bytes) -> int:
    """How many bytes `decode` needs, given the first sixteen or more."""
    if len(data) < _PREFIX.size:
        raise ChunkError("shorter than a header")
    return _PREFIX.size + int(_PREFIX.unpack_from(data)[2])


def _from_json(data: dict[str, Any], what: object) -> Header:
    version = formats.check(what, data["version"], VERSION)
    if version != VERSION:
        raise ChunkError(f"has format {version}, this version reads {VERSION}")
    columns = []
    for name, dtype, shape, offset, nbytes, codec in data["columns"]:
        field = Field(name, _dtype(dtype), tuple(shape))
        columns.append(Column(field, offset, nbytes, codec))
    schema = tuple(Field(x, _dtype(y), tuple(z)) for x, y, z in data["schema"])
    plain = {key: int(data[key]) for key in _PLAIN}
    joined = bool(data.get("joined", True))  # Files of early versions do not say.
    return Header(**plain, schema=schema, columns=tuple(columns), joined=joined)


def _describe(field: Field) -> tuple[str, str, tuple[int, ...]]:
    return field.name, field.dtype.name, field.shape


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # Registers bfloat16 and its kin with numpy.

        return np.dtype(getattr(ml_dtypes, name))


def _header_room(columns: tuple[Column, ...], schema: Schema) -> int:
    """An upper bound of the encoded header, in whole pages."""
    fields = [*(x.field for x in columns), *schema]
    names = sum(128 + 2 * len(json.dumps(x.name)) + 8 * len(x.shape) for x in fields)
    return align(_PREFIX.size + 512 + names, PAGE)


def _alignment(nbytes: int) -> int:
    """The larger a column, the better it is aligned, for at most 3 % of its size.

    The kernel makes and maps pages in groups that start at multiples of their size;
    this doubles the rate of inserts.
    """
    for alignment in (1 << 18, 1 << 17, 1 << 16, PAGE):
        if nbytes >= 32 * alignment:
            return alignment
    return ALIGN


def align(offset: int, to: int) -> int:
    """The next multiple of `to`."""
    return -(-offset // to) * to
