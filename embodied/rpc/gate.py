"""Keeps new connections out while the process is short of descriptors."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import socket
import struct
import sys
import time

RESERVE = (
    512  # Descriptors that connections leave to files, if there are twice as many.
)
LOOK_EVERY = 0.2  # Seconds between looks whether a closed gate can open.

# Of Linux, which Python does not name; and the filter that drops every packet.
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
DROP_ALL = struct.pack("HBBI", 6, 0, 0, 0)  # Return 0: keep no byte of it.


class Gate:
    """Closes a listening TCP socket while few descriptors are left.

    ZeroMQ accepts every connection until none is left to open a file with, and then
    keeps a core busy trying. It cannot be asked to pause, but the kernel can: behind a
    closed gate it drops the packets that would open a connection, which clients
    repeat. Connections that are open notice nothing, and those that do not complete
    the handshake in time make room.

    The kernel gives out the smallest free number, so the number of a new connection
    says how many descriptors the whole process has open.
    """

    def __init__(self) -> None:
        self.closed = False
        self.closings = 0  # How often it had to close.
        self._listener: socket.socket | None = None
        self._next_look = 0.0

    def guard(self, descriptor: int) -> None:
        """Guard a listening socket; one in the file system needs no guard."""
        listener = socket.socket(fileno=os.dup(descriptor))
        if listener.family == socket.AF_UNIX:
            listener.close()
        else:
            self._listener = listener

    def admit(self, descriptor: int) -> None:
        """Note a new connection, which may be the last one for a while."""
        if self._listener and not self.closed and descriptor >= last_number():
            program = ctypes.create_string_buffer(DROP_ALL)
            given = struct.pack("HL", 1, ctypes.addressof(program))
            self._listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, given)
            self.closed = True
            self.closings += 1

    def look(self) -> float | None:
        """Open if there is room again; seconds until the next look, if it is closed."""
        if not self.closed:
            return None
        assert self._listener is not None
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY
            if has_room(self._listener.fileno()):
                self._listener.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
                self.closed = False
                return None
        return self._next_look - now

    def close(self) -> None:
        """Let go of the socket, which otherwise would keep its port."""
        if self._listener:
            self._listener.close()


def last_number() -> int:
    """The number of a descriptor from which on the others are for files."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - min(RESERVE, limit // 2)


def has_room(descriptor: int) -> bool:
    """Whether a copy of a descriptor, as a new connection, gets a small number."""
    with contextlib.suppress(OSError):  # Not even one is left.
        number = os.dup(descriptor)
        os.close(number)
        return number < last_number()
    return False
