"""Values of the environment that a run was trained in, for its agent and back.

A run on an environment of Gymnasium keeps its spaces in a file. From them the adapter
and the wrappers are rebuilt without an environment and convert as they did in training.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from embodied.core import base, env_rules, files, formats, runfiles, watch, wrappers
from embodied.envs import options

if TYPE_CHECKING:
    from embodied.envs.gymnasium import Gymnasium

VERSION = 1  # Of the file.
# Wrappers that `rebuild`, or the preparation of environments for the agent, adds.
KNOWN = (
    wrappers.ResizeImage,
    wrappers.GrayImage,
    wrappers.NormalizeAction,
    wrappers.UnifyDtypes,
    wrappers.ClipAction,
)
# Wrappers that do not change what the agent sees or does at a step.
NEUTRAL = (
    options.Shown,
    wrappers.CheckSpaces,
    wrappers.CheckValues,
    wrappers.TimeLimit,
    wrappers.ActionRepeat,
)


class OriginalError(ValueError):
    """There is no environment of Gymnasium to convert values of; says what to do."""


def describe(env: base.Env) -> dict[str, Any] | None:
    """What `rebuild` needs, or None if it is not an environment of Gymnasium."""
    tree: dict[str, Any] = {"version": VERSION, "resize": [0, 0], "gray": False}
    while isinstance(env, wrappers.Wrapper):
        if type(env) not in (*KNOWN, *NEUTRAL):
            return None  # It may do anything.
        if isinstance(env, wrappers.ResizeImage):
            tree["resize"] = list(map(int, env.size))
        tree["gray"] |= isinstance(env, wrappers.GrayImage)
        env = env.env
    ask = getattr(env, "describe", None)
    return {**tree, **ask()} if ask else None


def write(directory: str | os.PathLike, tree: dict[str, Any] | None) -> None:
    """Write the description next to the spaces, or remove one that is out of date."""
    path = pathlib.Path(directory) / runfiles.ORIGINAL
    if tree is None:
        path.unlink(missing_ok=True)
    else:
        files.write_text(path, json.dumps(tree, indent=1) + "\n", durable=True)


def read(directory: str | os.PathLike) -> dict[str, Any] | None:
    """The description in a directory, or None."""
    path = pathlib.Path(directory) / runfiles.ORIGINAL
    if not path.exists():
        return None
    try:
        return formats.read_json(path, VERSION)
    except formats.NewerFormatError as error:
        raise OriginalError(str(error)) from None
    except formats.DAMAGED as error:
        raise OriginalError(
            f"{path} is damaged ({formats.one_line(error)}): resume the run, which "
            "writes it again, or use agent.act with agent.make_env()"
        ) from error


def rebuild(tree: Mapping[str, Any]) -> base.Env:
    """The adapter and the options that it was presented with."""
    from embodied.envs import gymnasium, gymnasium_spaces

    hollow = gymnasium.gymnasium.Env()
    hollow.observation_space = gymnasium_spaces.decode(tree["observation"])
    hollow.action_space = gymnasium_spaces.decode(tree["action"])
    env = gymnasium.Gymnasium(hollow, vector=tree["vector"])
    return options.present(env, resize=tree["resize"], gray=tree["gray"])


class Original:
    """Converts observations and actions; `env` is the rebuilt and wrapped chain."""

    def __init__(self, env: base.Env):
        self._layers: list[wrappers.Convert] = []
        while isinstance(env, wrappers.Wrapper):
            if isinstance(env, wrappers.Convert):
                self._layers.append(env)
            env = env.env
        adapter: Any = env
        self._adapter: Gymnasium = adapter
        self.observation_space, self.action_space = self._adapter.original

    def encode(self, obs: Any) -> dict[str, Any]:
        """The agent's view of one observation, which is not checked."""
        values = self._adapter.encode(obs)
        for layer in reversed(self._layers):
            values = layer.encode(values)
        return values

    def decode(self, action: Mapping[str, Any]) -> Any:
        """One action of the environment."""
        values = dict(action)
        for layer in self._layers:
            values = layer.decode(values)
        return self._adapter.decode(values)

    def encode_batch(self, obs: Any) -> tuple[base.Batch, bool]:
        """The agent's view of one or many, and whether it was one.

        Raises `SpaceError` for a value outside of the observation space.
        """
        from embodied.envs import gymnasium_spaces

        size = self._size(obs)
        single = size is None
        each = [obs] if size is None else gymnasium_spaces.rows(obs, size)
        for index, one in enumerate(each):
            self._check(one, "" if single else f"environment {index}: ")
        values = [self.encode(one) for one in each]
        batch = {key: np.stack([v[key] for v in values]) for key in values[0]}
        return batch, single

    def decode_batch(self, action: base.Batch, single: bool) -> Any:
        """The actions of the environments, or of the only one."""
        from embodied.envs import gymnasium_spaces

        size = len(next(iter(action.values())))
        rows = [{k: v[i] for k, v in action.items()} for i in range(size)]
        actions = [self.decode(row) for row in rows]
        return actions[0] if single else gymnasium_spaces.stack(actions)

    def _check(self, obs: Any, which: str) -> None:
        """Raise for what the space excludes; types are converted."""
        faults = [
            fault._replace(what=f"{which}{fault.what}")
            for fault in self._adapter.check(obs)
            if fault.rejected or fault.rule == env_rules.RANGES
        ]
        if faults:
            found = watch.error(faults)
            remedy = "give an observation of agent.original.observation_space"
            raise type(found)(f"{found}; {remedy}", found.faults)

    def _size(self, obs: Any) -> int | None:
        """How many environments the values are of; None for one without dimension."""
        from embodied.envs import gymnasium_spaces

        try:
            pairs = gymnasium_spaces.leaves(self.observation_space, obs)
            shapes = [(space.shape or (), np.shape(value)) for space, value in pairs]
        except (TypeError, ValueError):
            return None  # Not of this structure: the check names what is wrong.
        batched = [len(shape) == len(due) + 1 for due, shape in shapes]
        if not batched or not all(batched):
            return None
        sizes = {shape[0] for _, shape in shapes}
        if len(sizes) > 1 or 0 in sizes:
            raise wrappers.SpaceError(
                f"parts of the observation are of {sorted(sizes)} environments: give "
                "all of the same, at least one"
            )
        return sizes.pop()
