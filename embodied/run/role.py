"""What a role knows of its process: whether to stop, and how to show that it lives.

A role calls `beat()` whenever it made progress and returns soon after `stopping()`
turns true. Both also work where no supervisor started the process: then nobody listens
to the beats, and only a signal handler of one's own asks to stop.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

_stop = threading.Event()
_completed = threading.Event()


class StoppedError(Exception):
    """The process was asked to end while it waited for something."""


class Beat:
    """The time of the last sign of life, where the supervisor can read it."""

    def __init__(self) -> None:
        self.value = 0.0


_beat: Beat = Beat()


def beat() -> None:
    """Show that this process makes progress."""
    _beat.value = time.monotonic()


def stopping() -> bool:
    """Whether this process was asked to end."""
    return _stop.is_set()


def completed() -> bool:
    """Whether the process ends because the run has all it wanted."""
    return _completed.is_set()


def complete() -> None:
    """End the roles of this process, since the run has all it wanted."""
    _completed.set()
    _stop.set()


def wait_stop(timeout: float | None = None) -> bool:
    """Wait until the process is asked to end; False if `timeout` seconds passed."""
    return _stop.wait(timeout)


def await_result(future: Any) -> Any:
    """The result of a call; waiting for a busy role is a sign of life, too."""
    while not future.done():
        beat()
        if stopping():
            raise StoppedError
        with contextlib.suppress(TimeoutError):
            future.result(timeout=0.5)
    return future.result()


def request_stop() -> None:
    """Ask the roles of this process to end."""
    _stop.set()


def attach(shared: Beat) -> None:
    """Send beats to where the supervisor looks."""
    global _beat
    _beat = shared
