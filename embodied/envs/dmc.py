"""The DeepMind Control Suite, observed as positions and velocities or as images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from embodied import public_names
from embodied.core import base
from embodied.envs import headless
from embodied.envs.dm_env import DmEnv
from embodied.envs.registry import TaskError, unknown_task

public_names.extend(__name__)

CAMERAS = {"quadruped": 2}  # Others are seen by their first camera.
ALIASES = {"cup": "ball_in_cup"}  # Names of domains in the literature.


def make(
    name: str,
    seed: int = 0,
    size: tuple[int, int] = (64, 64),
    repeat: int = 1,
    proprio: bool = True,
    image: bool = True,
    camera: int = -1,
) -> base.Env:
    """Task `domain_task`; observes `proprio` vectors, an `image`, or both.

    A `camera` below 0 is the usual one of the domain. Each action is applied for
    `repeat` steps of the simulator.
    """
    if not proprio and not image:
        remedy = "set env.dmc.proprio or env.dmc.image to True"
        raise TaskError(f"dmc_{name}", "nothing is observed", remedy)
    if image:
        headless.require(f"dmc_{name}", "or observe no images: --configs dmc_proprio")
    else:
        headless.choose(required=False)
    from dm_control import suite  # Looks at MUJOCO_GL when it is imported.

    for short, domain in ALIASES.items():
        if name.startswith(f"{short}_"):
            name = domain + name.removeprefix(short)
    tasks = {f"{domain}_{task}": (domain, task) for domain, task in suite.ALL_TASKS}
    if name not in tasks:
        raise unknown_task("dmc", name, tasks, "walker_walk")
    domain, task = tasks[name]
    inner = suite.load(domain, task, task_kwargs={"random": seed})
    if camera < 0:
        camera = CAMERAS.get(domain, 0)
    return ControlEnv(inner, size, repeat, proprio, image, camera)


class ControlEnv(DmEnv):
    """An environment of `dm_control` with the image of one of its cameras."""

    def __init__(
        self,
        env: Any,
        size: tuple[int, int],
        repeat: int = 1,
        proprio: bool = True,
        image: bool = True,
        camera: int = 0,
    ):
        super().__init__(env, repeat=repeat)
        self._size = tuple(size)
        self._image = image
        self._camera = camera
        self._proprio = proprio

    @property
    def obs_space(self) -> base.Spaces:
        spaces = super().obs_space if self._proprio else base.special_spaces()
        if self._image:
            spaces["image"] = elements.Space(np.uint8, (*self._size, 3))
        return spaces

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        obs = super().step(action)
        if not self._proprio:
            obs = {key: obs[key] for key in base.special_spaces()}
        if self._image:
            obs["image"] = self._draw(self._size)
        return obs

    def render(self) -> np.ndarray | None:
        if headless.drawing_is_off():
            return None
        return self._draw((240, 320))

    def close(self) -> None:
        # Frees the drawing context, which complains if that is left to the exit.
        self._env.physics.free()

    def _draw(self, size: tuple[int, ...]) -> np.ndarray:
        return self._env.physics.render(*size, camera_id=self._camera)
