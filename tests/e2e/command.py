"""`dreamerv3` commands as processes that tests start, watch and kill."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from embodied import rpc
from embodied.replay import Replay

ROOT = pathlib.Path(__file__).parents[2]
ADDRESSES = ("actor", "replay", "logger")
PROGRAM = (sys.executable, "-m", "dreamerv3")


class Command:
    """A command whose output goes to a file, so that nobody has to read along."""

    def __init__(self, output, *args, prefix=(), env=None, program=PROGRAM, cwd=ROOT):
        self.output = pathlib.Path(output)
        command = [*prefix, *program, *args]
        with self.output.open("a") as file:
            self.process = subprocess.Popen(
                list(map(str, command)),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )

    def text(self):
        return self.output.read_text()

    def children(self):
        """Processes of roles; Python's own helper is none."""
        found = psutil.Process(self.process.pid).children()
        return [p for p in found if "resource_tracker" not in " ".join(p.cmdline())]

    def wait(self, timeout=60):
        """The exit code, of a command that ends by itself."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(
                f"{self.output.name} did not end in {timeout} s:\n{self.text()}"
            )

    def stop(self, number=signal.SIGINT, timeout=30):
        """The exit code after a signal to the whole group, as a terminal sends it."""
        os.killpg(self.process.pid, number)
        return self.wait(timeout)

    def kill(self):
        """End everything that is left, without asking."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)


def wait_for(condition, what, commands=(), timeout=90):
    """Look every now and then until a condition holds and all commands still run."""
    pause = threading.Event()
    for _ in range(int(timeout / 0.05)):
        if condition():
            return
        for each in commands:
            if each.process.poll() is not None:
                pytest.fail(f"{each.output.name} ended before {what}:\n{each.text()}")
        pause.wait(0.05)
    texts = "\n".join(f"== {each.output.name}\n{each.text()}" for each in commands)
    pytest.fail(f"no {what} in {timeout} s:\n{texts}")


def ports(host="127.0.0.1"):
    """Flags with addresses of the three servers, free when asked for."""
    flags = []
    for name in ADDRESSES:
        flags += [f"--run.{name}_addr", rpc.resolve(f"tcp://{host}:{{auto}}")]
    return flags


def rows(path):
    """Lines of a JSON lines file, but the last one that may be under way."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def logged_step(logdir):
    """The step counter in the logger's newest checkpoint."""
    newest = max((pathlib.Path(logdir) / "ckpt" / "logger").glob("0*"))
    return json.loads((newest / "logger" / "tree.json").read_text())["step"]


def stored(logdir, length):
    """What the replay holds, opened as a new run would."""
    return Replay(length, 10**6, pathlib.Path(logdir) / "replay")
