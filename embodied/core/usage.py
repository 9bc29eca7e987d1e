"""Resource usage of a process: cores, memory, threads, files, devices."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
import time
from typing import Any

import psutil

from embodied.core import extras, runfiles


@dataclasses.dataclass(frozen=True)
class UsageSettings:
    """Which figures to take."""

    psutil: bool
    nvsmi: bool
    jax: bool


class Usage:
    """Figures of this process since the last call of `stats`.

    `psutil` gives cores, memory, threads and open files of the process, `nvsmi` what
    NVIDIA's library reports for all GPUs of the machine, `jax` the device memory of
    this process, where JAX reports it.
    """

    def __init__(self, settings: UsageSettings):
        self._process = Process(os.getpid()) if settings.psutil else None
        self._gpus = _gpus() if settings.nvsmi else []
        self._jax = settings.jax

    def stats(self) -> dict[str, float]:
        stats = self._process.stats() if self._process else {}
        for index, handle in enumerate(self._gpus):
            stats |= {f"gpu{index}/{k}": v for k, v in _gpu_stats(handle).items()}
        return stats | (_device_stats() if self._jax else {})


class Process:
    """Figures of one process of this machine."""

    def __init__(self, pid: int):
        self._process = psutil.Process(pid)
        self._cpu = self._cpu_seconds()
        self._since = time.monotonic()

    def stats(self) -> dict[str, float]:
        """Cores used since the last call, bytes of memory, threads, open files."""
        cpu, now = self._cpu_seconds(), time.monotonic()
        cores = (cpu - self._cpu) / max(now - self._since, 1e-9)
        self._cpu, self._since = cpu, now
        return {
            "cpu": cores,
            "memory": self._process.memory_info().rss,
            "threads": self._process.num_threads(),
            "files": self._process.num_fds(),
        }

    def _cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system


class Processes:
    """Sums over the processes of a run whose names begin with a prefix.

    The supervisor keeps the process of each role in a status file.
    """

    def __init__(self, status: pathlib.Path, prefixes: tuple[str, ...]):
        self._status = status
        self._prefixes = prefixes
        self._known: dict[int, Process] = {}

    def stats(self) -> dict[str, float]:
        """Sums since the last call; nothing if the roles are on other machines."""
        for pid in self._pids() - set(self._known):
            try:
                self._known[pid] = Process(pid)
            except psutil.NoSuchProcess:
                continue  # It was just replaced.
        total: dict[str, float] = {}
        for pid, process in list(self._known.items()):
            try:
                stats = process.stats()
            except psutil.NoSuchProcess:
                del self._known[pid]
                continue
            for key, value in {**stats, "processes": 1}.items():
                total[key] = total.get(key, 0) + value
        return total

    def _pids(self) -> set[int]:
        roles = runfiles.read_roles(self._status)
        return {r.pid for r in roles if r.pid and r.name.startswith(self._prefixes)}


def _gpus() -> list[Any]:
    """Handles of all GPUs; prints why if there are none."""
    try:
        import pynvml
    except ImportError:
        print(f"GPU usage needs {extras.install_line('gpu')}", flush=True)
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        print(f"GPU usage is unavailable: {error}", flush=True)
        return []
    count = pynvml.nvmlDeviceGetCount()
    return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]


def _gpu_stats(handle: Any) -> dict[str, float]:
    import pynvml

    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
    return {
        "compute": rates.gpu / 100,
        "memory": pynvml.nvmlDeviceGetMemoryInfo(handle).used,
    }


def _device_stats() -> dict[str, float]:
    """Bytes in use on each device; a process that never imported JAX has none."""
    jax = sys.modules.get("jax")
    if jax is None:
        return {}
    result = {}
    for index, device in enumerate(jax.local_devices()):
        stats = device.memory_stats() or {}  # None where it is not known.
        if "bytes_in_use" in stats:
            result[f"device{index}/memory"] = stats["bytes_in_use"]
        if "peak_bytes_in_use" in stats:
            result[f"device{index}/peak"] = stats["peak_bytes_in_use"]
    return result
