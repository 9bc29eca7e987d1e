"""Finds and restores the state that a run resumes from."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import elements

from embodied.core import base, runfiles
from embodied.core.checkpoint import (
    TREE_CODEC,
    Checkpoint,
    CheckpointError,
    complete,
    read_item,
)
from embodied.run.learner import Source
from embodied.run.settings import RunSettings


def directory(args: RunSettings, role: str = runfiles.AGENT) -> pathlib.Path:
    """Where a role keeps its checkpoints; a serial run keeps all with the agent."""
    return runfiles.checkpoints(args.logdir, role)


def meta(args: RunSettings) -> dict[str, Any]:
    """Metadata of a checkpoint: all settings that the user gave."""
    return {"config": _plain(args.config)}


def restore(
    checkpoint: Checkpoint, agent: base.Agent, replay: Source, args: RunSettings
) -> None:
    """Resume the run's own checkpoint, else start from `args.from_checkpoint`.

    Says so if steps of an earlier agent are stored whose checkpoint is missing.
    """
    if checkpoint.exists():
        checkpoint.load()
        elements.print(f"Resumed from {directory(args)}.", flush=True)
        return
    if stored := replay.total:
        text = f"There is no checkpoint in {directory(args)}, but {stored:,} steps are "
        text += "stored: a new agent learns from them. To resume the earlier one, stop "
        text += "the run and restore that directory from a copy."
        elements.print(text, color="yellow", flush=True)
    if args.from_checkpoint:
        load_agent(agent, args)
    checkpoint.save(wait=True)


def load_agent(agent: base.Agent, args: RunSettings) -> None:
    """Load the agent's parameters that match a regex from another checkpoint."""
    source = find_agent(pathlib.Path(args.from_checkpoint).expanduser())
    try:
        agent.load(read_agent(agent, source), regex=args.from_checkpoint_regex)
    except CheckpointError as error:
        text = f"run.from_checkpoint={args.from_checkpoint}: {error}"
        raise CheckpointError(text) from error
    elements.print(f"Took the agent from {source}.", flush=True)


def find_agent(path: pathlib.Path) -> pathlib.Path:
    """The checkpoints of the agent under a log directory, or under its `ckpt`."""
    candidates = (path, path / runfiles.AGENT, runfiles.checkpoints(path))
    return next((each for each in candidates if complete(each)), path)


def read_agent(agent: base.Agent, source: pathlib.Path) -> Any:
    """The agent's state in the newest complete checkpoint."""
    return read_item(source, runfiles.AGENT, getattr(agent, "codec", TREE_CODEC))


def _plain(value: Any) -> Any:
    """Settings as JSON has them; it has no infinity."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
