"""A walk through an environment with random actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from embodied.core import base
from embodied.core.random_agent import draw

MIDWAY = (31, 96)  # Steps at which an episode is abandoned for a new one.


class Walk:
    """Steps an environment with random actions and abandons two episodes."""

    def __init__(self, env: base.Env, seed: int = 0):
        self._env = env
        self._rng = np.random.default_rng(seed)
        self._spaces = env.act_space
        self._steps = 0
        self._last = True
        self.reset = False  # Whether the last step was asked to reset.

    def step(self) -> dict[str, Any]:
        self.reset = self._last or self._steps in MIDWAY
        action = {k: draw(self._rng, v, 1)[0] for k, v in self._spaces.items()}
        obs = self._env.step({**action, base.RESET: np.asarray(self.reset)})
        self._last = bool(obs.get(base.IS_LAST, False))
        self._steps += 1
        return obs
