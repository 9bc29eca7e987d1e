"""Environment wrappers: each takes an `Env` and is one."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import elements
import numpy as np

from embodied.core import base
from embodied.core.resize import AreaResize


class Wrapper(base.Env):
    """Hands everything through to the wrapped environment."""

    def __init__(self, env: base.Env):
        self.env = env

    @property
    def obs_space(self) -> base.Spaces:
        return self.env.obs_space

    @property
    def act_space(self) -> base.Spaces:
        return self.env.act_space

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        return self.env.step(action)

    @property
    def notes(self) -> Sequence[str]:
        return self.env.notes

    def render(self) -> np.ndarray | None:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


class TimeLimit(Wrapper):
    """Ends episodes after `duration` steps; they are last but not terminal."""

    def __init__(self, env: base.Env, duration: int):
        assert duration >= 1, duration
        super().__init__(env)
        self._duration = duration
        self._steps = 0

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        obs = self.env.step(action)
        self._steps = 0 if obs[base.IS_FIRST] else self._steps + 1
        if self._steps >= self._duration:
            obs = {**obs, base.IS_LAST: True}
        return obs


class ActionRepeat(Wrapper):
    """Applies each action `repeat` times or to the episode end, summing rewards."""

    def __init__(self, env: base.Env, repeat: int):
        assert repeat >= 1, repeat
        super().__init__(env)
        self._repeat = repeat

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        obs = self.env.step(action)
        reward = obs[base.REWARD]
        for _ in range(self._repeat - 1):
            if obs[base.IS_FIRST] or obs[base.IS_LAST]:
                break
            obs = self.env.step(action)
            reward += obs[base.REWARD]
        return {**obs, base.REWARD: np.float32(reward)}


class NormalizeAction(Wrapper):
    """Lets the agent act in [-1, 1] where the action space has finite bounds."""

    def __init__(self, env: base.Env, key: str = "action"):
        super().__init__(env)
        self._key = key
        space = env.act_space[key]
        self._finite = np.isfinite(space.low) & np.isfinite(space.high)
        self._low = np.where(self._finite, space.low, -1).astype(np.float32)
        self._high = np.where(self._finite, space.high, 1).astype(np.float32)

    @property
    def act_space(self) -> base.Spaces:
        space = self.env.act_space[self._key]
        low = np.where(self._finite, -1, space.low)
        high = np.where(self._finite, 1, space.high)
        normalized = elements.Space(np.float32, space.shape, low, high)
        return {**self.env.act_space, self._key: normalized}

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        value = np.asarray(action[self._key], np.float32)
        scaled = (value + 1) / 2 * (self._high - self._low) + self._low
        scaled = np.where(self._finite, scaled, value)
        return self.env.step({**action, self._key: scaled})

    def normalize(self, value: np.ndarray) -> np.ndarray:
        """What the agent does to have this value applied, the nearest one there is."""
        size = np.where(self._high > self._low, self._high - self._low, 1)
        scaled = np.clip(2 * (value - self._low) / size - 1, -1, 1)
        return np.where(self._finite, scaled, value).astype(np.float32)


class ClipAction(Wrapper):
    """Clips the action, so that an agent may act outside of the bounds."""

    def __init__(
        self, env: base.Env, key: str = "action", low: float = -1, high: float = 1
    ):
        super().__init__(env)
        self._key = key
        self._low = low
        self._high = high

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        clipped = np.clip(action[self._key], self._low, self._high)
        return self.env.step({**action, self._key: clipped})


class UnifyDtypes(Wrapper):
    """Gives the agent only bool, uint8, int32 and float32, and takes them back."""

    def __init__(self, env: base.Env):
        super().__init__(env)
        self._obs_space = _unify(env.obs_space)
        self._act_space = _unify(env.act_space)
        self._inner = {key: space.dtype for key, space in env.act_space.items()}

    @property
    def obs_space(self) -> base.Spaces:
        return self._obs_space

    @property
    def act_space(self) -> base.Spaces:
        return self._act_space

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        action = {k: np.asarray(v, self._inner[k]) for k, v in action.items()}
        obs = self.env.step(action)
        dtypes = {key: space.dtype for key, space in self._obs_space.items()}
        return {k: np.asarray(v, dtypes.get(k)) for k, v in obs.items()}


class CheckSpaces(Wrapper):
    """Refuses observations and actions that break their space, naming the key."""

    def __init__(self, env: base.Env):
        super().__init__(env)
        overlap = set(env.obs_space) & set(env.act_space)
        if overlap:
            raise SpaceError(
                f"keys {sorted(overlap)} are in both obs_space and act_space; "
                "rename one of each"
            )

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        check_values(action, self.env.act_space, "action")
        obs = self.env.step(action)
        check_values(obs, self.env.obs_space, "observation")
        return obs


class ResizeImage(Wrapper):
    """Resizes image observations to `size` (height, width) by averaging areas."""

    def __init__(self, env: base.Env, size: tuple[int, int]):
        super().__init__(env)
        self._size = size
        images = {k: v for k, v in env.obs_space.items() if is_image(v)}
        self._resize = {
            key: AreaResize(space.shape[:2], size)
            for key, space in images.items()
            if space.shape[:2] != tuple(size)
        }

    @property
    def obs_space(self) -> base.Spaces:
        return {k: self._space(k, v) for k, v in self.env.obs_space.items()}

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        obs = dict(self.env.step(action))
        for key, resize in self._resize.items():
            obs[key] = resize(obs[key])
        return obs

    def _space(self, key: str, space: base.Space) -> base.Space:
        if key not in self._resize:
            return space
        return elements.Space(np.uint8, (*self._size, space.shape[2]))


class GrayImage(Wrapper):
    """Turns colour images into gray ones by the luminance of Rec. 601."""

    WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)

    def __init__(self, env: base.Env):
        super().__init__(env)
        images = {k: v for k, v in env.obs_space.items() if is_image(v)}
        self._keys = [key for key, space in images.items() if space.shape[2] == 3]

    @property
    def obs_space(self) -> base.Spaces:
        spaces = self.env.obs_space
        gray = {k: (*spaces[k].shape[:2], 1) for k in self._keys}
        return {**spaces, **{k: elements.Space(np.uint8, v) for k, v in gray.items()}}

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        obs = dict(self.env.step(action))
        for key in self._keys:
            gray = obs[key] @ self.WEIGHTS + 0.5
            obs[key] = gray.astype(np.uint8)[..., None]
        return obs


class PadImage(Wrapper):
    """Centres image observations on a black canvas of `size` (height, width)."""

    def __init__(self, env: base.Env, size: tuple[int, int]):
        super().__init__(env)
        self._size = size
        self._keys = [k for k, v in env.obs_space.items() if is_image(v)]
        for key in self._keys:
            shape = env.obs_space[key].shape
            if shape[0] > size[0] or shape[1] > size[1]:
                raise SpaceError(f"image '{key}' of {shape} does not fit into {size}")

    @property
    def obs_space(self) -> base.Spaces:
        return {
            key: elements.Space(np.uint8, (*self._size, space.shape[2]))
            if key in self._keys
            else space
            for key, space in self.env.obs_space.items()
        }

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        obs = dict(self.env.step(action))
        for key in self._keys:
            image = obs[key]
            canvas = np.zeros((*self._size, image.shape[2]), np.uint8)
            top = (self._size[0] - image.shape[0]) // 2
            left = (self._size[1] - image.shape[1]) // 2
            canvas[top : top + image.shape[0], left : left + image.shape[1]] = image
            obs[key] = canvas
        return obs


class RestartOnException(Wrapper):
    """Makes the environment anew when a step fails, up to `budget` times a `window`.

    The failed step is answered with the first observation of a new episode. Once the
    budget is spent the exception is raised.
    """

    def __init__(
        self,
        make_env: Callable[[], base.Env],
        exceptions: tuple[type[Exception], ...] = (Exception,),
        budget: int = 3,
        window: float = 300,
        now: Callable[[], float] = time.monotonic,
    ):
        super().__init__(make_env())
        self._make_env = make_env
        self._exceptions = exceptions
        self._budget = budget
        self._window = window
        self._now = now
        self._failures: list[float] = []

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self.env.step(action)
        except self._exceptions as error:
            self._count(error)
        self.env.close()
        self.env = self._make_env()
        return self.env.step({**action, base.RESET: np.asarray(True)})

    def _count(self, error: Exception) -> None:
        now = self._now()
        self._failures = [t for t in self._failures if t > now - self._window] + [now]
        if len(self._failures) > self._budget:
            raise error
        traceback.print_exc()
        elements.print(
            f"The environment failed ({len(self._failures)} of {self._budget} times "
            f"allowed in {self._window:.0f} s); starting it anew.",
            color="yellow",
        )


class SpaceError(ValueError):
    """A value or a space that breaks the contract; the message names the key."""


class RangeError(SpaceError):
    """A value of the right kind that is not finite or outside of its bounds."""


def check_values(values: Mapping[str, Any], spaces: base.Spaces, what: str) -> None:
    """Raise `SpaceError` unless there is exactly one fitting value per space."""
    missing, extra = set(spaces) - set(values), set(values) - set(spaces)
    if missing or extra:
        raise SpaceError(
            f"{what} lacks keys {sorted(missing)} and has unknown keys {sorted(extra)}"
        )
    for key, space in spaces.items():
        check_value(np.asarray(values[key]), space, f"{what} '{key}'")


def check_value(value: np.ndarray, space: base.Space, what: str) -> None:
    """Raise `SpaceError` unless the value has the dtype, shape and range it should."""
    if value.dtype != space.dtype:
        raise SpaceError(f"{what} is {value.dtype}, its space says {space.dtype}")
    if value.shape != space.shape:
        raise SpaceError(f"{what} is {value.shape}, its space says {space.shape}")
    if value.dtype == np.uint8 or value.dtype == bool:
        return  # Every value fits.
    if not np.isfinite(value).all():
        raise RangeError(f"{what} is not finite: {value}")
    # Integer bounds exclude their upper end.
    above = value >= space.high if space.discrete else value > space.high
    if (value < space.low).any() or above.any():
        raise RangeError(f"{what} is outside of {space.low} to {space.high}: {value}")


def is_image(space: base.Space) -> bool:
    """Whether a space is an image [H, W, C] of bytes."""
    return space.dtype == np.uint8 and len(space.shape) == 3


def _unify(spaces: base.Spaces) -> base.Spaces:
    return {key: _unify_space(space) for key, space in spaces.items()}


def _unify_space(space: base.Space) -> base.Space:
    if space.dtype in (bool, np.uint8):
        return space
    kind = np.int32 if space.discrete else np.float32
    return elements.Space(kind, space.shape, space.low, space.high)
