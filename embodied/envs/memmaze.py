"""Memory Maze: find objects of the colour that is asked for and remember where."""

from __future__ import annotations

import importlib.util
import logging
import sys
from typing import Any

from embodied.envs import headless
from embodied.envs.dm_env import DmEnv
from embodied.envs.registry import TaskError


class MemMaze(DmEnv):
    """Task is the size of the maze; one action moves for a quarter of a second.

    The image has a border in the colour of the object to find. Episodes last 1,000 to
    4,000 steps by size and are never terminal. `layout` observes also where things
    are, for probing the memory.
    """

    TASKS = ("9x9", "11x11", "13x13", "15x15")

    def __init__(
        self,
        name: str,
        seed: int = 0,
        size: tuple[int, int] = (64, 64),
        layout: bool = False,
    ):
        assert name in self.TASKS, name
        if size[0] != size[1]:
            remedy = "set both numbers of env.memmaze.size to the same"
            raise TaskError(f"memmaze_{name}", "its images are square", remedy)
        headless.require(f"memmaze_{name}")
        options = {"camera_resolution": size[0], "seed": seed}
        what = {"global_observables": True} if layout else {"image_only_obs": True}
        make = getattr(_tasks(), f"memory_maze_{name}")
        # Each reset warns that the ball has no velocity to set, which is intended.
        logging.getLogger("absl").setLevel(logging.ERROR)
        super().__init__(make(**options, **what))


def _tasks() -> Any:
    """The tasks without their package, which needs the retired `gym` to be imported.

    The package would register its tasks with `gym`, which has no use here.
    """
    if "memory_maze" not in sys.modules:
        spec = importlib.util.find_spec("memory_maze")
        assert spec is not None
        sys.modules["memory_maze"] = importlib.util.module_from_spec(spec)
    return importlib.import_module("memory_maze.tasks")
