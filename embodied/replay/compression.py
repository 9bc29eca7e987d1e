"""The format of compressed columns."""

from __future__ import annotations

import zlib

import numpy as np

from embodied.replay.layout import Field

BLOCK = 32  # Steps compressed together: what a read decodes at least.
LEVEL = 1  # The fastest; higher ones save little on images.


class DamagedError(Exception):
    """Compressed values cannot be decoded."""


class CompressedColumn:
    """A read-only column that is decoded block by block when sliced.

    The bytes are the end position of each block (uint32), then the blocks.
    """

    def __init__(self, raw: np.ndarray, field: Field, size: int):
        self._field = field
        self._size = size
        blocks = -(-size // BLOCK)
        self._ends = raw[: 4 * blocks].view(np.uint32)
        self._data = raw[4 * blocks :]

    def __getitem__(self, rows: slice) -> np.ndarray:
        lo, hi, _ = rows.indices(self._size)
        first, last = lo // BLOCK, -(-hi // BLOCK)
        data = b"".join(self._block(index) for index in range(first, last))
        array = np.frombuffer(data, self._field.dtype).reshape(-1, *self._field.shape)
        return array[lo - first * BLOCK : hi - first * BLOCK]

    def _block(self, index: int) -> bytes:
        start = int(self._ends[index - 1]) if index else 0
        try:
            return zlib.decompress(self._data[start : int(self._ends[index])].data)
        except zlib.error as error:
            reason = f"values of '{self._field.name}' cannot be decoded ({error})"
            raise DamagedError(reason) from error


def compress_column(column: np.ndarray) -> bytes:
    """Compress a column; the inverse is `CompressedColumn(...)[:]`."""
    blocks = []
    for start in range(0, len(column), BLOCK):
        blocks.append(zlib.compress(column[start : start + BLOCK].tobytes(), LEVEL))
    ends = np.cumsum([len(block) for block in blocks]).astype(np.uint32)
    return ends.tobytes() + b"".join(blocks)
