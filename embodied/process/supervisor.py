"""Starts the processes of a run, restarts those that die or hang, and ends them all."""

from __future__ import annotations

import contextlib
import json
import multiprocessing.connection
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType

import elements

from embodied.core import files
from embodied.process.signals import SIGNALS, Requests
from embodied.process.worker import (
    Issue,
    Role,
    RoleError,
    ThreadWorker,
    UnsavedError,
    Worker,
    no_number,
)

__all__ = ["Role", "RoleError", "Supervisor"]

Stop = Callable[[Callable[[], bool]], None]  # Gets a function: whether to hurry.

POLL = 0.5  # Seconds between looks at the roles that are restarted during shutdown.
ASKED = "asked to stop"
LOST = "killed on request; progress since the last checkpoints is lost"


class Supervisor:
    """Keeps roles running until one returns or fails for good, or a signal arrives.

    A role that returns without a stop request completes the run. Then
    all are stopped, stage by stage; a role that `receives` is supervised until its
    stage has come. The second request kills everything at once.
    """

    BACKOFF = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)  # Seconds before the n-th restart.

    def __init__(
        self,
        roles: Sequence[Role],
        status: str | os.PathLike | None = None,
        issue: Issue = no_number,
        others: Mapping[int, Stop] | None = None,
    ):
        """Prepare to run roles.

        `issue` returns the incarnation of each started process. `others` shut down
        processes of other supervisors; each runs after the roles of its stage ended.
        """
        names = [role.name for role in roles]
        assert len(set(names)) == len(names), names
        self._workers = [
            (ThreadWorker if role.thread else Worker)(role, issue) for role in roles
        ]
        self._status = pathlib.Path(status) if status else None
        self._others = dict(others or {})
        self._requests = Requests()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)

    def run(self, duration: float = 0) -> str:
        """Start, supervise and end all roles; returns why the run ended.

        With a `duration` it ends after so many seconds.
        """
        with self._listening():
            try:
                for worker in self._workers:
                    worker.start()
                self._write_status()
                reason = self._supervise(duration or float("inf"))
            except BaseException as error:
                report(self._stop(), error)
                raise
            failures = self._stop()
        if self._requests.count > 1:
            return LOST
        if failures:
            report(failures[1:], failures[0])
            raise failures[0]
        return reason

    def restarts(self) -> dict[str, int]:
        """How often each role was restarted."""
        return {worker.role.name: worker.restarts for worker in self._workers}

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Signals are requests to stop."""
        previous = {
            number: signal.signal(number, self._on_signal) for number in SIGNALS
        }
        wakeup = signal.set_wakeup_fd(self._wake_in)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in previous.items():
                signal.signal(number, handler)
            os.close(self._wake_in)
            os.close(self._wake_out)

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
        elements.print(
            "Stopping and saving everything. Press Ctrl-C again to stop at once."
        )
        return ASKED

    def _write_status(self) -> None:
        """Record which process has which role, and how often it was restarted."""
        if self._status is None:
            return
        roles = {
            worker.role.name: {"pid": worker.pid, "restarts": worker.restarts}
            for worker in self._workers
        }
        files.write_status(self._status, json.dumps(roles, indent=1) + "\n")

    def _wait(self, workers: Sequence[Worker | ThreadWorker], deadline: float) -> None:
        """Sleep until one of them ends, a signal comes or a deadline passes."""
        handles = [w.sentinel for w in workers if w.sentinel is not None]
        timeout = max(0.0, deadline - time.monotonic())
        ready = multiprocessing.connection.wait([*handles, self._wake_out], timeout)
        if self._wake_out in ready:
            os.read(self._wake_out, 1024)

    def _stop(self) -> list[Exception]:
        """End all roles, senders before receivers; returns what was not saved."""
        failures: list[Exception] = []
        stages = {worker.role.stage for worker in self._workers}
        for stage in sorted(stages | self._others.keys()):
            workers = [w for w in self._workers if w.role.stage == stage]
            self._await_start(workers, stage)
            begin = time.monotonic()
            for worker in workers:
                worker.terminate()
            for worker in workers:
                self._await_end(worker, begin + worker.role.grace)
                failures += filter(None, [worker.failure()])
            if stage in self._others and self._requests.count < 2:
                try:
                    self._others[stage](self._is_hurried)
                except Exception as error:  # Later stages have something to save.
                    failures.append(error)
        return failures

    def _await_start(
        self, workers: Sequence[Worker | ThreadWorker], stage: int
    ) -> None:
        """Wait for receivers that are restarted: only what runs can save."""
        receivers = [worker for worker in workers if worker.role.receives]
        deadline = time.monotonic() + max([w.role.grace for w in receivers], default=0)
        while self._requests.count < 2 and time.monotonic() < deadline:
            self._restart_receivers(stage)
            if all(worker.ready() for worker in receivers):
                return
            self._pause(deadline)

    def _restart_receivers(self, stage: int) -> None:
        """Restart roles that others send to; all others hear of one that is gone."""
        for worker in self._workers:
            if not worker.role.receives or worker.role.stage < stage:
                continue
            if worker.pid is None or worker.done():
                continue
            try:
                if worker.revive(self.BACKOFF, ending=True):
                    self._write_status()
            except (RoleError, OSError) as error:
                elements.print(str(error), color="yellow", flush=True)
            if worker.gone:
                for other in self._workers:
                    other.miss(worker.role.name)

    def _await_end(self, worker: Worker | ThreadWorker, deadline: float) -> None:
        while worker.alive() and self._requests.count < 2:
            if time.monotonic() > deadline:
                elements.print(f"{worker.role.name} did not stop in time; killing it.")
                break
            self._restart_receivers(worker.role.stage + 1)
            self._pause(deadline)
        worker.kill()

    def _pause(self, deadline: float) -> None:
        """Sleep until a role ends or a signal comes, but not for long."""
        alive = [worker for worker in self._workers if worker.alive()]
        self._wait(alive, min(deadline, time.monotonic() + POLL))

    def _is_hurried(self) -> bool:
        return self._requests.count > 1

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._requests.add()


def report(failures: Sequence[Exception], raised: BaseException) -> None:
    """Print what was not saved besides what is raised, which is printed anyway."""
    for error in failures:
        text = str(error)
        if isinstance(error, UnsavedError) and isinstance(raised, RoleError):
            text = error.kept if error.name == raised.name else text
        if text:
            elements.print(text, color="yellow", flush=True)
