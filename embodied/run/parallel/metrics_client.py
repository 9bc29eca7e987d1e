"""Sends metrics and steps to the logger without waiting for it."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import deque
from functools import partial
from typing import NamedTuple

import elements

from embodied import rpc
from embodied.core import base
from embodied.metrics import summary
from embodied.process.context import POLL, Context
from embodied.run.parallel import connections, run_keys
from embodied.run.settings import RunSettings

FLUSH = 60.0  # Seconds that the last metrics may take to arrive.
FLUSH_AWAY = 2.0  # The same if a logger that another supervisor runs is not there.
MAX_BYTES = 64 << 20  # Metrics of one sender on their way to the logger.
MAX_CALLS = 256  # The same in calls.
DROPPED = "parallel/dropped_metrics"  # Metrics that did not reach the logger.


class Sent(NamedTuple):
    """A call with metrics."""

    future: rpc.Future
    nbytes: int
    metrics: int  # How many are lost if it fails.


class LoggerLink:
    """Sends metrics and steps to the logger without waiting for it.

    Metrics that do not arrive, or exceed what may be on its way, are dropped; the next
    ones tell how many.
    """

    def __init__(self, name: str, args: RunSettings, ctx: Context):
        gone = partial(ctx.gone, "logger")
        keys = run_keys.client_keys(args)
        self._client = connections.reach(
            args.logger_addr, keys, name, ctx, args.transport, gone=gone
        )
        self._ctx = ctx
        self._remote = args.remote_logger
        self._timeout = args.agent_timeout  # Long enough for another logger to start.
        self._source = secrets.token_hex(8)
        self._sent = 0  # Metrics, which are numbered, so that none counts twice.
        self._flight: deque[Sent] = deque()
        self._nbytes = 0  # In flight.
        self._dropped = 0  # Metrics, since some arrived.
        self._lock = threading.Lock()
        self._warned = False
        self._deadline: float | None = None  # Of the end.
        self._flush = min(FLUSH, args.stop_timeout / 2)

    def add(self, metrics: base.Metrics) -> None:
        """Send metrics, or drop them if too much is on its way."""
        nbytes = sum(summary.size((0, *item)) for item in metrics.items())
        with self._lock:
            self._collect()
            full = self._nbytes + nbytes > MAX_BYTES or len(self._flight) >= MAX_CALLS
            if self._flight and full:
                self._drop(len(metrics), "it is late")
                return
            count = len(metrics) + self._dropped
            if self._dropped:
                metrics = {**metrics, DROPPED: self._dropped}
                self._dropped = 0
            self._sent += 1
            numbered = (metrics, (self._source, self._sent))
            future = self._client.call("add", numbered, timeout=self._timeout)
            self._flight.append(Sent(future, nbytes, count))
            self._nbytes += nbytes

    def tran(self, steps: base.Batch) -> rpc.Future:
        """Send steps; the caller bounds how many are on their way."""
        return self._client.call("tran", (steps,), timeout=self._timeout)

    def seen(self) -> rpc.Future:
        """Ask which steps the logger has."""
        return self._client.call("seen", timeout=self._timeout)

    def stats(self) -> base.Metrics:
        """Figures of the client."""
        return self._client.stats()

    def patience(self) -> float:
        """Seconds left, since the first call, to wait until everything has arrived.

        None are left if the logger is gone, and few if it runs elsewhere and is away.
        """
        if self._ctx.gone("logger"):
            return 0.0
        if self._deadline is None:
            if self._ctx.stopping() and not self._ctx.aborted():
                self._client.drain()
            away = self._remote and not self._client.stats()["connected"]
            self._deadline = time.monotonic() + (FLUSH_AWAY if away else self._flush)
        return max(0.0, self._deadline - time.monotonic())

    def close(self) -> None:
        """Wait until everything has arrived, but not for a logger that is gone."""
        self.flush()
        self._client.close()

    def flush(self) -> None:
        """Wait until everything has arrived, but not for a logger that is gone."""
        with self._lock:
            while self._flight:
                self._await(self._flight[0].future)
                self._settle(0.0)

    def _await(self, future: rpc.Future) -> None:
        """Wait for a call as long as the logger may answer it."""
        while not future.done() and (left := self.patience()):
            with contextlib.suppress(TimeoutError):
                future.exception(min(left, POLL))

    def _collect(self) -> None:
        """Take the answers there are. Needs the lock."""
        while self._flight and self._flight[0].future.done():
            self._settle()

    def _settle(self, timeout: float | None = None) -> None:
        """Take the next answer. Needs the lock."""
        future, nbytes, metrics = self._flight.popleft()
        self._nbytes -= nbytes
        try:
            error = future.exception(timeout)
        except TimeoutError as late:
            error = late
        if error:
            self._drop(metrics, str(error))

    def _drop(self, count: int, reason: str) -> None:
        self._dropped += count
        if not self._warned:
            self._warned = True
            text = f"Metrics did not reach the logger: {reason}. {DROPPED} counts them."
            elements.print(text, color="yellow", flush=True)
