"""Copies windows out of chunks into a batch of sequences."""

from __future__ import annotations

import numpy as np

from embodied.core.base import IS_FIRST, IS_LAST, STEPID
from embodied.core.chunk import Chunk
from embodied.core.layout import Field, Records
from embodied.core.store import Residency

STEPID_FIELD = Field(STEPID, np.dtype(np.int32), (3,))  # Chunk number, row, nonce.
Batch = dict[str, np.ndarray]
Part = tuple[int, int, int, int]  # Chunk number, nonce, first row, number of rows.


def read(
    out: Batch, spots: list[tuple[Chunk, int]], records: Records, residency: Residency
) -> None:
    """Fill `out`, leaves [B, T, ...], with the windows that start at the spots."""
    lead = out[STEPID].shape[:2]
    small = np.empty((*lead, records.nbytes), np.uint8)
    blocks = [small, *(out[field.name] for field in records.large)]
    parts: list[Part] = []
    for index, (chunk, row) in enumerate(spots):
        parts += _copy(blocks, index, chunk, row, residency)
    for field in records.small:
        out[field.name][:] = records.column(small, field)
    out[STEPID][:] = _stepids(parts).reshape(*lead, 3)
    mark_borders(out)


def mark_borders(out: Batch) -> None:
    """Sequences begin an episode, and an episode that another one follows has ended."""
    if IS_FIRST in out:
        out[IS_FIRST][:, 0] = True
        if IS_LAST in out:
            out[IS_LAST][:, :-1] |= out[IS_FIRST][:, 1:]


def _copy(
    blocks: list[np.ndarray],
    index: int,
    start: Chunk,
    row: int,
    residency: Residency,
) -> list[Part]:
    """Copy one window, from as many chunks as it spans."""
    at, length, parts = 0, blocks[0].shape[1], []
    chunk: Chunk | None = start
    while at < length:
        assert chunk is not None
        count = min(length - at, chunk.size - row)
        residency.touch(chunk, count)
        chunk.read(blocks, (index, slice(at, at + count)), row, row + count)
        parts.append((chunk.number, chunk.nonce, row, count))
        at += count
        chunk, row = chunk.next, 0
    return parts


def _stepids(parts: list[Part]) -> np.ndarray:
    """One id per step: chunk number, row and nonce."""
    number, nonce, row, count = np.array(parts, np.int64).T
    ids = np.empty((count.sum(), 3), np.int32)
    ids[:, 0] = np.repeat(number, count)
    ids[:, 1] = np.arange(len(ids)) + np.repeat(row - np.cumsum(count) + count, count)
    ids[:, 2] = np.repeat(nonce, count)
    return ids
