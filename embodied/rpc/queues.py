"""The queued calls of a server: which runs next, and the next deadline."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from embodied.rpc import methods

PAUSE = 0.001  # Seconds between two reads while calls queue up.


class Queues:
    """The methods of a server by name.

    Only the leading thread may use it (see `server`), except for iteration. Plain
    loops, since this code runs several times per call.
    """

    def __init__(self) -> None:
        self.by_name: dict[bytes, methods.Method] = {}
        self._methods: list[methods.Method] = []

    def __iter__(self) -> Iterator[methods.Method]:
        return iter(self._methods)

    def add(self, method: methods.Method) -> None:
        """Serve a method; one of the same name is replaced."""
        if not method.name.isidentifier() or method.name.startswith("_"):
            raise ValueError(f"'{method.name}' cannot be the name of a method")
        self.by_name[method.name.encode()] = method
        self._methods = list(self.by_name.values())

    def patient(self, read_at: float) -> bool:
        """Whether reading can be deferred, since busy threads have queued calls.

        Deferring avoids contention for the interpreter lock on every message. A queue
        behind a call that merely blocks does not count.
        """
        found, recently = False, 0.0
        for method in self._methods:
            if method.jobs:
                recently = recently or time.monotonic() - PAUSE
                if read_at < recently or method.ready():
                    return False
                found |= method.started > recently
        return found

    def tick(self) -> float | None:
        """Do what is due; seconds until there is more, or None."""
        first = None
        for method in self._methods:
            deadline = method.tick()
            if deadline is not None and (first is None or deadline < first):
                first = deadline
        return None if first is None else max(0, first - time.monotonic())

    def take(self) -> tuple[methods.Method | None, Any, bool]:
        """A method and its job to run now, and whether there are more that could."""
        taken, job = None, None
        for method in self._methods:
            if method.ready():
                if taken is not None:
                    return taken, job, True
                taken, job = method, method.next()
                method.running += 1
        return taken, job, taken is not None and taken.ready()

    def seal(self) -> bool:
        """Accept no more requests; returns whether all calls have finished."""
        for method in self._methods:
            method.seal()
        return not any(method.busy() for method in self._methods)
