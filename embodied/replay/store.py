"""Where chunks live: a directory of mapped files, or plain memory."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from embodied.core import disk
from embodied.core.files import TEMPORARY
from embodied.replay import chunk as chunklib
from embodied.replay import layout, mapping
from embodied.replay.chunk import Chunk
from embodied.replay.layout import ChunkError, Schema
from embodied.replay.memory_limit import MemoryLimit

log = logging.getLogger(__name__)

SUFFIX, DAMAGED = ".chunk", ".damaged"
LOCKFILE = "lock"


class ReplayFullError(disk.DiskFullError):
    """No disk space for another chunk: the step was not stored, all others are safe."""


class ChunkStore:
    """Creates, finds and deletes chunks.

    `directory=None` keeps them in memory. `memory` bounds, in bytes, how much of the
    mapped files is resident in this process; 0 leaves it to the system.

    Nonces follow from the `seed` and the number of the first chunk that is created, so
    that runs of one seed agree but a directory that is opened again gets other ones.
    """

    def __init__(
        self,
        directory: str | os.PathLike | None,
        size: int,
        memory: int = 0,
        seed: int = 0,
    ):
        self.size = size
        self.directory = Path(directory) if directory is not None else None
        self.skipped: list[str] = []  # Files that were reported and not loaded.
        self.limit = MemoryLimit(memory if directory is not None else 0)
        self._memory = mapping.MemoryPool()
        self._unmapper = mapping.Unmapper() if self.directory else None
        self._next = 1
        self._seed = seed
        self._rng: np.random.Generator | None = None  # From the first chunk on.
        self._lockfile = self._acquire() if self.directory else None

    def create(self, worker: int, start: int, schema: Schema, joined: bool) -> Chunk:
        """A new chunk whose first step will be `start` of the worker's stream.

        It is `joined` to the previous chunk if windows may span both.
        """
        if self._rng is None:
            self._rng = np.random.default_rng([self._seed, self._next])
        nonce = int(self._rng.integers(1, 1 << 31))
        number, self._next = self._next, self._next + 1
        header = layout.plan(number, nonce, worker, start, self.size, schema, joined)
        path = self.path(number)
        if path is None or self._unmapper is None:
            return chunklib.create(header, self._memory)
        try:
            return chunklib.create_on_disk(header, path, self._unmapper)
        except OSError as error:
            if not disk.is_full(error):
                raise
            full = disk.full_error(path.parent, header.nbytes, "more steps")
            message = f"{full}, or lower replay.size"
            raise ReplayFullError(error.errno, message) from error

    def delete(self, chunk: Chunk) -> None:
        """Delete a chunk. Its memory stays valid for current readers."""
        chunk.seal()
        with chunk.lock:
            chunk.gone = True
            path = self.path(chunk.number)
            if path is not None:
                path.unlink(missing_ok=True)
        self.limit.forget(chunk)

    def load(self) -> list[Chunk]:
        """All whole chunks of the directory, by number. Others are reported."""
        if self.directory is None:
            return []
        chunks = []
        for path in sorted(self.directory.glob("*" + SUFFIX)):
            with contextlib.suppress(ValueError):
                self._next = max(self._next, int(path.stem) + 1)
            try:
                chunks.append(self._load(path))
            except (ChunkError, OSError) as error:
                self.skip(path.name, str(error))
        for path in self.directory.glob(f"*{TEMPORARY}"):
            path.unlink()  # From a crash while making a file: nothing was stored in it.
        for chunk in chunks:
            if chunk.count == 0:
                self.delete(chunk)
        return [chunk for chunk in chunks if not chunk.gone]

    def dump(self, chunks: Iterable[Chunk]) -> list[dict[str, np.ndarray]]:
        """Chunks in memory as arrays; those in files are there at all times."""
        if self.directory is not None:
            return []
        return [
            {
                "header": np.frombuffer(chunk.header.encode(), np.uint8),
                "data": chunk.buffer.copy(),
            }
            for chunk in chunks
        ]

    def restore(self, dumped: Iterable[dict[str, np.ndarray]]) -> list[Chunk]:
        """The chunks that `dump` returned."""
        chunks = []
        for data in dumped:
            header = layout.decode(np.asarray(data["header"]).tobytes())
            chunks.append(chunklib.restore(header, np.array(data["data"])))
            self._next = max(self._next, header.number + 1)
        return chunks

    def path(self, number: int) -> Path | None:
        """The file of a chunk, if there are files."""
        return self.directory and self.directory / _file_name(number)

    def skip(self, chunk: int | str, reason: str) -> None:
        """Report a skipped file, by file name or chunk number."""
        name = chunk if isinstance(chunk, str) else _file_name(chunk)
        self.skipped.append(name)
        log.warning("Skipping %s in %s: %s", name, self.directory, reason)

    def set_aside(self, chunk: Chunk, reason: str) -> None:
        """Report a damaged chunk and rename its file: it is not loaded again."""
        path = self.path(chunk.number)
        assert path is not None
        chunk.seal()
        with chunk.lock:
            chunk.gone = True
            path.rename(path.with_suffix(DAMAGED))
        self.limit.forget(chunk)
        self.skipped.append(path.name)
        text = "%s is damaged: %s. Its %s steps are dropped; the file is now %s."
        log.warning(text, path, reason, chunk.count, path.with_suffix(DAMAGED).name)

    def close(self) -> None:
        """Let another process open the directory."""
        if self._unmapper is not None:
            self._unmapper.close()
        if self._lockfile is not None:
            self._lockfile.close()
            self._lockfile = None

    def _load(self, path: Path) -> Chunk:
        assert self._unmapper is not None
        chunk = chunklib.load(path, self._unmapper)
        if path.name != _file_name(chunk.number):
            raise ChunkError(f"is chunk {chunk.number} under another name")
        return chunk

    def _acquire(self):
        """Lock the directory; the system unlocks it when the process dies."""
        assert self.directory is not None
        self.directory.mkdir(parents=True, exist_ok=True)
        file = (self.directory / LOCKFILE).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise RuntimeError(
                f"{self.directory} is in use by another replay; close that one first"
            ) from None
        return file


def _file_name(number: int) -> str:
    return f"{number:010d}{SUFFIX}"
