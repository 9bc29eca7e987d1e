"""The replay: stores the steps of many workers and serves sequences of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from embodied.core import base, formats
from embodied.core.base import STEPID, Batch, Metrics, Mode, Step
from embodied.replay import tail, writeback
from embodied.replay.checksums import Checksums
from embodied.replay.chunk import Chunk
from embodied.replay.combining import CombiningLock
from embodied.replay.compressor import Compressor
from embodied.replay.encoder import StepEncoder, infer_schema, update_values
from embodied.replay.index import Index
from embodied.replay.layout import Schema
from embodied.replay.reader import DamagedChunkError, SequenceReader
from embodied.replay.recovery import recover
from embodied.replay.selectors import Selector, Uniform
from embodied.replay.store import ChunkStore
from embodied.replay.verifier import Verifier
from embodied.replay.writer import Placement

VERSION = 1
MODES = get_args(Mode)
COUNTERS = ("inserts", "duplicates", "samples", "updates", "update_misses")


class ReplayClosedError(RuntimeError):
    """The replay was closed while or before waiting for items."""


class Replay(base.Replay):
    """Every window of `length` consecutive steps of a worker is one item.

    At most `capacity` items are kept, the oldest are evicted first. With a `directory`
    the steps live in mapped files of `chunksize` steps: a step whose `add` returned
    survives the death of the process, and opening the directory again finds it. Without
    one they live in memory and are part of what `save` returns. `memory` bounds the
    resident bytes of the files and `compress` shrinks completed ones in the background.

    One thread adds at a time and one samples, as more would only compete for the
    interpreter lock. Concurrent adders hand their batch to the thread that is already
    writing (`_adding`). Locks are taken in this order: `_adding` or `_sampling`;
    `_lock`, which guards the index and is held for no copy or I/O; the lock of a chunk,
    which keeps `update` apart from readers. The memory of an evicted chunk is reused
    only when no reader is left.
    """

    def __init__(
        self,
        length: int,
        capacity: int,
        directory: str | os.PathLike | None = None,
        chunksize: int = 1024,
        online: bool = False,
        selector: Selector | None = None,
        seed: int = 0,
        name: str = "replay",
        compress: bool = False,
        memory: int = 0,
    ):
        if length < 1 or chunksize < 1:
            raise ValueError(f"bad length {length} or chunksize {chunksize}")
        self.length, self.capacity, self.name = length, int(capacity), name
        self.online = online
        # Sampling in one mode must not change what another mode draws.
        self._rngs = {m: np.random.default_rng([seed, *m.encode()]) for m in MODES}
        self._adding = CombiningLock()
        self._sampling = threading.Lock()
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._closed = False
        selector = selector or Uniform()
        self._index = Index(length, self.capacity, selector, online)
        self._counts: dict[str, float] = dict.fromkeys(COUNTERS, 0)
        self._waiting, self._waited = 0, 0.0  # Threads, and seconds.
        self._store = ChunkStore(directory, chunksize, int(memory), seed)
        self._reader = SequenceReader(self._store.limit)
        disk = directory is not None
        self._compressor = Compressor(self._store) if compress and disk else None
        self._encoder: StepEncoder | None = None  # Fixed by the first step.
        self._recover(self._store.load())
        self._checksums = Checksums(Path(directory)) if directory is not None else None
        self._verifier: Verifier | None = None
        if self._checksums:
            self._verifier = Verifier(
                self._checksums, self._store.limit, self._chunks, self._discard
            )
            self._verifier.start()

    def __len__(self) -> int:
        return len(self._index)

    @property
    def total(self) -> int:
        """Number of steps ever added, also before a restart and since evicted."""
        return self._index.order

    def add(self, step: Step, worker: int = 0, seq: int | None = None) -> bool:
        """Append a step to the stream of a worker; when it returns, the step is safe.

        `seq` is the sequence number of the step in the worker's stream. A number up to
        the last one stored is ignored, as that step is stored; a number that leaves a
        gap starts a new segment, and no window spans the gap. Without numbers each step
        follows the one before, unless the replay was opened in between. Returns whether
        the step was new.
        """
        return self._adding.run(self._add, step, None, (worker,), (seq,)) == 1

    def add_batch(
        self,
        steps: Batch,
        workers: Sequence[int],
        seqs: Sequence[int | None] | None = None,
    ) -> int:
        """Append one step per worker; leaves of `steps` are [len(workers), ...].

        See `add`. Either all steps are stored or, if an error is raised, none. Returns
        how many were new.
        """
        count = len(workers)
        if not count:
            return 0
        seqs = [None] * count if seqs is None else seqs
        return self._adding.run(self._add, steps, count, workers, seqs)

    def sample(
        self, batch: int, mode: Mode = "train", timeout: float | None = None
    ) -> Batch:
        """Sequences [batch, length, ...] with `stepid`; waits until there are any.

        The first step of each has `is_first` set, and `is_last` is set where the next
        step has `is_first`. Fresh sequences of the online queue go to `train` only.
        """
        if batch < 1:
            raise ValueError(f"batch must be at least 1, not {batch}")
        while True:
            with self._ready:
                self._wait(timeout)
            try:
                if (drawn := self._sample(batch, mode)) is not None:
                    return drawn
            except DamagedChunkError as error:
                self._discard(error.chunk, error.reason)

    def newest(self) -> dict[int, int]:
        """The sequence number of the last step of each worker."""
        with self._lock:
            writers = list(self._index.writers.values())
            return {w.worker: w.last for w in writers if w.last is not None}

    def after(
        self,
        seqs: Mapping[int, int],
        keys: Sequence[str],
        amount: int,
        default: int = -1,
    ) -> tail.Tail:
        """The oldest `amount` steps that follow the numbers of their workers in `seqs`.

        All other workers have the number `default`. Evicted steps are left out.
        """
        with self._lock:
            stored = [(chunk, chunk.count) for chunk in self._index.chunks.values()]
        return tail.read(stored, self._store.limit, seqs, default, keys, amount)

    def update(self, data: Batch) -> None:
        """Write values back into stored steps by `stepid`; evicted steps are skipped.

        Leaves are [B, T, ...], and `priority` [B, T] is what a prioritized selector
        goes by.
        """
        if self._encoder is None:
            return
        stepid = np.asarray(data[STEPID])
        values = update_values(data, self._encoder.schema, stepid.shape[:-1])
        flat = stepid.reshape(-1, stepid.shape[-1])
        if self._checksums:
            self._checksums.exclude(values)
        written, changed = writeback.write(
            self._store, self._index.chunks, flat, values
        )
        with self._lock:
            self._counts["updates"] += written
            self._counts["update_misses"] += len(flat) - written
            self._index.reprioritize(changed)
        self._store.limit.note(writeback.around(changed))

    def stats(self) -> Metrics:
        """Sizes, and counts and waiting time since the last call."""
        with self._lock:
            stats: Metrics = {
                "items": len(self._index),
                "steps": sum(chunk.count for chunk in self._index.chunks.values()),
                "chunks": len(self._index.chunks),
                "bytes": sum(
                    chunk.header.nbytes for chunk in self._index.chunks.values()
                ),
                "streams": len(self._index.writers),
                "online_queue": len(self._index.queue),
                "skipped_files": len(self._store.skipped),
                "evictions": self._index.evictions,
                "sample_wait": self._waited,
                **self._counts,
            }
            self._counts = dict.fromkeys(COUNTERS, 0)
            self._waited = 0.0
            self._index.evictions = 0
            return stats

    def save(self) -> dict[str, Any]:
        """Counters, and the steps if they are in memory; in files they are safe."""
        return self._adding.run(self._save)

    def load(self, data: Any) -> None:
        """Restore what `save` returned. Steps in a directory were found before."""
        self._adding.run(self._load, data)

    def flush(self) -> None:
        """Wait for compression and sync to disk, safe against power loss."""
        if self._compressor:
            self._compressor.join()
        for chunk in self._chunks():
            if chunk.mapped is not None:
                chunk.mapped.sync()

    def close(self) -> None:
        """Wake blocked callers with an error, and let others open the directory."""
        self._adding.run(self._refuse)
        if self._compressor:
            self._compressor.close()
        if self._verifier:
            self._verifier.close()
        for chunk in list(self._index.chunks.values()):
            chunk.seal()
        self._reader.close()
        self._store.close()

    def verify(self, timeout: float | None = None) -> bool:
        """Wait until all steps of an earlier process were compared with checksums."""
        return self._verifier is None or self._verifier.join(timeout)

    def _sample(self, batch: int, mode: Mode) -> Batch | None:
        """Sequences, or None if damage has left no items."""
        with self._sampling:
            with self._lock:
                if not len(self._index):
                    return None
                spots = self._index.draw(self._rngs[mode], batch, fresh=mode == "train")
                self._counts["samples"] += batch
                encoder = self._encoder
            assert encoder is not None
            return self._reader.read(spots, encoder.records, self.length)

    def _chunks(self) -> list[Chunk]:
        with self._lock:
            return list(self._index.chunks.values())

    def _discard(self, chunk: Chunk, reason: str) -> None:
        """Drop a damaged chunk and report it."""

        def discard() -> None:
            with self._lock:
                known = self._index.discard(chunk)
            if known:
                self._store.set_aside(chunk, reason)

        self._adding.run(discard)  # Not between the two halves of an insert.

    def _add(
        self,
        steps: Step,
        count: int | None,
        workers: Sequence[int],
        seqs: Sequence[int | None],
    ) -> int:
        """Store new steps and count them; `count` is None for a single step."""
        if self._closed:
            raise ReplayClosedError(f"{self.name} is closed")
        encoder = self._encoder or StepEncoder(infer_schema(steps, count))
        encoded = encoder.encode(steps, count)
        placements = self._write(encoded, workers, seqs, encoder.schema)
        with self._lock:
            self._encoder = encoder
            self._counts["inserts"] += len(placements)
            self._counts["duplicates"] += len(workers) - len(placements)
            dropped = self._index.commit(placements)
            if self._waiting:
                self._ready.notify_all()
        for chunk in dropped:
            self._store.delete(chunk)
        if self._compressor:
            for x in placements:
                if x.row + 1 == x.chunk.size:
                    self._compressor.submit(x.chunk)
        return len(placements)

    def _write(
        self,
        steps: list[tuple[np.ndarray, ...]],
        workers: Sequence[int],
        seqs: Sequence[int | None],
        schema: Schema,
    ) -> list[Placement]:
        """Reserve a row for each new step, and fill it."""
        placements: list[Placement] = []
        store, horizon = self._store, self._index.horizon
        try:
            for i, worker in enumerate(workers):
                writer = self._index.writer(int(worker))
                placement = writer.place(seqs[i], store, schema, horizon)
                if placement is not None:
                    placements.append(placement)
                    _, chunk, row, _ = placement
                    with store.limit.hold(chunk):
                        chunk.write(row, steps[i])
        except BaseException:
            for writer, chunk, row, _ in reversed(placements):
                writer.undo(chunk, row, store)
            raise
        return placements

    def _save(self) -> dict[str, Any]:
        dumped = self._store.dump(self._chunks())
        return {"version": VERSION, "order": self._index.order, "chunks": dumped}

    def _load(self, data: Any) -> None:
        formats.check(f"the checkpoint of {self.name}", data["version"], VERSION)
        with self._lock:
            if data["chunks"]:
                if self._index.order:
                    raise ValueError(f"{self.name} must be empty to load into it")
                self._recover(self._store.restore(data["chunks"]))
            self._index.order = max(self._index.order, int(data["order"]))

    def _refuse(self) -> None:
        with self._ready:
            self._closed = True
            self._ready.notify_all()

    def _wait(self, timeout: float | None) -> None:
        """Wait until there are items. Needs the lock."""
        if not len(self._index) and not self._closed:
            begin = time.perf_counter()

            def ready() -> bool:
                return self._closed or len(self._index) > 0

            self._waiting += 1
            arrived = self._ready.wait_for(ready, timeout)
            self._waiting -= 1
            self._waited += time.perf_counter() - begin
            if not arrived:
                raise TimeoutError(f"no items in {self.name} after {timeout} s")
        if self._closed:
            raise ReplayClosedError(f"{self.name} is closed")

    def _recover(self, chunks: list[Chunk]) -> None:
        """Start with the chunks of an earlier replay."""
        schema = recover(self._index, self._store, chunks, self.length)
        if self._compressor:
            for chunk in self._index.chunks.values():
                if chunk.full and not chunk.packed:
                    self._compressor.submit(chunk)
        self._store.limit.note(self._index.chunks.values())
        self._encoder = StepEncoder(schema) if schema else None
