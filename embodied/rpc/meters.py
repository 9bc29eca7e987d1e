"""Counters of a server, and the figures that its logger gets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Protocol


class Meter:
    """What a method did since its server started."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls = 0
        self.errors = 0
        self.rejected = 0  # Calls of a batch whose values were not allowed.
        self.runs = 0  # Calls of the function; fewer than calls if batched.
        self.rows = 0
        self.wait = 0.0  # Seconds between arrival and execution, over calls.
        self.busy = 0.0  # Seconds in the function, over runs.

    def add(self, waits: Sequence[float], rows: int, start: float) -> None:
        """Count one run of the function that began at `start` and ended now."""
        with self.lock:
            self.runs += 1
            self.calls += len(waits)
            self.rows += rows
            self.wait += sum(waits)
            self.busy += time.monotonic() - start

    def fail(self, calls: int = 1) -> None:
        """Count calls that were answered with an error."""
        with self.lock:
            self.errors += calls

    def reject(self, calls: int) -> None:
        """Count calls that were rejected for their values, which are errors, too."""
        with self.lock:
            self.rejected += calls


class Metered(Protocol):
    """A method, as far as figures are concerned."""

    name: str
    meter: Meter

    def queued(self) -> int:
        """Jobs that wait for a worker."""


class ServerMeter:
    """Counts what a server does, and turns counters into rates."""

    def __init__(self) -> None:
        self.received = 0  # Bytes.
        self.sent = 0
        self.malformed = 0
        self.unknown = 0  # Calls of unknown methods.
        self.unroutable = 0  # Replies to clients that were gone.
        self._last: dict[str, float] = {}
        self._since = time.monotonic()
        self._lock = threading.Lock()

    def stats(self, served: Iterable[Metered]) -> dict[str, float]:
        with self._lock:
            now = time.monotonic()
            elapsed, self._since = max(1e-6, now - self._since), now
            figures = {
                "recv_rate": self._change("received", self.received) / elapsed,
                "send_rate": self._change("sent", self.sent) / elapsed,
                "unknown": self.unknown,
                "unroutable": self.unroutable,
            }
            for method in served:
                figures |= self._method(method, elapsed)
            return figures

    def _method(self, method: Metered, elapsed: float) -> dict[str, float]:
        meter, name = method.meter, method.name
        calls = self._change(f"{name}/calls", meter.calls)
        runs = self._change(f"{name}/runs", meter.runs)
        rows = self._change(f"{name}/rows", meter.rows)
        wait = self._change(f"{name}/wait", meter.wait)
        busy = self._change(f"{name}/busy", meter.busy)
        return {
            f"{name}/rate": calls / elapsed,
            f"{name}/rows": rows / max(1, runs),
            f"{name}/time": busy / max(1, runs),
            f"{name}/wait": wait / max(1, calls),
            f"{name}/queue": method.queued(),
            f"{name}/errors": meter.errors,
            f"{name}/rejected": meter.rejected,
        }

    def _change(self, key: str, value: float) -> float:
        previous = self._last.get(key, 0)
        self._last[key] = value
        return value - previous
