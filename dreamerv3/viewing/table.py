"""Metrics of one file as columns: which rows have a metric, and its values there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np

MOST = 10_000  # Metrics of a run.
LONGEST = 200  # Letters of a metric's name.
BLOCK = 64  # Values summarised by one entry of the coarse level.


class Growable:
    """An array that grows; a view taken before stays valid, so readers need no lock."""

    def __init__(self, dtype: Any, data: np.ndarray | None = None):
        self._data = np.empty(0, dtype) if data is None else data
        self._size = len(self._data)

    def __len__(self) -> int:
        return self._size

    def view(self) -> np.ndarray:
        """All values so far."""
        return self._data[: self._size]

    def extend(self, values: np.ndarray) -> None:
        """Append; only one thread may."""
        size = self._size + len(values)
        if size > len(self._data):
            data = np.empty(max(size, 16, len(self._data) * 3 // 2), self._data.dtype)
            data[: self._size] = self.view()
            self._data = data
        self._data[self._size : size] = values
        self._size = size


class Column:
    """One metric: row numbers, values, and mean, minimum and maximum of each block."""

    DTYPES: ClassVar[dict[str, str]] = {
        "rows": "<u4",
        "values": "<f4",
        "mean": "<f4",
        "low": "<f4",
        "high": "<f4",
    }

    def __init__(self, parts: dict[str, np.ndarray] | None = None):
        parts = parts or {}
        self.parts = {k: Growable(d, parts.get(k)) for k, d in self.DTYPES.items()}

    def __len__(self) -> int:
        return min(len(self.parts["rows"]), len(self.parts["values"]))

    def extend(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Append values and summarise the blocks that are complete now."""
        self.parts["rows"].extend(rows)
        self.parts["values"].extend(values)
        done = len(self.parts["mean"])
        ready = len(self) // BLOCK
        if ready > done:
            part = self.parts["values"].view()[done * BLOCK : ready * BLOCK]
            mean, low, high = summarise(part.reshape(-1, BLOCK))
            self.parts["low"].extend(low)
            self.parts["high"].extend(high)
            self.parts["mean"].extend(mean)  # Last: readers go by its length.


class Points(NamedTuple):
    """Values of a metric in the order of their rows; each stands for `weight` many."""

    rows: np.ndarray  # [n] row numbers
    mean: np.ndarray  # [n]
    low: np.ndarray  # [n]
    high: np.ndarray  # [n]
    weight: np.ndarray  # [n]


class Table:
    """Rows with a step and a time, and a column for each metric."""

    def __init__(self) -> None:
        self.steps = Growable(np.dtype("<f8"))
        self.times = Growable(np.dtype("<f8"))  # Unix seconds; NaN in older files.
        self.columns: dict[str, Column] = {}
        self.bad = 0  # Lines that are no JSON object with a step.
        self.problem = ""  # What is wrong with the first of them.
        self.count = 0  # Values in all columns.

    def add_lines(self, lines: Iterable[bytes], skip: frozenset[str]) -> None:
        """Append rows, without the metrics to skip; bad lines are counted."""
        steps: list[float] = []
        times: list[float] = []
        found: dict[str, tuple[list[int], list[Any]]] = {}
        number = len(self.steps)
        for line in lines:
            try:
                row = parse(line)
            except ValueError as error:
                self.bad += 1
                self.problem = self.problem or str(error)
                continue
            steps.append(row.pop("step"))
            times.append(row.pop("time", np.nan))
            for name, value in row.items():
                try:
                    entry = found[name]
                except KeyError:
                    entry = found[name] = ([], [])
                entry[0].append(number)
                entry[1].append(value)
            number += 1
        # Rows first, so that a reader never sees a value without its row.
        self.times.extend(floats(times, np.float64))
        self.steps.extend(floats(steps, np.float64))
        for name, (rows, values) in found.items():
            if name not in skip:
                self._extend(name, np.array(rows, np.uint32), values)

    def _extend(self, name: str, rows: np.ndarray, values: list[Any]) -> None:
        column = self.columns.get(name)
        if column is None and (len(self.columns) >= MOST or len(name) > LONGEST):
            self.problem = self.problem or f"more than {MOST:,} metrics, or long names"
            return
        column = column or Column()
        column.extend(rows, floats(values, np.float32))
        self.columns[name] = column
        self.count += len(values)

    def axis(self, name: str, start: float) -> np.ndarray:
        """What is plotted along x for every row: steps, or seconds since `start`."""
        if name == "step":
            return self.steps.view()
        return self.times.view()[: len(self.steps)] - start

    def points(self, name: str, first: int, last: int, most: int) -> Points:
        """Values in rows first to last; blocks of them if they are more than `most`."""
        column = self.columns[name]
        size = len(column)
        rows = column.parts["rows"].view()[:size]
        values = column.parts["values"].view()[:size]
        begin, end = np.searchsorted(rows, [first, last])
        if end - begin <= most:
            part = values[begin:end]
            return Points(rows[begin:end], part, part, part, np.ones(len(part)))
        low, high = -(-begin // BLOCK), min(end // BLOCK, len(column.parts["mean"]))
        mean, least, greatest = (
            column.parts[part].view()[low:high] for part in ("mean", "low", "high")
        )
        middle = rows[low * BLOCK + BLOCK // 2 : high * BLOCK : BLOCK]
        rest = values[high * BLOCK : end]  # Less than a block, or not summarised yet.
        weight = np.concatenate([np.full(len(mean), BLOCK), np.ones(len(rest))])
        return Points(
            np.concatenate([middle, rows[high * BLOCK : end]]),
            np.concatenate([mean, rest]),
            np.concatenate([least, rest]),
            np.concatenate([greatest, rest]),
            weight,
        )


def parse(line: bytes) -> dict[str, Any]:
    """The row in a line; a ValueError says what else it is."""
    try:
        row = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError:
        raise ValueError("no JSON") from None
    if not isinstance(row, dict):
        raise ValueError("no JSON object")
    step = row.get("step")
    if not isinstance(step, int | float) or not abs(step) < 2**63:
        raise ValueError("no step")
    return row


def floats(values: list[Any], dtype: Any) -> np.ndarray:
    """Numbers as they are; null, "NaN" and whatever is no number become NaN."""
    with np.errstate(over="ignore"):
        try:
            array = np.array(values, dtype)
        except (TypeError, ValueError, OverflowError):
            array = np.empty((0, 0))
        if array.ndim == 1:
            return array
        return np.array([_number(value) for value in values], dtype)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def summarise(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, minimum and maximum of each row, without what is not finite."""
    finite = np.isfinite(blocks)
    count = finite.sum(1)
    total = np.where(finite, blocks, 0).sum(1, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        mean = total / count
    low = np.where(finite, blocks, np.inf).min(1)
    high = np.where(finite, blocks, -np.inf).max(1)
    empty = count == 0
    low[empty] = high[empty] = np.nan
    return mean.astype(np.float32), low, high
