"""What crosses process borders: keys, factories, connections."""

from __future__ import annotations

import pathlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import cloudpickle
import elements
import numpy as np

from embodied import rpc
from embodied.core import base

# Keys that an environment adds to its observation.
ENVID = "envid"  # Number of the environment, unique in the run.
IS_EVAL = "is_eval"  # Whether its steps are for evaluation.
SEQ = "seq"  # Number of the step in the environment's stream, always increasing.
ENV_TIME = "env_time"  # Seconds the environment took for the step.

ROUTING: base.Spaces = {
    ENVID: elements.Space(np.int32, (), 0, 2**30),
    IS_EVAL: elements.Space(bool),
    SEQ: elements.Space(np.int64, (), 0, 2**62),
    ENV_TIME: elements.Space(np.float32),
}


def factory(make: bytes | Callable[..., Any]) -> Callable[..., Any]:
    """A factory that may have been pickled for the way to this process."""
    return cloudpickle.loads(make) if isinstance(make, bytes) else make


def connect(
    address: str, name: str, args: elements.Config, **options: Any
) -> rpc.Client:
    """A client of another role, with the keys of the run if it has any."""
    return rpc.Client(address, name, keys=client_keys(args), **options)


class LoggerLink:
    """Sends metrics and steps to the logger; what it refuses is told once."""

    def __init__(self, name: str, args: elements.Config):
        self._client = connect(args.logger_addr, name, args)
        self._futures: deque[rpc.Future] = deque()
        self._lock = threading.Lock()
        self._warned = False

    def add(self, metrics: base.Metrics) -> None:
        self._keep(self._client.add(metrics))

    def tran(self, steps: base.Batch) -> None:
        self._keep(self._client.tran(steps))

    def close(self) -> None:
        """Wait until everything has arrived."""
        with self._lock:
            while self._futures:
                self._check(self._futures.popleft())
        self._client.close()

    def _keep(self, future: rpc.Future) -> None:
        with self._lock:
            self._futures.append(future)
            while self._futures and self._futures[0].done():
                self._check(self._futures.popleft())

    def _check(self, future: rpc.Future) -> None:
        error = future.exception()
        if error and not self._warned:
            self._warned = True
            elements.print(f"The logger refused something: {error}", color="yellow")


def keys_directory(args: elements.Config) -> pathlib.Path:
    """Where the keys of a run are kept."""
    return pathlib.Path(args.key_dir or f"{args.logdir}/keys").expanduser()


def client_keys(args: elements.Config) -> rpc.ClientKeys | None:
    """The keys to connect with, unless the run stays on this machine."""
    directory = keys_directory(args)
    return rpc.load_client(directory) if directory.exists() else None


def server_keys(args: elements.Config) -> rpc.ServerKeys | None:
    """The keys to serve with, unless the run stays on this machine."""
    directory = keys_directory(args)
    return rpc.load_server(directory) if directory.exists() else None


def prefixed(prefix: str, metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics under a common name."""
    return {f"{prefix}/{key}": value for key, value in metrics.items()}


def check(server: rpc.Server) -> None:
    """Raise what went wrong in a server's own threads."""
    failure = server.failure()
    if failure:
        raise failure
