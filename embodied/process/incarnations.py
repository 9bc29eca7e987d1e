"""Numbers of process starts, which distinguish the steps of a restarted process."""

from __future__ import annotations

import json
import os
import pathlib
import threading
import time

import elements

from embodied.core import disk, files, formats

BITS = 32  # Low bits of a step's number: its count; high bits: the incarnation.
LIMIT = 1 << 31  # Numbers from here on would not fit into those of steps.


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
        self._holders_path = pathlib.Path(holders) if holders else None
        self._holders: dict[int, int] = {}
        if self._holders_path:  # Those of earlier processes are gone.
            self._write(self._holders_path, "{}\n")
        self._lock = threading.Lock()
        self._last = max(map(_read, (path, former or path)))

    def next(self, *envids: int) -> int:
        """A number that is larger than all before, for a process with environments."""
        with self._lock:
            self._last = max(self._last + 1, time.time_ns() >> BITS)
            self._write(self._path, f"{self._last}\n", durable=True)
            if envids and self._holders_path:
                self._holders |= dict.fromkeys(envids, self._last)
                self._write(self._holders_path, json.dumps(self._holders) + "\n")
            return self._last

    def _write(self, path: pathlib.Path, text: str, durable: bool = False) -> None:
        try:
            files.write_text(path, text, durable)
        except OSError as error:
            if not disk.is_full(error):
                raise
            what = "the number of a process that starts"
            raise disk.full_error(path.parent, len(text), what) from error


def read_holders(path: str | os.PathLike) -> dict[int, int]:
    """Numbers of environments, and the incarnations that have them.

    Those in a damaged file are rejected, and issued again when their process restarts.
    """
    try:
        found = json.loads(pathlib.Path(path).read_text())
        return {int(envid): int(incarnation) for envid, incarnation in found.items()}
    except (FileNotFoundError, *formats.DAMAGED):
        return {}


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
