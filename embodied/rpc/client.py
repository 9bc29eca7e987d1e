"""The client: calls are sent by the calling thread, replies read by the waiting one."""

from __future__ import annotations

import functools
import os
import time
from typing import Any

from embodied.rpc import channel, encoding, errors, keys, protocol
from embodied.rpc.futures import Future
from embodied.rpc.link import TICK, Link, OnRestart

LINGER = 0.2  # Seconds that a last acknowledgement may take to leave on close.


class Client(Link):
    """Calls the methods of a server.

    client = Client("tcp://127.0.0.1:4000", name="actor")
    future = client.add_batch(steps)         # Sent when this returns.
    future.result()                          # Or RemoteError, or TimeoutError.

    Threads may share a client. A lost connection is made again, and calls in flight are
    repeated, which a running server executes once. If the server itself was restarted
    in between, nobody knows which calls it had executed. `on_restart` says what then
    happens to them: "resend" executes them on the new server, perhaps a second time, so
    the handler must know repeated data by itself; "fail" raises `ServerRestarted`.

    Arrays of a call must not change until it is done; those of a result are read-only.
    """

    def __init__(
        self,
        address: str,
        name: str = "client",
        *,
        keys: keys.ClientKeys | None = None,
        timeout: float = 60.0,
        connect_timeout: float | None = 60.0,
        on_restart: OnRestart = "resend",
        max_inflight: int = 1024,
        max_bytes: int = channel.MAX_BYTES,
    ):
        """Connect and wait for the server, unless `connect_timeout` is None."""
        self._timeout = timeout
        self._max_inflight = max_inflight
        self._pid = os.getpid()
        super().__init__(address, name, keys, on_restart, max_bytes)
        if connect_timeout is not None:
            self._await_server(connect_timeout)

    def __repr__(self) -> str:
        return f"Client({self._name!r}, {self._address!r})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        method = functools.partial(self._call, name)
        self.__dict__[name] = method  # The next access takes no detour.
        return method

    def call(
        self,
        method: str,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Future:
        """Call a method by name, with a deadline of its own if given."""
        payload, frames = encoding.encode([list(args), kwargs or {}])
        timeout = self._timeout if timeout is None else timeout
        future = Future(self, method, self._address, timeout)
        with self._lock:
            self._check()
            if len(self._ledger.pending) >= self._max_inflight:
                self._await_room(future)
            ack = self._ledger.open(future)
            future.frames = protocol.pack(
                protocol.REQUEST,
                self._session,
                future.id,
                ack,
                self._server if self._on_restart == "fail" else 0,
                method.encode(),
                payload,
                frames,
            )
            self._transmit(future)
            if self._leader:
                self._drain()  # Sending may have consumed the news it waits for.
        if not self._active.is_set():
            self._active.set()
        return future

    def stats(self) -> dict[str, float]:
        """Figures for the logger; counters since the start."""
        with self._lock:
            return self._ledger.stats() | {
                "malformed": self._channel.malformed,
                "connected": float(self._connected),
            }

    def close(self) -> None:
        """Fail calls in flight and close the connection. Safe to call again."""
        if self._pid != os.getpid():
            return  # A forked child must not touch the sockets of its parent.
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._ledger.fail_all(errors.ClientClosed(f"{self!r} was closed"))
            self._notify()
        self._active.set()
        self._channel.wake()
        self._keeper.join()
        with self._lock:
            if self._leader:
                self._follow(TICK)
            self._acknowledge()  # The server need not keep replies any longer.
        self._monitor.close()
        self._channel.close(LINGER)
        self._context.term()

    def wait(self, future: Future, deadline: float) -> None:
        """Read replies until this one is there, or wait for the thread that does."""
        with self._lock:
            while future.frames:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                if self._leader:
                    self._follow(left)
                else:
                    self._lead(future, left)

    def give_up(self, future: Future) -> None:
        """Forget a call whose deadline has passed."""
        with self._lock:
            self._ledger.fail(future, future.overdue())
            self._notify()

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Future:
        return self.call(method, args, kwargs)

    def _await_server(self, timeout: float) -> None:
        try:
            if self.reach(timeout):
                return
        except errors.HandshakeError:
            self.close()
            raise
        self.close()
        raise TimeoutError(f"no server at {self._address} in {timeout} s")

    def _check(self) -> None:
        if self._closed:
            raise errors.ClientClosed(f"{self!r} was closed")
        if self._pid != os.getpid():
            raise RuntimeError(f"{self!r} belongs to the process that forked this one")

    def _await_room(self, future: Future) -> None:
        """Wait until fewer calls are in flight. Needs the lock."""
        while len(self._ledger.pending) >= self._max_inflight:
            left = future.deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"{self._max_inflight} calls to {self._address} are in flight, and "
                    f"none was answered in {future.timeout} s"
                )
            if self._leader:
                self._follow(left)
            else:
                self._lead(next(iter(self._ledger.pending.values())), left)
            self._check()
