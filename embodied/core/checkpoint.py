"""Atomic checkpoints: a directory per save, either complete or absent.

Each has checksums of its files. One that is damaged is reported and the one before it
is used.

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
from typing import Any, NamedTuple, TypeVar

import elements

from embodied.core import base, checksums, disk, extras, files, formats, treefile
from embodied.core.checksums import DamageError
from embodied.core.files import TEMPORARY

FORMAT = 2  # Of the directory; 1 had no checksums.
META = "meta.json"
DAMAGED = "damaged-"  # Prefix of a damaged checkpoint that a run has moved away.
Found = TypeVar("Found")


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
        self._room = disk.Room(f"next checkpoint in {self._directory}")
        self._pending: concurrent.futures.Future | None = None

    def exists(self) -> bool:
        """Whether there is a complete checkpoint to load."""
        return bool(complete(self._directory))

    def save(self, wait: bool = False) -> None:
        """Snapshot every item now and write it in the background.

        Waits for the previous write first, whose error is raised here. If that was a
        full disk, it is only reported, as this is the next attempt.
        """
        try:
            self.wait()
        except OSError as error:
            if not disk.is_full(error):
                raise
            self._room.lack(error)
        else:
            self._room.found()
        trees = {name: item.save() for name, item in self._items.items()}
        self._pending = self._executor.submit(self._write, trees)
        if wait:
            self.wait()

    def load(self) -> None:
        """Restore every item from the newest checkpoint that is not damaged.

        Damaged ones are moved away, so that they do not count as one of those kept.
        """
        used, trees = read_newest(self._directory, self._read)
        for damaged in [each for each in complete(self._directory) if each > used]:
            aside = damaged.with_name(DAMAGED + damaged.name)
            shutil.rmtree(aside, ignore_errors=True)
            damaged.rename(aside)
        for name, tree in trees.items():
            self._items[name].load(tree)

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

    def _read(self, checkpoint: pathlib.Path) -> dict[str, Any]:
        """The trees of all items."""
        stored = read_meta(checkpoint)["items"]
        missing = set(self._items) - set(stored)
        if missing - set(self._added):
            raise CheckpointError(
                f"checkpoint {checkpoint} has no {sorted(missing)}, only "
                f"{sorted(stored)}: it was written by another kind of run; choose "
                "another --logdir"
            )
        return {
            name: _read(checkpoint, name, _codec(item))
            for name, item in self._items.items()
            if name not in missing
        }

    def _write(self, trees: dict[str, Any]) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for leftover in self._directory.glob(f"[0-9]*{TEMPORARY}"):
            shutil.rmtree(leftover)
        previous = complete(self._directory)
        number = int(previous[-1].name) + 1 if previous else 1
        target = self._directory / f"{number:08d}"
        temporary = target.with_name(target.name + TEMPORARY)
        try:
            self._fill(temporary, trees)
        except Exception as error:
            needed = files.tree_size(previous[-1] if previous else temporary)
            shutil.rmtree(temporary, ignore_errors=True)  # It takes room.
            if not disk.is_full(error):
                raise
            raise disk.full_error(target, needed, "a checkpoint") from error
        temporary.rename(target)
        files.sync(self._directory)
        for old in complete(self._directory)[: -self._keep]:
            shutil.rmtree(old)

    def _fill(self, temporary: pathlib.Path, trees: dict[str, Any]) -> None:
        """Write a checkpoint under its temporary name."""
        for name, tree in trees.items():
            (temporary / name).mkdir(parents=True)
            _codec(self._items[name]).write(temporary / name, tree)
        meta = {**self._meta, "format": FORMAT, "release": extras.version()}
        meta |= {"time": time.time(), "items": sorted(trees)}
        (temporary / META).write_text(json.dumps(meta, indent=2) + "\n")
        checksums.write(temporary)
        files.sync_tree(temporary)


def complete(directory: pathlib.Path) -> list[pathlib.Path]:
    """Complete checkpoints under a directory, oldest first."""
    return sorted(d for d in directory.glob("[0-9]*") if d.suffix != TEMPORARY)


def read_newest(
    directory: pathlib.Path, read: Callable[[pathlib.Path], Found]
) -> tuple[pathlib.Path, Found]:
    """Read the newest checkpoint that is not damaged, and report those that are."""
    damage: list[DamageError] = []
    for checkpoint in reversed(complete(directory)):
        try:
            found = read(checkpoint)
        except DamageError as error:
            damage.append(error)
            continue
        for each in damage:
            text = f"{each}: using {checkpoint}, the checkpoint before it."
            elements.print(text, color="yellow", flush=True)
        return checkpoint, found
    if not damage:
        raise CheckpointError(f"no complete checkpoint in {directory}")
    raise CheckpointError(
        f"{damage[0]}, and there is no other checkpoint to use in {directory}: restore "
        "it from a copy, or remove that directory to start without what was saved there"
    )


def read_meta(checkpoint: pathlib.Path) -> dict[str, Any]:
    """Metadata of a checkpoint: format, time, items and what the run added.

    Raises `DamageError` if any of its files is not as it was written, and
    `CheckpointError` for a checkpoint of a newer release.
    """
    path, has_sums = checkpoint / META, (checkpoint / checksums.FILE).exists()
    if has_sums:
        checksums.check(checkpoint)
    try:
        meta = json.loads(path.read_text())
        writer = meta.get("release", "")
        version = formats.check(
            f"checkpoint {checkpoint}", meta["format"], FORMAT, writer
        )
        meta["items"]
    except formats.NewerFormatError as error:
        raise CheckpointError(str(error)) from None
    except (FileNotFoundError, *formats.DAMAGED) as error:
        raise _damage(path, error) from error
    if version > 1 and not has_sums:
        raise DamageError(f"{checkpoint / checksums.FILE} is missing")
    return meta


def read_item(directory: pathlib.Path, name: str, codec: Codec = TREE_CODEC) -> Any:
    """One item of the newest checkpoint under a directory that is not damaged."""
    directory = pathlib.Path(directory)
    missing = CheckpointError(
        f"no complete checkpoint of '{name}' in {directory}: give the log directory of "
        "a run that has saved one"
    )

    def read(checkpoint: pathlib.Path) -> Any:
        if name not in read_meta(checkpoint)["items"]:
            raise missing
        return _read(checkpoint, name, codec)

    if not complete(directory):
        raise missing
    return read_newest(directory, read)[1]


def _read(checkpoint: pathlib.Path, name: str, codec: Codec) -> Any:
    """Read an item; damaged files become a `DamageError`.

    I/O and memory errors may be transient and are raised unchanged.
    """
    try:
        return codec.read(checkpoint / name)
    except Exception as error:
        passing = isinstance(error, OSError | MemoryError)
        if passing and not isinstance(error, FileNotFoundError):
            raise
        raise _damage(checkpoint / name, error) from error


def _damage(path: pathlib.Path, error: Exception) -> DamageError:
    return DamageError(f"{path} cannot be read ({formats.one_line(error)})")


def _codec(item: Any) -> Codec:
    return getattr(item, "codec", TREE_CODEC)
