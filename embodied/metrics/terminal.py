"""Metrics as plain lines for people, one line per write."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TextIO

import numpy as np

from embodied.metrics.summary import Summary, is_scalar


class TerminalOutput:
    """Prints texts and the mean of each scalar whose names contain a match."""

    def __init__(
        self, pattern: str = ".*", limit: int = 12, file: TextIO | None = None
    ):
        self._pattern = re.compile(pattern)
        self._limit = limit
        self._file = file

    def __call__(self, summaries: Sequence[Summary]) -> None:
        groups: dict[str, list[float]] = {}
        texts: dict[str, str] = {}
        for _, name, value in summaries:
            if not self._pattern.search(name):
                continue
            if isinstance(value, str):
                texts[name] = value
            elif is_scalar(value):
                groups.setdefault(name, []).append(np.asarray(value).item())
        if groups:
            self._print_numbers(max(step for step, _, _ in summaries), groups)
        for name, text in texts.items():
            print(f"{name}: {text}", file=self._file or sys.stdout, flush=True)

    def _print_numbers(self, step: int, groups: dict[str, list[float]]) -> None:
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
