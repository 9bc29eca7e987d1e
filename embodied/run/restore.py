"""How a run finds the state it goes on from."""

from __future__ import annotations

import pathlib

import elements

from embodied.core import base
from embodied.core.checkpoint import TREE_CODEC, Checkpoint, read_item


def directory(args: elements.Config) -> pathlib.Path:
    """Where a serial run keeps its checkpoints."""
    return pathlib.Path(args.logdir).expanduser() / "ckpt"


def restore(checkpoint: Checkpoint, agent: base.Agent, args: elements.Config) -> bool:
    """Go on from the run's own checkpoint, else start from `args.from_checkpoint`."""
    if checkpoint.exists():
        checkpoint.load()
        elements.print(f"Resumed from {directory(args)}.", flush=True)
        return True
    if args.from_checkpoint:
        load_agent(agent, args)
    checkpoint.save(wait=True)
    return False


def load_agent(agent: base.Agent, args: elements.Config) -> None:
    """Take the agent's parameters that match a regex from another checkpoint."""
    codec = getattr(agent, "codec", TREE_CODEC)
    source = pathlib.Path(args.from_checkpoint).expanduser()
    agent.load(read_item(source, "agent", codec), regex=args.from_checkpoint_regex)
    elements.print(f"Took the agent from {source}.", flush=True)
