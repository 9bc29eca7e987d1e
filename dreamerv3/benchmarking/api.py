"""Runs a benchmark: jobs, a runner, the table that is shown, and what is left."""

from __future__ import annotations

import contextlib
import math
import pathlib
import shlex
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dreamerv3 import api
from dreamerv3.benchmarking import (
    aggregate,
    display,
    estimate,
    jobs,
    local,
    page,
    results,
    schedule,
)
from dreamerv3.benchmarking.jobs import Job, Request
from dreamerv3.benchmarking.page import Outcome
from dreamerv3.benchmarking.schedule import Progress, Runner
from dreamerv3.settings import config


def benchmark(
    suite: str,
    tasks: Sequence[str] = (),
    *,
    seeds: int = 5,
    budget: int = 0,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    on: str = "local",
    slots: int = 0,
    cores: int = 1,
    logdir: str = "logdir/benchmark",
    configs: Sequence[str] = (),
    **overrides: Any,
) -> Outcome:
    """Train on all tasks of a suite with several seeds, and compare with what is known.

    `budget` counts agent steps times action repeat, as published curves do. `sweep` has
    settings and the values to try. `configs` and other settings are those of every
    training, as in `dreamerv3.train`. Call it again with the same `logdir` to resume;
    finished runs are not repeated. Writes benchmark.html, .png and .json there.
    """
    values = api.flag_values(overrides, config.read_blocks().defaults)
    words = ["--configs", *configs] if configs else []
    for key, found in values.items():
        words += [f"--{key}", *map(str, found)]
    tried = {key: tuple(map(str, found)) for key, found in (sweep or {}).items()}
    request = Request(
        suite, tuple(tasks), seeds, int(budget), tried, logdir, tuple(words)
    )
    return run(request, on, slots, cores)


def run(request: Request, on: str, slots: int, cores: int) -> Outcome:
    """Run what is not done yet, and write the results of all."""
    every = jobs.make(request)
    progress = Progress(every, 1)
    if any(progress.state(job) != "done" for job in every):
        runner = make_runner(every[0], on, slots, cores)
        progress.slots = runner.slots
        with terminable(), display.shown(progress) as show:
            schedule.run(progress, runner, show)
    return finish(request, progress)


def make_runner(job: Job, on: str, slots: int, cores: int) -> Runner:
    """Where jobs run: on this machine or a cluster."""
    if on == "ray":
        from dreamerv3.benchmarking.remote import RayRunner  # Ray is an extra.

        return RayRunner(job.values["ray.address"], slots, cores)
    return local.LocalRunner(slots)


def finish(request: Request, progress: Progress) -> Outcome:
    """Read all log directories, and write page, picture and JSON."""
    found = results.collect(progress.jobs)
    done = sum(progress.state(job) == "done" for job in progress.jobs)
    failed = {job.name: text for job, text in progress.failed.items()}
    outcome = Outcome(
        request.suite,
        command(request),
        progress.jobs,
        failed,
        done,
        found,
        aggregate.collect(found),
    )
    for path in page.write(outcome, pathlib.Path(request.logdir).expanduser()):
        print(path)
    return outcome


def command(request: Request) -> str:
    """What to type to run or resume the benchmark."""
    words = ["dreamerv3", "benchmark", request.suite]
    if request.tasks:
        words += ["--tasks", *request.tasks]
    words += ["--seeds", str(request.seeds)]
    if request.budget:
        words += ["--budget", str(request.budget)]
    for key, values in request.sweep.items():
        words += ["--sweep", key, *values]
    return shlex.join([*words, "--logdir", request.logdir, *request.flags])


def describe(request: Request, slots: int) -> str:
    """The jobs, their state and the time they would take; trains for a moment."""
    every = jobs.make(request)
    progress = Progress(every, slots or max(1, local.count_gpus()))
    lines = [f"{job.name}: {progress.state(job)}, {job.typed}" for job in every]
    left = [job for job in every if progress.state(job) != "done"]
    lines.append(f"{len(every)} runs, {len(left)} of them to do")
    if not left:
        return "\n".join(lines)
    first = left[0]
    lines.append(
        f"{first.steps * first.repeat:,} steps of the simulator each are "
        f"{first.steps:,} steps of the agent with action repeat {first.repeat}"
    )
    speed = estimate.measure(first)
    if not math.isfinite(speed.rate):
        return "\n".join([*lines, f"time: unknown, {speed.words}"])
    steps = sum(job.steps - progress.status[job].step for job in left)
    total = steps / speed.rate / progress.slots
    lines.append(f"speed: {speed.rate:.1f} agent steps/s, {speed.words}")
    lines.append(
        f"time: {display.time_text(first.steps / speed.rate)} for a training, "
        f"{display.time_text(total)} for all in {_slots(progress.slots)}, if each is "
        "as fast and other tasks are as that one"
    )
    return "\n".join(lines)


def _slots(amount: int) -> str:
    return "1 slot" if amount == 1 else f"{amount} slots"


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Have SIGTERM do what Ctrl-C does, so that runs save."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
