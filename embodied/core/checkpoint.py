"""Atomic checkpoints: a directory per save, complete or not there at all.

ckpt = Checkpoint(logdir / "ckpt", {"agent": agent, "step": counter})
ckpt.load_or_save()
ckpt.save()           # Snapshot now, write in the background.
ckpt.close()          # Wait until it is on disk.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from embodied.core import base, files, treefile
from embodied.core.files import TEMPORARY

FORMAT = 1
META = "meta.json"


class CheckpointError(base.SetupError):
    """A checkpoint that cannot be used, with the reason and the remedy."""


class Codec(NamedTuple):
    """How the state of one item is stored in a directory of its own."""

    write: Callable[[pathlib.Path, Any], None]
    read: Callable[[pathlib.Path], Any]


TREE_CODEC = Codec(treefile.write, treefile.read)


class Checkpoint:
    """Saves and restores named items, each with `save() -> tree` and `load(tree)`.

    An item may have an attribute `codec` that says how its tree is stored; without one
    it is a JSON file and an array file. Never unpickles.
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        items: Mapping[str, Any],
        keep: int = 2,
        meta: Mapping[str, Any] | None = None,
        added: Collection[str] = (),
    ):
        """`added` are items that checkpoints of earlier releases lack."""
        assert keep >= 1, keep
        self._directory = pathlib.Path(directory)
        self._items = dict(items)
        self._keep = keep
        self._added = added
        self._meta = dict(meta or {})
        self._executor = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
        self._pending: concurrent.futures.Future | None = None

    def exists(self) -> bool:
        """Whether there is a complete checkpoint to load."""
        return bool(complete(self._directory))

    def save(self, wait: bool = False) -> None:
        """Snapshot every item now and write it in the background.

        Waits for the previous write first, whose error is raised here.
        """
        self.wait()
        trees = {name: item.save() for name, item in self._items.items()}
        self._pending = self._executor.submit(self._write, trees)
        if wait:
            self.wait()

    def load(self) -> None:
        """Restore every item from the newest complete checkpoint."""
        newest = self._newest()
        meta = read_meta(newest)
        missing = set(self._items) - set(meta["items"])
        if missing - set(self._added):
            raise CheckpointError(
                f"checkpoint {newest} has no {sorted(missing)}, only "
                f"{sorted(meta['items'])}: it was written by another kind of run; "
                "choose another --logdir"
            )
        for name, item in self._items.items():
            if name not in missing:
                item.load(_read(newest, name, _codec(item)))

    def load_or_save(self) -> bool:
        """Restore if there is a checkpoint, else write the first; True if restored."""
        if self.exists():
            self.load()
            return True
        self.save(wait=True)
        return False

    def wait(self) -> None:
        """Return when the last save is on disk; raise its error if it failed."""
        pending, self._pending = self._pending, None
        if pending:
            pending.result()

    def close(self) -> None:
        """Wait for the last save and end the writing thread."""
        try:
            self.wait()
        finally:
            self._executor.shutdown()

    def _newest(self) -> pathlib.Path:
        found = complete(self._directory)
        if not found:
            raise CheckpointError(f"no complete checkpoint in {self._directory}")
        return found[-1]

    def _write(self, trees: dict[str, Any]) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for leftover in self._directory.glob(f"[0-9]*{TEMPORARY}"):
            shutil.rmtree(leftover)
        previous = complete(self._directory)
        number = int(previous[-1].name) + 1 if previous else 1
        target = self._directory / f"{number:08d}"
        temporary = target.with_name(target.name + TEMPORARY)
        for name, tree in trees.items():
            (temporary / name).mkdir(parents=True)
            _codec(self._items[name]).write(temporary / name, tree)
        meta = {**self._meta, "format": FORMAT, "time": time.time()}
        meta["items"] = sorted(trees)
        (temporary / META).write_text(json.dumps(meta, indent=2) + "\n")
        files.sync_tree(temporary)
        temporary.rename(target)
        files.sync(self._directory)
        for old in complete(self._directory)[: -self._keep]:
            shutil.rmtree(old)


def complete(directory: pathlib.Path) -> list[pathlib.Path]:
    """Complete checkpoints under a directory, oldest first."""
    return sorted(d for d in directory.glob("[0-9]*") if d.suffix != TEMPORARY)


def read_meta(checkpoint: pathlib.Path) -> dict[str, Any]:
    """Metadata of a checkpoint: format, time, items and what the run added."""
    meta = json.loads((checkpoint / META).read_text())
    if meta["format"] != FORMAT:
        raise CheckpointError(
            f"checkpoint {checkpoint} has format {meta['format']}, this version reads "
            f"{FORMAT}: use the version that wrote it or choose another --logdir"
        )
    return meta


def read_item(directory: pathlib.Path, name: str, codec: Codec = TREE_CODEC) -> Any:
    """One item of the newest complete checkpoint under a directory."""
    found = complete(pathlib.Path(directory))
    if not found or not (found[-1] / name).is_dir():
        raise CheckpointError(
            f"no complete checkpoint of '{name}' in {directory}: give the log "
            "directory of a run that has saved one"
        )
    read_meta(found[-1])
    return _read(found[-1], name, codec)


def _read(checkpoint: pathlib.Path, name: str, codec: Codec) -> Any:
    """Read an item; damaged files become a `CheckpointError`.

    I/O and memory errors may be transient and are raised unchanged.
    """
    try:
        return codec.read(checkpoint / name)
    except Exception as error:
        passing = isinstance(error, OSError | MemoryError)
        if passing and not isinstance(error, FileNotFoundError):
            raise
        raise CheckpointError(
            f"{checkpoint / name} cannot be read ({type(error).__name__}: {error}): "
            f"move {checkpoint} away to take the checkpoint before it"
        ) from error


def _codec(item: Any) -> Codec:
    return getattr(item, "codec", TREE_CODEC)
