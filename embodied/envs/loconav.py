"""Locomotion and navigation of `dm_control.locomotion`, seen through own eyes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from embodied.core import base
from embodied.envs import headless
from embodied.envs.dm_env import DmEnv

# Walls are *, the places where the walker starts P and where goals appear G.
MAZES = {
    "s": """
*******
*P    *
* *** *
*   *G*
*******
""",
    "m": """
*********
*P  *   *
*   * G *
*   *   *
*       *
*  **** *
* G    G*
*********
""",
    "l": """
*************
*P    *    G*
*     *     *
*  ****  *  *
*        *  *
*   G    *  *
*******  *  *
*        *  *
*  *******  *
*          G*
*************
""",
}
# The reference tasks that come with dm_control, by module and function.
REFERENCE = {
    "humanoid_walls": ("basic_cmu_2019", "cmu_humanoid_run_walls"),
    "humanoid_gaps": ("basic_cmu_2019", "cmu_humanoid_run_gaps"),
    "humanoid_target": ("basic_cmu_2019", "cmu_humanoid_go_to_target"),
    "humanoid_forage": ("basic_cmu_2019", "cmu_humanoid_maze_forage"),
    "rodent_bowl": ("basic_rodent_2020", "rodent_escape_bowl"),
    "rodent_gaps": ("basic_rodent_2020", "rodent_run_gaps"),
    "rodent_forage": ("basic_rodent_2020", "rodent_maze_forage"),
    "rodent_touch": ("basic_rodent_2020", "rodent_two_touch"),
}
EYES = "egocentric_camera"
# Seconds of the ant mazes: an episode, an action and a step of the simulator.
TIME_LIMIT, CONTROL_STEP, PHYSICS_STEP = 60.0, 0.05, 0.005


class LocoNav(DmEnv):
    """A walker observes its body and, as `image`, what it sees.

    Tasks `ant_maze_s`, `_m` and `_l` reward an ant with 1 each time it reaches the
    goal of the episode and then puts it back to the start, until the time is over; the
    others are the reference tasks of dm_control. Each action is applied for `repeat`
    control steps.
    """

    TASKS = (*(f"ant_maze_{size}" for size in MAZES), *REFERENCE)

    def __init__(self, name: str, seed: int = 0, repeat: int = 1):
        assert name in self.TASKS, name
        headless.require(f"loconav_{name}")
        super().__init__(_load(name, np.random.RandomState(seed)), repeat=repeat)
        self._eyes = [key for key in super().obs_space if key.endswith(EYES)]

    @property
    def obs_space(self) -> base.Spaces:
        return self._rename(super().obs_space)

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        return self._rename(super().step(action))

    def render(self) -> np.ndarray:
        return self._env.physics.render(240, 320, camera_id=0)

    def _rename(self, values: dict[str, Any]) -> dict[str, Any]:
        for key in self._eyes:
            values["image"] = values.pop(key)
        return values


def _load(name: str, random: np.random.RandomState) -> Any:
    if name in REFERENCE:
        module, function = REFERENCE[name]
        package = "dm_control.locomotion.examples"
        return getattr(importlib.import_module(f"{package}.{module}"), function)(random)
    return _ant_maze(MAZES[name.rpartition("_")[2]], random)


def _ant_maze(layout: str, random: np.random.RandomState) -> Any:
    # These look at MUJOCO_GL when they are imported.
    from dm_control import composer
    from dm_control.locomotion.arenas import labmaze_textures, mazes
    from dm_control.locomotion.tasks import random_goal_maze
    from dm_control.locomotion.walkers import ant
    from labmaze import fixed_maze

    arena = mazes.MazeWithTargets(
        maze=fixed_maze.FixedMazeWithRandomGoals(
            layout.lstrip(), num_spawns=1, num_objects=1, random_state=random
        ),
        xy_scale=4.0,
        z_height=2.0,
        skybox_texture=labmaze_textures.SkyBox(style="sky_03"),
        wall_textures=labmaze_textures.WallTextures(style="style_01"),
        floor_textures=labmaze_textures.FloorTextures(style="style_01"),
    )
    task = random_goal_maze.RepeatSingleGoalMaze(
        walker=ant.Ant(),
        maze_arena=arena,
        contact_termination=False,
        max_repeats=sys.maxsize,
        physics_timestep=PHYSICS_STEP,
        control_timestep=CONTROL_STEP,
    )
    return composer.Environment(
        task, TIME_LIMIT, random, strip_singleton_obs_buffer_dim=True
    )
