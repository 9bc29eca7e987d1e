"""Runs jobs as tasks of a Ray cluster, one GPU or some cores each.

The log directory must be on storage that all machines share under the same path: a job
whose machine was lost resumes from there on another one.
"""

from __future__ import annotations

import pathlib
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from dreamerv3.benchmarking import training
from dreamerv3.benchmarking.jobs import Job
from dreamerv3.benchmarking.schedule import Ended
from embodied.cluster.fleet import connect

RETRIES = 10  # Losses of its machine or process that a job survives.
STOP_TIMEOUT = 120.0  # Seconds that runs have to save.
LOOK = 1.0  # Seconds after which a task notices that it was cancelled.


class LostError(Exception):
    """The training was killed, so that it should resume on some machine."""


class RayRunner:
    """Submits as many runs as the cluster has room for."""

    def __init__(self, address: str, slots: int = 0, cores: int = 1):
        self._ray = connect(address)
        there = self._ray.cluster_resources()
        gpus = int(there.get("GPU", 0))
        self._needs = {"num_gpus": 1} if gpus else {"num_cpus": cores}
        self.slots = slots or max(1, gpus or int(there.get("CPU", 1) // cores))
        self._running: dict[Any, Job] = {}

    def start(self, job: Job) -> None:
        """Submit a training; Ray starts it again if its machine is lost."""
        task = self._ray.remote(
            max_retries=RETRIES,
            retry_exceptions=[LostError],
            scheduling_strategy="SPREAD",
            **self._needs,
        )(train)
        name = task.options(name=job.name).remote(job.words, str(job.logdir))
        self._running[name] = job

    def wait(self, timeout: float) -> list[Ended]:
        """Jobs that ended, as soon as there is one."""
        if not self._running:  # Those that are left run in another command.
            threading.Event().wait(timeout)
            return []
        ended, _ = self._ray.wait(list(self._running), timeout=timeout)
        return [self._end(each, self._running.pop(each)) for each in ended]

    def stop(self) -> None:
        """Let all runs save and end, and leave the cluster."""
        try:
            for task in self._running:
                self._ray.cancel(task)
            if tasks := list(self._running):
                self._ray.wait(tasks, num_returns=len(tasks), timeout=STOP_TIMEOUT)
        finally:
            self._ray.shutdown()  # Kills what is left.

    def _end(self, task: Any, job: Job) -> Ended:
        try:
            return Ended(job, self._ray.get(task), training.last_lines(job.logdir))
        except self._ray.exceptions.RayError as error:
            return Ended(job, 1, str(error))


def train(words: Sequence[str], logdir: str) -> int:
    """The task: train here; returns the exit code."""
    process = training.start(words, pathlib.Path(logdir))
    try:
        code = _wait(process)
    except KeyboardInterrupt:  # Cancelled.
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_TIMEOUT)
        raise
    if code < 0:
        raise LostError(f"signal {-code} ended the training")
    return code


def _wait(process: subprocess.Popen[bytes]) -> int:
    """The exit code; Ray cannot interrupt a wait without a limit."""
    while True:
        try:
            return process.wait(LOOK)
        except subprocess.TimeoutExpired:
            continue
