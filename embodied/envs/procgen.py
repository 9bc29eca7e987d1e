"""Procgen: sixteen games whose levels are generated anew for each episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import elements
import numpy as np
import procgen

from embodied import public_names
from embodied.core import base
from embodied.core.resize import make_resize

public_names.extend(__name__)

NATIVE = (64, 64)  # Resolution of the games.
COMPLETE = f"{base.LOG_PREFIX}level_complete"


class Procgen(base.Env):
    """Task is the name of a game as `coinrun`.

    The image is resized to `size` by `interpolation`, area or bilinear.
    `levels` is the number of different levels, 0 for all there are, from `start` on.
    The package shows the first image of the next episode in place of the last one of
    an episode, so that the image before is repeated there. It does not tell whether
    an episode ended by the time limit of the game: all ends are terminal.
    """

    TASKS = (
        *("bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun"),
        *("dodgeball", "fruitbot", "heist", "jumper", "leaper", "maze", "miner"),
        *("ninja", "plunder", "starpilot"),
    )

    def __init__(
        self,
        name: str,
        seed: int = 0,
        size: tuple[int, int] = (96, 96),
        interpolation: Literal["area", "bilinear"] = "bilinear",
        levels: int = 0,
        start: int = 0,
        mode: Literal["easy", "hard"] = "hard",
    ):
        assert name in self.TASKS, name
        self._options = {
            "env_name": name,
            "num_levels": levels,
            "start_level": start,
            "distribution_mode": mode,
            "num_threads": 0,
        }
        self._rng = np.random.default_rng(seed)
        self._env: Any = self._make()
        self._size = tuple(size)
        same = self._size == NATIVE
        self._resize = np.copy if same else make_resize(NATIVE, size, interpolation)
        self._image = np.zeros((*size, 3), np.uint8)
        self._started = self._done = False

    @property
    def obs_space(self) -> base.Spaces:
        image = elements.Space(np.uint8, (*self._size, 3))
        complete = elements.Space(np.float32)
        return {"image": image, **base.special_spaces(), COMPLETE: complete}

    @property
    def act_space(self) -> base.Spaces:
        return {
            "action": elements.Space(np.int32, (), 0, 15),
            base.RESET: elements.Space(bool),
        }

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action[base.RESET] or self._done or not self._started:
            return self._reset()
        self._env.act(np.array([int(action["action"])], np.int32))
        (reward,), obs, (first,) = self._env.observe()
        self._done = bool(first)
        if not first:
            self._image = self._resize(obs["rgb"][0])
        complete = self._env.get_info()[0]["prev_level_complete"] if first else 0
        special = base.special_values(float(reward), False, self._done, self._done)
        return {"image": self._image, **special, COMPLETE: np.float32(complete)}

    def close(self) -> None:
        self._env.close()

    def _reset(self) -> dict[str, Any]:
        _, obs, (first,) = self._env.observe()
        if not first:  # The package ends episodes only by itself.
            self._env.close()
            self._env = self._make()
            _, obs, _ = self._env.observe()
        self._image = self._resize(obs["rgb"][0])
        self._started, self._done = True, False
        special = base.special_values(is_first=True)
        return {"image": self._image, **special, COMPLETE: np.float32(0)}

    def _make(self) -> Any:
        seed = int(self._rng.integers(2**31 - 1))
        return procgen.ProcgenGym3Env(num=1, rand_seed=seed, **self._options)
