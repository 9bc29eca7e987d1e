"""Follows a file of JSON lines that another process appends to."""

from __future__ import annotations

import os
import pathlib
import stat
from typing import Any, BinaryIO

from embodied.core import files

MARK = 64  # Bytes before the position by which a changed file is recognised.
LONGEST = 1 << 20  # Bytes of a line; longer ones are skipped.


class Tail:
    """Hands out the complete lines appended since the last call.

    A last line without its end is left for later, unless it is too long: then its
    bytes are skipped and counted, so that no file makes a reader hold much of it. When
    what was read is no longer there (a restarted logger truncates it to its
    checkpoint), `changed` is true and the caller starts over with a new tail.
    """

    def __init__(self, path: pathlib.Path, offset: int = 0, mark: bytes = b""):
        self.path = path
        self.offset = offset
        self.skipped = 0  # Lines that were too long.
        self.error = ""  # Why the file cannot be read; a missing one is no error.
        self._mark = mark
        self._skipping = False  # Whether the rest of a line is to be skipped.

    def state(self) -> dict[str, Any]:
        """What `resume` needs."""
        return {
            "offset": self.offset,
            "mark": self._mark.hex(),
            "skipped": self.skipped,
            "skipping": self._skipping,
        }

    @classmethod
    def resume(cls, path: pathlib.Path, state: dict[str, Any]) -> Tail:
        """A tail that continues from the state of another one."""
        tail = cls(path, int(state["offset"]), bytes.fromhex(state["mark"]))
        tail.skipped, tail._skipping = int(state["skipped"]), bool(state["skipping"])
        return tail

    def usable(self) -> bool:
        """Whether there is a file to read from."""
        try:
            return stat.S_ISREG(os.stat(self.path).st_mode)
        except OSError:
            return False

    def pending(self) -> int:
        """Bytes that were appended and not read."""
        try:
            size = os.stat(self.path).st_size
        except OSError:
            return 0
        return 0 if self.error else max(0, size - self.offset)

    def changed(self) -> bool:
        """Whether the file no longer begins with what was read."""
        if not self.offset:
            return False
        try:
            with files.open_regular(self.path) as file:
                file.seek(self.offset - len(self._mark))
                return file.read(len(self._mark)) != self._mark
        except OSError:
            return True

    def read(self, limit: int = 1 << 22) -> list[bytes]:
        """Some complete lines; more than `limit` bytes only if one line is longer."""
        try:
            with files.open_regular(self.path) as file:
                file.seek(self.offset)
                block = self._block(file, limit)
            self.error = ""
        except FileNotFoundError:
            self.error = ""
            return []
        except OSError as error:
            self.error = error.strerror or str(error)
            return []
        return self._take(block)

    def _block(self, file: BinaryIO, limit: int) -> bytes:
        """At least one line, or as much of it as is there and may be read."""
        block = more = file.read(limit)
        while more and b"\n" not in block and len(block) <= LONGEST:
            more = file.read(limit)
            block += more
        return block

    def _take(self, block: bytes) -> list[bytes]:
        """Advance to the end of the block's last line, or beyond an endless one."""
        end = block.rfind(b"\n") + 1
        rest = self._skipping
        if rest or (not end and len(block) > LONGEST):
            self.skipped += not rest
            self._skipping = not end
            end = end or len(block)
        if end:
            self.offset += end
            self._mark = (self._mark + block[:end])[-MARK:]
        if self._skipping:
            return []
        lines = block[:end].splitlines()[rest:]
        kept = [line for line in lines if len(line) <= LONGEST]
        self.skipped += len(lines) - len(kept)
        return kept
