"""Environment wrappers: each takes an `Env` and is one."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import elements
import numpy as np

from embodied import public_names
from embodied.core import arrays, base, env_rules, watch
from embodied.core.resize import AreaResize
from embodied.core.watch import RangeError as RangeError
from embodied.core.watch import SpaceError as SpaceError

public_names.extend(__name__)


class Wrapper(base.Env):
    """Passes everything through to the wrapped environment."""

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


class Convert(Wrapper):
    """Converts each observation and action independently.

    The conversion also works without the environment and on JAX arrays.
    """

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        return self.encode(self.env.step(self.decode(action)))

    def encode(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        """The agent's view of an observation."""
        return dict(obs)

    def decode(self, action: Mapping[str, Any]) -> dict[str, Any]:
        """The environment's action for an action of the agent."""
        return dict(action)


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


class NormalizeAction(Convert):
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

    def decode(self, action: Mapping[str, Any]) -> dict[str, Any]:
        value = arrays.cast(action[self._key], np.float32)
        scaled = (value + 1) / 2 * (self._high - self._low) + self._low
        scaled = arrays.namespace(value).where(self._finite, scaled, value)
        return {**action, self._key: scaled}

    def normalize(self, value: np.ndarray) -> np.ndarray:
        """The agent's action in [-1, 1] that is closest to this value."""
        size = np.where(self._high > self._low, self._high - self._low, 1)
        scaled = np.clip(2 * (value - self._low) / size - 1, -1, 1)
        return np.where(self._finite, scaled, value).astype(np.float32)


class ClipAction(Convert):
    """Clips the action, so that an agent may act outside of the bounds."""

    def __init__(
        self, env: base.Env, key: str = "action", low: float = -1, high: float = 1
    ):
        super().__init__(env)
        self._key = key
        self._low = low
        self._high = high

    def decode(self, action: Mapping[str, Any]) -> dict[str, Any]:
        value = arrays.as_array(action[self._key])
        clipped = arrays.namespace(value).clip(value, self._low, self._high)
        return {**action, self._key: clipped}


class UnifyDtypes(Convert):
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

    def encode(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        known = {k: v for k, v in self._obs_space.items() if k in obs}
        return {**obs, **{k: _cast(obs[k], v.dtype) for k, v in known.items()}}

    def decode(self, action: Mapping[str, Any]) -> dict[str, Any]:
        return {k: _cast(v, self._inner[k]) for k, v in action.items()}


class CheckValues(Wrapper):
    """Rejects observations that break the rules, naming key, step and remedy.

    Types that can be converted are only noted: `UnifyDtypes` does so.
    """

    def __init__(self, env: base.Env):
        super().__init__(env)
        faults = list(env_rules.space_faults(env))
        if faults:
            raise watch.error(faults)
        self._spaces = env.obs_space
        self._watch = watch.Watch(env)

    @property
    def notes(self) -> Sequence[str]:
        return [*self.env.notes, *self._watch.notes]

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        obs = self.env.step(action)
        reset = bool(action[base.RESET])
        self._watch.judge([*env_rules.step_faults(obs, self._spaces, reset)])
        return obs


class CheckSpaces(Wrapper):
    """Rejects actions and observations outside of their spaces, naming the key."""

    def __init__(self, env: base.Env, observations: bool = True):
        super().__init__(env)
        self._observations = observations
        overlap = set(env.obs_space) & set(env.act_space)
        if overlap:
            raise SpaceError(
                f"keys {sorted(overlap)} are in both obs_space and act_space; "
                "rename one of each"
            )

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        check_values(action, self.env.act_space, "action")
        obs = self.env.step(action)
        if self._observations:
            check_values(obs, self.env.obs_space, "observation")
        return obs


class ResizeImage(Convert):
    """Resizes image observations to `size` (height, width) by averaging areas."""

    def __init__(self, env: base.Env, size: tuple[int, int]):
        super().__init__(env)
        self.size = size
        images = {k: v for k, v in env.obs_space.items() if is_image(v)}
        self._resize = {
            key: AreaResize(space.shape[:2], size)
            for key, space in images.items()
            if space.shape[:2] != tuple(size)
        }

    @property
    def obs_space(self) -> base.Spaces:
        return {k: self._space(k, v) for k, v in self.env.obs_space.items()}

    def encode(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        return {**obs, **{k: fn(obs[k]) for k, fn in self._resize.items()}}

    def _space(self, key: str, space: base.Space) -> base.Space:
        if key not in self._resize:
            return space
        return elements.Space(np.uint8, (*self.size, space.shape[2]))


class GrayImage(Convert):
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

    def encode(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        return {**obs, **{key: self._gray(obs[key]) for key in self._keys}}

    def _gray(self, image: np.ndarray) -> np.ndarray:
        gray = image.astype(np.float32) @ self.WEIGHTS + 0.5
        return gray.astype(np.uint8)[..., None]


class RestartOnException(Wrapper):
    """Recreates the environment when a step fails, up to `budget` times per `window`.

    The failed step returns the first observation of a new episode. Beyond the budget,
    the exception propagates.
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
            f"allowed in {self._window:.0f} s); restarting it.",
            color="yellow",
        )


def check_values(values: Mapping[str, Any], spaces: base.Spaces, what: str) -> None:
    """Raise `SpaceError` unless there is exactly one fitting value per space."""
    faults = list(env_rules.values_faults(values, spaces, what))
    if faults:
        raise watch.error(faults)


def is_image(space: base.Space) -> bool:
    """Whether a space is an image [H, W, C] of bytes."""
    return space.dtype == np.uint8 and len(space.shape) == 3


def _cast(value: Any, dtype: Any) -> Any:
    value = arrays.as_array(value)
    return value if value.dtype == dtype else arrays.cast(value, dtype)


def _unify(spaces: base.Spaces) -> base.Spaces:
    return {key: _unify_space(space) for key, space in spaces.items()}


def _unify_space(space: base.Space) -> base.Space:
    if space.dtype in (bool, np.uint8):
        return space
    kind = np.int32 if space.discrete else np.float32
    return elements.Space(kind, space.shape, space.low, space.high)
