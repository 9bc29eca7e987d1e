"""A replay larger than memory: fill it, sample from all of it, restart, sample again.

Run by `python bench/replay.py --larger-than-memory GB`. Each phase is a process of its
own, as after a restart, and prints rates, the memory that it used and what it read.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from embodied.replay import Replay

LENGTH, BATCH, BATCHES = 65, 16, 200
MEMORY = 2 << 30  # The setting: bytes of the files in the memory of the process.
Step = dict[str, Any]


def measure(directory: str, steps: Step, gigabytes: float) -> None:
    """Print all measurements. The directory must be empty and have the room."""
    envs = len(steps["reward"])
    nbytes = sum(value.nbytes for value in steps.values()) / envs
    count = int(gigabytes * 1e9 / nbytes / envs) * envs
    print(f"\nLarger than memory, in {directory}")
    print(f"memory of the machine {_meminfo('MemTotal') / 1e9:.1f} GB, ", end="")
    print(f"steps {count * nbytes / 1e9:.1f} GB, setting {MEMORY / 1e9:.1f} GB")
    _in_a_process(_fill, directory, steps, count)
    _in_a_process(_restart, directory, steps, count)


def _fill(directory: str, steps: Step, count: int) -> None:
    replay = Replay(LENGTH, count, directory, memory=MEMORY)
    envs = len(steps["reward"])
    begin = time.perf_counter()
    for index in range(count // envs):
        steps["reward"][:] = index
        replay.add_batch(steps, range(envs))
    _report("insert, all of it", count, begin, "steps")
    _sample(replay, "sample 16x65")
    replay.close()


def _restart(directory: str, steps: Step, count: int) -> None:
    begin = time.perf_counter()
    replay = Replay(LENGTH, count, directory, memory=MEMORY)
    _report("load", len(replay), begin, "items")
    assert replay.total == count, (replay.total, count)
    _sample(replay, "sample 16x65 after restart")
    begin = time.perf_counter()
    for index in range(1000):
        steps["reward"][:] = index
        replay.add_batch(steps, range(len(steps["reward"])))
    _report("insert at capacity", 1000 * len(steps["reward"]), begin, "steps")
    replay.close()


def _sample(replay: Replay, name: str) -> None:
    """Uniformly from everything; the rewards count the steps of each stream."""
    seen, read, begin = set(), _bytes_read(), time.perf_counter()
    for _ in range(BATCHES):
        batch = replay.sample(BATCH)
        assert (np.diff(batch["reward"], axis=1) == 1).all(), "not consecutive"
        seen.update(batch["stepid"][..., 0].ravel().tolist())
    _report(name, BATCHES, begin, "batches")
    chunks = int(replay.stats()["chunks"])
    print(f"{'':<34}{len(seen)} of {chunks} files, ", end="")
    print(f"{(_bytes_read() - read) / 1e9:.1f} GB read from the disk")


def _report(name: str, amount: int, begin: float, unit: str) -> None:
    seconds = time.perf_counter() - begin
    files, peak = _status("RssFile") / 1e9, _status("VmHWM") / 1e9
    line = f"{name:<34}{amount / seconds:>12,.0f} {unit}/s in {seconds:.2f} s, "
    line += f"files in memory {files:.2f} GB, process at most {peak:.2f} GB"
    print(line, flush=True)


def _in_a_process(function: Callable[..., None], *args: Any) -> None:
    process = multiprocessing.get_context("spawn").Process(target=function, args=args)
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{function.__name__} failed, see above")


def _status(key: str) -> int:
    """Bytes, from what Linux says about this process."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(key + ":")[1].split()[0]) * 1024


def _meminfo(key: str) -> int:
    return int(Path("/proc/meminfo").read_text().split(key + ":")[1].split()[0]) * 1024


def _bytes_read() -> int:
    """Bytes that this process made the system read from disks."""
    return int(Path("/proc/self/io").read_text().split("read_bytes:")[1].split()[0])
