"""Connections between the roles of a run: clients and servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import elements

from embodied import rpc
from embodied.core import pickling
from embodied.core.clock import Seconds
from embodied.process.context import Context, StoppedError
from embodied.run.parallel import run_keys
from embodied.run.settings import RunSettings

TELL_AFTER = 5.0  # Seconds of waiting for a role before printing a message.
STORED = 7 * 24 * 3600.0  # Seconds to store something: a disk may be full for days.

# Transports between roles; the adapter of `portal` has the interface of ours.
ZMQ, PORTAL = TRANSPORTS = ("zmq", "portal")


def factory(make: bytes | Callable[..., Any]) -> Callable[..., Any]:
    """Unpickle a factory if needed."""
    return pickling.loads(make) if isinstance(make, bytes) else make


class RunOverError(Exception):
    """The run has ended; the caller should exit."""


def is_over(error: BaseException) -> bool:
    """Whether an answer means that the run has ended."""
    return isinstance(error, rpc.RemoteError) and error.kind == RunOverError.__name__


def connect(
    address: str, name: str, args: RunSettings, ctx: Context, **options: Any
) -> rpc.Client:
    """A client of another role, with the keys of the run if it has any.

    Waits without a deadline, since the role may be started later or be restarting.
    Raises `StoppedError` if this process is asked to stop first.
    """
    return reach(
        address, run_keys.client_keys(args), name, ctx, args.transport, **options
    )


def client(
    address: str,
    keys: rpc.ClientKeys | None,
    name: str,
    transport: str = ZMQ,
    connect_timeout: float | None = None,
    **options: Any,
) -> rpc.Client:
    """A client of a server, over the transport of the run."""
    if transport == PORTAL:
        return _portal().Client(address, name, connect_timeout=connect_timeout)
    return rpc.Client(
        address, name, keys=keys, connect_timeout=connect_timeout, **options
    )


def serve(
    address: str, name: str, args: RunSettings, *admitted: str
) -> rpc.BatchServer:
    """A server, not started, that admits the core of the run and named clients."""
    if args.transport == PORTAL:
        return _portal().Server(address, name)
    return rpc.BatchServer(address, name, keys=run_keys.server_keys(args, *admitted))


def _portal() -> Any:
    """The adapter over `portal`, which has the interface of our own transport."""
    from embodied.rpc import portal  # The package is not needed otherwise.

    return portal


def reach(
    address: str,
    keys: rpc.ClientKeys | None,
    name: str,
    ctx: Context,
    transport: str = ZMQ,
    keep: Callable[[], None] | None = None,
    gone: Callable[[], bool] = bool,
    **options: Any,
) -> rpc.Client:
    """A client of a server; waits without a deadline until the server is up, or `gone`.

    Calls `keep` (default: the heartbeat) while waiting; its errors propagate.
    """
    made = client(address, keys, name, transport, **options)
    try:
        text = f"{name} is waiting for a server at {address}."
        _await_server(made, text, ctx, keep or ctx.beat, gone)
    except BaseException:
        made.close()
        raise
    return made


def _await_server(
    client: rpc.Client,
    text: str,
    ctx: Context,
    keep: Callable[[], None],
    gone: Callable[[], bool],
) -> None:
    """Wait for a server unless it is `gone`; raises `StoppedError` if asked to stop."""
    due_tell, told = Seconds(TELL_AFTER), False
    while not gone() and not client.reach(0.5):
        keep()
        if ctx.stopping():
            raise StoppedError
        if not told and due_tell():
            told = True
            if client.turned_away():
                text += " A server is listening but closes the connection; check that "
                text += "the keys belong to this run."
            elements.print(text, flush=True)


def prefixed(prefix: str, metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics under a common name."""
    return {f"{prefix}/{key}": value for key, value in metrics.items()}


def check(server: rpc.Server) -> None:
    """Raise the error of a server's own threads, if any."""
    failure = server.failure()
    if failure:
        raise failure
