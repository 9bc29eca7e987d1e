"""POPGym: diagnostic, control, game and maze tasks that need memory."""

from __future__ import annotations

import gymnasium
import popgym  # noqa: F401 - registers its environments

from embodied.core import base
from embodied.envs.gymnasium import adapt
from embodied.envs.registry import unknown_task

PREFIX, VERSION = "popgym-", "-v0"


def make(name: str, seed: int = 0) -> base.Env:
    """Task as `RepeatPreviousEasy`, of the 42 that come in three difficulties."""
    known = [key for key in gymnasium.registry if key.startswith(PREFIX)]
    full = f"{PREFIX}{name.removeprefix(PREFIX).removesuffix(VERSION)}{VERSION}"
    if full not in known:
        names = [key.removeprefix(PREFIX).removesuffix(VERSION) for key in known]
        raise unknown_task("popgym", name, names, "RepeatPreviousEasy")
    return adapt(f"popgym_{name}", gymnasium.make(full, disable_env_checker=True), seed)
