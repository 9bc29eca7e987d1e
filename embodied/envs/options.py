"""Options shared by the suites of third-party and user environments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from embodied.core import base, wrappers


class Shown(wrappers.Wrapper):
    """Adds notes for people on how the environment is shown to the agent."""

    def __init__(self, env: base.Env, notes: Sequence[str]):
        super().__init__(env)
        self._notes = [*env.notes, *notes]

    @property
    def notes(self) -> Sequence[str]:
        return self._notes


def present(
    env: base.Env,
    repeat: int = 1,
    time_limit: int = 0,
    resize: Sequence[int] = (0, 0),
    gray: bool = False,
    group: str = "env.gymnasium",
) -> base.Env:
    """Apply the options; `group` is where the user finds them among the settings."""
    if repeat > 1:
        env = wrappers.ActionRepeat(env, repeat)
    if time_limit:
        env = wrappers.TimeLimit(env, time_limit)
    if all(resize):
        env = _resized(env, (resize[0], resize[1]), group)
    return wrappers.GrayImage(env) if gray else env


def parse_kwargs(kwargs: str | Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a constructor: a dictionary, or a JSON object as text."""
    if isinstance(kwargs, str):
        kwargs = json.loads(kwargs or "{}")
    if not isinstance(kwargs, Mapping):
        raise ValueError(f"must be a JSON object such as {{}}, not {kwargs}")
    return dict(kwargs)


def is_kwargs(text: str) -> bool:
    """Whether a text is a JSON object."""
    try:
        parse_kwargs(text)
    except ValueError:
        return False
    return True


def _resized(env: base.Env, size: tuple[int, int], group: str) -> base.Env:
    images = {k: v for k, v in env.obs_space.items() if wrappers.is_image(v)}
    notes = [
        f"image '{key}' of {space.shape[0]}x{space.shape[1]} pixels is resized to "
        f"{size[0]}x{size[1]}; --{group}.resize takes another size, 0 0 leaves it"
        for key, space in images.items()
        if space.shape[:2] != size
    ]
    return Shown(wrappers.ResizeImage(env, size), notes) if notes else env
