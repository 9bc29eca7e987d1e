"""Writes videos, images and texts as plain files."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Sequence

from embodied.core import files, runfiles
from embodied.metrics import video
from embodied.metrics.summary import Summary, kind


class MediaOutput:
    """Writes `media/KEY/STEP.mp4`, `.png` or `.txt`; slashes in keys make folders.

    A file appears under its name only once it is complete.
    """

    def __init__(self, logdir: str | os.PathLike, fps: int = 15):
        self._root = pathlib.Path(logdir) / runfiles.MEDIA
        self._fps = fps

    def __call__(self, summaries: Sequence[Summary]) -> None:
        for step, name, value in summaries:
            match kind(name, value):
                case "text":
                    self._write(name, f"{step:012d}.txt", value.encode())
                case "image":
                    content = video.encode_png(video.to_pixels(value))
                    self._write(name, f"{step:012d}.png", content)
                case "video":
                    content = video.encode_mp4(video.to_pixels(value), self._fps)
                    self._write(name, f"{step:012d}.mp4", content)

    def _write(self, name: str, filename: str, content: bytes) -> None:
        files.write_bytes(self._root.joinpath(*folders(name), filename), content)


def folders(name: str) -> list[str]:
    """Folder names for a metric; what a file system may not take becomes `_`."""
    parts = [re.sub(r"[^\w.=+-]|^\.", "_", part) for part in name.split("/")]
    return [part for part in parts if part]
