"""Requests of many clients stacked into batches, by count or by deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from embodied.rpc import encoding, methods, protocol, server
from embodied.rpc.schema import Batch, Field, Schema, SchemaError

Pad = Literal["none", "zeros", "repeat"]


class Part(NamedTuple):
    """Where the rows of one request are in a batch."""

    request: methods.Request
    rows: int | slice  # A number for a request without leading axis.


class OpenBatch:
    """A batch that is being filled, with requests that add the same fields."""

    def __init__(
        self, schema: Schema, added: tuple[Field, ...], capacity: int, deadline: float
    ):
        self.arrays = schema.allocate(capacity, added)
        self.added = added
        self.defaults = schema.defaults
        self.parts: list[Part] = []
        self.rows = 0
        self.deadline = deadline

    def add(self, request: methods.Request, obs: dict, rows: int | None) -> None:
        """Copy the rows of a checked request into the batch, the only copy there is."""
        stop = self.rows + (1 if rows is None else rows)
        index = self.rows if rows is None else slice(self.rows, stop)
        for key, array in self.arrays.items():
            array[index] = obs[key] if key in obs else self.defaults[key]
        self.parts.append(Part(request, index))
        self.rows = stop

    def finish(self, pad: Pad) -> Batch:
        """The stacked rows, followed by padding if wanted."""
        rows = self.rows
        if pad == "none":
            return {key: array[:rows] for key, array in self.arrays.items()}
        for array in self.arrays.values():
            array[rows:] = 0 if pad == "zeros" else array[:1]
        return self.arrays


class BatchMethod(methods.Method):
    """Runs its function once for a batch of requests, `workfn(batch, rows)`.

    A batch is handed out when it has `batch` rows, or `timeout` seconds after its first
    request, but not before it may run.
    """

    def __init__(
        self,
        name: str,
        workfn: Callable[..., Any],
        postfn: Callable[[Any], Any] | None,
        workers: int,
        batch: int,
        timeout: float,
        schema: Schema,
        pad: Pad,
    ):
        super().__init__(name, workfn, postfn, workers)
        if batch < 1 or timeout < 0 or pad not in ("none", "zeros", "repeat"):
            raise ValueError(
                f"'{name}' needs batch >= 1, timeout >= 0 and pad none, zeros or "
                f"repeat, got {batch}, {timeout}, {pad!r}"
            )
        self._batch = batch
        self._timeout = timeout
        self._schema = schema
        self._pad: Pad = pad
        self._open: OpenBatch | None = None

    def submit(self, request: methods.Request) -> None:
        try:
            args, kwargs = methods.parse_arguments(request)
            if len(args) != 1 or kwargs:
                raise SchemaError("a batched method takes one dict")
            rows = self._schema.check(args[0])
            if rows is not None and not 1 <= rows <= self._batch:
                raise SchemaError(f"{rows} rows, a batch has 1 to {self._batch}")
            self._add(request, args[0], rows)
        except Exception as error:
            self.fail([request], error)

    def tick(self) -> float | None:
        if self._open is None or self.running + len(self.jobs) >= self.workers:
            return None
        if self._open.deadline > time.monotonic():
            return self._open.deadline
        self._hand_out()
        return None

    def seal(self) -> None:
        if self._open:
            self._hand_out()

    def _add(self, request: methods.Request, obs: dict, rows: int | None) -> None:
        added = self._schema.added(obs, rows)
        full = self._open and self._open.rows + (rows or 1) > self._batch
        if self._open and (full or self._open.added != added):
            self._hand_out()
        if self._open is None:
            deadline = time.monotonic() + self._timeout
            self._open = OpenBatch(self._schema, added, self._batch, deadline)
        self._open.add(request, obs, rows)
        if self._open.rows == self._batch:
            self._hand_out()

    def _hand_out(self) -> None:
        self.jobs.append(self._open)
        self._open = None

    def execute(self, batch: OpenBatch) -> None:
        start = time.monotonic()
        requests = [part.request for part in batch.parts]
        try:
            reply, post = self.call(batch.finish(self._pad), batch.rows)
            reply = _arrays(reply, batch.rows, "")
            answers = [_answer(part, reply) for part in batch.parts]
        except BaseException as error:
            self.fail(requests, error)
        else:
            self.finish(answers, post)
        self.meter.add([start - r.time for r in requests], batch.rows, start)


class BatchServer(server.Server):
    """A server whose methods may serve many requests with one call."""

    def bind(
        self,
        name: str,
        workfn: Callable[..., Any],
        postfn: Callable[[Any], Any] | None = None,
        *,
        workers: int = 1,
        identify: bool = False,
        batch: int = 0,
        timeout: float = 0.01,
        spaces: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
        optional: str | None = None,
        pad: Pad = "none",
    ) -> None:
        """Serve `workfn(batch, rows)` if `batch` > 0, else as `Server.bind` does.

        Each request is a dict that matches `spaces`, or one with a leading axis of up
        to `batch` rows; what has a default may be left out, and numbers whose keys
        start with `optional` may be added. The function gets the rows of several
        requests stacked, all with the same additions, of which the first `rows` are
        real and the others padding, and returns a dict (or tree) of arrays with at
        least that many rows.
        """
        if not batch:
            super().bind(name, workfn, postfn, workers=workers, identify=identify)
            return
        assert not identify, "a batch has many callers"
        schema = Schema(spaces or {}, defaults, optional)
        args = (name, workfn, postfn, workers, batch, timeout, schema, pad)
        self._add_method(BatchMethod(*args))


def _answer(part: Part, reply: Any) -> methods.Answer:
    payload, frames = encoding.encode(_take(reply, part.rows))
    return methods.Answer(part.request, protocol.REPLY, payload, frames)


def _take(tree: Any, index: int | slice) -> Any:
    if type(tree) is dict:
        return {key: _take(value, index) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_take(value, index) for value in tree)
    return tree[index]


def _arrays(tree: Any, rows: int, path: str) -> Any:
    """The reply with numpy arrays as leaves, each checked to have all rows."""
    if isinstance(tree, Mapping):
        return {k: _arrays(v, rows, f"{path}/{k}") for k, v in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_arrays(v, rows, f"{path}/{i}") for i, v in enumerate(tree))
    array = np.asarray(tree)
    if array.ndim == 0 or len(array) < rows:
        raise ValueError(
            f"'{path or '/'}' of the reply has shape {array.shape} for {rows} rows"
        )
    return array
