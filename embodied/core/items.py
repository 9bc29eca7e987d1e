"""The items of a replay in order of insertion, as a ring that grows to its capacity."""

from __future__ import annotations

import numpy as np

ROW_BITS = 32


class ItemRing:
    """Where each item starts, by item id.

    Ids count up from 1 for ever; those in [head, tail) are there. A place is a chunk
    number and a row packed into one integer: 8 bytes per item are all the replay needs
    beyond the steps themselves.
    """

    def __init__(self, capacity: int, initial: int = 1024):
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.capacity = capacity
        self.head = 1
        self.tail = 1
        self._places = np.zeros(min(capacity, initial), np.int64)

    def __len__(self) -> int:
        return self.tail - self.head

    def extend(self, places: np.ndarray) -> np.ndarray:
        """Append items and return the places of those evicted to make room."""
        excess = max(0, len(self) + len(places) - self.capacity)
        old = min(excess, len(self))
        evicted = self[np.arange(self.head, self.head + old)]
        evicted = np.concatenate([evicted, places[: excess - old]])
        self.head += excess
        self.tail = max(self.tail, self.head)
        kept = places[excess - old :]
        self._grow(len(self) + len(kept))
        slots = np.arange(self.tail, self.tail + len(kept)) % len(self._places)
        self._places[slots] = kept
        self.tail += len(kept)
        return evicted

    def __getitem__(self, ids: np.ndarray) -> np.ndarray:
        return self._places[ids % len(self._places)]

    def _grow(self, needed: int) -> None:
        if needed <= len(self._places):
            return
        ids = np.arange(self.head, self.tail)
        places = self[ids]
        size = min(self.capacity, max(needed, 2 * len(self._places)))
        self._places = np.zeros(size, np.int64)
        self._places[ids % size] = places


def pack(number: int, row: np.ndarray | int) -> np.ndarray | int:
    """Chunk number and row as one integer."""
    return (number << ROW_BITS) | row


def unpack(place: int) -> tuple[int, int]:
    """Chunk number and row of a place."""
    return place >> ROW_BITS, place & ((1 << ROW_BITS) - 1)
