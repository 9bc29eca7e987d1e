"""Follows a file of JSON lines that somebody else appends to, reading nothing twice."""

from __future__ import annotations

import os
import pathlib
from typing import Any

MARK = 64  # Bytes before the position by which a changed file is recognised.


class Tail:
    """Hands out the complete lines appended since the last call.

    A last line without its end is left for later. When what was read is no longer
    there (a restarted logger takes back what it wrote since its checkpoint), `changed`
    is true and the caller starts over with a new tail.
    """

    def __init__(self, path: pathlib.Path, offset: int = 0, mark: bytes = b""):
        self.path = path
        self.offset = offset
        self._mark = mark

    def state(self) -> dict[str, Any]:
        """What `resume` needs."""
        return {"offset": self.offset, "mark": self._mark.hex()}

    @classmethod
    def resume(cls, path: pathlib.Path, state: dict[str, Any]) -> Tail:
        """A tail that goes on where another one was."""
        return cls(path, int(state["offset"]), bytes.fromhex(state["mark"]))

    def pending(self) -> int:
        """Bytes that were appended and not read."""
        try:
            return max(0, os.stat(self.path).st_size - self.offset)
        except OSError:
            return 0

    def changed(self) -> bool:
        """Whether the file no longer begins with what was read."""
        if not self.offset:
            return False
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset - len(self._mark))
                return file.read(len(self._mark)) != self._mark
        except OSError:
            return True

    def read(self, limit: int = 1 << 22) -> list[bytes]:
        """Some complete lines; more than `limit` bytes only if one line is longer."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                block = file.read(limit)
                end = block.rfind(b"\n") + 1
                while not end and len(block) >= limit:
                    more = file.read(limit)
                    if not more:
                        break
                    block += more
                    end = block.rfind(b"\n") + 1
        except OSError:
            return []
        if end:
            self.offset += end
            self._mark = (self._mark + block[:end])[-MARK:]
        return block[:end].splitlines()
