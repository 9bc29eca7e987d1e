"""State trees on disk through Orbax: arrays only, nothing is unpickled.

Any tree of dictionaries, lists, arrays and plain values is stored as one Orbax
checkpoint of its arrays and one JSON file of everything else.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp  # type: ignore[import-untyped]

ARRAYS, PLAIN = "arrays", "plain.json"
LEAF = "__array__"  # Marks the place of an array in the JSON file.
Tree = Any


class Writer:
    """Writes trees in the background; `wait` returns once they are on disk."""

    def __init__(self) -> None:
        self.checkpointer = ocp.AsyncCheckpointer(
            ocp.StandardCheckpointHandler(), multiprocessing_options=_alone()
        )

    def write(self, directory: str | pathlib.Path, tree: Tree) -> None:
        """Start writing a tree into a new or empty directory."""
        path = pathlib.Path(directory).absolute()
        path.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, np.ndarray] = {}
        plain = _split(tree, arrays)
        (path / PLAIN).write_text(json.dumps(plain))
        if arrays:
            args = ocp.args.StandardSave(arrays)
            self.checkpointer.save(path / ARRAYS, args=args)

    def wait(self) -> None:
        """Block until everything is written; raises what went wrong."""
        self.checkpointer.wait_until_finished()

    def close(self) -> None:
        """Finish and release the threads."""
        self.checkpointer.close()


def write(directory: str | pathlib.Path, tree: Tree) -> None:
    """Write a tree and wait for it."""
    writer = Writer()
    try:
        writer.write(directory, tree)
        writer.wait()
    finally:
        writer.close()


def read(directory: str | pathlib.Path) -> Tree:
    """The tree that was written, with numpy arrays."""
    path = pathlib.Path(directory).absolute()
    plain = json.loads((path / PLAIN).read_text())
    arrays: dict[str, Any] = {}
    if (path / ARRAYS).exists():
        handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=_alone())
        with ocp.Checkpointer(handler, multiprocessing_options=_alone()) as reader:
            count = len(reader.metadata(path / ARRAYS).item_metadata.tree)
            names = [str(i) for i in range(count)]
            kinds = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
            arrays = reader.restore(path / ARRAYS, restore_args=kinds)
    return _join(plain, arrays)


def _alone() -> Any:
    """Options by which this process waits for no other one of its JAX program."""
    own = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"host{own}"
    )


def _split(tree: Tree, arrays: dict[str, np.ndarray]) -> Any:
    """Move arrays into `arrays`, leaving their number in a JSON-like tree."""
    if isinstance(tree, dict):
        bad = [key for key in tree if not isinstance(key, str) or key == LEAF]
        if bad:
            raise TypeError(f"Keys must be strings, got {bad}.")
        return {key: _split(value, arrays) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_split(value, arrays) for value in tree]
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    if hasattr(tree, "dtype") and hasattr(tree, "shape"):
        name = str(len(arrays))
        arrays[name] = np.asarray(tree)
        return {LEAF: name}
    raise TypeError(f"Cannot store a {type(tree).__name__}.")


def _join(plain: Any, arrays: dict[str, Any]) -> Tree:
    if isinstance(plain, dict):
        if LEAF in plain:
            return np.asarray(arrays[plain[LEAF]])
        return {key: _join(value, arrays) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_join(value, arrays) for value in plain]
    return plain
