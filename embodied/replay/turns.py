"""Calls of many threads, made one at a time, without waiting for threads to wake up."""

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


class Turns:
    """Makes calls in the order in which they come.

    A thread that comes while another one is at it leaves its call to that one. A lock
    would go to a thread that sleeps and, once awake, needs the interpreter lock, which
    those have who want the lock next: with many threads every call would wait for two
    of them to wake up.
    """

    ROUND = 64  # Calls that a thread makes for others before one of them takes over.

    def __init__(self) -> None:
        self._calls: collections.deque[_Call] = collections.deque()
        self._lock = threading.Lock()  # Only ever tried, never waited for.

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the call returns or raises, in whatever thread it was made."""
        call = _Call(functools.partial(function, *args, **kwargs))
        self._calls.append(call)
        try:
            while not call.done:
                if self._lock.acquire(blocking=False):
                    try:
                        self._make_calls()
                    finally:
                        self._lock.release()
                        # Whoever came before that and found the lock taken is asleep.
                        self._wake_next()
                else:
                    call.woken.get()
        except BaseException:
            self._abandon(call)
            raise
        return call.result()

    def _make_calls(self) -> None:
        for _ in range(self.ROUND):
            if not self._calls:
                break
            call = self._calls.popleft()
            try:
                call.make()
            finally:
                call.woken.put(None)

    def _wake_next(self) -> None:
        try:
            self._calls[0].woken.put(None)
        except IndexError:
            return  # There is none, or another thread was faster.

    def _abandon(self, call: _Call) -> None:
        """Do not let others wait behind a call that nobody waits for."""
        with contextlib.suppress(ValueError):  # It was made, or is being made.
            self._calls.remove(call)
        self._wake_next()


class _Call(Generic[T]):
    """A call, its outcome, and how to wake up the thread that waits for it."""

    def __init__(self, function: Callable[[], T]):
        self._function = function
        self._value: T
        self._error: BaseException | None = None
        self.done = False
        self.woken: queue.SimpleQueue[None] = queue.SimpleQueue()

    def make(self) -> None:
        try:
            self._value = self._function()
        except Exception as error:
            self._error = error
        except BaseException:  # Ctrl-C is for the thread that makes the call.
            self._error = InterruptedError("another thread was interrupted during this")
            raise
        finally:
            self.done = True

    def result(self) -> T:
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # It knows this frame, and so the arguments.
        return self._value
