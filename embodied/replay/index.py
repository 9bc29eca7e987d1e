"""What a replay knows about its steps: chunks, streams, items and their selection."""

from __future__ import annotations

import collections
from collections.abc import Iterator

import numpy as np

from embodied.replay import writeback
from embodied.replay.chunk import Chunk
from embodied.replay.selectors import Selector
from embodied.replay.writer import Placement, Writer

ROW_BITS = 32
ROW_MASK = (1 << ROW_BITS) - 1
# Chunks and streams that are looked at for each new chunk to find stale ones. If there
# are thousands, looking at all would cost more than writing the steps.
VISITS = 64


class ItemRing:
    """Where each item starts, by item id, in the order of insertion.

    Ids count up from 1; those in [head, tail) are stored. A place is a chunk number and
    a row packed into one integer (`number << ROW_BITS | row`): 8 bytes per item are all
    the replay needs beyond the steps themselves. Grows up to its capacity.
    """

    def __init__(self, capacity: int, initial: int = 1024):
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.capacity = capacity
        self.head = 1
        self.tail = 1
        self._allocate(min(capacity, initial))

    def __len__(self) -> int:
        return self.tail - self.head

    def append(self, place: int) -> int | None:
        """Append an item and return the place of the one evicted for it, if any."""
        evicted, count = None, self.tail - self.head
        if count == self.capacity:
            evicted = self._slots[self.head % self._size]
            self.head += 1
        elif count == self._size:
            self._grow(2 * self._size)
        self._slots[self.tail % self._size] = place
        self.tail += 1
        return evicted

    def fill(self, places: np.ndarray) -> np.ndarray:
        """Append many items to an empty ring and return the places of those evicted."""
        assert not len(self)
        excess = max(0, len(places) - self.capacity)
        self.head += excess
        self.tail = self.head
        self._grow(len(places) - excess)
        self.tail += len(places) - excess
        ids = np.arange(self.head, self.tail)
        self._places[ids % self._size] = places[excess:]
        return places[:excess]

    def __getitem__(self, ids: np.ndarray) -> np.ndarray:
        return self._places[ids % self._size]

    def move(self, ids: np.ndarray, places: np.ndarray) -> None:
        """Let items start elsewhere."""
        self._places[ids % self._size] = places

    def clear(self) -> None:
        """Forget all items."""
        self.head = self.tail

    def _grow(self, needed: int) -> None:
        if needed > self._size:
            ids = np.arange(self.head, self.tail)
            places = self[ids]
            self._allocate(min(self.capacity, needed))
            self._places[ids % self._size] = places

    def _allocate(self, size: int) -> None:
        self._size = size
        self._places = np.zeros(size, np.int64)
        self._slots = self._places.data  # Faster for single items.


class Index:
    """Items, where they start, and which chunks they need. Does no I/O and no copies.

    Not thread-safe; the replay guards it with its lock. Methods that evict return the
    chunks that no item needs any more, for the caller to delete.
    """

    def __init__(self, length: int, capacity: int, selector: Selector, online: bool):
        self.chunks: dict[int, Chunk] = {}
        self.writers: dict[int, Writer] = {}
        self.order = 0  # Steps ever inserted.
        self.evictions = 0
        self.ring = ItemRing(capacity)
        self.queue: collections.deque[int] = collections.deque()  # Fresh items.
        self._length = length
        self._selector = selector
        self._online = online
        self._entered = 0  # Chunks since stale ones were dropped.

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
        evicted: list[int] = []
        for writer, chunk, row, seq in placements:
            self.order += 1
            writer.commit(chunk, row, seq, self.order)
            if row == 0:
                self._enter(chunk)
                self._entered += 1
            if writer.run >= self._length:
                place = self.ring.append(self._new_item(writer))
                if place is not None:
                    evicted.append(place)
        dropped = self._evict(evicted)
        if self._entered * VISITS <= len(self.chunks) + len(self.writers):
            return dropped
        self._entered = 0
        return dropped + self._drop_stale()

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
        places = self.ring[chosen].tolist()
        return [(self.chunks[x >> ROW_BITS], x & ROW_MASK) for x in places]

    def reprioritize(self, changed: writeback.Changed) -> None:
        """Pass new priorities of steps on to the selector."""
        if self._selector.prioritized:
            for chunk, lo, hi in changed:
                ids, means = writeback.window_means(chunk, lo, hi, self._length)
                self._selector.update(ids, means)

    def restore(self, chunks: list[Chunk], places: np.ndarray) -> list[Chunk]:
        """Start with stored chunks and the places of their items, oldest first."""
        for chunk in chunks:
            self._enter(chunk)
        self.order = max([chunk.last_order for chunk in chunks], default=0)
        ids = self.ring.tail + np.arange(len(places))
        for number, rows, part in _by_chunk(places, ids):
            chunk = self.chunks[number]
            chunk.live = len(rows)
            if chunk.items is not None:
                chunk.items[rows] = part
        dropped = self._evict(self.ring.fill(places).tolist()) + self._drop_stale()
        self.reprioritize([(x, 0, x.count) for x in self.chunks.values()])
        return dropped

    def discard(self, chunk: Chunk) -> bool:
        """Drop a damaged chunk; False if it is not there any more.

        Items that need it become copies of others, drawn at random, since ids have no
        holes. Steps that follow do not continue those before.
        """
        if self.chunks.get(chunk.number) is not chunk:
            return False
        self.writer(chunk.header.worker).interrupt(chunk)
        ids = np.arange(self.ring.head, self.ring.tail)
        places = self.ring[ids]
        bad = self._touching(chunk, places)
        if bad.all():
            self.ring.clear()
            self.queue.clear()
            self._selector.change(self.ring.head, self.ring.tail)
        elif bad.any():
            rng = np.random.default_rng(chunk.number)
            other = rng.choice(places[~bad], np.count_nonzero(bad))
            self.ring.move(ids[bad], other)
            self._count_live(other, 1)
        self._count_live(places[bad], -1)
        self._drop(chunk)
        return True

    def _touching(self, chunk: Chunk, places: np.ndarray) -> np.ndarray:
        """Which items hold a step of a chunk."""
        numbers, rows = places >> ROW_BITS, places & ROW_MASK
        found = numbers == chunk.number
        reach, previous = self._length - 1, chunk.prev
        while reach > 0 and previous is not None:
            found |= (numbers == previous.number) & (rows >= previous.size - reach)
            reach, previous = reach - previous.size, previous.prev
        return found

    def _count_live(self, places: np.ndarray, change: int) -> None:
        numbers, counts = np.unique(places >> ROW_BITS, return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self.chunks[number].live += change * count

    def _new_item(self, writer: Writer) -> int:
        """The place of the next item, whose id is the tail of the ring."""
        chunk, row = writer.next_window()
        chunk.live += 1
        if chunk.items is not None:
            chunk.items[row] = self.ring.tail
        if self._online and writer.fresh >= self._length:
            self.queue.append(self.ring.tail)
            writer.fresh = 0
        return chunk.number << ROW_BITS | row

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
            chunk = self.chunks[place >> ROW_BITS]
            chunk.live -= 1
            if chunk.live == 0 and not chunk.pending:
                dropped.append(self._drop(chunk))
        return dropped

    def _drop_stale(self) -> list[Chunk]:
        """Drop chunks without items that are older than `capacity` steps.

        They hold a stream that ended before its first full window, or the tail of an
        inactive one.
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
    numbers, rows = places >> ROW_BITS, places & ROW_MASK
    order = np.argsort(numbers, kind="stable")
    unique, starts = np.unique(numbers[order], return_index=True)
    for number, part in zip(unique, np.split(order, starts[1:]), strict=False):
        yield int(number), rows[part], ids[part]
