"""Starts the processes of a run, restarts those that die or hang, and ends them all."""

from __future__ import annotations

import json
import multiprocessing.connection
import os
import pathlib
import signal
import time
from collections.abc import Sequence
from types import FrameType

import elements

from embodied.run.signals import SIGNALS, Requests
from embodied.run.worker import Role, RoleError, ThreadWorker, Worker

__all__ = ["Role", "RoleError", "Supervisor"]

ASKED = "asked to stop"
LOST = "asked to stop at once; what came after the last checkpoints is lost"


class Supervisor:
    """Keeps roles running until one returns, one fails for good, or a signal comes.

    A role that returns without being told to stop ends the run: it is complete. Then
    all are stopped, stage by stage. The second request kills everything at once.
    """

    BACKOFF = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)  # Seconds before the n-th restart.

    def __init__(self, roles: Sequence[Role], status: str | os.PathLike | None = None):
        names = [role.name for role in roles]
        assert len(set(names)) == len(names), names
        assert sum(role.thread for role in roles) <= 1, "they would share one stop"
        self._workers = [ThreadWorker(r) if r.thread else Worker(r) for r in roles]
        self._status = pathlib.Path(status) if status else None
        self._requests = Requests()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)

    def run(self, duration: float = 0) -> str:
        """Start, supervise and end all roles; returns why the run ended.

        With a `duration` it ends after so many seconds.
        """
        previous = {
            number: signal.signal(number, self._on_signal) for number in SIGNALS
        }
        wakeup = signal.set_wakeup_fd(self._wake_in)
        try:
            for worker in self._workers:
                worker.start()
            self._write_status()
            reason = self._supervise(duration or float("inf"))
        finally:
            try:
                self._stop()
            finally:
                signal.set_wakeup_fd(wakeup)
                for number, handler in previous.items():
                    signal.signal(number, handler)
                os.close(self._wake_in)
                os.close(self._wake_out)
        return LOST if self._requests.count > 1 else reason

    def restarts(self) -> dict[str, int]:
        """How often each role was restarted."""
        return {worker.role.name: worker.restarts for worker in self._workers}

    def _supervise(self, duration: float) -> str:
        end = time.monotonic() + duration
        while not self._requests.count:
            if time.monotonic() >= end:
                return f"{duration:g} seconds passed"
            for worker in self._workers:
                if worker.done():
                    return f"{worker.role.name} completed the run"
                if worker.revive(self.BACKOFF):
                    self._write_status()
            deadline = min(end, *(worker.deadline() for worker in self._workers))
            self._wait(self._workers, deadline)
        elements.print("Stopping: saving everything. Again to stop at once.")
        return ASKED

    def _write_status(self) -> None:
        """Tell whoever looks which process has which role, and how often it died."""
        if self._status is None:
            return
        roles = {
            worker.role.name: {"pid": worker.pid, "restarts": worker.restarts}
            for worker in self._workers
        }
        self._status.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._status.with_name(self._status.name + ".tmp")
        temporary.write_text(json.dumps(roles, indent=1) + "\n")
        temporary.rename(self._status)

    def _wait(self, workers: Sequence[Worker | ThreadWorker], deadline: float) -> None:
        """Sleep until one of them ends, a signal comes or a deadline passes."""
        handles = [w.sentinel for w in workers if w.sentinel is not None]
        timeout = max(0.0, deadline - time.monotonic())
        ready = multiprocessing.connection.wait([*handles, self._wake_out], timeout)
        if self._wake_out in ready:
            os.read(self._wake_out, 1024)

    def _stop(self) -> None:
        """End all roles, senders before receivers; raises if one did not end well."""
        failed = None
        for stage in sorted({worker.role.stage for worker in self._workers}):
            workers = [w for w in self._workers if w.role.stage == stage]
            begin = time.monotonic()
            for worker in workers:
                worker.terminate()
            for worker in workers:
                self._await_end(worker, begin + worker.role.grace)
                failed = failed or worker.failure()
        if failed and self._requests.count < 2:
            raise failed

    def _await_end(self, worker: Worker | ThreadWorker, deadline: float) -> None:
        while worker.alive() and self._requests.count < 2:
            if time.monotonic() > deadline:
                elements.print(f"{worker.role.name} does not stop, killing it.")
                break
            self._wait([worker], deadline)
        worker.kill()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._requests.add()
