"""Metrics as JSON lines: all scalars in `metrics.jsonl`, scores in `scores.jsonl`."""

from __future__ import annotations

import errno
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import elements
import numpy as np

from embodied.core import runfiles
from embodied.metrics.summary import Summary, group, is_scalar

SCORE = "episode/score"
BLOCK = 1 << 16  # Bytes read at a time to find the end of the last whole line.


class JSONLOutput:
    """Appends one object per step, with `time`, when it was written, in Unix seconds.

    A value that is not finite is written as null. Each write is a single append, so
    that a killed run leaves at most one torn line, which the next start removes.
    """

    atomic = True  # A call that fails has written nothing.

    def __init__(
        self, logdir: str | os.PathLike, clock: Callable[[], float] = time.time
    ):
        self._clock = clock
        directory = pathlib.Path(logdir)
        directory.mkdir(parents=True, exist_ok=True)
        self._metrics = directory / runfiles.METRICS
        self._scores = directory / runfiles.SCORES
        for path in (self._metrics, self._scores):
            if cut := repair(path):
                _tell(f"Cut an unfinished line of {cut:,} bytes off {path}.")

    def __call__(self, summaries: Sequence[Summary]) -> None:
        scalars = [s for s in summaries if is_scalar(s[2])]
        now, before = round(self._clock(), 3), self.save()
        try:
            _append(self._metrics, _rows(scalars, now))
            _append(self._scores, _rows((s for s in scalars if s[1] == SCORE), now))
        except OSError:
            self.load(before)  # All or nothing, so that it can be repeated.
            raise

    def save(self) -> dict[str, int]:
        """How much was written."""
        return {path.name: _size(path) for path in (self._metrics, self._scores)}

    def load(self, data: dict[str, int]) -> None:
        """Truncate to what was written at `save`."""
        for path in (self._metrics, self._scores):
            size, written = _size(path), data[path.name]
            if size > written:
                os.truncate(path, written)
            elif size < written:
                _tell(
                    f"{path} lost {written - size:,} of {written:,} bytes since the "
                    "last checkpoint: rows are missing; restore it from a copy if you "
                    "have one, with the run stopped."
                )


def read_rows(path: pathlib.Path, last: int | None = None) -> list[dict[str, Any]]:
    """Rows of a file, or those in its `last` bytes; none without a file.

    Leaves out a torn line and lines that are damaged: `dreamerv3 view` counts them.
    """
    try:
        with path.open("rb") as file:
            start = max(0, path.stat().st_size - last) if last else 0
            file.seek(start)
            lines = file.read().split(b"\n")[1 if start else 0 : -1]
    except FileNotFoundError:
        return []
    return [row for row in map(_parse, lines) if row is not None]


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
        return row if isinstance(row["step"], int | float) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def repair(path: pathlib.Path) -> int:
    """Cut an unfinished last line off a file; returns the bytes removed."""
    size = _size(path)
    keep = size
    while keep:
        start = max(0, keep - BLOCK)
        with path.open("rb") as file:
            file.seek(start)
            found = file.read(keep - start).rfind(b"\n")
        keep = start + found + 1  # Without a newline, the start of the block.
        if found >= 0:
            break
    if keep < size:
        os.truncate(path, keep)
    return size - keep


def _tell(text: str) -> None:
    elements.print(text, color="yellow", flush=True)


def _size(path: pathlib.Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _rows(summaries: Iterable[Summary], now: float) -> list[dict[str, Any]]:
    rows = []
    for step, metrics in group(summaries):
        numbers = {name: np.asarray(value).item() for name, value in metrics.items()}
        finite = {k: v if math.isfinite(v) else None for k, v in numbers.items()}
        rows.append({"step": step, "time": now, **finite})
    return rows


def _append(path: pathlib.Path, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()
    with path.open("ab", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        written = 0
        try:
            written = file.write(text)
        finally:
            if written < len(text):
                file.truncate(size)
        if written < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
