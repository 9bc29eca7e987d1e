"""What a replay knows about its steps: chunks, streams, items and their selection."""

from __future__ import annotations

import collections
from collections.abc import Iterator

import numpy as np

from embodied.replay import items as itemlib
from embodied.replay import writeback
from embodied.replay.chunk import Chunk
from embodied.replay.history import History
from embodied.replay.selectors import Selector
from embodied.replay.writer import Placement, Writer


class Index:
    """Items, where they start, and which chunks they need. Does no I/O and no copies.

    Not thread-safe; the replay guards it with its lock. Methods that evict return the
    chunks that nothing needs any more, for the caller to delete.
    """

    def __init__(self, length: int, capacity: int, selector: Selector, online: bool):
        self.chunks: dict[int, Chunk] = {}
        self.writers: dict[int, Writer] = {}
        self.order = 0  # Steps ever inserted.
        self.evictions = 0
        self.ring = itemlib.ItemRing(capacity)
        self.queue: collections.deque[int] = collections.deque()  # Fresh items.
        self._length = length
        self._selector = selector
        self._online = online

    def __len__(self) -> int:
        return len(self.ring)

    @property
    def horizon(self) -> int:
        """Steps up to this one are older than `capacity` steps."""
        return self.order - self.ring.capacity

    def writer(self, worker: int) -> Writer:
        """The end of a worker's stream."""
        if worker not in self.writers:
            self.writers[worker] = Writer(worker)
        return self.writers[worker]

    def commit(self, placements: list[Placement]) -> list[Chunk]:
        """Make written steps and the windows they complete visible."""
        places: list[int] = []
        entered = False
        for placement in placements:
            writer, chunk = placement.writer, placement.chunk
            self.order += 1
            writer.commit(placement, self.order)
            if placement.row == 0:
                self._enter(chunk)
                entered = True
            if writer.run >= self._length:
                places.append(self._new_item(writer, self.ring.tail + len(places)))
        evicted = [self.ring.append(place) for place in places]
        dropped = self._evict([x for x in evicted if x is not None])
        # Going through all chunks once for each new one is often enough, and cheap.
        return dropped + (self._drop_stale() if entered else [])

    def draw(
        self, rng: np.random.Generator, amount: int, fresh: bool
    ) -> list[tuple[Chunk, int]]:
        """Chunk and row where each of `amount` items starts."""
        head, tail = self.ring.head, self.ring.tail
        ids: list[int] = []
        while fresh and self.queue and len(ids) < amount:
            item = self.queue.popleft()
            if item >= head:
                ids.append(item)
        chosen = np.array(ids, np.int64)
        if len(ids) < amount:
            rest = self._selector.sample(rng, head, tail, amount - len(ids))
            chosen = np.concatenate([chosen, rest])
        places = self.ring[chosen]
        spots = [itemlib.unpack(place) for place in places.tolist()]
        return [(self.chunks[number], row) for number, row in spots]

    def reprioritize(self, changed: writeback.Changed) -> None:
        """Tell the selector about new priorities of steps."""
        if self._selector.prioritized:
            for chunk, lo, hi in changed:
                ids, means = writeback.window_means(chunk, lo, hi, self._length)
                self._selector.update(ids, means)

    def recover(self, found: History) -> list[Chunk]:
        """Start from the chunks of a directory."""
        self.writers, self.order = found.writers, found.order
        for chunk in found.chunks:
            self._enter(chunk)
        ids = self.ring.tail + np.arange(len(found.places))
        for number, rows, part in _by_chunk(found.places, ids):
            chunk = self.chunks[number]
            chunk.live = len(rows)
            if chunk.items is not None:
                chunk.items[rows] = part
        evicted = self.ring.fill(found.places).tolist()
        dropped = self._evict(evicted) + self._drop_stale()
        self.reprioritize([(x, 0, x.count) for x in self.chunks.values()])
        return dropped

    def _new_item(self, writer: Writer, item: int) -> int:
        chunk, row = writer.next_window()
        chunk.live += 1
        if chunk.items is not None:
            chunk.items[row] = item
        if self._online and writer.fresh >= self._length:
            self.queue.append(item)
            writer.fresh = 0
        return int(itemlib.pack(chunk.number, row))

    def _enter(self, chunk: Chunk) -> None:
        self.chunks[chunk.number] = chunk
        if self._selector.prioritized:
            chunk.items = np.zeros(chunk.size, np.int64)

    def _evict(self, evicted: list[int]) -> list[Chunk]:
        """Account for the items that left the ring, and for those that entered it."""
        self._selector.change(self.ring.head, self.ring.tail)
        self.evictions += len(evicted)
        while self.queue and self.queue[0] < self.ring.head:
            self.queue.popleft()
        dropped = []
        for place in evicted:
            chunk = self.chunks[itemlib.unpack(place)[0]]
            chunk.live -= 1
            if chunk.live == 0 and not chunk.pending:
                dropped.append(self._drop(chunk))
        return dropped

    def _drop_stale(self) -> list[Chunk]:
        """Drop chunks without items that `capacity` steps came after.

        They hold the beginning of a stream that never got long enough, or the end of
        one that went silent.
        """
        horizon = self.horizon
        for writer in self.writers.values():
            if writer.silent(horizon):
                writer.end_segment()
        return [
            self._drop(chunk)
            for chunk in list(self.chunks.values())
            if chunk.live == 0 and not chunk.pending and chunk.prev is None
            if chunk.last_order <= horizon
        ]

    def _drop(self, chunk: Chunk) -> Chunk:
        del self.chunks[chunk.number]
        if chunk.next is not None:
            chunk.next.prev = None
        return chunk


def _by_chunk(
    places: np.ndarray, ids: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Number, rows and ids of the items that start in each chunk."""
    numbers = places >> itemlib.ROW_BITS
    rows = places & ((1 << itemlib.ROW_BITS) - 1)
    order = np.argsort(numbers, kind="stable")
    unique, starts = np.unique(numbers[order], return_index=True)
    for number, part in zip(unique, np.split(order, starts[1:]), strict=False):
        yield int(number), rows[part], ids[part]
