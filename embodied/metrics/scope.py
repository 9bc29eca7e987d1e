"""Files that the Scope viewer shows, written without its package.

Below `LOGDIR/scope`, with slashes in keys as dashes: numbers are records of step and
value in `KEY.float`; texts, images and videos are files in a folder such as `KEY.mp4`,
each with a record of step and id in that folder's `index`.
"""

from __future__ import annotations

import os
import pathlib
import struct
import time
from collections.abc import Sequence

import numpy as np

from embodied.metrics import video
from embodied.metrics.summary import Summary, kind

NUMBER = struct.Struct(">qd")  # Step and value of a `.float` file.
ENTRY = struct.Struct("<q8s")  # Step and id of an `index`.


class ScopeOutput:
    """Appends numbers, texts, images and videos; histograms are left out."""

    def __init__(self, logdir: str | os.PathLike, fps: int = 15):
        self._root = pathlib.Path(logdir) / "scope"
        self._root.mkdir(parents=True, exist_ok=True)
        self._fps = fps
        for path in self._tables():
            os.truncate(path, path.stat().st_size // 16 * 16)  # Torn by a kill.

    def __call__(self, summaries: Sequence[Summary]) -> None:
        numbers: dict[str, bytes] = {}
        for step, name, value in summaries:
            match kind(name, value):
                case "scalar":
                    record = NUMBER.pack(step, np.asarray(value).item())
                    numbers[name] = numbers.get(name, b"") + record
                case "text":
                    self._file(step, name, "txt", value.encode())
                case "image":
                    content = video.encode_png(video.to_pixels(value))
                    self._file(step, name, "png", content)
                case "video":
                    content = video.encode_mp4(video.to_pixels(value), self._fps)
                    self._file(step, name, "mp4", content)
        for name, records in numbers.items():
            _append(self._root / f"{_column(name)}.float", records)

    def save(self) -> dict[str, int]:
        """How much was written."""
        return {
            str(p.relative_to(self._root)): p.stat().st_size for p in self._tables()
        }

    def load(self, data: dict[str, int]) -> None:
        """Truncate to what was written at `save`; unindexed files are not shown."""
        for path in self._tables():
            written = data.get(str(path.relative_to(self._root)), 0)
            os.truncate(path, min(written, path.stat().st_size))  # Never add zeros.

    def _tables(self) -> list[pathlib.Path]:
        return [*self._root.glob("*.float"), *self._root.glob("*/index")]

    def _file(self, step: int, name: str, ending: str, content: bytes) -> None:
        folder = self._root / f"{_column(name)}.{ending}"
        folder.mkdir(exist_ok=True)
        unique = struct.pack(">L", int(time.time()) & 0xFFFFFFFF) + os.urandom(4)
        (folder / f"{step:020d}-{unique.hex()}.{ending}").write_bytes(content)
        _append(folder / "index", ENTRY.pack(step, unique))


def _column(name: str) -> str:
    return name.strip("/").replace("/", "-")


def _append(path: pathlib.Path, records: bytes) -> None:
    with path.open("ab") as file:
        file.write(records)
