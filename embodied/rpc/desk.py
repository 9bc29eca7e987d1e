"""What the server does with each message: execute it, answer from memory, or refuse."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from embodied.rpc import (
    channel,
    encoding,
    errors,
    meters,
    methods,
    protocol,
    sessions,
)

Job = tuple[methods.Method, methods.Request]


class Desk:
    """Takes requests and sends replies, so that each call is executed once.

    Calls belong to the session of a client, not to its connection: after a lost one the
    client says hello and names the calls it waits for, gets the replies there are, and
    learns which requests never arrived.
    """

    def __init__(
        self,
        line: channel.Channel,
        served: Mapping[bytes, methods.Method],
        meter: meters.ServerMeter,
        name: str,
        memory: int,
    ):
        self.session = protocol.new_session()
        self.sessions = sessions.Sessions(memory)
        self.more = False  # Whether there may be messages that nobody will announce.
        self.closing = False  # Whether new calls are left to the next server.
        self._channel = line
        self._methods = served
        self._meter = meter
        self._name = name

    def respond(self, answers: Sequence[methods.Answer]) -> None:
        """Remember and send replies; any thread may that calls `read` afterwards."""
        prepared = []
        for answer in answers:
            frames = self._pack(answer)
            prepared.append((answer.request.call, frames, encoding.size(frames)))
        with self._channel.lock:
            for call, frames, nbytes in prepared:
                self._send(frames, call.route, nbytes)
                self.sessions.finish(call, frames, nbytes)
            self.more = True  # To send is to touch the socket.

    def read(self, limit: int) -> list[Job]:
        """Requests to execute, among the next messages. Needs the lock."""
        jobs: list[Job] = []
        for _ in range(limit):
            self.more = self._channel.events()[0]
            if not self.more:
                break
            message = self._channel.receive()
            if message is not None:
                self._meter.received += message.nbytes
                try:
                    self._admit(message, jobs)
                except errors.DecodeError:
                    self._meter.malformed += 1
        return jobs

    def _admit(self, message: channel.Message, jobs: list[Job]) -> None:
        """Add the request in a message to the jobs, unless it needs no execution."""
        header = message.header
        if header.kind == protocol.REQUEST:
            self._admit_request(message, jobs)
        elif header.kind == protocol.HELLO:
            self._welcome(message, jobs)
        elif header.kind == protocol.ACK:
            self.sessions.get(header.session, header.ack)
        else:
            self._meter.malformed += 1

    def _admit_request(self, message: channel.Message, jobs: list[Job]) -> None:
        header = message.header
        session = self.sessions.get(header.session, header.ack)
        known = session.calls.get(header.id)
        if known is not None or header.id <= session.acked:
            self._meter.repeated += 1
            if known is not None:
                self._repeat(known, header, message.route)
            return
        if self.closing:
            return  # The next server gets it.
        if session.route != message.route or (
            session.missing and header.id not in session.missing
        ):
            self._hold(session, message)
            return
        session.missing.discard(header.id)
        self._start(session, message, jobs)
        if session.held and not session.missing:
            self._release(session, jobs)

    def _hold(self, session: sessions.Session, message: channel.Message) -> None:
        """Keep a request until those made before it are there."""
        if len(session.held) < sessions.MAX_CALLS:
            session.held[message.header.id] = message

    def _release(self, session: sessions.Session, jobs: list[Job]) -> None:
        """Start the requests that were held back, in order."""
        held, session.held = session.held, {}
        for number in sorted(held):
            if number > session.acked:
                self._start(session, held[number], jobs)

    def _start(
        self, session: sessions.Session, message: channel.Message, jobs: list[Job]
    ) -> None:
        """Make a request a job, unless it is refused."""
        header = message.header
        problem = self._problem(header, session)
        if problem:
            self._refuse(header, session.route, *problem)
            return
        call = session.calls[header.id] = sessions.Call(header.id, session.route)
        request = methods.Request(
            call, header.session, header.payload, message.frames, time.monotonic()
        )
        jobs.append((self._methods[header.method], request))

    def _problem(
        self, header: protocol.Header, session: sessions.Session
    ) -> tuple[str, str] | None:
        """Type and message of why a request is not executed, if it is not."""
        if header.method not in self._methods:
            self._meter.unknown += 1
            known = sorted(method.name for method in self._methods.values())
            name = header.method.decode("utf-8", "backslashreplace")
            text = f"{self._name} has no method '{name}', only {known}"
            return "AttributeError", text
        if header.server not in (0, self.session):
            return errors.ServerRestarted.__name__, f"{self._name} was restarted"
        if len(session.calls) >= sessions.MAX_CALLS:
            return "RuntimeError", f"more than {sessions.MAX_CALLS} calls in flight"
        return None

    def _welcome(self, message: channel.Message, jobs: list[Job]) -> None:
        """Send a client that is new or back the replies there are."""
        header = message.header
        session = self.sessions.get(header.session, header.ack)
        unknown = []
        for number in protocol.parse_ids(encoding.decode(header.payload)):
            call = session.calls.get(number)
            if call is not None:
                self._repeat(call, header, message.route)
            elif number > session.acked and number not in session.held:
                unknown.append(number)
        session.route, session.missing = message.route, set(unknown)
        payload = encoding.encode(unknown)[0]
        frames = protocol.pack(
            protocol.WELCOME, header.session, server=self.session, payload=payload
        )
        self._send(frames, message.route, encoding.size(frames))
        if not unknown and not self.closing:
            self._release(session, jobs)

    def _repeat(
        self, call: sessions.Call, header: protocol.Header, route: bytes
    ) -> None:
        """Answer from memory, or later if the call still runs."""
        call.route = route
        if call.reply is not None:
            self._send(call.reply, route, call.nbytes)
        elif call.lost:
            text = "the call was executed, but its reply is no longer in memory"
            self._refuse(header._replace(id=call.id), route, "LookupError", text)

    def _refuse(
        self, header: protocol.Header, route: bytes, kind: str, text: str
    ) -> None:
        payload = protocol.pack_error(kind, text, "")
        frames = protocol.pack(
            protocol.ERROR, header.session, header.id, 0, self.session, b"", payload
        )
        self._send(frames, route, encoding.size(frames))

    def _pack(self, answer: methods.Answer) -> list[encoding.Buffer]:
        request = answer.request
        return protocol.pack(
            answer.kind,
            request.session,
            request.call.id,
            server=self.session,
            payload=answer.payload,
            frames=answer.frames,
        )

    def _send(self, frames: list[encoding.Buffer], route: bytes, nbytes: int) -> None:
        self._meter.unroutable += not self._channel.send(frames, route)
        self._meter.sent += nbytes
