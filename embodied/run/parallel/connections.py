"""Connections between the roles of a run: keys, servers, clients, shutdown."""

from __future__ import annotations

import contextlib
import pathlib
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import elements

from embodied import rpc
from embodied.core import base, pickling
from embodied.core.clock import Seconds
from embodied.metrics import summary
from embodied.process.context import POLL, Context, StoppedError
from embodied.run.settings import RunSettings

TELL_AFTER = 5.0  # Seconds of waiting for a role before printing a message.
END_TIMEOUT = 60.0  # Seconds to save everything at the end.
STORED = 7 * 24 * 3600.0  # Seconds to store something: a disk may be full for days.
FLUSH = 60.0  # Seconds that the last metrics may take to arrive.
FLUSH_AWAY = 2.0  # The same if a logger that another supervisor runs is not there.
MAX_BYTES = 64 << 20  # Metrics of one sender on their way to the logger.
MAX_CALLS = 256  # The same in calls.
DROPPED = "parallel/dropped_metrics"  # Metrics that did not reach the logger.

# Clients of a run over a network; each has a key of its own (see docs/rpc.md).
CORE = "core"  # Agent, replay, logger and launcher: calls every server.
ENV = "env"  # Environments: call coordinator and actor.
LEARNER = "learner"  # Further hosts of the learner: call coordinator and first host.
CLIENTS = (CORE, ENV, LEARNER)

# Transports between roles; the adapter of `portal` has the interface of ours.
ZMQ, PORTAL = TRANSPORTS = ("zmq", "portal")


def factory(make: bytes | Callable[..., Any]) -> Callable[..., Any]:
    """Unpickle a factory if needed."""
    return pickling.loads(make) if isinstance(make, bytes) else make


class RunOverError(Exception):
    """The run has ended; the caller should exit."""


def is_over(error: BaseException) -> bool:
    """Whether an answer means that the run has ended."""
    return isinstance(error, rpc.RemoteError) and error.kind == RunOverError.__name__


def connect(
    address: str, name: str, args: RunSettings, ctx: Context, **options: Any
) -> rpc.Client:
    """A client of another role, with the keys of the run if it has any.

    Waits without a deadline, since the role may be started later or be restarting.
    Raises `StoppedError` if this process is asked to stop first.
    """
    return reach(address, client_keys(args), name, ctx, args.transport, **options)


def client(
    address: str,
    keys: rpc.ClientKeys | None,
    name: str,
    transport: str = ZMQ,
    connect_timeout: float | None = None,
    **options: Any,
) -> rpc.Client:
    """A client of a server, over the transport of the run."""
    if transport == PORTAL:
        return _portal().Client(address, name, connect_timeout=connect_timeout)
    return rpc.Client(
        address, name, keys=keys, connect_timeout=connect_timeout, **options
    )


def serve(
    address: str, name: str, args: RunSettings, *admitted: str
) -> rpc.BatchServer:
    """A server, not started, that admits the core of the run and named clients."""
    if args.transport == PORTAL:
        return _portal().Server(address, name)
    return rpc.BatchServer(address, name, keys=server_keys(args, *admitted))


def _portal() -> Any:
    """The adapter over `portal`, which has the interface of our own transport."""
    from embodied.rpc import portal  # The package is not needed otherwise.

    return portal


def reach(
    address: str,
    keys: rpc.ClientKeys | None,
    name: str,
    ctx: Context,
    transport: str = ZMQ,
    keep: Callable[[], None] | None = None,
    gone: Callable[[], bool] = bool,
    **options: Any,
) -> rpc.Client:
    """A client of a server; waits without a deadline until the server is up, or `gone`.

    Calls `keep` (default: the heartbeat) while waiting; its errors propagate.
    """
    made = client(address, keys, name, transport, **options)
    try:
        text = f"{name} is waiting for a server at {address}."
        _await_server(made, text, ctx, keep or ctx.beat, gone)
    except BaseException:
        made.close()
        raise
    return made


def _await_server(
    client: rpc.Client,
    text: str,
    ctx: Context,
    keep: Callable[[], None],
    gone: Callable[[], bool],
) -> None:
    """Wait for a server unless it is `gone`; raises `StoppedError` if asked to stop."""
    due_tell, told = Seconds(TELL_AFTER), False
    while not gone() and not client.reach(0.5):
        keep()
        if ctx.stopping():
            raise StoppedError
        if not told and due_tell():
            told = True
            if client.turned_away():
                text += " A server is listening but closes the connection; check that "
                text += "the keys belong to this run."
            elements.print(text, flush=True)


class Ending:
    """Serves `end`, which shuts down a role of another supervisor.

    Replies once the role has saved everything, so that the caller can then shut down
    the roles it depends on.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._done = threading.Event()

    def __call__(self) -> None:
        self._ctx.request_stop()
        if not self._done.wait(END_TIMEOUT):
            raise TimeoutError(f"shutdown did not finish within {END_TIMEOUT} s")

    def done(self) -> None:
        """Everything is saved and sent."""
        self._done.set()


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
        keys = client_keys(args)
        self._client = reach(
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


def keys_directory(args: RunSettings) -> pathlib.Path:
    """Where the keys of a run are kept."""
    return pathlib.Path(args.key_dir or f"{args.logdir}/keys").expanduser()


def client_keys(args: RunSettings, name: str = CORE) -> rpc.ClientKeys | None:
    """The keys to connect with, unless the run stays on this machine."""
    directory = keys_directory(args)
    return rpc.load_client(directory, name) if directory.exists() else None


def server_keys(args: RunSettings, *admitted: str) -> rpc.ServerKeys | None:
    """The keys to serve with, unless the run stays on this machine.

    They admit the core of the run and the other clients that are named.
    """
    directory = keys_directory(args)
    return rpc.load_server(directory, CORE, *admitted) if directory.exists() else None


def prefixed(prefix: str, metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics under a common name."""
    return {f"{prefix}/{key}": value for key, value in metrics.items()}


def check(server: rpc.Server) -> None:
    """Raise the error of a server's own threads, if any."""
    failure = server.failure()
    if failure:
        raise failure
