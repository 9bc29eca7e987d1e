"""Authentication of clients (ZAP) and monitoring of connections."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import zmq
import zmq.utils.z85
from zmq.utils import monitor

from embodied.rpc import gate

ZAP_ADDRESS = "inproc://zeromq.zap.01"
ZAP_VERSION = b"1.0"
FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


class Authenticator:
    """Answers ZAP requests: whether a client's key is admitted, and its name.

    ZeroMQ asks through a socket in the server's own context (RFC 27), so that no
    stranger can, and has verified by then that the client has the secret key.
    """

    def __init__(self, context: zmq.Context, clients: Mapping[str, str]):
        self.denied = 0
        self._names = {
            zmq.utils.z85.decode(key): name.encode() for key, name in clients.items()
        }
        self._socket = context.socket(zmq.REP)
        self._socket.set(zmq.LINGER, 0)
        self._socket.bind(ZAP_ADDRESS)
        self.fileno = self._socket.fileno()

    def handle(self) -> None:
        """Answer all questions there are."""
        while _readable(self._socket):
            request = self._socket.recv_multipart(zmq.NOBLOCK)
            _, number, _, _, _, mechanism, *credentials = request
            legal = mechanism == b"CURVE" and len(credentials) == 1
            legal = legal and credentials[0] in self._names
            self.denied += not legal
            name = self._names[credentials[0]] if legal else b""
            status, text = (b"200", b"OK") if legal else (b"400", b"denied")
            reply = [ZAP_VERSION, number, status, text, name, b""]
            self._socket.send_multipart(reply)

    def close(self) -> None:
        self._socket.close()


class Monitor:
    """Counts what happens to the connections of a socket, and minds its gate."""

    EVENTS = zmq.EVENT_LISTENING | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | FAILED

    def __init__(self, socket: zmq.Socket):
        self.accepted = 0
        self.disconnected = 0
        self.failed = 0  # Handshakes: scans, probes, strangers, wrong keys.
        self.gate = gate.Gate()
        self._watched = socket
        self._socket = socket.get_monitor_socket(
            self.EVENTS, f"inproc://monitor-{secrets.token_hex(8)}"
        )
        self.fileno = self._socket.fileno()
        self.handle()  # The descriptor signals only after an empty read.

    def handle(self) -> None:
        """Count all events there are."""
        while _readable(self._socket):
            message = monitor.recv_monitor_message(self._socket, zmq.NOBLOCK)
            self._count(message["event"], message["value"])

    def close(self) -> None:
        self.gate.close()
        self._watched.disable_monitor()
        self._socket.close(0)

    def _count(self, event: int, value: int) -> None:
        if event == zmq.EVENT_LISTENING:
            self.gate.guard(value)
        elif event == zmq.EVENT_ACCEPTED:
            self.accepted += 1
            self.gate.admit(value)
        self.disconnected += event == zmq.EVENT_DISCONNECTED
        self.failed += bool(event & FAILED)


class ConnectionMonitor(Monitor):
    """Follows the only connection of a client's socket."""

    EVENTS = (
        zmq.EVENT_CONNECTED
        | zmq.EVENT_HANDSHAKE_SUCCEEDED
        | zmq.EVENT_DISCONNECTED
        | zmq.EVENT_CLOSED
        | zmq.EVENT_CONNECT_RETRIED
        | FAILED
    )
    # An unresolvable host name shows only as a retry.
    LOST = (
        zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_CONNECT_RETRIED | FAILED
    )

    def __init__(self, socket: zmq.Socket):
        self.reached = False  # Whether something listens at the address.
        self.succeeded = False  # Whether it accepted the connection.
        self.lost = False
        self.refused = False  # Whether it said that keys do not match.
        super().__init__(socket)

    def _count(self, event: int, value: int) -> None:
        self.reached |= event == zmq.EVENT_CONNECTED
        self.succeeded |= event == zmq.EVENT_HANDSHAKE_SUCCEEDED
        self.lost |= bool(event & self.LOST)
        self.refused |= event in (
            zmq.EVENT_HANDSHAKE_FAILED_AUTH,
            zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
        )


def _readable(socket: zmq.Socket) -> bool:
    events: Any = socket.get(zmq.EVENTS)
    return bool(events & zmq.POLLIN)
