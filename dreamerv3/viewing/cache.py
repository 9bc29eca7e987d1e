"""Keeps the columns of a run in one file, from which they are mapped, not read."""

from __future__ import annotations

import json
import mmap
import os
import pathlib
import time
from typing import Any

import numpy as np

from dreamerv3.viewing.table import Column, Growable, Table
from dreamerv3.viewing.tail import Tail
from embodied.core import files, formats

VERSION = 2
MAGIC = b"dreamerv3 view\n\0"
ALIGN = 8
KEEP = 30 * 24 * 3600  # Seconds after which an unused file is deleted.


def directory() -> pathlib.Path:
    """`$XDG_CACHE_HOME/dreamerv3/view`, by default below `~/.cache`."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(root) / "dreamerv3" / "view"


def save(path: pathlib.Path, tables: dict[str, tuple[Tail, Table]]) -> None:
    """Write all columns; a reader sees the old file or the whole new one."""
    arrays: list[np.ndarray] = []
    meta = {
        name: {
            "tail": tail.state(),
            "bad": table.bad,
            "problem": table.problem,
            "count": table.count,
            "rows": [_place(arrays, a.view()) for a in (table.steps, table.times)],
            "columns": {
                key: {
                    k: _place(arrays, part.view()) for k, part in column.parts.items()
                }
                for key, column in table.columns.items()
            },
        }
        for name, (tail, table) in tables.items()
    }
    text = json.dumps({"version": VERSION, "tables": meta}).encode()
    with files.replace(path) as file:
        file.write(MAGIC + len(text).to_bytes(8, "little") + text)
        file.write(bytes(-file.tell() % ALIGN))
        for array in arrays:
            file.write(array.tobytes() + bytes(-array.nbytes % ALIGN))


def _place(arrays: list[np.ndarray], array: np.ndarray) -> int:
    """Put an array behind the others; returns its length."""
    arrays.append(array)
    return len(array)


def load(
    path: pathlib.Path, files: dict[str, pathlib.Path]
) -> dict[str, tuple[Tail, Table]] | None:
    """Tables as they were saved, or nothing if there is no file of this version."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        os.utime(path)
        return _parse(data, files)
    except (OSError, IndexError, MemoryError, OverflowError, *formats.DAMAGED):
        return None  # It is made again from the run's own files.


def _parse(data: mmap.mmap, files: dict[str, pathlib.Path]) -> Any:
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError("no cache file")
    begin = len(MAGIC) + 8
    size = int.from_bytes(data[len(MAGIC) : begin], "little")
    meta = json.loads(data[begin : begin + size])
    if meta["version"] != VERSION:
        raise ValueError("other version")
    position = begin + size + -(begin + size) % ALIGN
    arrays = _Arrays(data, position)
    result = {}
    for name, file in files.items():
        saved, table = meta["tables"][name], Table()
        for part, length in zip(("steps", "times"), saved["rows"], strict=True):
            setattr(table, part, Growable("<f8", arrays.next("<f8", length)))
        for key, column in saved["columns"].items():
            parts = {k: arrays.next(Column.DTYPES[k], n) for k, n in column.items()}
            table.columns[key] = Column(parts)
        table.bad, table.count = saved["bad"], saved["count"]
        table.problem = saved["problem"]
        result[name] = Tail.resume(file, saved["tail"]), table
    return result


class _Arrays:
    """The arrays of a file, one after the other."""

    def __init__(self, data: mmap.mmap, position: int):
        self._data = data
        self._position = position

    def next(self, dtype: str, length: int) -> np.ndarray:
        array = np.frombuffer(self._data, dtype, length, self._position)
        self._position += array.nbytes + -array.nbytes % ALIGN
        return array


def forget_unused(root: pathlib.Path) -> None:
    """Delete files that no viewer opened for a month."""
    limit = time.time() - KEEP
    for path in root.glob("*"):
        if path.stat().st_mtime < limit:
            path.unlink(missing_ok=True)
