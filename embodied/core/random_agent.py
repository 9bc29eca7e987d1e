"""The agent that acts uniformly at random and learns nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from embodied.core import base


class RandomAgent(base.Agent):
    """Draws every action uniformly from its space; a baseline and a stand-in."""

    learns = False

    def __init__(self, obs_space: base.Spaces, act_space: base.Spaces, seed: int = 0):
        self.obs_space, self.act_space = obs_space, act_space
        self._rng = np.random.default_rng(seed)

    def init_policy(self, batch_size: int) -> tuple:
        return ()

    def init_train(self, batch_size: int) -> tuple:
        return ()

    def init_report(self, batch_size: int) -> tuple:
        return ()

    def policy(
        self, carry: base.Carry, obs: base.Batch, mode: base.Mode = "train"
    ) -> tuple[base.Carry, base.Batch, base.Batch]:
        batch_size = len(obs[base.IS_FIRST])
        return carry, self._draw(batch_size), {}

    def train(
        self, carry: base.Carry, data: base.Batch
    ) -> tuple[base.Carry, base.Batch, base.Metrics]:
        return carry, {}, {}

    def report(
        self, carry: base.Carry, data: base.Batch
    ) -> tuple[base.Carry, base.Metrics]:
        return carry, {}

    def save(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def load(self, data: dict[str, Any], regex: str | None = None) -> None:
        self._rng.bit_generator.state = data["rng"]

    def _draw(self, batch_size: int) -> base.Batch:
        return {
            key: draw(self._rng, space, batch_size)
            for key, space in self.act_space.items()
            if key != base.RESET
        }


def draw(rng: np.random.Generator, space: base.Space, batch_size: int) -> np.ndarray:
    """Uniform samples [batch_size, *space.shape]; unbounded ends count as +-1."""
    shape = (batch_size, *space.shape)
    if space.discrete:
        low = np.asarray(space.low, np.int64)
        return rng.integers(low, low + space.classes, shape).astype(space.dtype)
    low = np.where(np.isfinite(space.low), space.low, -1)
    high = np.where(np.isfinite(space.high), space.high, 1)
    return rng.uniform(low, high, shape).astype(space.dtype)
