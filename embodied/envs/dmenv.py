"""Any `dm_env.Environment`: adapts its specs, time steps and actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dm_env
import elements
import numpy as np
from dm_env import specs

from embodied.core import base, wrappers

IMAGE, OBS, ACTION = (
    "image",
    "obs",
    "action",
)  # Keys of specs that are not dictionaries.


class UnsupportedSpecError(ValueError):
    """A spec that has no counterpart here; the message names its key."""


class DMEnv(base.Env):
    """Adapts a `dm_env.Environment`; nested dictionaries join their keys by slashes.

    A single observation is called `image` if it is one and `obs` otherwise, a single
    action `action`. A last step with discount 0 is terminal. Whole numbers without
    bounds are observed as floats.
    """

    def __init__(self, env: dm_env.Environment, repeat: int = 1):
        self._env = env
        self._repeat = repeat  # Times each action is applied.
        self._done = True
        self._closed = False
        spec = env.observation_spec()
        single = not isinstance(spec, Mapping)
        self._obs_key = IMAGE if single and wrappers.is_image(spec) else OBS
        self._act_spec = _flatten(env.action_spec(), ACTION)
        obs_spec = _flatten(spec, self._obs_key).items()
        # An empty array, as of a sensor that a robot does not have, shows nothing.
        full = {k: s for k, s in obs_spec if 0 not in getattr(s, "shape", ())}
        self._obs_space = {key: _space(s, key) for key, s in full.items()}
        self._act_space = {key: _space(s, key) for key, s in self._act_spec.items()}

    @property
    def obs_space(self) -> base.Spaces:
        return {**self._obs_space, **base.special_spaces()}

    @property
    def act_space(self) -> base.Spaces:
        return {**self._act_space, base.RESET: elements.Space(bool)}

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action[base.RESET] or self._done:
            return self._obs(self._env.reset(), 0.0)
        values = {key: _value(s, action[key]) for key, s in self._act_spec.items()}
        nested = _nest(self._env.action_spec(), values, ACTION)
        reward = 0.0
        for _ in range(self._repeat):
            time_step = self._env.step(nested)
            reward += float(time_step.reward or 0.0)
            if time_step.last():
                break
        return self._obs(time_step, reward)

    def close(self) -> None:
        if not self._closed:
            self._env.close()
        self._closed = True

    def _obs(self, time_step: dm_env.TimeStep, reward: float) -> dict[str, Any]:
        self._done = time_step.last()
        values = _flatten(time_step.observation, self._obs_key)
        spaces = self._obs_space.items()
        terminal = self._done and time_step.discount == 0
        return {
            **{key: np.asarray(values[key], space.dtype) for key, space in spaces},
            **base.special_values(
                reward,
                is_first=time_step.first(),
                is_last=self._done,
                is_terminal=terminal,
            ),
        }


def _flatten(tree: Any, key: str, inner: bool = False) -> dict[str, Any]:
    """Leaves by key; children of the outermost dictionary keep their own names."""
    if isinstance(tree, Mapping):
        parts = [
            _flatten(child, f"{key}/{name}" if inner else str(name), True)
            for name, child in tree.items()
        ]
        return {k: v for part in parts for k, v in part.items()}
    return {key: tree}


def _nest(spec: Any, values: Mapping[str, Any], key: str, inner: bool = False) -> Any:
    """The opposite of `_flatten`, in the structure of `spec`."""
    if isinstance(spec, Mapping):
        return {
            name: _nest(child, values, f"{key}/{name}" if inner else str(name), True)
            for name, child in spec.items()
        }
    return values[key]


def _space(spec: Any, key: str) -> base.Space:
    match spec:
        case specs.DiscreteArray():
            return elements.Space(np.int32, (), 0, int(spec.num_values))
        case specs.BoundedArray() if np.issubdtype(spec.dtype, np.floating):
            return elements.Space(spec.dtype, spec.shape, spec.minimum, spec.maximum)
        case specs.BoundedArray() if spec.dtype not in (bool, np.uint8):
            # Ours exclude their upper end.
            high = np.asarray(spec.maximum) + 1
            return elements.Space(spec.dtype, spec.shape, spec.minimum, high)
        case specs.StringArray():
            raise UnsupportedSpecError(f"'{key}' is text, which cannot be observed")
        case specs.Array() if spec.dtype in (bool, np.uint8):
            return elements.Space(spec.dtype, spec.shape)
        case specs.Array():
            return elements.Space(np.float32, spec.shape)
    raise UnsupportedSpecError(f"the spec {spec} of '{key}' is not supported")


def _value(spec: specs.Array, value: Any) -> Any:
    if isinstance(spec, specs.DiscreteArray):
        return int(value)
    return np.asarray(value, spec.dtype)
