"""Endless data streams that can be chained, and saved and restored at any element."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from embodied.core import base


class Stateless(base.Stream):
    """Elements from a function call each; there is no position to save."""

    def __init__(self, next_fn: Callable[..., Any], *args: Any, **kwargs: Any):
        self._next_fn = next_fn
        self._args = args
        self._kwargs = kwargs

    def __next__(self) -> Any:
        return self._next_fn(*self._args, **self._kwargs)

    def save(self) -> None:
        return None

    def load(self, data: None) -> None:
        assert data is None, data


class Map(base.Stream):
    """Applies a function to each element."""

    def __init__(self, source: base.Stream, fn: Callable[..., Any], *args: Any):
        self._source = source
        self._fn = fn
        self._args = args

    def __next__(self) -> Any:
        return self._fn(next(self._source), *self._args)

    def save(self) -> Any:
        return self._source.save()

    def load(self, data: Any) -> None:
        self._source.load(data)


class Zip(base.Stream):
    """Tuples of one element from each source."""

    def __init__(self, sources: Sequence[base.Stream]):
        assert len(sources) > 1, len(sources)
        self._sources = list(sources)

    def __next__(self) -> tuple:
        return tuple(next(source) for source in self._sources)

    def save(self) -> list:
        return [source.save() for source in self._sources]

    def load(self, data: list) -> None:
        assert len(data) == len(self._sources), (len(data), len(self._sources))
        for source, state in zip(self._sources, data, strict=True):
            source.load(state)


class Mixer(base.Stream):
    """Each element comes from one source, drawn at random by weight."""

    def __init__(
        self,
        sources: Mapping[str, base.Stream],
        weights: Mapping[str, float],
        seed: int = 0,
    ):
        if set(sources) != set(weights):
            raise ValueError(f"sources {sorted(sources)} != weights {sorted(weights)}")
        if min(weights.values()) < 0 or sum(weights.values()) <= 0:
            raise ValueError(f"weights must be >= 0 and not all zero, got {weights}")
        self._names = sorted(sources)
        self._sources = sources
        total = sum(weights.values())
        self._probs = [weights[name] / total for name in self._names]
        self._rng = np.random.default_rng(seed)

    def __next__(self) -> Any:
        name = self._names[self._rng.choice(len(self._names), p=self._probs)]
        return next(self._sources[name])

    def save(self) -> dict:
        sources = {name: source.save() for name, source in self._sources.items()}
        return {"rng": self._rng.bit_generator.state, "sources": sources}

    def load(self, data: dict) -> None:
        self._rng.bit_generator.state = data["rng"]
        for name, state in data["sources"].items():
            self._sources[name].load(state)


class Consec(base.Stream):
    """Cuts each sequence into consecutive chunks that a recurrent learner sees in turn.

    A source element is [B, T, ...] with `T = prefix + consec * length`. Chunk `i` holds
    steps `i * length` to `prefix + (i + 1) * length`, so that its first `prefix` steps
    are the context before the `length` steps to learn from. The key `consec` [B] is
    `i`. A longer source element is an error if `strict`, else its tail is left out.
    """

    KEY = "consec"

    def __init__(
        self,
        source: base.Stream,
        length: int,
        consec: int = 1,
        prefix: int = 0,
        strict: bool = True,
        contiguous: bool = False,
    ):
        assert length >= 1, length
        assert consec >= 1, consec
        assert prefix >= 0, prefix
        self._source = source
        self._length = length
        self._consec = consec
        self._prefix = prefix
        self._strict = strict
        self._contiguous = contiguous
        self._index = 0
        self._current: base.Batch | None = None
        self._position: Any = None  # Of the source, before it gave `_current`.

    def __next__(self) -> base.Batch:
        if self._current is None:
            self._position = self._source.save()
            self._current = self._fetch()
        chunk = self._cut(self._current, self._index)
        self._index += 1
        if self._index == self._consec:
            self._index, self._current = 0, None
        return chunk

    def save(self) -> dict:
        position = self._source.save() if self._current is None else self._position
        return {"source": position, "index": self._index}

    def load(self, data: dict) -> None:
        """Resume at the saved chunk; its sequence is fetched from the source again."""
        self._source.load(data["source"])
        self._index, self._current = data["index"], None
        if self._index:
            self._position = data["source"]
            self._current = self._fetch()

    def _fetch(self) -> base.Batch:
        batch = next(self._source)
        need = self._prefix + self._consec * self._length
        for key, value in batch.items():
            if value.shape[1] < need or (self._strict and value.shape[1] != need):
                raise ValueError(
                    f"sequences of '{key}' have {value.shape[1]} steps, but "
                    f"{self._consec} chunks of {self._length} with a context of "
                    f"{self._prefix} need {need}"
                )
        return batch

    def _cut(self, batch: base.Batch, index: int) -> base.Batch:
        start = index * self._length
        stop = start + self._prefix + self._length
        chunk = {key: value[:, start:stop] for key, value in batch.items()}
        if self._contiguous:
            chunk = {key: np.ascontiguousarray(value) for key, value in chunk.items()}
        size = len(next(iter(batch.values())))
        chunk[self.KEY] = np.full((size,), index, np.int32)
        return chunk


class Prefetch(base.Stream):
    """Fetches up to `amount` elements ahead in a thread.

    The saved position is that of the consumer: elements fetched ahead are fetched again
    after a restore. An error in the source is raised at the element it belongs to.
    """

    CLOSE_TIMEOUT = 60.0  # Seconds.

    def __init__(self, source: base.Stream, amount: int = 2):
        assert amount >= 1, amount
        self._source = source
        self._amount = amount
        self._changed = threading.Condition()
        self._ready: collections.deque = collections.deque()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._start(source.save())

    def __next__(self) -> Any:
        with self._changed:
            self._changed.wait_for(self._has_news)
            if not self._ready:
                raise StopIteration
            element, position, error = self._ready[0]
            if error is not None:
                raise error
            self._ready.popleft()
            self._position = position
            self._changed.notify_all()
            return element

    def save(self) -> Any:
        return self._position

    def load(self, data: Any) -> None:
        self.close()
        self._source.load(data)
        self._start(data)

    def close(self) -> None:
        """Stop fetching; returns once the thread has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        assert self._thread is not None
        self._thread.join(self.CLOSE_TIMEOUT)
        if self._thread.is_alive():
            raise TimeoutError(
                f"the source gave no element for {self.CLOSE_TIMEOUT} s after close; "
                "close what it reads from first"
            )

    def _start(self, position: Any) -> None:
        self._position = position
        self._ready.clear()
        self._closed = False
        self._thread = threading.Thread(target=self._fetch, daemon=True)
        self._thread.start()

    def _fetch(self) -> None:
        error = None
        while error is None:
            with self._changed:
                self._changed.wait_for(self._wants_more)
                if self._closed:
                    return
            element = position = None
            try:
                element, position = next(self._source), self._source.save()
            except Exception as caught:
                error = caught
            with self._changed:
                self._ready.append((element, position, error))
                self._changed.notify_all()

    def _has_news(self) -> bool:
        return self._closed or len(self._ready) > 0

    def _wants_more(self) -> bool:
        return self._closed or len(self._ready) < self._amount
