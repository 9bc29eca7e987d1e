"""The write position of a worker's stream: the next row and the next window."""

from __future__ import annotations

from typing import NamedTuple

from embodied.replay.chunk import Chunk
from embodied.replay.layout import Schema
from embodied.replay.store import ChunkStore


class Placement(NamedTuple):
    """A row that is reserved for a step."""

    writer: Writer
    chunk: Chunk
    row: int
    seq: int  # Sequence number of the step.


class Writer:
    """Appends the steps of one worker.

    A *segment* is a part of the stream without gaps; windows lie within one. Chunks
    hold steps of one segment only. `last` and all that describes the segment change
    when steps are committed; `placed` and `chunk` already when rows are reserved.
    """

    def __init__(self, worker: int):
        self.worker = worker
        self.last: int | None = None  # Sequence number of the newest step.
        self.order = 0  # When that was inserted, counted in steps of all workers.
        self.placed: int | None = None
        self.chunk: Chunk | None = None  # Where the next step goes, if it continues.
        self.resumed = False  # Nothing was added since the replay was opened.
        self.run = 0  # Steps in this segment.
        self.fresh = 0  # Steps since the last sequence of the online queue.
        self.window: tuple[Chunk, int] | None = None  # Start of the next item.

    def place(
        self,
        seq: int | None,
        store: ChunkStore,
        schema: Schema,
        horizon: int,
    ) -> Placement | None:
        """Reserve a row, or None if the step is stored already.

        A stream that was silent since `horizon` has no steps left to continue.
        """
        seq = self._following() if seq is None else int(seq)
        placed, chunk = self.placed, self.chunk
        if placed is not None and seq <= placed:
            return None
        gap = placed is None or seq != placed + 1 or self.silent(horizon)
        if gap or chunk is None or chunk.full:
            joined = not gap and chunk is not None
            previous, chunk = chunk, store.create(self.worker, seq, schema, joined)
            chunk.prev = previous
        row = chunk.place()
        self.chunk, self.placed = chunk, seq
        return Placement(self, chunk, row, seq)

    def commit(self, chunk: Chunk, row: int, seq: int, order: int) -> None:
        """The step is written: mark it as stored and count it."""
        if row == 0:
            self._enter(chunk)
        chunk.commit(row, order)
        self.last, self.order, self.resumed = seq, order, False
        self.run += 1
        self.fresh += 1

    def undo(self, chunk: Chunk, row: int, store: ChunkStore) -> None:
        """Give a reserved row back after a failure; the newest one first."""
        chunk.fill = row
        self.placed = self.last
        if row == 0:
            store.delete(chunk)
            self.chunk = chunk.prev

    def silent(self, horizon: int) -> bool:
        """Whether the newest step is that old and none is being written."""
        return self.order <= horizon and self.placed == self.last

    def next_window(self) -> tuple[Chunk, int]:
        """Take the start of the oldest window that was not taken yet."""
        assert self.window is not None
        chunk, row = window = self.window
        if row + 1 < chunk.size:
            self.window = chunk, row + 1
        else:
            chunk.pending = False
            # After a full chunk without a successor yet, `_enter` sets the start.
            self.window = (chunk.next, 0) if chunk.next else None
        return window

    def end_segment(self) -> None:
        """What follows does not continue the stored steps."""
        if self.chunk is not None:
            self.chunk.seal()
            self.chunk = None
        self._forget_windows()

    def interrupt(self, chunk: Chunk) -> None:
        """End the segment if what follows would share a window with a chunk."""
        pending = self.window[0] if self.window else self.chunk
        while pending is not None and pending is not chunk:
            pending = pending.next
        if pending is not None:
            self.end_segment()

    def _enter(self, chunk: Chunk) -> None:
        """Link a new chunk to the one before, or start a new segment with it."""
        previous = chunk.prev
        if previous is not None:
            previous.seal()
        if not chunk.header.joined:
            chunk.prev = None
            self._forget_windows()
        elif previous is not None:
            previous.next = chunk
        if self.window is None:
            self.window = chunk, 0

    def _forget_windows(self) -> None:
        """Windows that are not complete yet never will be."""
        chunk = self.window[0] if self.window else None
        while chunk is not None:
            chunk.pending = False
            chunk = chunk.next
        self.run = self.fresh = 0
        self.window = None

    def _following(self) -> int:
        """The sequence number of a step that comes without one."""
        if self.placed is None:
            return 0
        # After a restart the step may not continue the stored ones, so skip a number:
        # no window spans a gap.
        return self.placed + (2 if self.resumed and self.placed == self.last else 1)
