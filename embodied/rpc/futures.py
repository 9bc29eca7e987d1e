"""The result of a call that is under way."""

from __future__ import annotations

import time
from typing import Any, Final, Protocol

from embodied.rpc import channel, encoding, errors, protocol


class Waiter(Protocol):
    """What a future needs of its client."""

    def wait(self, future: Future, deadline: float) -> None:
        """Return when the future is done or the time has come."""

    def give_up(self, future: Future) -> None:
        """Forget a call whose deadline has passed."""


class Future:
    """The reply to one call; `result` may be called more than once, by any thread."""

    __slots__ = (
        "_client", "_error", "_message", "_value", "deadline", "frames", "id", "name",
        "place", "timeout",
    )  # fmt: skip

    def __init__(self, client: Waiter, name: str, place: str, timeout: float):
        self.id = 0
        self.name: Final = name
        self.place: Final = place
        self.timeout: Final = timeout
        self.deadline: Final = time.monotonic() + timeout
        self.frames: list[encoding.Buffer] = []  # The request, until it is answered.
        self._client = client
        self._message: channel.Message | None = None
        self._value: Any = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        state = "done" if self.done() else "pending"
        return f"Future({self.name} at {self.place}, {state})"

    def done(self) -> bool:
        """Whether `result` returns or raises at once."""
        return not self.frames

    def result(self, timeout: float | None = None) -> Any:
        """What the call returned; raises what it raised.

        Waits until the deadline of the call, or for `timeout` seconds if that is less;
        then raises `TimeoutError`. Only the former ends the call.
        """
        if self.frames:
            self._wait(timeout)
        if self._message is not None:
            self._read()
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What `result` would raise, or None if it would return."""
        try:
            self.result(timeout)
        except Exception as error:
            if not self.done():
                raise
            return error
        return None

    def resolve(self, message: channel.Message) -> None:
        """Set the reply; it is decoded by the thread that asks for it."""
        self._message = message
        self.frames = []

    def fail(self, error: BaseException) -> None:
        """Set the error to raise."""
        self._error = error
        self.frames = []

    def overdue(self) -> TimeoutError:
        """The error for a deadline that has passed."""
        text = f"no reply to {self.name} at {self.place} in {self.timeout} s"
        return TimeoutError(text)

    def _wait(self, timeout: float | None) -> None:
        deadline = self.deadline
        if timeout is not None:
            deadline = min(deadline, time.monotonic() + timeout)
        self._client.wait(self, deadline)
        if not self.frames:
            return
        if deadline < self.deadline:
            raise TimeoutError(
                f"no reply to {self.name} at {self.place} after waiting {timeout} s"
            )
        self._client.give_up(self)

    def _read(self) -> None:
        """Decode the reply; a second thread that does so too gets the same."""
        message = self._message
        if message is None:
            return
        try:
            value = encoding.decode(message.header.payload, message.frames)
            if message.header.kind == protocol.ERROR:
                self._error = self._remote(*protocol.parse_error(value))
            else:
                self._value = value
        except errors.DecodeError as error:
            self._error = error
        self._message = None

    def _remote(self, kind: str, message: str, traceback: str) -> BaseException:
        call = f"{self.name} at {self.place}"
        return errors.RemoteError(call, kind, message, traceback)
