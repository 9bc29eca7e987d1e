"""State trees on disk through Orbax: arrays only, nothing is unpickled.

A tree is stored as one Orbax checkpoint of its arrays and one JSON file of the rest.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp  # type: ignore[import-untyped]

from embodied.core import treefile

ARRAYS, PLAIN = "arrays", "plain.json"


def write(directory: str | pathlib.Path, tree: Any) -> None:
    """Write a tree of numpy arrays and plain values into a new or empty directory."""
    path = pathlib.Path(directory).absolute()
    path.mkdir(parents=True, exist_ok=True)
    plain, arrays = treefile.split(tree)
    (path / PLAIN).write_text(json.dumps(plain))
    if arrays:
        options = _alone()
        handler = ocp.StandardCheckpointHandler(multiprocessing_options=options)
        with ocp.Checkpointer(handler, multiprocessing_options=options) as writer:
            writer.save(path / ARRAYS, args=ocp.args.StandardSave(arrays))


def read(directory: str | pathlib.Path) -> Any:
    """The tree that was written, with numpy arrays."""
    path = pathlib.Path(directory).absolute()
    plain = json.loads((path / PLAIN).read_text())
    arrays: dict[str, Any] = {}
    if (path / ARRAYS).exists():
        options = _alone()
        handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=options)
        with ocp.Checkpointer(handler, multiprocessing_options=options) as reader:
            names = reader.metadata(path / ARRAYS).item_metadata.tree
            kinds = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
            arrays = reader.restore(path / ARRAYS, restore_args=kinds)
    return treefile.join(plain, arrays)


def _alone() -> Any:
    """Options by which this process waits for no other one of its JAX program."""
    own = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"host{own}"
    )
