"""Checks that steps fit the schema of the replay before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from embodied.core.base import LOG_PREFIX, STEPID
from embodied.replay.layout import (
    PRIORITY,
    Records,
    Schema,
    as_rows,
    describe,
    make_schema,
)


class StepError(ValueError):
    """A step does not match the steps that are stored already."""


def as_arrays(step: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The stored keys of one step, each with a leading dimension of one."""
    return {key: _as_array(value)[None] for key, value in step.items() if _stored(key)}


def as_batch(steps: Mapping[str, Any], length: int) -> dict[str, np.ndarray]:
    """The stored keys of stacked steps."""
    out = {key: np.asarray(value) for key, value in steps.items() if _stored(key)}
    for key, value in out.items():
        if value.shape[:1] != (length,):
            raise StepError(f"{key} has shape {value.shape} for {length} workers")
    return out


def infer_schema(batch: Mapping[str, np.ndarray]) -> Schema:
    """The schema of the first steps."""
    for key, value in batch.items():
        if value.dtype.hasobject or value.dtype.kind in "USMm":
            raise StepError(f"{key} has dtype {value.dtype}, which cannot be stored")
        if key.startswith("#"):
            raise StepError(f"{key}: names must not start with '#'")
    if not batch:
        raise StepError("a step needs at least one key")
    return make_schema({key: value[0] for key, value in batch.items()})


def to_blocks(batch: Mapping[str, np.ndarray], records: Records) -> list[np.ndarray]:
    """The values in the form that chunks store: records, then large keys.

    Raises if they do not fit the schema.
    """
    if not _fits(batch, records.schema):
        raise _mismatch(batch, records.schema)
    count = len(next(iter(batch.values())))
    small = records.encode(batch, count)
    large = [np.asarray(batch[x.name], x.dtype) for x in records.large]
    return [as_rows(block) for block in (small, *large)]


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


def _stored(key: str) -> bool:
    return key != STEPID and not key.startswith(LOG_PREFIX)


def _as_array(value: Any) -> np.ndarray:
    # Python numbers become what the device computes with, not 64 bits.
    if type(value) is float:
        return np.asarray(value, np.float32)
    if type(value) is int:
        return np.asarray(value, np.int32)
    return np.asarray(value)


def _fits(batch: Mapping[str, np.ndarray], schema: Schema) -> bool:
    if len(batch) != len(schema):
        return False
    for field in schema:
        value = batch.get(field.name)
        if value is None or value.shape[1:] != field.shape:
            return False
        if value.dtype != field.dtype and not _castable(value.dtype, field.dtype):
            return False
    return True


def _castable(source: np.dtype, target: np.dtype) -> bool:
    return np.can_cast(source, target, "same_kind")


def _mismatch(batch: Mapping[str, np.ndarray], schema: Schema) -> StepError:
    given = describe(make_schema({key: value[0] for key, value in batch.items()}))
    stored = describe(schema)
    keys = sorted(
        key for key in given.keys() | stored.keys() if given.get(key) != stored.get(key)
    )
    lines = [
        f"{key}: got {given.get(key, 'nothing')}, stored {stored.get(key, 'nothing')}"
        for key in keys
    ]
    text = "step does not match the stored steps (use another directory?): "
    return StepError(text + "; ".join(lines))
