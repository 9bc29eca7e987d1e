"""A ZeroMQ socket that several threads share, and that any of them may wait on."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import zmq

from embodied.rpc import encoding, errors, protocol

MAX_BYTES = 1 << 28  # Default limit of one message.
# Frames up to this size are copied when received, as a view of them may be unaligned
# and keeps alive the buffer that they share with others.
COPY_BELOW = 8193
# Frames from this size on are sent from the memory of their array.
ZERO_COPY_FROM = 1 << 17

QUEUE = 1_000  # Messages of one peer that wait to be read.
MAX_UNREAD = 8_192  # Messages to one peer that wait to be sent.

# Heartbeats notice peers that vanished without closing the connection, and run in the
# threads of ZeroMQ. Milliseconds.
HEARTBEAT_EVERY = 5_000
HEARTBEAT_TIMEOUT = 30_000
HANDSHAKE_TIMEOUT = 10_000

# Unwrapped methods: the Python wrappers cost more than the calls.
_BARE: Any = super(zmq.Socket, zmq.Socket)
_SEND, _GET = _BARE.send, _BARE.get
_EVENTS = int(zmq.EVENTS)
_MORE, _NOBLOCK = int(zmq.SNDMORE), int(zmq.NOBLOCK)
_IN = int(zmq.POLLIN)


class Message(NamedTuple):
    """A received message."""

    route: bytes  # To the peer, if the socket has many.
    header: protocol.Header
    frames: list[encoding.Buffer]
    nbytes: int
    client: str = ""  # Name of the key that the peer has, if it needs one.


class Channel:
    """A socket for short operations under `lock`, and a wait without it.

    An event wakes one thread, the one that started waiting last. Events that arrive
    while it is busy wake the others.

    The file descriptor of a ZeroMQ socket is edge-triggered: a change is reported once,
    to the next thread that touches the socket. After sending, a thread must therefore
    drain the socket or call `wake`; otherwise waiting threads miss the event.
    """

    def __init__(self, context: zmq.Context, kind: int, max_bytes: int = MAX_BYTES):
        self.lock = threading.Lock()
        self.malformed = 0  # Messages that were thrown away.
        self.has_names = False  # Whether an authenticator names the peers.
        self._context = context
        self._kind = kind
        self.max_bytes = max_bytes
        self._has_routes = kind == zmq.ROUTER
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller = select.epoll()
        # Whether the socket has unread news. A hint, set without the lock: it may be
        # stale or lost, as each use only skips one look.
        self._announced = False
        self.watch(self._wake)
        self._open()

    def renew(self) -> None:
        """Replace the socket; what it has not sent or read is gone. Needs the lock."""
        self._poller.unregister(self._fileno)
        self.socket.close(0)
        self._open()

    def _open(self) -> None:
        self.socket = self._context.socket(self._kind)
        self._configure()
        self._fileno = self.socket.fileno()
        self._recv = self.socket.recv
        self.watch(self._fileno)

    def _configure(self) -> None:
        options = {
            zmq.MAXMSGSIZE: self.max_bytes,
            # A peer that sends too much has to wait; one that does not read loses
            # replies. Requests are limited by the client.
            zmq.RCVHWM: QUEUE,
            zmq.SNDHWM: MAX_UNREAD if self._has_routes else 0,
            zmq.LINGER: 0,
            zmq.TCP_KEEPALIVE: 1,
            zmq.HEARTBEAT_IVL: HEARTBEAT_EVERY,
            zmq.HEARTBEAT_TIMEOUT: HEARTBEAT_TIMEOUT,
            zmq.HEARTBEAT_TTL: HEARTBEAT_TIMEOUT,
            zmq.HANDSHAKE_IVL: HANDSHAKE_TIMEOUT,
        }
        for option, value in options.items():
            self.socket.set(option, value)

    def watch(self, descriptor: int) -> None:
        """Also end `wait` when this descriptor becomes readable."""
        self._poller.register(descriptor, select.EPOLLIN | select.EPOLLET)

    def wait(self, seconds: float | None) -> list[tuple[int, int]]:
        """Wait, without the lock, until there may be news: descriptors and events.

        The socket itself must have been read until nothing was left, before.
        """
        news = self._poller.poll(seconds)
        for descriptor, _ in news:
            if descriptor == self._fileno:
                self._announced = True
        return news

    def wake(self) -> None:
        """End the wait of one thread in `wait`, or the next one."""
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def dismiss(self) -> None:
        """Wake all threads now and return from every later wait at once."""
        self.wake()
        self._poller.modify(self._wake, select.EPOLLIN)

    def readable(self) -> bool:
        """Whether there may be a message. Needs the lock.

        An event that ended a wait counts as a message, since checking costs more than
        receiving. So drain the socket, or remember that there may be more.
        """
        if self._announced:
            self._announced = False
            return True
        return bool(_GET(self.socket, _EVENTS) & _IN)

    def send(self, frames: Sequence[encoding.Buffer], route: bytes = b"") -> bool:
        """Send a message; False if there is no such peer. Needs the lock."""
        socket = self.socket
        if socket.closed:
            return False
        last = len(frames) - 1
        try:
            if self._has_routes:
                _SEND(socket, route, _MORE | _NOBLOCK)
            for index, frame in enumerate(frames):
                flags = _NOBLOCK if index == last else _MORE | _NOBLOCK
                copy = index == 0 or frame.nbytes < ZERO_COPY_FROM
                _SEND(socket, frame, flags, copy=copy)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    def receive(self) -> Message | None:
        """The next message, or None: it was malformed, or there is none.

        Call it only if `readable` says that there may be one. Needs the lock.
        """
        try:
            route = self._recv(_NOBLOCK) if self._has_routes else b""
            frame = self._recv(_NOBLOCK, copy=False)
        except zmq.Again:
            return None
        client: Any = frame.get("User-Id") if self.has_names else ""
        data = frame.bytes
        total = len(data)
        frames: list[encoding.Buffer] = []
        while frame.more:
            frame = self._recv(_NOBLOCK, copy=False)
            total += len(frame)
            if len(frames) <= encoding.MAX_FRAMES and total <= self.max_bytes:
                frames.append(frame if len(frame) >= COPY_BELOW else frame.bytes)
        try:
            header = protocol.parse(data)
        except errors.DecodeError:
            header = None
        legal = total <= self.max_bytes and len(data) <= encoding.MAX_HEADER
        if header is None or header.frames != len(frames) or not legal:
            self.malformed += 1
            return None
        return Message(route, header, frames, total, client)

    def close(self, linger: float = 0) -> None:
        """Close the socket; messages may still leave for `linger` seconds."""
        with self.lock:
            self.socket.close(int(1e3 * linger))
            self._poller.close()
            os.close(self._wake)
            self._wake = -1
