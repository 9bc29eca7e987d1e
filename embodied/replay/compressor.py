"""Compresses completed chunks in the background."""

from __future__ import annotations

import logging
import queue
import threading

import numpy as np

from embodied.replay import chunk as chunklib
from embodied.replay import layout
from embodied.replay.chunk import Chunk
from embodied.replay.compression import compress_column
from embodied.replay.layout import RAW, ZLIB, Column, Header
from embodied.replay.store import ChunkStore

log = logging.getLogger(__name__)


class Compressor:
    """A thread that rewrites the chunks it is given with fewer bytes."""

    def __init__(self, store: ChunkStore):
        self._store = store
        self._queue: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
        self._idle = threading.Condition()
        self._pending = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="compress")
        self._thread.start()

    def submit(self, chunk: Chunk) -> None:
        """Compress a chunk that is full."""
        with self._idle:
            self._pending += 1
        self._queue.put(chunk)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; False if that took too long."""
        with self._idle:
            return self._idle.wait_for(self._is_idle, timeout)

    def close(self) -> None:
        """Stop after the current chunk; others are compressed next time."""
        with self._idle:
            self._closed = True
            self._idle.notify_all()
        self._queue.put(None)
        while not self._queue.empty() and self._queue.get() is not None:
            pass
        self._queue.put(None)
        self._thread.join()

    def _is_idle(self) -> bool:
        return self._closed or self._pending == 0

    def _run(self) -> None:
        while (chunk := self._queue.get()) is not None:
            try:
                with self._store.limit.hold(chunk):
                    compress(self._store, chunk)
            except OSError as error:
                # The chunk stays valid, only uncompressed.
                log.warning("Cannot compress chunk %s: %s", chunk.number, error)
            with self._idle:
                self._pending -= 1
                self._idle.notify_all()


def compress(store: ChunkStore, chunk: Chunk) -> None:
    """Rewrite a full chunk with its large integer columns compressed."""
    blobs = {
        x.name: compress_column(chunk.columns[x.name]) for x in chunk.header.packable
    }
    columns = [_resized(x, chunk.size, blobs) for x in chunk.header.columns]
    header = layout.arrange(chunk.header, columns)
    if header.nbytes < 0.9 * chunk.header.nbytes:
        _exchange(store, chunk, header, blobs)


def inflate(store: ChunkStore, chunk: Chunk) -> None:
    """Undo `compress`, for an update of a compressed column."""
    columns = [_resized(x, chunk.size, {}) for x in chunk.header.columns]
    _exchange(store, chunk, layout.arrange(chunk.header, columns), {})


def _exchange(
    store: ChunkStore, chunk: Chunk, header: Header, blobs: dict[str, bytes]
) -> None:
    """Rewrite the chunk and replace its file.

    Blocks readers and `update`. Does not recreate the file of a deleted chunk.
    """
    path = store.path(chunk.number)
    with chunk.lock:
        if path is None or chunk.gone or (blobs and chunk.rewritten):
            return
        assert chunk.mapped is not None
        blocks = {layout.ORDER: chunk.order, layout.PRIORITY: chunk.priority}
        blocks[layout.RECORDS] = chunk.records
        data = dict(blobs)
        for name in (x.field.name for x in header.columns):
            if name not in blobs:
                data[name] = (blocks | chunk.columns)[name][:].tobytes()
        mapped = chunklib.create_file(header, path, data, chunk.mapped.unmap)
        chunk.attach(header, np.asarray(mapped), mapped)


def _resized(column: Column, size: int, blobs: dict[str, bytes]) -> Column:
    name = column.field.name
    if name in blobs:
        return Column(column.field, 0, len(blobs[name]), ZLIB)
    return Column(column.field, 0, column.field.nbytes * size, RAW)
