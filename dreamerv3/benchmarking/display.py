"""Shows how a benchmark gets on: a live table, or plain lines without a terminal."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import rich.live
import rich.table

from dreamerv3.benchmarking.jobs import Job
from dreamerv3.benchmarking.schedule import Progress
from dreamerv3.viewing.report import human_time

EVERY = 60.0  # Seconds between plain lines on everything.
STATES = ("done", "running", "failed", "waiting")


@contextlib.contextmanager
def shown(progress: Progress) -> Iterator[Callable[[Progress], None]]:
    """A function to call whenever something may have changed."""
    if not sys.stdout.isatty():
        lines = Lines(progress)
        lines(progress)
        yield lines
        return
    with rich.live.Live(table(progress), refresh_per_second=2) as live:

        def show(progress: Progress) -> None:
            live.update(table(progress))

        yield show


def table(progress: Progress) -> rich.table.Table:
    """One row a task and method, and the sum."""
    result = rich.table.Table(box=None, pad_edge=False)
    result.add_column("task")
    for name in (*STATES, "steps", "score", "left"):
        result.add_column(name, justify="right")
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in progress.jobs:
        groups.setdefault((job.task, job.method), []).append(job)
    several = len({method for _, method in groups}) > 1
    for (task, method), jobs in groups.items():
        name = f"{task} {method}" if several else task
        result.add_row(name, *_cells(progress, jobs), "")
    left = time_text(progress.seconds_left())
    result.add_row("all", *_cells(progress, progress.jobs)[:-1], "", left, style="bold")
    return result


def _cells(progress: Progress, jobs: Sequence[Job]) -> list[str]:
    states = [progress.state(job) for job in jobs]
    steps = sum(min(progress.status[job].step, job.steps) for job in jobs)
    share = steps / max(1, sum(job.steps for job in jobs))
    scores = [progress.status[job].score for job in jobs]
    known = [score for score in scores if math.isfinite(score)]
    score = f"{np.mean(known):.1f}" if known else ""
    return [*(str(states.count(name)) for name in STATES), f"{share:.0%}", score]


def time_text(seconds: float) -> str:
    """A duration, if it is known."""
    return human_time(seconds) if math.isfinite(seconds) else "unknown"


class Lines:
    """Prints a line when a job changes its state, and the sum now and then."""

    def __init__(self, progress: Progress):
        self._states = {job: progress.state(job) for job in progress.jobs}
        self._shown = -math.inf

    def __call__(self, progress: Progress) -> None:
        for job, before in self._states.items():
            now = self._states[job] = progress.state(job)
            if now != before:
                status = progress.status[job]
                score = (
                    f", score {status.score:.1f}"
                    if status.score == status.score
                    else ""
                )
                print(f"{job.name}: {now}, step {status.step:,}{score}", flush=True)
        if time.monotonic() > self._shown + EVERY:
            self._shown = time.monotonic()
            states = list(self._states.values())
            counts = ", ".join(f"{states.count(name)} {name}" for name in STATES)
            left = time_text(progress.seconds_left())
            print(f"jobs: {counts}, time left {left}", flush=True)
