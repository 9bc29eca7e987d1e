"""A role's view of its process: stop requests and heartbeats."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

from embodied.core import base
from embodied.process import incarnations

POLL = 0.5  # Seconds between the heartbeats of a role that waits for another one.


class StoppedError(Exception):
    """The role was asked to stop while it waited for something."""


class FinalError(base.SetupError):
    """Ends the run, since a restart would fail again; shown without a traceback."""


class Heartbeat(ctypes.Structure):
    """What a process and its supervisor know of each other, in memory of both."""

    _fields_ = (
        ("value", ctypes.c_double),  # Last heartbeat of the least recent part.
        ("part", ctypes.c_char * 16),  # Its name, if the process has parts.
        ("gone", ctypes.c_char * 64),  # Roles that the supervisor has given up.
    )


class Context:
    """A role's view of its process: `ctx`.

    A role calls `beat()` whenever it has made progress, and returns soon after
    `stopping()` turns true. Threads that can hang independently are parts with separate
    heartbeats; the process counts as alive while all parts do. A context without
    arguments is for a role that a program calls directly: there is no supervisor, and
    the program calls `request_stop()`.

    `first_number` is the first sequence number of this process, above those of earlier
    processes. It derives from the `incarnation` issued by the launcher or else from the
    clock in nanoseconds, which advances faster than any environment steps.
    """

    def __init__(
        self,
        heartbeat: Heartbeat | None = None,
        on_exit: Callable[[Context, BaseException | None], None] | None = None,
        incarnation: int | None = None,
    ):
        self.issued = incarnation is not None  # Whether a launcher gave it numbers.
        if incarnation is None:
            self.first_number = time.time_ns()
        else:
            self.first_number = incarnation << incarnations.BITS
        self.incarnation = self.first_number >> incarnations.BITS
        self._heartbeat = heartbeat or Heartbeat()
        self._on_exit = on_exit
        self._stop = threading.Event()
        self._completed = threading.Event()
        self._aborted = threading.Event()
        self._parts: dict[str, Part] = {}

    @staticmethod
    def of(barrier: threading.Barrier) -> Context:
        """The context shared by an actor and a learner that a program starts itself.

        It is attached to the barrier, the only object that both receive.
        """
        return vars(barrier).setdefault("ctx", Context())

    def beat(self) -> None:
        """Send a heartbeat; ignored if the process has parts, which send their own."""
        if not self._parts:
            self._heartbeat.value = time.monotonic()

    def part(self, name: str) -> Part:
        """A thread of this process with a heartbeat of its own."""
        self._parts[name] = Part(name, self)
        return self._parts[name]

    def stopping(self) -> bool:
        """Whether this process was asked to stop."""
        return self._stop.is_set()

    def request_stop(self) -> None:
        """Ask the roles of this process to stop."""
        self._stop.set()

    def wait_stop(self, timeout: float | None = None) -> bool:
        """Wait for a stop request; False after `timeout` seconds."""
        return self._stop.wait(timeout)

    def abort(self) -> None:
        """Stop the roles of this process, since one of them failed."""
        self._aborted.set()
        self._stop.set()

    def aborted(self) -> bool:
        """Whether this process stops because a part of it failed."""
        return self._aborted.is_set()

    def completed(self) -> bool:
        """Whether this process stops because the run is complete."""
        return self._completed.is_set()

    def complete(self) -> None:
        """Stop the roles of this process, since the run is complete."""
        self._completed.set()
        self._stop.set()

    def wait(self, future: Any, beat: Callable[[], None] | None = None) -> Any:
        """The result of a call to another role; waiting for it counts as progress.

        Raises `StoppedError` if this process is asked to stop first.
        """
        while not future.done():
            (beat or self.beat)()
            if self.stopping():
                raise StoppedError
            with contextlib.suppress(TimeoutError):
                future.result(timeout=POLL)
        return future.result()

    def wait_last(
        self, future: Any, role: str, beat: Callable[[], None] | None = None
    ) -> Any:
        """The result of a call to a role although this process was asked to stop.

        Raises `StoppedError` if that role is gone.
        """
        while not future.done():
            (beat or self.beat)()
            if self.gone(role):
                raise StoppedError
            with contextlib.suppress(TimeoutError):
                future.result(timeout=POLL)
        return future.result()

    def gone(self, role: str) -> bool:
        """Whether the supervisor has given a role up: it will never answer."""
        return role in self._heartbeat.gone.decode().split()

    def unsaved(self) -> bool:
        """Whether a part of this process has something to save."""
        return any(part.unsaved for part in list(self._parts.values()))

    @property
    def owns_process(self) -> bool:
        """Whether the role has the process to itself and may `exit` it."""
        return self._on_exit is not None

    def exit(self, error: BaseException | None) -> None:
        """Exit now, even if threads are running; with an error, as a failure."""
        assert self._on_exit is not None
        self._on_exit(self, error)

    def _relay(self) -> None:
        """Publish the oldest heartbeat of all parts."""
        oldest = min(list(self._parts.values()), key=_last_beat)
        self._heartbeat.value, self._heartbeat.part = oldest.last, oldest.name.encode()

    def _remove(self, name: str) -> None:
        self._parts.pop(name, None)


class Part:
    """A thread with a separate heartbeat."""

    def __init__(self, name: str, ctx: Context):
        self.name = name
        self.unsaved = False  # Whether something would be lost if it ended now.
        self.last = time.monotonic()
        self._ctx = ctx

    def beat(self) -> None:
        """Send a heartbeat; the supervisor sees the oldest one of all parts."""
        self.last = time.monotonic()
        self._ctx._relay()

    def close(self) -> None:
        """Stop expecting heartbeats of this part."""
        self._ctx._remove(self.name)


def _last_beat(part: Part) -> float:
    return part.last
