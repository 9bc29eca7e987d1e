"""Metrics as JSON lines: all scalars in `metrics.jsonl`, scores in `scores.jsonl`."""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Summary = tuple[int, str, Any]  # Step, name, value.

SCORE = "episode/score"


class JSONLOutput:
    """Appends one object per step; a value that is not finite is written as null.

    Each write is a single append, so that a killed run leaves at most one torn line,
    which the next start removes.
    """

    def __init__(self, logdir: str | os.PathLike):
        directory = pathlib.Path(logdir)
        directory.mkdir(parents=True, exist_ok=True)
        self._metrics = directory / "metrics.jsonl"
        self._scores = directory / "scores.jsonl"
        for path in (self._metrics, self._scores):
            repair(path)

    def __call__(self, summaries: Sequence[Summary]) -> None:
        scalars = [s for s in summaries if is_scalar(s[2])]
        _append(self._metrics, _rows(scalars))
        _append(self._scores, _rows(s for s in scalars if s[1] == SCORE))

    def save(self) -> dict[str, int]:
        """How much was written."""
        return {path.name: _size(path) for path in (self._metrics, self._scores)}

    def load(self, data: dict[str, int]) -> None:
        """Take back what was written since."""
        for path in (self._metrics, self._scores):
            if _size(path) > data[path.name]:
                os.truncate(path, data[path.name])


def repair(path: pathlib.Path) -> int:
    """Cut an unfinished last line off a file; returns the bytes removed."""
    if not path.exists():
        return 0
    content = path.read_bytes()
    keep = content.rfind(b"\n") + 1
    if keep < len(content):
        os.truncate(path, keep)
    return len(content) - keep


def _size(path: pathlib.Path) -> int:
    return path.stat().st_size if path.exists() else 0


def is_scalar(value: Any) -> bool:
    """Whether a metric is one number."""
    return not isinstance(value, str) and np.ndim(value) == 0


def _rows(summaries: Iterable[Summary]) -> list[dict[str, Any]]:
    """Group metrics by step; a name that comes twice at a step starts another row."""
    rows: list[dict[str, Any]] = []
    for step, name, value in summaries:
        number = np.asarray(value).item()
        if not rows or rows[-1]["step"] != step or name in rows[-1]:
            rows.append({"step": int(step)})
        rows[-1][name] = number if math.isfinite(number) else None
    return rows


def _append(path: pathlib.Path, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
    with path.open("a") as file:
        file.write(text)
