"""Requests of many clients stacked into batches, by count or by deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from embodied.rpc import encoding, methods, protocol, server
from embodied.rpc.schema import Batch, Faults, Field, Schema, SchemaError

Pad = Literal["none", "zeros", "repeat"]
Check = Callable[[Batch, int], Faults]  # Gets a batch and the number of its rows.


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

    def keep(self, parts: Sequence[Part]) -> None:
        """Keep the rows of these parts, and close the gaps between them."""
        numbers = np.arange(self.rows)
        kept = [np.atleast_1d(numbers[part.rows]) for part in parts]
        self.parts, self.rows = [], 0
        for (request, index), rows in zip(parts, kept, strict=True):
            stop = self.rows + len(rows)
            for array in self.arrays.values():
                array[self.rows : stop] = array[rows]
            single = isinstance(index, int)
            self.parts.append(
                Part(request, self.rows if single else slice(self.rows, stop))
            )
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

    A batch is dispatched once it has `batch` rows or, if a worker is free, `timeout`
    seconds after its first request.
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
        check: Check | None,
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
        self._check = check
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
        waits, rows = [start - p.request.time for p in batch.parts], batch.rows
        try:
            faults = self._find_faults(batch)
        except BaseException as error:
            self.fail([part.request for part in batch.parts], error)
        else:
            if faults:
                self._reject(batch, faults)
            if batch.parts:
                self._answer(batch)
        self.meter.add(waits, rows, start)

    def _find_faults(self, batch: OpenBatch) -> Faults:
        faults = self._schema.faults(batch.arrays, batch.rows)
        if not self._check:
            return faults
        return {**self._check(batch.arrays, batch.rows), **faults}

    def _reject(self, batch: OpenBatch, faults: Faults) -> None:
        """Fail the requests with a faulty row, and take them out of the batch."""
        numbers = np.arange(batch.rows)
        good = []
        for part in batch.parts:
            rows = np.atleast_1d(numbers[part.rows]).tolist()
            row = next((row for row in rows if row in faults), None)
            if row is None:
                good.append(part)
            else:
                error = faults[row]
                if len(rows) > 1:
                    error = type(error)(f"row {row - rows[0]}: {error}")
                self.meter.reject(1)
                self.fail([part.request], error)
        batch.keep(good)

    def _answer(self, batch: OpenBatch) -> None:
        try:
            reply, post = self.call(batch.finish(self._pad), batch.rows)
            reply = _arrays(reply, batch.rows, "")
            answers = [_answer(part, reply) for part in batch.parts]
        except BaseException as error:
            self.fail([part.request for part in batch.parts], error)
        else:
            self.finish(answers, post)


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
        check: Check | None = None,
        pad: Pad = "none",
    ) -> None:
        """Serve `workfn(batch, rows)` if `batch` > 0, else as `Server.bind` does.

        Each request is a dict that matches `spaces`, or one with a leading axis of up
        to `batch` rows; what has a default may be left out, and numbers whose keys
        start with `optional` may be added. The function gets the rows of several
        requests stacked, all with the same additions, of which the first `rows` are
        real and the others padding, and returns a dict (or tree) of arrays with at
        least that many rows.

        Before that, `check(batch, rows)` may name rows to reject and the errors that
        their senders get, as those get one whose values are not finite or not within
        the bounds of their space. The others are answered as if those were not there.
        """
        if not batch:
            super().bind(name, workfn, postfn, workers=workers, identify=identify)
            return
        assert not identify, "a batch has many callers"
        schema = Schema(spaces or {}, defaults, optional)
        args = (name, workfn, postfn, workers, batch, timeout, schema, check, pad)
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
