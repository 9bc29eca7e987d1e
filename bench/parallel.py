"""Speed of a parallel run, end to end, against its own train step alone.

    python bench/parallel.py [--seconds 40] [--envs 4]

size1m, dummy environments with images (64x64x3), train ratio 32, batch 8x32, all
processes on this machine. First the train step alone is timed, then the run, then the
train step again, as the speed of a machine changes with the heat. The tables say what
each process used of the cores meanwhile and where the roles spent their time. Further
flags are handed to the run.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, NamedTuple

import history
import psutil

from embodied.core import runfiles

BATCH, LENGTH, RATIO = 8, 32, 32
PUBLIC_STEPS, PUBLIC_FRAMES, PUBLIC_ALONE = 1.0, 32.0, 266.0
LOG_EVERY = 2.0  # Seconds, thirty times as often as by default.
START_TIMEOUT = 240.0
WARM_UP = 4  # Rows of metrics before the window, with leftovers of the start.
SHARE, TIMES = 0.85, 10.0  # Targets: of the train step alone, and of the public code.


class Speed(NamedTuple):
    """Rates of one run."""

    steps: float  # Environment steps per second.
    frames: float  # Trained steps per second.
    cores: dict[str, float]  # Role to the cores it used.
    shares: dict[str, float]  # Section to its share of the time.
    bottleneck: str


def flags(logdir: pathlib.Path, envs: int) -> list[str]:
    """The run as a user would type it."""
    values = {
        "configs": "size1m",
        "task": "dummy_both",
        "logdir": logdir,
        "batch_size": BATCH,
        "batch_length": LENGTH,
        "run.train_ratio": RATIO,
        "run.envs": envs,
        "run.eval_envs": 0,
        "run.log_every": LOG_EVERY,
        "logger.outputs": "terminal jsonl",
        "logger.filter": "bottleneck",
    }
    words = [(f"--{key}", *str(value).split()) for key, value in values.items()]
    return [word for pair in words for word in pair]


def measure_run(seconds: float, envs: int, more: list[str]) -> Speed:
    """Start a run, wait until it trains, and watch it for a while."""
    with tempfile.TemporaryDirectory() as directory:
        logdir = pathlib.Path(directory)
        command = [sys.executable, "-m", "dreamerv3", *flags(logdir, envs), *more]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            rows = Rows(logdir / runfiles.METRICS, process)
            rows.wait(WARM_UP, START_TIMEOUT)
            before, start, first = cpu_times(logdir), time.monotonic(), len(rows.read())
            rows.wait(WARM_UP + int(seconds / LOG_EVERY), 3 * seconds)
            elapsed, after = time.monotonic() - start, cpu_times(logdir)
            window = rows.read(first)
        finally:
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=60)
    cores = {role: (after[role] - before[role]) / elapsed for role in after}
    lines = [line for line in output.splitlines() if "bottleneck" in line]
    return Speed(
        mean(row["fps/policy"] for row in window if "fps/policy" in row),
        mean(row["fps/train"] for row in window if "fps/train" in row),
        cores,
        shares(window),
        lines[-1].strip() if lines else "not named",
    )


class Rows:
    """Rows of a run's metrics."""

    def __init__(self, path: pathlib.Path, process: subprocess.Popen):
        self._path = path
        self._process = process

    def read(self, first: int = 0) -> list[dict[str, Any]]:
        text = self._path.read_text() if self._path.exists() else ""
        return [json.loads(line) for line in text.split("\n")[first:-1]]

    def wait(self, amount: int, timeout: float) -> None:
        """Until so many rows tell of training."""
        pause, end = threading.Event(), time.monotonic() + timeout
        while sum(bool(row.get("fps/train")) for row in self.read()) < amount:
            if self._process.poll() is not None or time.monotonic() > end:
                raise SystemExit("The run ended or trained nothing in time.")
            pause.wait(0.2)


def shares(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Where the roles say their time goes: mean over the rows."""
    names = {n for row in rows for n in row if n.endswith(("/share", "_wait", "_busy"))}
    names -= {"limiter/insert_wait", "limiter/sample_wait"}  # Those are seconds.
    return {n: mean(row[n] for row in rows if n in row) for n in sorted(names)}


def cpu_times(logdir: pathlib.Path) -> dict[str, float]:
    """CPU seconds of each role so far."""
    result = {}
    for role in runfiles.read_roles(logdir / runfiles.ROLES):
        times = psutil.Process(role.pid).cpu_times()
        result[role.name] = times.user + times.system
    return result


def mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values)


def measure_alone(seconds: float) -> float:
    """Trained steps per second of the train step, in a process of its own."""
    command = [sys.executable, __file__, "--alone", "--seconds", str(seconds)]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(out.stdout.splitlines()[-1])


def run_alone(seconds: float) -> float:
    """The same here: updates one after the other on a batch on the device."""
    sys.path.insert(0, os.path.dirname(__file__))
    import agent as agents

    agent = agents.make_agent("size1m", BATCH, LENGTH, True)
    step = agents.train_runner(agent, BATCH, LENGTH)
    for _ in range(3):
        step()
    count, start = 0, time.perf_counter()
    while time.perf_counter() < start + seconds:
        step()
        count += 1
    return count * BATCH * LENGTH / (time.perf_counter() - start)


def show(speed: Speed, alone: list[float]) -> None:
    allowed = mean(alone)
    share, times = speed.frames / allowed, speed.frames / PUBLIC_FRAMES
    history.record("parallel", {"trained frames to the train step alone": share})
    shown = ", ".join(f"{value:.0f}" for value in alone)
    print(f"train step alone    {allowed:8.1f} frames/s ({shown}; public 266)")
    print(f"run, trained        {speed.frames:8.1f} frames/s (public 30 to 34)")
    print(f"run, env steps      {speed.steps:8.1f} steps/s (public 1)")
    print(f"share of the step   {share:8.1%} {_verdict(share >= SHARE)}, target 85 %")
    print(f"times the public    {times:8.1f} {_verdict(times >= TIMES)}, target 10")
    print(f"bottleneck          {speed.bottleneck}")
    for role, cores in sorted(speed.cores.items(), key=_by_use):
        print(f"  {role:<32}{cores:8.3f} cores")
    for name, share in speed.shares.items():
        print(f"  {name.removesuffix('/share'):<32}{share:8.1%}")


def _by_use(item: tuple[str, float]) -> float:
    return -item[1]


def _verdict(met: bool) -> str:
    return "met" if met else "NOT MET"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--envs", type=int, default=4)
    parser.add_argument("--alone", action="store_true", help="only the train step")
    args, more = parser.parse_known_args()
    if args.alone:
        print(json.dumps(run_alone(args.seconds)))
        return
    alone = [measure_alone(args.seconds / 4)]
    speed = measure_run(args.seconds, args.envs, more)
    show(speed, [*alone, measure_alone(args.seconds / 4)])


if __name__ == "__main__":
    main()
