"""Runs an output in its own thread, so that a slow or broken one blocks nothing."""

from __future__ import annotations

import collections
import contextlib
import errno
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial as bind
from typing import Any

import elements

from embodied.core import disk
from embodied.metrics.summary import Output, Summary, size

LIMIT = 256 << 20  # Bytes that may wait for an output.
PATIENCE = 10.0  # Seconds that saving waits for an output that works.

Job = Callable[[], Any]


class Background:
    """Creates an output in a thread and passes metrics to it in order.

    No method raises or blocks for long. Metrics that the output rejects, or that exceed
    `limit` queued bytes, are counted in `dropped`; the first drop is reported. Creating
    the output is retried with every write if it fails. With `patience` a write returns
    once the output has finished, or after that many seconds. With `eager` the output is
    created at once, not with the first write.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Output],
        limit: int = LIMIT,
        patience: float = 0.0,
        eager: bool = False,
    ):
        self.name = name
        self.dropped = 0  # Metrics that were lost.
        self._make = make
        self._limit = limit
        self._patience = patience
        self._output: Output | None = None
        self._room = disk.Room(f"logger output {name}")
        self._changed = threading.Condition()
        self._jobs: collections.deque[tuple[Job, int, int]] = collections.deque()
        self._pending = 0  # Unfinished jobs.
        self._bytes = self._count = 0  # What those jobs hold, and how many metrics.
        self._told = self._late = self._closed = False
        self._thread = threading.Thread(
            target=self._loop, name=f"output-{name}", daemon=True
        )
        self._thread.start()
        if eager:
            with self._changed:
                self._put(self._get)

    def __call__(self, summaries: Sequence[Summary]) -> None:
        """Queue metrics, or drop them if too much is waiting."""
        amount, waiting = sum(map(size, summaries)), 0
        with self._changed:
            full = self._pending and self._bytes + amount > self._limit
            if full or self._closed:
                self.dropped += len(summaries)
                waiting = self._bytes
            else:
                self._put(lambda: self._get()(summaries), len(summaries), amount)
        if waiting:
            self._tell(f"is too slow, {waiting >> 20} MB are waiting for it")
        if self._patience:
            self._idle(self._patience)

    def save(self) -> dict[str, Any]:
        """The output's state, to roll back later writes, once it is idle.

        Raises `DiskFullError` while it waits for room, as it has not written all.
        """
        found = self._ask(_save)
        if found is None and self._room.lacking:
            text = f"logger output {self.name} waits for room on its disk"
            raise disk.DiskFullError(errno.ENOSPC, text)
        return {self.name: found}

    def load(self, data: dict[str, Any]) -> None:
        """Roll back to what `save` returned, if that was this output."""
        if data.get(self.name) is not None:
            self._ask(bind(_load, data[self.name]))

    def start_close(self) -> None:
        """Accept no more metrics and close the output when it is idle."""
        with self._changed:
            if not self._closed:
                self._put(self._close_output)
                self._closed = True
                self._room.give_up()
                self._changed.notify_all()

    def close(self, deadline: float = 30.0) -> None:
        """Close, or give up after `deadline` seconds and report what is lost."""
        self.start_close()
        self._thread.join(deadline)
        if self._thread.is_alive():
            self._told = True  # Report nothing more.
            text = (
                f"did not close in {deadline:.3g} seconds; "
                f"{self._count} metrics are lost"
            )
            elements.print(f"Logger output {self.name} {text}.", color="yellow")

    def _ask(self, question: Callable[[Output], Any]) -> Any:
        """Query the output once it is idle; skipped if that takes too long."""
        if self._late and not self._idle(0):
            return None
        answer: list[Any] = []
        with self._changed:
            if self._closed:
                return None
            self._put(lambda: answer.append(question(self._get())))
        self._late = not self._idle(PATIENCE)
        return answer[0] if answer else None

    def _put(self, job: Job, count: int = 0, amount: int = 0) -> None:
        self._jobs.append((job, count, amount))
        self._pending += 1
        self._bytes += amount
        self._count += count
        self._changed.notify_all()

    def _idle(self, timeout: float) -> bool:
        """Wait until no job is left; whether that succeeded."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._pending, timeout)

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closed)
                if not self._jobs:
                    return
                job, count, amount = self._jobs.popleft()
            failed = self._do(job)
            with self._changed:
                self.dropped += count if failed else 0
                self._pending -= 1
                self._bytes -= amount
                self._count -= count
                self._changed.notify_all()

    def _do(self, job: Job) -> bool:
        """Run a job; returns whether it failed."""
        try:
            if getattr(self._output, "atomic", False):
                self._room.retry(job)
            else:
                job()
        except Exception as error:  # No backend may stop training.
            reason = str(error).strip().split("\n")[0]
            self._tell(f"failed with {type(error).__name__}: {reason}")
            return True
        return False

    def _get(self) -> Output:
        self._output = self._output or self._make()
        return self._output

    def _close_output(self) -> None:
        close = getattr(self._output, "close", None)
        if close:
            close()

    def _tell(self, problem: str) -> None:
        if not self._told:
            self._told = True
            remedy = f"what it misses is counted in logger/dropped/{self.name}"
            text = f"Logger output {self.name} {problem}. Training continues; {remedy}."
            elements.print(text, color="yellow", flush=True)


def _save(output: Output) -> Any:
    return output.save() if hasattr(output, "save") else None


def _load(data: Any, output: Any) -> None:
    if hasattr(output, "load"):
        output.load(data)


def close_all(outputs: Sequence[Any], deadline: float = 30.0) -> None:
    """Close outputs side by side, all within one deadline."""
    end = time.monotonic() + deadline
    for output in outputs:
        if isinstance(output, Background):
            output.start_close()
    with contextlib.ExitStack() as stack:
        for output in outputs:
            if isinstance(output, Background):
                output.close(max(0.1, end - time.monotonic()))
            elif hasattr(output, "close"):
                stack.callback(output.close)
