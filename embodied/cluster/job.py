"""A whole run on one node of a Ray cluster, followed from the command that started it.

An actor on that node starts this module as a program, which runs the launcher. If the
node is lost, Ray starts the actor on another one, where the run resumes.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import elements

from embodied.cluster import fleet, host
from embodied.core import parent_death, pickling
from embodied.process.signals import SIGNALS, Requests

POLL = 0.5  # Seconds that a look at the program waits for its end.
TELL_AFTER = 10.0  # Seconds without an answer until the command says so.
GIVE_UP = 30.0  # Seconds without an answer after which a request to stop ends the job.
WINDOW = 300.0  # Seconds in which a job may be restarted as often as its budget says.
UNSHARED = 2  # Exit code of a program that does not find the command's files.


class JobError(Exception):
    """The job failed; what its program printed says why."""

    def __init__(self, text: str, code: int = 1):
        super().__init__(text)
        self.code = code


class Needs(NamedTuple):
    """What the node of a job must have."""

    gpus: float
    cpus: float
    memory: int  # Bytes.

    def missing(self, resources: dict[str, float]) -> bool:
        """Whether a node with these resources, in Ray's names, has too little."""
        found = (resources.get(name, 0.0) for name in ("GPU", "CPU", "memory"))
        return any(has < need for has, need in zip(found, self, strict=True))


class Order(NamedTuple):
    """What an actor has to run."""

    target: bytes  # Pickled; returns the exit code of the program.
    folder: str  # Working directory of the command.
    marker: str  # A file in the log directory,
    token: str  # and what the command wrote there.
    address: str  # Of the cluster.


class Progress(NamedTuple):
    """News of a program."""

    where: str  # Differs between programs.
    output: bytes  # Since the last news.
    code: int | None  # Once it has ended.


class Program:
    """The actor: a program that is started with it and ends with it."""

    def __init__(self, order: Order):
        self._output, path = tempfile.mkstemp()
        os.unlink(path)
        self._read = 0  # Bytes of the output that were returned.
        command = [sys.executable, "-m", __name__, str(os.getpid())]
        with tempfile.TemporaryFile() as given:
            given.write(pickling.dumps(order))
            given.seek(0)
            self._process = subprocess.Popen(
                command,
                stdin=given,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PYTHONUNBUFFERED": "1",
                    "RAY_ADDRESS": order.address,
                },
            )
        self._where = f"{socket.gethostname()}, process {self._process.pid}"

    def poll(self) -> Progress:
        """Wait a moment for the end of the program; what is new by then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(POLL)
        code = self._process.poll()
        size = os.fstat(self._output).st_size
        # The program writes at the position of the file, which must not be moved.
        output = os.pread(self._output, size - self._read, self._read)
        self._read += len(output)
        return Progress(self._where, output, code)

    def stop(self) -> None:
        """Ask the program to save everything and to end."""
        self._process.send_signal(signal.SIGTERM)


class Job:
    """The job as its command sees it: prints what it prints, and passes on signals."""

    def __init__(self, ray: Any, actor: Any, budget: int, requests: Requests):
        self._ray, self._actor = ray, actor
        self._budget = budget
        self._requests = requests
        self._asked = False  # Whether the program knows that it has to end.
        self._where = ""
        self._restarts: list[float] = []

    def run(self) -> int:
        """Follow the program until it ends; returns its exit code."""
        while True:
            progress = self._ask()
            if progress is None:
                return 0
            self._show(progress)
            code = progress.code
            if code is None:
                continue
            lost = code == host.LEFT or code < 0
            if not lost:
                return code
            if self._asked:
                return 0 if code == host.LEFT else 128 - code
            self._ray.kill(self._actor, no_restart=False)

    def _ask(self) -> Progress | None:
        """News of the program; nothing if it was asked to stop and does not answer."""
        answer, begin, told = self._actor.poll.remote(), time.monotonic(), False
        while True:
            self._pass_on_request()
            silent = time.monotonic() - begin
            if self._requests.count > 1 or (self._asked and self._gives_up(silent)):
                say("Ended without waiting for the job; its checkpoints remain.")
                return None
            ready, _ = self._ray.wait([answer], timeout=POLL)
            if ready:
                return self._ray.get(answer)
            if not told and silent > TELL_AFTER:
                told = True
                say("Waiting: for a node of the cluster that can run the job.")

    def _pass_on_request(self) -> None:
        if self._requests.count and not self._asked:
            self._asked = True
            say("Stopping the job. Press Ctrl-C again to stop at once.")
            self._actor.stop.remote()

    def _gives_up(self, silent: float) -> bool:
        """Whether there is no program, or it is on a node that was lost."""
        return not self._where or silent > GIVE_UP

    def _show(self, progress: Progress) -> None:
        if progress.where != self._where:
            if self._where:
                self._count_restart()
                self._asked = False  # The new program does not know of the request.
            self._where = progress.where
            say(f"The job runs on {progress.where}.")
        sys.stdout.buffer.write(progress.output)
        sys.stdout.flush()

    def _count_restart(self) -> None:
        say(f"The job was lost on {self._where}; it resumes.", color="yellow")
        now = time.monotonic()
        self._restarts = [t for t in self._restarts if t > now - WINDOW] + [now]
        if len(self._restarts) > self._budget:
            raise JobError(
                f"the job was lost {len(self._restarts)} times in {WINDOW:.0f} s, "
                f"last on {self._where}; run.budget allows {self._budget}"
            )


def run(
    target: Callable[[], int], needs: Needs, address: str, marker: str, budget: int
) -> int:
    """Run a program on a node that has what it needs; returns its exit code.

    `target` returns that code, or `host.LEFT` if something but this command stopped it.
    `marker` is a path that all nodes see. Raises `JobError` if the job cannot be run.
    """
    requests = Requests()
    with _listening(requests), _marked(marker) as token:
        ray = fleet.connect(address, log_to_driver=False)
        try:
            where = ray.get_runtime_context().gcs_address
            payload = pickling.dumps(target)
            order = Order(payload, os.getcwd(), marker, token, where)
            actor = ray.remote(Program).options(
                num_gpus=needs.gpus,
                num_cpus=needs.cpus,
                memory=needs.memory or None,
                max_restarts=-1,
                # Calls reach the program that replaces a lost one.
                max_task_retries=-1,
            )
            return Job(ray, actor.remote(order), budget, requests).run()
        except importlib.import_module("ray.exceptions").RayError as error:
            raise JobError(f"Ray cannot run the job: {error}") from error
        finally:
            ray.shutdown()  # Kills the program if it is still there.


@contextlib.contextmanager
def _listening(requests: Requests) -> Iterator[None]:
    """Count requests to stop instead of ending at once."""

    def on_signal(number: int, frame: Any) -> None:
        requests.add()

    previous = {number: signal.signal(number, on_signal) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _marked(marker: str) -> Iterator[str]:
    """A token in a file, by which a node knows that it sees the command's files."""
    path, token = pathlib.Path(marker), os.urandom(8).hex()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(token)
    try:
        yield token
    finally:
        path.unlink(missing_ok=True)


def say(text: str, **options: Any) -> None:
    """Print a line of the command itself."""
    elements.print(text, flush=True, **options)


def main(parent: int) -> int:
    """Run the order that comes by standard input; end with the parent process."""
    parent_death.die_with(parent)
    order: Order = pickling.loads(sys.stdin.buffer.read())
    if problem := find_unshared(order):
        print(f"dreamerv3: on {socket.gethostname()}, {problem}", file=sys.stderr)
        return UNSHARED
    os.chdir(order.folder)
    return pickling.loads(order.target)()


def find_unshared(order: Order) -> str:
    """What this node does not see of the command's files, and the remedy."""
    marker = pathlib.Path(order.marker)
    if not marker.exists() or marker.read_text() != order.token:
        return (
            f"the log directory {marker.parent} is not that of the command: choose a "
            "--logdir on storage that all nodes share"
        )
    if not pathlib.Path(order.folder).is_dir():
        return (
            f"there is no directory {order.folder}, where the command was given: give "
            "it in one that all nodes have"
        )
    return ""


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
