"""A run at the capacity of its replay uses no more and more of the machine."""

import os
import threading
import time
from collections import defaultdict

import numpy as np
import psutil
import pytest

from embodied.core.usage import Process
from tests.e2e.torture.run import TortureRun

SECONDS = float(os.environ.get("SOAK_SECONDS", "60"))  # `make soak`: half an hour.
EVERY = 1.0  # Seconds between looks.
# Steps of the replay: a few files, of which an old one goes for each that comes.
CAPACITY, CHUNK = 512, 32
WARM = 4 * CAPACITY  # Steps before the first look: each slot was used a few times.
FIGURES = ("memory", "files", "threads")
TOLERANCE = 0.05  # By which the last third may be above the first.
LEAST = {"memory": 2e6, "files": 2, "threads": 1}  # Of small processes: noise.


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


def thirds(values):
    """Medians of the first and of the last third."""
    size = len(values) // 3
    return float(np.median(values[:size])), float(np.median(values[-size:]))


@pytest.mark.slow
def test_soak(tmp_path):
    flags = {"replay.size": CAPACITY, "replay.chunksize": CHUNK}
    with TortureRun(tmp_path, **flags) as run:
        run.wait_step(WARM)
        found = samples(run, SECONDS)
        run.stop()
    stored = run.step()
    print(f"\n{SECONDS:.0f} s, {stored:,} steps through a replay of {CAPACITY}:")
    grown = []
    for (name, figure), values in found.items():
        before, after = thirds(values)
        limit = max(TOLERANCE * before, LEAST[figure])
        growth = (after - before) / before
        print(f"{name:15} {figure:8} {before:13,.0f} {after:13,.0f} {growth:+7.1%}")
        if after - before > limit:
            grown.append(f"{name}: {figure} grew from {before:,.0f} to {after:,.0f}")
    assert not grown, grown
