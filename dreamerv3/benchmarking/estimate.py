"""How long jobs will take on this machine, from a short trial training."""

from __future__ import annotations

import math
import pathlib
import signal
import tempfile
import threading
import time
from typing import Any, NamedTuple

from dreamerv3.benchmarking import training
from dreamerv3.benchmarking.jobs import Job
from embodied.core import runfiles
from embodied.metrics.jsonl import read_rows

SECONDS = 20.0  # Of training that are measured, once it is compiled.
PATIENCE = 300.0  # Seconds for compiling and the first updates.
LOG_EVERY = 2.0


class Speed(NamedTuple):
    """Steps of the agent per second, and how they are known."""

    rate: float  # NaN if nothing was trained in time.
    words: str


def measure(job: Job, seconds: float = SECONDS) -> Speed:
    """Start the job in a directory that is removed, and watch it train."""
    with tempfile.TemporaryDirectory() as directory:
        logdir = pathlib.Path(directory) / "run"
        words = list(job.words)
        words[words.index("--logdir") + 1] = str(logdir)
        words += ["--run.log_every", str(LOG_EVERY), "--logger.outputs", "jsonl"]
        words += ["--run.steps", str(10**9)]  # Until it was measured.
        process = training.start(words, logdir)
        try:
            rows = _watch(process, logdir / runfiles.METRICS, seconds)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
        text = training.last_lines(logdir)
    if len(rows) < 2:
        return Speed(math.nan, f"it did not train within {PATIENCE:.0f} s:\n{text}")
    steps, took = (rows[-1][key] - rows[0][key] for key in ("step", "time"))
    return Speed(
        steps / took if took else math.nan,
        f"measured by training {job.task} for {took:.0f} s on this machine, compiled",
    )


def _watch(process: Any, path: pathlib.Path, seconds: float) -> list[dict[str, Any]]:
    """Rows of metrics from the first that tells of updates."""
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE
    rows: list[dict[str, Any]] = []
    while time.monotonic() < deadline and process.poll() is None:
        rows = [row for row in read_rows(path) if row.get("fps/train")]
        if rows and rows[-1]["time"] - rows[0]["time"] >= seconds:
            break
        pause.wait(LOG_EVERY / 4)
    return rows
