"""The client's side of a connection: who reads it, and what to repeat after a loss."""

from __future__ import annotations

import threading
import time
from typing import Literal

import zmq

from embodied.rpc import address as addresses
from embodied.rpc import channel, encoding, errors, guard, keys, protocol
from embodied.rpc.futures import Future
from embodied.rpc.ledger import Ledger

# Seconds between looks at calls for which nobody waits.
TICK = 0.1
# Seconds without a reply after which the server is asked what became of the calls.
PROBE_EVERY = 0.5
RECONNECT_FIRST, RECONNECT_MAX = 20, 500  # Milliseconds.

OnRestart = Literal["resend", "fail"]


class Link:
    """A session with a server, over as many connections as it takes.

    One of the threads that wait for a reply leads: it waits for the socket on behalf
    of all, while the others follow. Where nobody waits, a keeper looks now and then.
    """

    def __init__(
        self,
        address: str,
        name: str,
        pair: keys.ClientKeys | None,
        on_restart: OnRestart,
        max_bytes: int,
    ):
        assert on_restart in ("resend", "fail"), on_restart
        self._address = addresses.normalize(address)
        self._name = name
        self._on_restart = on_restart
        self._session = protocol.new_session()
        self._server = 0
        self._ledger = Ledger()
        self._leader = False  # Whether a thread waits for the socket.
        self._connected = False
        self._probed = 0.0  # When the server was last asked, or last answered.
        self._closed = False
        self._context = zmq.Context()
        self._channel = channel.Channel(self._context, zmq.DEALER, max_bytes)
        self._lock = self._channel.lock
        self._changed = threading.Condition(self._lock)
        self._followers = 0  # Threads that wait for `_changed`.
        self._open(pair)
        self._active = threading.Event()  # Set while there may be calls to look after.
        self._keeper = threading.Thread(
            target=self._keep, name=f"rpc-{name}", daemon=True
        )
        self._keeper.start()

    def reach(self, timeout: float) -> bool:
        """Wait for the server; False if it was not there within `timeout` seconds.

        Raises `HandshakeError` as soon as it refuses this client.
        """
        deadline = time.monotonic() + timeout
        with self._lock:
            self._active.set()
            while not self._server and not self._monitor.refused:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._follow(left)
            if self._server:
                return True
        raise errors.HandshakeError(
            f"{self._address} refused {self._name}: the keys do not match, or only "
            "one side has keys"
        )

    def turned_away(self) -> bool:
        """Whether connections were ended by the other side before it ever answered."""
        with self._lock:
            ended = self._monitor.disconnected + self._monitor.failed
            return not self._server and ended > 0

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
