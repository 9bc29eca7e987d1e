"""EnvPool: simulators in C++ that step many environments in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import elements
import envpool
import numpy as np

from embodied.core import base
from embodied.core.batchenv import BatchEnv, SingleEnv
from embodied.envs.options import parse_kwargs
from embodied.envs.registry import TaskError, unknown_task

IMAGE, OBS, ACTION = "image", "obs", "action"
STICKY = 0.25


def make(name: str, seed: int = 0, **options: Any) -> base.Env:
    """Task is an id of EnvPool as `Pong-v5`; this is one environment of it."""
    return SingleEnv(Pool(name, [seed], **options))


def together(name: str, seeds: Sequence[int], **options: Any) -> BatchEnv:
    """One environment per seed, stepped by the threads of one process."""
    return Pool(name, seeds, **options)


class Pool(BatchEnv):
    """Environments of one task; actions with bounds are taken in [-1, 1].

    Atari games follow the protocol of the suite `atari` with `size`, `gray`, `sticky`
    and `actions`; `kwargs` are further arguments of EnvPool, also of other tasks.
    """

    def __init__(
        self,
        name: str,
        seeds: Sequence[int],
        size: tuple[int, int] = (96, 96),
        gray: bool = True,
        sticky: bool = True,
        actions: str = "all",
        threads: int = 0,
        kwargs: str | Mapping[str, Any] = "{}",
    ):
        own = _atari(name, size, gray, sticky, actions)
        self._env = _create(name, seeds, threads, {**own, **parse_kwargs(kwargs)})
        self._size = len(seeds)
        self._done = np.ones(self._size, bool)
        self._obs_space = _obs_spaces(self._env.observation_space, name)
        self._action = self._env.action_space
        self._act_space = _act_space(self._action, name)

    def __len__(self) -> int:
        return self._size

    @property
    def obs_space(self) -> base.Spaces:
        return {**self._obs_space, **base.special_spaces()}

    @property
    def act_space(self) -> base.Spaces:
        return {ACTION: self._act_space, base.RESET: elements.Space(bool)}

    def step(self, action: base.Batch) -> base.Batch:
        first = np.asarray(action[base.RESET]) | self._done
        rows = {
            **{key: _empty(s, self._size) for key, s in self._obs_space.items()},
            **{k: _empty(s, self._size) for k, s in base.special_spaces().items()},
            base.IS_FIRST: first.copy(),
        }
        if first.any():
            obs, info = self._env.reset(np.flatnonzero(first).astype(np.int32))
            self._write(rows, obs, info["env_id"])
        if not first.all():
            ids = np.flatnonzero(~first).astype(np.int32)
            values = self._decode(np.asarray(action[ACTION])[ids])
            obs, reward, terminated, truncated, info = self._env.step(values, ids)
            index = info["env_id"]
            self._write(rows, obs, index)
            rows[base.REWARD][index] = reward
            rows[base.IS_LAST][index] = terminated | truncated
            rows[base.IS_TERMINAL][index] = terminated
        self._done = rows[base.IS_LAST].copy()
        return rows

    def close(self) -> None:
        self._env.close()

    def _write(self, rows: base.Batch, obs: Any, index: np.ndarray) -> None:
        for key, value in _flatten(obs).items():
            if key == OBS and IMAGE in self._obs_space:
                rows[IMAGE][index] = value.transpose((0, 2, 3, 1))
            else:
                rows[key][index] = value.reshape((len(index), *rows[key].shape[1:]))

    def _decode(self, action: np.ndarray) -> np.ndarray:
        if self._act_space.discrete:
            return action.astype(self._action.dtype)
        low, high = self._action.low, self._action.high
        scaled = (np.clip(action, -1, 1) + 1) / 2 * (high - low) + low
        return scaled.astype(self._action.dtype)


def _create(
    name: str, seeds: Sequence[int], threads: int, arguments: dict[str, Any]
) -> Any:
    known = envpool.list_all_envs()
    if name not in known:
        raise unknown_task("envpool", name, known, "Pong-v5")
    try:
        return envpool.make(
            name,
            env_type="gymnasium",
            num_envs=len(seeds),
            num_threads=threads,
            seed=list(seeds),
            **arguments,
        )
    except ImportError as error:
        raise TaskError(f"envpool_{name}", str(error), "then try again") from None


def _atari(
    name: str, size: tuple[int, int], gray: bool, sticky: bool, actions: str
) -> dict[str, Any]:
    """Arguments for the protocol, if the task is an Atari game."""
    if not (name.endswith("-v5") and name in envpool.list_all_envs()):
        return {}
    if "repeat_action_probability" not in envpool.make_spec(name).config._asdict():
        return {}
    return {
        "img_height": size[0],
        "img_width": size[1],
        "gray_scale": gray,
        "stack_num": 1,
        "use_fire_reset": False,
        "full_action_space": actions == "all",
        "repeat_action_probability": STICKY if sticky else 0.0,
    }


def _obs_spaces(space: Any, name: str) -> base.Spaces:
    leaves = _flatten(space)
    spaces = {}
    for key, leaf in leaves.items():
        if leaf.dtype == np.uint8 and len(leaf.shape) == 3 and key == OBS:
            channels, *size = leaf.shape
            spaces[IMAGE] = elements.Space(np.uint8, (*size, channels))
        elif hasattr(leaf, "n"):
            spaces[key] = elements.Space(np.int32, (), 0, int(leaf.n))
        elif np.issubdtype(leaf.dtype, np.number):
            shape = leaf.shape if len(leaf.shape) <= 2 else (int(np.prod(leaf.shape)),)
            spaces[key] = elements.Space(np.float32, shape)
        else:
            remedy = "use the suite gymnasium instead"
            raise TaskError(f"envpool_{name}", f"'{key}' is {leaf}", remedy)
    return spaces


def _act_space(space: Any, name: str) -> base.Space:
    if hasattr(space, "n"):
        return elements.Space(np.int32, (), 0, int(space.n))
    if hasattr(space, "low") and np.isfinite([*space.low.flat, *space.high.flat]).all():
        return elements.Space(np.float32, space.shape, -1, 1)
    rule = f"actions of {space} are not supported"
    raise TaskError(f"envpool_{name}", rule, "use the suite gymnasium instead")


def _flatten(tree: Any, key: str = "") -> dict[str, Any]:
    children = getattr(tree, "spaces", tree)
    if not isinstance(children, Mapping):
        return {key or OBS: tree}
    parts = [_flatten(v, f"{key}/{k}" if key else k) for k, v in children.items()]
    return {k: v for part in parts for k, v in part.items()}


def _empty(space: base.Space, size: int) -> np.ndarray:
    return np.zeros((size, *space.shape), space.dtype)
