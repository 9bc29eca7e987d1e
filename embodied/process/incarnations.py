"""Numbers of process starts, by which steps of a restarted process are told apart."""

from __future__ import annotations

import os
import pathlib
import threading
import time

import elements

from embodied.core import disk, files

BITS = 32  # Low bits of a step's number: its count; high bits: the incarnation.
LIMIT = 1 << 31  # Numbers from here on would not fit into those of steps.


class Incarnations:
    """Issues growing numbers and keeps the last one in a file.

    The file is written before a number is issued, so that numbers grow across restarts
    even if the clock is set back. They are never behind the clock, by which processes
    without a launcher number their steps. `former` is the file of older runs.
    """

    def __init__(
        self, path: str | os.PathLike, former: str | os.PathLike | None = None
    ):
        self._path = pathlib.Path(path)
        self._lock = threading.Lock()
        self._last = max(map(_read, (path, former or path)))

    def next(self) -> int:
        """A number that is larger than all before."""
        with self._lock:
            self._last = max(self._last + 1, time.time_ns() >> BITS)
            self._write(f"{self._last}\n")
            return self._last

    def _write(self, text: str) -> None:
        try:
            files.write_text(self._path, text, durable=True)
        except OSError as error:
            if not disk.is_full(error):
                raise
            what = "the number of a process that starts"
            raise disk.full_error(self._path.parent, len(text), what) from error


def _read(path: str | os.PathLike) -> int:
    """The number in a file; 0, which the clock exceeds, if there is none."""
    try:
        number = int(pathlib.Path(path).read_text())
        if not 0 <= number < LIMIT:
            raise ValueError(f"{number} is out of range")
        return number
    except FileNotFoundError:
        return 0
    except ValueError as error:
        text = f"{path} is damaged ({error}): incarnations continue at the clock."
        elements.print(text, color="yellow", flush=True)
        return 0
