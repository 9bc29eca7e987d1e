"""Batches on their way from the host to the devices."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from embodied.core import base, streams
from embodied.core.base import STEPID

ROWS = "rows"  # Number that the randomness of a sequence is drawn with, uint32 [B].
CONSEC = "consec"  # Index of a chunk inside its sequence, int32 [B].

# By kind and size, as names take long to look up.
_NARROW = {("f", 8): np.float32, ("i", 8): np.int32, ("u", 8): np.uint32}


class Prepared(dict[str, Any]):
    """A batch whose arrays are on the devices, except for `stepid`."""


def row_numbers(stepid: np.ndarray | None, size: int) -> np.ndarray:
    """A number per sequence that depends on what it is, not on where it stands.

    So permuting a batch permutes its randomness; copies of a sequence count up.
    """
    if stepid is None:
        return np.arange(size, dtype=np.uint32)
    seen: dict[int, int] = {}
    numbers = []
    for row in np.ascontiguousarray(stepid):
        code = zlib.crc32(row.tobytes())
        seen[code] = seen.get(code, -1) + 1
        numbers.append((code + 0x9E3779B9 * seen[code]) & 0xFFFFFFFF)
    return np.array(numbers, np.uint32)


def select(data: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, np.ndarray]:
    """What the agent needs of a batch, with `rows` and `consec`, in 32 bits."""
    missing = [key for key in keys if key not in data]
    if missing:
        raise KeyError(f"The batch has no {missing}; it has {sorted(data)}.")
    result = {key: narrow(np.asarray(data[key])) for key in keys}
    size = len(result[keys[0]])
    consec = np.asarray(data.get(CONSEC, np.zeros(size)))
    result[CONSEC] = consec.reshape(size, -1)[:, 0].astype(np.int32)
    result[ROWS] = row_numbers(data.get(STEPID), size)
    return result


def narrow(x: np.ndarray) -> np.ndarray:
    """64-bit numbers in 32 bits, which is what devices compute with."""
    dtype = _NARROW.get((x.dtype.kind, x.dtype.itemsize))
    return x if dtype is None else x.astype(dtype)


def check_finite(kind: str, key: str, value: np.ndarray) -> None:
    """Raise with the name of the key if a value is NaN or infinite."""
    finite = np.isfinite(value)
    if not finite.all():
        rows = sorted({int(i) for i in np.argwhere(~finite)[:, 0]})
        raise ValueError(f"The {kind} '{key}' is NaN or infinite in rows {rows}.")


def device_stream(
    source: Iterator[Any], put: Callable[[Any], Prepared], depth: int = 0
) -> base.Stream:
    """Batches on the devices, `depth` of them ahead of time, or on demand below 1.

    A source that says how far ahead it may be read (`lookahead`) is not read further:
    a report is on data of now.
    """
    depth = min(depth, getattr(source, "lookahead", depth))
    if not isinstance(source, base.Stream):
        source = streams.Stateless(next, source)
    stream = streams.Map(source, put)
    return streams.Prefetch(stream, depth) if depth > 0 else stream
