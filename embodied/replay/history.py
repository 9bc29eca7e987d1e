"""Rebuilds streams and items from the chunks found in a directory."""

from __future__ import annotations

import collections
from typing import NamedTuple

import numpy as np

from embodied.replay import items as itemlib
from embodied.replay.chunk import Chunk
from embodied.replay.layout import Schema
from embodied.replay.store import ChunkStore
from embodied.replay.writer import Writer


class History(NamedTuple):
    """What a replay knew about its chunks before it was closed or killed."""

    chunks: list[Chunk]
    schema: Schema | None
    writers: dict[int, Writer]
    places: np.ndarray  # Start of each item, in the order of insertion.
    order: int  # Number of steps ever inserted.


def recover(store: ChunkStore, chunks: list[Chunk], length: int) -> History:
    """Read the marks of all chunks and derive everything else from them."""
    chunks, schema = _same_schema(store, chunks)
    streams = collections.defaultdict(list)
    for chunk in sorted(chunks, key=_start):
        streams[chunk.header.worker].append(chunk)
    writers, places, orders = {}, [], []
    for worker, stream in streams.items():
        writer = writers[worker] = Writer(worker)
        for segment in _segments(store, stream):
            found = _windows(segment, length)
            places.append(found[0])
            orders.append(found[1])
            _continue(writer, segment, length)
    chunks = [chunk for chunk in chunks if not chunk.gone]
    order = max([chunk.last_order for chunk in chunks], default=0)
    return History(chunks, schema, writers, _merge(places, orders), order)


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
            store.skip(_name(store, chunk), "its steps have other keys or shapes")
    return kept, schema


def _segments(store: ChunkStore, stream: list[Chunk]) -> list[list[Chunk]]:
    """Runs of chunks without a gap or a long silence between; links the chunks."""
    segments: list[list[Chunk]] = []
    end = None
    for chunk in stream:
        last = segments[-1][-1] if segments else None
        if end is not None and chunk.header.start < end:
            store.skip(_name(store, chunk), "its steps are in another file already")
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
    """Start of each window of a segment, and when it was completed."""
    starts = [itemlib.pack(x.number, np.arange(x.count)) for x in segment]
    orders = np.concatenate([x.order[: x.count] for x in segment])
    count = max(0, len(orders) - length + 1)
    return np.concatenate(starts)[:count], orders[len(orders) - count :]


def _continue(writer: Writer, segment: list[Chunk], length: int) -> None:
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


def _merge(places: list[np.ndarray], orders: list[np.ndarray]) -> np.ndarray:
    if not places:
        return np.zeros(0, np.int64)
    return np.concatenate(places)[np.argsort(np.concatenate(orders), kind="stable")]


def _name(store: ChunkStore, chunk: Chunk) -> str:
    path = store.path(chunk.number)
    return path.name if path else str(chunk.number)


def _start(chunk: Chunk) -> int:
    return chunk.header.start


def _last_order(chunk: Chunk) -> int:
    return chunk.last_order
