"""Cores and accelerators of this machine, detected without starting JAX."""

from __future__ import annotations

import glob
import importlib.util
import os
import resource
from typing import NamedTuple

from embodied.core import extras

MAX_FILES = 1 << 16  # More than any role needs, and no more than any system allows.


class Accelerator(NamedTuple):
    """A kind of device, by the files of its driver and the plugins of JAX for it."""

    name: str
    files: tuple[str, ...]
    plugins: tuple[str, ...]
    extra: str  # Of this package, which installs a plugin.


# By the name of the platform in JAX.
ACCELERATORS = {
    "cuda": Accelerator(
        "NVIDIA GPU",
        ("/dev/nvidia[0-9]*", "/dev/nvhost-gpu", "/dev/nvgpu*", "/dev/dxg"),
        ("jax_cuda12_plugin", "jax_cuda13_plugin"),
        "gpu",
    ),
    "tpu": Accelerator("TPU", ("/dev/accel*", "/dev/vfio/[0-9]*"), ("libtpu",), "tpu"),
}


def cores() -> int:
    """Cores available to this process; in a Slurm job fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):  # Not on a Mac.
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def raise_file_limit() -> None:
    """Let this process open as many files as it may, up to `MAX_FILES`.

    The usual limit of 1,024 is one that a process may raise by itself.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def device_files(platform: str) -> list[str]:
    """Files of the devices of a platform; a GPU under Windows has one for all."""
    patterns = ACCELERATORS[platform].files
    return sorted(path for pattern in patterns for path in glob.glob(pattern))


def has_plugin(platform: str) -> bool:
    """Whether a plugin of JAX for the platform is installed."""
    return any(map(_exists, ACCELERATORS[platform].plugins))


def lacks(platform: str) -> tuple[str, str] | None:
    """Why a platform is unusable here, and the remedy; None if it is usable."""
    if platform not in ACCELERATORS:
        return None
    kind = ACCELERATORS[platform]
    if not device_files(platform):
        return f"this machine has no {kind.name} ({kind.files[0]})", "use auto or cpu"
    if not has_plugin(platform):
        return f"JAX is installed without {platform}", extras.install_line(kind.extra)
    return None


def find_platform(wanted: str = "auto") -> str:
    """The platform that JAX will choose."""
    usable = [name for name in ACCELERATORS if lacks(name) is None]
    return (usable or ["cpu"])[0] if wanted == "auto" else wanted


def describe(wanted: str = "auto") -> str:
    """The devices that JAX will choose, for people."""
    platform = find_platform(wanted)
    if platform == "cpu":
        count = cores()
        return f"CPU with {count} core{'' if count == 1 else 's'}"
    count, name = len(device_files(platform)), ACCELERATORS[platform].name
    return f"{platform}, {count} {name}{'' if count == 1 else 's'}"


def unused() -> list[str]:
    """Remarks on accelerators that JAX cannot use as it is installed."""
    return [
        f"this machine has a {kind.name}, but {lack[0]}: {lack[1]}"
        for name, kind in ACCELERATORS.items()
        if device_files(name) and (lack := lacks(name))
    ]


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
