"""The client's calls in flight, and what became of the others."""

from __future__ import annotations

from embodied.rpc import channel, errors, protocol
from embodied.rpc.futures import Future


class Ledger:
    """Numbers calls and knows which are unanswered. Not thread-safe."""

    def __init__(self) -> None:
        self.pending: dict[int, Future] = {}  # In the order of their ids.
        self.last = 0  # The newest id.
        self.calls = 0
        self.errors = 0
        self.repeats = 0  # Requests that were sent again.
        self.restarts = 0  # Of the server.
        self._told = 0  # The last acknowledgement that was sent.

    def open(self, future: Future) -> int:
        """Number a call; returns what to acknowledge with it."""
        ack = self.ack()
        self.last += 1
        self.calls += 1
        future.id = self.last
        self.pending[future.id] = future
        return ack

    def ack(self) -> int:
        """All calls up to this id are done; it counts as told to the server."""
        self._told = next(iter(self.pending), self.last + 1) - 1
        return self._told

    def untold(self) -> bool:
        """Whether there is something new to acknowledge."""
        return self._told < next(iter(self.pending), self.last + 1) - 1

    def resolve(self, message: channel.Message) -> bool:
        """Complete a call with its reply, unless that is repeated or too late."""
        future = self.pending.pop(message.header.id, None)
        if future is None:
            return False
        self.errors += message.header.kind == protocol.ERROR
        future.resolve(message)
        return True

    def fail(self, future: Future, error: BaseException) -> None:
        """Complete a call with an error, unless it is done."""
        if self.pending.pop(future.id, None):
            self.errors += 1
            future.fail(error)

    def fail_all(self, error: BaseException) -> None:
        for future in list(self.pending.values()):
            self.fail(future, error)

    def expire(self, now: float) -> None:
        """Fail the calls whose deadline has passed."""
        for future in [f for f in self.pending.values() if f.deadline <= now]:
            self.fail(future, future.overdue())

    def lost(self, unknown: list[int], restarted: bool) -> list[Future]:
        """Which calls to send again, of those that the server does not know.

        With `restarted` those that may have reached the old server fail instead.
        """
        calls = [self.pending[number] for number in unknown if number in self.pending]
        again = []
        for future in calls:
            if restarted and future.sent:
                text = f"{future.name} at {future.place}: the server was restarted"
                self.fail(future, errors.ServerRestarted(text))
            else:
                self.repeats += future.sent
                again.append(future)
        return again

    def stats(self) -> dict[str, float]:
        return {
            "calls": self.calls,
            "errors": self.errors,
            "inflight": len(self.pending),
            "repeats": self.repeats,
            "restarts": self.restarts,
        }
