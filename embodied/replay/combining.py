"""Runs the calls of many threads one at a time, without a hand-over per call."""

from __future__ import annotations

import collections
import contextlib
import functools
import queue
import threading
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class CombiningLock:
    """Runs calls under a lock; a waiting thread hands its call to the holder.

    This is flat combining. A plain lock is granted to a sleeping thread that, once
    awake, needs the interpreter lock, for which it competes with the threads that want
    this lock next: with many threads every call would cost two wake-ups.
    """

    ROUND = 64  # Calls that a thread runs for others before another one takes over.

    def __init__(self) -> None:
        self._calls: collections.deque[_Call] = collections.deque()
        self._lock = threading.Lock()  # Only ever tried, never waited for.

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the call returns or raises, in whatever thread it ran."""
        if self._calls or not self._lock.acquire(blocking=False):
            return self._wait(_Call(functools.partial(function, *args, **kwargs)))
        try:
            result = function(*args, **kwargs)
            if self._calls:
                self._run_calls()
        finally:
            self._release()
        return result

    def _wait(self, call: _Call[T]) -> T:
        self._calls.append(call)
        try:
            while not call.done:
                if self._lock.acquire(blocking=False):
                    try:
                        self._run_calls()
                    finally:
                        self._release()
                else:
                    call.woken.get()
        except BaseException:
            with contextlib.suppress(ValueError):  # It ran, or is running.
                self._calls.remove(call)
            self._wake_next()
            raise
        return call.result()

    def _run_calls(self) -> None:
        left = self.ROUND
        while left and self._calls:
            left -= 1
            call = self._calls.popleft()
            try:
                call.run()
            finally:
                call.woken.put(None)

    def _release(self) -> None:
        self._lock.release()
        self._wake_next()  # It found the lock taken and is asleep.

    def _wake_next(self) -> None:
        if self._calls:
            with contextlib.suppress(IndexError):  # Another thread was faster.
                self._calls[0].woken.put(None)


class _Call(Generic[T]):
    """A call, its outcome, and how to wake the thread that waits for it."""

    def __init__(self, function: Callable[[], T]):
        self._function = function
        self._value: T
        self._error: BaseException | None = None
        self.done = False
        self.woken: queue.SimpleQueue[None] = queue.SimpleQueue()

    def run(self) -> None:
        try:
            self._value = self._function()
        except Exception as error:
            self._error = error
        except BaseException:  # Ctrl-C is for the thread that runs the call.
            self._error = InterruptedError("another thread was interrupted during this")
            raise
        finally:
            self.done = True

    def result(self) -> T:
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # It refers to this frame and so to the arguments.
        return self._value
