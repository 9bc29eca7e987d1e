"""Memory for sampled batches, used again once nobody holds the batch any more."""

from __future__ import annotations

import math
import sys
import threading

import numpy as np

from embodied.replay.layout import Field

Arrays = dict[str, np.ndarray]
ALIGN = 64
# References to a buffer in the pool while `_free` looks at it: the list, the loop
# variable and the argument of getrefcount.
_UNUSED = 3


class BufferPool:
    """Hands out batches as views of a few large buffers.

    Fresh memory costs a page fault and zeroing for each page, about as much as filling
    it. Each leaf keeps its buffer alive, whoever holds the leaf (a prefetcher, a
    socket, a device array that made no copy), and the reference count says when there
    is none left.
    """

    def __init__(self, keep: int = 8):
        self._keep = keep
        self._buffers: list[np.ndarray] = []
        self._lock = threading.Lock()

    def batch(self, fields: tuple[Field, ...], lead: tuple[int, ...]) -> Arrays:
        """Uninitialised arrays of shape [*lead, *field.shape] by name."""
        count = math.prod(lead)
        sizes = [-(-field.nbytes * count // ALIGN) * ALIGN for field in fields]
        with self._lock:
            buffer = self._free(sum(sizes) + ALIGN)
        # All leaves must be direct views of the buffer for the count to see them.
        out, offset = {}, -buffer.ctypes.data % ALIGN
        for field, size in zip(fields, sizes, strict=True):
            leaf = buffer[offset : offset + field.nbytes * count]
            out[field.name] = leaf.view(field.dtype).reshape(*lead, *field.shape)
            offset += size
        return out

    def _free(self, nbytes: int) -> np.ndarray:
        for buffer in self._buffers:
            if len(buffer) == nbytes and sys.getrefcount(buffer) == _UNUSED:
                return buffer
        buffer = np.empty(nbytes, np.uint8)
        self._buffers = [*self._buffers[1 - self._keep :], buffer]
        return buffer
