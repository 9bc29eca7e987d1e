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

    def append(self, place: int) -> int | None:
        """Append an item and return the place of the one evicted for it, if any."""
        evicted = None
        if self.tail - self.head == self.capacity:
            evicted = int(self._places[self.head % len(self._places)])
            self.head += 1
        elif self.tail - self.head == len(self._places):
            self._grow(2 * len(self._places))
        self._places[self.tail % len(self._places)] = place
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
        self._places[np.arange(self.head, self.tail) % len(self._places)] = places[
            excess:
        ]
        return places[:excess]

    def __getitem__(self, ids: np.ndarray) -> np.ndarray:
        return self._places[ids % len(self._places)]

    def _grow(self, needed: int) -> None:
        if needed > len(self._places):
            ids = np.arange(self.head, self.tail)
            places = self[ids]
            self._places = np.zeros(min(self.capacity, needed), np.int64)
            self._places[ids % len(self._places)] = places


def pack(number: int, row: np.ndarray | int) -> np.ndarray | int:
    """Chunk number and row as one integer."""
    return (number << ROW_BITS) | row


def unpack(place: int) -> tuple[int, int]:
    """Chunk number and row of a place."""
    return place >> ROW_BITS, place & ((1 << ROW_BITS) - 1)
