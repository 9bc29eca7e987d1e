"""Checksums of stored steps, in one file beside the chunks of a replay.

Each line is a JSON object followed by its own CRC-32. Most describe the first steps of
one chunk: a CRC-32 for each key, of the values and not of the bytes on disk, so that it
stays valid when the chunk is compressed. Keys that `update` has written to are not
covered, since their values change; a line of its own names them.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embodied.core import files, formats
from embodied.replay.chunk import Chunk
from embodied.replay.layout import ORDER

log = logging.getLogger(__name__)
FILE = "checksums.txt"
VERSION = 1


class Entry(NamedTuple):
    """Checksums of the first steps of a chunk."""

    nonce: int  # Of the chunk.
    steps: int  # That are covered.
    sums: dict[str, int]  # CRC-32 by key.


class Checksums:
    """Reads and extends the file; a chunk without an entry is not covered yet.

    A failure to write is not an error: the steps are safe without a checksum.
    """

    def __init__(self, directory: Path):
        self._path = directory / FILE
        self._lock = threading.Lock()
        self._entries: dict[int, Entry] = {}
        self._rewritten: frozenset[str] = frozenset()  # Keys that `update` wrote to.
        try:
            self._read()
        except FileNotFoundError:
            log.debug("%s has no checksums yet", directory)
        except (OSError, *formats.DAMAGED) as error:
            self._entries, reason = {}, formats.one_line(error)
            log.warning("%s is made anew: %s", self._path, reason)
            self._remove()

    def keep(self, chunks: Iterable[Chunk]) -> None:
        """Forget all chunks but these."""
        with self._lock:
            known = {chunk.number: chunk.nonce for chunk in chunks}
            kept = {k: v for k, v in self._entries.items() if known.get(k) == v.nonce}
            if len(kept) < len(self._entries):
                self._entries = kept
                self._rewrite()

    def covered(self, chunk: Chunk) -> int:
        """How many steps of a chunk have checksums."""
        entry = self._entries.get(chunk.number)
        return entry.steps if entry else 0

    def add(self, chunk: Chunk, count: int) -> None:
        """Note the checksums of the first steps of a chunk."""
        sums = compute(chunk, count, self._rewritten)
        with self._lock:
            # An update during the computation has named its keys before it wrote.
            sums = {k: v for k, v in sums.items() if k not in self._rewritten}
            self._entries[chunk.number] = Entry(chunk.nonce, count, sums)
            self._append([_chunk_line(chunk.number, self._entries[chunk.number])])

    def check(self, chunk: Chunk) -> str:
        """What is wrong with a chunk; empty if its steps are as they were."""
        entry = self._entries.get(chunk.number)
        if entry is None:
            return ""
        if chunk.count < entry.steps:  # Power was lost, or marks are damaged.
            lost, path = entry.steps - chunk.count, self._path.parent
            text = "The last %s steps of chunk %s in %s have no marks and are lost."
            log.warning(text, lost, chunk.number, path)
            del self._entries[chunk.number]
            return ""
        found = compute(chunk, entry.steps, self._rewritten)
        for key, crc in entry.sums.items():
            if found.get(key, crc) != crc and key not in self._rewritten:
                return f"values of '{key}' have changed (CRC-32)"
        return ""

    def exclude(self, keys: Collection[str]) -> None:
        """Before they are rewritten: cover these keys no longer, here or after a crash.

        The first update costs a synced write, and all later ones nothing.
        """
        if self._rewritten.issuperset(keys):
            return
        with self._lock:
            self._rewritten |= frozenset(keys)
            if not self._append([_rewritten_line(self._rewritten)], durable=True):
                self._entries = {}
                self._remove()

    def _read(self) -> None:
        content = self._path.read_bytes()
        for line in content.split(b"\n")[:-1]:  # The last line may be incomplete.
            if line:
                self._note(_parse(self._path, line))
        if not content.endswith(b"\n"):
            self._rewrite()

    def _note(self, data: dict[str, Any]) -> None:
        if "rewritten" in data:
            self._rewritten |= frozenset(data["rewritten"])
        else:
            entry = Entry(data["nonce"], data["steps"], data["sums"])
            self._entries[data["chunk"]] = entry

    def _rewrite(self) -> None:
        lines = [_chunk_line(*item) for item in self._entries.items()]
        lines.append(_rewritten_line(self._rewritten))
        try:
            files.write_bytes(self._path, b"".join(lines))
        except OSError as error:
            log.warning("Cannot write %s: %s", self._path, error)
            self._remove()

    def _append(self, lines: list[bytes], durable: bool = False) -> bool:
        """Whether the lines were written as a whole."""
        content = b"".join(lines)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            fd = os.open(self._path, flags, 0o666)
            try:
                whole = os.write(fd, content) == len(content)
                if durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:  # A full disk, which is reported by others.
            log.debug("Cannot write %s: %s", self._path, error)
            return False
        if not whole:
            self._remove()  # The next line must not continue half a line.
        return whole

    def _remove(self) -> None:
        self._path.unlink(missing_ok=True)


def compute(chunk: Chunk, count: int, without: Collection[str]) -> dict[str, int]:
    """CRC-32 by key of the first steps of a chunk."""
    with chunk.lock:  # The columns stay valid if the chunk is compressed meanwhile.
        columns = {ORDER: chunk.order, **chunk.columns}
    return {k: _crc(v[:count]) for k, v in columns.items() if k not in without}


def _crc(values: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


def _parse(path: Path, line: bytes) -> dict[str, Any]:
    text, _, crc = line.rpartition(b" ")
    if zlib.crc32(text) != int(crc, 16):
        raise ValueError(f"a line is damaged: {line[:40]!r}")
    data = json.loads(text)
    formats.check(path, data[formats.VERSION], VERSION)
    return data


def _chunk_line(number: int, entry: Entry) -> bytes:
    return _line({"chunk": number, **entry._asdict()})


def _rewritten_line(keys: Collection[str]) -> bytes:
    return _line({"rewritten": sorted(keys)})


def _line(data: dict[str, Any]) -> bytes:
    text = json.dumps({formats.VERSION: VERSION, **data}).encode()
    return b"%s %08x\n" % (text, zlib.crc32(text))
