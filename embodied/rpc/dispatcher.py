"""Turns the messages of a server's socket into requests, and answers into messages."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from embodied.rpc import channel, encoding, errors, meters, methods, protocol

MAX_QUEUED = 16_384  # Requests of one method that wait; more are rejected.

Job = tuple[methods.Method, methods.Request]


class Dispatcher:
    """Reads requests and sends replies, each to the connection of its request.

    Stateless: a client that reconnects resends its unanswered calls, which are then
    executed again.
    """

    def __init__(
        self,
        line: channel.Channel,
        served: Mapping[bytes, methods.Method],
        meter: meters.ServerMeter,
        name: str,
    ):
        self.more = False  # Whether unread messages may exist without an event.
        self.closing = False  # Whether new calls are left to the next server.
        self._channel = line
        self._methods = served
        self._meter = meter
        self._name = name

    def respond(self, answers: Sequence[methods.Answer]) -> None:
        """Send replies; the calling thread must call `read` afterwards."""
        prepared = [(answer.request.route, self._pack(answer)) for answer in answers]
        with self._channel.lock:
            for route, frames in prepared:
                self._send(route, frames)
            self.more = True  # To send is to touch the socket.

    def read(self, limit: int) -> list[Job]:
        """Requests to execute, among the next messages. Needs the lock."""
        jobs: list[Job] = []
        for _ in range(limit):
            self.more = self._channel.readable()
            if not self.more:
                break
            message = self._channel.receive()
            if message is not None:
                self._meter.received += message.nbytes
                self._admit(message, jobs)
        return jobs

    def _admit(self, message: channel.Message, jobs: list[Job]) -> None:
        """Add the request in a message to the jobs, unless it is rejected."""
        header = message.header
        if header.kind != protocol.REQUEST:
            self._meter.malformed += 1
            return
        if self.closing:
            return  # The next server gets it.
        method = self._methods.get(header.method)
        if method is None or method.queued() >= MAX_QUEUED:
            self._reject(message, method)
            return
        request = methods.Request(
            message.route,
            header.id,
            header.payload,
            message.frames,
            time.monotonic(),
            message.client,
        )
        jobs.append((method, request))

    def _reject(self, message: channel.Message, method: methods.Method | None) -> None:
        header = message.header
        if method is None:
            self._meter.unknown += 1
            known = sorted(each.name for each in self._methods.values())
            name = header.method.decode("utf-8", "backslashreplace")
            text = f"{self._name} has no method '{name}', only {known}"
            payload = protocol.pack_error("AttributeError", text, "")
        else:
            text = f"too many queued calls of '{method.name}' (limit {MAX_QUEUED})"
            payload = protocol.pack_error("RuntimeError", text, "")
        frames = protocol.pack(protocol.ERROR, header.id, b"", payload)
        self._send(message.route, frames)

    def _pack(self, answer: methods.Answer) -> list[encoding.Buffer]:
        """The message of an answer, or an error if it is too large to send.

        An oversized reply would make the client disconnect and resend the call.
        """
        kind, payload, frames = answer.kind, answer.payload, answer.frames
        if frames and encoding.size(frames) > self._channel.max_bytes:
            text = f"a reply of {encoding.size(frames)} bytes, the limit is "
            text += f"{self._channel.max_bytes}"
            kind, frames = protocol.ERROR, []
            payload = protocol.pack_error(errors.EncodeError.__name__, text, "")
        return protocol.pack(kind, answer.request.id, b"", payload, frames)

    def _send(self, route: bytes, frames: list[encoding.Buffer]) -> None:
        self._meter.unroutable += not self._channel.send(frames, route)
        self._meter.sent += encoding.size(frames)
