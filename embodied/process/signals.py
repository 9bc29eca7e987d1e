"""Signals that request a stop, and how repeated ones are counted."""

from __future__ import annotations

import signal
import time

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Signals within this many seconds count as one request. Programs such as `timeout` and
# schedulers forward signals that the process has already received.
SAME = 0.5


class Requests:
    """Counts requests to stop: the first is to save and end, the second to end now."""

    def __init__(self) -> None:
        self.count = 0
        self._counted = 0.0  # When the last one was.

    def add(self) -> int:
        """Count a signal that came now; returns how many requests there were."""
        now = time.monotonic()
        if not self.count or now - self._counted > SAME:
            self.count += 1
            self._counted = now
        return self.count
