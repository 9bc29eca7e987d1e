"""The steps of a replay directory in order, read without opening or changing it."""

from __future__ import annotations

import collections
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from embodied.core.base import Batch
from embodied.replay import chunk as chunklib
from embodied.replay.layout import ChunkError, Schema
from embodied.replay.store import SUFFIX

log = logging.getLogger(__name__)


class Block(NamedTuple):
    """Consecutive steps of one worker."""

    worker: int
    seqs: range  # Sequence number of each step.
    steps: Batch  # Leaves are [len(seqs), ...].


class File(NamedTuple):
    """What is known of a file without its data."""

    path: Path
    worker: int
    start: int  # Sequence number of the first step.
    steps: int  # How many are there.
    schema: Schema

    @property
    def end(self) -> int:
        """Sequence number after the last step."""
        return self.start + self.steps


class Recording:
    """Everything a replay directory held when this was made.

    Takes no lock and writes nothing, so the directory may be read-only, and a replay
    that has it open may keep running: what it adds or deletes meanwhile is left out.
    """

    def __init__(self, directory: str | os.PathLike):
        self.directory = Path(directory)
        self.files = _by_stream(_scan(path) for path in _paths(self.directory))

    def __len__(self) -> int:
        """Number of steps."""
        return sum(file.steps for file in self.files)

    @property
    def streams(self) -> int:
        """Number of workers."""
        return len({file.worker for file in self.files})

    def sequences(self, length: int) -> int:
        """How many windows of `length` consecutive steps there are."""
        segments: list[int] = []
        before: File | None = None
        for file in self.files:
            joined = before and (before.worker, before.end) == (file.worker, file.start)
            if joined:
                segments[-1] += file.steps
            else:
                segments.append(file.steps)
            before = file
        return sum(max(0, steps - length + 1) for steps in segments)

    def blocks(self, size: int) -> Iterator[Block]:
        """All steps, stream by stream, in blocks of up to `size` steps."""
        for file in self.files:
            try:
                chunk = chunklib.load_readonly(file.path)
            except FileNotFoundError:
                continue  # Evicted by the replay that it belongs to.
            for row in range(0, file.steps, size):
                stop = min(row + size, file.steps)
                steps = {x.name: chunk.columns[x.name][row:stop] for x in file.schema}
                seqs = range(file.start + row, file.start + stop)
                yield Block(file.worker, seqs, steps)


def holds_steps(directory: str | os.PathLike) -> bool:
    """Whether a directory has files of a replay."""
    return bool(_paths(Path(directory)))


def _paths(directory: Path) -> list[Path]:
    return sorted(directory.glob("*" + SUFFIX))


def _scan(path: Path) -> File | None:
    try:
        chunk = chunklib.load_readonly(path)
    except FileNotFoundError:
        return None
    except (ChunkError, OSError) as error:
        log.warning("Skipping %s: %s", path, error)
        return None
    header = chunk.header
    return File(path, header.worker, header.start, chunk.count, header.schema)


def _by_stream(found: Iterator[File | None]) -> list[File]:
    """Files with steps by worker and sequence number, without repetitions."""
    streams = collections.defaultdict(list)
    for file in found:
        if file is not None and file.steps:
            streams[file.worker].append(file)
    kept: list[File] = []
    for _, stream in sorted(streams.items()):
        end: int | None = None
        for file in sorted(stream, key=_start):
            if end is not None and file.start < end:
                log.warning("Skipping %s: its steps are in another file", file.path)
                continue
            kept.append(file)
            end = file.end
    return kept


def _start(file: File) -> int:
    return file.start
