"""The server: threads take turns reading the socket and run the calls they read."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from embodied.core import machine
from embodied.rpc import address as addresses
from embodied.rpc import (
    channel,
    dispatcher,
    errors,
    guard,
    keys,
    meters,
    methods,
    queues,
)

READ_AT_ONCE = 256  # Messages between two looks at deadlines.
BACKLOG = 128  # Connections that arrive at once; a closed gate still lets them in.
LINGER = 1.0  # Seconds that the last replies may take to arrive on close.

logger = logging.getLogger("embodied.rpc")


class Server:
    """Serves functions by name.

    server = Server("tcp://127.0.0.1:{auto}", name="replay")
    server.bind("add_batch", replay.add_batch)
    server.start()          # Blocks until another thread calls close().

    An exception in a function fails only that call. Results must not change until the
    client has received them; arrays in arguments are read-only.

    The thread that reads a call also runs it, since waking another one takes longer
    than a short call. There is one thread more than concurrent calls, so that one is
    always free to read the socket.
    """

    def __init__(
        self,
        address: str,
        name: str = "server",
        *,
        keys: keys.ServerKeys | None = None,
        max_bytes: int = channel.MAX_BYTES,
    ):
        self.address = addresses.resolve(address)
        self.name = name
        if keys is None:
            addresses.require_local(self.address)
        self._keys = keys
        self._max_bytes = max_bytes
        self._queues = queues.Queues()
        self._meter = meters.ServerMeter()
        self._pid = os.getpid()
        self._leading = threading.Lock()  # Of the thread that reads.
        self._deferred = False  # Whether a thread waits to read after a pause.
        self._read_at = 0.0
        self._closing = False
        self._finished = threading.Event()  # Set if closing and no call runs.
        self._stopping = False
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def bind(
        self,
        name: str,
        workfn: Callable[..., Any],
        postfn: Callable[[Any], Any] | None = None,
        *,
        workers: int = 1,
        identify: bool = False,
    ) -> None:
        """Serve `workfn(*args, **kwargs)` under a name, `workers` calls at a time.

        With `identify`, the function first gets the name of the key with which the
        client connected, or an empty text if the server has no keys. With a `postfn`,
        it returns `(reply, info)`, and `postfn(info)` runs after the reply was sent, in
        the order of the replies.
        """
        self._add_method(methods.PlainMethod(name, workfn, postfn, workers, identify))

    def start(self, block: bool = True) -> None:
        """Open the address and serve; `block` until closed, raising what ended it."""
        assert not self._threads, "a server starts once"
        machine.raise_file_limit()  # Each client needs one; without it ZeroMQ aborts.
        self._context = zmq.Context()
        try:
            self._open()
        except BaseException:
            self._context.destroy(0)
            raise
        for method in self._queues:
            method.start(self)
        for index in range(1 + sum(method.workers for method in self._queues)):
            name = f"rpc-{self.name}-{index}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        if block:
            self._ended.wait()
            if self._failure:
                raise self._failure

    def close(self, timeout: float = 10.0) -> None:
        """Finish running calls, send their replies and stop. Safe to call again.

        Raises `TimeoutError` naming the methods that still ran after `timeout`.
        """
        if not self._threads or self._closing or self._pid != os.getpid():
            return
        if threading.current_thread() in self._threads:
            raise RuntimeError(f"{self.name} cannot be closed by one of its own calls")
        deadline = time.monotonic() + timeout
        with self._leading:
            self._closing = self._dispatcher.closing = True
        self._channel.wake()
        self._finished.wait(timeout)
        for method in self._queues:
            method.end()
        hung = [m.name for m in self._queues if not m.join(deadline) or m.running]
        if self._stop(max(0.1, deadline - time.monotonic())):
            self._shut()
        else:
            hung.append("the server's own threads")
        self._ended.set()
        if hung:
            raise TimeoutError(f"{self.name} still ran {hung} after {timeout} s")

    def stats(self) -> dict[str, float]:
        """Figures for the logger: rates since the last call, counters since start."""
        counters = {
            "malformed": self._channel.malformed + self._meter.malformed,
            "handshakes_failed": self._monitor.failed,
            "denied": self._guard.denied if self._guard else 0,
            "connections": self._monitor.accepted - self._monitor.disconnected,
            "accept_paused": self._monitor.gate.closings,
        }
        return self._meter.stats(self._queues) | counters

    def failure(self) -> BaseException | None:
        """The first error of a `postfn` or of the server itself, if there was one."""
        found = (method.failure for method in self._queues)
        return self._failure or next((error for error in found if error), None)

    def respond(self, answers: Sequence[methods.Answer]) -> None:
        """Send replies; for the threads that run methods."""
        self._dispatcher.respond(answers)

    def _add_method(self, method: methods.Method) -> None:
        assert not self._threads, "bind before start"
        self._queues.add(method)

    def _open(self) -> None:
        self._channel = channel.Channel(self._context, zmq.ROUTER, self._max_bytes)
        self._dispatcher = dispatcher.Dispatcher(
            self._channel, self._queues.by_name, self._meter, self.name
        )
        socket = self._channel.socket
        socket.set(zmq.ROUTER_MANDATORY, 1)
        socket.set(zmq.BACKLOG, BACKLOG)
        number = addresses.to_open(self.address)
        socket.set(zmq.IPV6, "[" in number)
        self._guard = None
        if self._keys:
            names = self._keys.names or ("client",) * len(self._keys.clients)
            admitted = dict(zip(self._keys.clients, names, strict=True))
            self._guard = guard.Authenticator(self._context, admitted)
            self._channel.has_names = True
            socket.set(zmq.CURVE_SERVER, 1)
            socket.set(zmq.CURVE_SECRETKEY, self._keys.secret.encode())
            self._channel.watch(self._guard.fileno)
        self._monitor = guard.Monitor(socket)
        self._channel.watch(self._monitor.fileno)
        addresses.ensure_parent(self.address)
        try:
            socket.bind(number)
        except zmq.ZMQError as error:
            raise errors.AddressError(
                f"cannot open {self.address} for {self.name}: {error}"
            ) from None
        self._monitor.handle()  # It learns what listens before anything connects.
        if self.address.endswith(":*"):
            port = socket.get(zmq.LAST_ENDPOINT).rstrip(b"\0").rpartition(b":")[2]
            self.address = self.address.removesuffix("*") + port.decode()

    def _shut(self) -> None:
        self._monitor.close()
        self._channel.close(LINGER)
        if self._guard:
            self._guard.close()
        self._context.term()
        addresses.unlink(self.address)

    def _stop(self, timeout: float) -> bool:
        """Stop all threads that run no call; returns whether that was in time."""
        deadline = time.monotonic() + timeout
        self._stopping = True
        self._channel.dismiss()
        for thread in self._threads:
            thread.join(max(0, deadline - time.monotonic()))
        left = sum(thread.is_alive() for thread in self._threads)
        return left <= sum(method.running for method in self._queues)

    def _run(self) -> None:
        """Read the socket, then run a call or wait for the next event."""
        method: methods.Method | None = None
        news: list[tuple[int, int]] = []
        try:
            while not self._stopping:
                method, job, patience = self._lead(method, news)
                if method:
                    method.run(job)
                    self._go_on(method)
                    news = []
                else:
                    news = self._channel.wait(patience)
        except BaseException as error:
            logger.exception("the server %s failed", self.name)
            self._failure = self._failure or error
            self._stopping = True
            self._finished.set()
            self._ended.set()
            self._channel.dismiss()

    def _lead(
        self, done: methods.Method | None, news: Sequence[tuple[int, int]]
    ) -> tuple[methods.Method | None, Any, float | None]:
        """Read what is there; a job and its method, or how long to wait for one."""
        with self._leading:
            if done:
                done.running -= 1
            if news:
                self._attend(news)
            self._deferred = self._queues.patient(self._read_at)
            if not self._deferred:
                self._read()
            patience = _sooner(self._queues.tick(), self._monitor.gate.look())
            if self._closing:
                self._conclude()
            return self._take(patience)

    def _go_on(self, method: methods.Method) -> None:
        """Run queued calls while another thread is responsible for the socket.

        No read is needed after sending, since that thread reads after its pause.
        """
        while self._deferred and not self._stopping:
            with self._leading:
                if not method.jobs:
                    return
                job = method.next()
            method.run(job)

    def _read(self) -> None:
        self._read_at = time.monotonic()
        with self._channel.lock:
            jobs = self._dispatcher.read(READ_AT_ONCE)
        for method, request in jobs:
            method.submit(request)

    def _attend(self, news: Sequence[tuple[int, int]]) -> None:
        for descriptor, _ in news:
            if descriptor == self._monitor.fileno:
                self._monitor.handle()
            elif self._guard and descriptor == self._guard.fileno:
                self._guard.handle()

    def _conclude(self) -> None:
        """Finish all accepted calls; `close` waits for this."""
        if self._queues.seal():
            self._finished.set()

    def _take(
        self, patience: float | None
    ) -> tuple[methods.Method | None, Any, float | None]:
        """A job to run; another thread is woken if there is more to do meanwhile."""
        if self._deferred:
            pause = max(0, self._read_at + queues.PAUSE - time.monotonic())
            patience = _sooner(patience, pause)
        elif self._dispatcher.more:
            patience = 0
        method, job, more = self._queues.take()
        if method and (more or patience is not None):
            self._channel.wake()
        return method, job, patience


def _sooner(one: float | None, other: float | None) -> float | None:
    """The shorter of two waits, of which None has no end."""
    return other if one is None else one if other is None else min(one, other)
