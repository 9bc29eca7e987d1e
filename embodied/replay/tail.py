"""Reads stored steps in the order in which they were added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from embodied.core.base import Batch
from embodied.replay.chunk import Chunk
from embodied.replay.memory_limit import MemoryLimit

Span = tuple[Chunk, int, int]  # Rows [low, high) of a chunk.


class Tail(NamedTuple):
    """Steps of several workers, oldest first."""

    workers: np.ndarray  # [N] int64
    seqs: np.ndarray  # [N] int64, the sequence number of each step.
    orders: np.ndarray  # [N] int64, how many steps there were once it was added.
    steps: Batch  # Leaves are [N, ...].


def read(
    stored: Sequence[tuple[Chunk, int]],
    limit: MemoryLimit,
    seqs: Mapping[int, int],
    default: int,
    keys: Sequence[str],
    amount: int,
) -> Tail:
    """The first `amount` steps whose number is beyond that of their worker in `seqs`.

    Workers that are not in `seqs` have the number `default`. `stored` are all chunks
    with the number of their steps.
    """
    spans = []
    for chunk, count in stored:
        last = seqs.get(chunk.header.worker, default)
        low = max(0, last + 1 - chunk.header.start)
        if low < count:
            spans.append((chunk, low, count))
    newest = _newest(spans, limit, amount)
    parts = [_read(*span, limit, newest, keys) for span in spans]
    if not parts:
        none = np.zeros(0, np.int64)
        return Tail(none, none, none, dict.fromkeys(keys, none))
    workers, numbers, orders, columns = zip(*parts, strict=True)
    order = np.argsort(np.concatenate(orders))
    return Tail(
        np.concatenate(workers)[order],
        np.concatenate(numbers)[order],
        np.concatenate(orders)[order],
        {key: np.concatenate([x[key] for x in columns])[order] for key in keys},
    )


def _newest(spans: Sequence[Span], limit: MemoryLimit, amount: int) -> int:
    """The place in the order of the last of the oldest `amount` steps."""
    orders = [np.zeros(0, np.int64)]
    for chunk, low, high in spans:
        with limit.hold(chunk), chunk.lock:
            orders.append(chunk.order[low:high].copy())
    found = np.concatenate(orders)
    if len(found) > amount:
        found = np.partition(found, amount - 1)[:amount]
    return int(found.max(initial=0))


def _read(
    chunk: Chunk,
    low: int,
    high: int,
    limit: MemoryLimit,
    newest: int,
    keys: Sequence[str],
) -> Tail:
    """Rows [low, high) of a chunk up to that place."""
    with limit.hold(chunk), chunk.lock:
        high = low + int(np.searchsorted(chunk.order[low:high], newest, "right"))
        orders = chunk.order[low:high].copy()
        steps = {key: chunk.columns[key][low:high].copy() for key in keys}
    workers = np.full(high - low, chunk.header.worker, np.int64)
    return Tail(workers, chunk.header.start + np.arange(low, high), orders, steps)
