"""Copying recorded steps into the replay of a run that learns from them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import elements
import numpy as np

from embodied.core import base, runfiles
from embodied.core.checkpoint import complete, read_item
from embodied.core.clock import Seconds
from embodied.replay.recording import Block, Recording

BLOCK = 64  # Steps taken over between two looks at whether to stop.
TELL = 5  # Seconds between progress messages.
IMPORTER = "importer"  # Its name in checkpoints.


def imported(logdir: str | os.PathLike) -> bool:
    """Whether the run in a log directory has taken over all of its recording."""
    directory = runfiles.checkpoints(logdir)
    found = complete(directory)
    if not found or not (found[-1] / IMPORTER).is_dir():
        return False
    return bool(read_item(directory, IMPORTER)["done"])


class Importer:
    """Copies a recording into the run's replay, a few steps at a time.

    Steps keep worker and sequence number. So those that an interrupted import has
    stored already are known, and no sequence goes over a gap of the recording. Latents
    are not copied: they are zero until the learner writes them back.
    """

    def __init__(
        self, recording: Recording | None, replay: base.Replay, agent: base.Agent
    ):
        spaces = {**agent.obs_space, **agent.act_space}
        self.done = False
        self._recording = recording
        self._replay = replay
        self._keys = step_keys(spaces)
        self._latents = {
            key: np.zeros((BLOCK, *space.shape), space.dtype)
            for key, space in agent.ext_space.items()
        }
        self._blocks: Iterator[Block] | None = None
        self._due_tell = Seconds(TELL)
        self._read = self._new = 0

    def __call__(self) -> None:
        """Take over the next block; `done` is true once there is none."""
        assert self._recording is not None, "the recording is there until it is done"
        self._blocks = self._blocks or self._recording.blocks(BLOCK)
        block = next(self._blocks, None)
        if block is not None:
            self._add(block)
        self.done = block is None
        if self.done or self._due_tell():
            self._tell(self._recording)

    def save(self) -> dict[str, bool]:
        return {"done": self.done}

    def load(self, data: dict[str, bool]) -> None:
        self.done = data["done"]

    def _add(self, block: Block) -> None:
        size = len(block.seqs)
        steps = {key: block.steps[key] for key in self._keys}
        latents = {key: value[:size] for key, value in self._latents.items()}
        workers = [block.worker] * size
        self._new += self._replay.add_batch({**steps, **latents}, workers, block.seqs)
        self._read += size

    def _tell(self, recording: Recording) -> None:
        line = f"Took over {self._read:,} of {len(recording):,} recorded steps"
        if self._new < self._read:
            line += f", {self._read - self._new:,} of which were there already"
        elements.print(f"{line}.", flush=True)


def step_keys(spaces: base.Spaces) -> list[str]:
    """Keys of the spaces that every stored step has."""
    return [key for key in spaces if key != base.RESET and base.is_stored(key)]
