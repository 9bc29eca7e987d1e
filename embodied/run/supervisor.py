"""Starts the processes of a run, restarts those that die or hang, and ends them all."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any

import cloudpickle
import elements

from embodied.run import role as this_role

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# How a role is told to stop. Not by SIGTERM: schedulers send that to all processes of a
# job at once, and it is for the supervisor to end them in order.
STOP = signal.SIGUSR1
PR_SET_PDEATHSIG = 1
LAST_WORDS = 1 << 15  # Characters of a traceback, so that a pipe can hold it.


class RoleError(RuntimeError):
    """A role failed more often than its budget allows; holds its last traceback."""

    def __init__(self, name: str, failures: int, text: str):
        super().__init__(f"role '{name}' failed {failures} times, last with:\n{text}")
        self.name = name


@dataclasses.dataclass(frozen=True)
class Role:
    """One process of a run."""

    name: str
    target: Callable[..., None]  # Returns when the run is complete or told to stop.
    args: tuple = ()
    stage: int = 0  # Lower stages are stopped first.
    budget: int = 5  # Failures allowed within `window` seconds.
    window: float = 300.0
    hang: float = 60.0  # Seconds without a sign of life before it is killed.
    start: float = 300.0  # The same until the first one, since imports take long.
    grace: float = 8.0  # Seconds to end by itself when told to stop.
    essential: bool = False  # Whether the run failed if it does not end well.
    thread: bool = False  # Run in the supervisor's process; a failure ends the run.


class Supervisor:
    """Keeps roles running until one returns, one fails for good, or a signal comes.

    A role that returns without being told to stop ends the run: it is complete. Then
    all are stopped, stage by stage. The second signal kills everything at once.
    """

    BACKOFF = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)  # Seconds before the n-th restart.

    def __init__(self, roles: Sequence[Role], status: str | os.PathLike | None = None):
        names = [role.name for role in roles]
        assert len(set(names)) == len(names), names
        assert sum(role.thread for role in roles) <= 1, "they would share one stop"
        self._workers = [ThreadWorker(r) if r.thread else Worker(r) for r in roles]
        self._status = pathlib.Path(status) if status else None
        self._signals = 0
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
        return reason

    def restarts(self) -> dict[str, int]:
        """How often each role was restarted."""
        return {worker.role.name: worker.restarts for worker in self._workers}

    def _supervise(self, duration: float) -> str:
        end = time.monotonic() + duration
        while not self._signals:
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
        return "asked to stop"

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
        if failed and self._signals < 2:
            raise failed

    def _await_end(self, worker: Worker | ThreadWorker, deadline: float) -> None:
        while worker.alive() and self._signals < 2:
            if time.monotonic() > deadline:
                elements.print(f"{worker.role.name} does not stop, killing it.")
                break
            self._wait([worker], deadline)
        worker.kill()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1


class Worker:
    """One role, its current process and the history of its failures."""

    def __init__(self, role: Role):
        self.role = role
        self.restarts = 0
        self._failures: list[float] = []
        self._process: Any = None
        self._pipe: Any = None
        self._beat: Any = None
        self._started = 0.0
        self._restart_at: float | None = None
        self._told = False  # Whether it was alive when it was told to stop.

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def sentinel(self) -> int | None:
        """Ready when the process has ended; None while its end is known."""
        known = self._process is None or self._restart_at is not None
        return None if known else self._process.sentinel

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._beat = context.Value(this_role.Beat, lock=False)
        self._pipe, other = context.Pipe(duplex=False)
        payload = cloudpickle.dumps((self.role.target, self.role.args))
        args = (payload, self._beat, other, os.getpid())
        process = context.Process(target=_main, args=args, name=self.role.name)
        # Signals go to the whole group, also to a process that only starts.
        # (Python's resource tracker, once started, no longer undoes the mask.)
        resource_tracker.ensure_running()
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        process.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        self._process = process
        other.close()
        self._started = time.monotonic()
        self._restart_at = None

    def alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def done(self) -> bool:
        """Whether the role returned by itself."""
        return self._process is not None and self._process.exitcode == 0

    def deadline(self) -> float:
        """When to look at this role again, if nothing happens before."""
        if self._restart_at is not None:
            return self._restart_at
        # The first beat, of which nobody is told, shortens the limit.
        return min(self._limit(), time.monotonic() + self.role.hang)

    def revive(self, backoff: Sequence[float]) -> bool:
        """Restart the role if it is due, and notice if it died or hangs.

        Returns whether it has a new process.
        """
        if self._restart_at is not None:
            if time.monotonic() < self._restart_at:
                return False
            self.restarts += 1
            self.start()
            return True
        if self.alive():
            if time.monotonic() < self._limit():
                return False
            self._process.kill()
            self._process.join()
            text = f"{silence(self._beat, self._patience())}, so it was killed"
        else:
            text = self._last_words()
        self._count_failure(text, backoff)
        return False

    def terminate(self) -> None:
        self._restart_at = None
        self._told = self.alive()
        if self._told:
            os.kill(self._process.pid, STOP)

    def kill(self) -> None:
        if self.alive():
            self._process.kill()
        if self._process:
            self._process.join()

    def failure(self) -> RoleError | None:
        """What to raise if an essential role was told to stop and did not end well.

        One that died of the request itself had not begun: it has nothing to save.
        """
        if not self.role.essential or not self._told:
            return None
        if self._process.exitcode in (0, -STOP):
            return None
        return RoleError(self.role.name, 1, self._last_words())

    def _patience(self) -> float:
        return self.role.hang if self._beat.value else self.role.start

    def _limit(self) -> float:
        return max(self._started, self._beat.value) + self._patience()

    def _count_failure(self, text: str, backoff: Sequence[float]) -> None:
        now, role = time.monotonic(), self.role
        recent = [t for t in self._failures if t > now - role.window]
        self._failures = [*recent, now]
        count = len(self._failures)
        if count > role.budget:
            raise RoleError(role.name, count, text)
        delay = backoff[min(count, len(backoff)) - 1]
        self._restart_at = now + delay
        last = text.strip().splitlines()[-1]
        elements.print(
            f"{role.name} failed ({count} of {role.budget} times allowed in "
            f"{role.window:.0f} s) and is restarted in {delay:g} s: {last}",
            color="yellow",
            flush=True,
        )

    def _last_words(self) -> str:
        self._process.join()
        try:
            if self._pipe.poll():
                return self._pipe.recv()
        except EOFError:
            pass  # It died without a word: the exit code has to do.
        code = self._process.exitcode
        reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"died with {reason}"


class ThreadWorker:
    """A role that is a thread of this process: it can be neither killed nor restarted.

    To the supervisor it looks like a `Worker`. Closing a pipe tells it of the end.
    """

    restarts = 0

    def __init__(self, role: Role):
        self.role = role
        self.pid = os.getpid()
        self.sentinel, self._end = os.pipe()
        self._beat = this_role.Beat()
        self._thread = threading.Thread(target=self._run, name=role.name, daemon=True)
        self._started = 0.0
        self._error = ""
        self._told = False

    def start(self) -> None:
        this_role.attach(self._beat)
        self._started = time.monotonic()
        self._thread.start()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def done(self) -> bool:
        return not self.alive() and not self._error

    def deadline(self) -> float:
        return min(self._limit(), time.monotonic() + self.role.hang)

    def revive(self, backoff: Sequence[float]) -> bool:
        """Raise if the thread failed or hangs."""
        if not self.alive():
            raise RoleError(self.role.name, 1, self._error)
        if time.monotonic() >= self._limit():
            self._error = silence(self._beat, self._patience())
            raise RoleError(self.role.name, 1, self._error)
        return False

    def terminate(self) -> None:
        self._told = self.alive()
        this_role.request_stop()

    def kill(self) -> None:
        """Leave it: it is a daemon and ends with the process."""

    def failure(self) -> RoleError | None:
        if not self._told or not (self._error or self.alive()):
            return None
        text = self._error or "it did not stop in time"
        return RoleError(self.role.name, 1, text)

    def _run(self) -> None:
        try:
            self.role.target(*self.role.args)
        except this_role.StoppedError:
            pass  # It was asked to end while it waited for another role.
        except BaseException:
            self._error = traceback.format_exc()
        os.close(self._end)

    def _patience(self) -> float:
        return self.role.hang if self._beat.value else self.role.start

    def _limit(self) -> float:
        return max(self._started, self._beat.value) + self._patience()


def silence(beat: Any, seconds: float) -> str:
    """What to say of a role that shows no sign of life."""
    part = f" of its {beat.part.decode()}" if beat.part else ""
    return f"no sign of life{part} for {seconds:.0f} s"


def _main(payload: bytes, beat: Any, pipe: Any, parent: int) -> None:
    """The life of a role's process."""
    _die_with(parent)
    this_role.attach(beat)
    _listen()
    try:
        target, args = cloudpickle.loads(payload)
        target(*args)
    except this_role.StoppedError:
        _exit(0)  # It was asked to end while it waited for another role.
    except BaseException:
        text = traceback.format_exc()
        if this_role.stopping():
            print(text, file=sys.stderr, flush=True)
        pipe.send(text[-LAST_WORDS:])
        pipe.close()
        _exit(1)
    _exit(0)


def _exit(code: int) -> None:
    """End now: threads of a role that returned or failed must not keep it alive."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _listen() -> None:
    """Let a thread wait for the request to stop.

    A signal handler runs in the main thread, perhaps while that holds the lock that
    telling the others needs; so it only writes to a pipe.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(STOP, _on_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The supervisor decides.
    # A handler, since processes that the role starts would inherit to ignore it.
    signal.signal(signal.SIGTERM, _on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    args = (read,)
    threading.Thread(target=_await_request, args=args, name="stop", daemon=True).start()


def _on_signal(number: int, frame: FrameType | None) -> None:
    """Nothing: that there is a handler makes Python write the number to the pipe."""


def _await_request(pipe: int) -> None:
    while STOP not in os.read(pipe, 64):
        pass
    this_role.request_stop()


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when the supervisor dies."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os._exit(1)  # It died before we could ask.
