"""Which values the rows of a batch may have: finite, and within their space."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


class Bounds:
    """The smallest and largest values of a key, for each element.

    A batch costs two reductions over its rows. Only if they show that something is
    wrong are the rows looked at.
    """

    def __init__(self, key: str, low: np.ndarray, high: np.ndarray):
        self.key = key
        self._low, self._high = low, high  # Both allowed.
        # Bounds within which all elements may be; most spaces have no narrower ones.
        self._least, self._most = low.max().item(), high.min().item()

    def hold(self, values: np.ndarray) -> bool:
        """Whether all rows are allowed; a value that is not a number never is."""
        low, high = values.min(), values.max()
        if low >= self._least and high <= self._most:
            return True
        low, high = np.minimum.reduce(values), np.maximum.reduce(values)
        return bool((low >= self._low).all() and (high <= self._high).all())

    def faults(self, values: np.ndarray) -> Iterator[tuple[int, str]]:
        """Rows that are not allowed, and what is wrong with the first value there."""
        wrong = ~((values >= self._low) & (values <= self._high))
        for row in np.flatnonzero(wrong.reshape(len(wrong), -1).any(1)).tolist():
            place = np.unravel_index(int(wrong[row].argmax()), wrong[row].shape)
            value = values[row][place]
            name = f"'{self.key}'{[*map(int, place)] if place else ''}"
            if np.isfinite(value):
                low = np.broadcast_to(self._low, wrong[row].shape)[place]
                high = np.broadcast_to(self._high, wrong[row].shape)[place]
                yield row, f"{name} is {value}, its space allows {low} to {high}"
            else:
                yield row, f"{name} is {value}, which is not a finite number"


def of_space(key: str, space: Any) -> Bounds | None:
    """Bounds of a space; none if its type has no other values, or it has no bounds.

    Integers exclude the upper bound, unless it is the largest number of the type.
    """
    if not hasattr(space, "low") or space.dtype == bool:
        return None
    dtype = np.dtype(space.dtype)
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    low, high = np.asarray(space.low), np.asarray(space.high)
    if dtype.kind == "f":
        low, high = np.maximum(low, limits.min), np.minimum(high, limits.max)
    else:
        high = np.where(high == limits.max, high, high - 1)
        if (low == limits.min).all() and (high == limits.max).all():
            return None
    return Bounds(key, low.astype(dtype), high.astype(dtype))
