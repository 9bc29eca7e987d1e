"""Where a log directory of the public implementation keeps its newest checkpoint."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dreamerv3.public import pickles
from dreamerv3.settings import logdir
from dreamerv3.settings.config import Flat
from embodied.core import runfiles
from embodied.core.checkpoint import CheckpointError

AGENT, STEP = "agent.pkl", "step.pkl"
LATEST, DONE = "latest", "done"
# Folders with a file `latest`, relative to a log directory or to its `ckpt`. That of a
# parallel run has a folder for each role instead.
PLACES = ("ckpt", "ckpt/agent", ".", "agent")
MAX_COUNT = 2**53  # Up to here floats count exactly.
NO_COUNT = f"'updates' is no number from 0 to {MAX_COUNT}"
SHOWN = 5  # Names in a message.


class Public(NamedTuple):
    """A run of the public implementation."""

    folder: pathlib.Path  # The checkpoint that was read.
    settings: Flat
    tensors: dict[str, np.ndarray]  # By their public paths.
    updates: int
    step: int | None  # Environment steps; a parallel run keeps none with the agent.


def read(path: pathlib.Path) -> Public:
    """The newest checkpoint of a log directory, or the one in a checkpoint folder."""
    folder = find(path)
    settings = logdir.read(_settings_directory(folder))
    agent = pickles.read(folder / AGENT)
    tensors, updates = _check(agent, folder / AGENT)
    return Public(folder, settings, tensors, updates, _read_step(folder))


def find(path: pathlib.Path) -> pathlib.Path:
    """The folder of the checkpoint to read; raises if it is incomplete."""
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a directory: give a public log directory")
    folder = path if (path / AGENT).exists() else _newest(path)
    missing = [name for name in (AGENT, DONE) if not (folder / name).exists()]
    if missing:
        raise CheckpointError(
            f"{folder} is incomplete, without {' and '.join(missing)}: "
            "give the folder of another checkpoint"
        )
    return folder


def is_public(path: pathlib.Path) -> bool:
    """Whether there are checkpoints of the public implementation."""
    latest = [path / place / LATEST for place in PLACES]
    return any(file.is_file() for file in (path / AGENT, *latest))


def _newest(path: pathlib.Path) -> pathlib.Path:
    """The folder that `latest` names."""
    for directory in (path / place for place in PLACES):
        latest = directory / LATEST
        if latest.is_file():
            return directory / latest.read_text(errors="replace").strip()
    raise CheckpointError(
        f"neither {path / 'ckpt' / LATEST} nor {path / 'ckpt' / 'agent' / LATEST} "
        "exists: give the log directory of a public run with a checkpoint, or the "
        "folder of a checkpoint"
    )


def _settings_directory(folder: pathlib.Path) -> pathlib.Path:
    """The log directory of a checkpoint, which has the settings."""
    for directory in folder.absolute().parents[:3]:
        if (directory / runfiles.CONFIG).exists():
            return directory
    raise CheckpointError(
        f"there is no {runfiles.CONFIG} in the log directory of {folder}: copy that of "
        "the public run there"
    )


def _check(agent: Any, path: pathlib.Path) -> tuple[dict[str, np.ndarray], int]:
    """Tensors and number of updates; raises if either is malformed."""
    match agent:
        case {"params": dict(params), "counters": {"updates": updates}}:
            wrong = [k for k, v in params.items() if not _is_tensor(k, v)]
            if not wrong and _is_count(updates):
                return params, updates
            reason = f"{_show(wrong[0])} is no array" if wrong else NO_COUNT
        case Mapping():
            shown = ", ".join(map(_show, list(agent)[:SHOWN]))
            reason = f"it has {shown or 'nothing'}"
        case _:
            reason = f"it is a {type(agent).__name__}"
    raise CheckpointError(
        f"{path} is not an agent of the public DreamerV3, a dict with 'params' and "
        f"'counters': {reason}"
    )


def _read_step(folder: pathlib.Path) -> int | None:
    path = folder / STEP
    step = pickles.read(path) if path.exists() else None
    if step is not None and not _is_count(step):
        raise CheckpointError(f"{path} holds no number of steps from 0 to {MAX_COUNT}")
    return step


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MAX_COUNT


def _is_tensor(name: Any, value: Any) -> bool:
    """Whether this is an array by a name that can be printed."""
    named = isinstance(name, str) and name.isprintable()
    return named and isinstance(value, np.ndarray)


def _show(name: Any) -> str:
    return f"{name!r:.80}" if isinstance(name, str) else type(name).__name__
