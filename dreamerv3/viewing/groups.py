"""Curves of runs that differ only by their seed, together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dreamerv3.viewing import curves
from dreamerv3.viewing.store import Axis, RunData

DETAIL = 4000  # Points of a run that its bins are made from.
FINAL = 0.1  # Part of the bins at the end that is the final score.


class Group(NamedTuple):
    """One method on one task; n bins along x."""

    task: str
    method: str
    x: np.ndarray  # [n]
    seeds: np.ndarray  # [seed, n], NaN where a run has no values
    mean: np.ndarray  # [n]
    std: np.ndarray  # [n]

    def final(self) -> np.ndarray:
        """Mean of each seed over its last bins."""
        last = max(1, round(len(self.x) * FINAL))
        rows = [row[np.isfinite(row)][-last:] for row in self.seeds]
        return np.array([row.mean() for row in rows if len(row)])


def split(
    runs: Sequence[RunData], key: str, axis: str = "step"
) -> tuple[list[RunData], list[RunData]]:
    """Runs that have the metric along the axis, and runs that do not."""
    having: list[RunData] = []
    without: list[RunData] = []
    for data in runs:
        kept = np.isfinite(data.extent(key, axis)).all()
        (having if kept else without).append(data)
    return having, without


def collect(
    runs: Sequence[RunData], key: str, axis: str = "step", bins: int = 60
) -> list[Group]:
    """Groups by task, then method; runs without the metric are left out."""
    having, _ = split(runs, key, axis)
    names = sorted({(data.run.task, data.run.method) for data in having})
    grids = {task: _grid(having, task, key, axis, bins) for task, _ in names}
    return [
        _group(having, task, method, key, axis, grids[task]) for task, method in names
    ]


def _grid(
    runs: Sequence[RunData], task: str, key: str, axis: str, bins: int
) -> np.ndarray:
    """Centres of equal bins that hold all values of a task."""
    ends = np.array([d.extent(key, axis) for d in runs if d.run.task == task])
    edges = np.linspace(ends[:, 0].min(), ends[:, 1].max(), bins + 1)
    return (edges[1:] + edges[:-1]) / 2


def _group(
    runs: Sequence[RunData], task: str, method: str, key: str, axis: str, x: np.ndarray
) -> Group:
    members = [d for d in runs if (d.run.task, d.run.method) == (task, method)]
    rows = []
    for data in members:
        curve = data.curve(key, Axis(axis, *data.extent(key, axis), DETAIL))
        rows.append(curves.on_grid(curve.x, curve.mean, x))
    seeds = np.stack(rows)
    return Group(task, method, x, seeds, *curves.band(seeds))
