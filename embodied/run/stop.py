"""When a run ends: enough steps, enough time, or a signal."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType
from typing import Any

from embodied.metrics import screen
from embodied.process.signals import SIGNALS, Requests

STDOUT, TEXT = 1, b"Stopping after this step; again to stop at once.\n"


class Stop:
    """Decides when to stop. As a context it turns the first Ctrl-C into a request.

    The loop then finishes its current iteration, saves and returns. A second request
    ends the process at once.
    """

    def __init__(self, steps: float, duration: float = 0):
        self._steps = steps
        self._deadline = time.monotonic() + duration if duration else None
        self._signal: signal.Signals | None = None
        self._requests = Requests()
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        self._previous = {s: signal.signal(s, self._request) for s in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @property
    def signalled(self) -> bool:
        """Whether a signal requested the stop, so that shutdown should be quick."""
        return self._signal is not None

    def reason(self, step: int) -> str:
        """Why to stop now, or an empty string to continue."""
        if self._signal:
            return f"{self._signal.name} received"
        if step >= self._steps:
            return f"{int(self._steps):,} steps reached"
        if self._deadline and time.monotonic() >= self._deadline:
            return "duration reached"
        return ""

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self._requests.add() > 1:
            screen.release()
            os._exit(128 + number)
        if not self._signal:
            self._signal = signal.Signals(number)
            os.write(STDOUT, TEXT)  # The main thread may be in the middle of a print.
