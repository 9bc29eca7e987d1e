"""A small task that only an agent with every part in order can learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from embodied.core import base

BENCHES = (2, 4)  # Cells, one of which has a bench in each episode.
EXIT = 6
MOVES = (-1, 0, 1)
SIZE = 16  # Of the image.
FARE = 0.05  # What a step to either side costs.
OPTIMUM, RANDOM = 6.35, 0.42  # Mean score of perfect and of random play.


class Corridor(base.Env):
    """Walk to a bench and stay there; the exit behind it ends the episode.

    The agent starts in cell 0 of a dark corridor. It sees which cell has the bench, as
    a vector or as an image, but not where it is itself: it has to remember its own
    actions since the start of the episode. Each step on the bench earns 0.5, and moving
    costs a little, so that an agent that looks only one step ahead never sets out. The
    exit earns 1, once: it is the best choice only for an agent that does not know that
    episodes end. Episodes are cut after 10 to 20 steps, so that counting on from the
    last one does not help.
    """

    def __init__(self, image: bool = False, seed: int = 0):
        self._image = image
        self._rng = np.random.default_rng(seed)
        self._cell = self._bench = self._left = 0
        self._done = True

    @property
    def obs_space(self) -> base.Spaces:
        image = elements.Space(np.uint8, (SIZE, SIZE, 3))
        vector = elements.Space(np.float32, (len(BENCHES),), 0, 1)
        return {
            **({"image": image} if self._image else {"vector": vector}),
            **base.special_spaces(),
        }

    @property
    def act_space(self) -> base.Spaces:
        return {
            "action": elements.Space(np.int32, (), 0, len(MOVES)),
            base.RESET: elements.Space(bool),
        }

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action[base.RESET] or self._done:
            self._cell, self._done = 0, False
            self._bench = int(self._rng.choice(BENCHES))
            self._left = int(self._rng.integers(10, 21))
            return self._obs(0.0, is_first=True)
        move = MOVES[int(action["action"])]
        self._cell = max(0, self._cell + move)
        self._left -= 1
        left = self._cell == EXIT
        self._done = left or self._left == 0
        reward = 1.0 if left else 0.5 * (self._cell == self._bench)
        return self._obs(reward - FARE * abs(move), is_terminal=left)

    def _obs(
        self, reward: float, is_first: bool = False, is_terminal: bool = False
    ) -> dict[str, Any]:
        special = base.special_values(reward, is_first, self._done, is_terminal)
        return {**self._sight(), **special}

    def _sight(self) -> dict[str, np.ndarray]:
        if not self._image:
            return {
                "vector": np.array(
                    [cell == self._bench for cell in BENCHES], np.float32
                )
            }
        width = SIZE // (EXIT + 1)
        image = np.zeros((SIZE, SIZE, 3), np.uint8)
        image[SIZE // 2 :, self._bench * width : (self._bench + 1) * width] = 200
        return {"image": image}
