"""A process that joins a run: renews its lease and learns when the run has ended."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from embodied import rpc
from embodied.core import disk
from embodied.process.context import Context, FinalError, StoppedError
from embodied.run.parallel import connections

RENEW_EVERY = 1.0  # Seconds between two renewals of the lease.
LEAVE_TIMEOUT = 2.0  # Seconds to say that this process leaves.
WILDCARDS = ("0.0.0.0", "*", "[::]")  # Can be opened, but not connected to.


class LeaseLostError(Exception):
    """The lease expired; another process may have this one's numbers."""


class Invitation(NamedTuple):
    """Where the coordinator of a run is, and the key of a role."""

    address: str
    keys: rpc.ClientKeys | None


class Entry(NamedTuple):
    """The request of a process that joins a run."""

    role: str
    name: str  # Unique, and the same after a restart.
    envs: int = 0  # Environments that it brings.
    spaces: dict[str, Any] | None = None  # As `spacefile.encode` makes them.
    numbers: tuple[int, ...] | None = None  # Of the environments, if they are given.


def describe(
    invitation: Invitation, role: str, *args: Any, ctx: Context | None = None
) -> dict[str, Any]:
    """Facts about a run; waits without a deadline until it is up.

    Raises `RemoteError` if the role or its spaces are rejected or the run has ended.
    """
    ctx = ctx or Context()
    client = connections.reach(*invitation, role, ctx)
    try:
        facts = ask(client, ctx, "describe", role, *args)
    finally:
        client.close()
    return _reachable(facts, invitation.address)


class Member:
    """A process that takes part in a run for as long as it can renew its lease.

    A thread renews the lease. When the run has ended it calls `on_end`, by default to
    stop this process.
    """

    def __init__(
        self,
        invitation: Invitation,
        entry: Entry,
        ctx: Context,
        on_end: Callable[[], None] | None = None,
    ):
        self._invitation, self._entry, self._ctx = invitation, entry, ctx
        self._on_end = on_end or ctx.complete
        self._client = connections.reach(*invitation, entry.name, ctx)
        self._renewed = 0.0  # When the lease was last renewed.
        self._lease = 0.0  # Seconds that it lasts.
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def join(self) -> dict[str, Any]:
        """Join, or join again; returns what the coordinator answers.

        Waits while the run has no room on its disk. Raises `RemoteError` if the run has
        ended and `FinalError` if it rejects this process.
        """
        while (answer := self._try_join()) is None:
            self._ctx.beat()
            if self._ctx.wait_stop(disk.POLL):
                raise StoppedError
        self._renewed, self._lease = time.monotonic(), answer["lease"]
        if not self._thread.is_alive():
            self._thread.start()
        return _reachable(answer, self._invitation.address)

    def _try_join(self) -> dict[str, Any] | None:
        """What the coordinator answers; nothing if its disk is full."""
        try:
            return ask(self._client, self._ctx, "join", *self._entry)
        except rpc.RemoteError as error:
            if connections.is_over(error):
                raise
            if error.kind == disk.DiskFullError.__name__:
                return None
            text = f"the run rejects {self._entry.name}: {error.message}"
            raise FinalError(text) from None

    def keep(self) -> None:
        """Send a heartbeat; raises `LeaseLostError` if this process has to join again.

        A suspended process cannot renew its lease and must not act on it afterwards.
        """
        self._ctx.beat()
        if time.monotonic() - self._renewed > self._lease / 2:
            raise LeaseLostError

    def close(self) -> None:
        """Leave the run; if the coordinator is unreachable, the lease expires."""
        self._closed.set()
        if self._client.stats()["connected"]:
            args = (self._entry.role, self._entry.name)
            self._client.call("leave", args, timeout=LEAVE_TIMEOUT).exception()
        self._client.close()

    def _renew(self) -> None:
        args = (self._entry.role, self._entry.name)
        while not self._closed.wait(RENEW_EVERY):
            try:
                begin = time.monotonic()
                kept = self._client.call("lease", args).result()
                self._renewed = begin if kept else float("-inf")
            except TimeoutError:
                continue  # The coordinator is away; the lease may expire.
            except rpc.ClientClosed:
                return
            except rpc.RemoteError as error:
                if connections.is_over(error):
                    self._on_end()
                    return


def remove(invitation: Invitation, entries: Sequence[Entry]) -> None:
    """Remove killed members, so that shutdown does not wait for them.

    If the coordinator is unreachable, their leases expire.
    """
    try:
        client = connections.client(
            *invitation, "removal", connect_timeout=LEAVE_TIMEOUT
        )
    except (TimeoutError, rpc.HandshakeError):
        return
    with contextlib.closing(client):
        calls = [
            client.call("leave", (entry.role, entry.name), timeout=LEAVE_TIMEOUT)
            for entry in entries
        ]
        for call in calls:
            call.exception()


def ask(client: rpc.Client, ctx: Context, method: str, *args: Any) -> Any:
    """Call the coordinator, retrying on timeouts."""
    while True:
        try:
            return ctx.wait(client.call(method, args))
        except TimeoutError:
            continue


def _reachable(facts: dict[str, Any], coordinator: str) -> dict[str, Any]:
    """Facts whose addresses name the coordinator's host instead of all interfaces."""
    host = _host(coordinator)
    return {
        key: value.replace(_host(value), host, 1)
        if key.endswith("_addr") and _host(value) in WILDCARDS
        else value
        for key, value in facts.items()
    }


def _host(address: str) -> str:
    return address.rpartition("://")[2].rpartition(":")[0]
