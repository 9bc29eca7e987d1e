"""Which OpenGL library MuJoCo draws with on a machine that has no screen."""

from __future__ import annotations

import os
import subprocess
import sys

from embodied.envs.registry import TaskError

VARIABLE = "MUJOCO_GL"
BACKENDS = ("egl", "osmesa")
OFF = "disable"
TIMEOUT = 60.0  # Seconds for one attempt, which imports dm_control.

ATTEMPT = """
from dm_control import mujoco
physics = mujoco.Physics.from_xml_string("<mujoco/>")
physics.render(8, 8)
physics.free()
"""


class NoRendererError(RuntimeError):
    """No OpenGL library works here; the message says what to install."""


def choose(required: bool = True) -> str:
    """Set MUJOCO_GL, unless the user did, before anything that draws is imported.

    EGL draws on the GPU if there is one and OSMesa on the CPU. Each is tried in a
    process of its own, since a library that fails may end the process. What was found
    is inherited by the processes started later. If nothing works, drawing is turned
    off or, if it is required, `NoRendererError` is raised.
    """
    chosen = os.environ.get(VARIABLE, "")
    if chosen == OFF and required:
        raise NoRendererError(f"{VARIABLE}={OFF} forbids drawing; unset {VARIABLE}")
    if chosen or sys.platform != "linux":
        return chosen
    reasons = {}
    for backend in BACKENDS:
        reasons[backend] = attempt(backend)
        if not reasons[backend]:
            os.environ[VARIABLE] = backend
            return backend
    if required:
        details = "".join(f"\n  {name}: {why}" for name, why in reasons.items())
        raise NoRendererError(
            "MuJoCo cannot draw images, because neither EGL nor OSMesa works here; "
            "install one, for example with apt install libegl1 (and the driver of the "
            f"GPU) or apt install libosmesa6, or set {VARIABLE} yourself{details}"
        )
    os.environ[VARIABLE] = OFF
    return OFF


def require(task: str, remedy: str = "then try again") -> None:
    """Choose a renderer for a task that draws, or raise `TaskError`."""
    try:
        choose()
    except NoRendererError as error:
        raise TaskError(task, str(error), remedy) from None


def attempt(backend: str) -> str:
    """Draw with a backend in another process; empty if it worked, else the reason."""
    # A process that has drawn before, or its parent, has set the platform.
    kept = {k: v for k, v in os.environ.items() if k != "PYOPENGL_PLATFORM"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", ATTEMPT],
            env={**kept, VARIABLE: backend},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return f"did not answer within {TIMEOUT:.0f} s"
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"ended with code {done.returncode}"


def drawing_is_off() -> bool:
    """Whether nothing can be drawn in this process."""
    return os.environ.get(VARIABLE, "") == OFF
