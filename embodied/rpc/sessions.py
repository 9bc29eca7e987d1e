"""The server's memory of recent calls, so that a repeated request executes once."""

from __future__ import annotations

import collections
import time
from typing import Any, Final

from embodied.rpc import encoding

MAX_SESSIONS = 4096
MAX_CALLS = 4096  # Of one session without acknowledged replies.
MAX_BYTES = 1 << 28  # In replies that are kept.
MAX_IDLE = 3600.0  # Seconds after which a silent client is forgotten.


class Call:
    """One call of one client: running until it has a reply."""

    __slots__ = ("id", "lost", "nbytes", "reply", "route")

    def __init__(self, number: int, route: bytes):
        self.id: Final = number
        self.route = route  # Where to send the reply; the client may reconnect.
        self.reply: list[encoding.Buffer] | None = None
        self.nbytes = 0
        self.lost = False  # It was answered, but the reply had to be forgotten.


class Session:
    """The calls of one client that it has not acknowledged.

    Calls are executed in the order in which they were made. After a lost connection or
    on a new server, those that arrive before the client repeated the missing ones are
    held back.
    """

    __slots__ = ("acked", "calls", "held", "key", "missing", "route", "seen")

    def __init__(self, key: int):
        self.key: Final = key
        self.acked = 0
        self.calls: dict[int, Call] = {}
        self.route = b""  # The connection on which the client said hello.
        self.missing: set[int] = set()  # Calls that the client will repeat.
        self.held: dict[int, Any] = {}  # Requests that wait for the missing ones.
        self.seen = time.monotonic()


class Sessions:
    """All sessions, bounded in number and in bytes. Not thread-safe."""

    def __init__(self, max_bytes: int = MAX_BYTES):
        self.nbytes = 0
        self.forgotten = 0  # Replies dropped to save memory, sessions to save places.
        self._max_bytes = max_bytes
        self._sessions: collections.OrderedDict[int, Session] = (
            collections.OrderedDict()
        )

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: int, ack: int) -> Session:
        """The session of a client, without the calls up to `ack`."""
        session = self._sessions.get(key)
        if session is None:
            session = self._add(key)
        else:
            self._sessions.move_to_end(key)
            session.seen = time.monotonic()
        if ack > session.acked:
            self._acknowledge(session, ack)
        return session

    def finish(self, call: Call, reply: list[encoding.Buffer], nbytes: int) -> None:
        """Keep a reply of `nbytes` until it is acknowledged."""
        if call.lost:
            return
        call.reply, call.nbytes = reply, nbytes
        self.nbytes += nbytes
        if self.nbytes > self._max_bytes:
            self._shrink()

    def _acknowledge(self, session: Session, ack: int) -> None:
        session.acked = ack
        calls = session.calls
        for number in tuple(calls):
            if number <= ack:
                call = calls.pop(number)
                self.nbytes -= call.nbytes
                # One that still runs was given up by the client: keep no reply of it.
                call.lost = True

    def _add(self, key: int) -> Session:
        oldest = next(iter(self._sessions.values()), None)
        while oldest is not None and (
            len(self._sessions) >= MAX_SESSIONS
            or time.monotonic() - oldest.seen > MAX_IDLE
        ):
            self._forget(oldest)
            oldest = next(iter(self._sessions.values()), None)
        session = self._sessions[key] = Session(key)
        return session

    def _forget(self, session: Session) -> None:
        self.nbytes -= sum(call.nbytes for call in session.calls.values())
        self.forgotten += bool(session.calls)
        for call in session.calls.values():
            call.lost = True
        del self._sessions[session.key]

    def _shrink(self) -> None:
        """Forget replies of the longest silent clients until half the limit is free."""
        for session in self._sessions.values():
            for call in session.calls.values():
                if self.nbytes <= self._max_bytes // 2:
                    return
                if call.reply is not None and not call.lost:
                    self.nbytes -= call.nbytes
                    call.reply, call.nbytes, call.lost = None, 0, True
                    self.forgotten += 1
