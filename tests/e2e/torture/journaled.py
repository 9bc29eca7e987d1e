"""The corridor, with a journal of every step on disk before anyone else sees it.

Each step has a number of its own. The agent observes it, so that the replay stores it,
but as values so small that they change nothing that it learns.
"""

from __future__ import annotations

import os
import pathlib
import secrets
import time

import elements
import numpy as np

from embodied.core import base, wrappers
from tests.learning.tasks import Corridor

SERIAL = "serial"
TASK = f"{__name__}:make"
PARTS, BITS = 4, 16  # Into which a number is split.
SCALE = 2.0**-40  # Exact in float32, and less than 1e-7 in sum.
RECORD = np.dtype(
    [
        ("serial", np.int64),  # High bits: the process; low 32: its step.
        ("time", np.float64),
        ("action", np.int32),  # That led to this step.
        ("reward", np.float32),
        ("is_first", bool),
        ("is_last", bool),
    ]
)


class Journaled(wrappers.Wrapper):
    """Writes each step to a file of its own and syncs it."""

    def __init__(self, env: base.Env, directory: str):
        super().__init__(env)
        token = secrets.randbits(30)
        self._serial = token << 32
        path = pathlib.Path(directory) / f"{token:08x}"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @property
    def obs_space(self):
        space = elements.Space(np.float32, (PARTS,), 0, SCALE * 2**BITS)
        return {**self.env.obs_space, SERIAL: space}

    def step(self, action):
        obs = self.env.step(action)
        self._serial += 1
        values = [obs[key] for key in RECORD.names[3:]]
        record = (self._serial, time.time(), int(action["action"]), *values)
        os.write(self._file, np.array(record, RECORD).tobytes())
        os.fsync(self._file)
        return {**obs, SERIAL: encode(self._serial)}

    def close(self):
        os.close(self._file)
        super().close()


def make(journal: str, seed: int = 0) -> base.Env:
    """The environment that a task names."""
    return Journaled(Corridor(seed=seed), journal)


def encode(serial: int) -> np.ndarray:
    """A number as small values."""
    parts = serial >> (BITS * np.arange(PARTS)) & (2**BITS - 1)
    return (parts * SCALE).astype(np.float32)


def decode(values: np.ndarray) -> np.ndarray:
    """Numbers [N] of values [N, PARTS]."""
    parts = (values.astype(np.float64) / SCALE).astype(np.int64)
    return (parts << (BITS * np.arange(PARTS))).sum(-1)


def read(directory: str | os.PathLike) -> np.ndarray:
    """All records by their numbers: process by process, in the order of the steps."""
    files = sorted(pathlib.Path(directory).iterdir())
    return np.sort(
        np.concatenate([np.fromfile(f, RECORD) for f in files]), order=SERIAL
    )
