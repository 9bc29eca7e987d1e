"""A vector task that is learned in a minute: walk to a target on a line and stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from embodied.core import base


class Track(base.Env):
    """Agent and target stand on a line; each step spent on the target earns 1.

    Both positions are seen as one-hot vectors, or as integers if `discrete`, the target
    stays where it is, and the actions are left, stay and right. Task `7` is the number
    of cells. With 7 cells and 16 steps random play earns 2.29 and perfect play 14.57 on
    average.
    """

    TASKS = ("7",)
    MOVES = (-1, 0, 1)

    def __init__(
        self, task: str = "7", length: int = 16, seed: int = 0, discrete: bool = False
    ):
        assert task in self.TASKS, task
        self._cells = int(task)
        self._length = length
        self._discrete = discrete
        self._rng = np.random.default_rng(seed)
        self._agent = self._target = self._count = 0
        self._done = True

    @property
    def obs_space(self) -> base.Spaces:
        position = elements.Space(np.float32, (self._cells,), 0, 1)
        if self._discrete:
            position = elements.Space(np.int32, (), 0, self._cells)
        return {"agent": position, "target": position, **base.special_spaces()}

    @property
    def act_space(self) -> base.Spaces:
        return {
            "action": elements.Space(np.int32, (), 0, len(self.MOVES)),
            base.RESET: elements.Space(bool),
        }

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action[base.RESET] or self._done:
            self._agent, self._target = self._rng.integers(0, self._cells, 2)
            self._count, self._done = 0, False
            return self._obs(reward=0.0, is_first=True)
        moved = self._agent + self.MOVES[int(action["action"])]
        self._agent = min(max(moved, 0), self._cells - 1)
        self._count += 1
        self._done = self._count >= self._length
        return self._obs(reward=float(self._agent == self._target))

    def _obs(self, reward: float, is_first: bool = False) -> dict[str, Any]:
        return {
            "agent": self._position(self._agent),
            "target": self._position(self._target),
            **base.special_values(reward, is_first, self._done),
        }

    def _position(self, cell: int) -> Any:
        if self._discrete:
            return np.int32(cell)
        return np.eye(self._cells, dtype=np.float32)[cell]
