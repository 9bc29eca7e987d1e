"""Bounds how much of the mapped files is resident in this process."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterable, Iterator

from embodied.replay.chunk import Chunk

_UNBOUNDED = contextlib.nullcontext()


class MemoryLimit:
    """Releases the pages of the least recently used chunks.

    A thread holds a chunk while it reads or writes it. A chunk counts in full from
    before its first page is touched until its pages are released, so the pages stay
    within the limit at all times, unless the chunks that are held are larger already.
    Released pages stay in the page cache while the system has room, so that touching
    them again is cheap.
    """

    def __init__(self, nbytes: int):
        self.nbytes = nbytes  # 0 leaves it to the system.
        self._lock = threading.Lock()
        self._sizes: collections.OrderedDict[Chunk, int] = collections.OrderedDict()
        self._total = 0
        self._holders: collections.Counter[Chunk] = collections.Counter()

    def hold(self, chunk: Chunk) -> contextlib.AbstractContextManager:
        """A context in which the pages of a chunk may be touched."""
        return self._hold(chunk) if self.nbytes else _UNBOUNDED

    def forget(self, chunk: Chunk) -> None:
        """Release a deleted chunk."""
        with self._lock:
            if chunk in self._sizes and chunk not in self._holders:
                self._release(chunk)

    def note(self, chunks: Iterable[Chunk]) -> None:
        """Count chunks of which a few pages were touched without holding them."""
        for chunk in chunks:
            with self.hold(chunk):
                pass

    @contextlib.contextmanager
    def _hold(self, chunk: Chunk) -> Iterator[None]:
        with self._lock:
            self._holders[chunk] += 1
            self._count(chunk)
            self._shrink()
        try:
            yield
        finally:
            with self._lock:
                self._count(chunk)  # It may have been compressed or inflated.
                self._holders[chunk] -= 1
                if not self._holders[chunk]:
                    del self._holders[chunk]
                    if chunk.gone:
                        self._release(chunk)
                self._shrink()

    def _count(self, chunk: Chunk) -> None:
        """Count a chunk as the most recently used."""
        nbytes = chunk.header.nbytes
        self._total += nbytes - self._sizes.pop(chunk, 0)
        self._sizes[chunk] = nbytes

    def _shrink(self) -> None:
        excess, total = [], self._total
        for chunk, nbytes in self._sizes.items():
            if total <= self.nbytes:
                break
            if chunk not in self._holders:
                excess.append(chunk)
                total -= nbytes
        for chunk in excess:
            self._release(chunk)

    def _release(self, chunk: Chunk) -> None:
        self._total -= self._sizes.pop(chunk)
        assert chunk.mapped is not None
        chunk.mapped.release()
