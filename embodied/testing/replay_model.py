"""A reference model of the replay, and helpers to compare with it."""

from __future__ import annotations

from typing import Any

import numpy as np


def make_step(worker: int, index: int, size: int = 300) -> dict:
    """A step whose every byte follows from who made it and when."""
    value = worker * 1000 + index
    return {
        "image": np.full((size,), value % 251, np.uint8),
        "latent": np.full((4,), value, np.float32),
        "code": np.int32(value),
        "reward": np.float32(index),
        "is_first": np.bool_(index % 5 == 0),
        "is_last": np.bool_(False),
        "is_terminal": np.bool_(False),
    }


class Model:
    """Streams as lists; items as (worker, first code) in the order of completion."""

    def __init__(self, length: int, capacity: int):
        self.length = length
        self.capacity = capacity
        self.items: list[tuple[int, ...]] = []
        self.latents: dict[int, float] = {}
        self._runs: dict[int, list[int]] = {}
        self._last: dict[int, int] = {}
        self._order: dict[int, int] = {}
        self._steps = 0
        self._now = 0

    def begin(self) -> None:
        """What is added until the next call is one batch."""
        self._now = self._steps

    def add(self, worker: int, code: int, seq: int) -> bool:
        """Whether the step is new."""
        last = self._last.get(worker)
        if last is not None and seq <= last:
            return False
        silent = self._order.get(worker, 0) <= self._now - self.capacity
        if last is None or seq != last + 1 or silent:
            self._runs[worker] = []
        self._steps += 1
        self._order[worker] = self._steps
        self._last[worker] = seq
        run = self._runs[worker]
        run.append(code)
        self.latents[code] = float(code)
        if len(run) >= self.length:
            self.items.append(tuple(run[-self.length :]))
            self.items = self.items[-self.capacity :]
        return True

    def forget(self, workers: set[int]) -> None:
        """Streams other than these were gone before a restart."""
        for worker in set(self._last) - workers:
            del self._last[worker]

    def next(self, worker: int) -> int:
        """The sequence number that continues a stream."""
        return self._last.get(worker, -1) + 1


def all_items(replay: Any) -> list[tuple[int, ...]]:
    """The content of every item, oldest first, without drawing at random."""
    index = replay._index
    ids = np.arange(index.ring.head, index.ring.tail)
    selector, queue = index._selector, index.queue.copy()
    index._selector = _Given(ids)
    out = []
    if len(ids):
        batch = replay.sample(len(ids), "report")
        check_sequences(batch)
        out = [tuple(row) for row in batch["code"].tolist()]
    index._selector, index.queue = selector, queue
    return out


def stored_codes(replay: Any) -> dict[int, list[int]]:
    """The codes of all steps, whether in an item or not, by worker."""
    codes: dict[int, list[int]] = {}
    chunks = replay._index.chunks.values()
    for chunk in sorted(chunks, key=lambda x: x.header.start):
        found = chunk.columns["code"][: chunk.count].tolist()
        codes.setdefault(chunk.header.worker, []).extend(found)
    return codes


def check_sequences(batch: dict) -> None:
    """Each step is whole, and the borders of episodes are marked."""
    code = batch["code"]
    assert (batch["image"] == (code % 251)[..., None]).all()
    assert (batch["reward"] == code % 1000).all()
    first = code % 5 == 0
    first[:, 0] = True
    assert (batch["is_first"] == first).all()
    assert (batch["is_last"][:, :-1] == first[:, 1:]).all()
    assert not batch["is_last"][:, -1].any()
    ids = batch["stepid"].reshape(-1, batch["stepid"].shape[-1])
    assert len(np.unique(ids, axis=0)) == len(np.unique(code))


class _Given:
    prioritized = False

    def __init__(self, ids: np.ndarray):
        self._ids = ids

    def sample(self, rng: Any, head: int, tail: int, amount: int) -> np.ndarray:
        del rng, head, tail
        assert amount == len(self._ids)
        return self._ids
