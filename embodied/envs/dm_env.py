"""Any object that is a `dm_env.Environment`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import elements
import numpy as np
from dm_env import specs

from embodied.core import base, watch
from embodied.envs import codecs
from embodied.envs.registry import TaskError

OBS, ACTION, IMAGE = "obs", "action", "image"  # Keys of specs that have no name.


def adapt(task: str, env: dm_env.Environment) -> base.Env:
    """An environment object as ours; what cannot be done is a `TaskError`."""
    try:
        return DmEnv(env)
    except codecs.UnsupportedSpaceError as error:
        raise TaskError(task, str(error), error.remedy) from None


class DmEnv(base.Env):
    """Adapts an environment; nested specs become keys joined by slashes.

    A last step with discount 0 is terminal. Discounts between are not used. Each
    action is applied `repeat` times or to the episode end, and rewards are added up.
    """

    def __init__(self, env: dm_env.Environment, repeat: int = 1):
        self._env = env
        self._watch = watch.Watch(env)
        self._repeat = repeat
        self._closed = False
        self._done = True
        action, obs = env.action_spec(), env.observation_spec()
        self._action = _codec(action, ACTION, codecs.Namer(ACTION), True)
        namer = codecs.Namer(OBS, tuple(self._action.spaces))
        self._value = _codec(obs, OBS, namer, False)
        if isinstance(self._value, codecs.Image):
            self._value = codecs.Image(IMAGE, self._value.own)

    @property
    def obs_space(self) -> base.Spaces:
        return {**self._value.spaces, **base.special_spaces()}

    @property
    def act_space(self) -> base.Spaces:
        return {**self._action.spaces, base.RESET: elements.Space(bool)}

    @property
    def notes(self) -> Sequence[str]:
        return [*self._value.notes, *self._action.notes, *self._watch.notes]

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action[base.RESET] or self._done:
            return self._obs(self._env.reset(), 0.0)
        decoded, reward = self._action.decode(action), 0.0
        for _ in range(self._repeat):
            time_step = self._env.step(decoded)
            reward += 0.0 if time_step.reward is None else float(time_step.reward)
            if time_step.last():
                break
        return self._obs(time_step, reward)

    def close(self) -> None:
        if not self._closed:
            self._env.close()
        self._closed = True

    def _obs(self, time_step: dm_env.TimeStep, reward: float) -> dict[str, Any]:
        self._done = time_step.last()
        terminal = self._done and time_step.discount == 0
        special = base.special_values(
            reward, time_step.first(), self._done, bool(terminal)
        )
        method = "reset" if time_step.first() else "step"
        faults = self._value.check(time_step.observation, "observation")
        self._watch.judge([*faults], method)
        return {**self._value.encode(time_step.observation), **special}


def _codec(spec: Any, key: str, namer: codecs.Namer, action: bool) -> codecs.Codec:
    if isinstance(spec, Mapping):
        return _group(spec, dict, key, namer, action)
    if isinstance(spec, list | tuple):
        build = codecs.to_list if isinstance(spec, list) else codecs.to_tuple
        return _group(dict(enumerate(spec)), build, key, namer, action)
    if isinstance(spec, specs.DiscreteArray):
        own = elements.Space(spec.dtype, (), 0, spec.num_values)
        return codecs.leaf(key, own, action, codecs.MAX_CLASSES)
    if isinstance(spec, specs.StringArray) or not isinstance(spec, specs.Array):
        message = f"the spec {spec} of '{key}' is not supported"
        remedy = "wrap the environment to give arrays of numbers instead"
        raise codecs.UnsupportedSpaceError(message, remedy)
    low, high = _limits(spec)
    own = codecs.box(spec.dtype, spec.shape, low, high)
    return codecs.leaf(key, own, action)


def _limits(spec: specs.Array) -> tuple[Any, Any]:
    """Inclusive bounds; an array without any can be as large as its dtype allows."""
    if isinstance(spec, specs.BoundedArray):
        return spec.minimum, spec.maximum
    if spec.dtype.kind in "iu":
        return np.iinfo(spec.dtype).min, np.iinfo(spec.dtype).max
    return (False, True) if spec.dtype == bool else (-np.inf, np.inf)


def _group(
    children: Mapping[Any, Any],
    build: Any,
    key: str,
    namer: codecs.Namer,
    action: bool,
) -> codecs.Codec:
    # An empty array, as of a sensor that a robot does not have, shows nothing.
    full = {k: v for k, v in children.items() if 0 not in getattr(v, "shape", ())}
    parts = {
        name: _codec(child, namer.join(key, name), namer, action)
        for name, child in full.items()
    }
    return codecs.Group(parts, build)
