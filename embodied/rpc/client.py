"""The client: calls are sent by the calling thread, replies read by the waiting one."""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import Any

from embodied.rpc import address as addresses
from embodied.rpc import channel, connection, encoding, errors, keys, protocol
from embodied.rpc.futures import Future
from embodied.rpc.pending_calls import PendingCalls

TICK = 0.1  # Seconds between looks at calls that no thread waits for.


class Client:
    """Calls the methods of a server.

    client = Client("tcp://127.0.0.1:4000", name="actor")
    future = client.add_batch(steps)         # Sent when this returns.
    future.result()                          # Or RemoteError, or TimeoutError.

    Calls arrive in the order in which they were made. After a lost connection, and at a
    restarted server, those in flight are sent again, in order. So a call may run more
    than once: what must not happen twice carries a number that the handler checks.

    Threads may share a client. One of those that wait for a reply leads: it waits for
    the socket on behalf of all, while the others follow. Where none waits, a keeper
    thread looks from time to time.

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
        max_inflight: int = 1024,
        max_bytes: int = channel.MAX_BYTES,
    ):
        """Connect and wait for the server, unless `connect_timeout` is None."""
        self._address = addresses.normalize(address)
        self._name = name
        self._timeout = timeout
        self._max_inflight = max_inflight
        self._max_bytes = max_bytes
        self._pid = os.getpid()
        self._closed = False
        self._pending = PendingCalls()
        self._repeats = 0  # Calls that were sent again.
        self._connection = connection.Connection(self._address, keys, max_bytes)
        self._channel = self._connection.channel
        self._lock = self._channel.lock
        self._changed = threading.Condition(self._lock)
        self._followers = 0  # Threads that wait for `_changed`.
        self._leading = False  # Whether a thread waits for the socket.
        self._active = threading.Event()  # Set while the keeper has something to do.
        self._keeper = threading.Thread(
            target=self._keep, name=f"rpc-{name}", daemon=True
        )
        self._keeper.start()
        if connect_timeout is not None:
            self._await_server(connect_timeout)

    def __repr__(self) -> str:
        return f"Client({self._name!r}, {self._address!r})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        method = functools.partial(self._call, name)
        self.__dict__[name] = method  # Cached, bypassing `__getattr__`.
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
        if frames and encoding.size(frames) > self._max_bytes:
            raise errors.EncodeError(
                f"{method} at {self._address}: {encoding.size(frames)} bytes in one "
                f"call, the limit is {self._max_bytes}: split it, or give max_bytes"
            )
        timeout = self._timeout if timeout is None else timeout
        future = Future(self, method, self._address, timeout)
        with self._lock:
            self._check()
            if len(self._pending) >= self._max_inflight:
                self._await_room(future)
            self._pending.add(future)
            future.frames = protocol.pack(
                protocol.REQUEST, future.id, method.encode(), payload, frames
            )
            self._channel.send(future.frames)
            if self._leading:
                self._drain()  # Sending may have consumed the news it waits for.
        if not self._active.is_set():
            self._active.set()
        return future

    def call_rows(
        self, method: str, rows: dict[str, Any], timeout: float | None = None
    ) -> Future:
        """Call a batched method with all rows [N, ...] in one message."""
        return self.call(method, (rows,), timeout=timeout)

    def reach(self, timeout: float) -> bool:
        """Wait for the server; False if it was not there within `timeout` seconds.

        Raises `HandshakeError` as soon as it rejects this client.
        """
        deadline = time.monotonic() + timeout
        with self._lock:
            self._active.set()
            while not self._connection.made and not self._connection.refused:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._follow(left)
            if self._connection.made:
                return True
        raise errors.HandshakeError(
            f"{self._address} rejected {self._name}: the keys do not match, or only "
            "one side has keys"
        )

    def turned_away(self) -> bool:
        """Whether the server closed every connection without accepting one."""
        with self._lock:
            return not self._connection.made and self._connection.dropped > 0

    def stats(self) -> dict[str, float]:
        """Figures for the logger; counters since the start."""
        with self._lock:
            if not self._closed:
                self._attend()
            return self._pending.stats() | {
                "connected": float(self._connection.is_up),
                "connections": self._connection.made,
                "malformed": self._channel.malformed,
                "repeats": self._repeats,
            }

    def close(self) -> None:
        """Fail calls in flight and close the connection. Safe to call again."""
        if self._pid != os.getpid():
            return  # A forked child must not touch the sockets of its parent.
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._pending.fail_all(errors.ClientClosed(f"{self!r} was closed"))
            self._notify()
        self._active.set()
        self._channel.wake()
        self._keeper.join()
        with self._lock:
            while self._leading:
                self._follow(TICK)
        self._connection.close()

    def wait(self, future: Future, deadline: float) -> None:
        """Read replies until this one is there, or wait for the thread that does."""
        with self._lock:
            while future.frames:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                if self._leading:
                    self._follow(left)
                else:
                    self._lead(future, left)

    def give_up(self, future: Future) -> None:
        """Forget a call whose deadline has passed."""
        with self._lock:
            self._pending.fail(future, future.overdue())
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
        while len(self._pending) >= self._max_inflight:
            left = future.deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"{self._max_inflight} calls to {self._address} are in flight, and "
                    f"none was answered in {future.timeout} s"
                )
            if self._leading:
                self._follow(left)
            else:
                self._lead(next(iter(self._pending)), left)
            self._check()

    def _lead(self, future: Future, seconds: float) -> None:
        """Wait for the socket on behalf of all threads. Needs the lock."""
        self._drain(future)
        if not future.frames:
            return
        self._leading = True
        self._lock.release()
        news: list[tuple[int, int]] = []
        try:
            news = self._channel.wait(seconds)
        finally:
            self._lock.acquire()
            self._leading = False
            if not self._closed:
                self._drain(future)
                for number, _ in news:
                    if number == self._connection.monitor:
                        self._attend()
            self._notify()  # Another thread has to lead now.

    def _follow(self, seconds: float) -> None:
        """Wait for news from the thread that leads, or for its place."""
        self._followers += 1
        try:
            self._changed.wait(seconds)
        finally:
            self._followers -= 1

    def _notify(self) -> None:
        if self._followers:
            self._changed.notify_all()

    def _drain(self, future: Future | None = None) -> None:
        """Read all messages there are, or until this call is done. Needs the lock.

        The next thread that waits reads the rest first.
        """
        done = False
        while self._channel.readable():
            message = self._channel.receive()
            if message is not None:
                done |= self._pending.resolve(message)
                if future and not future.frames:
                    break
        if done:
            self._connection.note_reply()
            self._notify()
            if self._leading:
                self._channel.wake()

    def _attend(self) -> None:
        """Replace a lost connection and resend all unanswered calls."""
        if not self._connection.is_due():
            return
        self._drain()
        was_up = self._connection.replace()
        for future in self._pending:
            self._channel.send(future.frames)
        self._repeats += was_up * len(self._pending)
        self._drain()  # Sending may have consumed the news that the leader waits for.

    def _keep(self) -> None:
        """Service calls that no thread waits for; sleeps while there are none."""
        pause = threading.Event()
        while not self._closed:
            self._active.wait()
            with self._lock:
                if not self._closed:
                    self._tick()
            pause.wait(TICK)

    def _tick(self) -> None:
        """Read, expire, reconnect. Needs the lock."""
        self._drain()
        self._pending.expire(time.monotonic())
        self._attend()
        if not self._pending and self._connection.is_up:
            self._active.clear()
        self._notify()
