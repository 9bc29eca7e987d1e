"""Runs jobs in the slots of a runner until none is left."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from dreamerv3.benchmarking import jobs as jobs_
from dreamerv3.benchmarking.jobs import Job, Status

REFRESH = 2.0  # Seconds between looks at the log directories.


class Ended(NamedTuple):
    """A job whose process is over."""

    job: Job
    code: int
    text: str  # The end of what it printed.


class Runner(Protocol):
    """Where jobs run."""

    slots: int  # Jobs at once.

    def start(self, job: Job) -> None:
        """Start a job; called for no more than `slots` that have not ended."""

    def wait(self, timeout: float) -> list[Ended]:
        """Jobs that ended, as soon as there is one; nothing after the timeout."""

    def stop(self) -> None:
        """Let all jobs save and end, and release everything."""


class Progress:
    """What is known of all jobs: log directories, and failures of this command."""

    def __init__(self, jobs: Sequence[Job], slots: int):
        self.jobs = jobs
        self.slots = slots
        self.failed: dict[Job, str] = {}
        self.running: set[Job] = set()
        self.status: dict[Job, Status] = {}
        self.refresh()

    def refresh(self) -> None:
        """Look at the log directories; those of finished jobs do not change."""
        for job in self.jobs:
            known = self.status.get(job)
            if known is None or known.state != jobs_.DONE:
                self.status[job] = jobs_.look(job, own=job in self.running)

    def state(self, job: Job) -> str:
        """done, running, failed or waiting."""
        if job in self.running:
            return "running"
        if self.status[job].state == jobs_.DONE:
            return "done"
        if self.status[job].state == jobs_.HELD:
            return "running"
        return "failed" if job in self.failed else "waiting"

    def seconds_left(self) -> float:
        """Until all jobs are done, from the speed of those that ran; NaN if unknown."""
        rates = [s.rate for s in self.status.values() if s.rate > 0]
        if not rates:
            return float("nan")
        usual = sum(rates) / len(rates)
        seconds = 0.0
        for job, status in self.status.items():
            if self.state(job) in ("running", "waiting"):
                rate = status.rate if status.rate > 0 else usual
                seconds += max(0, job.steps - status.step) / rate
        return seconds / min(self.slots, max(1, len(self.jobs)))


def run(progress: Progress, runner: Runner, show: Callable[[Progress], None]) -> None:
    """Run what is not done; Ctrl-C raises once all runs have saved.

    A job that another command runs is left to that one, and looked at again.
    """
    waiting = collections.deque(
        job for job in progress.jobs if progress.state(job) != "done"
    )
    try:
        while waiting or progress.running:
            _fill(waiting, progress, runner)
            for ended in runner.wait(REFRESH):
                _finish(ended, progress)
            progress.refresh()
            show(progress)
    finally:
        runner.stop()
        progress.running.clear()
        progress.refresh()


def _fill(waiting: collections.deque[Job], progress: Progress, runner: Runner) -> None:
    """Start jobs in free slots."""
    for _ in range(len(waiting)):
        if len(progress.running) >= runner.slots:
            return
        job = waiting.popleft()
        status = jobs_.look(job)
        if status.state == jobs_.HELD:
            waiting.append(job)
        elif status.state != jobs_.DONE:
            runner.start(job)
            progress.running.add(job)


def _finish(ended: Ended, progress: Progress) -> None:
    """A job that ended early failed, with whatever exit code."""
    progress.running.discard(ended.job)
    status = progress.status[ended.job] = jobs_.look(ended.job)
    if ended.code or status.state != jobs_.DONE:
        reason = f"exit code {ended.code} at step {status.step} of {ended.job.steps}"
        progress.failed[ended.job] = f"{reason}\n{ended.text}"
