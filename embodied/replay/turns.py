"""Calls of many threads that take turns."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Any


class Turns:
    """Runs one call at a time, in the order in which they came.

    Threads that come while one is at work leave their calls to it and sleep until they
    are done, so that it need not wait for the next one to wake up before work goes on.
    Nobody works for others for long: after those that were there when its own call was
    done, the first of those who came meanwhile goes on.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._calls: collections.deque[_Call] = collections.deque()
        self._busy = False

    def run(self, function: Callable, *args: Any) -> Any:
        """Call the function, in this thread or another, and return its result."""
        with self._guard:
            call = _Call(function, args) if self._busy else None
            if call is not None:
                self._calls.append(call)
            self._busy = True
        if call is None:
            try:
                return function(*args)
            finally:
                self._serve()
        self._wait(call)
        if call.leads:
            self._serve()
        return call.outcome()

    def _wait(self, call: _Call) -> None:
        """Until the call is done or it is up to this thread to do it."""
        try:
            call.wake.acquire()
        except BaseException:  # Interrupted: others must not wait for this thread.
            with self._guard:
                if call in self._calls:
                    self._calls.remove(call)
                if call.leads:
                    self._appoint()
            raise

    def _serve(self) -> None:
        """Do the calls that are there; whoever was appointed finds its own first."""
        with self._guard:
            calls = self._calls
            if not calls:
                self._busy = False
                return
            self._calls = collections.deque()
        try:
            while calls:
                calls.popleft().execute()
        finally:
            with self._guard:
                self._calls.extendleft(reversed(calls))  # After an interrupt only.
                self._appoint()

    def _appoint(self) -> None:
        """Under the guard, let the first of those who wait go on."""
        self._busy = bool(self._calls)
        if self._busy:
            self._calls[0].leads = True
            self._calls[0].wake.release()


class _Call:
    """A function to call, and what came of it."""

    def __init__(self, function: Callable, args: tuple):
        self.leads = False  # Whether it is up to its thread to go on.
        self.wake = threading.Lock()
        self.wake.acquire()
        self._function = function
        self._args = args
        self._result: Any = None
        self._error: BaseException | None = None

    def execute(self) -> None:
        """Call the function and wake up who waits for it."""
        try:
            self._result = self._function(*self._args)
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise  # An interrupt is meant for the thread that it reached.
        finally:
            self.wake.release()

    def outcome(self) -> Any:
        """The result, which is handed out once, or the error."""
        if self._error is not None:
            raise self._error
        result, self._result = self._result, None
        return result
