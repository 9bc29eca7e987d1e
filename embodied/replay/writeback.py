"""Writes values back into stored steps, many at a time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from embodied.replay import compressor
from embodied.replay.chunk import Chunk
from embodied.replay.compression import CompressedColumn, DamagedError
from embodied.replay.layout import PRIORITY
from embodied.replay.store import ChunkStore

Changed = list[tuple[Chunk, int, int]]  # Chunk and range of rows [lo, hi).


def write(
    store: ChunkStore,
    chunks: Mapping[int, Chunk],
    stepid: np.ndarray,
    values: Mapping[str, np.ndarray],
) -> tuple[int, Changed]:
    """Write values [N, ...] to the steps [N, 3]; return how many were still there.

    Also returns where priorities changed. Consecutive steps, as in sequences, are
    written together: one copy per key for each chunk that a sequence touches.
    """
    number, row, nonce = stepid.astype(np.int64).T
    jumps = np.diff(row) != 1
    jumps |= (np.diff(number) != 0) | (np.diff(nonce) != 0)
    edges = [0, *(np.flatnonzero(jumps) + 1).tolist(), len(stepid)]
    written, changed = 0, []
    for begin, end in itertools.pairwise(edges):
        chunk = chunks.get(int(number[begin])) if end > begin else None
        if chunk is None or chunk.nonce != nonce[begin]:
            continue
        lo, hi = int(row[begin]), int(row[end - 1]) + 1
        if lo < 0 or hi > chunk.count:
            continue
        try:
            with store.limit.hold(chunk):
                _write(store, chunk, slice(lo, hi), values, slice(begin, end))
        except DamagedError:  # The next one who reads the chunk reports and drops it.
            continue
        written += hi - lo
        if PRIORITY in values:
            changed.append((chunk, lo, hi))
    return written, changed


def window_means(
    chunk: Chunk, lo: int, hi: int, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mean priorities of the items that hold any of the rows [lo, hi).

    Steps that have no priority yet do not count; NaN if none has.
    """
    first, lo, hi = _rewind(chunk, lo - length + 1, hi + length - 1)
    ids, priorities = _gather(first, lo, hi)
    starts = len(ids) - length + 1
    if starts < 1:
        return np.zeros(0, np.int64), np.zeros(0)
    known = ~np.isnan(priorities)
    totals = np.cumsum(np.where(known, priorities, 0.0), dtype=np.float64)
    counts = np.cumsum(known)
    total = _differences(totals, length)
    count = _differences(counts, length)
    means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    ids = ids[:starts]
    # Differences of sums may end up below zero by a rounding error.
    return ids[ids > 0], np.maximum(means, 0.0)[ids > 0]


def around(changed: Changed) -> set[Chunk]:
    """Changed chunks and their neighbours, whose priorities `window_means` reads."""
    chunks = {x for chunk, _, _ in changed for x in (chunk.prev, chunk, chunk.next)}
    return {chunk for chunk in chunks if chunk is not None}


def _write(
    store: ChunkStore,
    chunk: Chunk,
    rows: slice,
    values: Mapping[str, np.ndarray],
    part: slice,
) -> None:
    while True:
        with chunk.lock:
            columns = chunk.columns | {PRIORITY: chunk.priority}
            targets = [columns[key] for key in values]
            chunk.rewritten |= any(x.name in values for x in chunk.header.packable)
            if not any(isinstance(target, CompressedColumn) for target in targets):
                for target, value in zip(targets, values.values(), strict=True):
                    target[rows] = value[part]
                return
            if chunk.gone:
                return
        compressor.inflate(store, chunk)


def _rewind(chunk: Chunk, lo: int, hi: int) -> tuple[Chunk, int, int]:
    """Express rows [lo, hi) relative to the chunk that holds the first of them."""
    while lo < 0 and chunk.prev is not None:
        chunk = chunk.prev
        lo, hi = lo + chunk.size, hi + chunk.size
    return chunk, max(0, lo), hi


def _gather(chunk: Chunk | None, lo: int, hi: int) -> tuple[np.ndarray, np.ndarray]:
    """Item ids and priorities of rows [lo, hi), continuing in the next chunks."""
    ids, priorities = [], []
    while chunk is not None and hi > lo:
        assert chunk.items is not None
        stop = min(hi, chunk.count)
        ids.append(chunk.items[lo:stop])
        priorities.append(chunk.priority[lo:stop])
        lo, hi = 0, hi - chunk.size
        chunk = chunk.next
    return np.concatenate(ids), np.concatenate(priorities)


def _differences(sums: np.ndarray, length: int) -> np.ndarray:
    """Sums over each window of `length`, given the running sums."""
    return sums[length - 1 :] - np.concatenate([[0], sums[:-length]])
