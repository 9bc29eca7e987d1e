"""The same servers and clients over the `portal` package, for `run.transport portal`.

A plain `portal.Client` can call what is bound here. `docs/rpc.md` says what it gives up
compared with our own transport.
"""

from __future__ import annotations

import concurrent.futures
import math
import re
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import portal

from embodied.rpc import address as addresses
from embodied.rpc import errors, schema

LOOPBACK = "127.0.0.1"
MAX_INFLIGHT = 1024
CLIENT = {"logging": False, "max_send_queue": 4096, "max_recv_queue": 4096}
CLOSE_TIMEOUT = 5.0  # Seconds.
# Error text of `portal`; our handlers prefix it with the exception type.
FAILURE = re.compile(
    r"(?:Error in server method: )*(?P<kind>\w+): (?P<message>.*)", re.S
)


class Server:
    """Serves functions by name, one after the other, until closed."""

    def __init__(self, address: str, name: str = "server"):
        self.address = addresses.resolve(address)
        self.name = name
        host, port = split(self.address)
        _set_up(serverkw={"host": host, "logging": False})
        self._port = port
        self._methods: list[tuple[tuple, dict[str, Any]]] = []
        self._failure: BaseException | None = None
        self._server: Any = None
        self._ended = threading.Event()

    def bind(
        self,
        name: str,
        workfn: Callable[..., Any],
        postfn: Callable[[Any], Any] | None = None,
        *,
        workers: int = 1,
        batch: int = 0,
        timeout: float = 0.0,
        spaces: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
        optional: str | None = None,
        check: Callable[..., Any] | None = None,
    ) -> None:
        """Serve a function as `embodied.rpc.BatchServer.bind` does.

        A batch waits until it is full: `timeout` has no effect. Neither has `check`,
        and values are not checked, as an error would end the server.
        """
        assert self._server is None, "bind before start"
        if batch:
            checks = schema.Schema(spaces or {}, defaults, optional)
            workfn = _Batched(workfn, batch, checks)
        else:
            workfn = _Plain(workfn)
        post = self._guard(postfn) if postfn else None
        options = {"workers": workers} | ({"batch": batch} if batch else {})
        self._methods.append(((name, workfn, post), options))

    def start(self, block: bool = True) -> None:
        """Open the address and serve; `block` until closed."""
        assert self._server is None, "a server starts once"
        batched = any("batch" in options for _, options in self._methods)
        if batched:
            # In this process: one of its own would outlive it and keep the port.
            self._server = portal.BatchServer(
                self._port, self.name, errors=False, process=False
            )
        else:
            self._server = portal.Server(self._port, self.name, errors=False)
        for args, options in self._methods:
            self._server.bind(*args, **options)
        self._server.start(block=False)
        if block:
            self._ended.wait()

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Stop serving. Safe to call again."""
        if self._server is not None and not self._ended.is_set():
            self._ended.set()
            self._server.close(timeout=timeout)

    def stats(self) -> dict[str, float]:
        """Figures for the logger."""
        return {key: float(value) for key, value in self._server.stats().items()}

    def failure(self) -> BaseException | None:
        """The first error of a `postfn`, if there was one."""
        return self._failure

    def _guard(self, postfn: Callable[[Any], Any]) -> Callable[[Any], None]:
        def call(info: Any) -> None:
            try:
                postfn(info)
            except BaseException as error:
                self._failure = self._failure or error

        return call


class Client:
    """Calls the methods of a server; a lost connection is made again."""

    def __init__(
        self,
        address: str,
        name: str = "client",
        *,
        timeout: float = 60.0,
        connect_timeout: float | None = 60.0,
    ):
        self._address = addresses.normalize(address)
        self._name = name
        self._timeout = timeout
        host, port = split(self._address)
        _set_up()
        self._client = portal.Client(f"{host}:{port}", name, maxinflight=MAX_INFLIGHT)
        self._waiting: deque[Future] = deque()  # Calls that were not sent yet.
        self._lock = threading.Lock()
        if connect_timeout is not None and not self.reach(connect_timeout):
            self.close()
            raise TimeoutError(f"no server at {self._address} in {connect_timeout} s")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*args: Any) -> Future:
            return self.call(name, args)

        return call

    def call(
        self, method: str, args: tuple = (), timeout: float | None = None
    ) -> Future:
        """Call a method by name; a call waits for a server that is away."""
        timeout = self._timeout if timeout is None else timeout
        where = f"{method} at {self._address}"
        future = Future(self, method, args, where, time.monotonic() + timeout)
        with self._lock:
            self._waiting.append(future)
        self.send_waiting()
        return future

    def send_waiting(self) -> None:
        """Send calls that wait for the server, in order, if it is there.

        `portal` blocks in a call while the server is down, even after a stop request.
        """
        with self._lock:
            while self._waiting and self.reach(0.0):
                self._waiting[0].send(self._client)
                self._waiting.popleft()

    def call_rows(
        self, method: str, rows: dict[str, Any], timeout: float | None = None
    ) -> RowsFuture:
        """Call a batched method once for each row, as `portal` batches calls."""
        count = len(next(iter(rows.values())))
        parts = [{k: v[i] for k, v in rows.items()} for i in range(count)]
        return RowsFuture([self.call(method, (part,), timeout) for part in parts])

    def reach(self, timeout: float) -> bool:
        """Wait for the server; False if it was not there within `timeout` seconds."""
        return bool(self._client.connect(timeout=timeout))

    def turned_away(self) -> bool:
        """Whether the server rejects this client; there are no keys to reject."""
        return False

    def stats(self) -> dict[str, float]:
        """Figures for the logger."""
        figures = {key: float(value) for key, value in self._client.stats().items()}
        return figures | {"connected": float(self.reach(0.0))}

    def close(self) -> None:
        """Close the connection."""
        self._client.close(timeout=CLOSE_TIMEOUT)


class Future:
    """The reply to one call."""

    def __init__(
        self, client: Client, method: str, args: tuple, where: str, deadline: float
    ):
        self._client = client
        self._call = (method, *args)
        self._where = where
        self._deadline = deadline
        self._future: Any = None  # That of `portal`, once the call was sent.

    def send(self, client: Any) -> None:
        """Send the call to a server that is there."""
        try:
            self._future = client.call(*self._call)
        except Exception as error:  # It may be that of an earlier call.
            self._future = concurrent.futures.Future()
            self._future.set_exception(error)
        self._call = ()

    def done(self) -> bool:
        """Whether `result` returns or raises at once."""
        if self._future is None:
            self._client.send_waiting()
        answered = self._future is not None and self._future.done()
        return answered or time.monotonic() >= self._deadline

    def result(self, timeout: float | None = None) -> Any:
        """What the call returned; raises `RemoteError` or `TimeoutError`."""
        return _plain(self.reply(timeout))

    def reply(self, timeout: float | None = None) -> Any:
        """The result as `portal` has it, where every number is an array."""
        limit = time.monotonic() + (math.inf if timeout is None else timeout)
        limit = min(limit, self._deadline)
        try:
            self._await_server(limit)
            return self._future.result(max(0.0, limit - time.monotonic()))
        except TimeoutError:
            raise TimeoutError(f"no reply to {self._where}") from None
        except RuntimeError as error:
            raise self._remote(str(error)) from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What `result` would raise, or None if it would return."""
        try:
            self.result(timeout)
        except Exception as error:
            if not self.done():
                raise
            return error
        return None

    def _await_server(self, limit: float) -> None:
        while self._future is None:
            left = limit - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._client.reach(left)
            self._client.send_waiting()

    def _remote(self, text: str) -> errors.RemoteError:
        found = FAILURE.fullmatch(text)
        kind, message = found.groups() if found else ("RuntimeError", text)
        return errors.RemoteError(self._where, kind, message, "")


class RowsFuture:
    """The replies to the calls for several rows, stacked."""

    def __init__(self, futures: list[Future]):
        self._futures = futures

    def done(self) -> bool:
        """Whether all replies are there."""
        return all(future.done() for future in self._futures)

    def result(self, timeout: float | None = None) -> dict[str, np.ndarray]:
        """The replies [N, ...]; raises what the first failed call raised."""
        replies = [future.reply(timeout) for future in self._futures]
        return {key: np.stack([reply[key] for reply in replies]) for key in replies[0]}


class _Plain:
    """A function that fails with its exception type and gets Python numbers."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, *args: Any) -> Any:
        try:
            return self._function(*map(_plain, args))
        except Exception as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error


class _Batched:
    """A function of stacked rows that gets the defaults of missing keys."""

    def __init__(self, function: Callable[..., Any], batch: int, checks: schema.Schema):
        self._function = function
        self._batch = batch
        self._checks = checks

    def __call__(self, rows: dict[str, np.ndarray]) -> Any:
        try:
            self._checks.check(rows)
            missing = self._checks.defaults.keys() - rows.keys()
            filled = self._checks.allocate(self._batch)
            defaults = {key: filled[key] for key in missing}
            for key, value in defaults.items():
                value[:] = self._checks.defaults[key]
            return self._function({**rows, **defaults}, self._batch)
        except Exception as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _set_up(**options: Any) -> None:
    """Settings of `portal` for this process, which it keeps in a global."""
    portal.setup(clientkw=CLIENT, **options)
    # Our threads are daemons and are joined, so that none keeps the process alive.
    warnings.filterwarnings("ignore", "Using Portal from plain Python threads")


def split(address: str) -> tuple[str, int]:
    """Host and port of an address; `portal` has no other kind."""
    if not address.startswith("tcp://"):
        raise errors.AddressError(
            f"run.transport portal needs addresses such as tcp://127.0.0.1:7001, "
            f"not {address}"
        )
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), int(port)


def _plain(tree: Any) -> Any:
    """The tree with Python numbers, which `portal` makes arrays."""
    if isinstance(tree, dict):
        return {key: _plain(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_plain(value) for value in tree]
    if isinstance(tree, np.ndarray) and tree.ndim == 0:
        return tree.item()
    return tree
