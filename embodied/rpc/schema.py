"""What batched requests must look like: keys, dtypes, shapes and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from embodied.rpc import bounds, errors

Batch = dict[str, np.ndarray]  # Key -> [rows, ...].
Faults = Mapping[int, errors.RpcError]  # What is wrong with rows of a batch.


class SchemaError(errors.RpcError, ValueError):
    """A batched request that does not match the spaces; the message names the key."""


class Field(NamedTuple):
    """What one key of a request must be."""

    key: str
    dtype: np.dtype
    shape: tuple[int, ...]  # Of one row.


class Schema:
    """The keys, dtypes, shapes and values of batched requests.

    `spaces` maps keys to anything that has a dtype and a shape, such as
    `elements.Space`, or to a pair of them. Values have to be finite and within the
    bounds of the space, if it has `low` and `high`. Requests may leave out keys that
    have a default, a number, and may add arrays of numbers whose keys start with
    `optional`.
    """

    def __init__(
        self,
        spaces: Mapping[str, Any],
        defaults: Mapping[str, Any] | None = None,
        optional: str | None = None,
    ):
        if not spaces:
            raise ValueError("a batched method needs the spaces of its requests")
        self.fields = [_field(key, space) for key, space in spaces.items()]
        self._keys = {field.key for field in self.fields}
        found = (bounds.of_space(key, space) for key, space in spaces.items())
        self._bounds = [each for each in found if each]
        self.defaults = dict(defaults or {})
        self._optional = optional

    def allocate(self, rows: int, added: Sequence[Field] = ()) -> Batch:
        """Memory for a batch, with what its requests add."""
        fields = (*self.fields, *added)
        return {f.key: np.empty((rows, *f.shape), f.dtype) for f in fields}

    def added(self, request: dict[str, Any], rows: int | None) -> tuple[Field, ...]:
        """What a checked request has beyond the spaces."""
        if self._optional is None or request.keys() <= self._keys:
            return ()
        fields = []
        for key in sorted(request.keys() - self._keys):
            value = np.asarray(request[key])
            legal = rows is None or value.shape[:1] == (rows,)
            if not legal or value.dtype.kind not in "biuf":
                expected = "numbers" if rows is None else f"numbers for {rows} rows"
                found = _describe(request[key])
                raise SchemaError(f"'{key}' must be {expected}, got {found}")
            shape = value.shape if rows is None else value.shape[1:]
            fields.append(Field(key, value.dtype, shape))
        return tuple(fields)

    def check(self, request: Any) -> int | None:
        """Rows of a request, or None if it is a single one without leading axis."""
        if type(request) is not dict:
            raise SchemaError(f"expected a dict, got {type(request).__name__}")
        fields = self.fields
        if request.keys() != self._keys:
            missing = self._keys - request.keys() - self.defaults.keys()
            extra = {k for k in request.keys() - self._keys if not self._may_add(k)}
            if missing or extra:
                raise SchemaError(
                    f"missing keys {_list(missing)}, extra {_list(extra)}"
                )
            fields = [field for field in fields if field.key in request]
        first = fields[0]
        axes = np.ndim(request[first.key]) - len(first.shape)
        rows = np.shape(request[first.key])[0] if axes == 1 else None
        for key, dtype, shape in fields:
            value = request[key]
            expected = shape if rows is None else (rows, *shape)
            try:
                legal = value.dtype == dtype and value.shape == expected
            except AttributeError:
                legal = expected == () and _is_scalar(value, dtype)
            if not legal:
                found = _describe(value)
                raise SchemaError(f"'{key}' must be {dtype} {expected}, got {found}")
        return rows

    def faults(self, batch: Batch, rows: int) -> dict[int, errors.RpcError]:
        """Rows of a batch with values that are not allowed."""
        found: dict[int, errors.RpcError] = {}
        for each in self._bounds:
            values = batch[each.key][:rows]
            if not each.hold(values):
                for row, text in each.faults(values):
                    found.setdefault(row, SchemaError(text))
        return found

    def _may_add(self, key: Any) -> bool:
        prefix = self._optional
        return prefix is not None and type(key) is str and key.startswith(prefix)


def _field(key: str, space: Any) -> Field:
    dtype, shape = space if isinstance(space, tuple) else (space.dtype, space.shape)
    return Field(key, np.dtype(dtype), tuple(shape))


def _is_scalar(value: Any, dtype: np.dtype) -> bool:
    """Whether a Python number fits a dtype without loss of meaning."""
    if type(value) is bool:
        return dtype.kind == "b"
    if type(value) is int and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return int(limits.min) <= value <= int(limits.max)
    return type(value) is float and dtype.kind == "f"


def _describe(value: Any) -> str:
    if hasattr(value, "dtype"):
        return f"{value.dtype} {value.shape}"
    return type(value).__name__


def _list(keys: set) -> list[str]:
    return sorted(str(key)[:100] for key in keys)[:10]
