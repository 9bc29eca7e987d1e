"""Numerics of curves: fewer points for drawing, common grids, mean and deviation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dreamerv3.viewing.table import Points, Table


class Curve(NamedTuple):
    """Points to draw, in order of x."""

    x: np.ndarray  # [n]
    mean: np.ndarray  # [n]
    low: np.ndarray  # [n]
    high: np.ndarray  # [n]


EMPTY = Curve(*(np.empty(0) for _ in Curve._fields))


def extent(table: Table, name: str, axis: str, start: float) -> tuple[float, float]:
    """First and last x of a metric; NaN if it has none."""
    if name not in table.columns:
        return np.nan, np.nan
    rows = table.columns[name].parts["rows"].view()  # Before x, which may grow.
    x = table.axis(axis, start)
    first, last = x[rows[0]], x[rows[-1]]
    if np.isfinite(first) and np.isfinite(last) and in_order(x):
        return float(first), float(last)
    every = x[rows][np.isfinite(x[rows])]
    return (every.min(), every.max()) if len(every) else (np.nan, np.nan)


def curve(
    table: Table,
    name: str,
    axis: str,
    start: float,
    limits: tuple[float, float],
    amount: int,
) -> Curve:
    """The values between two limits of x as at most `amount` points."""
    if name not in table.columns:
        return EMPTY
    x = table.axis(axis, start)
    low, high = limits
    if len(x) and in_order(x):
        # One point further on both sides, so that lines run out of the picture.
        first = max(0, int(np.searchsorted(x, low, "left")) - 1)
        last = min(len(x), int(np.searchsorted(x, high, "right")) + 1)
        points = table.points(name, first, last, 2 * 64 * amount)
        return reduce(x[points.rows], points, limits, amount)
    points = table.points(name, 0, len(x), np.iinfo(np.int64).max)
    own = x[points.rows]
    inside = np.flatnonzero((own >= low) & (own <= high))
    order = inside[np.argsort(own[inside], kind="stable")]
    points = Points(*(part[order] for part in points))
    return reduce(own[order], points, limits, amount)


def in_order(x: np.ndarray) -> bool:
    """Whether x never falls and has no gaps, as in every run that was not set back."""
    return bool(np.all(x[1:] >= x[:-1]) and np.isfinite(x[0]))


def reduce(
    x: np.ndarray, points: Points, limits: tuple[float, float], amount: int
) -> Curve:
    """Average what falls into the same of `amount` equal parts between the limits."""
    if len(x) <= amount:
        parts = (x, points.mean, points.low, points.high)
        return Curve(*(part.astype(np.float64) for part in parts))
    low, high = limits
    scale = amount / max(high - low, 1e-12)
    place = np.clip((x - low) * scale, 0, amount - 1).astype(np.int64)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(place)) + 1])
    finite = np.isfinite(points.mean)
    weight = np.where(finite, points.weight, 0)
    total = np.add.reduceat(np.where(finite, points.mean, 0) * weight, starts)
    with np.errstate(invalid="ignore"):
        mean = total / np.add.reduceat(weight, starts)
    least = np.fmin.reduceat(_finite(points.low), starts)
    most = np.fmax.reduceat(_finite(points.high), starts)
    counts = np.add.reduceat(points.weight, starts)
    middle = np.add.reduceat(x * points.weight, starts) / counts
    return Curve(middle, mean, least.astype(np.float64), most.astype(np.float64))


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)


def on_grid(x: np.ndarray, y: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Mean of y in each bin around the grid's points; between, straight lines.

    Before a run's first and after its last value there is NaN.
    """
    keep = np.isfinite(x) & np.isfinite(y)
    x, y = x[keep], y[keep]
    if not len(x):
        return np.full(len(grid), np.nan)
    edges = (grid[1:] + grid[:-1]) / 2
    place = np.searchsorted(edges, x, "right")
    count = np.bincount(place, minlength=len(grid))
    total = np.bincount(place, weights=y, minlength=len(grid))
    filled = np.flatnonzero(count)
    return np.interp(
        grid, grid[filled], total[filled] / count[filled], left=np.nan, right=np.nan
    )


def band(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over seeds [seed, n], of those that have a value."""
    finite = np.isfinite(rows)
    count = finite.sum(0)
    filled = np.where(finite, rows, 0)
    with np.errstate(invalid="ignore"):
        mean = filled.sum(0) / count
        variance = (np.where(finite, rows - mean, 0) ** 2).sum(0) / count
    return mean, np.sqrt(variance)
