"""Steps on their way from the actor to a logger that may be slow, hang or restart."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import elements
import numpy as np

from embodied import rpc
from embodied.core import base, disk

MAX_BYTES = 64 << 20  # Steps on their way before the feed leaves them to the replay.
WINDOW = 64  # Calls in flight.
RETRY = 1.0  # Seconds between attempts of a logger or replay that fails.
OVERHEAD = 128  # Bytes of an array without its values.

FAILURES = (rpc.RemoteError, TimeoutError, rpc.ClientClosed)


class Future(Protocol):
    """A call under way."""

    def done(self) -> bool: ...

    def result(self) -> Any: ...


class StepFeed:
    """Passes stored steps on to the logger and never blocks the sender.

    At most `MAX_BYTES` are on their way. Beyond that, or after an error, the feed is
    behind: it drops them, asks the logger which steps it has (`seen`), sends what the
    replay stored after those (`unlogged`), and then passes steps on again. So every
    stored step arrives, but without its images and `log/` values if it came from the
    replay. A new feed is behind: it starts with what another one left.
    """

    def __init__(
        self,
        tran: Callable[[base.Batch], Future],
        seen: Callable[[], Future],
        unlogged: Callable[[base.Batch], Future],
    ):
        self._tran, self._seen, self._unlogged = tran, seen, unlogged
        self._queue: deque[base.Batch] = deque()
        self._flight: deque[tuple[Future, int]] = deque()  # With the bytes of each.
        self._nbytes = 0  # Queued and in flight.
        self._behind = True
        self._idle = False  # The logger has everything.
        self._closed = self._warned = False
        self._full = False  # The logger has no room on its disk.
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def put(self, steps: base.Batch) -> None:
        """Pass on steps that the replay has stored; raises what ended the feed."""
        if self._error:
            raise self._error
        with self._changed:
            if self._behind or self._closed:
                return
            nbytes = size(steps)
            if self._nbytes and self._nbytes + nbytes > MAX_BYTES:
                self._fall_behind()
                return
            self._queue.append(copied(steps))
            self._nbytes += nbytes
            self._idle = False
            self._changed.notify_all()

    def flush(self, patience: float) -> bool:
        """Wait until the logger has everything; False after `patience` seconds."""
        with self._changed:
            self._changed.wait_for(self._is_settled, patience)
        if self._error:
            raise self._error
        return self._idle

    def is_rejected(self) -> bool:
        """Whether the logger has no room for what is left."""
        return self._full

    def close(self) -> None:
        """Send nothing more; the replay keeps what the logger does not have."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while not self._closed:
                try:
                    if self._behind:
                        self._catch_up()
                    else:
                        self._pass_on()
                except FAILURES as error:
                    self._retry(error)
        except Exception as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _catch_up(self) -> None:
        """Send what the replay has and the logger has not."""
        while self._flight:
            with contextlib.suppress(*FAILURES):  # What was lost is sent again.
                self._collect(0)
        seen = self._seen().result()
        with self._changed:
            self._behind = False  # The answer of the replay may lack later steps.
        found = self._unlogged(seen).result()
        for steps in found["steps"]:
            self._send(steps, 0)
        if not found["complete"]:
            with self._changed:
                self._fall_behind()

    def _pass_on(self) -> None:
        """Send the next steps, or wait for the oldest answer, or for steps."""
        with self._changed:
            if not (self._queue or self._flight or self._behind):
                self._idle = True
                self._warned = self._full = False
                self._changed.notify_all()
                self._changed.wait_for(self._has_news)
            steps = self._queue.popleft() if self._queue else None
        if steps is not None:
            self._send(steps, size(steps))
        elif self._flight:
            self._collect(len(self._flight) - 1)

    def _is_settled(self) -> bool:
        return self._idle or self._full or self._error is not None

    def _has_news(self) -> bool:
        return bool(self._queue) or self._behind or self._closed

    def _send(self, steps: base.Batch, nbytes: int) -> None:
        try:
            future = self._tran(steps)
        except BaseException:
            with self._changed:
                self._nbytes -= nbytes
            raise
        self._flight.append((future, nbytes))
        self._collect(WINDOW)

    def _collect(self, window: int) -> None:
        """Take answers, and wait for them while more calls are in flight."""
        while self._flight and (
            len(self._flight) > window or self._flight[0][0].done()
        ):
            future, nbytes = self._flight.popleft()
            with self._changed:
                self._nbytes -= nbytes
            future.result()

    def _fall_behind(self) -> None:
        """Drop what is queued, since the replay has it. Needs the lock."""
        self._behind, self._idle = True, False
        self._nbytes -= sum(map(size, self._queue))
        self._queue.clear()
        self._changed.notify_all()

    def _retry(self, error: BaseException) -> None:
        with self._changed:
            self._full = getattr(error, "kind", "") == disk.DiskFullError.__name__
            self._fall_behind()
            if not self._warned and not self._closed:
                self._warned = True
                text = f"Steps did not reach the logger and are sent again: {error}"
                elements.print(text, color="yellow", flush=True)
            self._changed.wait_for(lambda: self._closed, RETRY)


def flush(feed: StepFeed, patience: Callable[[], float]) -> bool:
    """Wait until the logger has everything, while seconds are left to do so.

    A logger without room on its disk is not waited for.
    """
    while not feed.flush(min(RETRY, patience())):
        if feed.is_rejected() or not patience():
            return False
    return True


def copied(steps: base.Batch) -> base.Batch:
    """Arrays of their own, as a view may keep alive a batch with all its images."""
    return {
        key: value.copy() if isinstance(value, np.ndarray) else value
        for key, value in steps.items()
    }


def size(steps: base.Batch) -> int:
    """About how many bytes of memory a batch of steps takes."""
    return sum(np.asarray(value).nbytes + OVERHEAD for value in steps.values())
