"""Time spent by a role, in seconds and calls per section."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator


class Timer:
    """Adds up the time that threads spend in named sections.

    Sections of one thread must not nest, so that shares add up to at most one a thread.
    A section that is under way counts up to now, so that a long one shows while it
    lasts.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._lock = threading.Lock()
        self._since = now()
        self._seconds: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._running: dict[int, tuple[str, float]] = {}  # Thread to section, begin.

    @contextlib.contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Count the time until the end of the block."""
        thread = threading.get_ident()
        with self._lock:
            self._running[thread] = name, self._now()
        try:
            yield
        finally:
            with self._lock:
                _, begin = self._running.pop(thread)
                self._count(name, begin)
                self._counts[name] = self._counts.get(name, 0) + 1

    def stats(self) -> dict[str, float]:
        """Since the last call, by section: share of the time, mean seconds, calls."""
        with self._lock:
            now = self._now()
            for thread, (name, begin) in self._running.items():
                self._count(name, begin)
                self._running[thread] = name, now
            elapsed = max(now - self._since, 1e-9)
            self._since = now
            result: dict[str, float] = {}
            for name, seconds in self._seconds.items():
                count = self._counts.get(name, 0)
                result[f"{name}/share"] = seconds / elapsed
                result[f"{name}/count"] = count
                if count:
                    result[f"{name}/mean"] = seconds / count
            self._seconds = dict.fromkeys(self._seconds, 0.0)
            self._counts = {}
            return result

    def _count(self, name: str, begin: float) -> None:
        seconds = self._seconds.get(name, 0.0)
        self._seconds[name] = seconds + self._now() - begin
