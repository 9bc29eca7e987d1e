"""MiniGrid and BabyAI: small grid worlds, seen as images or as symbols."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping
from typing import Any

import elements
import gymnasium
import minigrid  # noqa: F401 - registers its environments
import numpy as np
from minigrid import wrappers as views
from minigrid.core import constants

from embodied.core import base
from embodied.core.resize import AreaResize
from embodied.envs.registry import unknown_task

PREFIXES = ("MiniGrid-", "BabyAI-")
TILE = 8  # Pixels of a cell before the image is resized.
VOCABULARY = """
, a after and at avoid ball behind blue box door end fetch find from front get go goal
green grey hallway in key lava left matching maze must near next object of on open
opening pick purple put reach red right room rooms square the then to traverse unlock
up use yellow you your
"""
WORDS = VOCABULARY.split()  # A word is observed as its number from 1 on.
MISSION_LENGTH = 50  # Words; shorter missions are filled up with zeros.
SYMBOLS = {  # What a cell holds, by key: number of kinds.
    "objects": len(constants.OBJECT_TO_IDX),
    "colors": len(constants.COLOR_TO_IDX),
    "states": 4,  # Of a door, or where the agent looks.
}


class MiniGrid(base.Env):
    """Task is an id as `DoorKey-5x5-v0` (of MiniGrid) or `BabyAI-GoToObj-v0`.

    The agent sees what is in front of it or, with `full`, the whole grid; as an
    `image` or, with `symbolic`, as the `objects`, `colors` and `states` of all cells.
    `direction` is where it looks and `mission` the numbers of the words of its task.
    """

    def __init__(
        self,
        name: str,
        seed: int = 0,
        size: tuple[int, int] = (64, 64),
        symbolic: bool = False,
        full: bool = False,
        mission: bool = True,
    ):
        self._env: Any = _wrap(_create(name), symbolic, full)
        self._seed: int | None = seed  # Used by the first reset only.
        self._symbolic, self._mission = symbolic, mission
        self._size = size
        spaces: Any = self._env.observation_space
        shape = spaces["image"].shape
        self._cells = shape[0] * shape[1]
        self._resize = AreaResize(shape[:2], self._size)
        self._done = True

    @property
    def obs_space(self) -> base.Spaces:
        spaces = {"direction": elements.Space(np.int32, (), 0, 4)}
        if self._symbolic:
            for key, kinds in SYMBOLS.items():
                spaces[key] = elements.Space(np.int32, (self._cells,), 0, kinds)
        else:
            spaces["image"] = elements.Space(np.uint8, (*self._size, 3))
        if self._mission:
            words = len(WORDS) + 1
            spaces["mission"] = elements.Space(np.int32, (MISSION_LENGTH,), 0, words)
        return {**spaces, **base.special_spaces()}

    @property
    def act_space(self) -> base.Spaces:
        return {
            "action": elements.Space(np.int32, (), 0, int(self._env.action_space.n)),
            base.RESET: elements.Space(bool),
        }

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action[base.RESET] or self._done:
            with contextlib.redirect_stdout(io.StringIO()):  # Prints failed attempts.
                obs, _ = self._env.reset(seed=self._seed)
            self._seed, self._done = None, False
            return self._obs(obs, base.special_values(is_first=True))
        value = int(action["action"])
        obs, reward, terminated, truncated, _ = self._env.step(value)
        self._done = bool(terminated or truncated)
        special = base.special_values(reward, False, self._done, terminated)
        return self._obs(obs, special)

    def render(self) -> np.ndarray:
        return self._env.unwrapped.get_frame(tile_size=32, highlight=True)

    def close(self) -> None:
        self._env.close()

    def _obs(self, obs: dict[str, Any], special: dict[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {"direction": np.int32(obs["direction"])}
        if self._symbolic:
            cells = obs["image"].reshape(-1, len(SYMBOLS)).astype(np.int32)
            values |= dict(zip(SYMBOLS, cells.T.copy(), strict=True))
        else:
            values["image"] = self._resize(obs["image"])
        if self._mission:
            values["mission"] = _encode(obs["mission"])
        return {**values, **special}


def _create(name: str) -> gymnasium.Env:
    full = name if name.startswith(PREFIXES) else f"{PREFIXES[0]}{name}"
    known = [key for key in gymnasium.registry if key.startswith(PREFIXES)]
    if full not in known:
        names = [key.removeprefix(PREFIXES[0]) for key in known]
        raise unknown_task("minigrid", name, names, "DoorKey-5x5-v0")
    return gymnasium.make(full, disable_env_checker=True)


def _wrap(env: gymnasium.Env, symbolic: bool, full: bool) -> gymnasium.Env:
    if symbolic:
        return views.FullyObsWrapper(env) if full else env
    draw = views.RGBImgObsWrapper if full else views.RGBImgPartialObsWrapper
    return draw(env, tile_size=TILE)


def _encode(mission: str) -> np.ndarray:
    words = re.findall(r"[a-z]+|,", mission.lower())
    numbers = np.zeros(MISSION_LENGTH, np.int32)
    numbers[: len(words)] = [WORDS.index(word) + 1 for word in words]
    return numbers
