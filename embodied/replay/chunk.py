"""A chunk: consecutive steps of one worker, in one mapped file or in memory."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from embodied.core import files
from embodied.replay import layout, mapping
from embodied.replay.compression import CompressedColumn
from embodied.replay.layout import ORDER, PRIORITY, RAW, RECORDS, ChunkError, Header

# Steps whose file pages are allocated at once, ahead of the writes.
AHEAD = 64

Buffer = bytes | memoryview


class Chunk:
    """Columns of `size` steps, filled from the front.

    A step is stored in three calls: `place` reserves the row, `write` fills it and
    `commit` marks it as stored. The mark is one number in the mapped file, written
    last, so that after a crash a step is stored with all its keys or not at all.
    Readers see committed rows only. `lock` keeps `update` apart from readers and from
    the compressor; rows that are still being written need no lock.
    """

    def __init__(
        self, header: Header, buffer: np.ndarray, mapped: mapping.Mapping | None = None
    ):
        self.header = header
        self.number = header.number
        self.nonce = header.nonce
        self.size = header.size
        self.lock = threading.Lock()
        self.count = 0  # Steps stored.
        self.fill = 0  # Steps stored or being written.
        self.live = 0  # Items that start in this chunk.
        self.next: Chunk | None = None  # Continues the stream without a gap.
        self.prev: Chunk | None = None
        self.items: np.ndarray | None = None  # Item id by row, with priorities only.
        self.gone = False  # Deleted.
        self.rewritten = False  # A key that could be compressed was updated.
        self.pending = True  # Windows that start here may still be completed.
        self._path: Path | None = None  # While rows are written to a file.
        self._memory: mapping.Memory | None = None
        self.attach(header, buffer, mapped)

    def attach(
        self, header: Header, buffer: np.ndarray, mapped: mapping.Mapping | None
    ) -> None:
        """Use these bytes. To exchange them later, hold the lock."""
        columns = {x.field.name: _column(x, header, buffer) for x in header.columns}
        self.header, self.buffer, self.mapped = header, buffer, mapped
        self.order: np.ndarray = columns.pop(ORDER)
        self.priority: np.ndarray = columns.pop(PRIORITY)
        self.records: np.ndarray = columns.pop(RECORDS)
        self._large = list(columns.values())
        self._rows = [layout.as_rows(x) for x in (self.records, *self._large)]
        self.columns: dict[str, Any] = columns  # Every key, small ones as views.
        records = layout.Records(header.schema)
        for field in records.small:
            columns[field.name] = records.column(self.records, field)

    @property
    def end(self) -> int:
        """Sequence number after the last step."""
        return self.header.start + self.count

    @property
    def full(self) -> bool:
        """Whether there is no room left."""
        return self.fill == self.size

    @property
    def packed(self) -> bool:
        """Whether some columns are compressed."""
        return any(x.codec != RAW for x in self.header.columns)

    @property
    def last_order(self) -> int:
        """When the newest step was inserted, counted in steps; 0 if there is none."""
        return int(self.order[self.count - 1]) if self.count else 0

    def place(self) -> int:
        """Reserve the next row."""
        row = self.fill
        if row % AHEAD == 0:
            self._make_pages(row)
        self.fill += 1
        return row

    def write(self, row: int, step: tuple[np.ndarray, ...]) -> None:
        """Fill a row with a step as `StepEncoder.encode` makes it."""
        for block, value in zip(self._rows, step, strict=True):
            block[row] = value  # Copies its bytes, whatever its dtype.

    def commit(self, row: int, order: int) -> None:
        """Mark a row as stored."""
        self.order[row] = order
        self.count = row + 1

    def read(self, blocks: list[np.ndarray], index: tuple, lo: int, hi: int) -> None:
        """Copy rows to an index of other blocks: records as rows, then large keys."""
        with self.lock:
            blocks[0][index] = self._rows[0][lo:hi]
            for block, other in zip(self._large, blocks[1:], strict=True):
                other[index] = block[lo:hi]

    def prefetch(self, lo: int, hi: int) -> None:
        """Start reading rows from disk, unless they are compressed.

        Only these rows: the kernel's own read-ahead would read four times as much.
        """
        if self.mapped is None:
            return
        self.mapped.read_ahead(False)
        for column in self.header.columns:
            nbytes = column.field.nbytes
            internal = column.field.name in (ORDER, PRIORITY)
            if column.codec == RAW and not internal:
                start = column.offset + lo * nbytes
                self.mapped.prefetch(start, (hi - lo) * nbytes)

    def seal(self) -> None:
        """No more rows will be written."""
        if self._path is not None:
            self._path = None
            assert self.mapped is not None
            self.mapped.read_ahead(True)

    def unseal(self, path: Path) -> None:
        """Prepare the file for rows to be written."""
        self._path = path
        # Reading ahead would make single pages where `_make_pages` wants many at once.
        assert self.mapped is not None
        self.mapped.read_ahead(False)

    def use(self, memory: mapping.Memory) -> None:
        """Prepare the memory that the buffer is in for rows to be written."""
        self._memory = memory
        self.order[:] = 0
        self.priority[:] = np.nan

    def _make_pages(self, row: int) -> None:
        """Write zeros over the next rows through the file, or populate the memory.

        The kernel then allocates and maps many pages at once, at a fraction of the cost
        of one page fault per page. The file is
        open only meanwhile, as there may be more streams than open files are allowed.
        """
        rows = min(AHEAD, self.size - row)
        parts = [
            (column.offset + row * column.field.nbytes, rows * column.field.nbytes)
            for column in self.header.columns
            if column.field.name not in (ORDER, PRIORITY)
            if rows * column.field.nbytes >= mapping.PAGE
        ]
        if self._path is not None and parts:
            fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                for offset, nbytes in parts:
                    os.pwrite(fd, _zeros(nbytes), offset)
            finally:
                os.close(fd)
        elif self._memory is not None:
            for offset, nbytes in parts:
                self._memory.populate(offset, nbytes)


def create(header: Header, pool: mapping.MemoryPool) -> Chunk:
    """A new chunk in memory."""
    memory = mapping.Memory(header.nbytes, pool)
    chunk = Chunk(header, np.asarray(memory))
    chunk.use(memory)
    return chunk


def create_on_disk(header: Header, path: Path, unmap: mapping.Unmap) -> Chunk:
    """A new chunk in a file. Raises OSError if the disk is full."""
    unset = np.full(header.size, np.nan, np.float32)
    marks = np.zeros(header.size, np.int64)
    blobs = {PRIORITY: unset.data, ORDER: marks.data}
    mapped = create_file(header, path, blobs, unmap)
    chunk = Chunk(header, np.asarray(mapped), mapped)
    chunk.unseal(path)
    return chunk


def create_file(
    header: Header, path: Path, blobs: Mapping[str, Buffer], unmap: mapping.Unmap
) -> mapping.Mapping:
    """Make a file, complete or not at all, and map it."""
    with files.replace(path) as file:
        fd = file.fileno()
        mapping.allocate(fd, header.nbytes)
        os.pwrite(fd, header.encode(), 0)
        for column in header.columns:
            if column.field.name in blobs:
                os.pwrite(fd, blobs[column.field.name], column.offset)
        return mapping.Mapping(fd, header.nbytes, unmap)


def load(path: Path, unmap: mapping.Unmap) -> Chunk:
    """Map an existing file. Reads the header and the marks, but no data."""
    with path.open("r+b") as file:
        header = _read_header(file)
        mapped = mapping.Mapping(file.fileno(), header.nbytes, unmap)
    return restore(header, np.asarray(mapped), mapped)


def load_readonly(path: Path) -> Chunk:
    """Map an existing file, which its owner may replace or delete meanwhile."""
    with path.open("rb") as file:
        header = _read_header(file)
        return restore(header, np.asarray(np.memmap(file, np.uint8, "r")))


def restore(
    header: Header, buffer: np.ndarray, mapped: mapping.Mapping | None = None
) -> Chunk:
    """A chunk with the steps that are marked as stored."""
    chunk = Chunk(header, buffer, mapped)
    chunk.count = chunk.fill = _committed(chunk.order)
    return chunk


def _read_header(file: BinaryIO) -> Header:
    """Raises ChunkError if the file is not a whole chunk."""
    data = file.read(mapping.PAGE)
    length = layout.header_length(data)
    if length > mapping.PAGE:
        data += file.read(min(length, 1 << 24) - len(data))
    try:
        header = layout.decode(data, file.name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ChunkError(f"unreadable header: {error}") from error
    actual = os.fstat(file.fileno()).st_size
    if actual != header.nbytes:
        raise ChunkError(f"has {actual} bytes instead of {header.nbytes}")
    return header


@functools.lru_cache(maxsize=16)
def _zeros(nbytes: int) -> bytes:
    """Cached, since allocating them costs more than writing them."""
    return bytes(nbytes)


def _committed(order: np.ndarray) -> int:
    """Length of the prefix of increasing marks."""
    valid = np.diff(order, prepend=0) > 0
    return len(order) if valid.all() else int(valid.argmin())


def _column(column: layout.Column, header: Header, buffer: np.ndarray) -> Any:
    raw = buffer[column.offset : column.offset + column.nbytes]
    if column.codec == RAW:
        field = column.field
        return raw.view(field.dtype).reshape(header.size, *field.shape)
    if column.codec == layout.ZLIB:
        return CompressedColumn(raw, column.field, header.size)
    raise ChunkError(f"unknown compression {column.codec!r}")
