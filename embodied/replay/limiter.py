"""Keeps the numbers of samples and inserts in step by making either side wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


class LimiterClosedError(RuntimeError):
    """The limiter was closed while or before waiting."""


class SamplesPerInsert:
    """Lets `samples_per_insert` sequences be sampled for each step inserted.

    Both sides call before they act: `insert(steps)` and `sample(sequences)` wait for
    their turn and count. The first `minsize` inserts are free and nothing is sampled
    before. After that each insert earns `samples_per_insert` samples; either side may
    be `tolerance` samples ahead of the other. `samples_per_insert=0` only enforces the
    minimum size. Inserts also stay free until `ready` reports a sequence to sample,
    which with many environments takes more than `minsize` steps.
    """

    def __init__(
        self,
        samples_per_insert: float,
        tolerance: float,
        minsize: int = 1,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        if samples_per_insert < 0 or minsize < 0:
            raise ValueError("samples_per_insert and minsize must not be negative")
        if samples_per_insert > 0 and tolerance <= 0:
            raise ValueError(f"tolerance must be positive, not {tolerance}")
        self.samples_per_insert = float(samples_per_insert)
        self.tolerance = float(tolerance)
        self.minsize = minsize
        self._is_ready = ready
        self._ready = False  # Whether it ever was.
        self._changed = threading.Condition()
        self._closed = False
        self._open = False  # Whether inserts no longer wait.
        self._size = 0  # Steps inserted.
        self._avail = 0.0  # Samples earned and not taken.
        self._counts = {"inserts": 0, "samples": 0}
        self._waited = {"insert": 0.0, "sample": 0.0}

    def insert(self, amount: int = 1, timeout: float | None = None) -> bool:
        """Wait until `amount` steps may be inserted; False if that took too long."""
        with self._changed:
            if not self._wait("insert", self._may_insert, timeout):
                return False
            self._count(amount)
            return True

    def take_back(self, amount: int) -> None:
        """Refund credit for rejected steps."""
        with self._changed:
            self._count(-amount)

    def sample(self, amount: int = 1, timeout: float | None = None) -> bool:
        """Wait until `amount` sequences may be sampled; False if that took too long."""
        with self._changed:
            if not self._wait("sample", self._may_sample, timeout):
                return False
            if self.samples_per_insert > 0:
                self._avail -= amount
            self._counts["samples"] += amount
            self._changed.notify_all()
            return True

    def found(self, steps: int) -> None:
        """Count existing steps of the replay, without earning samples."""
        with self._changed:
            self._size = max(self._size, steps)
            self._changed.notify_all()

    def open(self, is_open: bool = True) -> None:
        """Let inserts pass without waiting from now on, as at the end of a run."""
        with self._changed:
            self._open = is_open
            self._changed.notify_all()

    def close(self) -> None:
        """Wake blocked callers with an error; later calls fail, too."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def stats(self) -> dict[str, float]:
        """Counts and waiting times in seconds (summed over threads) since last time."""
        with self._changed:
            stats: dict[str, float] = {
                "avail": self._avail,
                "size": self._size,
                **self._counts,
                **{f"{side}_wait": value for side, value in self._waited.items()},
            }
            self._counts = dict.fromkeys(self._counts, 0)
            self._waited = dict.fromkeys(self._waited, 0.0)
            return stats

    def save(self) -> dict[str, Any]:
        """The state that `load` restores."""
        with self._changed:
            return {"size": self._size, "avail": self._avail}

    def load(self, data: dict[str, Any]) -> None:
        """Restore what `save` returned."""
        with self._changed:
            self._size = int(data["size"])
            self._avail = float(data["avail"])
            self._changed.notify_all()

    def _count(self, steps: int) -> None:
        """Under the lock. Only steps beyond the first `minsize` earn samples."""
        before = max(0, self._size - self.minsize)
        self._size += steps
        if self._has_data():
            earning = max(0, self._size - self.minsize) - before
            self._avail += self.samples_per_insert * earning
        self._counts["inserts"] += steps
        self._changed.notify_all()

    def _may_insert(self) -> bool:
        if self._open or self._size < self.minsize or not self.samples_per_insert:
            return True
        return self._avail < self.tolerance or not self._has_data()

    def _may_sample(self) -> bool:
        if self._size < self.minsize or not self._has_data():
            return False
        return self.samples_per_insert == 0 or self._avail > -self.tolerance

    def _has_data(self) -> bool:
        """Whether there is a sequence; without one neither side can wait for it."""
        self._ready = self._ready or self._is_ready()
        return self._ready

    def _wait(
        self, side: str, allowed: Callable[[], bool], timeout: float | None
    ) -> bool:
        """Under the lock, until allowed. Raises if closed."""
        if self._closed:
            raise LimiterClosedError("the limiter is closed")
        if allowed():
            return True
        begin = time.perf_counter()

        def ready() -> bool:
            return self._closed or allowed()

        self._changed.wait_for(ready, timeout)
        self._waited[side] += time.perf_counter() - begin
        if self._closed:
            raise LimiterClosedError("the limiter is closed")
        return allowed()
