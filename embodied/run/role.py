"""What a role knows of its process: whether to stop, and how to show that it lives.

A role calls `beat()` whenever it made progress and returns soon after `stopping()`
turns true. Both also work where no supervisor started the process: then nobody listens
to the beats, and only a signal handler of one's own asks to stop. Threads that can hang
independently of each other are parts with a beat each: the process lives as long as all
of them do.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

_stop = threading.Event()
_completed = threading.Event()


class StoppedError(Exception):
    """The process was asked to end while it waited for something."""


class FinalError(Exception):
    """The role would fail again, so the run ends; says all there is to know."""


class Beat(ctypes.Structure):
    """The last sign of life, in memory that the supervisor can read."""

    _fields_ = (
        ("value", ctypes.c_double),  # Time of the most silent part.
        ("part", ctypes.c_char * 16),  # Its name, if the process has parts.
    )


_beat: Beat = Beat()
_leave: Callable[[BaseException | None], None] | None = None
_parts: dict[str, Part] = {}


def beat() -> None:
    """Show that this process makes progress; if it has parts, that is up to them."""
    if not _parts:
        _beat.value = time.monotonic()


class Part:
    """A thread of this process whose signs of life count by themselves."""

    def __init__(self, name: str):
        self.name = name
        self.dirty = False  # Whether something would be lost if it ended now.
        self.last = time.monotonic()
        _parts[name] = self

    def beat(self) -> None:
        """Show that this part makes progress; the supervisor sees the most silent."""
        self.last = time.monotonic()
        oldest = min(list(_parts.values()), key=_last_beat)
        _beat.value, _beat.part = oldest.last, oldest.name.encode()

    def close(self) -> None:
        """Nobody expects a sign of life of this part any more."""
        _parts.pop(self.name, None)


def dirty() -> bool:
    """Whether a part of this process has something to save."""
    return any(part.dirty for part in list(_parts.values()))


def _last_beat(part: Part) -> float:
    return part.last


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


def await_result(future: Any, beat: Callable[[], None] = beat) -> Any:
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


def owns_process() -> bool:
    """Whether this process is there for one role, which may `leave` it."""
    return _leave is not None


def leave(error: BaseException | None) -> None:
    """End this process now, whatever its threads do; with an error it has failed."""
    assert _leave is not None
    _leave(error)


def attach(
    shared: Beat, on_leave: Callable[[BaseException | None], None] | None = None
) -> None:
    """Begin anew: nobody asked to stop, and beats go to where the supervisor looks."""
    global _beat, _leave
    _stop.clear()
    _completed.clear()
    _parts.clear()
    _beat, _leave = shared, on_leave
