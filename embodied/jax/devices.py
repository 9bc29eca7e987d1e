"""One-time set-up of JAX for this process: platform, devices, compilation cache."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import jax

from embodied.core import base
from embodied.jax import cpu
from embodied.jax.settings import JaxSettings


def setup(options: JaxSettings) -> None:
    """Apply the `jax` block of the config; later calls may not change devices."""
    if options.platform in ("auto", "cpu"):
        cpu.tune()
        # A queued step reserves its temporaries while the one before still holds its
        # own. Without a queue that gets rare; steps on several devices need it.
        jax.config.update("jax_cpu_enable_async_dispatch", bool(options.mock_devices))
    if not options.prealloc:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if options.mock_devices:
        if options.mock_devices >= cpu.cores():
            cpu.limit_threads()
        jax.config.update("jax_platforms", "cpu")
        if _started() and len(jax.local_devices()) < options.mock_devices:
            raise RuntimeError(
                f"jax.mock_devices={options.mock_devices} came too late: JAX already "
                f"runs with {len(jax.local_devices())} devices in this process."
            )
        if not _started():
            jax.config.update("jax_num_cpu_devices", options.mock_devices)
    elif options.platform != "auto":
        jax.config.update("jax_platforms", options.platform)
    jax.config.update("jax_debug_nans", bool(options.debug_nans))
    setup_cache(options.cache)
    if options.platform != "auto":
        _check_platform(options.platform)


def _check_platform(name: str) -> None:
    """Raise a readable error if JAX has no device of a platform."""
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        raise base.SetupError(
            f"jax.platform={name}, but JAX finds no such device here "
            f"({str(error) or 'it is not installed for this platform'}): install the "
            "extra 'gpu' or 'tpu' of this package, or use auto or cpu."
        ) from None


def _started() -> bool:
    """Whether the devices of this process are already fixed."""
    return jax._src.xla_bridge.backends_are_initialized()


def setup_cache(where: str) -> None:
    """Keep compiled programs in `where`: auto, off or a directory.

    They are kept by the threads that XLA may use: it makes programs for a CPU for that
    many, which JAX does not tell apart, so one that was compiled for a single core
    would not use a second one later.
    """
    if where == "off":
        jax.config.update("jax_enable_compilation_cache", False)
        return
    directory = cache_directory() if where == "auto" else pathlib.Path(where)
    directory /= f"cores{cpu.threads()}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"No compilation cache: {error}")
        return
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def cache_directory() -> pathlib.Path:
    """`$XDG_CACHE_HOME/dreamerv3/jax`, by default below `~/.cache`."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(root) / "dreamerv3" / "jax"


def pick(indices: Sequence[int], name: str) -> list[jax.Device]:
    """Devices of this process by index; raises for one that does not exist."""
    return _pick(jax.local_devices(), indices, name)


def pick_everywhere(indices: Sequence[int], name: str) -> list[jax.Device]:
    """Devices of all processes by their index in each, process by process."""
    processes = range(jax.process_count())
    groups = [jax.local_devices(process_index=process) for process in processes]
    return [device for group in groups for device in _pick(group, indices, name)]


def _pick(
    devices: Sequence[jax.Device], indices: Sequence[int], name: str
) -> list[jax.Device]:
    missing = [i for i in indices if not 0 <= i < len(devices)]
    if missing or not indices:
        lone = len(devices) == 1 and devices[0].platform == "cpu"
        remedy = "jax.mock_devices splits a CPU" if lone else "count from 0"
        raise base.SetupError(
            f"jax.{name}={list(indices)}, but there are {list(devices)}: {remedy}."
        )
    return [devices[i] for i in indices]


def compile_for(fn: Any, args: Sequence[Any]) -> Any:
    """A jitted function, compiled for arguments of these shapes and places."""
    options = cpu.compiler_options() if jax.default_backend() == "cpu" else {}
    return fn.lower(*args).compile(options)


def compute_dtype(name: str) -> str:
    """bfloat16 on accelerators and float32 on CPU, unless named."""
    if name != "auto":
        return name
    return "float32" if jax.devices()[0].platform == "cpu" else "bfloat16"
