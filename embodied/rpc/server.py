"""The server: one thread reads the socket, methods run in threads of their own."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from embodied.rpc import address as addresses
from embodied.rpc import channel, desk, errors, guard, keys, meters, methods, sessions

READ_AT_ONCE = 256  # Messages between two looks at deadlines.
LINGER = 1.0  # Seconds that the last replies may take to arrive on close.

logger = logging.getLogger("embodied.rpc")


class Server:
    """Serves functions by name.

    server = Server("tcp://127.0.0.1:{auto}", name="replay")
    server.bind("add_batch", replay.add_batch)
    server.start()          # Blocks until another thread calls close().

    A function that fails, fails that call, and nothing else. What it returns must not
    change until the client has it. Arrays it gets are read-only.
    """

    def __init__(
        self,
        address: str,
        name: str = "server",
        *,
        keys: keys.ServerKeys | None = None,
        max_bytes: int = channel.MAX_BYTES,
        memory: int = sessions.MAX_BYTES,
    ):
        self.address = addresses.resolve(address)
        self.name = name
        if keys is None:
            addresses.require_local(self.address)
        self._keys = keys
        self._max_bytes = max_bytes
        self._methods: dict[bytes, methods.Method] = {}
        self._batched: list[methods.Method] = []
        self._memory = memory
        self._meter = meters.ServerMeter()
        self._pid = os.getpid()
        self._closing = False
        self._settled = threading.Event()  # Set if closing and all replies arrived.
        self._stopping = False
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def bind(
        self,
        name: str,
        workfn: Callable[..., Any],
        postfn: Callable[[Any], Any] | None = None,
        *,
        workers: int = 1,
    ) -> None:
        """Serve `workfn(*args, **kwargs)` under a name, in `workers` threads.

        Without workers it runs in the thread that reads the socket: quicker, but all
        else waits for it. With a `postfn`, the function returns `(reply, info)`, and
        `postfn(info)` runs after the reply was sent, in the order of the replies.
        """
        self._add_method(methods.PlainMethod(name, workfn, postfn, workers))

    def start(self, block: bool = True) -> None:
        """Open the address and serve; `block` until closed, raising what ended it."""
        assert self._thread is None, "a server starts once"
        self._context = zmq.Context()
        try:
            self._open()
        except BaseException:
            self._context.destroy(0)
            raise
        for method in self._methods.values():
            method.start(self)
        name = f"rpc-{self.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        if block:
            self._ended.wait()
            if self._failure:
                raise self._failure

    def close(self, timeout: float = 10.0) -> None:
        """Finish running calls, send their replies and stop. Safe to call again.

        Raises `TimeoutError` naming the methods that still ran after `timeout`.
        """
        if self._thread is None or self._closing or self._pid != os.getpid():
            return
        deadline = time.monotonic() + timeout
        self._closing = self._desk.closing = True
        hung = [m.name for m in self._methods.values() if not m.close(deadline)]
        # A reply that left may still get lost with the connection, so await the acks.
        self._channel.wake()
        self._settled.wait(min(LINGER, max(0, deadline - time.monotonic())))
        self._stopping = True
        self._channel.wake()
        self._thread.join(max(0.1, deadline - time.monotonic()))
        if self._thread.is_alive():
            hung.append("the server's own thread")
        else:
            self._shut()
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
            "clients": len(self._desk.sessions),
            "memory": self._desk.sessions.nbytes,
            "forgotten": self._desk.sessions.forgotten,
        }
        return self._meter.stats(self._methods.values()) | counters

    def failure(self) -> BaseException | None:
        """The first error of a `postfn` or of the server itself, if there was one."""
        found = (method.failure for method in self._methods.values())
        return self._failure or next((error for error in found if error), None)

    def respond(self, answers: Sequence[methods.Answer]) -> None:
        """Remember and send replies; any thread may."""
        self._desk.respond(answers)

    def wake(self) -> None:
        self._channel.wake()

    def _add_method(self, method: methods.Method) -> None:
        assert self._thread is None, "bind before start"
        if not method.name.isidentifier() or method.name.startswith("_"):
            raise ValueError(f"'{method.name}' cannot be the name of a method")
        self._methods[method.name.encode()] = method
        self._batched = [m for m in self._methods.values() if m.batched]

    def _open(self) -> None:
        self._channel = channel.Channel(self._context, zmq.ROUTER, self._max_bytes)
        self._desk = desk.Desk(
            self._channel, self._methods, self._meter, self.name, self._memory
        )
        socket = self._channel.socket
        socket.set(zmq.ROUTER_MANDATORY, 1)
        socket.set(zmq.BACKLOG, 1024)
        socket.set(zmq.IPV6, "[" in self.address)
        self._guard = None
        if self._keys:
            self._guard = guard.Authenticator(self._context, self._keys.clients)
            socket.set(zmq.CURVE_SERVER, 1)
            socket.set(zmq.CURVE_SECRETKEY, self._keys.secret.encode())
            self._channel.watch(self._guard.fileno)
        self._monitor = guard.Monitor(socket)
        self._channel.watch(self._monitor.fileno)
        addresses.ensure_parent(self.address)
        try:
            socket.bind(self.address)
        except zmq.ZMQError as error:
            raise errors.AddressError(
                f"cannot open {self.address} for {self.name}: {error}"
            ) from None
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

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._step()
        except BaseException as error:
            logger.exception("the server %s failed", self.name)
            self._failure = error
            self._ended.set()

    def _step(self) -> None:
        """Read what is there, hand it out, then wait for more or for a deadline."""
        with self._channel.lock:
            requests = self._desk.read(READ_AT_ONCE)
            self._desk.waiting = not self._desk.more
        for method, request in requests:
            method.submit(request)
        if self._desk.closing and not self._desk.sessions.nbytes:
            self._settled.set()
        patience = self._tick()
        ready = self._channel.wait(0 if self._desk.more else patience)
        self._desk.waiting = False
        if self._monitor.fileno in ready:
            self._monitor.handle()
        if self._guard and self._guard.fileno in ready:
            self._guard.handle()

    def _tick(self) -> float | None:
        """Do what is due; seconds until there is more, or None."""
        first = None
        for method in self._batched:
            method.tick()
            deadline = method.deadline()
            if deadline is not None and (first is None or deadline < first):
                first = deadline
        return None if first is None else max(0, first - time.monotonic())
