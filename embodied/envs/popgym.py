"""POPGym: diagnostic, control, game and maze tasks that need memory."""

from __future__ import annotations

import difflib

import gymnasium
import popgym  # noqa: F401 - registers its environments

from embodied.core import base
from embodied.envs.gymnasium import adapt
from embodied.envs.registry import TaskError

PREFIX, VERSION = "popgym-", "-v0"


def make(name: str, seed: int = 0) -> base.Env:
    """Task as `RepeatPreviousEasy`, of the 42 that come in three difficulties."""
    known = [key for key in gymnasium.registry if key.startswith(PREFIX)]
    full = f"{PREFIX}{name.removeprefix(PREFIX).removesuffix(VERSION)}{VERSION}"
    if full not in known:
        near = difflib.get_close_matches(full, known, 3)
        names = [key.removeprefix(PREFIX).removesuffix(VERSION) for key in near]
        names = names or ["RepeatPreviousEasy"]
        remedy = "did you mean " + " or ".join(f"popgym_{key}?" for key in names)
        raise TaskError(f"popgym_{name}", "there is no such task", remedy)
    return adapt(f"popgym_{name}", gymnasium.make(full, disable_env_checker=True), seed)
