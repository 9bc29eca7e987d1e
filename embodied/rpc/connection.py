"""A client's connection to its server, replaced whenever it is lost."""

from __future__ import annotations

import time

import zmq

from embodied.rpc import channel, guard, keys

# Milliseconds before ZeroMQ itself reconnects. Forbidding it (-1) would also drop
# replies that have arrived and are not read yet.
NEVER = 1 << 29
CONNECT_TIMEOUT = 5_000  # Milliseconds for an attempt; a machine may be off.
BACK_OFF = (0.02, 0.05, 0.1, 0.2, 0.5)  # Seconds before a further attempt to connect.


class Connection:
    """One ZeroMQ socket for each attempt to connect.

    ZeroMQ would reconnect by itself, but then newer messages could arrive before those
    that are sent again. With a new socket, what was sent before a loss cannot arrive
    after it, and what is sent again arrives first. Needs the lock of its channel.
    """

    def __init__(self, address: str, pair: keys.ClientKeys | None, max_bytes: int):
        self._address = address
        self._pair = pair
        self._context = zmq.Context()
        self.channel = channel.Channel(self._context, zmq.DEALER, max_bytes)
        self.is_up = False  # Whether the server has accepted this connection.
        self.made = 0  # Connections that a server has accepted.
        self.refused = False  # Whether the server rejected the keys.
        self.dropped = 0  # Connections that the server ended before accepting them.
        self._attempts = 0  # Since the last reply.
        self._was_made = 0  # Value of `made` when this socket was opened.
        self._retry_at: float | None = None  # Set while there is no connection.
        self._connect()

    @property
    def monitor(self) -> int:
        """Descriptor that signals connection events."""
        return self._monitor.fileno

    def is_due(self) -> bool:
        """Process connection events; returns whether to replace the connection now.

        Read all received messages before replacing it.
        """
        self._monitor.handle()
        if self._monitor.lost:
            self._note_loss()
        elif self._monitor.succeeded and not self.is_up:
            self.is_up = True
            self.made += 1
        return self._retry_at is not None and time.monotonic() >= self._retry_at

    def note_reply(self) -> None:
        """Reset the back-off: the connection works."""
        self._attempts = 0

    def replace(self) -> bool:
        """Reconnect; the caller must resend all unanswered calls.

        Returns whether the server may already have received them.
        """
        was_made, self._was_made = self._was_made, self.made
        self._monitor.close()
        self.channel.renew()
        self._connect()
        return self.made > was_made

    def close(self) -> None:
        """Close the socket and everything behind it."""
        self._monitor.close()
        self.channel.close()
        self._context.term()

    def _note_loss(self) -> None:
        if self._retry_at is not None:
            return
        self.refused |= self._monitor.refused
        self.dropped += self._monitor.reached and not self.is_up
        self.is_up = False
        delay = BACK_OFF[min(self._attempts, len(BACK_OFF) - 1)]
        self._attempts += 1
        self._retry_at = time.monotonic() + delay

    def _connect(self) -> None:
        socket = self.channel.socket
        socket.set(zmq.IPV6, "[" in self._address)
        socket.set(zmq.RECONNECT_IVL, NEVER)
        socket.set(zmq.CONNECT_TIMEOUT, CONNECT_TIMEOUT)
        if self._pair:
            socket.set(zmq.CURVE_SERVERKEY, self._pair.server.encode())
            socket.set(zmq.CURVE_PUBLICKEY, self._pair.public.encode())
            socket.set(zmq.CURVE_SECRETKEY, self._pair.secret.encode())
        self._monitor = guard.ConnectionMonitor(socket)
        self.channel.watch(self._monitor.fileno)
        self._retry_at = None
        socket.connect(self._address)
