"""Metrics as plain lines for people, one line per write."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TextIO

import numpy as np

from embodied.metrics.jsonl import Summary, is_scalar


class TerminalOutput:
    """Prints the mean of each scalar whose name contains a match of `pattern`."""

    def __init__(
        self, pattern: str = ".*", limit: int = 12, file: TextIO | None = None
    ):
        self._pattern = re.compile(pattern)
        self._limit = limit
        self._file = file

    def __call__(self, summaries: Sequence[Summary]) -> None:
        groups: dict[str, list[float]] = {}
        for _, name, value in summaries:
            if is_scalar(value) and self._pattern.search(name):
                groups.setdefault(name, []).append(np.asarray(value).item())
        if not groups:
            return
        step = max(step for step, _, _ in summaries)
        shown = [f"{k} {_format(float(np.mean(v)))}" for k, v in groups.items()]
        hidden = len(shown) - self._limit
        text = "  ".join(shown[: self._limit])
        if hidden > 0:
            text += f"  (+{hidden} more, see metrics.jsonl)"
        print(f"step {step:,}  {text}", file=self._file or sys.stdout, flush=True)


def _format(number: float) -> str:
    if number == int(number) and abs(number) < 1e6 if np.isfinite(number) else False:
        return str(int(number))
    return f"{number:.3g}"
