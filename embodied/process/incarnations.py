"""Numbers of process starts, by which steps of a restarted process are told apart."""

from __future__ import annotations

import json
import os
import pathlib
import threading
import time

from embodied.core import files

BITS = 32  # Low bits of a step's number: its count; high bits: the incarnation.


class Incarnations:
    """Issues growing numbers and keeps the last one in a file.

    The file is written before a number is issued, so that numbers grow across restarts
    even if the clock is set back. They are never behind the clock, by which processes
    without a launcher number their steps. `former` is the file of older runs.
    `holders` is a file for the numbers of environments that were issued with them.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        former: str | os.PathLike | None = None,
        holders: str | os.PathLike | None = None,
    ):
        self._path = pathlib.Path(path)
        self._holders_path = holders
        self._holders: dict[int, int] = {}
        if holders is not None:  # Those of earlier processes are gone.
            files.write_text(holders, "{}\n")
        self._lock = threading.Lock()
        self._last = max(map(_read, (path, former or path)))

    def next(self, *envids: int) -> int:
        """A number that is larger than all before, for a process with environments."""
        with self._lock:
            self._last = max(self._last + 1, time.time_ns() >> BITS)
            files.write_text(self._path, f"{self._last}\n", durable=True)
            if envids and self._holders_path is not None:
                self._holders |= dict.fromkeys(envids, self._last)
                files.write_text(self._holders_path, json.dumps(self._holders) + "\n")
            return self._last


def read_holders(path: str | os.PathLike) -> dict[int, int]:
    """Numbers of environments, and the incarnations that have them."""
    try:
        found = json.loads(pathlib.Path(path).read_text())
    except FileNotFoundError:
        return {}
    return {int(envid): incarnation for envid, incarnation in found.items()}


def _read(path: str | os.PathLike) -> int:
    try:
        return int(pathlib.Path(path).read_text())
    except FileNotFoundError:
        return 0
