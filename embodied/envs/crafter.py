"""Crafter: survive and build in an open world; achievements are logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import crafter
import elements
import numpy as np

from embodied.core import base

ACHIEVEMENTS = tuple(crafter.constants.achievements)
UNLOCKED = f"{base.LOG_PREFIX}achievements"


class Crafter(base.Env):
    """Task `reward`, or `noreward` to learn without any.

    The score of the benchmark is the geometric mean over achievements of the share of
    episodes that unlocked them; `log/achievement_NAME` counts each in the episode so
    far and `log/achievements` how many are unlocked. `log/reward` is the reward also
    where it is not given to the agent.
    """

    TASKS = ("reward", "noreward")

    def __init__(
        self,
        name: str,
        seed: int = 0,
        size: tuple[int, int] = (64, 64),
        length: int = 10_000,
    ):
        assert name in self.TASKS, name
        self._env = crafter.Env(
            size=tuple(size), reward=name == "reward", length=length, seed=seed
        )
        self._size = tuple(size)
        self._done = True

    @property
    def obs_space(self) -> base.Spaces:
        counts = {_log(name): elements.Space(np.float32) for name in ACHIEVEMENTS}
        return {
            "image": elements.Space(np.uint8, (*self._size, 3)),
            **base.special_spaces(),
            UNLOCKED: elements.Space(np.float32),
            f"{base.LOG_PREFIX}reward": elements.Space(np.float32),
            **counts,
        }

    @property
    def act_space(self) -> base.Spaces:
        return {
            "action": elements.Space(np.int32, (), 0, len(self._env.action_names)),
            base.RESET: elements.Space(bool),
        }

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action[base.RESET] or self._done:
            self._done = False
            special = base.special_values(is_first=True)
            return self._obs(self._env.reset(), special, {}, 0.0)
        image, reward, self._done, info = self._env.step(int(action["action"]))
        dead = info["discount"] == 0
        special = base.special_values(reward, False, self._done, dead)
        return self._obs(image, special, info["achievements"], info["reward"])

    def render(self) -> np.ndarray:
        return self._env.render()

    def _obs(
        self,
        image: np.ndarray,
        special: dict[str, Any],
        achievements: Mapping[str, int],
        reward: float,
    ) -> dict[str, Any]:
        counts = {name: achievements.get(name, 0) for name in ACHIEVEMENTS}
        unlocked = sum(count > 0 for count in counts.values())
        return {
            "image": np.ascontiguousarray(image),
            **special,
            UNLOCKED: np.float32(unlocked),
            f"{base.LOG_PREFIX}reward": np.float32(reward),
            **{_log(name): np.float32(count) for name, count in counts.items()},
        }


def _log(achievement: str) -> str:
    return f"{base.LOG_PREFIX}achievement_{achievement}"
