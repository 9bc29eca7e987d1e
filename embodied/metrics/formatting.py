"""Formats numbers, durations and names of metrics for display."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

BLOCKS = "▁▂▃▄▅▆▇█"
DAY = 86400


class Column(NamedTuple):
    """How a well-known metric is shown."""

    label: str
    unit: str = ""


# In the order in which they are shown; others follow by name.
COLUMNS = {
    "episode/score": Column("score"),
    "episode/length": Column("length", "steps"),
    "eval/episode/score": Column("eval score"),
    "eval/episode/length": Column("eval length", "steps"),
    "fps/policy": Column("policy", "env steps/s"),
    "fps/train": Column("train", "replayed steps/s"),
    "fps/env": Column("env alone", "env steps/s"),
    "eval/fps/policy": Column("eval policy", "env steps/s"),
    "train/loss/total": Column("loss"),
    "replay/items": Column("replay", "sequences"),
}


def in_order(names: Iterable[str]) -> list[str]:
    """The well-known ones first, in fixed order."""
    names = set(names)
    known = [name for name in COLUMNS if name in names]
    return [*known, *sorted(names - set(known))]


def named(name: str, value: float) -> str:
    """A metric with its label, value and unit."""
    column = COLUMNS.get(name, Column(name))
    return " ".join(filter(None, (column.label, number(value), column.unit)))


def number(value: float) -> str:
    """About three digits, thousands separated."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1e9:
        return f"{value:.3g}"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """0:42, 1:02:03 or 3 d 4:05."""
    if seconds > 99 * DAY:
        return "more than 99 d"
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days} d {hour}:{minute:02}"
    if hours:
        return f"{hour}:{minute:02}:{second:02}"
    return f"{minute}:{second:02}"


def sparkline(points: Sequence[float]) -> str:
    """A curve as a row of blocks, from the lowest to the highest point."""
    if not points:
        return ""
    low, high = min(points), max(points)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((point - low) * scale)] for point in points)
