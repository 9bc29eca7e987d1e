"""The growing end of a worker's stream: which row is next, which window is next."""

from __future__ import annotations

from typing import NamedTuple

from embodied.replay.chunk import Chunk
from embodied.replay.layout import Schema
from embodied.replay.store import ChunkStore


class Placement(NamedTuple):
    """A row that a step is about to be written to."""

    writer: Writer
    chunk: Chunk
    row: int
    seq: int  # Sequence number of the step.
    which: int  # Which step of the batch.
    gap: bool  # Whether it does not continue the step before.
    previous: Chunk | None  # Where the writer was before.


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
        which: int,
        store: ChunkStore,
        schema: Schema,
        horizon: int,
    ) -> Placement | None:
        """Reserve a row, or None if the step is there already.

        A stream that was silent since `horizon` has no steps left to continue.
        """
        if seq is None:
            seq = self._following()
        if self.placed is not None and seq <= self.placed:
            return None
        gap = self.chunk is None or self.placed is None or seq != self.placed + 1
        gap |= self.silent(horizon)
        chunk = previous = self.chunk
        if gap or chunk is None or chunk.full:
            chunk = store.create(self.worker, seq, schema, joined=not gap)
        row = chunk.place()
        self.chunk, self.placed = chunk, seq
        return Placement(self, chunk, row, seq, which, gap, previous)

    def commit(self, placement: Placement, order: int) -> None:
        """The step is written: mark it as there and count it."""
        chunk = placement.chunk
        if placement.row == 0:
            self._enter(placement)
        chunk.commit(placement.row, order)
        self.last, self.order, self.resumed = placement.seq, order, False
        self.run += 1
        self.fresh += 1

    def silent(self, horizon: int) -> bool:
        """Whether the newest step is that old and none is being written."""
        return self.order <= horizon and self.placed == self.last

    def next_window(self) -> tuple[Chunk, int]:
        """Take the start of the oldest window that was not taken yet."""
        assert self.window is not None
        chunk, row = self.window
        if row + 1 < chunk.size:
            self.window = chunk, row + 1
        else:
            chunk.pending = False
            # After a full chunk without a successor yet, `_enter` sets the start.
            self.window = (chunk.next, 0) if chunk.next else None
        return chunk, row

    def end_segment(self) -> None:
        """What comes next does not continue what is there."""
        if self.chunk is not None:
            self.chunk.seal()
            self.chunk = None
        self._forget_windows()

    def _enter(self, placement: Placement) -> None:
        """Link a new chunk to the one before, or start a new segment with it."""
        chunk, previous = placement.chunk, placement.previous
        if previous is not None:
            previous.seal()
        if placement.gap:
            self._forget_windows()
        elif previous is not None:
            previous.next, chunk.prev = chunk, previous
        if self.window is None:
            self.window = chunk, 0

    def _forget_windows(self) -> None:
        """The windows that are not complete yet never will be."""
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
        # We cannot know whether it continues what was stored before a restart, so
        # leave out a number: no window goes over a gap.
        return self.placed + (2 if self.resumed and self.placed == self.last else 1)


def undo(placements: list[Placement], store: ChunkStore) -> None:
    """Give reserved rows back after a failure, newest first."""
    for placement in reversed(placements):
        writer, chunk = placement.writer, placement.chunk
        chunk.fill = placement.row
        writer.placed = writer.last
        if placement.row == 0:
            store.delete(chunk)
            writer.chunk = placement.previous
