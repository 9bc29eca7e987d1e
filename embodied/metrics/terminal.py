"""Terminal output: plain lines, or a live view."""

from __future__ import annotations

import pathlib
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TextIO

from embodied.core import runfiles
from embodied.metrics import formatting, panel
from embodied.metrics.health import Group, Roles
from embodied.metrics.jsonl import SCORE, read_rows
from embodied.metrics.screen import Screen
from embodied.metrics.status import Status
from embodied.metrics.summary import Summary

REFRESH = 1.0  # Seconds between drawings if nothing comes in.
HISTORY = 1 << 20  # Bytes of earlier scores that the curve begins with.


class TerminalOutput:
    """One line per write with the mean of each matching scalar, then texts.

    `waiting` says what a run waits for, before its first line and before it trains.
    """

    def __init__(
        self,
        pattern: str = ".*",
        limit: int = 12,
        file: TextIO | None = None,
        status: Status | None = None,
        waiting: Callable[[Status], str] | None = None,
    ):
        self._status = status or Status(pattern)
        self._limit = limit
        self._file = file
        self._waiting = waiting
        if text := self._awaited():
            self._print(f"Waiting: {text}.")

    def __call__(self, summaries: Sequence[Summary]) -> None:
        names = self._status.add(summaries)
        texts = [name for name in names if name in self._status.texts]
        numbers = formatting.in_order(set(names) - set(texts))
        if numbers:
            step = max(step for step, _, _ in summaries)
            self._print_numbers(step, numbers)
        for name in texts:
            self._print(f"{name}: {self._status.texts[name]}")

    def _awaited(self) -> str:
        return self._waiting(self._status) if self._waiting else ""

    def _print_numbers(self, step: int, names: Sequence[str]) -> None:
        metrics, awaited = self._status.metrics, self._awaited()
        if awaited:  # That nothing moves needs no numbers.
            names = [n for n in names if metrics[n] or not n.startswith("fps/")]
        shown = [formatting.named(name, metrics[name]) for name in names[: self._limit]]
        if len(names) > self._limit:
            shown.append(f"(+{len(names) - self._limit} more, see {runfiles.METRICS})")
        if awaited:
            shown.append(f"waiting {awaited}")
        elapsed = formatting.duration(self._status.elapsed)
        self._print("  ".join([f"step {step:,}", elapsed, *shown]))

    def _print(self, line: str) -> None:
        print(line, file=self._file or sys.stdout, flush=True)


class LiveOutput:
    """A view at the bottom of the terminal, drawn anew when metrics or time pass.

    `waiting` says what a run waits for, before its first steps and before it trains.
    A terminal that is gone is an error of the next write.
    """

    def __init__(
        self,
        status: Status,
        logdir: str = "",
        waiting: Callable[[Status], str] | None = None,
        supervised: bool = False,
        file: TextIO | None = None,
    ):
        self._status = status
        self._logdir = logdir
        self._waiting = waiting
        self._screen = Screen(file)
        path = pathlib.Path(logdir)
        self._roles = Roles(path / runfiles.ROLES) if supervised else None
        self._groups: list[Group] = []
        self._changed = threading.Event()
        self._closed = False
        self._error: OSError | None = None
        _read_scores(path / runfiles.SCORES, status)
        self._screen.draw(self._render())
        self._thread = threading.Thread(target=self._loop, name="view", daemon=True)
        self._thread.start()

    def __call__(self, summaries: Sequence[Summary]) -> None:
        if self._error:
            raise self._error
        if self._status.add(summaries):
            self._changed.set()

    def close(self) -> None:
        """Print the last state as ordinary output."""
        if not self._closed:
            self._closed = True
            self._changed.set()
            self._thread.join(10)
            self._screen.close(self._render(ended=True))

    def _loop(self) -> None:
        try:
            while not self._closed:
                self._changed.wait(REFRESH)
                self._changed.clear()
                if not self._closed:
                    self._screen.draw(self._render())
        except OSError as error:
            self._error = error

    def _render(self, ended: bool = False) -> list[str]:
        self._status.tick()
        if self._roles:
            self._groups = self._roles.groups()
        waiting = self._waiting(self._status) if self._waiting else ""
        console = panel.make_console(self._screen.width)
        return panel.render(
            console, self._status, self._groups, self._logdir, waiting, ended
        )


def _read_scores(path: pathlib.Path, status: Status) -> None:
    """Start the curve with the earlier episodes of a resumed run."""
    for row in read_rows(path, last=HISTORY):
        if (score := row.get(SCORE)) is not None:
            status.add_score(score)
