"""A log of the calls since the last checkpoint, replayed after a crash.

The file begins with a record of its version; those of release 0.1 do not.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import Any, NamedTuple

import elements
import msgpack

from embodied.core import disk, formats
from embodied.rpc import encoding, errors

VERSION = 1
HEADER = "journal"  # The first record is this name and the version.
FORMER = ".old"  # Suffix of the entries that the last checkpoint contains.

# Errors of reading a corrupt entry.
BROKEN = (TypeError, ValueError, msgpack.UnpackException, errors.DecodeError)


class Entry(NamedTuple):
    """One call, in the order of their numbers."""

    number: int
    method: str
    payload: Any


class Journal:
    """Appends calls to a file; once `append` returns, they survive a kill.

    `entries` are those since the last checkpoint, `former` those between it and the one
    before, from which a process resumes if the last one is damaged.
    """

    def __init__(self, path: str | os.PathLike):
        self._path = pathlib.Path(path)
        self._former = self._path.with_name(self._path.name + FORMER)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.former = _recover(self._former)
        self.entries = _recover(self._path)  # Of the process before this one.
        known = [*self.former, *self.entries]
        self.number = known[-1].number if known else 0
        self._file = self._path.open("ab", buffering=0)
        self._size = self._path.stat().st_size  # Before the last entry.

    def append(self, method: str, payload: Any) -> None:
        """Append one call, or raise and leave the file as it was."""
        body, frames = encoding.encode(payload)
        record = (self.number + 1, method, body, [bytes(frame) for frame in frames])
        packed = msgpack.packb(record)
        self._size = os.fstat(self._file.fileno()).st_size
        if not self._size:
            packed = msgpack.packb((HEADER, VERSION)) + packed
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
        """Begin anew, since a checkpoint contains all entries; numbers continue."""
        with contextlib.suppress(FileNotFoundError):  # The last time failed half-way.
            os.replace(self._path, self._former)
        file, self._file = self._file, self._path.open("ab", buffering=0)
        file.close()

    def close(self) -> None:
        self._file.close()


def _recover(path: pathlib.Path) -> list[Entry]:
    """The entries of a file, which is made if missing; cuts off what is none.

    A torn entry at the end was never answered.
    """
    path.touch()
    entries, size = _read(path)
    if cut := path.stat().st_size - size:
        os.truncate(path, size)
        text = f"Cut {cut:,} bytes off {path} that are no complete entry: what they"
        text += " noted, if anything, is sent again or missing in the metrics."
        elements.print(text, color="yellow", flush=True)
    return entries


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
                record = next(unpacker)
                if record[:1] == (HEADER,) and not size:
                    formats.check(path, record[1], VERSION)
                    size = unpacker.tell()
                    continue
                entry = _parse(record)
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
