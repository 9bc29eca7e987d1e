"""One role of a run and what runs it: a process, or a thread of this one."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import resource_tracker
from typing import Any

import elements

from embodied.core import disk, pickling
from embodied.process import child
from embodied.process.context import Context, Heartbeat, StoppedError
from embodied.process.signals import SIGNALS


class RoleError(RuntimeError):
    """A role failed more often than its budget allows; holds its last traceback."""

    def __init__(self, name: str, failures: int, text: str):
        often = f"{failures} time{'' if failures == 1 else 's'}"
        super().__init__(f"role '{name}' failed {often}, last with:\n{text}")
        self.name = name


class UnsavedError(RuntimeError):
    """A role ended before it had saved everything; `kept` says what it had saved."""

    def __init__(self, name: str, reason: str, kept: str):
        text = f"role '{name}' ended before it had saved everything: {reason}"
        super().__init__("\n".join(filter(None, [text.rstrip(), kept])))
        self.name, self.kept = name, kept


@dataclasses.dataclass(frozen=True)
class Role:
    """One process of a run."""

    name: str
    target: Callable[..., None]  # Gets `ctx`; returns when complete or asked to stop.
    args: tuple = ()
    stage: int = 0  # Lower stages are stopped first.
    budget: int = 5  # Failures allowed within `window` seconds.
    window: float = 300.0
    hang: float = 60.0  # Seconds without a heartbeat before it is killed.
    start: float = 300.0  # Seconds until the first heartbeat; imports are slow.
    grace: float = 8.0  # Seconds to exit after a stop request.
    essential: bool = False  # Whether its failure during shutdown fails the run.
    receives: bool = False  # Others send to it until they end: restarted until then.
    saved: Callable[[], str] = str  # Describes what a new process resumes from.
    envids: tuple[int, ...] = ()  # Numbers of its environments.
    thread: bool = False  # Run in the supervisor's process; a failure ends the run.


# The incarnation of a process that is started, given the numbers of its environments.
Issue = Callable[..., int | None]


def no_number(*envids: int) -> None:
    """None: the process numbers its steps by the clock."""


class Worker:
    """One role, its current process and the history of its failures."""

    def __init__(self, role: Role, issue: Issue = no_number):
        self.role = role
        self._issue = issue
        self.restarts = 0
        self._failures: list[float] = []
        self._process: Any = None
        self._pipe: Any = None
        self._beat: Any = None
        self._started = 0.0
        self._restart_at: float | None = None
        self._failure: child.Failure | None = None  # The last one.
        self._room = disk.Room(f"restart of {role.name}")
        self.gone = False  # Given up: it is not restarted again.
        self._asked = False  # Whether it was alive when asked to stop.

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def sentinel(self) -> int | None:
        """Ready when the process ends; None if that was already handled."""
        known = self._process is None or self._restart_at is not None or self.gone
        return None if known else self._process.sentinel

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._beat = context.Value(Heartbeat, lock=False)
        self._pipe, other = context.Pipe(duplex=False)
        payload = pickling.dumps((self.role.target, self.role.args))
        args = (payload, self._beat, other, os.getpid(), self._issue(*self.role.envids))
        process = context.Process(target=child.run_role, args=args, name=self.role.name)
        # Signals reach the whole process group, including a process still starting.
        # (Once running, Python's resource tracker no longer resets the mask.)
        resource_tracker.ensure_running()
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        self._process = process
        other.close()
        self._started = time.monotonic()
        self._restart_at = self._failure = None

    def alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def ready(self) -> bool:
        """Whether it need not be waited for: it runs, or has not failed before."""
        if self.alive():
            return not self.restarts or self._beat.value > 0
        return self._process is None or self.gone or self.done()

    def done(self) -> bool:
        """Whether the role returned by itself."""
        return self._process is not None and self._process.exitcode == 0

    def deadline(self) -> float:
        """When to look at this role again, if nothing happens before."""
        if self.gone:
            return float("inf")
        if self._restart_at is not None:
            return self._restart_at
        # The first heartbeat shortens the limit.
        return min(self._limit(), time.monotonic() + self.role.hang)

    def revive(self, backoff: Sequence[float], ending: bool = False) -> bool:
        """Restart the role if it is due, and notice if it died or hangs.

        Returns whether it has a new process. On a full disk the restart is tried again
        later, unless the run is ending.
        """
        if self.gone:
            return False
        if self._restart_at is not None:
            if time.monotonic() < self._restart_at:
                return False
            try:
                self.start()
            except OSError as error:  # The number of its incarnation has no room.
                self.gone = ending or not disk.is_full(error)
                if self.gone:
                    raise
                self._room.lack(error)
                self._restart_at = time.monotonic() + disk.POLL
                return False
            self._room.found()
            self.restarts += 1
            return True
        if self.alive():
            if time.monotonic() < self._limit():
                return False
            self._process.kill()
            self._process.join()
            text = f"{silence(self._beat, self._patience())}, so it was killed"
            failure = child.Failure(text, text)
        elif self.done():
            return False  # It returned just now, after the supervisor had looked.
        else:
            failure = self._read_failure()
        self._count_failure(failure, backoff)
        return False

    def terminate(self) -> None:
        self._restart_at = None
        self._asked = self.alive()
        if self._asked:
            os.kill(self._process.pid, child.STOP)

    def kill(self) -> None:
        if self.alive():
            self._process.kill()
        if self._process:
            self._process.join()

    def miss(self, role: str) -> None:
        """Let the process know that a role is gone."""
        if self._beat is not None:
            add_gone(self._beat, role)

    def failure(self) -> UnsavedError | None:
        """The error if an essential role ended, or failed, before it had saved.

        A role killed by the request itself had not started: nothing is lost.
        """
        if not self.role.essential or self._process is None or self.done():
            return None
        if self._asked and self._process.exitcode == -child.STOP:
            return None
        failure = self._failure or self._read_failure()
        return UnsavedError(self.role.name, failure.text, self.role.saved())

    def _patience(self) -> float:
        return self.role.hang if self._beat.value else self.role.start

    def _limit(self) -> float:
        return max(self._started, self._beat.value) + self._patience()

    def _count_failure(self, failure: child.Failure, backoff: Sequence[float]) -> None:
        now, role = time.monotonic(), self.role
        recent = [t for t in self._failures if t > now - role.window]
        self._failures = [*recent, now]
        count = len(self._failures)
        self._failure = failure
        if failure.final or count > role.budget:
            self.gone = True
            raise RoleError(role.name, count, failure.text)
        delay = backoff[min(count, len(backoff)) - 1]
        self._restart_at = now + delay
        elements.print(
            f"{role.name} failed ({count} of {role.budget} times allowed in "
            f"{role.window:.0f} s) and is restarted in {delay:g} s: {failure.title}",
            color="yellow",
            flush=True,
        )

    def _read_failure(self) -> child.Failure:
        self._process.join()
        try:
            if self._pipe.poll():
                return self._pipe.recv()
        except EOFError:
            pass  # It died without a report; use the exit code.
        code = self._process.exitcode
        reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return child.Failure(f"died with {reason}", f"died with {reason}")


class ThreadWorker:
    """A role that is a thread of this process: it can be neither killed nor restarted.

    It has the interface of a `Worker`. A closed pipe signals its end.
    """

    restarts = 0

    def __init__(self, role: Role, issue: Issue = no_number):
        self.role = role
        self.pid = os.getpid()
        self.sentinel, self._end = os.pipe()
        self._beat = Heartbeat()
        self._ctx = Context(self._beat, incarnation=issue(*role.envids))
        self._thread = threading.Thread(target=self._run, name=role.name, daemon=True)
        self._started = 0.0
        self._error = ""
        self.gone = False

    def start(self) -> None:
        self._started = time.monotonic()
        self._thread.start()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def ready(self) -> bool:
        return True

    def done(self) -> bool:
        return not self.alive() and not self._error

    def deadline(self) -> float:
        return min(self._limit(), time.monotonic() + self.role.hang)

    def revive(self, backoff: Sequence[float], ending: bool = False) -> bool:
        """Raise if the thread failed or hangs, once."""
        if self.gone:
            return False
        if self.alive() and time.monotonic() < self._limit():
            return False
        self.gone = True
        if self.alive():
            self._error = silence(self._beat, self._patience())
        raise RoleError(self.role.name, 1, self._error)

    def terminate(self) -> None:
        self._ctx.request_stop()

    def kill(self) -> None:
        """Leave it: it is a daemon and ends with the process."""

    def miss(self, role: str) -> None:
        add_gone(self._beat, role)

    def failure(self) -> UnsavedError | None:
        if self.done():
            return None
        reason = self._error or "it did not stop in time"
        return UnsavedError(self.role.name, reason, self.role.saved())

    def _run(self) -> None:
        try:
            self.role.target(*self.role.args, ctx=self._ctx)
        except StoppedError:
            pass  # It was asked to end while it waited for another role.
        except BaseException as error:
            self._error = child.describe(error)
        os.close(self._end)

    def _patience(self) -> float:
        return self.role.hang if self._beat.value else self.role.start

    def _limit(self) -> float:
        return max(self._started, self._beat.value) + self._patience()


def add_gone(beat: Any, role: str) -> None:
    """Add a role to those that a process no longer waits for."""
    names = beat.gone.decode().split()
    if role not in names:
        beat.gone = " ".join([*names, role]).encode()


def silence(beat: Any, seconds: float) -> str:
    """The message about a role without heartbeats."""
    part = f" of its {beat.part.decode()}" if beat.part else ""
    return f"no heartbeat{part} for {seconds:.0f} s"
