"""The lowest rows of a terminal as a view that other processes cannot tear.

The rows above are the scrolling region of the terminal, so that output of any process
scrolls there. Each drawing is one write that restores the cursor position; the cursor
is never hidden.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TextIO

SAVE, LOAD = "\x1b7", "\x1b8"  # Of the cursor.
CLEAR_LINE, CLEAR_BELOW = "\x1b[2K", "\x1b[J"
DOWN = "\x1bD"  # One row down in the same column; scrolls at the end.
# Moving the ends of the region moves the cursor, so it is kept.
RESTORE = f"{SAVE}\x1b[r{LOAD}{CLEAR_BELOW}"
ABOVE = 4  # Rows that are left to what is printed, at least.

_held: set[Screen] = set()


class Screen:
    """Draws lines into the lowest rows, as many as there have been at most."""

    def __init__(self, file: TextIO | None = None):
        self._file = file or sys.stdout
        self._lock = threading.RLock()
        self._size = (0, 0)
        self._rows = 0

    @property
    def width(self) -> int:
        """Columns of a line; the last one stays free, since it may wrap."""
        return max(1, self._measure()[0] - 1)

    def draw(self, lines: Sequence[str]) -> None:
        """Show lines that are no wider than `width`."""
        with self._lock:
            size = self._measure()
            lines = lines[: max(0, size[1] - ABOVE)]
            text = ""
            if size != self._size or len(lines) > self._rows:
                rows = min(max(self._rows, len(lines)), max(0, size[1] - ABOVE))
                self._size, self._rows = size, rows
                text = self._take()
            lines = [*lines, *[""] * (self._rows - len(lines))]
            first = size[1] - self._rows + 1
            drawn = [
                f"\x1b[{first + index};1H{CLEAR_LINE}{line}"
                for index, line in enumerate(lines)
            ]
            self._write(f"{text}{SAVE}{''.join(drawn)}{LOAD}")

    def close(self, lines: Sequence[str] = ()) -> None:
        """Release the rows and print the lines as ordinary output."""
        with self._lock:
            if self in _held:
                _held.discard(self)
                self._write(RESTORE + "".join(f"{line}\n" for line in lines))

    def _take(self) -> str:
        """Reserve the rows below the cursor and scroll above them."""
        _held.add(self)
        region = f"{SAVE}\x1b[1;{self._size[1] - self._rows}r{LOAD}"
        room = f"{DOWN * self._rows}\x1b[{self._rows}A" if self._rows else ""
        return RESTORE + room + region

    def _measure(self) -> tuple[int, int]:
        size = os.get_terminal_size(self._file.fileno())
        return size.columns, size.lines

    def _write(self, text: str) -> None:
        """Write in one call, so that other output cannot interleave."""
        self._file.flush()
        data = text.encode(self._file.encoding or "utf-8", "replace")
        while data:
            data = data[os.write(self._file.fileno(), data) :]


def suits(file: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the file is a terminal that can show a live view."""
    if not file.isatty() or environ.get("CI") or "utf" not in str(file.encoding):
        return False
    width, height = os.get_terminal_size(file.fileno())
    return environ.get("TERM", "dumb") != "dumb" and width >= 40 and height >= 12


def release() -> None:
    """Release the rows of all views of this process, before a hard exit."""
    for screen in list(_held):
        screen.close()


def restore(file: TextIO) -> None:
    """Release rows that a killed process may have left reserved."""
    file.write(RESTORE)
    file.flush()


atexit.register(release)
