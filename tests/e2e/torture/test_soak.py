"""A run at the capacity of its replay uses no more and more of the machine."""

import os
import threading
import time
from collections import defaultdict

import numpy as np
import psutil
import pytest

from embodied.core.usage import Process
from tests.e2e import command
from tests.e2e.torture.run import LENGTH, TortureRun

SECONDS = float(os.environ.get("SOAK_SECONDS", "60"))  # `make soak`: half an hour.
EVERY = 1.0  # Seconds between looks.
# Steps of the replay: a few files, of which an old one goes for each that comes.
CAPACITY, CHUNK = 512, 32
WARM = 4 * CAPACITY  # Steps before the first look: each slot was used a few times.
FIGURES = ("memory", "files", "threads")
TOLERANCE = 0.05  # By which the last third may be above the first.


def samples(run, seconds):
    """Figures [T] of each process, by its name and the figure."""
    processes = {name: Process(p.pid) for name, p in run.processes().items()}
    found, pause = defaultdict(list), threading.Event()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, process in processes.items():
            try:
                figures = process.stats()
            except psutil.NoSuchProcess:
                run.check_running()
                pytest.fail(f"{name} died without a fault")
            for figure in FIGURES:
                found[name, figure].append(figures[figure])
        pause.wait(EVERY)
    return found


def compare(found):
    """The first and the last third of each figure as lines, and those that grew."""
    lines, grown = [], []
    for (name, figure), values in found.items():
        size = len(values) // 3
        before, after = np.median(values[:size]), np.median(values[-size:])
        growth = after / before - 1
        line = f"{name:15} {figure:8} {before:13,.0f} {after:13,.0f} {growth:+7.1%}"
        lines.append(line)
        if growth > TOLERANCE:
            grown.append(line)
    return lines, grown


@pytest.mark.slow
def test_soak(tmp_path):
    flags = {"replay.size": CAPACITY, "replay.chunksize": CHUNK}
    with TortureRun(tmp_path, **flags) as run:
        run.wait_step(WARM)
        found = samples(run, SECONDS)
        run.stop()
    replay = command.stored(run.replay_dir, LENGTH)
    kept, total = replay.stats()["steps"], replay.total
    replay.close()
    lines, grown = compare(found)
    print(f"\n{SECONDS:.0f} s; {total:,} steps, of which the replay keeps {kept:,}")
    print(*lines, sep="\n")
    assert kept < 2 * CAPACITY < WARM < total == run.step()
    assert not grown, grown


def test_a_leak_is_noticed():
    flat = [20, 21, 20] * 30
    found = {("env0", "files"): flat, ("replay", "files"): np.linspace(20, 24, 90)}
    lines, grown = compare(found)
    assert len(lines) == 2
    assert [line.split()[0] for line in grown] == ["replay"]
