"""Numbers the lives of env processes, so that no two of them share step numbers."""

from __future__ import annotations

import os
import pathlib
import threading
import time

from embodied.run.parallel.wire import LIFE_BITS


class Lives:
    """Hands out growing numbers and keeps the last one in a file.

    The file is written before a number is given away, so that numbers also grow across
    restarts and whatever the clock does. Only where there is no file does the clock
    say where to begin: steps that are stored may have come with numbers of a file
    that somebody removed.
    """

    def __init__(self, path: str | os.PathLike):
        self._path = pathlib.Path(path)
        self._lock = threading.Lock()
        self._last = self._read()

    def next(self) -> int:
        """A number that is larger than all before."""
        with self._lock:
            self._last += 1
            self._write()
            return self._last

    def _read(self) -> int:
        try:
            return int(self._path.read_text())
        except FileNotFoundError:
            return time.time_ns() >> LIFE_BITS

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(self._path.name + ".new")
        with temporary.open("w") as file:
            file.write(f"{self._last}\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self._path)
