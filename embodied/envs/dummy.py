"""An environment with every kind of observation and action, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from embodied.core import base


class Dummy(base.Env):
    """Counts its steps and ends after `length` of them; nothing can be learned.

    Task `disc` takes a discrete action, `cont` a continuous one and `both` the two.
    """

    TASKS = ("disc", "cont", "both")

    def __init__(
        self,
        task: str = "both",
        size: tuple[int, int] = (64, 64),
        length: int = 100,
        seed: int = 0,
    ):
        assert task in self.TASKS, task
        self._task = task
        self._size = tuple(size)
        self._length = length
        self._rng = np.random.default_rng(seed)
        self._count = 0
        self._done = True

    @property
    def obs_space(self) -> base.Spaces:
        return {
            "image": elements.Space(np.uint8, (*self._size, 3)),
            "vector": elements.Space(np.float32, (7,)),
            "token": elements.Space(np.int32, (), 0, 256),
            "count": elements.Space(np.float32, (), 0, self._length),
            "float2d": elements.Space(np.float32, (4, 5)),
            "int2d": elements.Space(np.int32, (2, 3), 0, 4),
            **base.special_spaces(),
        }

    @property
    def act_space(self) -> base.Spaces:
        spaces = {base.RESET: elements.Space(bool)}
        if self._task in ("disc", "both"):
            spaces["act_disc"] = elements.Space(np.int32, (), 0, 5)
        if self._task in ("cont", "both"):
            spaces["act_cont"] = elements.Space(np.float32, (6,), -1, 1)
        return spaces

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action[base.RESET] or self._done:
            self._count, self._done = 0, False
            return self._obs(0.0, is_first=True)
        reward = float(action.get("act_disc", 0) == self._count % 5)
        self._count += 1
        self._done = self._count >= self._length
        return self._obs(reward)

    def render(self) -> np.ndarray:
        return np.full((*self._size, 3), self._count % 256, np.uint8)

    def _obs(self, reward: float, is_first: bool = False) -> dict[str, Any]:
        return {
            "image": self.render(),
            "vector": self._rng.standard_normal(7, np.float32),
            "token": np.int32(self._count % 256),
            "count": np.float32(self._count),
            "float2d": self._rng.standard_normal((4, 5), np.float32),
            "int2d": self._rng.integers(0, 4, (2, 3), np.int32),
            **base.special_values(reward, is_first, self._done, self._done),
        }
