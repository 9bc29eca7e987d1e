"""DeepMind Lab: thirty first-person tasks that need memory and navigation."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import deepmind_lab
import elements
import numpy as np

from embodied.core import base

# Look right and down (pixels a frame), strafe right, forward, fire, jump, crouch.
ACTIONS = np.array(
    [
        (0, 0, 0, 1, 0, 0, 0),  # Forward.
        (0, 0, 0, -1, 0, 0, 0),  # Backward.
        (0, 0, -1, 0, 0, 0, 0),  # To the left.
        (0, 0, 1, 0, 0, 0, 0),  # To the right.
        (-20, 0, 0, 0, 0, 0, 0),  # Look left.
        (20, 0, 0, 0, 0, 0, 0),  # Look right.
        (-20, 0, 0, 1, 0, 0, 0),  # Look left and go forward.
        (20, 0, 0, 1, 0, 0, 0),  # Look right and go forward.
        (0, 0, 0, 0, 1, 0, 0),  # Fire.
    ],
    np.intc,
)
FOLDER = "contributed/dmlab30"
IMAGE, TEXT = "RGB_INTERLEAVED", "INSTR"
WORDS, VOCABULARY = 16, 1000  # Of an instruction; words are hashed.


class DMLab(base.Env):
    """Task is a level of DMLab-30 as `explore_goal_locations_small`.

    Actions are the nine of Espeholt et al. (2018), each held for `repeat` frames.
    Levels that speak to the agent show the `instruction` as numbers of hashed words.
    """

    def __init__(
        self,
        name: str,
        seed: int = 0,
        size: tuple[int, int] = (64, 64),
        repeat: int = 4,
        renderer: str = "software",
    ):
        self._size, self._repeat = tuple(size), repeat
        self._speaks = name.startswith("language_")
        self._rng = np.random.default_rng(seed)
        self._env = deepmind_lab.Lab(
            f"{FOLDER}/{name}",
            [IMAGE, TEXT] if self._speaks else [IMAGE],
            config={
                "height": str(size[0]),
                "width": str(size[1]),
                "logLevel": "WARN",
            },
            renderer=renderer,
        )
        self._last: dict[str, Any] = {}
        self._done = True

    @property
    def obs_space(self) -> base.Spaces:
        spaces = {"image": elements.Space(np.uint8, (*self._size, 3))}
        if self._speaks:
            words = elements.Space(np.int32, (WORDS,), 0, VOCABULARY + 1)
            spaces["instruction"] = words
        return {**spaces, **base.special_spaces()}

    @property
    def act_space(self) -> base.Spaces:
        return {
            "action": elements.Space(np.int32, (), 0, len(ACTIONS)),
            base.RESET: elements.Space(bool),
        }

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action[base.RESET] or self._done:
            self._env.reset(seed=int(self._rng.integers(2**31 - 1)))
            self._done = False
            return {**self._observe(), **base.special_values(is_first=True)}
        raw = ACTIONS[int(action["action"])]
        reward = self._env.step(raw, num_steps=self._repeat)
        self._done = not self._env.is_running()
        special = base.special_values(reward, False, self._done, self._done)
        return {**self._observe(), **special}

    def close(self) -> None:
        self._env.close()

    def _observe(self) -> dict[str, Any]:
        """What is seen now; after the end there is nothing, so what was seen last."""
        if not self._done:
            raw = self._env.observations()
            self._last = {"image": np.asarray(raw[IMAGE], np.uint8)}
            if self._speaks:
                self._last["instruction"] = _encode(raw[TEXT])
        return self._last


def _encode(text: Any) -> np.ndarray:
    """Numbers of the words, filled up with zeros."""
    words = str(text).lower().split()[:WORDS]
    numbers = [zlib.crc32(word.encode()) % VOCABULARY + 1 for word in words]
    return np.array(numbers + [0] * (WORDS - len(words)), np.int32)
