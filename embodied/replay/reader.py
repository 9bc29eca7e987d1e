"""Reads sequences out of chunks into a batch, whose memory is reused."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from embodied.core.base import IS_FIRST, IS_LAST, STEPID
from embodied.replay.chunk import Chunk
from embodied.replay.compression import DamagedError
from embodied.replay.layout import ALIGN, Field, Records, align
from embodied.replay.mapping import Memory, MemoryPool
from embodied.replay.memory_limit import MemoryLimit

STEPID_FIELD = Field(STEPID, np.dtype(np.int32), (3,))  # Chunk number, row, nonce.
Arrays = dict[str, np.ndarray]
Todo = Iterator[tuple[int, tuple[Chunk, int]]]  # Sequence, and where it starts.
# Sequence, time, first row, number of rows, chunk number, nonce.
Part = tuple[int, int, int, int, int, int]
# Smaller batches are not worth waking up another thread.
WORTH_SHARING = 4 << 20


class DamagedChunkError(Exception):
    """A chunk cannot be read, and why."""

    def __init__(self, chunk: Chunk, reason: str):
        super().__init__(f"chunk {chunk.number}: {reason}")
        self.chunk, self.reason = chunk, reason


class BufferPool:
    """Provides batches as views of a few large buffers.

    Fresh memory costs a page fault and zeroing for each page, about as much as filling
    it. The base of all views owns the buffer and returns it to the pool once all
    references are gone, including those of a prefetcher, a socket or a zero-copy device
    array.
    """

    def __init__(self, keep: int = 8):
        self._memory = MemoryPool(keep)

    def batch(self, fields: tuple[Field, ...], lead: tuple[int, ...]) -> Arrays:
        """Uninitialised arrays of shape [*lead, *field.shape] by name."""
        count = math.prod(lead)
        sizes = [align(field.nbytes * count, ALIGN) for field in fields]
        buffer = np.asarray(Memory(sum(sizes), self._memory))  # Begins with a page.
        out, offset = {}, 0
        for field, size in zip(fields, sizes, strict=True):
            leaf = buffer[offset : offset + field.nbytes * count]
            out[field.name] = leaf.view(field.dtype).reshape(*lead, *field.shape)
            offset += size
        return out


class SequenceReader:
    """Copies sequences, with a helper thread where that is faster.

    One core cannot use the memory bandwidth of the machine, and numpy copies without
    holding the interpreter lock. On a busy machine, though, the helper is often late,
    so the reader keeps comparing both ways. For one caller at a time: more of them
    only compete for the interpreter lock and the cache.
    """

    TRY_OTHER = 32  # Every so many batches, measure the way that seems slower.

    def __init__(self, limit: MemoryLimit):
        self._limit = limit
        self._buffers = BufferPool()
        parallel = (os.cpu_count() or 1) > 1
        self._pool = ThreadPoolExecutor(1, "reader") if parallel else None
        self._batches = 0
        self._costs = {True: 0.0, False: 0.0}  # Seconds per byte, with helper or not.

    def read(
        self, spots: list[tuple[Chunk, int]], records: Records, length: int
    ) -> Arrays:
        """The sequences that start at the spots, leaves [B, length, ...]."""
        lead = (len(spots), length)
        out = self._buffers.batch((*records.schema, STEPID_FIELD), lead)
        small = np.empty((*lead, records.nbytes), np.uint8)
        small_rows = np.ndarray(lead, f"V{records.nbytes}", small)
        blocks = [small_rows, *(out[field.name] for field in records.large)]
        if self._limit.nbytes:
            for chunk, row in spots:
                # What all sequences need at once, so that the disk is busy.
                chunk.prefetch(row, min(row + length, chunk.size))
        parts = self._share(blocks, enumerate(spots))
        for field in records.small:
            out[field.name][:] = records.column(small, field)
        out[STEPID][:] = _stepids(sorted(parts)).reshape(*lead, 3)
        mark_borders(out)
        return out

    def close(self) -> None:
        """End the helper."""
        if self._pool:
            self._pool.shutdown()
            self._pool = None

    def _share(self, blocks: list[np.ndarray], todo: Todo) -> list[Part]:
        """Copy all sequences, with the helper if that pays off."""
        nbytes = sum(block.nbytes for block in blocks)
        choice = nbytes >= WORTH_SHARING
        helped = bool(self._pool) and choice and self._prefer_helper()
        begin = time.perf_counter()
        try:
            helper = None
            if self._pool and helped:
                with contextlib.suppress(RuntimeError):  # Closed just now.
                    helper = self._pool.submit(self._copy_all, blocks, todo)
            parts = self._copy_all(blocks, todo)
            if helper and not helper.cancel():
                parts += helper.result()
            return parts
        finally:
            if choice:
                self._note(helped, (time.perf_counter() - begin) / nbytes)

    def _note(self, helped: bool, cost: float) -> None:
        """Average the costs. One late thread must not decide the next batches."""
        known = self._costs[helped] or cost
        self._costs[helped] = known + 0.2 * (min(cost, 2 * known) - known)

    def _prefer_helper(self) -> bool:
        self._batches += 1
        explore = self._batches % self.TRY_OTHER == 0
        return (self._costs[True] < self._costs[False]) != explore

    def _copy_all(self, blocks: list[np.ndarray], todo: Todo) -> list[Part]:
        parts: list[Part] = []
        for index, (chunk, row) in todo:
            parts += self._copy(blocks, index, chunk, row)
        return parts

    def _copy(
        self, blocks: list[np.ndarray], index: int, start: Chunk, row: int
    ) -> list[Part]:
        """Copy one sequence, from as many chunks as it spans."""
        at, length, parts = 0, blocks[0].shape[1], []
        chunk: Chunk | None = start
        while at < length:
            assert chunk is not None
            count = min(length - at, chunk.size - row)
            where = (index, slice(at, at + count))
            try:
                with self._limit.hold(chunk):
                    chunk.read(blocks, where, row, row + count)
            except DamagedError as error:
                raise DamagedChunkError(chunk, str(error)) from error
            parts.append((index, at, row, count, chunk.number, chunk.nonce))
            at += count
            chunk, row = chunk.next, 0
        return parts


def mark_borders(out: Arrays) -> None:
    """Sequences begin an episode, and an episode that another one follows has ended."""
    if IS_FIRST in out:
        out[IS_FIRST][:, 0] = True
        if IS_LAST in out:
            out[IS_LAST][:, :-1] |= out[IS_FIRST][:, 1:]


def _stepids(parts: list[Part]) -> np.ndarray:
    """One id per step: chunk number, row and nonce."""
    _, _, row, count, number, nonce = np.array(parts, np.int64).T
    ids = np.empty((count.sum(), 3), np.int32)
    ids[:, 0] = np.repeat(number, count)
    ids[:, 1] = np.arange(len(ids)) + np.repeat(row - np.cumsum(count) + count, count)
    ids[:, 2] = np.repeat(nonce, count)
    return ids
