"""Any environment registered with Gymnasium."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import elements
import gymnasium
import numpy as np

from embodied.core import base
from embodied.envs.registry import TaskError

OBS, ACTION = "obs", "action"  # Keys of spaces that are not dictionaries.


class UnsupportedSpaceError(ValueError):
    """A space that has no counterpart here; the message names its key."""


class Gymnasium(base.Env):
    """Adapts an environment id; dictionary spaces keep their keys, joined by slashes.

    An image observation is called `image` and any other one `obs`.
    """

    def __init__(self, name: str, seed: int = 0, **options: Any):
        try:
            self._env = gymnasium.make(name, **options)
        except gymnasium.error.Error as error:
            remedy = "gymnasium.pprint_registry() lists the ids that are installed"
            raise TaskError(f"gymnasium_{name}", str(error), remedy) from None
        self._seed: int | None = seed  # Used by the first reset only.
        self._done = True
        self._obs_key = OBS
        if _is_image(self._env.observation_space):
            self._obs_key = "image"
        try:
            self._obs_space = _spaces(self._env.observation_space, self._obs_key)
            self._act_space = _spaces(self._env.action_space, ACTION)
        except UnsupportedSpaceError as error:
            remedy = "wrap it to give Box, Discrete, MultiDiscrete, MultiBinary or Dict"
            raise TaskError(f"gymnasium_{name}", str(error), remedy) from None

    @property
    def obs_space(self) -> base.Spaces:
        return {
            **self._obs_space,
            "reward": elements.Space(np.float32),
            "is_first": elements.Space(bool),
            "is_last": elements.Space(bool),
            "is_terminal": elements.Space(bool),
        }

    @property
    def act_space(self) -> base.Spaces:
        return {**self._act_space, "reset": elements.Space(bool)}

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action["reset"] or self._done:
            obs, _ = self._env.reset(seed=self._seed)
            self._seed, self._done = None, False
            return self._obs(obs, 0.0, is_first=True)
        value = _unflatten(self._env.action_space, action, ACTION)
        obs, reward, terminated, truncated, _ = self._env.step(value)
        self._done = bool(terminated or truncated)
        return self._obs(obs, float(reward), is_terminal=bool(terminated))

    def render(self) -> np.ndarray | None:
        image = self._env.render()
        return image if isinstance(image, np.ndarray) else None

    def close(self) -> None:
        self._env.close()

    def _obs(
        self, obs: Any, reward: float, is_first: bool = False, is_terminal: bool = False
    ) -> dict[str, Any]:
        values = _flatten(self._env.observation_space, obs, self._obs_key)
        return {
            **values,
            "reward": np.float32(reward),
            "is_first": np.bool_(is_first),
            "is_last": np.bool_(self._done),
            "is_terminal": np.bool_(is_terminal),
        }


def _spaces(space: gymnasium.Space, key: str) -> base.Spaces:
    match space:
        case gymnasium.spaces.Dict():
            children = [_spaces(s, _join(key, k)) for k, s in space.spaces.items()]
            return {k: v for child in children for k, v in child.items()}
        case gymnasium.spaces.Discrete(n=n, start=0):
            return {key: elements.Space(np.int32, (), 0, int(n))}
        case gymnasium.spaces.MultiDiscrete() if not np.any(space.start):
            return {key: elements.Space(np.int32, space.shape, 0, space.nvec)}
        case gymnasium.spaces.MultiBinary():
            return {key: elements.Space(np.int32, space.shape, 0, 2)}
        case gymnasium.spaces.Box():
            return {
                key: elements.Space(space.dtype, space.shape, space.low, space.high)
            }
    raise UnsupportedSpaceError(f"the space {space} of '{key}' is not supported yet")


def _flatten(space: gymnasium.Space, value: Any, key: str) -> dict[str, np.ndarray]:
    if isinstance(space, gymnasium.spaces.Dict):
        parts = [_flatten(s, value[k], _join(key, k)) for k, s in space.spaces.items()]
        return {k: v for part in parts for k, v in part.items()}
    if isinstance(space, gymnasium.spaces.Box):
        return {key: np.asarray(value, space.dtype)}
    return {key: np.asarray(value, np.int32)}


def _unflatten(space: gymnasium.Space, values: Mapping[str, Any], key: str) -> Any:
    match space:
        case gymnasium.spaces.Dict():
            children = space.spaces.items()
            return {k: _unflatten(s, values, _join(key, k)) for k, s in children}
        case gymnasium.spaces.Discrete():
            return int(values[key])
    return np.asarray(values[key], space.dtype)


def _join(key: str, child: str) -> str:
    """Children of the outermost dictionary keep their own names."""
    return child if key in (OBS, ACTION, "image") else f"{key}/{child}"


def _is_image(space: gymnasium.Space) -> bool:
    return space.dtype == np.uint8 and len(space.shape or ()) == 3
