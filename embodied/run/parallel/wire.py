"""What crosses process borders: keys, factories, connections."""

from __future__ import annotations

import pathlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import elements
import numpy as np

from embodied import rpc
from embodied.core import base, parcel
from embodied.core.clock import Seconds
from embodied.run import role

TELL_AFTER = 5.0  # Seconds of waiting for a role before the user is told.
END_TIMEOUT = 60.0  # Seconds to save everything at the end.
FLUSH = 60.0  # Seconds that the last metrics may take to arrive.
FLUSH_AWAY = 2.0  # The same if the logger is not there.

# Keys that an environment adds to its observation.
ENVID = "envid"  # Number of the environment, unique in the run.
IS_EVAL = "is_eval"  # Whether its steps are for evaluation.
SEQ = "seq"  # Number of the step in the environment's stream, always increasing.
LIFE_BITS = 32  # Of that number count the steps of one life of an env process.
ENV_TIME = "env_time"  # Seconds the environment took for the step.

ROUTING: base.Spaces = {
    ENVID: elements.Space(np.int32, (), 0, 2**30),
    IS_EVAL: elements.Space(bool),
    SEQ: elements.Space(np.int64, (), 0, 2**62),
    ENV_TIME: elements.Space(np.float32),
}
# What an environment may leave out, as a program of one's own does.
UNNUMBERED = -1
DEFAULTS = {SEQ: UNNUMBERED, ENV_TIME: 0.0}


def factory(make: bytes | Callable[..., Any]) -> Callable[..., Any]:
    """A factory that may have been pickled for the way to this process."""
    return parcel.loads(make) if isinstance(make, bytes) else make


class RunOverError(Exception):
    """What an environment is told when it asks for an action after the run's end."""


def is_over(error: BaseException) -> bool:
    """Whether an answer means that the run is over."""
    return isinstance(error, rpc.RemoteError) and error.kind == RunOverError.__name__


def connect(
    address: str, name: str, args: elements.Config, **options: Any
) -> rpc.Client:
    """A client of another role, with the keys of the run if it has any.

    Waits for that role as long as it takes, since it may be placed by hand and is
    restarted if it dies. Raises `StoppedError` if this process is to end before.
    """
    return reach(address, client_keys(args), name, **options)


def reach(
    address: str, keys: rpc.ClientKeys | None, name: str, **options: Any
) -> rpc.Client:
    """A client of a server, for which it waits as long as it takes."""
    client = rpc.Client(address, name, keys=keys, connect_timeout=None, **options)
    try:
        _await_server(client, f"{name} waits for a server at {address}.")
    except BaseException:
        client.close()
        raise
    return client


def _await_server(client: rpc.Client, text: str) -> None:
    due_tell, told = Seconds(TELL_AFTER), False
    while not client.reach(0.5):
        role.beat()
        if role.stopping():
            raise role.StoppedError
        if not told and due_tell():
            told = True
            if client.turned_away():
                text += " Something is there, but ends the connection: are the keys "
                text += "those of this run?"
            elements.print(text, flush=True)


class Ending:
    """Serves `end`, by which a role that was placed by hand learns of the run's end.

    The answer comes when the role has done what is to be done before, so that whoever
    asks can end those that the role still needs.
    """

    def __init__(self) -> None:
        self._done = threading.Event()

    def __call__(self) -> None:
        role.request_stop()
        if not self._done.wait(END_TIMEOUT):
            raise TimeoutError(f"not ready to end after {END_TIMEOUT} s")

    def done(self) -> None:
        """Everything is saved and sent."""
        self._done.set()


class Forward:
    """Answers a call with what another role answers to it."""

    def __init__(self, method: Callable[..., rpc.Future]):
        self._method = method

    def __call__(self, *args: Any) -> Any:
        return self._method(*args).result()


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

    def stats(self) -> base.Metrics:
        """Figures of the client."""
        return self._client.stats()

    def close(self) -> None:
        """Wait until everything has arrived, but not for a logger that is gone."""
        self.flush()
        self._client.close()

    def flush(self) -> None:
        """Wait until everything has arrived, but not for a logger that is gone."""
        patience = FLUSH if self._client.stats()["connected"] else FLUSH_AWAY
        deadline = time.monotonic() + patience
        with self._lock:
            while self._futures:
                future = self._futures.popleft()
                self._check(future, max(0.0, deadline - time.monotonic()))

    def _keep(self, future: rpc.Future) -> None:
        with self._lock:
            self._futures.append(future)
            while self._futures and self._futures[0].done():
                self._check(self._futures.popleft())

    def _check(self, future: rpc.Future, timeout: float | None = None) -> None:
        try:
            error = future.exception(timeout)
        except TimeoutError as late:
            error = late
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
