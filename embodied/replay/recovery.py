"""Rebuilds the index of a replay from the chunks of an earlier process."""

from __future__ import annotations

import collections

import numpy as np

from embodied.replay.chunk import Chunk
from embodied.replay.index import ROW_BITS, Index
from embodied.replay.layout import Schema
from embodied.replay.store import ChunkStore
from embodied.replay.writer import Writer


def recover(
    index: Index, store: ChunkStore, chunks: list[Chunk], length: int
) -> Schema | None:
    """Derive streams and items from the marks of all chunks; returns their schema."""
    chunks, schema = _same_schema(store, chunks)
    streams = collections.defaultdict(list)
    for chunk in sorted(chunks, key=_start):
        streams[chunk.header.worker].append(chunk)
    places, orders = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for worker, stream in streams.items():
        for segment in _segments(store, stream):
            starts, completed = _windows(segment, length)
            places.append(starts)
            orders.append(completed)
            _resume(index.writer(worker), segment, length)
    oldest_first = np.argsort(np.concatenate(orders), kind="stable")
    kept = [chunk for chunk in chunks if not chunk.gone]
    for chunk in index.restore(kept, np.concatenate(places)[oldest_first]):
        store.delete(chunk)
    return schema


def _same_schema(
    store: ChunkStore, chunks: list[Chunk]
) -> tuple[list[Chunk], Schema | None]:
    """Only the chunks that can share a batch with the newest one."""
    if not chunks:
        return [], None
    schema = max(chunks, key=_last_order).header.schema
    kept = []
    for chunk in chunks:
        if chunk.header.schema == schema:
            kept.append(chunk)
        else:
            store.skip(chunk.number, "its steps have other keys or shapes")
    return kept, schema


def _segments(store: ChunkStore, stream: list[Chunk]) -> list[list[Chunk]]:
    """Chunks of one worker that continue each other, linked."""
    segments: list[list[Chunk]] = []
    end = None
    for chunk in stream:
        last = segments[-1][-1] if segments else None
        if end is not None and chunk.header.start < end:
            store.skip(chunk.number, "its steps are in another file already")
            chunk.gone = True
            continue
        follows = last is not None and last.full and chunk.header.start == last.end
        if last is not None and follows and chunk.header.joined:
            last.next, chunk.prev = chunk, last
            segments[-1].append(chunk)
        else:
            segments.append([chunk])
        end = chunk.end
    return segments


def _windows(segment: list[Chunk], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Place of each window of a segment, and when it was completed."""
    starts = [x.number << ROW_BITS | np.arange(x.count) for x in segment]
    orders = np.concatenate([x.order[: x.count] for x in segment])
    count = max(0, len(orders) - length + 1)
    return np.concatenate(starts)[:count], orders[len(orders) - count :]


def _resume(writer: Writer, segment: list[Chunk], length: int) -> None:
    """Set the writer to the end of a segment."""
    if writer.window is not None:
        writer.end_segment()
    last = segment[-1]
    writer.last = writer.placed = last.end - 1
    writer.order = last.last_order
    writer.chunk, writer.resumed = last, True
    writer.run = sum(chunk.count for chunk in segment)
    writer.window = None
    done = max(0, writer.run - length + 1)
    for chunk in segment:
        if done < chunk.size:
            writer.window = chunk, done
            break
        chunk.pending = False
        done -= chunk.size


def _start(chunk: Chunk) -> int:
    return chunk.header.start


def _last_order(chunk: Chunk) -> int:
    return chunk.last_order
