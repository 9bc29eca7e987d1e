"""Converts steps to the rows that chunks store, and rejects steps that do not fit."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from embodied.core.base import STEPID, is_stored
from embodied.replay.layout import (
    PRIORITY,
    Records,
    Schema,
    describe,
    make_schema,
)


class StepError(ValueError):
    """A step does not match the steps that are stored already."""


class Target(NamedTuple):
    """Where the value of one key goes."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    view: np.ndarray | None  # Part of the records; None for a large key.


class StepEncoder:
    """Encodes steps of one schema. Not thread-safe: buffers are reused."""

    def __init__(self, schema: Schema):
        self.records = Records(schema)
        self.schema = schema
        self._keys = frozenset(field.name for field in schema)
        self._prepared = functools.lru_cache(maxsize=16)(self._prepare)

    def encode(
        self, steps: Mapping[str, Any], count: int | None = None
    ) -> list[tuple[np.ndarray, ...]]:
        """For each step the bytes of its record, then the value of each large key.

        Leaves are [count, ...], or those of a single step if `count` is None. Records
        are valid until the next call. Raises if the steps do not fit the schema.
        """
        if steps.keys() != self._keys and stored_keys(tuple(steps)) != self._keys:
            raise self._mismatch(steps, count)
        records, targets = self._prepared(count)
        blocks = [records]
        for name, dtype, shape, view in targets:
            value = steps[name]
            if getattr(value, "dtype", None) is not dtype or value.shape != shape:
                value = self._convert(value, dtype, shape, steps, count)
            if view is None:
                blocks.append(np.ascontiguousarray(value))
            else:
                view[()] = value
        return [tuple(blocks)] if count is None else list(zip(*blocks, strict=True))

    def _prepare(self, count: int | None) -> tuple[np.ndarray, list[Target]]:
        """Bytes of records to fill, and the target of each key."""
        lead = () if count is None else (count,)
        records = np.zeros((*lead, self.records.nbytes), np.uint8)
        targets = []
        for field in self.schema:
            shape, view = (*lead, *field.shape), None
            if field in self.records.small:
                view = self.records.column(records, field)
            targets.append(Target(field.name, field.dtype, shape, view))
        return records, targets

    def _convert(
        self,
        value: Any,
        dtype: np.dtype,
        shape: tuple[int, ...],
        steps: Mapping[str, Any],
        count: int | None,
    ) -> np.ndarray:
        """A value that is not an array of the stored dtype and shape."""
        array = _as_array(value)
        if array.shape != shape or not np.can_cast(array.dtype, dtype, "same_kind"):
            raise self._mismatch(steps, count)
        return np.asarray(array, dtype)

    def _mismatch(self, steps: Mapping[str, Any], count: int | None) -> StepError:
        given = describe(make_schema(_first(steps, count)))
        stored = describe(self.schema)
        lines = [
            f"{x}: got {given.get(x, 'nothing')}, stored {stored.get(x, 'nothing')}"
            for x in sorted(given.keys() | stored.keys())
            if given.get(x) != stored.get(x)
        ]
        text = "step does not match the stored steps (use another directory?): "
        return StepError(text + "; ".join(lines))


@functools.lru_cache(maxsize=64)
def stored_keys(keys: tuple[str, ...]) -> frozenset[str]:
    """Those of the keys that are stored."""
    return frozenset(key for key in keys if is_stored(key))


def infer_schema(steps: Mapping[str, Any], count: int | None = None) -> Schema:
    """The schema of the first steps."""
    first = _first(steps, count)
    for key, value in first.items():
        if value.dtype.hasobject or value.dtype.kind in "USMm":
            raise StepError(f"{key} has dtype {value.dtype}, which cannot be stored")
        if key.startswith("#"):
            raise StepError(f"{key}: names must not start with '#'")
    if not first:
        raise StepError("a step needs at least one key")
    return make_schema(first)


def update_values(
    data: Mapping[str, Any], schema: Schema, lead: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Flattened values to write back, by key; priorities under their column name."""
    fields = {field.name: field for field in schema}
    out = {}
    for key, value in data.items():
        value = np.asarray(value)
        if key == STEPID:
            continue
        name, shape = key, fields[key].shape if key in fields else ()
        if key == "priority" and key not in fields:
            name = PRIORITY
        elif key not in fields:
            raise StepError(f"cannot update {key}, stored are {describe(schema)}")
        if value.shape != (*lead, *shape):
            raise StepError(f"{key} is {value.shape}, expected {(*lead, *shape)}")
        if name == PRIORITY and not (np.isfinite(value) & (value >= 0)).all():
            raise StepError("priorities must be finite and not negative")
        out[name] = value.reshape(-1, *shape)
    return out


def _first(steps: Mapping[str, Any], count: int | None) -> dict[str, np.ndarray]:
    """The stored keys of the first step as arrays."""
    out = {key: _as_array(steps[key]) for key in steps if is_stored(key)}
    if count is None:
        return out
    for key, value in out.items():
        if value.shape[:1] != (count,):
            raise StepError(f"{key} has shape {value.shape} for {count} workers")
    return {key: value[0] for key, value in out.items()}


def _as_array(value: Any) -> np.ndarray:
    # Python numbers become 32-bit values, as on the device.
    if type(value) is float:
        return np.asarray(value, np.float32)
    if type(value) is int:
        return np.asarray(value, np.int32)
    return np.asarray(value)
