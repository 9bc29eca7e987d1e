"""What came in since the last checkpoint, so that a killed process can do it again."""

from __future__ import annotations

import os
import pathlib
from typing import Any, NamedTuple

import msgpack

from embodied.core import disk
from embodied.rpc import encoding, errors

# What reading bytes that are no entry raises.
BROKEN = (TypeError, ValueError, msgpack.UnpackException, errors.DecodeError)


class Entry(NamedTuple):
    """One call, in the order of their numbers."""

    number: int
    method: str
    payload: Any


class Journal:
    """Appends calls to a file; one that `append` returned from survives the process."""

    def __init__(self, path: str | os.PathLike):
        self._path = pathlib.Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.touch()
        self.entries, size = _read(self._path)  # Of the process before this one.
        os.truncate(self._path, size)  # A torn entry at the end was never answered.
        self.number = self.entries[-1].number if self.entries else 0
        self._file = self._path.open("ab", buffering=0)
        self._size = size  # Before the last entry that was appended.

    def append(self, method: str, payload: Any) -> None:
        """Write one call down, or raise and leave the file as it was."""
        body, frames = encoding.encode(payload)
        record = (self.number + 1, method, body, [bytes(frame) for frame in frames])
        packed = msgpack.packb(record)
        self._size = os.fstat(self._file.fileno()).st_size
        written = 0
        try:
            written = self._file.write(packed)
        except OSError as error:
            if not disk.is_full(error):
                raise
        if written != len(packed):
            self._file.truncate(self._size)
            raise disk.full_error(self._path.parent, len(packed), "metrics")
        self.number += 1

    def undo(self) -> None:
        """Remove the entry that was appended last."""
        self._file.truncate(self._size)
        self.number -= 1

    def clear(self) -> None:
        """Forget all entries, since a checkpoint contains them; numbers continue."""
        self._file.truncate(0)

    def close(self) -> None:
        self._file.close()


def _read(path: pathlib.Path) -> tuple[list[Entry], int]:
    """All complete entries up to the first broken one, and the bytes they take.

    A kill tears the last entry. After a power cut the end of the file may as well be
    zeros, or hold blocks that never reached the disk.
    """
    entries: list[Entry] = []
    size = 0
    with path.open("rb") as file:
        unpacker = msgpack.Unpacker(file, max_buffer_size=0, use_list=False)
        while True:
            try:
                entry = _parse(next(unpacker))
            except (StopIteration, *BROKEN):
                return entries, size
            if entries and entry.number <= entries[-1].number:
                return entries, size
            entries.append(entry)
            size = unpacker.tell()


def _parse(record: Any) -> Entry:
    number, method, body, frames = record  # A zero byte is the number 0: no record.
    if not isinstance(number, int) or not isinstance(method, str):
        raise ValueError(f"not an entry but {type(number)}, {type(method)}")
    return Entry(number, method, encoding.decode(body, frames))
