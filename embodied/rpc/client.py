"""The client: calls are sent by the calling thread, replies read by the waiting one."""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import Any, Literal

import zmq

from embodied.rpc import address as addresses
from embodied.rpc import channel, encoding, errors, guard, keys, protocol
from embodied.rpc.futures import Future
from embodied.rpc.ledger import Ledger

# Seconds between looks at calls for which nobody waits.
TICK = 0.1
# Seconds without a reply after which the server is asked what became of the calls.
PROBE_EVERY = 0.5
LINGER = 0.2  # Seconds that a last acknowledgement may take to leave on close.
RECONNECT_FIRST, RECONNECT_MAX = 20, 500  # Milliseconds.

OnRestart = Literal["resend", "fail"]


class Client:
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
        assert on_restart in ("resend", "fail"), on_restart
        self._address = addresses.normalize(address)
        self._name = name
        self._timeout = timeout
        self._on_restart = on_restart
        self._max_inflight = max_inflight
        self._session = protocol.new_session()
        self._server = 0
        self._ledger = Ledger()
        self._leader = False  # Whether a thread waits for the socket.
        self._connected = False
        self._probed = 0.0  # When the server was last asked, or last answered.
        self._closed = False
        self._pid = os.getpid()
        self._context = zmq.Context()
        self._channel = channel.Channel(self._context, zmq.DEALER, max_bytes)
        self._lock = self._channel.lock
        self._changed = threading.Condition(self._lock)
        self._followers = 0  # Threads that wait for `_changed`.
        self._open(keys)
        self._active = threading.Event()  # Set while there may be calls to look after.
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

    def _open(self, pair: keys.ClientKeys | None) -> None:
        socket = self._channel.socket
        # Without a connection nothing is queued: repeating is our business.
        socket.set(zmq.IMMEDIATE, 1)
        socket.set(zmq.IPV6, "[" in self._address)
        socket.set(zmq.RECONNECT_IVL, RECONNECT_FIRST)
        socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX)
        if pair:
            socket.set(zmq.CURVE_SERVERKEY, pair.server.encode())
            socket.set(zmq.CURVE_PUBLICKEY, pair.public.encode())
            socket.set(zmq.CURVE_SECRETKEY, pair.secret.encode())
        self._monitor = guard.Monitor(socket)
        socket.connect(self._address)

    def _await_server(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        with self._lock:
            self._active.set()
            while not self._server:
                left = deadline - time.monotonic()
                if left <= 0 or self._monitor.refused:
                    break
                self._follow(left)
        if self._server:
            return
        refused = self._monitor.refused
        self.close()
        if refused:
            raise errors.HandshakeError(
                f"{self._address} refused {self._name}: the keys do not match, or only "
                "one side has keys"
            )
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

    def _lead(self, future: Future, seconds: float) -> None:
        """Wait for the socket on behalf of all threads. Needs the lock."""
        self._drain(future)
        if not future.frames:
            return
        self._leader = True
        self._lock.release()
        try:
            self._channel.wait(seconds)
        finally:
            self._lock.acquire()
            self._leader = False
            if not self._closed:
                self._drain(future)
            self._notify()  # Somebody else has to lead now.

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

        It is for the next thread that waits to read the rest first.
        """
        done = False
        while True:
            readable, connected = self._channel.events()
            found, self._connected = not self._connected and connected, connected
            if found:
                self._probe()
                continue  # To send is to touch the socket, so look again.
            if not readable:
                break
            message = self._channel.receive()
            if message is not None:
                done |= self._handle(message)
                if future and not future.frames:
                    break
        if done:
            self._notify()
            if self._leader:
                self._channel.wake()

    def _handle(self, message: channel.Message) -> bool:
        """Take one message; whether it completed a call."""
        header = message.header
        self._probed = time.monotonic()
        if header.kind == protocol.WELCOME:
            try:
                unknown = protocol.parse_ids(encoding.decode(header.payload))
            except errors.DecodeError:
                self._channel.malformed += 1
                return False
            return self._meet(header.server, unknown)
        return self._ledger.resolve(message)

    def _meet(self, server: int, unknown: list[int]) -> bool:
        """Find out whether this is the server as before; repeat what it misses."""
        restarted = self._server not in (0, server)
        self._server = server
        self._ledger.restarts += restarted
        fail = restarted and self._on_restart == "fail"
        for future in self._ledger.lost(unknown, fail):
            self._transmit(future)
        if fail and unknown:
            self._probe()  # Tell the server not to wait for them.
        return True

    def _transmit(self, future: Future) -> None:
        if self._channel.send(future.frames):
            future.sent = True

    def _probe(self) -> None:
        """Ask the server what became of the calls in flight."""
        self._probed = time.monotonic()
        payload = encoding.encode(list(self._ledger.pending))[0]
        ack = self._ledger.ack()
        frames = protocol.pack(protocol.HELLO, self._session, ack=ack, payload=payload)
        self._channel.send(frames)

    def _keep(self) -> None:
        """Look after calls for which nobody waits, and sleep while there are none."""
        stopped = threading.Event()
        while not self._closed:
            self._active.wait()
            with self._lock:
                if not self._closed:
                    self._tick()
            stopped.wait(TICK)

    def _tick(self) -> None:
        """Read, expire, ask again. Needs the lock."""
        self._drain()
        self._monitor.handle()
        now = time.monotonic()
        self._ledger.expire(now)
        if self._ledger.pending or not self._server:
            if now - self._probed > PROBE_EVERY:
                self._probe()
        else:
            self._active.clear()
            self._acknowledge()
        self._drain()  # Sending may have consumed the news that the leader waits for.
        self._notify()

    def _acknowledge(self) -> None:
        """Tell the server which replies arrived, unless it knows. Needs the lock."""
        if self._ledger.untold():
            ack = self._ledger.ack()
            self._channel.send(protocol.pack(protocol.ACK, self._session, ack=ack))
