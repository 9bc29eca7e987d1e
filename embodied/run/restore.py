"""How a run finds the state it goes on from."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import elements

from embodied.core import base
from embodied.core.checkpoint import (
    TREE_CODEC,
    Checkpoint,
    CheckpointError,
    complete,
    read_item,
)

CHECKPOINTS, AGENT = "ckpt", "agent"


def directory(args: elements.Config, role: str = AGENT) -> pathlib.Path:
    """Where a role keeps its checkpoints; a serial run keeps all with the agent."""
    return pathlib.Path(args.logdir).expanduser() / CHECKPOINTS / role


def meta(args: elements.Config) -> dict[str, Any]:
    """What a checkpoint says of its run: all settings, or those of the loops alone."""
    values = args.config if "config" in args else args
    return {"config": _plain(dict(values))}


def restore(checkpoint: Checkpoint, agent: base.Agent, args: elements.Config) -> None:
    """Go on from the run's own checkpoint, else start from `args.from_checkpoint`."""
    if checkpoint.exists():
        checkpoint.load()
        elements.print(f"Resumed from {directory(args)}.", flush=True)
        return
    if args.from_checkpoint:
        load_agent(agent, args)
    checkpoint.save(wait=True)


def load_agent(agent: base.Agent, args: elements.Config) -> None:
    """Take the agent's parameters that match a regex from another checkpoint."""
    source = find_agent(pathlib.Path(args.from_checkpoint).expanduser())
    try:
        agent.load(read_agent(agent, source), regex=args.from_checkpoint_regex)
    except CheckpointError as error:
        text = f"run.from_checkpoint={args.from_checkpoint}: {error}"
        raise CheckpointError(text) from error
    elements.print(f"Took the agent from {source}.", flush=True)


def find_agent(path: pathlib.Path) -> pathlib.Path:
    """The checkpoints of the agent under a log directory, or under its `ckpt`."""
    candidates = (path, path / AGENT, path / CHECKPOINTS / AGENT)
    return next((each for each in candidates if complete(each)), path)


def read_agent(agent: base.Agent, source: pathlib.Path) -> Any:
    """The agent's state in the newest complete checkpoint."""
    return read_item(source, AGENT, getattr(agent, "codec", TREE_CODEC))


def _plain(value: Any) -> Any:
    """Settings as JSON has them; it has no infinity."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
