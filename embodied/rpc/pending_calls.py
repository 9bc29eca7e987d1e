"""The calls of a client that are not answered yet."""

from __future__ import annotations

from collections.abc import Iterator

from embodied.rpc import channel, protocol
from embodied.rpc.futures import Future


class PendingCalls:
    """Numbers calls and keeps them, in order, until they are done. Not thread-safe."""

    def __init__(self) -> None:
        self._futures: dict[int, Future] = {}  # In the order of their ids.
        self._last = 0  # The newest id.
        self._errors = 0

    def __len__(self) -> int:
        return len(self._futures)

    def __iter__(self) -> Iterator[Future]:
        return iter(self._futures.values())

    def add(self, future: Future) -> None:
        """Number a call."""
        self._last += 1
        future.id = self._last
        self._futures[future.id] = future

    def resolve(self, message: channel.Message) -> bool:
        """Complete a call with its reply, unless that is repeated or too late."""
        future = self._futures.pop(message.header.id, None)
        if future is None:
            return False
        self._errors += message.header.kind == protocol.ERROR
        future.resolve(message)
        return True

    def fail(self, future: Future, error: BaseException) -> None:
        """Complete a call with an error, unless it is done."""
        if self._futures.pop(future.id, None):
            self._errors += 1
            future.fail(error)

    def fail_all(self, error: BaseException) -> None:
        """Complete all calls with an error."""
        for future in list(self):
            self.fail(future, error)

    def expire(self, now: float) -> None:
        """Fail the calls whose deadline has passed."""
        for future in [f for f in self if f.deadline <= now]:
            self.fail(future, future.overdue())

    def stats(self) -> dict[str, float]:
        """Counters since the start."""
        return {
            "calls": self._last,
            "errors": self._errors,
            "inflight": len(self._futures),
        }
