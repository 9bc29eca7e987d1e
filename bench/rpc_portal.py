"""The same calls through portal, the RPC of the public code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import portal

LATE = 2.0  # Seconds; the last calls of a run may not fill a batch.


def serve(
    functions: dict[str, Callable[..., Any]],
    batched: dict[str, Callable[..., Any]],
    batch: int,
    pipe: Any,
) -> None:
    """Serve until the pipe says otherwise; a batch waits until it is full."""
    options = {"host": "127.0.0.1", "logging": False}
    portal.setup(errfile=None, serverkw=options, clientkw={"logging": False})
    port = portal.free_port()
    server = portal.BatchServer(port) if batch else portal.Server(port)
    for name, function in functions.items():
        server.bind(name, function)
    for name, function in batched.items():
        if batch:
            server.bind(name, function, batch=batch)
    server.start(block=False)
    pipe.send(f"localhost:{port}")
    pipe.recv()
    server.close()


def caller(method: str, value: Any, address: str) -> Callable[[], Callable[[], Any]]:
    """A function that begins a call and returns one that waits for its end."""
    client = portal.Client(address, maxinflight=256, logging=False)
    function = getattr(client, method)

    def begin() -> Callable[[], Any]:
        future = function(value)
        return lambda: future.result(timeout=LATE)

    return begin
