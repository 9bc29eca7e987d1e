"""Runs jobs as processes of this machine, one GPU or some cores each."""

from __future__ import annotations

import glob
import os
import queue
import signal
import subprocess
import threading
import time

import psutil

from dreamerv3.benchmarking import training
from dreamerv3.benchmarking.jobs import Job
from dreamerv3.benchmarking.schedule import Ended

STOP_TIMEOUT = 120.0  # Seconds that runs have to save.


def count_gpus() -> int:
    """GPUs of this machine that CUDA can use."""
    return len(glob.glob("/dev/nvidia[0-9]*"))


class LocalRunner:
    """Starts trainings; each slot has its own GPU or its share of the cores."""

    def __init__(self, slots: int = 0):
        self._gpus = count_gpus()
        self.slots = slots or max(1, self._gpus)
        self._free = list(range(self.slots))
        self._running: dict[Job, tuple[subprocess.Popen[bytes], int]] = {}
        self._ended: queue.Queue[Job] = queue.Queue()

    def start(self, job: Job) -> None:
        """Start a training; call it from the thread that lives longest."""
        slot = self._free.pop(0)
        gpu = {"CUDA_VISIBLE_DEVICES": str(slot % self._gpus)} if self._gpus else {}
        process = training.start(job.words, job.logdir, **gpu)
        self._pin(process, slot)
        self._running[job] = process, slot
        threading.Thread(target=self._watch, args=(job, process), daemon=True).start()

    def wait(self, timeout: float) -> list[Ended]:
        """Jobs that ended, as soon as there is one."""
        try:
            job = self._ended.get(timeout=timeout)
        except queue.Empty:
            return []
        process, slot = self._running.pop(job)
        self._free.append(slot)
        return [Ended(job, process.returncode, training.last_lines(job.logdir))]

    def stop(self) -> None:
        """Let all trainings save and end; a second Ctrl-C kills them."""
        processes = [process for process, _ in self._running.values()]
        try:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_TIMEOUT
            for process in processes:
                process.wait(max(0.0, deadline - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            for process in processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def _watch(self, job: Job, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._ended.put(job)

    def _pin(self, process: subprocess.Popen[bytes], slot: int) -> None:
        """Without GPUs, trainings that share all cores slow each other down."""
        cores = psutil.Process().cpu_affinity()
        each = len(cores) // self.slots
        if self._gpus or self.slots == 1 or not each:
            return
        try:
            own = cores[slot * each : (slot + 1) * each]
            psutil.Process(process.pid).cpu_affinity(own)
        except psutil.NoSuchProcess:
            return  # It failed already, which its exit code tells.
