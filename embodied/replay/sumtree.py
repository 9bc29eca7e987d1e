"""A sum tree over numpy arrays: draws, reads and writes many leaves at a time."""

from __future__ import annotations

import numpy as np


class SumTree:
    """Non-negative values in a ring of leaves, drawn in proportion to their value.

    All levels live in one array with the root at 1 and the children of `n` at `2 n` and
    `2 n + 1`. Sums are recomputed from the children, so rounding does not add up.
    """

    def __init__(self, leaves: int):
        self.leaves = 1 << max(0, leaves - 1).bit_length()
        self._sums = np.zeros(2 * self.leaves, np.float64)

    @property
    def total(self) -> float:
        """Sum of all values."""
        return float(self._sums[1])

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        return self._sums[self.leaves + index]

    def __setitem__(self, index: np.ndarray, values: np.ndarray | float) -> None:
        nodes = self.leaves + np.asarray(index)
        self._sums[nodes] = values
        while nodes.size and nodes.flat[0] > 1:
            nodes = np.unique(nodes >> 1)
            self._sums[nodes] = self._sums[2 * nodes] + self._sums[2 * nodes + 1]

    def draw(self, uniform: np.ndarray) -> np.ndarray:
        """Leaves for random numbers in [0, 1). The total must not be zero."""
        nodes = np.ones(uniform.shape, np.int64)
        rest = uniform * self._sums[1]
        while nodes.size and nodes.flat[0] < self.leaves:
            nodes = 2 * nodes
            left = self._sums[nodes]
            # Rounding may leave a remainder above an empty right subtree; avoid it.
            right = (rest >= left) & (self._sums[nodes + 1] > 0)
            rest = np.where(right, rest - left, np.minimum(rest, left))
            nodes += right
        return nodes - self.leaves

    def resized(self, leaves: int, ids: np.ndarray) -> SumTree:
        """A larger tree with the values of `ids` moved to their new leaves."""
        other = SumTree(leaves)
        other[ids % other.leaves] = self[ids % self.leaves]
        return other
